//! What goes wrong: why a run cannot start or has failed, panics of the app's code, and threads
//! that do not end.

pub(crate) mod error;
pub(crate) mod guarded;
pub(crate) mod stuck;
