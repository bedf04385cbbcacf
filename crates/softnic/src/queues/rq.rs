//! The receive queue of one queue pair: posted receives, and their consumption by its sender.
//!
//! Guarantees: a posted receive is consumed once, in order. The one peer of a connected queue pair
//! consumes its receives without a lock. A datagram queue pair has any number of senders at once:
//! they take the queue's lock while they deliver, since each must get another receive and receives
//! complete in order.

use crate::key_table::RegionKey;
use crate::queues::due::Due;
use crate::queues::wqe::WqeRing;
use crate::queues::wr::RecvWr;
use crossbeam_utils::CachePadded;
use rdma_sys::ibv_qp_cap;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use verbline_sync::credit::{Attention, Posted};
use verbline_sync::guard::Guard;
use verbline_sync::lock::SpinLock;
use verbline_sync::lock_order::Rank;

/// See the [module](self).
#[repr(C)]
pub(crate) struct Rq {
    /// Constant, like the next field: senders read them for each message, so nothing on their line
    /// is ever written.
    pub(crate) wqes: WqeRing,
    /// The capacity of each receive in bytes: sixteen to a line, so that a sender of small messages
    /// reads no other line of the receiver's. The ring is longer than the queue, so that the
    /// receive posted last never shares a line with the one consumed next: on a full queue that
    /// line would change cores at each message.
    capacity: Box<[AtomicU32]>,
    poster: CachePadded<Poster>,
    posted: CachePadded<Posted>,
    /// Receives below it are free. Written by the thread that polls the receive CQ.
    freed: CachePadded<AtomicU64>,
    consumed: CachePadded<Consumed>,
    /// For datagram senders, and for flushing.
    pub(crate) lock: SpinLock<()>,
    pub(crate) due: Due,
}

/// State of the posting thread only.
#[derive(Debug, Default)]
#[repr(C)]
struct Poster {
    /// Held while it starts a waiting sender.
    guard: Guard,
    posted: AtomicU64,
    /// A copy of `freed`.
    freed: AtomicU64,
}

/// State of the consuming sender only.
#[derive(Debug, Default)]
struct Consumed {
    /// The next receive.
    head: AtomicU64,
    /// Receives below it are known to be posted.
    credit: AtomicU64,
}

/// A queue's capacities: the bytes that each receive takes.
#[derive(Clone, Copy)]
pub(crate) struct Capacities<'a>(&'a [AtomicU32]);

impl<'a> Capacities<'a> {
    /// Like [`Rq::capacity`].
    #[inline(always)]
    pub(crate) fn of(self, index: u64) -> u32 {
        // Relaxed: ordered by the count of posted receives.
        self.place(index).load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn place(self, index: u64) -> &'a AtomicU32 {
        // SAFETY: the length is a power of two (`Rq::new`), so this is below it.
        unsafe { self.0.get_unchecked(index as usize & (self.0.len() - 1)) }
    }
}

/// Capacities in one cache line.
const CAPACITIES_A_LINE: u32 = 16;

impl Rq {
    pub(crate) fn new(cap: &ibv_qp_cap) -> Rq {
        let entries = (cap.max_recv_wr + 2 * CAPACITIES_A_LINE).next_power_of_two() as usize;
        Rq {
            wqes: WqeRing::new(entries, cap.max_recv_sge),
            capacity: (0..entries).map(|_| AtomicU32::new(0)).collect(),
            poster: CachePadded::default(),
            posted: CachePadded::new(Posted::new()),
            freed: CachePadded::new(AtomicU64::new(0)),
            consumed: CachePadded::default(),
            lock: SpinLock::of_rank(Rank::Outer, ()),
            due: Due::default(),
        }
    }

    /// The guard that `guards::quiesce` waits for.
    pub(crate) fn guard(&self) -> &Guard {
        &self.poster.guard
    }

    /// The bytes that receive `index` takes; 0 means "look closer".
    #[inline(always)]
    pub(crate) fn capacity(&self, index: u64) -> u32 {
        self.capacities().of(index)
    }

    /// A copy of the capacities' location, to keep in registers.
    #[inline(always)]
    pub(crate) fn capacities(&self) -> Capacities<'_> {
        Capacities(&self.capacity)
    }

    /// For the consumer: the receives that it knows to be posted. Once they are used up it reads
    /// the count of posted ones again.
    ///
    /// There is one consumer: the connected peer's sender, or the holder of `lock`.
    #[inline(always)]
    pub(crate) fn known(&self) -> Range<u64> {
        // Relaxed, here and in `consume`: the consumer's own.
        let head = self.consumed.head.load(Ordering::Relaxed);
        let mut credit = self.consumed.credit.load(Ordering::Relaxed);
        if head == credit {
            credit = self.posted.read();
            self.consumed.credit.store(credit, Ordering::Relaxed);
        }
        head..credit
    }

    /// For the consumer: receives below `index` are consumed.
    #[inline(always)]
    pub(crate) fn consume(&self, index: u64) {
        // Relaxed: see `known`.
        self.consumed.head.store(index, Ordering::Relaxed);
    }

    /// For the consumer: takes the next receive.
    #[inline]
    pub(crate) fn take(&self) -> Option<u64> {
        let index = self.known().next()?;
        self.consume(index + 1);
        self.wqes.prefetch(index + 1);
        Some(index)
    }

    /// For the poster: the next index, and the first without room.
    #[inline(always)]
    pub(crate) fn room(&self, depth: u32) -> Range<u64> {
        // Relaxed, here, in `look_again` and in `publish`: the posting thread's own.
        let freed = self.poster.freed.load(Ordering::Relaxed);
        self.poster.posted.load(Ordering::Relaxed)..freed + u64::from(depth)
    }

    /// For the poster: the first index without room, read anew from the poller's count.
    #[inline(always)]
    pub(crate) fn look_again(&self, depth: u32) -> u64 {
        let freed = self.polled();
        // Relaxed: see `room`.
        self.poster.freed.store(freed, Ordering::Relaxed);
        freed + u64::from(depth)
    }

    /// For the poster: writes a receive into its free entry.
    #[inline(always)]
    pub(crate) fn write(&self, index: u64, wr: RecvWr<'_>, key: &mut RegionKey) {
        let capacity = self.wqes.write(index, wr, key);
        // Relaxed: ordered by the publication that follows.
        self.capacities().place(index).store(capacity, Ordering::Relaxed);
    }

    /// For the poster: receives below `posted` are posted. Returns the attention flags, like
    /// [`Posted::publish`].
    #[inline(always)]
    pub(crate) fn publish(&self, posted: u64, attention: &Attention) -> u32 {
        // Relaxed: see `room`.
        self.due.posted(|| posted - self.poster.posted.load(Ordering::Relaxed));
        self.poster.posted.store(posted, Ordering::Relaxed);
        self.posted.publish(posted, attention)
    }

    /// For the poller: receives below `index` are free.
    #[inline(always)]
    pub(crate) fn free_up_to(&self, index: u64) {
        // Relaxed: the poller's own.
        self.due.done(|| index - self.freed.load(Ordering::Relaxed));
        // Release pairs with the Acquire in `polled`: the poller is done with the entry.
        self.freed.store(index, Ordering::Release);
    }

    /// The number of polled receives: all below this index.
    #[inline(always)]
    pub(crate) fn polled(&self) -> u64 {
        // Acquire pairs with the Release in `free_up_to`: the poller is done with their messages.
        self.freed.load(Ordering::Acquire)
    }

    /// Control path: makes senders look closer at posted receives that name `key`, which grants
    /// nothing any more.
    ///
    /// The other threads go on meanwhile: a capacity of 0 is right for every receive, also for one
    /// that was posted into its entry since.
    pub(crate) fn distrust(&self, key: u32) {
        // Relaxed, all: the caller that deregisters a region has ordered that after the posting of
        // receives that name it, and before the sends that must find it gone.
        let (head, posted) = (self.consumed.head.load(Ordering::Relaxed), self.poster.posted.load(Ordering::Relaxed));
        for index in head..posted {
            let capacity = self.capacities().place(index);
            if capacity.load(Ordering::Relaxed) != 0 && self.wqes.wqe(index).sges().any(|sge| sge.lkey == key) {
                capacity.store(0, Ordering::Relaxed);
            }
        }
    }

    /// Control path, no thread inside a guard: empties the queue. Indices continue, so that a
    /// sender never takes the last index that it knows of an earlier connection for that of this
    /// one (`Sq::all_polled`).
    pub(crate) fn reset(&self) {
        self.due.clear();
        // Relaxed, all: ordered by the quiescence before.
        let next = self.poster.posted.load(Ordering::Relaxed);
        for count in [&self.poster.freed, &self.consumed.head, &self.consumed.credit, &self.freed] {
            count.store(next, Ordering::Relaxed);
        }
        self.posted.reset(next);
    }
}
