//! Connections by address: establishes them before the lcores run, reconnects lost ones, asks
//! acceptors, and defines the events for stages.

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
