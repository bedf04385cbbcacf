//! The receive queue of one queue pair: posting, and what its sender consumes.
//!
//! What it guarantees: a posted receive is consumed once, in order. A connected queue pair's receives are consumed by
//! its one peer without a lock. A datagram queue pair has any number of senders at once: they take the queue's lock
//! while they deliver, since each must get another receive and receives complete in order.

use crate::data_path::errors::Errors;
use crate::data_path::scatter::WqeRing;
use crate::data_path::{flush, stall};
use crate::objects::fabric;
use crate::objects::key_table::{self, RegionKey};
use crate::objects::qp::Qp;
use crate::objects::qp_table::State;
use crossbeam_utils::CachePadded;
use rdma_sys::*;
use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use verbline_sync::credit::{FLUSHING, Posted, WAITING};
use verbline_sync::guard::Guard;
use verbline_sync::lock::SpinLock;

/// See the [module](self).
#[repr(C)]
pub(crate) struct Rq {
    /// Constant, as is the next: senders read them at each message, so nothing on their line is ever written.
    pub(crate) wqes: WqeRing,
    /// How many bytes each receive takes: sixteen to a line, so that a sender of small messages reads nothing else of
    /// the receiver's. The ring is longer than the queue, so that the receive posted last never shares a line with the
    /// one consumed next: on a full queue that line would change cores at each message.
    capacity: Box<[AtomicU32]>,
    poster: CachePadded<Poster>,
    pub(crate) posted: CachePadded<Posted>,
    /// Receives below are free. Written by the thread that polls the receive CQ.
    freed: CachePadded<AtomicU64>,
    consumed: CachePadded<UnsafeCell<Consumed>>,
    /// Datagram senders, and flushing.
    pub(crate) lock: SpinLock<()>,
}

/// The posting thread's own.
#[derive(Debug, Default)]
#[repr(C)]
struct Poster {
    /// It is inside while it starts a waiting sender.
    guard: Guard,
    counts: UnsafeCell<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    posted: u64,
    /// A copy of `freed`.
    freed: u64,
}

/// The consuming sender's own.
#[derive(Debug, Default)]
pub(crate) struct Consumed {
    /// The next receive.
    pub(crate) head: u64,
    /// Receives below are known to be posted.
    pub(crate) credit: u64,
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
            lock: SpinLock::new(()),
        }
    }

    /// For `fabric` to wait for.
    pub(crate) fn guard(&self) -> &Guard {
        &self.poster.guard
    }

    /// The consumer's counters.
    ///
    /// # Safety
    /// The caller is the one consumer: the connected peer's sender, or the holder of `lock`.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn consumed(&self) -> &mut Consumed {
        // SAFETY: the caller's.
        unsafe { &mut *self.consumed.get() }
    }

    /// How many bytes receive `index` takes; 0 means "look closer".
    #[inline(always)]
    pub(crate) fn capacity(&self, index: u64) -> u32 {
        // Relaxed: ordered by the count of posted receives.
        self.capacity_of(index).load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn capacity_of(&self, index: u64) -> &AtomicU32 {
        // SAFETY: the length is a power of two (`new`), so this is below it.
        unsafe { self.capacity.get_unchecked(index as usize & (self.capacity.len() - 1)) }
    }

    /// Takes the next receive.
    ///
    /// # Safety
    /// As [`consumed`](Self::consumed).
    #[inline]
    pub(crate) unsafe fn take(&self) -> Option<u64> {
        // SAFETY: the caller's.
        let consumed = unsafe { self.consumed() };
        if consumed.head == consumed.credit {
            consumed.credit = self.posted.read();
            if consumed.head == consumed.credit {
                return None;
            }
        }
        consumed.head += 1;
        self.wqes.prefetch(consumed.head);
        Some(consumed.head - 1)
    }

    /// The poller's: receives below `index` are free.
    #[inline(always)]
    pub(crate) fn free_up_to(&self, index: u64) {
        // Release pairs with the Acquire in `post_recv`: the poller is done with the entry.
        self.freed.store(index, Ordering::Release);
    }

    /// How many receives were polled: all below this index.
    #[inline(always)]
    pub(crate) fn polled(&self) -> u64 {
        // Acquire pairs with the Release in `free_up_to`: the poller is done with what they brought.
        self.freed.load(Ordering::Acquire)
    }

    /// Control path, nobody inside a guard: empty. Indices go on from where they were, so that a sender never takes the
    /// end of what it knows of an earlier connection for that of this one (`Sq::mailbox_of`).
    pub(crate) fn reset(&self) {
        // SAFETY: nobody posts or consumes while the control path resets.
        let next = unsafe {
            let counts = &mut *self.poster.counts.get();
            counts.freed = counts.posted;
            *self.consumed.get() = Consumed { head: counts.posted, credit: counts.posted };
            counts.posted
        };
        self.posted.reset(next);
        // Relaxed: ordered by the quiescence before.
        self.freed.store(next, Ordering::Relaxed);
    }
}

/// `ibv_post_recv(3)`.
pub(crate) unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: by the verb's contract, which is also that one thread at a time posts.
    let this = unsafe { Qp::from_raw(qp) };
    let mut errors = Errors::new();
    let mut next = wr;
    // SAFETY: as above: the list is readable.
    let code = unsafe { post_all(this, &mut next, &mut errors) };
    errors.finish();
    if code != 0 {
        // SAFETY: as above.
        unsafe { *bad_wr = next };
    }
    code
}

/// # Safety
/// The list is readable; the caller is the posting thread.
#[inline(always)]
unsafe fn post_all(qp: &Qp, next: &mut *mut ibv_recv_wr, errors: &mut Errors) -> c_int {
    if qp.state() == State::Reset || qp.srq().is_some() {
        return libc::EINVAL;
    }
    let rq = &qp.rq;
    // SAFETY: the caller is the posting thread.
    let counts = unsafe { &mut *rq.poster.counts.get() };
    // Copies, since what is stored below could be any of the queue pair as far as the compiler knows.
    let (depth, max_sge) = (u64::from(qp.cap.max_recv_wr), qp.cap.max_recv_sge);
    let (before, mut posted) = (counts.posted, counts.posted);
    let mut limit = counts.freed + depth;
    let mut key = RegionKey::new(qp.pd, key_table::LOCAL_WRITE);
    let mut wr: *mut ibv_recv_wr = *next;
    let mut code = 0;
    while !wr.is_null() {
        // SAFETY: the caller's.
        let request = unsafe { &*wr };
        if request.num_sge as u32 > max_sge {
            // A negative number is a large one.
            code = libc::EINVAL;
            break;
        }
        if posted >= limit {
            // Acquire pairs with the Release in `free_up_to`.
            counts.freed = rq.freed.load(Ordering::Acquire);
            limit = counts.freed + depth;
            if posted >= limit {
                code = libc::ENOMEM;
                break;
            }
        }
        // SAFETY: a free entry, the poster's to write; the list was checked.
        let capacity = unsafe { rq.wqes.wqe(posted).write(request, &mut key) };
        // Relaxed: ordered by the publication below.
        rq.capacity_of(posted).store(capacity, Ordering::Relaxed);
        posted += 1;
        wr = request.next;
    }
    (*next, counts.posted) = (wr, posted);
    if counts.posted != before {
        let attention = rq.posted.publish(counts.posted, &qp.inbound.attention);
        if attention != 0 {
            attend(qp, attention, errors);
        }
    }
    code
}

/// After posting: a sender waits for it, or it must be flushed.
#[cold]
fn attend(qp: &Qp, attention: u32, errors: &mut Errors) {
    let _inside = qp.rq.guard().enter();
    if attention & FLUSHING != 0 {
        flush::receives(qp);
    } else if attention & WAITING != 0
        && let Some(sender) = fabric::lookup(qp.sq.destination())
    {
        stall::progress(sender, errors);
    }
}
