//! What the host of a port has of a connection.

use crate::connection::port_qp::PortQp;
use verbline_verbs::connection::{Connecting, Connection};

/// A connection, as the host keeps it.
#[derive(Debug)]
pub(super) enum Held {
    /// The listener was asked, and is to answer.
    Asked {
        connecting: Connecting,
        qp: Box<PortQp>,
    },
    /// The peer was accepted, and is to finish.
    Accepted {
        connection: Connection,
        qp: Box<PortQp>,
    },
    Open {
        connection: Connection,
    },
    /// The lcore is to release its queue pair.
    Closing {
        was_open: bool,
    },
    /// The lcore has released it. It was open, and is not to be made again: nobody else gets its
    /// place.
    Over,
}
