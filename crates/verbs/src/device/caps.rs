//! On-demand paging and packet pacing, as a device reports them (ibv_query_device_ex(3)).

use std::ops::BitOr;

use rdma_sys::{ibv_device_attr_ex, ibv_odp_general_caps, ibv_odp_transport_cap_bits, ibv_packet_pacing_caps};
use verbline_softnic::qp_table::Transport;

/// On-demand paging: memory that need not be pinned (`struct ibv_odp_caps`,
/// ibv_query_device_ex(3)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OnDemandCaps {
    /// IBV_ODP_SUPPORT: memory can be registered with on-demand paging.
    pub supported: bool,
    /// IBV_ODP_SUPPORT_IMPLICIT: so can the whole address space at once.
    pub implicit: bool,
    /// Operations of RC on such memory.
    pub rc: OnDemandOps,
    /// Operations of UC.
    pub uc: OnDemandOps,
    /// Operations of UD.
    pub ud: OnDemandOps,
}

impl OnDemandCaps {
    pub(crate) fn from_raw(raw: &ibv_device_attr_ex) -> OnDemandCaps {
        let (general, by_transport) = (raw.odp_caps.general_caps, raw.odp_caps.per_transport_caps);
        let has = |bit: ibv_odp_general_caps| general & u64::from(bit.0) != 0;
        OnDemandCaps {
            supported: has(ibv_odp_general_caps::IBV_ODP_SUPPORT),
            implicit: has(ibv_odp_general_caps::IBV_ODP_SUPPORT_IMPLICIT),
            rc: OnDemandOps(by_transport.rc_odp_caps),
            uc: OnDemandOps(by_transport.uc_odp_caps),
            ud: OnDemandOps(by_transport.ud_odp_caps),
        }
    }

    /// The operations of this transport; none for raw Ethernet, which the structure does not list.
    pub fn of(&self, transport: Transport) -> OnDemandOps {
        match transport {
            Transport::Rc => self.rc,
            Transport::Uc => self.uc,
            Transport::Ud => self.ud,
            Transport::RawPacket => OnDemandOps::default(),
        }
    }
}

/// Operations on memory paged on demand (`enum ibv_odp_transport_cap_bits`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct OnDemandOps(u32);

impl OnDemandOps {
    /// Sends read it.
    pub const SEND: OnDemandOps = OnDemandOps(ibv_odp_transport_cap_bits::IBV_ODP_SUPPORT_SEND.0);
    /// Receives write it.
    pub const RECV: OnDemandOps = OnDemandOps(ibv_odp_transport_cap_bits::IBV_ODP_SUPPORT_RECV.0);
    /// RDMA WRITE, on either side.
    pub const WRITE: OnDemandOps = OnDemandOps(ibv_odp_transport_cap_bits::IBV_ODP_SUPPORT_WRITE.0);
    /// RDMA READ, on either side.
    pub const READ: OnDemandOps = OnDemandOps(ibv_odp_transport_cap_bits::IBV_ODP_SUPPORT_READ.0);
    /// Atomics, on either side.
    pub const ATOMIC: OnDemandOps = OnDemandOps(ibv_odp_transport_cap_bits::IBV_ODP_SUPPORT_ATOMIC.0);
    /// Receives of an SRQ write it.
    pub const SRQ_RECV: OnDemandOps = OnDemandOps(ibv_odp_transport_cap_bits::IBV_ODP_SUPPORT_SRQ_RECV.0);

    /// Whether it includes all of `other`.
    pub fn contains(self, other: OnDemandOps) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for OnDemandOps {
    type Output = OnDemandOps;
    fn bitor(self, other: OnDemandOps) -> OnDemandOps {
        OnDemandOps(self.0 | other.0)
    }
}

/// Packet pacing: possible rate limits of a QP (`struct ibv_packet_pacing_caps`,
/// ibv_query_device_ex(3)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateLimitCaps {
    /// Lowest rate, kbit/s.
    pub min_kbit_per_s: u32,
    /// Highest rate, kbit/s; 0 if rates cannot be limited.
    pub max_kbit_per_s: u32,
    transports: u32,
}

impl RateLimitCaps {
    pub(crate) fn from_raw(raw: &ibv_packet_pacing_caps) -> RateLimitCaps {
        RateLimitCaps {
            min_kbit_per_s: raw.qp_rate_limit_min,
            max_kbit_per_s: raw.qp_rate_limit_max,
            transports: raw.supported_qpts,
        }
    }

    /// Whether the rate can be set; 0 lifts the limit.
    pub(crate) fn allows(&self, kbit_per_s: u32) -> bool {
        kbit_per_s == 0 || (self.min_kbit_per_s..=self.max_kbit_per_s).contains(&kbit_per_s)
    }

    /// Whether QPs of this transport can be limited.
    pub fn supports(&self, transport: Transport) -> bool {
        self.max_kbit_per_s > 0 && self.transports & (1 << transport.raw()) != 0
    }
}
