//! Captures, on the lcore: what is copied, and how a capture comes and goes.

pub(crate) mod desk;
pub(crate) mod spec;
pub(crate) mod tap;
