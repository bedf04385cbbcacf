//! The data path: the poll loop of one lcore, its ports, its nodes (stages in their places) and its
//! rings.

pub(crate) mod node;
mod notices;
pub(crate) mod poll_loop;
pub(crate) mod port;
pub(crate) mod port_reconnect;
pub(crate) mod rings;
mod shutdown;
mod sleeping;
