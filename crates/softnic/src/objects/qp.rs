//! Queue pairs: what one consists of, and its life. What it does is in `sq`, `rq`, `modify` and their neighbours.
//!
//! What it guarantees: the allocation starts with `ibv_qp_ex`'s shape and zeros behind it, where `struct verbs_qp` has its
//! `comp_mask`, so that libibverbs' `ibv_qp_to_qp_ex` finds that there is no extended interface. Fields are grouped by who
//! writes them, each group on lines of its own.

use crate::data_path::rq::Rq;
use crate::data_path::scatter::WqeRing;
use crate::data_path::sq::Sq;
use crate::errno;
use crate::events::acknowledged::Fields;
use crate::events::async_event::HandedOut;
use crate::objects::context::Context;
use crate::objects::cq::Cq;
use crate::objects::device::{self, Device};
use crate::objects::fabric;
use crate::objects::modify::Attributes;
use crate::objects::pd::Pd;
use crate::objects::qp_table::{State, Transport};
use crate::objects::srq::Srq;
use crossbeam_utils::CachePadded;
use rdma_sys::*;
use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use verbline_sync::credit::Attention;
use verbline_sync::mailbox::Mailbox;

/// See the [module](self).
#[repr(C)]
pub(crate) struct Qp {
    raw: UnsafeCell<ibv_qp_ex>,
    /// `verbs_qp::comp_mask` is first in it for a libibverbs of these headers; for a newer one, whose `ibv_qp_ex` has grown
    /// (by a function pointer each in rdma-core 44 and 50), it is one of the next.
    comp_mask: [u64; 8],
    pub(crate) transport: Transport,
    pub(crate) qpn: u32,
    /// The protection domain's number.
    pub(crate) pd: u32,
    pub(crate) cap: ibv_qp_cap,
    pub(crate) sig_all: bool,
    send_cq: *const Cq,
    recv_cq: *const Cq,
    srq: *const Srq,
    /// Where a message to it may go that is alone on its way; in `recv_cq`.
    mailbox: Option<NonNull<Mailbox>>,
    /// `State`, as a number. Changed by the control path, and to an error state by anybody.
    state: CachePadded<AtomicU32>,
    /// What senders read of a receiver.
    pub(crate) inbound: CachePadded<Inbound>,
    pub(crate) sq: Sq,
    pub(crate) rq: Rq,
    pub(crate) async_handed_out: HandedOut,
    /// Multicast groups that it is attached to. Under the control lock.
    pub(crate) mcast_groups: AtomicU32,
    /// As last modified. Under the control lock.
    pub(crate) attributes: UnsafeCell<Attributes>,
}

// SAFETY: `raw` is shared as libibverbs shares it, `attributes` is under the control lock, the queues say who may touch
// what, and the rest is constant or atomic.
unsafe impl Sync for Qp {}

// `struct verbs_qp` of libibverbs/driver.h: `comp_mask` right behind `ibv_qp_ex`, which starts with `ibv_qp`.
const _: () = assert!(offset_of!(Qp, comp_mask) == size_of::<ibv_qp_ex>() && offset_of!(ibv_qp_ex, qp_base) == 0);

/// What a sender must know of the queue pair that it sends to: lines that are read by others and hardly ever written.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Inbound {
    /// Whom to accept messages from, see `accept` below; 0 for nobody.
    pub(crate) accept: AtomicU32,
    /// Changes at each reset; marks completions.
    pub(crate) tag: AtomicU32,
    /// Remote operations that are let in.
    pub(crate) access: AtomicU32,
    pub(crate) qkey: AtomicU32,
    pub(crate) min_rnr_timer: AtomicU32,
    pub(crate) max_dest_rd_atomic: AtomicU32,
    pub(crate) rq_psn: AtomicU32,
    pub(crate) attention: Attention,
}

/// `Inbound::accept` of a UD queue pair that receives.
pub(crate) const ACCEPT_DATAGRAMS: u32 = 1 << 30;
/// In `Inbound::accept`: the first message establishes the connection, and raises its event.
pub(crate) const NOT_ESTABLISHED: u32 = 1 << 31;

/// `Inbound::accept` of a connected queue pair: messages from `qpn` that are addressed to `device`.
pub(crate) fn accept_from(qpn: u32, device: usize) -> u32 {
    qpn | (device as u32) << 24
}

impl Qp {
    /// # Safety
    /// `qp` is one that [`create`] gave and [`destroy`] has not taken back.
    #[inline(always)]
    pub(crate) unsafe fn from_raw<'a>(qp: *mut ibv_qp) -> &'a Qp {
        // SAFETY: `raw` is first in a `Qp`.
        unsafe { &*qp.cast::<Qp>() }
    }

    pub(crate) fn raw(&self) -> *mut ibv_qp {
        self.raw.get().cast()
    }

    pub(crate) fn context(&self) -> &Context {
        // SAFETY: written at creation only; the context outlives its objects.
        unsafe { Context::from_raw((*self.raw()).context) }
    }

    pub(crate) fn device(&self) -> &'static Device {
        self.context().device
    }

    pub(crate) fn acks(&self) -> Fields {
        let raw = self.raw();
        // SAFETY: addresses of fields of a live object.
        unsafe { Fields::new(&raw mut (*raw).mutex, &raw mut (*raw).cond, &raw mut (*raw).events_completed) }
    }

    #[inline(always)]
    pub(crate) fn send_cq(&self) -> &Cq {
        // SAFETY: the completion queue outlives its queue pairs, which are counted.
        unsafe { &*self.send_cq }
    }

    #[inline(always)]
    pub(crate) fn recv_cq(&self) -> &Cq {
        // SAFETY: as above.
        unsafe { &*self.recv_cq }
    }

    #[inline(always)]
    pub(crate) fn srq(&self) -> Option<&Srq> {
        // SAFETY: as above.
        unsafe { self.srq.as_ref() }
    }

    /// Its mailbox, if it has one.
    #[inline(always)]
    pub(crate) fn mailbox(&self) -> Option<&Mailbox> {
        // SAFETY: part of the completion queue, which outlives its queue pairs.
        self.mailbox.map(|mailbox| unsafe { mailbox.as_ref() })
    }

    #[inline(always)]
    pub(crate) fn is_datagram(&self) -> bool {
        self.transport == Transport::Ud
    }

    /// Where the receives that its messages consume lie.
    #[inline(always)]
    pub(crate) fn receives(&self) -> &WqeRing {
        self.srq().map_or(&self.rq.wqes, |srq| &srq.wqes)
    }

    /// The completion of receive `index` was polled: its slot is free.
    #[inline(always)]
    pub(crate) fn receive_polled(&self, index: u64) {
        match self.srq() {
            None => self.rq.free_up_to(index + 1),
            Some(srq) => srq.free(index),
        }
    }

    /// The state now.
    #[inline(always)]
    #[expect(clippy::expect_used, reason = "no other number is ever stored")]
    pub(crate) fn state(&self) -> State {
        // Acquire pairs with the Release in `leave_for`: what came before it is seen.
        State::from_raw(self.state.load(Ordering::Acquire)).expect("only states are stored")
    }

    /// Moves from `from` to `to` if it is still there.
    pub(crate) fn leave_for(&self, from: State, to: State) -> bool {
        // AcqRel: pairs with the Acquire in `state`.
        self.state.compare_exchange(from.raw(), to.raw(), Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Completions of before are no longer given out. Control path; no sender is at work. A poll that began before may still
    /// go by the old tag.
    pub(crate) fn new_tag(&self) {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        // Relaxed: only that it is new.
        let tag = NEXT.fetch_add(1, Ordering::Relaxed) & verbline_sync::ring::TAG_MASK;
        // Relaxed: ordered by the quiescence before and by the state or the table's entry after.
        self.inbound.tag.store(tag, Ordering::Relaxed);
    }

    /// The tag of its completions.
    #[inline(always)]
    pub(crate) fn tag(&self) -> u32 {
        // Relaxed: see `new_tag`.
        self.inbound.tag.load(Ordering::Relaxed)
    }
}

/// `ibv_create_qp(3)`. `init.cap` is set to what was granted.
///
/// # Safety
/// `pd` is allocated, `init` is readable and writable, and names live objects.
pub(crate) unsafe fn create(pd: *mut ibv_pd, init: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    // SAFETY: the caller's.
    let (domain, init) = unsafe { (Pd::from_raw(pd), &mut *init) };
    let cap = match granted(init) {
        Ok(cap) => cap,
        Err(code) => return errno::null(code),
    };
    let Some(transport) = Transport::from_raw(init.qp_type) else { return errno::null(libc::EOPNOTSUPP) };
    let mut control = fabric::control();
    let Some(qpn) = control.reserve() else { return errno::null(libc::ENOMEM) };
    // SAFETY: the caller's: it is alive, and stays as long as the queue pair.
    let recv_cq = unsafe { Cq::from_raw(init.recv_cq) };
    let has_mailbox = transport != Transport::Ud && init.srq.is_null();
    // SAFETY: integers, pointers and optional functions, for all of which zero is a value.
    let mut raw: ibv_qp_ex = unsafe { std::mem::zeroed() };
    let base = &mut raw.qp_base;
    (base.context, base.qp_context, base.pd) = (domain.context().as_ptr(), init.qp_context, pd);
    (base.send_cq, base.recv_cq, base.srq) = (init.send_cq, init.recv_cq, init.srq);
    (base.handle, base.qp_num, base.state, base.qp_type) = (qpn, qpn, State::Reset.raw(), init.qp_type);
    let inbound = Inbound {
        accept: AtomicU32::new(0),
        tag: AtomicU32::new(0),
        access: AtomicU32::new(0),
        qkey: AtomicU32::new(0),
        min_rnr_timer: AtomicU32::new(0),
        max_dest_rd_atomic: AtomicU32::new(0),
        rq_psn: AtomicU32::new(0),
        attention: Attention::new(),
    };
    let qp = Box::leak(Box::new(Qp {
        raw: UnsafeCell::new(raw),
        comp_mask: [0; 8],
        transport,
        qpn,
        pd: domain.id,
        cap,
        sig_all: init.sq_sig_all != 0,
        send_cq: init.send_cq.cast_const().cast(),
        recv_cq: init.recv_cq.cast_const().cast(),
        srq: init.srq.cast_const().cast(),
        mailbox: if has_mailbox { recv_cq.attach(qpn).map(NonNull::from) } else { None },
        state: CachePadded::new(AtomicU32::new(State::Reset.raw())),
        inbound: CachePadded::new(inbound),
        sq: Sq::new(&cap),
        rq: Rq::new(&cap),
        async_handed_out: HandedOut::default(),
        mcast_groups: AtomicU32::new(0),
        attributes: UnsafeCell::new(Attributes::default()),
    }));
    qp.new_tag();
    init.cap = cap;
    // SAFETY: its fields, which nobody else uses yet.
    unsafe { qp.acks().init() };
    count_users(qp, true);
    domain.adopt();
    fabric::register(&qp.guards());
    control.insert(qpn, qp);
    qp.raw()
}

impl Qp {
    fn guards(&self) -> [&verbline_sync::guard::Guard; 2] {
        [&self.sq.guard, self.rq.guard()]
    }
}

fn count_users(qp: &Qp, more: bool) {
    qp.send_cq().count_user(more);
    qp.recv_cq().count_user(more);
    if let Some(srq) = qp.srq() {
        srq.count_user(more);
    }
}

/// What is granted of what was asked, or an `errno`.
fn granted(init: &ibv_qp_init_attr) -> Result<ibv_qp_cap, c_int> {
    match Transport::from_raw(init.qp_type) {
        Some(Transport::Rc | Transport::Uc | Transport::Ud) => {}
        _ => return Err(libc::EOPNOTSUPP),
    }
    let asked = &init.cap;
    let too_much = asked.max_send_wr > device::QP_WR_MAX
        || asked.max_send_sge > device::SGE_MAX
        || asked.max_inline_data > device::INLINE_BYTES_MAX
        || (init.srq.is_null() && (asked.max_recv_wr > device::QP_WR_MAX || asked.max_recv_sge > device::SGE_MAX));
    if too_much || init.send_cq.is_null() || init.recv_cq.is_null() {
        return Err(libc::EINVAL);
    }
    let (max_recv_wr, max_recv_sge) = if init.srq.is_null() { (asked.max_recv_wr, asked.max_recv_sge) } else { (0, 0) };
    Ok(ibv_qp_cap {
        max_send_wr: asked.max_send_wr,
        max_recv_wr,
        max_send_sge: asked.max_send_sge,
        max_recv_sge,
        max_inline_data: asked.max_inline_data,
    })
}

/// `ibv_destroy_qp(3)`. `EBUSY` while it is attached to a multicast group. Waits until its events are acknowledged.
///
/// # Safety
/// `qp` is alive, used by no thread just now, and isn't used after success.
pub(crate) unsafe fn destroy(qp: *mut ibv_qp) -> c_int {
    // SAFETY: the caller's.
    let this = unsafe { Qp::from_raw(qp) };
    {
        let mut control = fabric::control();
        // Relaxed: under the control lock.
        if this.mcast_groups.load(Ordering::Relaxed) != 0 {
            return libc::EBUSY;
        }
        crate::objects::modify::stop(this);
        control.remove(this.qpn);
        crate::data_path::stall::forget(this);
        // Nobody who found it before is left after this; nobody finds it any more.
        fabric::quiesce();
        this.recv_cq().detach(this.qpn);
    }
    if let Some(srq) = this.srq() {
        srq.give_back(this, this.tag());
    }
    this.context().events.forget_qp(this);
    fabric::unregister(&this.guards());
    count_users(this, false);
    // SAFETY: the caller's: the domain outlives the queue pair, which refers to it; the box is `create`'s.
    unsafe {
        Pd::from_raw((*qp).pd).release();
        drop(Box::from_raw(qp.cast::<Qp>()));
    }
    0
}

/// `ibv_query_qp(3)`. All attributes are given, whatever `mask` asks for.
///
/// # Safety
/// `qp` is alive, the other pointers are writable.
pub(crate) unsafe fn query(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, init: *mut ibv_qp_init_attr) -> c_int {
    // SAFETY: the caller's.
    let this = unsafe { Qp::from_raw(qp) };
    let _control = fabric::control();
    // SAFETY: under the control lock.
    let mut out = unsafe { std::ptr::read(&raw const (*this.attributes.get()).0) };
    let state = this.state();
    (out.qp_state, out.cur_qp_state) = (state.raw(), state.raw());
    out.cap = this.cap;
    out.sq_draining = u8::from(state == State::Sqd && this.sq.is_draining());
    // SAFETY: the caller's; the queue pair's own fields are constant but `state`, which is under the control lock.
    unsafe {
        (*qp).state = state.raw();
        attr.write(out);
        init.write(ibv_qp_init_attr {
            qp_context: (*qp).qp_context,
            send_cq: (*qp).send_cq,
            recv_cq: (*qp).recv_cq,
            srq: (*qp).srq,
            cap: this.cap,
            qp_type: (*qp).qp_type,
            sq_sig_all: c_int::from(this.sig_all),
        });
    }
    0
}
