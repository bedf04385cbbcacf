//! By what a connection's packets go.

use std::fmt;

pub use verbline_softnic::wire::QpIncidents;

use super::{Connection, ConnectionKind};

/// By what the packets of a connection go.
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
    /// Its name in a report.
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
    /// By what its packets go.
    pub fn link(&self) -> ConnectionLink {
        match &self.0 {
            ConnectionKind::Kernel(_) => ConnectionLink::Network,
            ConnectionKind::Soft(_) => ConnectionLink::Process,
            ConnectionKind::Wire(_) => ConnectionLink::Udp,
        }
    }

    /// What goes wrong with its packets, to be read at any time, also after its end; of one over
    /// UDP.
    pub fn incidents(&self) -> Option<QpIncidents> {
        match &self.0 {
            ConnectionKind::Wire(connection) => connection.incidents().cloned(),
            ConnectionKind::Kernel(_) | ConnectionKind::Soft(_) => None,
        }
    }
}
