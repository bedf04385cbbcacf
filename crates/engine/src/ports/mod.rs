//! The ports of an lcore: with one queue pair, or with many connections; and where packets gather
//! on their way to one.

pub(crate) mod context;
mod health;
pub(crate) mod multi_port;
mod operations;
pub(crate) mod port;
mod posting;
pub(crate) mod receiving;
pub(crate) mod reconnect;
pub(crate) mod sending;
pub(crate) mod sink;
pub(crate) mod state;
