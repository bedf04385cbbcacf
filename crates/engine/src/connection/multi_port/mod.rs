//! The many connections of one port: a thread of their own makes and ends them, beside the lcore.

pub(crate) mod accept_queue;
pub(crate) mod acceptor_guard;
pub(crate) mod by_hand;
pub(crate) mod cm_thread;
mod connection_slots;
pub(crate) mod listener_ports;
mod running_time;
mod targets;
