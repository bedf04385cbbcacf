//! The send queue: posting. Small messages (`small`), long ones (`bulk`) and plain RDMA WRITEs and READs (`transfer`) have a way of
//! their own, which looks at what they have in common once a run.
//!
//! What it guarantees: work requests are carried out by the posting thread, in order, before `ibv_post_send(3)` returns,
//! unless one has to wait (`stall`); then it and those behind it are kept in order. `bad_wr` is the first that was
//! refused, and it and what follows it have no effect. A slot is free again once the completion of its work request,
//! or of a later one, was polled.

use crate::data_path::errors::Errors;
use crate::data_path::execute::{self, Outcome};
use crate::data_path::stall::{self, Pending};
use crate::data_path::{bulk, psn, small, transfer};
use crate::objects::fabric;
use crate::objects::qp::Qp;
use crossbeam_utils::CachePadded;
use rdma_sys::*;
use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use verbline_sync::guard::Guard;
use verbline_sync::lock::SpinLock;
use verbline_sync::mailbox::Mailbox;

/// In `gate`: the state isn't RTS.
const NOT_RTS: u32 = 1;
/// In `gate`: work requests are pending.
const STALLED: u32 = 2;
/// See the [module](self).
#[repr(C)]
pub(crate) struct Sq {
    /// The posting thread is inside.
    pub(crate) guard: Guard,
    /// 0: the fast path is open. Otherwise see the flags.
    gate: AtomicU32,
    /// The connected queue pair's number, and what its `Inbound::accept` must be.
    destination: AtomicU32,
    expect: AtomicU32,
    pub(crate) counts: UnsafeCell<Counts>,
    /// How often, and how long, to try: `IBV_QP_TIMEOUT`, `RETRY_CNT`, `RNR_RETRY`, `MAX_QP_RD_ATOMIC`.
    pub(crate) timeout: AtomicU32,
    pub(crate) retry_cnt: AtomicU32,
    pub(crate) rnr_retry: AtomicU32,
    pub(crate) max_rd_atomic: AtomicU32,
    /// `IBV_QP_SQ_PSN`.
    pub(crate) psn: AtomicU32,
    polled: CachePadded<Polled>,
    pub(crate) pending: CachePadded<SpinLock<Pending>>,
}

/// What the pollers tell the posting thread.
#[derive(Debug)]
#[repr(C)]
struct Polled {
    /// Positions below are free. Written by the thread that polls the send CQ.
    freed: AtomicU64,
    /// How many of our messages the peer has polled, as its last small message said; [`Sq::UNKNOWN`] before the first.
    /// Written by the thread that polls the receive CQ.
    acked: AtomicU64,
}

/// The posting thread's own.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) posted: u64,
    /// A copy of `freed`.
    freed: u64,
}

impl Sq {
    /// As an acknowledged count: nothing is known.
    pub(crate) const UNKNOWN: u64 = u64::MAX;

    pub(crate) fn new(cap: &ibv_qp_cap) -> Sq {
        Sq {
            guard: Guard::new(),
            gate: AtomicU32::new(NOT_RTS),
            destination: AtomicU32::new(0),
            expect: AtomicU32::new(0),
            counts: UnsafeCell::default(),
            timeout: AtomicU32::new(0),
            retry_cnt: AtomicU32::new(0),
            rnr_retry: AtomicU32::new(0),
            max_rd_atomic: AtomicU32::new(0),
            psn: AtomicU32::new(0),
            polled: CachePadded::new(Polled { freed: AtomicU64::new(0), acked: AtomicU64::new(Sq::UNKNOWN) }),
            pending: CachePadded::new(SpinLock::new(Pending::new(cap))),
        }
    }

    /// The poller's: positions below `position` are free.
    #[inline(always)]
    pub(crate) fn free_up_to(&self, position: u64) {
        // Release pairs with the Acquire in `reserve`. One thread at a time polls, so it only grows.
        self.polled.freed.store(position, Ordering::Release);
    }

    /// The poller's: the peer has polled so many of our messages.
    #[inline(always)]
    pub(crate) fn acknowledge(&self, messages: u64) {
        // Release pairs with the Acquire in `mailbox_of`: what the peer read is read.
        self.polled.acked.store(messages, Ordering::Release);
    }

    /// The peer's mailbox, if it has one and has polled all `sent` messages that were sent to it.
    ///
    /// What is known is of this connection, since a queue pair forgets it when it is reset; and an index of the peer's
    /// stands for one message only, whatever became of the peer meanwhile (`Rq::reset`).
    #[inline(always)]
    pub(crate) fn mailbox_of<'a>(&self, peer: &'a Qp, sent: u64) -> Option<&'a Mailbox> {
        // Acquire pairs with the Release in `acknowledge`: the mailbox may be written over.
        if self.polled.acked.load(Ordering::Acquire) == sent { peer.mailbox() } else { None }
    }

    /// The fast path is closed: the state is no longer RTS.
    pub(crate) fn close(&self) {
        // AcqRel: pairs with the Acquire in `is_open`.
        self.gate.fetch_or(NOT_RTS, Ordering::AcqRel);
    }

    /// The state is RTS.
    pub(crate) fn open(&self) {
        // AcqRel: what the move to RTS wrote is before.
        self.gate.fetch_and(!NOT_RTS, Ordering::AcqRel);
    }

    /// Work requests are pending, or no longer. Under the lock of `pending`.
    pub(crate) fn set_stalled(&self, stalled: bool) {
        // AcqRel: what was done for pending work requests is before the fast path opens; pairs with `is_open`.
        if stalled {
            self.gate.fetch_or(STALLED, Ordering::AcqRel);
        } else {
            self.gate.fetch_and(!STALLED, Ordering::AcqRel);
        }
    }

    /// Whether work requests are pending.
    pub(crate) fn is_stalled(&self) -> bool {
        // Acquire pairs with `set_stalled`.
        self.gate.load(Ordering::Acquire) & STALLED != 0
    }

    /// Whether the fast path is open.
    #[inline(always)]
    pub(crate) fn is_open(&self) -> bool {
        // Acquire pairs with `set_stalled` and `open`.
        self.gate.load(Ordering::Acquire) == 0
    }

    /// Whether a move to SQD waits for a work request that was begun before.
    pub(crate) fn is_draining(&self) -> bool {
        self.pending.lock().draining
    }

    /// Connects: to `destination`, whose `Inbound::accept` is `expect` when it is connected to us.
    pub(crate) fn connect(&self, destination: u32, expect: u32) {
        // Relaxed: the state that follows orders it.
        self.destination.store(destination, Ordering::Relaxed);
        self.expect.store(expect, Ordering::Relaxed);
    }

    /// The same connection, by another path.
    pub(crate) fn reroute(&self, expect: u32) {
        // Relaxed: the only other change is `first_was_sent`, whose flag is kept.
        let kept = |now: u32| Some(expect | now & psn::SENDS_FIRST);
        let _ = self.expect.fetch_update(Ordering::Relaxed, Ordering::Relaxed, kept);
    }

    /// The first message of the connection was sent.
    pub(crate) fn first_was_sent(&self) {
        // Relaxed: whoever carries out the next comes after, by the order of the queue.
        self.expect.fetch_and(!psn::SENDS_FIRST, Ordering::Relaxed);
    }

    /// The number of the connected queue pair.
    #[inline(always)]
    pub(crate) fn destination(&self) -> u32 {
        // Relaxed: changed only while nobody is inside a guard.
        self.destination.load(Ordering::Relaxed)
    }

    /// What the peer's `Inbound::accept` must be.
    #[inline(always)]
    pub(crate) fn expect(&self) -> u32 {
        // Relaxed: as above.
        self.expect.load(Ordering::Relaxed)
    }

    /// Control path, nobody inside a guard: as new.
    pub(crate) fn reset(&self) {
        self.connect(0, 0);
        // SAFETY: nobody posts while the control path resets.
        unsafe { *self.counts.get() = Counts::default() };
        // Relaxed: ordered by the quiescence before.
        self.polled.freed.store(0, Ordering::Relaxed);
        self.polled.acked.store(Sq::UNKNOWN, Ordering::Relaxed);
        self.pending.lock().clear();
        self.set_stalled(false);
    }
}

/// `ibv_post_send(3)`.
pub(crate) unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: by the verb's contract, which is also that one thread at a time posts.
    let this = unsafe { Qp::from_raw(qp) };
    let mut errors = Errors::new();
    let mut next: *const ibv_send_wr = wr;
    let code = {
        let _inside = this.sq.guard.enter();
        // SAFETY: as above: the list is readable.
        unsafe { post_all(this, &mut next, &mut errors) }
    };
    errors.finish();
    if code != 0 {
        // SAFETY: as above.
        unsafe { *bad_wr = next.cast_mut() };
    }
    code
}

/// Posts the list. On an error `next` is the work request that was refused.
///
/// # Safety
/// The list is readable; the caller is the posting thread, inside its guard.
#[inline(always)]
unsafe fn post_all(qp: &Qp, next: &mut *const ibv_send_wr, errors: &mut Errors) -> c_int {
    while !next.is_null() {
        if !qp.sq.is_open() {
            // SAFETY: the caller's.
            let code = unsafe { stall::post(qp, next, errors) };
            if code != 0 {
                return code;
            }
            continue;
        }
        // SAFETY: the caller's.
        if !qp.is_datagram() && unsafe { post_run(qp, next, errors) } {
            continue;
        }
        // SAFETY: the caller's.
        let code = unsafe { post_one(qp, *next, errors) };
        if code != 0 {
            return code;
        }
        // SAFETY: the caller's.
        *next = unsafe { (**next).next };
    }
    0
}

/// Posts the front of the list if that is something for which there is a fast path.
///
/// # Safety
/// As [`post_all`]; `qp` is connected and its fast path open.
#[inline(always)]
unsafe fn post_run(qp: &Qp, next: &mut *const ibv_send_wr, errors: &mut Errors) -> bool {
    // SAFETY: the caller's.
    unsafe {
        match (**next).opcode {
            ibv_wr_opcode::IBV_WR_RDMA_WRITE | ibv_wr_opcode::IBV_WR_RDMA_READ => transfer::post(qp, next, errors),
            _ => small::post(qp, next, errors) || bulk::post(qp, next, errors),
        }
    }
}

/// Posts one work request of any kind.
///
/// # Safety
/// As [`post_all`].
unsafe fn post_one(qp: &Qp, wr: *const ibv_send_wr, errors: &mut Errors) -> c_int {
    // SAFETY: the caller's.
    let bytes = match unsafe { execute::validate(qp, wr) } {
        Ok(bytes) => bytes,
        Err(code) => return code,
    };
    // SAFETY: the caller is the posting thread.
    let Some(position) = (unsafe { reserve(qp) }) else { return libc::ENOMEM };
    // SAFETY: the caller's, and the fast path is open: we are the only one to carry out this queue's work requests.
    match unsafe { execute::execute(qp, wr, bytes, errors) } {
        // SAFETY: the caller's.
        Outcome::Done(bytes) => unsafe { execute::complete(qp, wr, position, bytes, errors) },
        // SAFETY: the caller's.
        Outcome::Wait(_) => unsafe { stall::begin(qp, wr, position, errors) },
        // SAFETY: the caller's.
        Outcome::Failed(status) => unsafe { execute::fail(qp, wr, position, status, errors) },
    }
    0
}

/// Takes a position, if there is one.
///
/// # Safety
/// The caller is the posting thread.
pub(crate) unsafe fn reserve(qp: &Qp) -> Option<u64> {
    // SAFETY: the caller's.
    let counts = unsafe { &mut *qp.sq.counts.get() };
    (room(qp, counts, 0) > 0).then(|| {
        counts.posted += 1;
        counts.posted - 1
    })
}

/// Free positions, beside `taken`.
#[inline(always)]
pub(crate) fn room(qp: &Qp, counts: &mut Counts, taken: u64) -> u64 {
    let depth = u64::from(qp.cap.max_send_wr);
    if counts.posted + taken - counts.freed >= depth {
        // Acquire pairs with the Release in `free_up_to`.
        counts.freed = qp.sq.polled.freed.load(Ordering::Acquire);
    }
    depth - (counts.posted + taken - counts.freed)
}

/// The queue pair that `qp` is connected to, if it accepts our messages and nothing is special about that.
#[inline(always)]
pub(crate) fn established_peer<'a>(qp: &'a Qp) -> Option<&'a Qp> {
    let peer = fabric::lookup::<'a>(qp.sq.destination())?;
    // Acquire pairs with the Release in `modify`: the peer is ready before it accepts.
    (peer.inbound.accept.load(Ordering::Acquire) == qp.sq.expect()).then_some(peer)
}
