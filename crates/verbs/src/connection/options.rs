//! Options of a connection, parameters of a requesting peer, and private data, whose lengths the
//! messages of the InfiniBand CM limit.

use verbline_softnic::qp_table::Transport;

use super::error::ConnectionError;
use crate::memory::mr::Access;
use crate::qp::attr::RtrSpec;
use std::net::SocketAddr;

/// Space for private data in a connection request (rdma_connect(3), RDMA_PS_TCP).
pub const CONNECT_PRIVATE_BYTES: usize = 56;
/// Space for private data in an acceptance (rdma_accept(3)).
pub const ACCEPT_PRIVATE_BYTES: usize = 196;
/// Space for private data in a rejection (rdma_reject(3)).
pub const REJECT_PRIVATE_BYTES: usize = 148;

/// The transports of connections by address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CmTransport {
    /// RC, on the ports of `RDMA_PS_TCP`.
    #[default]
    Rc,
    /// UC, on separate ports in rdma_cm, those of `RDMA_PS_IB`. Nothing is retransmitted or
    /// acknowledged: a peer that vanishes without a message goes unnoticed.
    Uc,
}

impl From<CmTransport> for Transport {
    fn from(transport: CmTransport) -> Transport {
        match transport {
            CmTransport::Rc => Transport::Rc,
            CmTransport::Uc => Transport::Uc,
        }
    }
}

/// One side's parameters of a connection.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// The transport to request. The accepting side has its listener's transport and ignores this.
    pub transport: CmTransport,
    /// Sent to the peer with the request or the acceptance; may arrive followed by zeros.
    pub private_data: Vec<u8>,
    /// The peer's READs and atomics that this side serves at once.
    pub responder_resources: u8,
    /// READs and atomics that this side has in progress at once.
    pub initiator_depth: u8,
    /// Retries without an ACK, 0 to 7.
    pub retry_count: u8,
    /// Retries against a peer without a receive posted, 0 to 7; 7 is for ever.
    pub rnr_retry_count: u8,
    /// How long this side waits for an ACK, in the code of ibv_modify_qp(3): 4.096 µs × 2^timeout,
    /// 0 for ever. `None`: the connection manager's value for the path; 14 on the software RNIC.
    pub timeout: Option<u8>,
    /// How long the peer waits after it found no receive posted here, in the code of
    /// ibv_modify_qp(3).
    pub min_rnr_timer: u8,
    /// The traffic class of this side's packets; its upper six bits are the DSCP. `None`: on the
    /// connecting side the connection manager's; on the accepting side that of the request.
    pub traffic_class: Option<u8>,
    /// This side's highest send rate, kbit/s; 0 for no limit.
    pub rate_limit_kbit_per_s: u32,
    /// The peer's access to memory through the QP, whatever access the QP got in INIT. READs and
    /// atomics also need `responder_resources` above 0.
    pub access: Access,
}

/// The [`ConnectOptions`] that go into the QP's attributes in place of the connection manager's
/// values.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnAttr {
    /// The highest value for the QP; less if the peer starts or serves fewer.
    pub(super) responder_resources: u8,
    pub(super) initiator_depth: u8,
    pub(super) timeout: Option<u8>,
    pub(super) min_rnr_timer: u8,
    pub(super) traffic_class: Option<u8>,
    pub(super) rate_limit_kbit_per_s: u32,
}

impl ConnectOptions {
    pub(super) fn own_attr(&self) -> OwnAttr {
        let ConnectOptions { responder_resources, initiator_depth, timeout, min_rnr_timer, .. } = *self;
        let ConnectOptions { traffic_class, rate_limit_kbit_per_s, .. } = *self;
        OwnAttr { responder_resources, initiator_depth, timeout, min_rnr_timer, traffic_class, rate_limit_kbit_per_s }
    }
}

impl Default for ConnectOptions {
    fn default() -> ConnectOptions {
        ConnectOptions {
            transport: CmTransport::default(),
            private_data: Vec::new(),
            responder_resources: 1,
            initiator_depth: 1,
            retry_count: 7,
            rnr_retry_count: 7,
            timeout: None,
            min_rnr_timer: RtrSpec::datagram().min_rnr_timer,
            traffic_class: None,
            rate_limit_kbit_per_s: 0,
            access: Access::NONE,
        }
    }
}

/// The parameters in a request, like `rdma_conn_param` and seen from the accepting side
/// (rdma_get_cm_event(3)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnParam {
    /// READs and atomics that the peer wants in progress at once, for this side to serve.
    pub responder_resources: u8,
    /// READs and atomics that the peer serves at once.
    pub initiator_depth: u8,
    /// Retries of this side without an ACK, 0 to 7.
    pub retry_count: u8,
    /// Retries of this side while the peer has no receive posted, 0 to 7; 7 is for ever.
    pub rnr_retry_count: u8,
    /// The number of the peer's QP.
    pub qp_num: u32,
    /// Whether the peer receives from a shared queue.
    pub srq: bool,
}

pub(super) fn check_private(what: &'static str, private_data: &[u8], max_bytes: usize) -> Result<(), ConnectionError> {
    match private_data.len() {
        len_bytes if len_bytes > max_bytes => Err(ConnectionError::PrivateData { what, len_bytes, max_bytes }),
        _ => Ok(()),
    }
}

/// The two ends of an established connection, and the peer's private data.
#[derive(Debug)]
pub(super) struct Ends {
    pub(super) peer: SocketAddr,
    pub(super) local: SocketAddr,
    pub(super) private_data: Vec<u8>,
}
