//! Traces, on the lcore: what is recorded of its turns, and how.

pub(crate) mod event;
pub(crate) mod places;
pub(crate) mod recorder;
pub(crate) mod spec;
pub(crate) mod told;
pub(crate) mod windows;
