//! Options of a connection, facts about a requesting peer, and private data, whose lengths the
//! messages of the InfiniBand CM bound.

use super::error::ConnectionError;
use crate::memory::mr::Access;
use crate::qp::attr::RtrSpec;
use crate::transport::Transport;

/// Room for private data in a connection request (rdma_connect(3), RDMA_PS_TCP).
pub const CONNECT_PRIVATE_BYTES: usize = 56;
/// Room for private data in an acceptance (rdma_accept(3)).
pub const ACCEPT_PRIVATE_BYTES: usize = 196;
/// Room for private data in a rejection (rdma_reject(3)).
pub const REJECT_PRIVATE_BYTES: usize = 148;

/// The transports that connections by address have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CmTransport {
    /// RC. The ports of its addresses are those of `RDMA_PS_TCP`.
    #[default]
    Rc,
    /// UC. rdma_cm has ports of their own for it, those of `RDMA_PS_IB`. Nothing is sent again and
    /// nothing acknowledged: a peer that is gone without a word is not missed.
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

/// What one side brings to a connection.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// Of the side that asks: what it asks for. The side that is asked has that of its listener.
    pub transport: CmTransport,
    /// Given to the peer with the request or the acceptance; may arrive followed by zeros.
    pub private_data: Vec<u8>,
    /// READs and atomics of the peer that this side serves at once.
    pub responder_resources: u8,
    /// READs and atomics that this side has under way at once.
    pub initiator_depth: u8,
    /// Retries without an ACK, 0 to 7.
    pub retry_count: u8,
    /// Retries against a peer without a receive posted, 0 to 7; 7 is for ever.
    pub rnr_retry_count: u8,
    /// How long this side waits for an ACK, in the code of ibv_modify_qp(3): 4.096 µs × 2^timeout,
    /// 0 for ever. `None`: what the connection manager works out of the path; 14 on the software
    /// RNIC.
    pub timeout: Option<u8>,
    /// How long the peer waits after it found no receive posted here, in the code of
    /// ibv_modify_qp(3).
    pub min_rnr_timer: u8,
    /// The traffic class of what this side sends, whose upper six bits are the DSCP. `None`: of the
    /// side that connects the connection manager's, of the other the one that it was asked with.
    pub traffic_class: Option<u8>,
    /// The most that this side sends, kbit/s; 0 for no limit.
    pub rate_limit_kbit_per_s: u32,
    /// What the peer may do to memory through the QP, whatever the QP was brought to INIT with.
    /// READs and atomics also need `responder_resources` above 0.
    pub access: Access,
}

/// Those of [`ConnectOptions`] that the QP is told with its attributes, in place of what the
/// connection manager says of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnAttr {
    /// The most that the QP is told; less where the peer starts or serves fewer.
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

/// What a request says of its peer, as `rdma_conn_param` has it and seen from the side that was
/// asked (rdma_get_cm_event(3)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnParam {
    /// READs and atomics that the peer wants to have under way at once, which this side is to
    /// serve.
    pub responder_resources: u8,
    /// READs and atomics that the peer serves at once.
    pub initiator_depth: u8,
    /// How often this side is to retry without an ACK, 0 to 7.
    pub retry_count: u8,
    /// How often this side is to retry while the peer has no receive posted, 0 to 7; 7 is for ever.
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
