//! Failures: the errors of a run's start and end, panics of the app's code, and threads that do not
//! end.

pub(crate) mod error;
pub(crate) mod guarded;
pub(crate) mod no_thread;
pub(crate) mod stuck;
