//! The data path: the poll loop of one lcore, its ports, its nodes (stages in their places) and its
//! rings.

pub(crate) mod context;
pub(crate) mod holds;
pub(crate) mod lanes;
pub(crate) mod multi_port;
pub(crate) mod node;
mod notices;
pub(crate) mod operating;
pub(crate) mod operation_queue;
pub(crate) mod poll_loop;
pub(crate) mod polling;
pub(crate) mod port;
mod port_health;
mod port_operations;
pub(crate) mod port_reconnect;
mod posting;
pub(crate) mod rings;
mod shutdown;
mod sleeping;
pub(crate) mod state;
pub(crate) mod waits;
