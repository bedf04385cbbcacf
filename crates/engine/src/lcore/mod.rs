//! The data path: the poll loop of one lcore, and its ports, nodes and rings.

pub(crate) mod node;
pub(crate) mod poll_loop;
pub(crate) mod port;
pub(crate) mod port_reconnect;
pub(crate) mod rings;
