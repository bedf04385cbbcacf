//! Guards: the control path takes an object away from data paths that hold no lock.
//!
//! Every queue that one thread at a time works on has a [`Guard`]. Its thread enters before it
//! follows a pointer that another thread may take away, and leaves after the last use. A thread
//! that takes an object away first makes it unreachable, then waits until all threads inside have
//! left ([`present`], [`Presence::is_over`]), then frees it.
//!
//! Guarantees: when a presence is over, its data path has left, or holds only the objects that it
//! names; all that it did before happened before. Entering costs a load, two stores and no fence:
//! [`fence::light`] on this side is paid for by [`fence::heavy`] on the other. A data path that is
//! inside must not wait for a presence to be over, nor for a thread that does
//! (`lock_order::may_wait`).
//!
//! A data path that stays long (a transfer of a gigabyte) names the objects that it holds
//! ([`Guard::narrow`]): a thread that takes away another object doesn't wait for it.

use crate::lock_order;
use crate::primitives::{AtomicU64, Ordering, fence as plain_fence};
use verbline_ring::fence;

/// One data path's presence. One thread at a time may enter it.
#[derive(Debug, Default)]
pub struct Guard {
    /// Odd while inside.
    turns: AtomicU64,
    /// Apart from `turns`, which lies beside fields that the data path uses all the time.
    narrowed: Box<NarrowedTo>,
}

/// The objects that a narrowed guard holds.
#[derive(Debug, Default)]
struct NarrowedTo {
    /// Odd while narrowed.
    times: AtomicU64,
    holds: [AtomicU64; WORDS],
}

const WORDS: usize = 4;

/// A set of numbers, of fixed size. It may also report a number that isn't in it, but never the 255
/// numbers on either side of one that is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holds([u64; WORDS]);

impl Holds {
    /// Numbers in a row that stay distinct.
    pub const NUMBERS: u64 = 64 * WORDS as u64;

    /// Adds `number`.
    #[must_use]
    pub fn with(mut self, number: u64) -> Holds {
        let bit = number % Self::NUMBERS;
        self.0[bit as usize / 64] |= 1 << (bit % 64);
        self
    }

    /// The union of both sets.
    #[must_use]
    pub fn and(mut self, other: Holds) -> Holds {
        self.0.iter_mut().zip(other.0).for_each(|(word, others)| *word |= others);
        self
    }

    /// Returns false only if `number` isn't in it.
    pub fn may_have(&self, number: u64) -> bool {
        let bit = number % Self::NUMBERS;
        self.0[bit as usize / 64] >> (bit % 64) & 1 == 1
    }
}

impl Guard {
    /// A guard with nobody inside.
    pub fn new() -> Self {
        Self::default()
    }

    /// Enters: until the result is dropped, nothing that is reachable now is freed.
    #[inline(always)]
    pub fn enter(&self) -> Inside<'_> {
        lock_order::entered();
        // Relaxed: written by the entering thread only.
        let turns = self.turns.load(Ordering::Relaxed);
        // Then the light fence, which pairs with the heavy one in `present`: either `present` reads
        // this odd number, or this thread's later loads see the object as unreachable. Release:
        // `is_over` may read this number as the sign that the turn before it ended.
        self.turns.store(turns + 1, Ordering::Release);
        fence::light();
        Inside { guard: self, turns }
    }

    /// Called by the thread inside: until the result is dropped it holds only the objects in
    /// `holds`, and reaches for nothing else. Afterwards it is inside as before, but must find
    /// other objects anew.
    #[cold]
    pub fn narrow(&self, holds: Holds) -> Narrowed<'_> {
        let NarrowedTo { times, holds: words } = &*self.narrowed;
        // Relaxed: written by the thread inside only.
        let before = times.load(Ordering::Relaxed);
        // Release pairs with the Acquire fence in `is_over`: a thread that saw any of the words
        // below sees that the time before is over.
        plain_fence(Ordering::Release);
        for (word, bits) in words.iter().zip(holds.0) {
            // Relaxed: published by `times`.
            word.store(bits, Ordering::Relaxed);
        }
        // Release pairs with the Acquire in `is_over`: the words are there, and all use of objects
        // that aren't held is over.
        times.store(before + 1, Ordering::Release);
        Narrowed { times, before }
    }
}

/// Presence inside a [`Guard`].
#[derive(Debug)]
#[must_use]
pub struct Inside<'a> {
    guard: &'a Guard,
    turns: u64,
}

impl<'a> Inside<'a> {
    /// The guard that it is inside of.
    #[inline(always)]
    pub fn guard(&self) -> &'a Guard {
        self.guard
    }
}

impl Drop for Inside<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // Release pairs with the Acquire loads in `is_over`: all use of the object is before its
        // end.
        self.guard.turns.store(self.turns + 2, Ordering::Release);
        lock_order::left();
    }
}

/// Presence that holds only the named objects ([`Guard::narrow`]).
#[derive(Debug)]
#[must_use]
pub struct Narrowed<'a> {
    times: &'a AtomicU64,
    before: u64,
}

impl Drop for Narrowed<'_> {
    fn drop(&mut self) {
        // As in `enter`: either `is_over`, after `present`, reads that this is over and waits for
        // the guard to be left, or this thread's later loads see the object as unreachable.
        // Release: like all its stores.
        self.times.store(self.before + 2, Ordering::Release);
        fence::light();
    }
}

/// The object that was made unreachable, which decides which guards are waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// Every thread inside may hold it.
    Anything,
    /// A narrowed guard holds it only if its set has the number.
    Number(u64),
    /// No narrowed guard holds it.
    Unnumbered,
}

/// A note that a thread was inside a guard.
#[derive(Clone, Copy, Debug)]
pub struct Presence {
    turns: u64,
}

/// Returns the presences in `guards`. Call it after making an object unreachable; free the object
/// when [`Presence::is_over`] is true of each.
pub fn present<'g, T>(guards: impl IntoIterator<Item = (T, &'g Guard)>) -> Vec<(T, Presence)> {
    lock_order::may_wait("taking an object away");
    // Pairs with the light fences in `enter` and in `Narrowed::drop`.
    fence::heavy();
    let inside = guards.into_iter().filter_map(|(which, guard)| {
        // Acquire, here and in `is_over`: pairs with the Release in `Inside::drop` and in the next
        // `enter`.
        let turns = guard.turns.load(Ordering::Acquire);
        (turns % 2 == 1).then_some((which, Presence { turns }))
    });
    inside.collect()
}

impl Presence {
    /// Whether the thread that was inside `guard` has left since, or says that it doesn't hold the
    /// object taken away.
    pub fn is_over(&self, guard: &Guard, taken: Taken) -> bool {
        guard.turns.load(Ordering::Acquire) != self.turns || guard.is_without(taken)
    }
}

impl Guard {
    /// Whether the thread inside says that it doesn't hold that.
    fn is_without(&self, taken: Taken) -> bool {
        let NarrowedTo { times, holds } = &*self.narrowed;
        // Acquire pairs with the Release in `narrow`: all use of objects that aren't held is over.
        let during = times.load(Ordering::Acquire);
        // Relaxed, all: a change meanwhile is noticed below.
        let holds = Holds(std::array::from_fn(|word| holds[word].load(Ordering::Relaxed)));
        // Acquire pairs with the Release fence in `narrow`.
        plain_fence(Ordering::Acquire);
        // Relaxed: after the fence.
        let is_narrowed = during % 2 == 1 && times.load(Ordering::Relaxed) == during;
        match taken {
            Taken::Anything => false,
            Taken::Number(number) => is_narrowed && !holds.may_have(number),
            Taken::Unnumbered => is_narrowed,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_what_was_put_in_and_not_its_neighbours() {
        let set = Holds::default().with(7).with(300).with(u64::MAX);
        assert!([7, 300, u64::MAX].iter().all(|number| set.may_have(*number)));
        assert!([6, 8, 299, 301].iter().all(|number| !set.may_have(*number)));
        assert!((0..Holds::NUMBERS).all(|number| !Holds::default().may_have(number)));
    }

    #[test]
    fn who_says_what_it_holds_is_waited_for_by_that_only() {
        let guard = Guard::new();
        let inside = guard.enter();
        let waiting = std::thread::scope(|scope| scope.spawn(|| present([((), &guard)])).join().unwrap());
        let [((), presence)] = waiting[..] else { panic!("it is inside") };
        let over = || {
            [Taken::Anything, Taken::Number(1), Taken::Number(2), Taken::Unnumbered]
                .map(|taken| presence.is_over(&guard, taken))
        };
        assert_eq!(over(), [false; 4], "before it says anything");
        let narrowed = guard.narrow(Holds::default().with(1));
        assert_eq!(over(), [false, false, true, true]);
        drop(narrowed);
        assert_eq!(over(), [false; 4], "it may hold what it has found since");
        drop(inside);
        assert_eq!(over(), [true; 4]);
    }

    /// Release builds don't check.
    #[cfg(debug_assertions)]
    #[test]
    #[should_panic(expected = "waits for threads inside guards")]
    fn who_is_inside_does_not_wait_for_those_inside() {
        let guard = Guard::new();
        let _inside = guard.enter();
        present([((), &guard)]);
    }
}
