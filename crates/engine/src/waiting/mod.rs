//! A stage's wait sources besides packets: timers and descriptors.

pub(crate) mod fds;
pub(crate) mod wheel;
