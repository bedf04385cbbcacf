//! Attributes of a QP on its way RESET → INIT → RTR → RTS (ibv_modify_qp(3)).
//!
//! [`InitSpec`], [`RtrSpec`] and [`RtsSpec`] hold the attributes of each step, with defaults.
//! [`QpAttr`] is the raw form, field by field, for everything else that the state table allows.

use rdma_sys::{ibv_qp_attr, ibv_qp_cap};
pub use verbline_softnic::qp_table::{AttrMask, State as QpState};

use crate::datagram::ah::AhSpec;
use crate::device::attr::Mtu;
use crate::device::gid::Endpoint;
use crate::memory::mr::Access;

/// RESET → INIT: the local port, and the access of peers. From INIT on receives can be posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InitSpec {
    /// The local port.
    pub port: u8,
    /// The local GID's index, for [`crate::QueuePair::endpoint`] and the path to the peer.
    pub gid_index: u8,
    /// The P_Key's index.
    pub pkey_index: u16,
    /// The access of peers to this QP's memory (RC and UC), limited to MRs and windows that allow
    /// it too.
    pub access: Access,
    /// The Q_Key that senders must know (UD).
    pub qkey: u32,
}

impl Default for InitSpec {
    fn default() -> InitSpec {
        InitSpec { port: 1, gid_index: 0, pkey_index: 0, access: Access::NONE, qkey: DEFAULT_QKEY }
    }
}

/// The default Q_Key of a UD QP: below 2^31, above which only privileged programs may go.
pub const DEFAULT_QKEY: u32 = 0x5642_4c4e;

/// INIT → RTR: the peer and the path to it. From RTR on the queue pair receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RtrSpec {
    /// The peer; `None` for UD and RAW_PACKET.
    pub remote: Option<Endpoint>,
    /// Path MTU, at most either port's active MTU.
    pub mtu: Mtu,
    /// The peer's READs and atomics that this side serves at once (RC).
    pub max_dest_rd_atomic: u8,
    /// How long the peer waits after "receiver not ready", in the code of ibv_modify_qp(3): 1 is 10
    /// µs, 12 is 640 µs (RC).
    pub min_rnr_timer: u8,
    /// Hops before a packet is dropped.
    pub hop_limit: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Service level.
    pub service_level: u8,
}

impl RtrSpec {
    /// Attributes for RC and UC, with this peer.
    pub fn connected(remote: Endpoint) -> RtrSpec {
        RtrSpec { remote: Some(remote), ..RtrSpec::datagram() }
    }

    /// Attributes for UD and RAW_PACKET, without a peer.
    pub fn datagram() -> RtrSpec {
        RtrSpec {
            remote: None,
            mtu: Mtu::B1024,
            max_dest_rd_atomic: 1,
            min_rnr_timer: 1,
            hop_limit: 64,
            traffic_class: 0,
            service_level: 0,
        }
    }

    /// Changes the path MTU from 1,024 bytes; both ends need the same.
    #[must_use]
    pub fn mtu(self, mtu: Mtu) -> RtrSpec {
        RtrSpec { mtu, ..self }
    }
}

/// RTR → RTS: retries and the rate. From RTS on the queue pair sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RtsSpec {
    /// How long to wait for an ACK: 4.096 µs × 2^timeout, 0 for ever (RC).
    pub timeout: u8,
    /// Retries after a missing ACK, 0 to 7 (RC).
    pub retry_cnt: u8,
    /// Retries while the peer has no receive posted, 0 to 6; 7 is for ever (RC).
    pub rnr_retry: u8,
    /// READs and atomics in progress at once (RC).
    pub max_rd_atomic: u8,
    /// The QP's highest send rate, kbit/s; 0 for no limit, which needs no capability
    /// ([`crate::attr::DeviceAttr::rate_limit`]).
    pub rate_limit_kbit_per_s: u32,
}

impl Default for RtsSpec {
    fn default() -> RtsSpec {
        // 4.096 µs × 2^14 = 67 ms, seven times: half a second to detect a lost peer.
        RtsSpec { timeout: 14, retry_cnt: 7, rnr_retry: 7, max_rd_atomic: 1, rate_limit_kbit_per_s: 0 }
    }
}

/// The size of a QP's queues (`struct ibv_qp_cap`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpCap {
    /// Sends outstanding at once.
    pub max_send_wr: u32,
    /// Receives outstanding at once.
    pub max_recv_wr: u32,
    /// SGEs per send.
    pub max_send_sge: u32,
    /// SGEs per receive.
    pub max_recv_sge: u32,
    /// Longest inline message, bytes.
    pub max_inline_bytes: u32,
}

/// All attributes of a QP, by the names of `struct ibv_qp_attr`. The mask selects the valid ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpAttr {
    /// The state to go to, or the current state.
    pub state: QpState,
    /// The state that the QP is assumed to be in.
    pub cur_state: QpState,
    /// Path MTU.
    pub path_mtu: Mtu,
    /// Path migration state (`enum ibv_mig_state`).
    pub path_mig_state: u32,
    /// Q_Key.
    pub qkey: u32,
    /// First PSN expected.
    pub rq_psn: u32,
    /// First PSN sent.
    pub sq_psn: u32,
    /// The peer's QP number.
    pub dest_qpn: u32,
    /// The access of peers.
    pub access: Access,
    /// The path to the peer.
    pub ah: AhSpec,
    /// The alternate path.
    pub alt_ah: AhSpec,
    /// P_Key index.
    pub pkey_index: u16,
    /// P_Key index of the alternate path.
    pub alt_pkey_index: u16,
    /// Whether SQD raises an event when the SQ is drained.
    pub en_sqd_async_notify: bool,
    /// Reported: SQD is not reached yet.
    pub sq_draining: bool,
    /// READs and atomics in progress at once, started here.
    pub max_rd_atomic: u8,
    /// READs and atomics in progress at once, served here.
    pub max_dest_rd_atomic: u8,
    /// RNR NAK timer, coded.
    pub min_rnr_timer: u8,
    /// Port.
    pub port: u8,
    /// ACK time-out, coded.
    pub timeout: u8,
    /// Retries after a time-out.
    pub retry_cnt: u8,
    /// Retries after RNR.
    pub rnr_retry: u8,
    /// Port of the alternate path.
    pub alt_port: u8,
    /// ACK time-out of the alternate path.
    pub alt_timeout: u8,
    /// The queues' sizes. Setting them needs a device that can resize queues
    /// ([`crate::attr::Capability::ResizeQueues`]).
    pub cap: QpCap,
    /// Highest rate of the QP's sends, kbit/s; 0 for no limit
    /// ([`crate::attr::DeviceAttr::rate_limit`]). Kernel devices do not report it.
    pub rate_limit_kbit_per_s: u32,
}

impl QpAttr {
    /// A state alone, for steps without other attributes.
    pub fn to_state(state: QpState) -> QpAttr {
        QpAttr { state, ..QpAttr::default() }
    }

    pub(crate) fn to_raw(self) -> ibv_qp_attr {
        // SAFETY: ibv_qp_attr is integers and unions of integers: all zeros is a value.
        let mut raw: ibv_qp_attr = unsafe { std::mem::zeroed() };
        raw.qp_state = self.state.raw();
        raw.cur_qp_state = self.cur_state.raw();
        raw.path_mtu = self.path_mtu.to_raw();
        raw.path_mig_state = self.path_mig_state;
        raw.qkey = self.qkey;
        raw.rq_psn = self.rq_psn;
        raw.sq_psn = self.sq_psn;
        raw.dest_qp_num = self.dest_qpn;
        raw.qp_access_flags = self.access.bits();
        raw.ah_attr = self.ah.to_raw();
        raw.alt_ah_attr = self.alt_ah.to_raw();
        raw.pkey_index = self.pkey_index;
        raw.alt_pkey_index = self.alt_pkey_index;
        raw.en_sqd_async_notify = self.en_sqd_async_notify.into();
        raw.max_rd_atomic = self.max_rd_atomic;
        raw.max_dest_rd_atomic = self.max_dest_rd_atomic;
        raw.min_rnr_timer = self.min_rnr_timer;
        raw.port_num = self.port;
        raw.timeout = self.timeout;
        raw.retry_cnt = self.retry_cnt;
        raw.rnr_retry = self.rnr_retry;
        raw.alt_port_num = self.alt_port;
        raw.alt_timeout = self.alt_timeout;
        raw.cap = ibv_qp_cap {
            max_send_wr: self.cap.max_send_wr,
            max_recv_wr: self.cap.max_recv_wr,
            max_send_sge: self.cap.max_send_sge,
            max_recv_sge: self.cap.max_recv_sge,
            max_inline_data: self.cap.max_inline_bytes,
        };
        raw.rate_limit = self.rate_limit_kbit_per_s;
        raw
    }

    /// Reads a state that verbs.h does not name as ERR: nothing should be posted to such a QP.
    pub(crate) fn from_raw(raw: &ibv_qp_attr) -> QpAttr {
        QpAttr {
            state: QpState::from_raw(raw.qp_state).unwrap_or(QpState::Err),
            cur_state: QpState::from_raw(raw.cur_qp_state).unwrap_or(QpState::Err),
            path_mtu: Mtu::from_raw(raw.path_mtu),
            path_mig_state: raw.path_mig_state,
            qkey: raw.qkey,
            rq_psn: raw.rq_psn,
            sq_psn: raw.sq_psn,
            dest_qpn: raw.dest_qp_num,
            access: Access::from_bits(raw.qp_access_flags),
            ah: AhSpec::from_raw(&raw.ah_attr),
            alt_ah: AhSpec::from_raw(&raw.alt_ah_attr),
            pkey_index: raw.pkey_index,
            alt_pkey_index: raw.alt_pkey_index,
            en_sqd_async_notify: raw.en_sqd_async_notify != 0,
            sq_draining: raw.sq_draining != 0,
            max_rd_atomic: raw.max_rd_atomic,
            max_dest_rd_atomic: raw.max_dest_rd_atomic,
            min_rnr_timer: raw.min_rnr_timer,
            port: raw.port_num,
            timeout: raw.timeout,
            retry_cnt: raw.retry_cnt,
            rnr_retry: raw.rnr_retry,
            alt_port: raw.alt_port_num,
            alt_timeout: raw.alt_timeout,
            cap: QpCap {
                max_send_wr: raw.cap.max_send_wr,
                max_recv_wr: raw.cap.max_recv_wr,
                max_send_sge: raw.cap.max_send_sge,
                max_recv_sge: raw.cap.max_recv_sge,
                max_inline_bytes: raw.cap.max_inline_data,
            },
            rate_limit_kbit_per_s: raw.rate_limit,
        }
    }
}
