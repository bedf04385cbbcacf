//! The many connections of one port: made and ended by a thread of their own, beside the lcore.

pub(crate) mod entrances;
pub(crate) mod gate;
pub(crate) mod host;
pub(crate) mod intake;
mod own_time;
mod place;
mod targets;
