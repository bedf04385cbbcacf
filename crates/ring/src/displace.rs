//! How the producer of a full ring asks for its oldest items to be dropped.
//!
//! Only the consumer may take items out, so that is what drops them: the producer says how many
//! wait for room, and the consumer, before it takes any, drops the oldest that are in their way.
//!
//! ```text
//!     producer                            consumer
//!     the ring is full, n wait:           asked = take
//!     ask(n)                              room = capacity - len
//!     room again: ask(what waits now)     drop the first asked - room
//! ```
//!
//! What it guarantees: what was asked for last is taken once, or is still there to be taken; who
//! takes it sees the items that were in the way. An ask that is seen late, or is out of date, drops
//! nothing for which there is room.

use crate::sync::{Arc, AtomicU64, Ordering};
use crossbeam_utils::CachePadded;

/// One between the two ends of a ring, each of which has a clone.
#[derive(Clone, Debug)]
pub struct Displacement {
    /// Items that wait for room. On a line of its own: the consumer reads it at every poll.
    waiting: Arc<CachePadded<AtomicU64>>,
}

impl Default for Displacement {
    fn default() -> Self {
        Self { waiting: Arc::new(CachePadded::new(AtomicU64::new(0))) }
    }
}

impl Displacement {
    /// The producer: so many items wait for room, 0 if none does any more.
    #[inline]
    pub fn ask(&self, waiting: u64) {
        // Release: pairs with the Acquire in `take`, so that who sees the number sees the items
        // that filled the ring before.
        self.waiting.store(waiting, Ordering::Release);
    }

    /// The consumer: how many items wait, asked for since the last call.
    #[inline]
    pub fn take(&self) -> u64 {
        // Relaxed: only a look. The line is written only if there is something to take.
        match self.waiting.load(Ordering::Relaxed) {
            0 => 0,
            // Acquire: pairs with the Release in `ask`.
            _ => self.waiting.swap(0, Ordering::Acquire),
        }
    }
}
