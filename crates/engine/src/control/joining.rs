//! Waits for the threads of a run to end, up to a limit.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::errors::guarded;

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
    match guarded::joined(thread) {
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
