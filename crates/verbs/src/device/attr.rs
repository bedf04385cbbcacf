//! Attributes of devices and ports, by the names of verbs.h, without its unions and padding.

use std::fmt;

use rdma_sys::{ibv_device_attr_ex, ibv_device_cap_flags as flags, ibv_port_attr};

use crate::device::caps::{OnDemandCaps, RateLimitCaps};
use crate::device::gid::Gid;

/// A device's limits (ibv_query_device(3), ibv_query_device_ex(3)). Depths count work requests or
/// completions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceAttr {
    /// Firmware version, in the vendor's format.
    pub firmware: String,
    /// EUI-64 of the device, host order.
    pub node_guid: u64,
    /// The vendor's IEEE OUI.
    pub vendor_id: u32,
    /// The vendor's part number.
    pub vendor_part_id: u32,
    /// Largest MR, bytes.
    pub max_mr_bytes: u64,
    /// Page sizes for MRs, one bit each.
    pub page_size_cap: u64,
    /// `IBV_DEVICE_*` bits.
    pub capabilities: u32,
    /// QPs.
    pub max_qp: u32,
    /// Depth of one SQ or RQ.
    pub max_qp_wr: u32,
    /// SGEs per WR.
    pub max_sge: u32,
    /// CQs.
    pub max_cq: u32,
    /// Depth of one CQ.
    pub max_cqe: u32,
    /// MRs.
    pub max_mr: u32,
    /// PDs.
    pub max_pd: u32,
    /// READs and atomics served at once per QP.
    pub max_qp_rd_atomic: u32,
    /// READs and atomics started at once per QP.
    pub max_qp_init_rd_atomic: u32,
    /// The reach of atomics: other HCAs only, or the CPU as well.
    pub atomics: AtomicCap,
    /// Memory windows.
    pub max_mw: u32,
    /// Multicast groups.
    pub max_mcast_groups: u32,
    /// QPs attached to one group.
    pub max_mcast_qp_attach: u32,
    /// AHs.
    pub max_ah: u32,
    /// SRQs.
    pub max_srq: u32,
    /// Depth of one SRQ.
    pub max_srq_wr: u32,
    /// SGEs per WR of an SRQ.
    pub max_srq_sge: u32,
    /// Ports, numbered from 1.
    pub ports: u8,
    /// On-demand paging; empty if the driver does not report it.
    pub on_demand: OnDemandCaps,
    /// Packet pacing; empty if the driver does not report it.
    pub rate_limit: RateLimitCaps,
}

impl DeviceAttr {
    pub(crate) fn from_raw(extended: &ibv_device_attr_ex) -> DeviceAttr {
        let raw = &extended.orig_attr;
        // C's `char` is signed on x86-64, and unsigned on aarch64.
        let firmware =
            raw.fw_ver.iter().take_while(|&&byte| byte != 0).flat_map(|byte| byte.to_ne_bytes()).collect::<Vec<u8>>();
        DeviceAttr {
            firmware: String::from_utf8_lossy(&firmware).into_owned(),
            node_guid: u64::from_be(raw.node_guid),
            vendor_id: raw.vendor_id,
            vendor_part_id: raw.vendor_part_id,
            max_mr_bytes: raw.max_mr_size,
            page_size_cap: raw.page_size_cap,
            capabilities: raw.device_cap_flags,
            max_qp: count(raw.max_qp),
            max_qp_wr: count(raw.max_qp_wr),
            max_sge: count(raw.max_sge),
            max_cq: count(raw.max_cq),
            max_cqe: count(raw.max_cqe),
            max_mr: count(raw.max_mr),
            max_pd: count(raw.max_pd),
            max_qp_rd_atomic: count(raw.max_qp_rd_atom),
            max_qp_init_rd_atomic: count(raw.max_qp_init_rd_atom),
            atomics: AtomicCap::from_raw(raw.atomic_cap),
            max_mw: count(raw.max_mw),
            max_mcast_groups: count(raw.max_mcast_grp),
            max_mcast_qp_attach: count(raw.max_mcast_qp_attach),
            max_ah: count(raw.max_ah),
            max_srq: count(raw.max_srq),
            max_srq_wr: count(raw.max_srq_wr),
            max_srq_sge: count(raw.max_srq_sge),
            ports: raw.phys_port_cnt,
            on_demand: OnDemandCaps::from_raw(extended),
            rate_limit: RateLimitCaps::from_raw(&extended.packet_pacing_caps),
        }
    }
}

/// verbs.h counts with `int`; a negative count is a driver's mistake and reads as 0.
fn count(raw: libc::c_int) -> u32 {
    u32::try_from(raw).unwrap_or(0)
}

/// The reach of atomics (`enum ibv_atomic_cap`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicCap {
    /// None.
    None,
    /// Atomic between QPs of this device.
    Hca,
    /// Atomic against CPUs and other devices too.
    Glob,
    /// A value that verbs.h does not name.
    Unknown(u32),
}

impl AtomicCap {
    fn from_raw(raw: u32) -> AtomicCap {
        match raw {
            0 => AtomicCap::None,
            1 => AtomicCap::Hca,
            2 => AtomicCap::Glob,
            other => AtomicCap::Unknown(other),
        }
    }
}

/// A port's state and limits (ibv_query_port(3)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortAttr {
    /// Only [`PortState::Active`] carries traffic.
    pub state: PortState,
    /// Largest MTU of the port.
    pub max_mtu: Mtu,
    /// MTU in use: the largest UD message, and the segment size of RC and UC.
    pub active_mtu: Mtu,
    /// Length of the GID table.
    pub gid_table_len: u32,
    /// Length of the P_Key table.
    pub pkey_table_len: u16,
    /// Largest message, bytes.
    pub max_message_bytes: u32,
    /// Local identifier; 0 on Ethernet.
    pub lid: u16,
    /// InfiniBand or Ethernet.
    pub link_layer: LinkLayer,
}

impl PortAttr {
    pub(crate) fn from_raw(raw: &ibv_port_attr) -> PortAttr {
        PortAttr {
            state: PortState::from_raw(raw.state),
            max_mtu: Mtu::from_raw(raw.max_mtu),
            active_mtu: Mtu::from_raw(raw.active_mtu),
            gid_table_len: count(raw.gid_tbl_len),
            pkey_table_len: raw.pkey_tbl_len,
            max_message_bytes: raw.max_msg_sz,
            lid: raw.lid,
            link_layer: LinkLayer::from_raw(raw.link_layer),
        }
    }
}

/// A port's logical state (`enum ibv_port_state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortState {
    /// Not reported.
    Nop,
    /// No link.
    Down,
    /// Link, not configured.
    Init,
    /// Configured, waiting for the subnet manager.
    Armed,
    /// Carries traffic.
    Active,
    /// Active, with the link lost for a moment.
    ActiveDefer,
    /// A value that verbs.h does not name.
    Unknown(u32),
}

impl PortState {
    fn from_raw(raw: u32) -> PortState {
        match raw {
            0 => PortState::Nop,
            1 => PortState::Down,
            2 => PortState::Init,
            3 => PortState::Armed,
            4 => PortState::Active,
            5 => PortState::ActiveDefer,
            other => PortState::Unknown(other),
        }
    }
}

/// A path MTU: one of the five sizes of the specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Mtu {
    /// 256 B.
    B256,
    /// 512 B.
    B512,
    /// 1024 B.
    #[default]
    B1024,
    /// 2048 B.
    B2048,
    /// 4096 B.
    B4096,
}

impl Mtu {
    const ALL: [Mtu; 5] = [Mtu::B256, Mtu::B512, Mtu::B1024, Mtu::B2048, Mtu::B4096];

    /// The size in bytes.
    pub fn bytes(self) -> u32 {
        128 << self.to_raw()
    }

    /// The MTU of this size.
    pub fn from_bytes(bytes: u32) -> Option<Mtu> {
        Mtu::ALL.into_iter().find(|mtu| mtu.bytes() == bytes)
    }

    pub(crate) fn to_raw(self) -> u32 {
        self as u32 + 1
    }

    /// Reads a value outside the enumeration as the nearest MTU.
    pub(crate) fn from_raw(raw: u32) -> Mtu {
        Mtu::ALL[raw.clamp(1, 5) as usize - 1]
    }
}

impl fmt::Display for Mtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} B", self.bytes())
    }
}

/// A port's link layer (`IBV_LINK_LAYER_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkLayer {
    /// Not reported.
    Unspecified,
    /// InfiniBand: LIDs route, GIDs only between subnets.
    InfiniBand,
    /// RoCE: GIDs route.
    Ethernet,
    /// A value that verbs.h does not name.
    Unknown(u8),
}

impl LinkLayer {
    fn from_raw(raw: u8) -> LinkLayer {
        match raw {
            0 => LinkLayer::Unspecified,
            1 => LinkLayer::InfiniBand,
            2 => LinkLayer::Ethernet,
            other => LinkLayer::Unknown(other),
        }
    }
}

/// An entry of a GID table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GidEntry {
    /// Its index in the table, as QPs and AHs name it.
    pub index: u8,
    /// The GID.
    pub gid: Gid,
    /// InfiniBand, RoCE v1 or RoCE v2.
    pub kind: GidKind,
    /// The network interface behind it; 0 for none.
    pub netdev_index: u32,
}

/// The protocol of a GID (`enum ibv_gid_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GidKind {
    /// InfiniBand.
    Ib,
    /// RoCE version 1, Ethertype 0x8915.
    RoceV1,
    /// RoCE version 2, UDP port 4791.
    RoceV2,
    /// A value that verbs.h does not name.
    Unknown(u32),
}

impl GidKind {
    pub(crate) fn from_raw(raw: u32) -> GidKind {
        match raw {
            0 => GidKind::Ib,
            1 => GidKind::RoceV1,
            2 => GidKind::RoceV2,
            other => GidKind::Unknown(other),
        }
    }
}

/// The names of the capability bits (`enum ibv_device_cap_flags`, verbs.h).
const CAPABILITY_NAMES: [(flags, &str); 23] = [
    (flags::IBV_DEVICE_RESIZE_MAX_WR, "RESIZE_MAX_WR"),
    (flags::IBV_DEVICE_BAD_PKEY_CNTR, "BAD_PKEY_CNTR"),
    (flags::IBV_DEVICE_BAD_QKEY_CNTR, "BAD_QKEY_CNTR"),
    (flags::IBV_DEVICE_RAW_MULTI, "RAW_MULTI"),
    (flags::IBV_DEVICE_AUTO_PATH_MIG, "AUTO_PATH_MIG"),
    (flags::IBV_DEVICE_CHANGE_PHY_PORT, "CHANGE_PHY_PORT"),
    (flags::IBV_DEVICE_UD_AV_PORT_ENFORCE, "UD_AV_PORT_ENFORCE"),
    (flags::IBV_DEVICE_CURR_QP_STATE_MOD, "CURR_QP_STATE_MOD"),
    (flags::IBV_DEVICE_SHUTDOWN_PORT, "SHUTDOWN_PORT"),
    (flags::IBV_DEVICE_INIT_TYPE, "INIT_TYPE"),
    (flags::IBV_DEVICE_PORT_ACTIVE_EVENT, "PORT_ACTIVE_EVENT"),
    (flags::IBV_DEVICE_SYS_IMAGE_GUID, "SYS_IMAGE_GUID"),
    (flags::IBV_DEVICE_RC_RNR_NAK_GEN, "RC_RNR_NAK_GEN"),
    (flags::IBV_DEVICE_SRQ_RESIZE, "SRQ_RESIZE"),
    (flags::IBV_DEVICE_N_NOTIFY_CQ, "N_NOTIFY_CQ"),
    (flags::IBV_DEVICE_MEM_WINDOW, "MEM_WINDOW"),
    (flags::IBV_DEVICE_UD_IP_CSUM, "UD_IP_CSUM"),
    (flags::IBV_DEVICE_XRC, "XRC"),
    (flags::IBV_DEVICE_MEM_MGT_EXTENSIONS, "MEM_MGT_EXTENSIONS"),
    (flags::IBV_DEVICE_MEM_WINDOW_TYPE_2A, "MEM_WINDOW_TYPE_2A"),
    (flags::IBV_DEVICE_MEM_WINDOW_TYPE_2B, "MEM_WINDOW_TYPE_2B"),
    (flags::IBV_DEVICE_RC_IP_CSUM, "RC_IP_CSUM"),
    (flags::IBV_DEVICE_MANAGED_FLOW_STEERING, "MANAGED_FLOW_STEERING"),
];

impl DeviceAttr {
    /// The names of the set capability bits, as in verbs.h without `IBV_DEVICE_`. Bits without a
    /// name there are left out.
    pub fn capability_names(&self) -> impl Iterator<Item = &'static str> {
        let set = self.capabilities;
        CAPABILITY_NAMES.iter().filter(move |(flag, _)| set & flag.0 != 0).map(|(_, name)| *name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mtus_map_to_the_enumeration_and_back() {
        for (mtu, bytes) in
            [(Mtu::B256, 256), (Mtu::B512, 512), (Mtu::B1024, 1024), (Mtu::B2048, 2048), (Mtu::B4096, 4096)]
        {
            assert_eq!(mtu.bytes(), bytes);
            assert_eq!(Mtu::from_raw(mtu.to_raw()), mtu);
        }
    }

    #[test]
    fn unknown_values_are_kept_not_transmuted() {
        assert_eq!(PortState::from_raw(77), PortState::Unknown(77));
        assert_eq!(GidKind::from_raw(9), GidKind::Unknown(9));
        assert_eq!(LinkLayer::from_raw(3), LinkLayer::Unknown(3));
        assert_eq!(AtomicCap::from_raw(4), AtomicCap::Unknown(4));
    }
}
