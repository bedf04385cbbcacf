//! Hands an lcore its part of a capture or of a trace, and takes it back: a desk for each lcore,
//! where the capture's thread leaves the next part, and the lcore the former one.
//!
//! Guarantees: an lcore takes the lock once for each beginning and each end, when a notice says so;
//! nobody holds it for longer than two moves take; a part that an lcore gives up lies here until
//! the thread of a capture frees it.

use std::mem;
use std::sync::Mutex;

use crate::errors::guarded::lock;

/// The desks of a run's lcores, and whether there is a capture (or a trace).
#[derive(Debug)]
pub(crate) struct Desks<T> {
    lcores: Box<[Mutex<Desk<T>>]>,
    is_busy: Mutex<bool>,
}

#[derive(Debug)]
struct Desk<T> {
    /// The lcore's part from its next turn on; the inner one is `None` as a capture ends.
    next: Option<Option<Box<T>>>,
    /// The part that the lcore has given up.
    former: Option<Box<T>>,
}

impl<T> Desks<T> {
    pub(crate) fn new(lcores: usize) -> Desks<T> {
        let desk = |_| Mutex::new(Desk { next: None, former: None });
        Desks { lcores: (0..lcores).map(desk).collect(), is_busy: Mutex::default() }
    }

    /// Claims all desks for a capture, until [`Desks::release`]. Returns false if another has them.
    pub(crate) fn claim(&self) -> bool {
        !mem::replace(&mut *lock(&self.is_busy), true)
    }

    pub(crate) fn release(&self) {
        *lock(&self.is_busy) = false;
    }

    /// The thread of a capture: leaves a beginning, or an end. Frees a part that was left there and
    /// not taken.
    pub(crate) fn leave(&self, lcore: usize, next: Option<Box<T>>) {
        let before = lock(&self.lcores[lcore]).next.replace(next);
        drop(before);
    }

    /// The thread of a capture: whether the lcore has taken the last part. Frees the part that the
    /// lcore has given up.
    pub(crate) fn is_taken(&self, lcore: usize) -> bool {
        let mut desk = lock(&self.lcores[lcore]);
        let (former, is_taken) = (desk.former.take(), desk.next.is_none());
        drop((desk, former));
        is_taken
    }

    /// The lcore: exchanges its part for the next one. Returns true if there was one.
    pub(crate) fn exchange(&self, lcore: usize, has: &mut Option<Box<T>>) -> bool {
        let mut desk = lock(&self.lcores[lcore]);
        let Some(next) = desk.next.take() else { return false };
        let former = mem::replace(has, next);
        // The thread checks that this is empty before it leaves a beginning, so that any earlier
        // part was freed.
        if former.is_some() {
            desk.former = former;
        }
        true
    }
}
