//! Who is inside: how the control path takes an object away from data paths that hold no lock.
//!
//! Every queue that is worked on by one thread at a time has a [`Guard`]. Its thread enters before
//! it follows a pointer that another thread may take away, and leaves after the last use. Whoever
//! takes an object away first makes it unreachable, then calls [`quiesce`], then frees it.
//!
//! What it guarantees: when `quiesce` returns, every data path that could have seen the object from
//! before has left; what it did there happened before. Entering costs a load, two stores and no
//! fence: [`fence::light`] on this side is paid for by [`fence::heavy`] on the other. A data path
//! must not call `quiesce` while inside, nor wait for anybody who does.

use crate::primitives::{AtomicU64, Backoff, Ordering};
use verbline_ring::fence;

/// One data path's presence: odd while inside. One thread at a time may enter it.
#[derive(Debug, Default)]
pub struct Guard {
    turns: AtomicU64,
}

impl Guard {
    /// Nobody is inside.
    pub fn new() -> Self {
        Guard { turns: AtomicU64::new(0) }
    }

    /// From here until the result is dropped, nothing that is reachable now is freed.
    #[inline(always)]
    pub fn enter(&self) -> Inside<'_> {
        // Relaxed: written by the entering thread only.
        let turns = self.turns.load(Ordering::Relaxed);
        // Then the light fence, which pairs with the heavy one in `quiesce`: either `quiesce` reads
        // this odd number and waits, or this thread's later loads see what was made unreachable.
        // Release: `quiesce` may read this number as the sign that the turn before it ended.
        self.turns.store(turns + 1, Ordering::Release);
        fence::light();
        Inside { guard: self, turns }
    }
}

/// Presence inside a [`Guard`].
#[derive(Debug)]
#[must_use]
pub struct Inside<'a> {
    guard: &'a Guard,
    turns: u64,
}

impl Drop for Inside<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // Release pairs with the Acquire loads in `quiesce`: all use of the object is before its
        // end.
        self.guard.turns.store(self.turns + 2, Ordering::Release);
    }
}

/// Waits until everybody who was inside one of `guards` when this was called has left it once.
///
/// Call it after making an object unreachable and before freeing it. The caller is inside none of
/// them.
pub fn quiesce<'a>(guards: impl IntoIterator<Item = &'a Guard>) {
    // Pairs with the light fence in `enter`.
    fence::heavy();
    for guard in guards {
        // Acquire, here and below: pairs with the Release in `Inside::drop` and in the next
        // `enter`.
        let seen = guard.turns.load(Ordering::Acquire);
        if seen % 2 == 0 {
            continue;
        }
        let mut backoff = Backoff::new();
        while guard.turns.load(Ordering::Acquire) == seen {
            backoff.wait();
        }
    }
}
