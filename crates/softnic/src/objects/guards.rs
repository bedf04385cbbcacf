//! Every guard of this crate: how whoever takes something away waits for the data paths that may be
//! using it.
//!
//! What it guarantees: a [`Pinned`] exists only inside a guard that [`quiesce`] waits for, or under
//! the control lock. So what was reachable when it was made is alive for as long as it: whoever
//! takes a queue pair, a memory region or what hangs on them away makes it unreachable and calls
//! [`quiesce`] before freeing it.

use std::marker::PhantomData;
use std::sync::{Mutex, MutexGuard, PoisonError};
use verbline_sync::guard::{self, Guard, Inside};

/// Every guard that exists, but those of objects that nobody has yet.
static GUARDS: Mutex<Vec<Registered>> = Mutex::new(Vec::new());

#[derive(Debug)]
struct Registered(*const Guard);
// SAFETY: guards are shared between threads by design, and `unregister` takes them out before they
// are freed.
unsafe impl Send for Registered {}

/// Proof that nothing which is reachable is freed during `'a`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pinned<'a>(PhantomData<&'a ()>);

impl<'a> Pinned<'a> {
    /// By being inside a guard, which its object's `create` has registered.
    #[inline(always)]
    pub(crate) fn inside(_: &'a Inside<'_>) -> Pinned<'a> {
        Pinned(PhantomData)
    }

    /// By a lock that whoever takes something away holds as well: `fabric`'s control lock.
    #[inline(always)]
    pub(super) fn locked<T>(_: &'a T) -> Pinned<'a> {
        Pinned(PhantomData)
    }
}

fn all() -> MutexGuard<'static, Vec<Registered>> {
    // Every change is one extension or one removal: a panic leaves nothing half done.
    GUARDS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until no data path can hold anything that was made unreachable before the call.
pub(crate) fn quiesce() {
    let guards = all();
    // SAFETY: registered guards are alive; taking one out waits for this lock.
    guard::quiesce(guards.iter().map(|registered| unsafe { &*registered.0 }));
}

/// From now on `quiesce` waits for them.
pub(crate) fn register(guards: &[&Guard]) {
    all().extend(guards.iter().map(|guard| Registered(*guard)));
}

/// Before the guards are freed.
pub(crate) fn unregister(guards: &[&Guard]) {
    all().retain(|registered| !guards.iter().any(|guard| std::ptr::eq(registered.0, *guard)));
}
