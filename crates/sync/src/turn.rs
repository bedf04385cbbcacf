//! Work that one thread at a time does, and that nobody waits for: a thread that comes while
//! another is at work leaves a mark, and the other looks once more before it goes.
//!
//! Guarantees: the writes of a thread before [`Turn::take`] are seen by the thread that takes the
//! turn next, or by the current holder, in another look.

use crate::primitives::{AtomicU64, Ordering};

/// See the [module](self).
#[derive(Debug, Default)]
pub struct Turn {
    /// The number of comers since it was free; 0 while it is. 64 bits: the holder may be kept from
    /// running for minutes, while others come at each poll.
    came: AtomicU64,
}

/// The turn, taken. It stays taken until it is given up.
#[derive(Debug)]
#[must_use]
pub struct Taken<'a> {
    turn: &'a Turn,
    seen: u64,
}

impl Turn {
    /// A free turn.
    pub fn new() -> Turn {
        Turn::default()
    }

    /// Takes the turn. `None` if another thread has it, which then looks once more.
    pub fn take(&self) -> Option<Taken<'_>> {
        // AcqRel: pairs with `give_up`, and with itself by way of the comers in between: the holder
        // sees this thread's writes, or this thread those of the turn before.
        let before = self.came.fetch_add(1, Ordering::AcqRel);
        (before == 0).then_some(Taken { turn: self, seen: 1 })
    }
}

impl<'a> Taken<'a> {
    /// Gives the turn up after a look. Returns it, to look once more, if another thread has come
    /// since the last time.
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

    /// Regression: the count was free again after 2^32 comers, in minutes of polls beside a holder
    /// that was kept from running, and two threads had the turn.
    #[test]
    fn who_has_the_turn_has_it_alone_however_many_come() {
        let turn = Turn::new();
        let taken = turn.take().expect("it is free");
        // Relaxed: this thread alone uses it.
        turn.came.store(u32::MAX.into(), Ordering::Relaxed);
        assert!(turn.take().is_none() && turn.take().is_none());
        let taken = taken.give_up().expect("others have come");
        assert!(taken.give_up().is_none() && turn.take().is_some());
    }
}
