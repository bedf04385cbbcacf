//! How the threads of a run communicate: the phase of the run, notices to single lcores, and the
//! devices' events.

pub(crate) mod device_events;
pub(crate) mod event_fd;
pub(crate) mod joining;
pub(crate) mod notice;
pub(crate) mod readable;
pub(crate) mod run_control;
