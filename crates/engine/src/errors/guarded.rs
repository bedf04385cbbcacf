//! The one place where the app's values are dropped, where panics of the app's code are caught,
//! where threads are joined, and where locks outlive a panic.
//!
//! Guarantees: a panic in the `Drop` of a stage, of an acceptor or of a panic's own payload goes no
//! further than the value: its neighbours are dropped all the same, and the panic's message is
//! kept. A destructor that panics during another unwinding aborts the process, so two such values
//! must never be dropped in one go.

use std::any::Any;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Runs code of the app. `Err`: it panicked, with this message.
///
/// Unwind safety: the callers that learn of the panic do not call the code's values again.
pub(crate) fn call<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run)).map_err(said)
}

/// Joins a thread, and returns its result. `Err`: it panicked, with this message.
pub(crate) fn joined<T>(thread: JoinHandle<T>) -> Result<T, String> {
    thread.join().map_err(said)
}

/// Locks, even after a panic: every change under a lock of this crate is a few moves or assignments
/// that do not panic, so the value is valid.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The message of a panic. Its payload is the app's: dropping it may panic.
fn said(panic: Box<dyn Any + Send>) -> String {
    let text = match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (None, Some(text)) => text.clone(),
        (None, None) => "a panic without a message".to_owned(),
    };
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        // Its drop could panic with yet another payload, and so on: it is leaked.
        mem::forget(another);
    }
    text
}

/// Provides a replacement for a value of the app that is dropped.
pub(crate) trait Vacancy {
    /// Allocates nothing.
    fn vacant() -> Box<Self>;
}

impl Vacancy for dyn FnMut(usize) -> Vec<u8> + Send {
    fn vacant() -> Box<Self> {
        Box::new(|_| Vec::new())
    }
}

/// A value of the app, whose `Drop` may panic. Calls cost no more than without the guard.
pub(crate) struct Guarded<T: ?Sized + Vacancy> {
    value: Box<T>,
    whose: Arc<str>,
}

impl<T: ?Sized + Vacancy> Guarded<T> {
    /// `whose`: its name in the plan, with its table.
    pub(crate) fn new(whose: &str, value: Box<T>) -> Guarded<T> {
        Guarded { value, whose: whose.into() }
    }

    /// Drops the value. Returns the message, if it panicked.
    pub(crate) fn let_go(mut self) -> Option<String> {
        self.vacate()
    }

    fn vacate(&mut self) -> Option<String> {
        let value = mem::replace(&mut self.value, T::vacant());
        let said = call(|| drop(value)).err()?;
        tracing::error!(of = %self.whose, "it panicked as it was dropped: {said}");
        Some(said)
    }
}

impl<T: ?Sized + Vacancy> Drop for Guarded<T> {
    fn drop(&mut self) {
        self.vacate();
    }
}

/// A value of the app until it is taken. If it is not taken, its `Drop` may panic.
pub(crate) struct Untaken<T> {
    value: Option<T>,
    whose: String,
}

impl<T> Untaken<T> {
    /// `whose`: its name in the plan, with its table.
    pub(crate) fn new(whose: String, value: T) -> Untaken<T> {
        Untaken { value: Some(value), whose }
    }

    /// Returns the value: its new owner drops it.
    pub(crate) fn take(mut self) -> Option<T> {
        self.value.take()
    }
}

impl<T> Drop for Untaken<T> {
    fn drop(&mut self) {
        let value = self.value.take();
        if let Err(said) = call(|| drop(value)) {
            tracing::error!(of = %self.whose, "its description panicked as it was dropped: {said}");
        }
    }
}

impl<T: ?Sized + Vacancy> Deref for Guarded<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: ?Sized + Vacancy> DerefMut for Guarded<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

/// The standard library joins without a limit, so the end of a thread is polled at this interval.
const LOOK_EVERY: Duration = Duration::from_micros(200);

/// How a thread that was waited for ended.
#[derive(Debug)]
pub(crate) enum Joined<T> {
    Gave(T),
    /// The panic's message.
    Panicked(String),
    /// The thread runs on, and is no longer waited for.
    Late,
}

/// Waits for a thread until `limit` (`None`: without one).
pub(crate) fn join_until<T>(thread: JoinHandle<T>, limit: Option<Instant>) -> Joined<T> {
    while limit.is_some() && !thread.is_finished() {
        if limit.is_some_and(|limit| Instant::now() >= limit) {
            return Joined::Late;
        }
        std::thread::sleep(LOOK_EVERY);
    }
    match joined(thread) {
        Ok(gave) => Joined::Gave(gave),
        Err(said) => Joined::Panicked(said),
    }
}

/// Whether the calling thread is this one: a thread that joins itself waits for ever.
pub(crate) fn is_this<T>(thread: &JoinHandle<T>) -> bool {
    thread.thread().id() == std::thread::current().id()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::api::stage::Stage;

    /// Panics in its drop, with a payload that does the same.
    struct Bomb(u32);

    impl Drop for Bomb {
        fn drop(&mut self) {
            if self.0 > 0 {
                std::panic::panic_any(Bomb(self.0 - 1));
            }
        }
    }

    impl Stage for Bomb {}

    #[test]
    fn a_payload_that_panics_as_it_is_dropped_goes_no_further() {
        assert_eq!(call(|| 7), Ok(7));
        assert_eq!(call(|| -> u8 { panic!("a {}", 1) }), Err("a 1".to_owned()));
        for depth in 0..4 {
            let said = call(|| std::panic::panic_any(Bomb(depth)));
            assert_eq!(said, Err("a panic without a message".to_owned()), "{depth} deep");
        }
        let thread = std::thread::spawn(|| std::panic::panic_any(Bomb(2)));
        assert!(joined::<()>(thread).is_err());
    }

    #[test]
    fn values_that_panic_as_they_are_dropped_are_dropped_side_by_side_and_while_a_panic_unwinds() {
        let stages =
            || -> Vec<Guarded<dyn Stage>> { (0..3).map(|_| Guarded::new("stage.x", Box::new(Bomb(3)) as _)).collect() };
        drop(stages());
        let said = call(|| {
            let _held = stages();
            panic!("meanwhile");
        });
        assert_eq!(said, Err::<(), _>("meanwhile".to_owned()));
    }

    #[test]
    fn a_value_that_is_let_go_of_leaves_what_it_said() {
        let stage = |panics| Guarded::<dyn Stage>::new("stage.x", Box::new(Bomb(panics)));
        assert_eq!((stage(0).let_go(), stage(1).let_go().is_some()), (None, true));
    }

    #[test]
    fn a_thread_is_waited_for_until_the_limit_and_no_longer() {
        let (go, gone) = mpsc::channel::<()>();
        let waits = std::thread::spawn(move || gone.recv());
        assert!(!is_this(&waits));
        let from = Instant::now();
        assert!(matches!(join_until(waits, Some(from + Duration::from_millis(30))), Joined::Late));
        assert!(from.elapsed() >= Duration::from_millis(30));
        drop(go);
        let limit = Some(Instant::now() + Duration::from_secs(20));
        assert!(matches!(join_until(std::thread::spawn(|| 7), limit), Joined::Gave(7)));
        let panics = std::thread::spawn(|| panic!("on purpose"));
        assert!(matches!(join_until::<()>(panics, limit), Joined::Panicked(said) if said == "on purpose"));
    }
}
