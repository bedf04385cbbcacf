//! A device that follows a test's orders: it takes a given number of work requests, refuses the
//! next, and completes the ones it is told to.
//!
//! No real device is behind it; it fills the entries of `ibv_context.ops` that the queues use.

use std::mem::offset_of;
use std::ptr;

use rdma_sys::{ibv_context, ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_wc, ibv_wc_opcode, verbs_context};
use verbline_mem::{PageChoice, PageSize, Pool, PoolSpec, Region, RegionSpec};

use crate::cq::completion::Completions;
use crate::device::Device;
use crate::device::context::Context;
use crate::device::provider::Provider;

/// The fields of a posted work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Posted {
    pub(crate) wr_id: u64,
    pub(crate) flags: u32,
    pub(crate) opcode: u32,
    pub(crate) len: Option<u32>,
    /// Where its one part is: the address and the key.
    pub(crate) at: Option<(u64, u32)>,
}

/// `ibv_qp` comes first, so that the fake's address is the QP's.
#[repr(C)]
pub(crate) struct Fake {
    qp: ibv_qp,
    context: ibv_context,
    /// The work requests taken.
    pub(crate) posted: Vec<Posted>,
    /// How many more work requests to take before refusing one.
    pub(crate) takes: usize,
    /// The return value of a refusal.
    pub(crate) refusal: i32,
    /// Whether a refusal leaves `bad_wr` as it was.
    pub(crate) silent: bool,
}

impl Fake {
    pub(crate) fn new() -> Box<Fake> {
        // SAFETY: both are integers, pointers and optional function pointers: all zeros is a value.
        let (qp, context) = unsafe { std::mem::zeroed() };
        let mut fake =
            Box::new(Fake { qp, context, posted: Vec::new(), takes: usize::MAX, refusal: libc::ENOMEM, silent: false });
        fake.context.ops.post_send = Some(post_send);
        fake.context.ops.post_recv = Some(post_recv);
        fake.qp.context = &raw mut fake.context;
        fake
    }

    pub(crate) fn qp(&mut self) -> *mut ibv_qp {
        ptr::from_mut(self).cast()
    }
}

/// # Safety
/// `qp` came from [`Fake::qp`], and the list is valid.
unsafe extern "C" fn post_send(qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) -> i32 {
    // SAFETY: by the contract above, `qp` is a fake one's, and the list is valid.
    unsafe { take(qp, wr, bad, |wr| (wr.next, wr.wr_id, wr.send_flags, wr.opcode, wr.num_sge, wr.sg_list)) }
}

/// # Safety
/// The contract of [`post_send`].
unsafe extern "C" fn post_recv(qp: *mut ibv_qp, wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> i32 {
    // SAFETY: by the contract of `post_send`, `qp` is a fake one's, and the list is valid.
    unsafe { take(qp, wr, bad, |wr| (wr.next, wr.wr_id, 0, 0, wr.num_sge, wr.sg_list)) }
}

type Parts<W> = (*mut W, u64, u32, u32, i32, *mut rdma_sys::ibv_sge);

/// # Safety
/// The contract of [`post_send`].
unsafe fn take<W>(qp: *mut ibv_qp, mut wr: *mut W, bad: *mut *mut W, parts: impl Fn(&W) -> Parts<W>) -> i32 {
    // SAFETY: the QP is the first field of the Fake, and its test does not touch it during the
    // call.
    let fake = unsafe { &mut *qp.cast::<Fake>() };
    while !wr.is_null() {
        if fake.takes == 0 {
            if !fake.silent {
                // SAFETY: the caller passed a place for it.
                unsafe { *bad = wr };
            }
            return fake.refusal;
        }
        // SAFETY: the list is valid.
        let (next, wr_id, flags, opcode, num_sge, sges) = parts(unsafe { &*wr });
        // SAFETY: as above; an SGE is there when one is announced.
        let sge = (num_sge == 1).then(|| unsafe { *sges });
        fake.takes -= 1;
        let (len, at) = (sge.map(|sge| sge.length), sge.map(|sge| (sge.addr, sge.lkey)));
        fake.posted.push(Posted { wr_id, flags, opcode, len, at });
        wr = next;
    }
    0
}

/// Completions with these numbers, statuses and lengths, as after a poll.
pub(crate) fn completions(entries: &[(u64, u32, u32)]) -> Completions {
    let mut completions = Completions::with_capacity(entries.len());
    let (first, _) = completions.as_raw();
    for (at, &(wr_id, status, byte_len)) in entries.iter().enumerate() {
        // SAFETY: there is room for all entries; ibv_wc is integers only.
        unsafe {
            let wc: &mut ibv_wc = &mut *first.add(at);
            wc.wr_id = wr_id;
            wc.status = status;
            wc.byte_len = byte_len;
            wc.opcode = ibv_wc_opcode::IBV_WC_RECV;
        }
    }
    // SAFETY: made for this number of entries.
    unsafe { completions.set_len(entries.len()) };
    completions
}

/// Opens soft0 with a changed table of extended verbs.
pub(crate) fn soft_with(change: impl FnOnce(&mut verbs_context)) -> Context {
    let context = Device::find(Provider::Soft, "soft0").unwrap().open().unwrap();
    let raw = context.inner.as_ptr();
    // SAFETY: a context of the software RNIC is the last part of a table, which nobody else uses
    // yet.
    change(unsafe { &mut *raw.byte_sub(offset_of!(verbs_context, context)).cast() });
    context
}

/// A pool bound to PD 7, registered with no device.
pub(crate) fn pool(packets: u32) -> Pool {
    pool_of(packets, 512, 64)
}

/// Like [`pool`], with another shape.
pub(crate) fn pool_of(packets: u32, data_bytes: u32, headroom_bytes: u32) -> Pool {
    let pool = unregistered_pool_of(packets, data_bytes, headroom_bytes);
    pool.attach_mr(verbline_mem::MrBinding { pd_id: PD, lkey: 0x77, keep: Box::new(()) }).unwrap();
    pool
}

/// A pool that belongs to no PD yet.
pub(crate) fn unregistered_pool(packets: u32) -> Pool {
    unregistered_pool_of(packets, 512, 64)
}

fn unregistered_pool_of(packets: u32, data_bytes: u32, headroom_bytes: u32) -> Pool {
    let spec = PoolSpec { name: "fake".into(), packets, data_bytes, headroom_bytes };
    let region = Region::map(&RegionSpec {
        name: "fake".into(),
        len_bytes: Pool::required_bytes(&spec),
        pages: PageChoice::Exactly(PageSize::Small4K),
        lock: false,
    });
    Pool::new(region.unwrap(), spec).unwrap()
}

/// The PD of [`pool`]'s packets.
pub(crate) const PD: u64 = 7;
