//! The transport service types, with the numbers of verbs and the names of the state table.

use std::fmt;

use rdma_sys::ibv_qp_type;
use verbline_softnic::qp_table::Transport as TableTransport;

/// The transport service type of a QP. It decides which operations the QP may post.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// Whole Ethernet frames, on cards that support them. Creating such a QP takes CAP_NET_RAW. It
    /// sends and receives, and nothing else.
    RawPacket,
}

impl Transport {
    pub(crate) fn to_raw(self) -> ibv_qp_type::Type {
        self.to_table().raw()
    }

    pub(crate) fn to_table(self) -> TableTransport {
        match self {
            Transport::Rc => TableTransport::Rc,
            Transport::Uc => TableTransport::Uc,
            Transport::Ud => TableTransport::Ud,
            Transport::RawPacket => TableTransport::RawPacket,
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.to_table(), f)
    }
}
