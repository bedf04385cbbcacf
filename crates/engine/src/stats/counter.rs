//! A counter of a running plan. It has one writer, the lcore that it belongs to, and any number of
//! readers.
//!
//! Guarantees: an update is a plain load and a plain store (no locked instruction); a reader sees a
//! value that the writer once wrote; no two lcores write to one cache line. Counters are no
//! snapshot of one instant: two counters that are read live may be a loop apart.

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
        // Relaxed: single writer, so the load reads its own last store; readers want the figure
        // alone, and order nothing by it.
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Raises the value to `n` if it is lower.
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

/// A stage's own figure, shown live in the report beside the engine's. Written by its stage alone.
#[derive(Clone, Debug)]
pub struct Counter(Arc<CachePadded<Count>>);

impl Counter {
    pub(crate) fn new() -> Counter {
        Counter(Arc::new(CachePadded::new(Count::default())))
    }

    /// Adds `n`. Single writer: two threads that add at once may lose counts (never more than
    /// that).
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

    /// Returns `(counter index, packets)` of the reasons that occurred.
    pub(crate) fn non_zero(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.0.iter().map(Count::value).enumerate().filter(|(_, packets)| *packets > 0)
    }
}

impl Default for Drops {
    fn default() -> Self {
        Drops(std::array::from_fn(|_| Count::default()))
    }
}

/// A block of counters with one writer, on cache lines of its own.
pub(crate) type Shared<T> = Arc<CachePadded<T>>;

pub(crate) fn shared<T: Default>() -> Shared<T> {
    Arc::new(CachePadded::new(T::default()))
}

/// Declares a report with its counters: one block of counters per writer, whose `read` copies them
/// into the report. `private` counters are not in the report themselves: a reader derives figures
/// from them.
macro_rules! counted {
    (
        $(#[$report_doc:meta])*
        $report:ident { $($(#[$field_doc:meta])* $field:ident: $field_type:ty,)* }
        $(
            $(#[$stats_doc:meta])*
            $stats:ident { $($(#[$doc:meta])* $counter:ident,)* }
            private { $($(#[$own_doc:meta])* $own:ident: $own_type:ty,)* }
        )+
    ) => {
        $(#[$report_doc])*
        #[derive(Clone, Debug, Default, PartialEq, Serialize)]
        pub struct $report {
            $($(#[$field_doc])* pub $field: $field_type,)*
            $($($(#[$doc])* pub $counter: u64,)*)+
        }
        $(
            $(#[$stats_doc])*
            #[derive(Debug, Default)]
            pub(crate) struct $stats {
                $($(#[$doc])* pub(crate) $counter: Count,)*
                $($(#[$own_doc])* pub(crate) $own: $own_type,)*
            }

            impl $stats {
                pub(crate) fn read(&self, report: &mut $report) {
                    $(report.$counter = self.$counter.value();)*
                }
            }
        )+
    };
}

pub(crate) use counted;

#[cfg(test)]
mod tests {
    use super::*;

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
