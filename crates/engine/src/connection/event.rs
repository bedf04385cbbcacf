//! Events of the connections of a port with many: opened, closed, failed.

pub use verbline_mem::ConnectionId;

/// What happened to one connection of a port with many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionEvent {
    /// The number of the port ([`StageContext::port`](crate::StageContext::port)).
    pub port: u16,
    /// Which connection; its [`ConnectionId::slot`] is where a stage keeps what it knows of it.
    pub connection: ConnectionId,
    /// What happened.
    pub change: ConnectionChange,
}

/// A change of a connection's state. Each connection is opened once, and then closes or fails once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionChange {
    /// It can be sent to. None of its packets came before this.
    Opened,
    /// Its peer has left, or a stage has closed it. None of its packets comes after this, and none
    /// that is sent to it arrives.
    Closed {
        /// How that was said.
        reason: &'static str,
    },
    /// Its queue pair failed. Otherwise as `Closed`.
    Failed {
        /// The status of the completion that told, as in verbs.h without `IBV_WC_`; or the device's
        /// event, e.g. `IBV_EVENT_QP_ACCESS_ERR`.
        reason: &'static str,
    },
}
