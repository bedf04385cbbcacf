//! How the lcore's part of a capture or of a trace reaches it, and comes back: a place for each
//! lcore, where the thread of the capture leaves what is to be there, and the lcore what was.
//!
//! Guarantees: an lcore takes the lock once for each beginning and each end, when a notice says so;
//! nobody holds it for longer than two moves take; what an lcore gives up lies here until the
//! thread of a capture frees it.

use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The desks of a run's lcores, and whether there is a capture (or a trace, as below).
#[derive(Debug)]
pub(crate) struct Desks<T> {
    lcores: Box<[Mutex<Desk<T>>]>,
    is_busy: Mutex<bool>,
}

#[derive(Debug)]
struct Desk<T> {
    /// What the lcore is to have from its next turn on; the inner one is `None` as a capture ends.
    next: Option<Option<Box<T>>>,
    /// What it has given up.
    former: Option<Box<T>>,
}

impl<T> Desks<T> {
    pub(crate) fn new(lcores: usize) -> Desks<T> {
        let desk = |_| Mutex::new(Desk { next: None, former: None });
        Desks { lcores: (0..lcores).map(desk).collect(), is_busy: Mutex::default() }
    }

    /// Whether a capture may begin, which then has all desks until [`Desks::release`].
    pub(crate) fn claim(&self) -> bool {
        !mem::replace(&mut *lock(&self.is_busy), true)
    }

    pub(crate) fn release(&self) {
        *lock(&self.is_busy) = false;
    }

    /// The thread of a capture: leaves a beginning, or an end. What lay there and was not taken is
    /// freed.
    pub(crate) fn leave(&self, lcore: usize, next: Option<Box<T>>) {
        let before = lock(&self.lcores[lcore]).next.replace(next);
        drop(before);
    }

    /// The thread of a capture: whether the lcore has taken what was left last. What it has given
    /// up is freed.
    pub(crate) fn is_taken(&self, lcore: usize) -> bool {
        let mut desk = lock(&self.lcores[lcore]);
        let (former, is_taken) = (desk.former.take(), desk.next.is_none());
        drop((desk, former));
        is_taken
    }

    /// The lcore: takes what was left, for what it has. True if there was something.
    pub(crate) fn exchange(&self, lcore: usize, has: &mut Option<Box<T>>) -> bool {
        let mut desk = lock(&self.lcores[lcore]);
        let Some(next) = desk.next.take() else { return false };
        let former = mem::replace(has, next);
        // The thread looks whether this is empty before it leaves a beginning, so that what lay
        // here is nothing or was freed.
        if former.is_some() {
            desk.former = former;
        }
        true
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change is a few moves that do not panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
