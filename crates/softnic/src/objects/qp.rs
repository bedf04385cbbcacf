//! Queue pairs: their parts, creation and state. Their work is in `sq`, `rq`, `modify` and their
//! neighbours.
//!
//! Guarantees: the allocation starts with `ibv_qp_ex`'s shape and zeros behind it, where `struct
//! verbs_qp` has its `comp_mask`, so that libibverbs' `ibv_qp_to_qp_ex` finds that there is no
//! extended interface. Fields are grouped by their writers, each group on lines of its own.

use crate::events::acknowledged::{Fields, HandedOut};
use crate::events::async_event::Subject;
use crate::objects::context::Context;
use crate::objects::cq::Cq;
use crate::objects::device::Device;
use crate::objects::pd::Pd;
use crate::objects::qp_table::{State, Transport};
use crate::objects::srq::Srq;
use crate::objects::{Object, Users};
use crate::queues::rq::Rq;
use crate::queues::sq::Sq;
use crate::queues::wqe::Wqe;
use crossbeam_utils::CachePadded;
use rdma_sys::*;
use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use verbline_sync::credit::Attention;
use verbline_sync::guard::Guard;
use verbline_sync::mailbox::Mailbox;
use verbline_sync::ring::TAG_MASK;

/// Attributes as last modified.
pub(crate) struct Attributes(pub(crate) ibv_qp_attr);

// SAFETY: numbers and addresses, no pointers.
unsafe impl Send for Attributes {}

impl Attributes {
    pub(crate) fn copied(&self) -> ibv_qp_attr {
        // SAFETY: numbers and a union of bytes, which may be copied.
        unsafe { std::ptr::read(&raw const self.0) }
    }
}

impl Default for Attributes {
    fn default() -> Self {
        // SAFETY: numbers and a union of bytes, for which zero is a value.
        Attributes(unsafe { std::mem::zeroed() })
    }
}

/// See the [module](self).
#[repr(C)]
pub(crate) struct Qp {
    raw: UnsafeCell<ibv_qp_ex>,
    /// For a libibverbs of these headers, `verbs_qp::comp_mask` is the first element. For newer
    /// ones, whose `ibv_qp_ex` has grown (by one function pointer in rdma-core 44 and one in 50),
    /// it is one of the next.
    comp_mask: [u64; 8],
    pub(crate) transport: Transport,
    pub(crate) qpn: u32,
    /// The protection domain's number.
    pub(crate) pd: u32,
    pub(crate) cap: ibv_qp_cap,
    pub(crate) sig_all: bool,
    /// Whether its work requests may configure keys.
    pub(crate) configures_keys: bool,
    /// Whether it stops at faults, for signature pipelining.
    pub(crate) stops_at_faults: bool,
    send_cq: NonNull<Cq>,
    recv_cq: NonNull<Cq>,
    srq: Option<NonNull<Srq>>,
    /// The mailbox in `recv_cq` for a message to it that is the only one in flight.
    mailbox: Option<NonNull<Mailbox>>,
    /// `State`, as a number. Changed by the control path; any thread may change it to an error
    /// state.
    state: CachePadded<AtomicU32>,
    /// The fields of a receiver that senders read.
    pub(crate) inbound: CachePadded<Inbound>,
    pub(crate) sq: Sq,
    pub(crate) rq: Rq,
    async_handed_out: HandedOut,
    /// The number of its multicast groups. Under the control lock.
    pub(crate) mcast_groups: AtomicU32,
    /// For UD: whether pollers look for datagrams from other processes.
    pub(crate) hears_carrier: AtomicBool,
    /// The counter of messages that found no receive, if one was set.
    pub(crate) out_of_buffer: OnceLock<Arc<AtomicU64>>,
    attributes: Mutex<Attributes>,
}

// SAFETY: `raw` is shared as libibverbs shares it; the objects that it uses outlive it (`Parts`);
// the rest is constant, atomic or under a lock.
unsafe impl Sync for Qp {}

// `struct verbs_qp` of libibverbs/driver.h: `comp_mask` right behind `ibv_qp_ex`, which starts with
// `ibv_qp`.
const _: () = assert!(offset_of!(Qp, comp_mask) == size_of::<ibv_qp_ex>() && offset_of!(ibv_qp_ex, qp_base) == 0);

/// The fields that a sender reads of its destination: lines with many readers and hardly any
/// writes.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Inbound {
    /// The senders to accept messages from, see `queues`; 0 for none.
    pub(crate) accept: AtomicU32,
    /// Changes at each reset; marks completions.
    pub(crate) tag: AtomicU32,
    /// Remote operations that it lets in.
    pub(crate) access: AtomicU32,
    pub(crate) qkey: AtomicU32,
    pub(crate) min_rnr_timer: AtomicU32,
    pub(crate) max_dest_rd_atomic: AtomicU32,
    pub(crate) rq_psn: AtomicU32,
    pub(crate) attention: Attention,
}

// SAFETY: `raw` is the first field of a `repr(C)` struct, and `ibv_qp` first in it (asserted
// above).
unsafe impl Object for Qp {
    type Raw = ibv_qp;
}

impl Subject for Qp {
    fn handed_out(&self) -> &HandedOut {
        &self.async_handed_out
    }

    fn acks(&self) -> Fields<'_> {
        // SAFETY: fields of this object.
        unsafe { Fields::qp(self.raw()) }
    }
}

/// The objects that a queue pair uses. It counts as a user of each, so that none is destroyed
/// before it.
#[derive(Clone, Copy)]
pub(crate) struct Parts<'a> {
    pub(crate) domain: &'a Pd,
    pub(crate) send_cq: &'a Cq,
    pub(crate) recv_cq: &'a Cq,
    pub(crate) srq: Option<&'a Srq>,
}

/// A queue pair's signature offload.
#[derive(Clone, Copy, Default)]
pub(crate) struct SignatureOffload {
    /// Whether it takes work requests that configure indirect keys.
    pub(crate) configures_keys: bool,
    /// Whether its send queue stops behind a transfer whose check failed.
    pub(crate) stops_at_faults: bool,
    /// The most inline bytes of such a configuration.
    pub(crate) configuration_bytes: usize,
}

impl Qp {
    /// A queue pair of number `qpn`, in RESET. Under the control lock; nobody can reach it yet.
    pub(crate) fn new(
        raw: ibv_qp_ex,
        qpn: u32,
        transport: Transport,
        cap: ibv_qp_cap,
        sig_all: bool,
        offload: SignatureOffload,
        parts: Parts<'_>,
    ) -> Qp {
        let Parts { domain, send_cq, recv_cq, srq } = parts;
        let has_mailbox = transport != Transport::Ud && srq.is_none();
        let inline_bytes = offload.configuration_bytes.max(cap.max_inline_data as usize);
        let qp = Qp {
            raw: UnsafeCell::new(raw),
            comp_mask: [0; 8],
            transport,
            qpn,
            pd: domain.id,
            cap,
            sig_all,
            configures_keys: offload.configures_keys,
            stops_at_faults: offload.stops_at_faults,
            send_cq: NonNull::from(send_cq),
            recv_cq: NonNull::from(recv_cq),
            srq: srq.map(NonNull::from),
            mailbox: if has_mailbox { recv_cq.attach(qpn).map(NonNull::from) } else { None },
            state: CachePadded::new(AtomicU32::new(State::Reset.raw())),
            inbound: CachePadded::default(),
            sq: Sq::new(&cap, inline_bytes),
            rq: Rq::new(&cap),
            async_handed_out: HandedOut::default(),
            mcast_groups: AtomicU32::new(0),
            hears_carrier: AtomicBool::new(false),
            out_of_buffer: OnceLock::new(),
            attributes: Mutex::default(),
        };
        qp.new_tag();
        domain.adopt();
        qp.sq.due.join(&send_cq.tally);
        qp.rq.due.join(&recv_cq.tally);
        qp.srq().iter().for_each(|srq| srq.due.join(&recv_cq.tally));
        qp.used().for_each(Users::adopt);
        qp
    }

    /// Called once it is at its final address: from now on its receives lose their capacity
    /// together with their keys.
    pub(crate) fn join_parts(&self) {
        // For the others, senders look at the keys themselves.
        if !self.is_datagram() && self.srq().is_none() {
            // SAFETY: `leave_parts` removes it, and is called before it is freed.
            unsafe { self.domain().add(&self.rq) };
        }
    }

    /// Ends its use of the parts. Nobody can reach it any more.
    pub(crate) fn leave_parts(&self) {
        self.sq.due.clear();
        self.rq.due.clear();
        self.used().for_each(Users::release);
        self.domain().remove(&self.rq);
        self.domain().release();
    }

    fn domain(&self) -> &Pd {
        // SAFETY: the domain counts the queue pair (`new`) and outlives it: `pd::retire` refuses
        // while it has queue pairs.
        unsafe { Pd::from_raw((*self.raw()).pd) }
    }

    /// The counts of the queues that it uses.
    fn used(&self) -> impl Iterator<Item = &Users> {
        [&self.send_cq().users, &self.recv_cq().users].into_iter().chain(self.srq().map(|srq| &srq.users))
    }

    /// The guards that `guards::quiesce` waits for.
    pub(crate) fn guards(&self) -> [&Guard; 2] {
        [&self.sq.guard, self.rq.guard()]
    }

    /// The attributes as last modified.
    pub(crate) fn attributes(&self) -> MutexGuard<'_, Attributes> {
        // Each change is whole, or one field of many independent ones: a panic leaves a valid
        // value.
        self.attributes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the state to the program's struct. Under the control lock.
    pub(crate) fn show(&self, state: State) {
        // SAFETY: `ibv_qp::state` is written here only, under the control lock.
        unsafe { (*self.raw()).state = state.raw() };
    }

    /// `ibv_query_qp(3)`: the attributes of creation.
    pub(crate) fn init_attr(&self) -> ibv_qp_init_attr {
        // SAFETY: the fields read here are written at creation only.
        unsafe {
            let raw = self.raw();
            ibv_qp_init_attr {
                qp_context: (*raw).qp_context,
                send_cq: (*raw).send_cq,
                recv_cq: (*raw).recv_cq,
                srq: (*raw).srq,
                cap: self.cap,
                qp_type: (*raw).qp_type,
                sq_sig_all: c_int::from(self.sig_all),
            }
        }
    }

    pub(crate) fn raw(&self) -> *mut ibv_qp {
        self.raw.get().cast()
    }

    pub(crate) fn context(&self) -> &Context {
        // SAFETY: written at creation only; the context outlives its objects: `context::retire`
        // refuses while there are any.
        unsafe { Context::from_raw((*self.raw()).context) }
    }

    pub(crate) fn device(&self) -> &'static Device {
        self.context().device
    }

    #[inline(always)]
    pub(crate) fn send_cq(&self) -> &Cq {
        // SAFETY: the completion queue counts its queue pairs (`new`) and outlives them:
        // `cq::retire` refuses while it has any.
        unsafe { self.send_cq.as_ref() }
    }

    #[inline(always)]
    pub(crate) fn recv_cq(&self) -> &Cq {
        // SAFETY: this queue also counts its queue pairs and outlives them (`cq::retire`).
        unsafe { self.recv_cq.as_ref() }
    }

    #[inline(always)]
    pub(crate) fn srq(&self) -> Option<&Srq> {
        // SAFETY: the SRQ counts its queue pairs and outlives them: its destruction is refused.
        self.srq.map(|srq| unsafe { srq.as_ref() })
    }

    /// Its mailbox, if it has one.
    #[inline(always)]
    pub(crate) fn mailbox(&self) -> Option<&Mailbox> {
        // SAFETY: part of the completion queue: as in `send_cq`.
        self.mailbox.map(|mailbox| unsafe { mailbox.as_ref() })
    }

    #[inline(always)]
    pub(crate) fn is_datagram(&self) -> bool {
        self.transport == Transport::Ud
    }

    /// The receive of that index for a message to it: its own, or the shared queue's.
    #[inline(always)]
    pub(crate) fn receive(&self, index: u64) -> Wqe<'_> {
        match self.srq() {
            None => self.rq.wqes.wqe(index),
            Some(srq) => srq.wqes.wqe(index),
        }
    }

    /// The number of the domain of the receives' keys.
    #[inline(always)]
    pub(crate) fn receives_pd(&self) -> u32 {
        self.srq().map_or(self.pd, Srq::pd)
    }

    /// Counts a message that found no receive.
    #[cold]
    pub(crate) fn count_out_of_buffer(&self) {
        if let Some(counter) = self.out_of_buffer.get() {
            // Relaxed: a statistic, counted by any number of senders.
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Frees the slot of receive `index`, whose completion was polled.
    #[inline(always)]
    pub(crate) fn receive_polled(&self, index: u64) {
        match self.srq() {
            None => self.rq.free_up_to(index + 1),
            Some(srq) => srq.free(index),
        }
    }

    /// The current state.
    #[inline(always)]
    #[expect(clippy::expect_used, reason = "no other number is ever stored")]
    pub(crate) fn state(&self) -> State {
        // Acquire pairs with the Release in `leave_for`: earlier writes are seen.
        State::from_raw(self.state.load(Ordering::Acquire)).expect("only states are stored")
    }

    /// Moves from `from` to `to` if it is still in `from`.
    pub(crate) fn leave_for(&self, from: State, to: State) -> bool {
        // AcqRel: pairs with the Acquire in `state`.
        self.state.compare_exchange(from.raw(), to.raw(), Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Invalidates earlier completions. Control path; no sender is at work. A poll that began
    /// before may still use the old tag.
    pub(crate) fn new_tag(&self) {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        // Relaxed: it only has to be new.
        let tag = NEXT.fetch_add(1, Ordering::Relaxed) & TAG_MASK;
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
