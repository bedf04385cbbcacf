//! The windows of a sampling trace: one millisecond in N (`one_in`), the same on all lcores, and
//! one more as an lcore is late.
//!
//! A packet crosses its lcores in far less than a millisecond, so that most ways lie within one
//! window. A packet is slow mostly because its lcore came late to look for it: a late turn
//! therefore opens a window itself, on all lcores.
//!
//! Guarantees: one part in `one_in` of the time is recorded, and half as much again for late
//! lcores; beyond that only turns that are late by far, and one turn after a window whose last turn
//! was long. An lcore that records nothing reads the clock once a turn, and a cache line that is
//! written once a window.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::stats::clock::Tick;

/// A window has 2^20 ns, about a millisecond.
const WINDOW_BITS: u32 = 20;

/// A turn that begins this soon after the last one is never late.
const LATE_MIN_NS: u64 = 10_000;

/// Each window takes 2^-10 off the longest wait: an lcore forgets a wait in about a second.
const FORGET_BITS: u32 = 10;

/// The windows of a trace, which its lcores share.
#[derive(Debug)]
pub(crate) struct Windows {
    one_in: u64,
    /// When a late lcore last opened a window.
    ///
    /// Relaxed everywhere: it carries no data. An lcore that reads it late records that much less,
    /// and of two that write at once either is right.
    opened_ns: AtomicU64,
}

/// An lcore's view of the windows.
#[derive(Debug)]
pub(crate) struct Sampling {
    windows: Arc<Windows>,
    /// The window of the last look, and whether it is recorded.
    window: u64,
    is_chosen: bool,
    /// The longest wait of about the last second.
    longest_ns: u64,
}

impl Windows {
    pub(crate) fn new(one_in: NonZeroU32) -> Windows {
        Windows { one_in: one_in.get().into(), opened_ns: AtomicU64::new(0) }
    }

    /// Whether this window is recorded. Multiples of the golden ratio lie evenly, and in step with
    /// no periodic arrivals.
    fn has(&self, window: u64) -> bool {
        let place = window.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        (place * self.one_in) >> 32 == 0
    }

    fn is_open(&self, now_ns: Tick) -> bool {
        now_ns.saturating_sub(self.opened_ns.load(Ordering::Relaxed)) < 1 << WINDOW_BITS
    }

    /// Opens a window, unless the last was opened a short time ago. Returns whether it did.
    fn open(&self, now_ns: Tick, is_far: bool) -> bool {
        let since_ns = now_ns.saturating_sub(self.opened_ns.load(Ordering::Relaxed));
        let opens = is_far || since_ns >= (2 * self.one_in) << WINDOW_BITS;
        if opens {
            self.opened_ns.store(now_ns, Ordering::Relaxed);
        }
        opens
    }
}

impl Sampling {
    pub(crate) fn new(windows: Arc<Windows>) -> Sampling {
        Sampling { windows, window: u64::MAX, is_chosen: false, longest_ns: 0 }
    }

    /// Whether to record the turn that begins at `now_ns`. Its work has waited for `waited_ns` at
    /// most.
    #[inline]
    pub(crate) fn records(&mut self, now_ns: Tick, waited_ns: u64) -> bool {
        let window = now_ns >> WINDOW_BITS;
        if window != self.window {
            self.longest_ns -= self.longest_ns >> FORGET_BITS;
            (self.window, self.is_chosen) = (window, self.windows.has(window));
        }
        self.is_chosen || self.windows.is_open(now_ns) || (waited_ns >= LATE_MIN_NS && self.is_late(now_ns, waited_ns))
    }

    /// A turn is late if its wait is near the longest of the last second. A turn that waited far
    /// longer opens a window even if the last was opened a short time ago.
    #[cold]
    fn is_late(&mut self, now_ns: Tick, waited_ns: u64) -> bool {
        let is_far = waited_ns >= self.longest_ns.saturating_mul(4);
        let is_near = waited_ns >= self.longest_ns / 2;
        self.longest_ns = self.longest_ns.max(waited_ns);
        is_near && self.windows.open(now_ns, is_far)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW_NS: u64 = 1 << WINDOW_BITS;

    fn sampled(one_in: u32) -> (Arc<Windows>, Sampling) {
        let windows = Arc::new(Windows::new(NonZeroU32::new(one_in).unwrap()));
        (Arc::clone(&windows), Sampling::new(windows))
    }

    #[test]
    fn one_window_in_n_is_recorded_and_they_lie_evenly() {
        for one_in in [1, 2, 7, 32, 1_000] {
            let (windows, _) = sampled(one_in);
            let recorded: Vec<u64> = (0..u64::from(one_in) * 100).filter(|window| windows.has(*window)).collect();
            assert!(recorded.len().abs_diff(100) <= 2, "{} of {one_in} times 100", recorded.len());
            let longest = recorded.windows(2).map(|two| two[1] - two[0]).max().unwrap();
            assert!(longest <= 3 * u64::from(one_in), "{longest} between two of one in {one_in}");
        }
    }

    /// Among turns a microsecond apart, one comes late.
    #[test]
    fn a_turn_that_comes_late_opens_a_window_on_all_lcores() {
        let (windows, mut late) = sampled(1_000);
        let mut other = Sampling::new(windows);
        let mut now_ns = 5_000 * WINDOW_NS;
        let quiet = (5_000..).find(|window| (0..4).all(|next| !late.windows.has(window + next))).unwrap();
        now_ns = now_ns.max(quiet * WINDOW_NS);
        assert!(!late.records(now_ns, 1_000) && !other.records(now_ns, 1_000));
        assert!(late.records(now_ns + 50_000, 50_000), "it comes late");
        assert!(other.records(now_ns + 51_000, 1_000), "what it hands on is followed");
        assert!(!other.records(now_ns + 50_000 + WINDOW_NS, 1_000), "the window is over");
        let again_ns = now_ns + 2 * WINDOW_NS;
        assert!(!late.records(again_ns, 50_000), "as late, and too soon");
        assert!(late.records(again_ns, 250_000), "later by far");
    }

    #[test]
    fn lcores_that_are_always_late_record_half_as_much_again() {
        let (windows, mut one) = sampled(32);
        let mut two = Sampling::new(windows);
        let (step_ns, steps) = (20_000, 32 * 200 * WINDOW_NS / 20_000);
        let recorded = (0..steps).filter(|step| {
            let now_ns = 1_000 * WINDOW_NS + step * step_ns;
            one.records(now_ns, step_ns) | two.records(now_ns + 7, step_ns)
        });
        let share = recorded.count() as f64 / steps as f64 * 32.0;
        assert!((1.4..1.6).contains(&share), "{share} of one in 32");
    }

    #[test]
    fn what_counts_as_late_is_forgotten_in_seconds() {
        let (_, mut lcore) = sampled(1_000_000);
        lcore.records(0, 40_000_000);
        let after = |seconds: u64| seconds * 1_000 * WINDOW_NS;
        for window in 0..10_000 {
            lcore.records(after(1) + window * WINDOW_NS, 0);
        }
        assert!(lcore.longest_ns < 10_000, "{}", lcore.longest_ns);
        assert!(lcore.records(after(12), 20_000));
    }
}
