//! The ports of an lcore, with one queue pair or with many connections, and the sinks in which
//! packets gather on their way to one.

pub(crate) mod context;
pub(crate) mod datagrams;
pub(crate) mod multi_port;
pub(crate) mod posting;
pub(crate) mod rx_half;
pub(crate) mod single_port;
pub(crate) mod sink;
pub(crate) mod state;
pub(crate) mod tx_half;
mod unusual;
