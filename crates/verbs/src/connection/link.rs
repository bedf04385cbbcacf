//! The carrier of a connection's packets.

use std::fmt;

pub use verbline_softnic::wire::QpIncidents;

use super::{Connection, ConnectionKind};

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

impl Connection {
    /// The carrier of the connection's packets.
    pub fn link(&self) -> ConnectionLink {
        match &self.0 {
            ConnectionKind::Kernel(_) => ConnectionLink::Network,
            ConnectionKind::Soft(_) => ConnectionLink::Process,
            ConnectionKind::Wire(_) => ConnectionLink::Udp,
        }
    }

    /// Incidents of the connection's packets, readable at any time, even after its end; `None` if
    /// the connection is not over UDP.
    pub fn incidents(&self) -> Option<QpIncidents> {
        match &self.0 {
            ConnectionKind::Wire(connection) => connection.incidents().cloned(),
            ConnectionKind::Kernel(_) | ConnectionKind::Soft(_) => None,
        }
    }
}
