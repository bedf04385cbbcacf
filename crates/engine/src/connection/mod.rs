//! Connections by address: established before the lcores run, and established again when they are
//! lost; who may connect, and what stages hear of it.

pub(crate) mod acceptor;
pub(crate) mod alternate;
pub(crate) mod cm_mailbox;
pub(crate) mod connections;
pub(crate) mod connector;
pub(crate) mod event;
pub(crate) mod handshake;
pub(crate) mod multi_port;
pub(crate) mod port_qp;
pub(crate) mod spec;
pub(crate) mod supervisor;
pub(crate) mod waiting;
