//! Traces, on the lcore: how its turns are recorded.

pub(crate) mod event;
pub(crate) mod places;
pub(crate) mod recorder;
pub(crate) mod spec;
pub(crate) mod windows;
