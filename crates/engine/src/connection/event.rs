//! Events of the connections of a port with many: opened, closed, failed.

pub use verbline_mem::ConnectionId;

/// An event of one connection of a port with many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionEvent {
    /// The number of the port ([`StageContext::port`](crate::StageContext::port)).
    pub port: u16,
    /// The connection; a stage can keep its own state of it by [`ConnectionId::slot`].
    pub connection: ConnectionId,
    /// The change.
    pub change: ConnectionChange,
}

/// A change of a connection's state. Each connection is opened once, and then closes or fails once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionChange {
    /// The connection can be sent to. None of its packets came before this.
    Opened,
    /// Its peer has left, or a stage has closed it. None of its packets comes after this, and
    /// packets sent to it no longer arrive.
    Closed {
        /// The kind of ending.
        reason: &'static str,
    },
    /// Its queue pair failed. Otherwise like `Closed`.
    Failed {
        /// The status of the failed completion, as in verbs.h without `IBV_WC_`; or the device's
        /// event, e.g. `IBV_EVENT_QP_ACCESS_ERR`.
        reason: &'static str,
    },
}
