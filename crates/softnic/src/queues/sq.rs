//! The send queue: its gate, its free positions and its destination.
//!
//! Guarantees: a slot is free again once the completion of its work request, or of a later one, was
//! polled.

use crate::queues::SENDS_FIRST;
use crate::queues::due::Due;
use crate::queues::pending::Pending;
use crossbeam_utils::CachePadded;
use rdma_sys::ibv_qp_cap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use verbline_sync::guard::Guard;
use verbline_sync::lock::SpinLock;
use verbline_sync::lock_order::Rank;
use verbline_sync::turn::Turn;

/// In `gate`: the state isn't RTS.
const NOT_RTS: u32 = 1;
/// In `gate`: work requests are pending.
const STALLED: u32 = 2;
/// In `gate`: the peer is in another process, and a carrier has the work requests.
const CARRIED: u32 = 4;

/// See the [module](self).
#[repr(C)]
pub(crate) struct Sq {
    /// Held while the posting thread is inside.
    pub(crate) guard: Guard,
    /// 0 if the fast path is open, else the flags above.
    gate: AtomicU32,
    /// The connected queue pair's number, and the expected value of its `Inbound::accept`.
    destination: AtomicU32,
    expect: AtomicU32,
    counts: Counts,
    /// The number and times of retries: `IBV_QP_TIMEOUT`, `RETRY_CNT`, `RNR_RETRY`,
    /// `MAX_QP_RD_ATOMIC`.
    pub(crate) timeout: AtomicU32,
    pub(crate) retry_cnt: AtomicU32,
    pub(crate) rnr_retry: AtomicU32,
    pub(crate) max_rd_atomic: AtomicU32,
    /// `IBV_QP_SQ_PSN`.
    pub(crate) psn: AtomicU32,
    polled: CachePadded<Polled>,
    pub(crate) pending: CachePadded<SpinLock<Pending>>,
    /// The right to carry out pending work requests.
    pub(crate) turn: Turn,
    pub(crate) due: Due,
}

/// Counts that the pollers report to the posting thread.
#[derive(Debug)]
#[repr(C)]
struct Polled {
    /// Positions below it are free. Written by the thread that polls the send CQ.
    freed: AtomicU64,
    /// The number of our messages that the peer has polled, by its last small message;
    /// [`Sq::UNKNOWN`] before the first. Written by the thread that polls the receive CQ.
    acked: AtomicU64,
}

/// State of the posting thread only.
#[derive(Debug, Default)]
struct Counts {
    posted: AtomicU64,
    /// A copy of `freed`.
    freed: AtomicU64,
}

impl Sq {
    /// The acknowledged count while nothing is known.
    pub(crate) const UNKNOWN: u64 = u64::MAX;

    /// `inline_bytes`: room for the inline data of one waiting work request.
    pub(crate) fn new(cap: &ibv_qp_cap, inline_bytes: usize) -> Sq {
        Sq {
            guard: Guard::new(),
            gate: AtomicU32::new(NOT_RTS),
            destination: AtomicU32::new(0),
            expect: AtomicU32::new(0),
            counts: Counts::default(),
            timeout: AtomicU32::new(0),
            retry_cnt: AtomicU32::new(0),
            rnr_retry: AtomicU32::new(0),
            max_rd_atomic: AtomicU32::new(0),
            psn: AtomicU32::new(0),
            polled: CachePadded::new(Polled { freed: AtomicU64::new(0), acked: AtomicU64::new(Sq::UNKNOWN) }),
            pending: CachePadded::new(SpinLock::of_rank(Rank::Outer, Pending::new(cap, inline_bytes))),
            turn: Turn::new(),
            due: Due::default(),
        }
    }

    /// For the poller: positions below `position` are free.
    #[inline(always)]
    pub(crate) fn free_up_to(&self, position: u64) {
        // Relaxed: the poller's own.
        self.due.done(|| position - self.polled.freed.load(Ordering::Relaxed));
        // Release pairs with the Acquire in `room`. One thread at a time polls, so it only grows.
        self.polled.freed.store(position, Ordering::Release);
    }

    /// For the poller: the number of our messages that the peer has polled.
    #[inline(always)]
    pub(crate) fn acknowledge(&self, messages: u64) {
        // Release pairs with the Acquire in `all_polled`: the peer has read these messages.
        self.polled.acked.store(messages, Ordering::Release);
    }

    /// Whether the peer is known to have polled all `sent` messages that were sent to it.
    ///
    /// The count is of this connection, since a reset queue pair forgets it. An index of the peer's
    /// stands for one message only, even if the peer was reset meanwhile (`Rq::reset`).
    #[inline(always)]
    pub(crate) fn all_polled(&self, sent: u64) -> bool {
        // Acquire pairs with the Release in `acknowledge`: the mailbox may be overwritten.
        self.polled.acked.load(Ordering::Acquire) == sent
    }

    /// For the posting thread: free positions of `depth`, and the next position.
    #[inline(always)]
    pub(crate) fn room(&self, depth: u32) -> (u64, u64) {
        let depth = u64::from(depth);
        // Relaxed, here and in `advance`: the posting thread's own.
        let posted = self.counts.posted.load(Ordering::Relaxed);
        let mut freed = self.counts.freed.load(Ordering::Relaxed);
        if posted - freed >= depth {
            // Acquire pairs with the Release in `free_up_to`.
            freed = self.polled.freed.load(Ordering::Acquire);
            // Relaxed: as above.
            self.counts.freed.store(freed, Ordering::Relaxed);
        }
        (depth - (posted - freed), posted)
    }

    /// For the posting thread: the next position.
    #[inline(always)]
    pub(crate) fn posted(&self) -> u64 {
        // Relaxed: see `room`.
        self.counts.posted.load(Ordering::Relaxed)
    }

    /// For the posting thread: positions below `position` are taken.
    #[inline(always)]
    pub(crate) fn advance(&self, position: u64) {
        self.due.posted(|| position - self.posted());
        // Relaxed: see `room`.
        self.counts.posted.store(position, Ordering::Relaxed);
    }

    /// For the posting thread: takes a position, if there is one.
    pub(crate) fn reserve(&self, depth: u32) -> Option<u64> {
        let (room, position) = self.room(depth);
        (room > 0).then(|| {
            self.advance(position + 1);
            position
        })
    }

    /// Closes the fast path: the state is no longer RTS.
    pub(crate) fn close(&self) {
        // AcqRel: pairs with the Acquire in `is_open`.
        self.set_gate(NOT_RTS, true);
    }

    /// Opens it: the state is RTS.
    pub(crate) fn open(&self) {
        // AcqRel: writes of the move to RTS are before.
        self.set_gate(NOT_RTS, false);
    }

    /// Sets whether work requests are pending. Under the lock of `pending`.
    pub(crate) fn set_stalled(&self, stalled: bool) {
        // AcqRel: the effects of pending work requests are before the fast path opens; pairs with
        // `is_open`.
        self.set_gate(STALLED, stalled);
    }

    /// Control path: sets whether the queue pair is carried.
    pub(crate) fn set_carried(&self, is_carried: bool) {
        // AcqRel: the carrier has the queue pair before it is posted to; pairs with `is_carried`.
        self.set_gate(CARRIED, is_carried);
    }

    /// The ordering's reason stands beside each caller.
    fn set_gate(&self, bit: u32, is_set: bool) {
        if is_set {
            self.gate.fetch_or(bit, Ordering::AcqRel);
        } else {
            self.gate.fetch_and(!bit, Ordering::AcqRel);
        }
    }

    /// Whether the queue pair is carried.
    pub(crate) fn is_carried(&self) -> bool {
        // Acquire pairs with `set_carried`.
        self.gate.load(Ordering::Acquire) & CARRIED != 0
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

    /// Connects to `destination`, whose `Inbound::accept` is `expect` when it is connected to us.
    pub(crate) fn connect(&self, destination: u32, expect: u32) {
        // Relaxed: the state that follows orders it.
        self.destination.store(destination, Ordering::Relaxed);
        self.expect.store(expect, Ordering::Relaxed);
    }

    /// Switches the connection to another path.
    pub(crate) fn reroute(&self, expect: u32) {
        // Relaxed: the only other change is `first_was_sent`, whose flag is kept.
        let kept = |now: u32| Some(expect | now & SENDS_FIRST);
        let _ = self.expect.fetch_update(Ordering::Relaxed, Ordering::Relaxed, kept);
    }

    /// Notes that the first message of the connection was sent.
    pub(crate) fn first_was_sent(&self) {
        // Relaxed: the next work request is carried out later, by the order of the queue.
        self.expect.fetch_and(!SENDS_FIRST, Ordering::Relaxed);
    }

    /// The number of the connected queue pair.
    #[inline(always)]
    pub(crate) fn destination(&self) -> u32 {
        // Relaxed: changed only while nobody is inside a guard.
        self.destination.load(Ordering::Relaxed)
    }

    /// The value that the peer's `Inbound::accept` must have.
    #[inline(always)]
    pub(crate) fn expect(&self) -> u32 {
        // Relaxed: as above.
        self.expect.load(Ordering::Relaxed)
    }

    /// Control path, no thread inside a guard: as new.
    pub(crate) fn reset(&self) {
        self.connect(0, 0);
        self.due.clear();
        // Relaxed, all: ordered by the quiescence before.
        self.counts.posted.store(0, Ordering::Relaxed);
        self.counts.freed.store(0, Ordering::Relaxed);
        self.polled.freed.store(0, Ordering::Relaxed);
        self.polled.acked.store(Sq::UNKNOWN, Ordering::Relaxed);
        self.pending.lock().clear();
        self.set_stalled(false);
    }
}
