//! What a stage waits for besides packets, and how it is told: its timers, and descriptors.

pub(crate) mod fds;
pub(crate) mod timed;
pub(crate) mod watching;
pub(crate) mod wheel;
