//! Work that one thread at a time does, and that nobody waits for: a thread that comes while
//! another is at work leaves word, and the other looks once more before it goes.
//!
//! Guarantees: all that a thread did before [`Turn::take`] is seen by the thread that takes the
//! turn next, or by the thread that has it, in another look.

use crate::primitives::{AtomicU64, Ordering};

/// See the [module](self).
#[derive(Debug, Default)]
pub struct Turn {
    /// How many have come since it was free; 0 while it is. 64 bits: who has it may be kept from
    /// running for minutes, while others come at each poll.
    came: AtomicU64,
}

/// The turn, taken. It is taken for good unless it is given up.
#[derive(Debug)]
#[must_use]
pub struct Taken<'a> {
    turn: &'a Turn,
    seen: u64,
}

impl Turn {
    /// Nobody has it.
    pub fn new() -> Turn {
        Turn::default()
    }

    /// Takes the turn. `None`: who has it looks once more.
    pub fn take(&self) -> Option<Taken<'_>> {
        // AcqRel: pairs with `give_up`, and with itself by way of those who came between: who has
        // the turn sees what this thread did, or this thread what was done in the turn before.
        let before = self.came.fetch_add(1, Ordering::AcqRel);
        (before == 0).then_some(Taken { turn: self, seen: 1 })
    }
}

impl<'a> Taken<'a> {
    /// Gives it up after a look; or gives it back, to look once more, if somebody has come since
    /// the last time.
    pub fn give_up(self) -> Option<Taken<'a>> {
        // AcqRel, and Acquire: see `take`.
        match self.turn.came.compare_exchange(self.seen, 0, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => None,
            Err(seen) => Some(Taken { seen, ..self }),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Regression: the count was free again once 2^32 had come, in minutes of polls beside a thread
    /// that has the turn and is kept from running, and two threads had the turn.
    #[test]
    fn who_has_the_turn_has_it_alone_however_many_come() {
        let turn = Turn::new();
        let taken = turn.take().expect("it is free");
        // Relaxed: of this thread alone.
        turn.came.store(u32::MAX.into(), Ordering::Relaxed);
        assert!(turn.take().is_none() && turn.take().is_none());
        let taken = taken.give_up().expect("others have come");
        assert!(taken.give_up().is_none() && turn.take().is_some());
    }
}
