//! Captures, on the lcore: how packets are copied, and how a capture begins and ends.

pub(crate) mod desk;
pub(crate) mod spec;
pub(crate) mod tap;
