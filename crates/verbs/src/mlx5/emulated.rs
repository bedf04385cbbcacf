//! A fake libmlx5: records its calls and runs them on the software RNIC, as work requests. So the
//! crate's code for a card runs, and its effect shows in the bytes; it proves nothing about a real
//! card.

use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::mem::offset_of;
use std::ptr;

use rdma_sys::{
    ibv_context, ibv_device, ibv_pd, ibv_qp, ibv_qp_ex, ibv_qp_init_attr, ibv_qp_init_attr_ex, ibv_send_flags,
    ibv_send_wr, ibv_sge,
};
use verbline_softnic::mlx5dv::*;

use super::card::Card;
use super::ffi::{context_mask, mlx5dv_context, mlx5dv_qp_ex, mlx5dv_qp_init_attr, mlx5dv_sig_caps};
use super::functions::Functions;
use crate::device::Device;
use crate::device::context::Context;
use crate::device::offload::Offload;
use crate::device::provider::Provider;

/// A recorded call, with its arguments.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Call {
    CreateQp {
        create_flags: u32,
        send_ops_flags: u64,
        max_send_wr: u32,
        max_inline_data: u32,
    },
    Start,
    Configure {
        wr_id: u64,
        wr_flags: u32,
        mkey: usize,
        setters: u8,
        conf_flags: u32,
    },
    Access(u32),
    List(Vec<(u64, u32, u32)>),
    Interleaved(u32, Vec<mlx5dv_mr_interleaved>),
    SigBlock {
        mem: Option<Told>,
        wire: Option<Told>,
        flags: u32,
        check_mask: u8,
        copy_mask: u8,
    },
    Complete,
    /// A list posted by `ibv_post_send`, by its opcodes.
    PostSend(Vec<u32>),
    Cancel(u64),
}

/// The arguments of a domain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Told {
    T10Dif(u32, mlx5dv_sig_t10dif),
    Crc(u32, mlx5dv_sig_crc),
}

thread_local! {
    /// The tables of this thread's queue pairs, including destroyed ones.
    static TABLES: RefCell<Vec<Tables>> = const { RefCell::new(Vec::new()) };
    static CALLS: RefCell<Vec<Call>> = const { RefCell::new(Vec::new()) };
    /// The errno that the next `ibv_wr_complete` returns instead of posting; 0 posts.
    static REFUSAL: Cell<c_int> = const { Cell::new(0) };
    static CARD: Cell<Has> = const { Cell::new(EVERYTHING) };
    static DESTROYED: Cell<usize> = const { Cell::new(0) };
    static POST_SEND: Cell<Option<PostSendVerb>> = const { Cell::new(None) };
}

type PostSendVerb = unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int;

/// The capabilities of a fake card.
#[derive(Clone, Copy)]
pub(super) struct Has {
    pub(super) is_mlx5: bool,
    /// The library's return value for the query.
    pub(super) query: c_int,
    /// Whether its library supports signatures.
    pub(super) is_known: bool,
    pub(super) caps: mlx5dv_sig_caps,
    pub(super) pipelining: bool,
    /// The most slots of a queue that configures keys.
    pub(super) max_send_wr: u32,
    /// The most bytes of inline data in all of its slots.
    pub(super) queue_bytes: u32,
}

/// All capabilities.
pub(super) const EVERYTHING: Has = Has {
    is_mlx5: true,
    query: 0,
    is_known: true,
    caps: mlx5dv_sig_caps { block_size: 0x1f, block_prot: 0b11, t10dif_bg: 0b11, crc_type: 0b111 },
    pipelining: true,
    max_send_wr: u32::MAX,
    queue_bytes: u32::MAX,
};

/// The calls since the last call of `calls`.
pub(super) fn calls() -> Vec<Call> {
    CALLS.take()
}

/// Refuses the next configuration with this errno.
pub(super) fn refuse_next(errno: c_int) {
    REFUSAL.set(errno);
}

/// Keys destroyed since the last call of `destroyed`.
pub(super) fn destroyed() -> usize {
    DESTROYED.take()
}

/// Opens the software RNIC as a card with these capabilities.
pub(super) fn open(has: Has) -> Context {
    CARD.set(has);
    let context = Device::find(Provider::Soft, "soft0").unwrap().open().unwrap();
    let raw = context.inner.as_ptr();
    // SAFETY: the context is open, and these functions take it.
    let card = unsafe { Card::of(&FUNCTIONS, raw) }.unwrap();
    // SAFETY: open; nobody else uses it yet, and the table is read by `PostSend` alone.
    unsafe { POST_SEND.set((*raw).ops.post_send.replace(post_send)) };
    context.inner.offload.set(Ok(Offload::Mlx5(card))).unwrap();
    context
}

/// Why a device with these capabilities is no card.
pub(super) fn refused(has: Has) -> String {
    CARD.set(has);
    let context = Device::find(Provider::Soft, "soft0").unwrap().open().unwrap();
    // SAFETY: the context is open, and these functions take it.
    unsafe { Card::of(&FUNCTIONS, context.inner.as_ptr()) }.unwrap_err()
}

static FUNCTIONS: Functions = Functions {
    is_supported,
    query_device,
    create_mkey,
    destroy_mkey,
    mkey_check,
    create_qp,
    qp_ex_from_ibv_qp_ex,
    qp_cancel_posted_send_wrs,
    qp_to_qp_ex,
};

/// One queue pair's tables.
#[repr(C)]
struct Extended {
    ex: ibv_qp_ex,
    dv: mlx5dv_qp_ex,
    qp: *mut ibv_qp,
    wr: MkeyConfigureWr,
    /// The `wr_id`s cancelled since the queue pair last was outside SQD.
    cancelled: Vec<u64>,
}

/// Owner of a queue pair's tables.
struct Tables(*mut Extended);

impl Drop for Tables {
    fn drop(&mut self) {
        // SAFETY: from a box, and the queue pairs of the ending thread are gone.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

fn note(call: Call) {
    CALLS.with_borrow_mut(|calls| calls.push(call));
}

unsafe extern "C" fn is_supported(_: *mut ibv_device) -> bool {
    CARD.get().is_mlx5
}

unsafe extern "C" fn query_device(_: *mut ibv_context, attr: *mut mlx5dv_context) -> c_int {
    // SAFETY: the caller gives attributes that can be written.
    let attr = unsafe { &mut *attr };
    assert_eq!(attr.comp_mask, context_mask::SIGNATURE_OFFLOAD);
    let Has { query, is_known, caps, .. } = CARD.get();
    attr.sig_caps = caps;
    if !is_known {
        attr.comp_mask = 0;
    }
    query
}

unsafe extern "C" fn create_mkey(attr: *mut mlx5dv_mkey_init_attr) -> *mut mlx5dv_mkey {
    // SAFETY: as the library's, whose contract this function's caller keeps.
    unsafe { mlx5dv_create_mkey(attr) }
}

unsafe extern "C" fn destroy_mkey(mkey: *mut mlx5dv_mkey) -> c_int {
    DESTROYED.set(DESTROYED.get() + 1);
    // SAFETY: as the library's, whose contract this function's caller keeps.
    unsafe { mlx5dv_destroy_mkey(mkey) }
}

unsafe extern "C" fn mkey_check(mkey: *mut mlx5dv_mkey, error: *mut mlx5dv_mkey_err, size: usize) -> c_int {
    assert_eq!(size, size_of::<mlx5dv_mkey_err>());
    // SAFETY: as the library's, whose contract this function's caller keeps.
    unsafe { mlx5dv_mkey_check(mkey, error) }
}

unsafe extern "C" fn create_qp(
    context: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
    card: *mut mlx5dv_qp_init_attr,
) -> *mut ibv_qp {
    // SAFETY: the caller gives attributes that can be read and written, and a live PD in them.
    unsafe {
        let (attr, card) = (&mut *attr, &*card);
        let pd: *mut ibv_pd = attr.pd;
        assert_eq!(((*pd).context, attr.comp_mask & 1), (context, 1), "the PD is said to be there");
        assert_ne!(attr.comp_mask & 1 << 6, 0, "else ibv_qp_to_qp_ex() gives none");
        assert_eq!(card.comp_mask, 0b101);
        let extras = QpExtras { create_flags: card.create_flags, send_ops_flags: card.send_ops_flags };
        note(Call::CreateQp {
            create_flags: card.create_flags,
            send_ops_flags: card.send_ops_flags,
            max_send_wr: attr.cap.max_send_wr,
            max_inline_data: attr.cap.max_inline_data,
        });
        let Has { pipelining, max_send_wr, queue_bytes, .. } = CARD.get();
        let errno = match () {
            () if card.create_flags & qp_create_flags::SIG_PIPELINING != 0 && !pipelining => libc::EOPNOTSUPP,
            () if attr.cap.max_send_wr > max_send_wr => libc::EINVAL,
            () if attr.cap.max_send_wr * attr.cap.max_inline_data > queue_bytes => libc::ENOMEM,
            () => 0,
        };
        if errno != 0 {
            *libc::__errno_location() = errno;
            return ptr::null_mut();
        }
        let mut init: ibv_qp_init_attr = std::mem::zeroed();
        (init.send_cq, init.recv_cq, init.srq) = (attr.send_cq, attr.recv_cq, attr.srq);
        (init.cap, init.qp_type, init.sq_sig_all) = (attr.cap, attr.qp_type, attr.sq_sig_all);
        let qp = mlx5dv_create_qp(pd, &raw mut init, extras);
        attr.cap = init.cap;
        qp
    }
}

unsafe extern "C" fn qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    // SAFETY: numbers, pointers and optional functions: all zeros is a value.
    let (mut ex, mut dv): (ibv_qp_ex, mlx5dv_qp_ex) = unsafe { std::mem::zeroed() };
    ex.wr_start = Some(start);
    ex.wr_complete = Some(complete);
    dv.wr_mkey_configure = Some(configure);
    dv.wr_set_mkey_access_flags = Some(access_flags);
    dv.wr_set_mkey_layout_list = Some(layout_list);
    dv.wr_set_mkey_layout_interleaved = Some(layout_interleaved);
    dv.wr_set_mkey_sig_block = Some(sig_block);
    let tables = Box::new(Extended { ex, dv, qp, wr: MkeyConfigureWr::with_capacity(16), cancelled: Vec::new() });
    let tables = Tables(Box::into_raw(tables));
    let ex = tables.0.cast();
    TABLES.with_borrow_mut(|all| all.push(tables));
    ex
}

unsafe extern "C" fn qp_ex_from_ibv_qp_ex(ex: *mut ibv_qp_ex) -> *mut mlx5dv_qp_ex {
    ex.wrapping_byte_add(offset_of!(Extended, dv)).cast()
}

/// The tables around one of the pointers.
///
/// # Safety
/// The pointer came from [`qp_to_qp_ex`], and there is no other reference.
unsafe fn of_dv<'a>(dv: *mut mlx5dv_qp_ex) -> &'a mut Extended {
    // SAFETY: by the contract above, the tables are around it, and this is the only reference.
    unsafe { &mut *dv.byte_sub(offset_of!(Extended, dv)).cast::<Extended>() }
}

unsafe extern "C" fn start(_: *mut ibv_qp_ex) {
    note(Call::Start);
}

unsafe extern "C" fn configure(
    dv: *mut mlx5dv_qp_ex,
    mkey: *mut mlx5dv_mkey,
    setters: u8,
    attr: *mut mlx5dv_mkey_conf_attr,
) {
    // SAFETY: called on the tables above, with attributes that can be read.
    let (extended, attr) = unsafe { (of_dv(dv), &*attr) };
    let ibv_qp_ex { wr_id, wr_flags, .. } = extended.ex;
    note(Call::Configure { wr_id, wr_flags, mkey: mkey as usize, setters, conf_flags: attr.conf_flags });
    extended.wr.start(mkey, setters, attr);
}

unsafe extern "C" fn access_flags(dv: *mut mlx5dv_qp_ex, flags: u32) {
    note(Call::Access(flags));
    // SAFETY: called on the tables above.
    unsafe { of_dv(dv) }.wr.set_access_flags(flags);
}

unsafe extern "C" fn layout_list(dv: *mut mlx5dv_qp_ex, count: u16, sges: *const ibv_sge) {
    // SAFETY: called on the tables above, with `count` entries.
    let (extended, sges) = unsafe { (of_dv(dv), std::slice::from_raw_parts(sges, count.into())) };
    note(Call::List(sges.iter().map(|sge| (sge.addr, sge.length, sge.lkey)).collect()));
    extended.wr.set_layout_list(sges.iter().copied());
}

unsafe extern "C" fn layout_interleaved(
    dv: *mut mlx5dv_qp_ex,
    repeat: u32,
    count: u16,
    strips: *const mlx5dv_mr_interleaved,
) {
    // SAFETY: called on the tables above, with `count` entries.
    let (extended, strips) = unsafe { (of_dv(dv), std::slice::from_raw_parts(strips, count.into())) };
    note(Call::Interleaved(repeat, strips.to_vec()));
    extended.wr.set_layout_interleaved(repeat, strips.iter().copied());
}

unsafe extern "C" fn sig_block(dv: *mut mlx5dv_qp_ex, attr: *const mlx5dv_sig_block_attr) {
    // SAFETY: called on the tables above, with attributes and domains that can be read.
    unsafe {
        let attr = &*attr;
        assert_eq!(attr.comp_mask, 0);
        let told = |domain: *const mlx5dv_sig_block_domain| {
            domain.as_ref().map(|domain| match domain.sig_type {
                sig_type::T10DIF => Told::T10Dif(domain.block_size, *domain.sig.dif),
                _ => Told::Crc(domain.block_size, *domain.sig.crc),
            })
        };
        let mlx5dv_sig_block_attr { flags, check_mask, copy_mask, .. } = *attr;
        note(Call::SigBlock { mem: told(attr.mem), wire: told(attr.wire), flags, check_mask, copy_mask });
        of_dv(dv).wr.set_sig_block(attr);
    }
}

unsafe extern "C" fn complete(ex: *mut ibv_qp_ex) -> c_int {
    note(Call::Complete);
    let refusal = REFUSAL.take();
    if refusal != 0 {
        return refusal;
    }
    // SAFETY: called on the tables above, whose QP is live.
    unsafe {
        let extended = &mut *ex.cast::<Extended>();
        assert_ne!(extended.ex.wr_flags & ibv_send_flags::IBV_SEND_INLINE.0, 0);
        let qp = extended.qp;
        // Like a card, independent of the program's own posting function.
        let noted = (*(*qp).context).ops.post_send;
        (*(*qp).context).ops.post_send = POST_SEND.get();
        let ret = extended.wr.post(qp, extended.ex.wr_id, extended.ex.wr_flags);
        (*(*qp).context).ops.post_send = noted;
        ret
    }
}

unsafe extern "C" fn post_send(qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) -> c_int {
    // SAFETY: the caller gives a list of work requests that ends.
    unsafe {
        let mut opcodes = Vec::new();
        let mut at = wr;
        while let Some(one) = at.as_ref() {
            opcodes.push(one.opcode);
            at = one.next;
        }
        note(Call::PostSend(opcodes));
        POST_SEND.get().unwrap()(qp, wr, bad)
    }
}

unsafe extern "C" fn qp_cancel_posted_send_wrs(dv: *mut mlx5dv_qp_ex, wr_id: u64) -> c_int {
    note(Call::Cancel(wr_id));
    // SAFETY: called on the tables above, whose QP is live.
    let (extended, count) = unsafe {
        let extended = of_dv(dv);
        let count = mlx5dv_qp_cancel_posted_send_wrs(extended.qp, wr_id);
        (extended, count)
    };
    match count {
        // A card's library refuses to make a NOP of a NOP.
        0 if extended.cancelled.contains(&wr_id) => return -libc::EINVAL,
        1.. => extended.cancelled.push(wr_id),
        0 => {}
        // The queue pair is not in SQD.
        _ => extended.cancelled.clear(),
    }
    count
}
