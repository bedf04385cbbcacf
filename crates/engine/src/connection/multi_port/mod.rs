//! The many connections of one port: made and ended by a thread of their own, beside the lcore.

mod connection_slots;
pub(crate) mod host;
pub(crate) mod intake;
pub(crate) mod listener_ports;
mod running_time;
pub(crate) mod shared_acceptor;
mod targets;
