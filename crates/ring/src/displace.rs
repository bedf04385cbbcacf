//! Displacement: the producer of a full ring asks the consumer to drop the oldest items.
//!
//! Only the consumer may take items out, so that is what drops them: the producer says up to which
//! item the ring must be emptied for what waits, and the consumer drops what is before that.
//!
//! ```text
//!     producer                                  consumer
//!     the ring is full, n wait:                 drop while taken < keep_from
//!     keep_from = pushed + n - capacity
//! ```
//!
//! Both ends count items from the beginning of the ring. What is asked so means the same whenever
//! it is seen: an item is dropped only if there is no room for it beside those that came after it.
//! A number of items would not do. The consumer may see it when what waited is in the ring, and
//! would drop the newest for nobody.

use crate::sync::{Arc, AtomicU64, Ordering};
use crossbeam_utils::CachePadded;

/// Makes the two ends for a ring of `capacity` items.
pub fn displacement(capacity: usize) -> (Displacer, Displaced) {
    let keep_from = Arc::new(CachePadded::new(AtomicU64::new(0)));
    let displacer = Displacer { keep_from: keep_from.clone(), asked: 0, pushed: 0, capacity: capacity as u64 };
    (displacer, Displaced { keep_from, taken: 0 })
}

/// The producer's end.
#[derive(Debug)]
pub struct Displacer {
    /// On a line of its own: the consumer reads it at every poll.
    keep_from: Arc<CachePadded<AtomicU64>>,
    /// What is in it.
    asked: u64,
    pushed: u64,
    capacity: u64,
}

impl Displacer {
    /// Counts items that were pushed, and asks for room for those that still wait.
    #[inline]
    pub fn ask(&mut self, pushed: usize, waiting: usize) {
        self.pushed += pushed as u64;
        let keep_from = (self.pushed + waiting as u64).saturating_sub(self.capacity);
        if waiting > 0 && keep_from > self.asked {
            self.asked = keep_from;
            // Relaxed: the number only grows and means the same whenever it is seen; the items
            // themselves are published by the ring.
            self.keep_from.store(keep_from, Ordering::Relaxed);
        }
    }
}

/// The consumer's end.
#[derive(Debug)]
pub struct Displaced {
    keep_from: Arc<CachePadded<AtomicU64>>,
    taken: u64,
}

impl Displaced {
    /// How many items are to be dropped before any is taken; not all need be in the ring yet.
    #[inline]
    pub fn in_the_way(&self) -> usize {
        // Relaxed: as the store in `Displacer::ask`.
        let items = self.keep_from.load(Ordering::Relaxed).saturating_sub(self.taken);
        usize::try_from(items).unwrap_or(usize::MAX)
    }

    /// Counts items that were taken out of the ring, to be dropped or not.
    #[inline]
    pub fn note_taken(&mut self, items: usize) {
        self.taken += items as u64;
    }
}
