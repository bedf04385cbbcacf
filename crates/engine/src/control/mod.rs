//! How the threads of a run communicate: the phase of the run, notices to single lcores, the
//! devices' events, and what lcores say as they panic.

pub(crate) mod change;
pub(crate) mod device_events;
pub(crate) mod event_fd;
pub(crate) mod failing;
pub(crate) mod joining;
pub(crate) mod notice;
pub(crate) mod panic_hook;
pub(crate) mod readable;
pub(crate) mod run_control;
