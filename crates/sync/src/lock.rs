//! A spin lock, for sections of some dozen instructions that several senders enter.
//!
//! Guarantees: mutual exclusion, and release/acquire between successive holders. It isn't fair, and
//! a panic doesn't poison it: no section under it may panic half way (they only move integers and
//! pointers). A thread that waits for it may be inside a guard: so a section waits for nobody
//! (`lock_order`), and copies no memory of a program's.

use crate::lock_order::{self, Rank};
use crate::primitives::{AtomicBool, Backoff, Cell, Ordering};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// See the [module](self).
#[derive(Debug, Default)]
pub struct SpinLock<T> {
    held: AtomicBool,
    rank: Rank,
    value: Cell<T>,
}

// SAFETY: `value` is reached only by the holder, and holding is exclusive (`held`).
unsafe impl<T: Send> Sync for SpinLock<T> {}
// SAFETY: owning the lock is owning the value.
unsafe impl<T: Send> Send for SpinLock<T> {}

impl<T> SpinLock<T> {
    /// A lock that nobody holds, under which no other is taken.
    pub fn new(value: T) -> Self {
        SpinLock::of_rank(Rank::Leaf, value)
    }

    /// A lock that nobody holds.
    pub fn of_rank(rank: Rank, value: T) -> Self {
        SpinLock { held: AtomicBool::new(false), rank, value: Cell::new(value) }
    }

    /// Waits for the lock.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn lock(&self) -> Held<'_, T> {
        lock_order::locking(self.rank);
        let mut backoff = Backoff::new();
        // Acquire pairs with the Release in `Held::drop`: the last holder's writes are seen.
        while self.held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            backoff.wait();
        }
        Held { lock: self, value: PhantomData }
    }
}

/// The lock, held.
#[derive(Debug)]
pub struct Held<'a, T> {
    lock: &'a SpinLock<T>,
    /// As if it owned the value: a value that may not be shared between threads isn't shared by
    /// this.
    value: PhantomData<&'a mut T>,
}

impl<T> Deref for Held<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: this value exists only while `held` is ours, so nobody else reaches the cell.
        self.lock.value.with(|value| unsafe { &*value })
    }
}

impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`; `&mut self` keeps it from being handed out twice.
        self.lock.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        // Release pairs with the Acquire in `lock`.
        self.lock.held.store(false, Ordering::Release);
        lock_order::unlocked(self.lock.rank);
    }
}
