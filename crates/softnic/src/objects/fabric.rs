//! The in-process fabric: queue-pair numbers, the lookup of a queue pair by number, and the
//! lifetime of the result.
//!
//! Guarantees: queue-pair numbers are unique in the process, and a number is not used again before
//! tens of thousands of others were. The numbers of a device with an address are in this process's
//! slice of the address's numbers; slice 0 is for devices without an address. The queue pair
//! returned by [`lookup`] lives as long as its [`Pinned`].
//!
//! Control verbs that change state seen by several objects hold [`control`]'s lock; data paths
//! never do.

use crate::objects::device::{DEVICES, Device, QPS_MAX};
use crate::objects::guards::{self, Pinned};
use crate::objects::qp::Qp;
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use verbline_sync::guard::Guard;

/// Numbers are 24 bits; 0 and 1 are the management QPs', 0xffffff is multicast.
pub(crate) const QPN_MASK: u32 = 0xff_ffff;
/// The destination QPN of a multicast datagram.
pub(crate) const QPN_MULTICAST: u32 = 0xff_ffff;
const QPN_FIRST: u32 = 0x100;
/// Numbers are below this limit while at most half of them are in use. So the table of a process
/// that makes and destroys queue pairs for ever stays at half a megabyte.
const QPN_LIMIT_MIN: u32 = 1 << 16;
/// The high bits of a number are its slice.
pub(crate) const SLICE_BITS: u32 = 5;
const SLICE_SHIFT: u32 = 24 - SLICE_BITS;
/// The limit of numbers within a slice: the last of the last slice is multicast's.
const QPN_LIMIT_MAX: u32 = (1 << SLICE_SHIFT) - 1;

const CHUNK_BITS: u32 = 12;
const CHUNK: usize = 1 << CHUNK_BITS;
type Chunk = [AtomicPtr<Qp>; CHUNK];

/// Number to queue pair. Chunks are made on demand and kept, so an entry's address stays valid for
/// ever.
static TABLE: [AtomicPtr<Chunk>; 1 << (24 - CHUNK_BITS)] = [const { AtomicPtr::new(null_mut()) }; _];

/// The control path's state, under its lock.
#[derive(Debug)]
pub(crate) struct Control {
    /// For each device.
    numbers: [Numbers; DEVICES],
    qps: usize,
}

/// The next queue-pair number of a slice. Numbers go round in a circle, which grows with the number
/// of queue pairs.
#[derive(Debug)]
struct Numbers {
    slice: u32,
    next: u32,
    limit: u32,
}

impl Numbers {
    const fn new() -> Numbers {
        Numbers { slice: 0, next: QPN_FIRST, limit: QPN_LIMIT_MIN }
    }

    /// A free number; `in_use` are taken.
    fn take(&mut self, in_use: usize, is_taken: impl Fn(u32) -> bool) -> u32 {
        if in_use >= (self.limit / 2) as usize {
            self.limit = (self.limit * 2).min(QPN_LIMIT_MAX);
        }
        loop {
            let qpn = self.slice << SLICE_SHIFT | self.next;
            self.next = if self.next + 1 >= self.limit { QPN_FIRST } else { self.next + 1 };
            if !is_taken(qpn) {
                return qpn;
            }
        }
    }
}

static CONTROL: Mutex<Control> = Mutex::new(Control { numbers: [const { Numbers::new() }; DEVICES], qps: 0 });
/// The slice of each device.
static SLICES: [AtomicU32; DEVICES] = [const { AtomicU32::new(0) }; DEVICES];

/// The slice of a number.
pub(crate) fn slice_of(qpn: u32) -> u32 {
    (qpn & QPN_MASK) >> SLICE_SHIFT
}

/// The numbers of a slice.
pub(crate) fn numbers_of(slice: u32) -> Range<u32> {
    slice << SLICE_SHIFT..(slice + 1) << SLICE_SHIFT
}

/// Whether the number, at the device's addresses, belongs to this process: others may share the
/// address, but none has slice 0.
pub(crate) fn is_here(device: &Device, qpn: u32) -> bool {
    // Relaxed: a device's slice is set before the first queue pair of it exists.
    let slice = slice_of(qpn);
    slice == 0 || slice == SLICES[device.index].load(Ordering::Relaxed)
}

/// The control path's lock. Never taken inside a guard: its holder waits for the threads inside
/// guards.
#[cfg_attr(debug_assertions, track_caller)]
pub(crate) fn control() -> MutexGuard<'static, Control> {
    verbline_sync::lock_order::may_wait("the control path's lock");
    CONTROL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The entry of `qpn`, if any queue pair ever had a number near it. Valid for ever.
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

    /// The control path's own guard: the lock gives it to one thread at a time.
    pub(crate) fn guard(&self) -> &'static Guard {
        static GUARD: LazyLock<&'static Guard> = LazyLock::new(|| {
            let guard: &'static Guard = Box::leak(Box::default());
            guards::register(&[guard]);
            guard
        });
        &GUARD
    }

    /// Starts the device's numbers in its slice, from a random number that strangers can't guess.
    pub(crate) fn own_slice(&mut self, device: usize, slice: u32, random: u32) {
        let numbers = &mut self.numbers[device];
        (numbers.slice, numbers.next) = (slice, QPN_FIRST + random % (numbers.limit - QPN_FIRST));
        // Relaxed: as in `is_here`.
        SLICES[device].store(slice, Ordering::Relaxed);
    }

    /// Whether the number is of the device's current slice. A queue pair made before the device had
    /// its address has another one, and no packet for it finds this process.
    pub(crate) fn is_of_slice(&self, device: usize, qpn: u32) -> bool {
        self.numbers[device].slice == slice_of(qpn)
    }

    /// Reserves a number for a queue pair of the device. `None` if [`QPS_MAX`] queue pairs exist.
    pub(crate) fn reserve(&mut self, device: usize) -> Option<u32> {
        if self.qps >= QPS_MAX {
            return None;
        }
        // Relaxed: changed under this lock only.
        let is_taken = |qpn| entry(qpn).is_some_and(|entry| !entry.load(Ordering::Relaxed).is_null());
        let qpn = self.numbers[device].take(self.qps, is_taken);
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

    /// Calls `each` for every reachable queue pair.
    pub(crate) fn for_each(&self, mut each: impl FnMut(&Qp)) {
        for first in (0..=QPN_MASK).step_by(CHUNK) {
            if entry(first).is_some() {
                let all = (first..first + CHUNK as u32).filter_map(|qpn| lookup(self.pinned(), qpn));
                all.for_each(&mut each);
            }
        }
    }

    /// Removes the number. The caller must `quiesce` before freeing the queue pair.
    pub(crate) fn remove(&mut self, qpn: u32) {
        // Release, like every change of an entry; the ordering that matters is quiesce's.
        if let Some(entry) = entry(qpn) {
            entry.store(null_mut(), Ordering::Release);
        }
        self.qps -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::device;
    use std::collections::{HashSet, VecDeque};

    /// Makes a million queue pairs, with at most `living` at a time; returns the highest number.
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
        assert!(QPS_MAX <= QPN_LIMIT_MAX.div_ceil(2) as usize, "the circle never has to be fuller than half");
        let slices = 1 << SLICE_BITS;
        assert!((0..slices).all(|slice| slice_of(numbers_of(slice).start + QPN_LIMIT_MAX - 1) == slice));
        assert_eq!(numbers_of(slices - 1).start + QPN_LIMIT_MAX, QPN_MULTICAST);
    }

    #[test]
    fn a_device_without_an_address_has_no_slice_but_the_first() {
        let [first, second] = device::devices();
        assert!([first, second].iter().all(|device| is_here(device, QPN_FIRST)));
        assert!((1..1 << SLICE_BITS).all(|slice| !is_here(first, numbers_of(slice).start + QPN_FIRST)));
    }
}
