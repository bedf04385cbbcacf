//! The counters of a running plan. Each has one writer, the lcore that it belongs to, and any number of readers.
//!
//! Guarantees: an update is a plain load and a plain store (no locked instruction), a reader sees a value that the
//! writer once wrote, and no two lcores write to one cache line. Counters are not a snapshot of one instant: two of
//! them, read live, may be a loop apart.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

use crate::stats::drop_reason::{DropReason, REASONS};

/// A counter with a single writer.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    /// Adds `n`. Only the owning lcore calls this.
    #[inline]
    pub(crate) fn add(&self, n: u64) {
        // Relaxed: single writer, so the load reads its own last store; readers want the figure alone, and order
        // nothing by it.
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Raises the value to `n` if it is below.
    #[inline]
    pub(crate) fn raise_to(&self, n: u64) {
        // Relaxed: as in `add`.
        if n > self.0.load(Ordering::Relaxed) {
            self.0.store(n, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(crate) fn set(&self, n: u64) {
        // Relaxed: as in `add`.
        self.0.store(n, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn value(&self) -> u64 {
        // Relaxed: as in `add`.
        self.0.load(Ordering::Relaxed)
    }
}

/// A sum of reals with a single writer.
#[derive(Debug, Default)]
pub(crate) struct Sum(AtomicU64);

impl Sum {
    /// Adds `x`. Only the owning lcore calls this.
    #[inline]
    pub(crate) fn add(&self, x: f64) {
        // Relaxed: as in `Count::add`.
        self.0.store((self.value() + x).to_bits(), Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn value(&self) -> f64 {
        // Relaxed: as in `Count::add`.
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }
}

/// A figure of a stage's own, shown live in the report beside the engine's. Written by its stage alone.
#[derive(Clone, Debug)]
pub struct Counter(Arc<CachePadded<Count>>);

impl Counter {
    pub(crate) fn new() -> Counter {
        Counter(Arc::new(CachePadded::new(Count::default())))
    }

    /// Adds `n`. Single writer: two threads that add at once may lose counts (never more than that).
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.add(n);
    }

    /// Sets the value, for gauges.
    #[inline]
    pub fn set(&self, n: u64) {
        self.0.set(n);
    }

    /// The present value.
    #[inline]
    pub fn value(&self) -> u64 {
        self.0.value()
    }
}

/// Drops at one place, by reason.
#[derive(Debug)]
pub(crate) struct Drops([Count; REASONS]);

impl Drops {
    #[inline]
    pub(crate) fn add(&self, reason: DropReason, packets: u64) {
        self.0[reason.index()].add(packets);
    }

    /// Drops for this reason so far.
    pub(crate) fn count(&self, reason: DropReason) -> u64 {
        self.0[reason.index()].value()
    }

    /// `(counter index, packets)` of the reasons that occurred.
    pub(crate) fn non_zero(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.0.iter().map(Count::value).enumerate().filter(|(_, packets)| *packets > 0)
    }
}

impl Default for Drops {
    fn default() -> Self {
        Drops(std::array::from_fn(|_| Count::default()))
    }
}

/// What one stage did.
#[derive(Debug, Default)]
pub(crate) struct StageStats {
    pub(crate) calls: Count,
    pub(crate) polls: Count,
    pub(crate) packets_in: Count,
    pub(crate) packets_out: Count,
    /// Time in `process` and in polls that produced something, in cycles of the clock; estimated from the turns that
    /// were timed ([`crate::stats::sampling`]).
    pub(crate) cycles: Count,
    /// Calls that were timed, and the variance of `cycles` that comes of timing these alone.
    pub(crate) timed: Count,
    pub(crate) variance: Sum,
    pub(crate) batch_max: Count,
    pub(crate) alloc_failed: Count,
    pub(crate) drops: Drops,
}

/// How many values `enum ibv_wc_status` has (verbs.h); statuses beyond share the last counter.
pub(crate) const STATUSES: usize = 24;

/// What one port did.
#[derive(Debug, Default)]
pub(crate) struct PortStats {
    pub(crate) rx_packets: Count,
    pub(crate) rx_bytes: Count,
    pub(crate) tx_packets: Count,
    pub(crate) tx_bytes: Count,
    pub(crate) tx_posts: Count,
    pub(crate) rx_posted: Count,
    /// Loops in which the receive queue could not be refilled because the pool was empty.
    pub(crate) rx_starved: Count,
    /// Completions for work requests that are no longer outstanding.
    pub(crate) stale: Count,
    /// The QP's number.
    pub(crate) qpn: Count,
    /// 1 once the QP is in the error state.
    pub(crate) down: Count,
    /// Why, as [`crate::stats::down_reason::DownReason`] numbers it.
    pub(crate) down_reason: Count,
    /// 1 while the link under it is down.
    pub(crate) link_down: Count,
    /// Gauges, as of the last loop that touched the port.
    pub(crate) rx_outstanding: Count,
    pub(crate) tx_outstanding: Count,
    pub(crate) tx_pending: Count,
    /// Completions by `ibv_wc_status`; index 0 (success) stays zero.
    pub(crate) statuses: [Count; STATUSES],
    pub(crate) drops: Drops,
}

/// The producer's side of a ring.
#[derive(Debug, Default)]
pub(crate) struct RingInStats {
    pub(crate) pushed: Count,
    pub(crate) batches: Count,
    pub(crate) pending: Count,
    /// Turns in which it had no room for all that there was.
    pub(crate) full: Count,
    pub(crate) drops: Drops,
}

/// The consumer's side of a ring.
#[derive(Debug, Default)]
pub(crate) struct RingOutStats {
    pub(crate) popped: Count,
    pub(crate) batches: Count,
    /// The most that was found in it, in the turns that are timed.
    pub(crate) most: Count,
}

/// What ended a sleep, or how the engine found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WakeCause {
    Completion,
    Ring,
    Control,
    Timer,
    /// The safety time-out: nothing has come, though a stage that is polled then may find something to do.
    Timeout,
}

pub(crate) const WAKE_CAUSES: [(WakeCause, &str); 5] = [
    (WakeCause::Completion, "completion"),
    (WakeCause::Ring, "ring"),
    (WakeCause::Control, "control"),
    (WakeCause::Timer, "timer"),
    (WakeCause::Timeout, "timeout"),
];

/// What one lcore did.
#[derive(Debug, Default)]
pub(crate) struct LcoreStats {
    pub(crate) loops: Count,
    pub(crate) busy_loops: Count,
    pub(crate) busy_ns: Count,
    pub(crate) idle_ns: Count,
    pub(crate) asleep_ns: Count,
    /// Time in which it wanted to run, and did not.
    pub(crate) stolen_ns: Count,
    /// How often it was kept from its CPU for long, and for how long at most.
    pub(crate) stalls: Count,
    pub(crate) stall_max_ns: Count,
    /// Its thread, for the kernel's view of it; 0 before it runs.
    pub(crate) thread_id: Count,
    /// How long the thread had waited for its CPU when the lcore began, and when it ended (0 until then).
    pub(crate) queued_at_start_ns: Count,
    pub(crate) queued_at_end_ns: Count,
    pub(crate) sleeps: Count,
    /// Sleeps given up because the poll after arming found something.
    pub(crate) armed_in_vain: Count,
    pub(crate) wakes: [Count; WAKE_CAUSES.len()],
    /// Completions or packets of a ring, found after a pure time-out with no wake source fired: each is a lost wake-up, and a bug.
    pub(crate) rescues: Count,
    /// Completions whose tag names no port of this lcore.
    pub(crate) strays: Count,
    /// Sleeps of other lcores that this one ended.
    pub(crate) bells: Count,
    /// Packets taken from pools by this lcore.
    pub(crate) taken: Count,
}

impl LcoreStats {
    pub(crate) fn woke(&self, cause: WakeCause) {
        self.wakes[cause as usize].add(1);
    }
}

/// A block of counters with one writer, on cache lines of its own.
pub(crate) type Shared<T> = Arc<CachePadded<T>>;

pub(crate) fn shared<T: Default>() -> Shared<T> {
    Arc::new(CachePadded::new(T::default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wake_causes_are_listed_in_the_order_of_their_counters() {
        for (position, (cause, _)) in WAKE_CAUSES.iter().enumerate() {
            assert_eq!(*cause as usize, position);
        }
    }

    #[test]
    fn drops_are_kept_by_reason() {
        let drops = Drops::default();
        drops.add(DropReason::TxFull, 3);
        drops.add(DropReason::Stage(0), 2);
        drops.add(DropReason::TxFull, 1);
        let seen: Vec<_> = drops.non_zero().collect();
        assert_eq!(seen, [(DropReason::TxFull.index(), 4), (DropReason::Stage(0).index(), 2)]);
    }
}
