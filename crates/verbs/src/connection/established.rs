//! An established connection: its ends, the carrier of its packets, and when it is over.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

pub use verbline_softnic::wire::QpIncidents;

use super::options::Ends;
use super::{ConnectionError, Deadline, Kind, each, kernel, soft, wire};
use crate::qp::QueuePair;

/// Two connected QPs, seen from one side. Dropping it disconnects; the QP is the caller's to drain
/// and drop.
#[derive(Debug)]
pub struct Connection(pub(super) Kind<kernel::Connection, soft::Connection, wire::Connection>);

impl Connection {
    fn ends(&self) -> &Ends {
        each!(&self.0, connection => &connection.ends)
    }

    /// The peer's private data, from its acceptance (on the connecting side) or its request; may be
    /// followed by zeros.
    pub fn private_data(&self) -> &[u8] {
        &self.ends().private_data
    }

    /// The address of the other end.
    pub fn peer_addr(&self) -> SocketAddr {
        self.ends().peer
    }

    /// The address of this side. On a listener for every address, it is the one that the peer
    /// called.
    pub fn local_addr(&self) -> SocketAddr {
        self.ends().local
    }

    /// Waits until the peer is ready too. The connecting side is ready at once; the accepting side,
    /// when the peer has finished.
    pub fn wait_established(&mut self, time_limit: Duration) -> Result<(), ConnectionError> {
        let deadline = Deadline::after(time_limit);
        each!(&mut self.0, connection => connection.wait_established(deadline))
    }

    /// Waits until the peer disconnects; false if it did not in time.
    pub fn wait_disconnected(&mut self, time_limit: Duration) -> Result<bool, ConnectionError> {
        let deadline = Deadline::after(time_limit);
        each!(&mut self.0, connection => connection.wait_disconnected(deadline))
    }

    /// Why the connection is over, once [`Connection::wait_disconnected`] returned true.
    pub fn end_reason(&self) -> Option<&'static str> {
        each!(&self.0, connection => connection.end_reason())
    }

    /// Disconnects: the QP goes to ERR, which flushes posted work requests, and the peer is told.
    pub fn disconnect(self, qp: &mut QueuePair) -> Result<(), ConnectionError> {
        qp.to_err()?;
        match self.0 {
            Kind::Kernel(connection) => connection.disconnect(),
            // Dropping the connection tells the peer.
            Kind::Soft(_) | Kind::Wire(_) => Ok(()),
        }
    }

    /// The carrier of the connection's packets.
    pub fn link(&self) -> ConnectionLink {
        match &self.0 {
            Kind::Kernel(_) => ConnectionLink::Network,
            Kind::Soft(_) => ConnectionLink::Process,
            Kind::Wire(_) => ConnectionLink::Udp,
        }
    }

    /// Incidents of the connection's packets, readable at any time, even after its end; `None` if
    /// the connection is not over UDP.
    pub fn incidents(&self) -> Option<QpIncidents> {
        match &self.0 {
            Kind::Wire(connection) => connection.incidents.clone(),
            Kind::Kernel(_) | Kind::Soft(_) => None,
        }
    }
}

impl AsFd for Connection {
    /// Readable when the connection's state changed: established, disconnected.
    fn as_fd(&self) -> BorrowedFd<'_> {
        each!(&self.0, connection => connection.as_fd())
    }
}

/// The carrier of a connection's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionLink {
    /// The network of a kernel device.
    Network,
    /// This process: both ends are queue pairs of its software devices.
    Process,
    /// RoCE v2 over a UDP socket of a software device.
    Udp,
}

impl ConnectionLink {
    /// The name in a report.
    pub fn name(self) -> &'static str {
        match self {
            ConnectionLink::Network => "network",
            ConnectionLink::Process => "process",
            ConnectionLink::Udp => "udp",
        }
    }
}

impl fmt::Display for ConnectionLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
