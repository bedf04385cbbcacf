//! Communication among the threads of a run: the phase of the run, notices to single lcores, the
//! devices' events, and the messages of lcores that panic.

pub(crate) mod change;
pub(crate) mod device_events;
pub(crate) mod event_fd;
pub(crate) mod notice;
pub(crate) mod panic_hook;
pub(crate) mod readable;
pub(crate) mod run_control;
