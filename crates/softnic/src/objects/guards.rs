//! The registry of this crate's guards: by it, a thread that destroys an object waits for the data
//! paths that may be using it.
//!
//! Guarantees: a [`Pinned`] exists only inside a guard that [`quiesce`] waits for, or under the
//! control lock. So every object that was reachable when the [`Pinned`] was made lives as long as
//! it: a thread that destroys a queue pair, a memory region or a part of one makes the object
//! unreachable and calls [`quiesce`] before it frees it. A long transfer names the objects that it
//! holds ([`Pinned::hold`]); only threads that destroy one of these wait for it.

use std::marker::PhantomData;
use std::sync::{Mutex, MutexGuard, PoisonError};
use verbline_sync::Backoff;
use verbline_sync::guard::{self, Guard, Holds, Inside};

/// Every guard, except those of objects still being created.
static GUARDS: Mutex<Registry> = Mutex::new(Registry { guards: Vec::new(), removals: 0 });

#[derive(Debug)]
struct Registry {
    guards: Vec<Registered>,
    /// The number of calls of [`unregister`].
    removals: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Registered(*const Guard);
// SAFETY: guards are shared between threads by design, and `unregister` takes them out before they
// are freed.
unsafe impl Send for Registered {}

/// Proof that no reachable object is freed during `'a`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pinned<'a> {
    /// The guard that this thread is inside of; `None` under the lock.
    guard: Option<&'a Guard>,
    lifetime: PhantomData<&'a ()>,
}

/// The object taken away from data paths. It decides which long transfers are waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// The queue pair of that number.
    Qp(u32),
    /// The object of a key: a region, or an indirect key.
    Key(u32),
    /// Objects that a long transfer holds only through a queue pair, which keeps them: completion
    /// queues, shared receive queues. Or not at all: windows, lists of a group's members.
    Other,
    /// All objects of a device.
    Device,
}

/// The objects that a long transfer holds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Held(Holds);

/// Numbers of queue pairs use one half of a set, keys the other: objects made in sequence stay
/// distinct.
const HALF: u64 = Holds::NUMBERS / 2;

fn of_qp(qpn: u32) -> u64 {
    u64::from(qpn) % HALF
}

fn of_key(key: u32) -> u64 {
    HALF + u64::from(key >> 8) % HALF
}

impl Taken {
    fn as_guards_see_it(self) -> guard::Taken {
        match self {
            Taken::Qp(qpn) => guard::Taken::Number(of_qp(qpn)),
            Taken::Key(key) => guard::Taken::Number(of_key(key)),
            Taken::Other => guard::Taken::Unnumbered,
            Taken::Device => guard::Taken::Anything,
        }
    }
}

impl Held {
    /// Both ends of a connection, by their numbers.
    pub(crate) fn ends(qpn: u32, peer: u32) -> Held {
        Held(Holds::default().with(of_qp(qpn)).with(of_qp(peer)))
    }

    /// Adds the object of a key.
    #[must_use]
    pub(crate) fn key(self, key: u32) -> Held {
        Held(self.0.with(of_key(key)))
    }

    /// Adds the objects of another set.
    #[must_use]
    pub(crate) fn and(self, other: Held) -> Held {
        Held(self.0.and(other.0))
    }
}

impl<'a> Pinned<'a> {
    /// Pins by being inside a guard, which its object's `create` has registered.
    #[inline(always)]
    pub(crate) fn inside(inside: &'a Inside<'_>) -> Pinned<'a> {
        Pinned { guard: Some(inside.guard()), lifetime: PhantomData }
    }

    /// Pins by a lock that a destroying thread holds as well: `fabric`'s control lock.
    #[inline(always)]
    pub(super) fn locked<T>(_: &'a T) -> Pinned<'a> {
        Pinned { guard: None, lifetime: PhantomData }
    }

    /// Runs the `long` transfer; meanwhile only threads that take away an object of `held` wait for
    /// this one.
    ///
    /// # Safety
    /// `held` has all objects that this thread found by this value, or by another of the same
    /// guard, and uses in `long` or after it. `long` finds no others.
    pub(crate) unsafe fn hold<R>(self, held: Held, long: impl FnOnce() -> R) -> R {
        let _narrowed = self.guard.map(|guard| guard.narrow(held.0));
        long()
    }
}

fn all() -> MutexGuard<'static, Registry> {
    // Every change is one extension or one removal: a panic leaves the list whole.
    GUARDS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until no data path can hold an object that was made unreachable before the call.
///
/// The registry is locked for moments only: a thread that waits for a transfer delays no others.
pub(crate) fn quiesce(taken: Taken) {
    let taken = taken.as_guards_see_it();
    let registry = all();
    let mut removals = registry.removals;
    // SAFETY: registered guards are alive; taking one out waits for this lock.
    let guards = registry.guards.iter().map(|registered| (*registered, unsafe { &*registered.0 }));
    let mut present = guard::present(guards);
    drop(registry);
    let mut backoff = Backoff::new();
    loop {
        let registry = all();
        if registry.removals != removals {
            removals = registry.removals;
            present.retain(|(registered, _)| registry.guards.contains(registered));
        }
        // SAFETY: it is registered, as was just checked under this lock.
        present.retain(|(registered, presence)| !presence.is_over(unsafe { &*registered.0 }, taken));
        drop(registry);
        if present.is_empty() {
            return;
        }
        backoff.wait();
    }
}

/// Makes `quiesce` wait for the guards from now on.
pub(crate) fn register(guards: &[&Guard]) {
    all().guards.extend(guards.iter().map(|guard| Registered(*guard)));
}

/// Called before the guards are freed.
pub(crate) fn unregister(guards: &[&Guard]) {
    let mut registry = all();
    registry.removals += 1;
    registry.guards.retain(|registered| !guards.iter().any(|guard| std::ptr::eq(registered.0, *guard)));
}
