//! The in-process fabric: queue-pair numbers, the way from one queue pair to another, and who may
//! be on that way.
//!
//! What it guarantees: queue-pair numbers are unique in the process, and a number is not used again
//! before tens of thousands of others were. What [`lookup`] gives is alive for as long as its
//! [`Pinned`].
//!
//! Control verbs that change what more than one object sees hold [`control`]'s lock; data paths
//! never do.

use crate::objects::device::QPS_MAX;
use crate::objects::guards::{self, Pinned};
use crate::objects::qp::Qp;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use verbline_sync::guard::Guard;

/// Numbers are 24 bits; 0 and 1 are the management QPs', 0xffffff is multicast.
pub(crate) const QPN_MASK: u32 = 0xff_ffff;
/// The destination QPN of a multicast datagram.
pub(crate) const QPN_MULTICAST: u32 = 0xff_ffff;
const QPN_FIRST: u32 = 0x100;
/// Numbers are given out below this one, for as long as at most half of them are in use at a time.
/// So the table of a process that makes and destroys queue pairs for ever stays at half a megabyte.
const QPN_LIMIT_MIN: u32 = 1 << 16;

const CHUNK_BITS: u32 = 12;
const CHUNK: usize = 1 << CHUNK_BITS;
type Chunk = [AtomicPtr<Qp>; CHUNK];

/// Number to queue pair. Chunks are made on demand and kept, so that an entry's address stays good
/// for ever.
static TABLE: [AtomicPtr<Chunk>; 1 << (24 - CHUNK_BITS)] = [const { AtomicPtr::new(null_mut()) }; _];

/// What the control path keeps under its lock.
#[derive(Debug)]
pub(crate) struct Control {
    numbers: Numbers,
    qps: usize,
}

/// Which queue-pair number comes next: in a circle, which grows with the queue pairs that there
/// are.
#[derive(Debug)]
struct Numbers {
    next: u32,
    limit: u32,
}

impl Numbers {
    const fn new() -> Numbers {
        Numbers { next: QPN_FIRST, limit: QPN_LIMIT_MIN }
    }

    /// A number that is not taken, where `in_use` are.
    fn take(&mut self, in_use: usize, is_taken: impl Fn(u32) -> bool) -> u32 {
        if in_use >= (self.limit / 2) as usize {
            self.limit = (self.limit * 2).min(QPN_MULTICAST);
        }
        loop {
            let qpn = self.next;
            self.next = if qpn + 1 >= self.limit { QPN_FIRST } else { qpn + 1 };
            if !is_taken(qpn) {
                return qpn;
            }
        }
    }
}

static CONTROL: Mutex<Control> = Mutex::new(Control { numbers: Numbers::new(), qps: 0 });

/// The control path's lock. Never taken inside a guard: its holder waits for the threads inside
/// guards.
#[cfg_attr(debug_assertions, track_caller)]
pub(crate) fn control() -> MutexGuard<'static, Control> {
    verbline_sync::presence::may_wait("the control path's lock");
    CONTROL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The entry of `qpn`, if any queue pair ever had a number near it. The address is good for ever.
#[inline]
pub(crate) fn entry(qpn: u32) -> Option<&'static AtomicPtr<Qp>> {
    let qpn = qpn & QPN_MASK;
    // Acquire pairs with the Release in `Control::insert`: the chunk is initialised.
    let chunk = TABLE[(qpn >> CHUNK_BITS) as usize].load(Ordering::Acquire);
    if chunk.is_null() {
        return None;
    }
    // SAFETY: chunks are never freed.
    Some(unsafe { &(*chunk)[qpn as usize % CHUNK] })
}

/// The queue pair of that number.
#[inline]
pub(crate) fn lookup<'p>(_pinned: Pinned<'p>, qpn: u32) -> Option<&'p Qp> {
    // Acquire pairs with the Release in `Control::insert`: the queue pair is initialised.
    let qp = entry(qpn)?.load(Ordering::Acquire);
    // SAFETY: non-null entries point to live queue pairs; before one is freed, `Control::remove` is
    // called, and then `quiesce`, which waits for `'p` to end.
    unsafe { qp.as_ref() }
}

impl Control {
    /// Nothing is freed while the lock is held: a thread that frees takes the lock first.
    pub(crate) fn pinned(&self) -> Pinned<'_> {
        Pinned::locked(self)
    }

    /// The control path's own guard: its lock makes it one thread's at a time.
    pub(crate) fn guard(&self) -> &'static Guard {
        static GUARD: LazyLock<&'static Guard> = LazyLock::new(|| {
            let guard: &'static Guard = Box::leak(Box::default());
            guards::register(&[guard]);
            guard
        });
        &GUARD
    }

    /// The next numbers are those behind some number, which strangers are not to guess.
    pub(crate) fn begin_numbers_at(&mut self, random: u32) {
        self.numbers.next = QPN_FIRST + random % (self.numbers.limit - QPN_FIRST);
    }

    /// A number that no queue pair has. `None` when there are as many queue pairs as there may be.
    pub(crate) fn reserve(&mut self) -> Option<u32> {
        if self.qps >= QPS_MAX {
            return None;
        }
        // Relaxed: changed under this lock only.
        let is_taken = |qpn| entry(qpn).is_some_and(|entry| !entry.load(Ordering::Relaxed).is_null());
        let qpn = self.numbers.take(self.qps, is_taken);
        self.qps += 1;
        Some(qpn)
    }

    /// Makes `qp` reachable by its number, which was reserved.
    pub(crate) fn insert(&mut self, qpn: u32, qp: *mut Qp) {
        let chunk = &TABLE[(qpn >> CHUNK_BITS) as usize];
        // Relaxed: written only under this lock.
        if chunk.load(Ordering::Relaxed).is_null() {
            let new: Box<Chunk> = Box::new([const { AtomicPtr::new(null_mut()) }; CHUNK]);
            // Release pairs with the Acquire in `entry`.
            chunk.store(Box::into_raw(new), Ordering::Release);
        }
        // Release pairs with the Acquire in `lookup`.
        if let Some(entry) = entry(qpn) {
            entry.store(qp, Ordering::Release);
        }
    }

    /// Every queue pair that can be reached.
    pub(crate) fn for_each(&self, mut each: impl FnMut(&Qp)) {
        for first in (0..=QPN_MASK).step_by(CHUNK) {
            if entry(first).is_some() {
                let all = (first..first + CHUNK as u32).filter_map(|qpn| lookup(self.pinned(), qpn));
                all.for_each(&mut each);
            }
        }
    }

    /// Makes the number lead nowhere. `quiesce` before freeing the queue pair.
    pub(crate) fn remove(&mut self, qpn: u32) {
        // Release, as every change of an entry; the ordering that matters is quiesce's.
        if let Some(entry) = entry(qpn) {
            entry.store(null_mut(), Ordering::Release);
        }
        self.qps -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashSet, VecDeque};

    /// Makes a million queue pairs, of which at most `living` are there at a time; says how far
    /// their numbers go.
    fn highest_number(living: usize) -> u32 {
        let (mut numbers, mut taken, mut order) = (Numbers::new(), HashSet::new(), VecDeque::new());
        let mut last_used = std::collections::HashMap::new();
        let mut highest = 0;
        for round in 0..1_000_000_usize {
            if order.len() == living {
                taken.remove(&order.pop_front().expect("some live"));
            }
            let qpn = numbers.take(order.len(), |qpn| taken.contains(&qpn));
            assert!(taken.insert(qpn), "{qpn:#x} is taken");
            let before = last_used.insert(qpn, round);
            assert!(before.is_none_or(|before| round - before > 30_000), "{qpn:#x} comes back too soon");
            order.push_back(qpn);
            highest = highest.max(qpn);
        }
        highest
    }

    #[test]
    fn queue_pairs_that_come_and_go_for_ever_use_a_bounded_range_of_numbers() {
        assert!(highest_number(1) < QPN_LIMIT_MIN);
        assert!(highest_number(1_000) < QPN_LIMIT_MIN);
        assert!(highest_number(100_000) < QPN_LIMIT_MIN << 2);
    }

    #[test]
    fn the_largest_number_is_not_the_multicast_one() {
        assert!(QPS_MAX < (QPN_MULTICAST / 2) as usize, "the circle never has to be fuller than half");
    }
}
