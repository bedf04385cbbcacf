//! What a stage may wait for besides packets: timers, and descriptors.

pub(crate) mod fds;
pub(crate) mod wheel;
