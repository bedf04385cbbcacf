//! Capabilities that some devices lack: on-demand paging, rate limits, alternate paths, resizable
//! queues, raw Ethernet. The device's reported capabilities are checked before each use, so that a
//! refusal names the lacking one instead of EINVAL.

use std::fmt;

use rdma_sys::ibv_device_cap_flags;
use verbline_softnic::qp_table::Transport;

use crate::device::attr::DeviceAttr;

/// A capability that some devices lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Capability {
    /// An alternate path and migration to it (IBV_QP_ALT_PATH, IBV_QP_PATH_MIG_STATE).
    AlternatePath,
    /// Queues whose depth changes after creation (IBV_QP_CAP).
    ResizeQueues,
    /// A rate limit for QPs of this transport (IBV_QP_RATE_LIMIT).
    RateLimit(Transport),
    /// Memory paged on demand (IBV_ACCESS_ON_DEMAND).
    OnDemand,
    /// QPs for whole Ethernet frames (IBV_QPT_RAW_PACKET).
    RawPacket,
    /// Block signatures made and checked by the device, and their pipelining (mlx5dv).
    SignatureOffload,
    /// Queue pairs that stop behind a bad block (mlx5dv).
    SignaturePipelining,
}

impl Capability {
    /// The device's attribute that shows the lack; `None` if the device has the capability.
    fn lacking(self, attr: &DeviceAttr) -> Option<String> {
        let flag = |bit: ibv_device_cap_flags, name: &str| {
            (attr.capabilities & bit.0 == 0).then(|| format!("{name} is not in its device_cap_flags"))
        };
        match self {
            Capability::AlternatePath => {
                flag(ibv_device_cap_flags::IBV_DEVICE_AUTO_PATH_MIG, "IBV_DEVICE_AUTO_PATH_MIG")
            }
            Capability::ResizeQueues => {
                flag(ibv_device_cap_flags::IBV_DEVICE_RESIZE_MAX_WR, "IBV_DEVICE_RESIZE_MAX_WR")
            }
            Capability::RateLimit(_) if attr.rate_limit.max_kbit_per_s == 0 => {
                Some("its packet_pacing_caps.qp_rate_limit_max is 0".to_owned())
            }
            Capability::RateLimit(transport) => (!attr.rate_limit.supports(transport))
                .then(|| format!("{transport} is not in its packet_pacing_caps.supported_qpts")),
            Capability::OnDemand => {
                (!attr.on_demand.supported).then(|| "IBV_ODP_SUPPORT is not in its odp_caps.general_caps".to_owned())
            }
            // Drivers that have such QPs may still report `max_raw_ethy_qp` as 0 (mlx5): only
            // trying tells. No attribute shows signatures either: they depend on the kind of
            // device.
            Capability::RawPacket | Capability::SignatureOffload | Capability::SignaturePipelining => None,
        }
    }

    /// Fails if the device lacks the capability.
    pub fn check(self, device: &str, attr: &DeviceAttr) -> Result<(), Lacking> {
        self.lacking(attr).map_or(Ok(()), |says| Err(self.refused(device, says)))
    }

    /// The error, with the evidence of the lack.
    pub(crate) fn refused(self, device: &str, says: impl Into<String>) -> Lacking {
        Lacking { device: device.to_owned(), capability: self, says: says.into() }
    }

    fn remedy(self) -> &'static str {
        match self {
            Capability::AlternatePath => {
                "leave the attribute out, and connect again over another path when this one fails"
            }
            Capability::ResizeQueues => {
                "leave the attribute out, and create the QP with the depths that it will need (QpSpec::tx_depth_wr, \
                 rx_depth_wr)"
            }
            Capability::RateLimit(_) => "leave the attribute out, and pace the sends where they are posted",
            Capability::OnDemand => {
                "register without MrOptions::on_demand, which pins the memory (it counts against `ulimit -l`)"
            }
            Capability::RawPacket => {
                "use a UD QP, or an Ethernet card whose driver has such QPs (mlx4, mlx5); no software device has"
            }
            Capability::SignatureOffload => {
                "make and check protection information in software, or use the software RNIC, or a card that has it \
                 (an mlx5 one, with libmlx5 of rdma-core 36 or later)"
            }
            Capability::SignaturePipelining => {
                "make the QP with QpSignature::Keys, check the key when the transfer is done, and send the response \
                 then"
            }
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Capability::AlternatePath => f.write_str("alternate paths (IBV_QP_ALT_PATH, IBV_QP_PATH_MIG_STATE)"),
            Capability::ResizeQueues => f.write_str("queues that can be resized (IBV_QP_CAP)"),
            Capability::RateLimit(transport) => write!(f, "rate limit for {transport} QPs (IBV_QP_RATE_LIMIT)"),
            Capability::OnDemand => f.write_str("on-demand paging (IBV_ACCESS_ON_DEMAND)"),
            Capability::SignatureOffload => f.write_str("signature offload (mlx5dv_create_mkey)"),
            Capability::SignaturePipelining => {
                f.write_str("QPs that stop behind a bad block (MLX5DV_QP_CREATE_SIG_PIPELINING)")
            }
            Capability::RawPacket => f.write_str("QPs for whole Ethernet frames (IBV_QPT_RAW_PACKET)"),
        }
    }
}

/// A device lacks a requested capability.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{device} has no {capability}: {says}; {}", capability.remedy())]
pub struct Lacking {
    /// The device.
    pub device: String,
    /// The lacking capability.
    pub capability: Capability,
    /// The evidence.
    pub says: String,
}

#[cfg(test)]
mod tests {
    use rdma_sys::{ibv_device_attr_ex, ibv_odp_general_caps, ibv_packet_pacing_caps};

    use super::*;
    use crate::device::caps::OnDemandOps;

    fn attr(fill: impl Fn(&mut ibv_device_attr_ex)) -> DeviceAttr {
        // SAFETY: ibv_device_attr_ex is integers only: all zeros is a value.
        let mut raw: ibv_device_attr_ex = unsafe { std::mem::zeroed() };
        fill(&mut raw);
        DeviceAttr::from_raw(&raw)
    }

    #[test]
    fn a_device_without_anything_says_by_what_one_can_tell() {
        let bare = attr(|_| {});
        let all = [
            Capability::AlternatePath,
            Capability::ResizeQueues,
            Capability::RateLimit(Transport::Rc),
            Capability::OnDemand,
        ];
        let said: Vec<String> = all.iter().map(|one| one.check("mlx5_0", &bare).unwrap_err().to_string()).collect();
        let expected = [
            "mlx5_0 has no alternate paths (IBV_QP_ALT_PATH, IBV_QP_PATH_MIG_STATE): IBV_DEVICE_AUTO_PATH_MIG is not \
             in its device_cap_flags; leave the attribute out, and connect again over another path when this one \
             fails",
            "mlx5_0 has no queues that can be resized (IBV_QP_CAP): IBV_DEVICE_RESIZE_MAX_WR is not in its \
             device_cap_flags; leave the attribute out, and create the QP with the depths that it will need \
             (QpSpec::tx_depth_wr, rx_depth_wr)",
            "mlx5_0 has no rate limit for RC QPs (IBV_QP_RATE_LIMIT): its packet_pacing_caps.qp_rate_limit_max is 0; \
             leave the attribute out, and pace the sends where they are posted",
            "mlx5_0 has no on-demand paging (IBV_ACCESS_ON_DEMAND): IBV_ODP_SUPPORT is not in its \
             odp_caps.general_caps; register without MrOptions::on_demand, which pins the memory (it counts against \
             `ulimit -l`)",
        ];
        assert_eq!(said, expected);
        let raw = Capability::RawPacket.refused("rxe0", "ibv_create_qp answered EOPNOTSUPP");
        assert_eq!(
            raw.to_string(),
            "rxe0 has no QPs for whole Ethernet frames (IBV_QPT_RAW_PACKET): ibv_create_qp answered EOPNOTSUPP; use a \
             UD QP, or an Ethernet card whose driver has such QPs (mlx4, mlx5); no software device has"
        );
    }

    #[test]
    fn what_a_device_reports_is_taken() {
        let able = attr(|raw| {
            raw.orig_attr.device_cap_flags =
                ibv_device_cap_flags::IBV_DEVICE_AUTO_PATH_MIG.0 | ibv_device_cap_flags::IBV_DEVICE_RESIZE_MAX_WR.0;
            raw.odp_caps.general_caps = u64::from(ibv_odp_general_caps::IBV_ODP_SUPPORT.0);
            raw.odp_caps.per_transport_caps.uc_odp_caps = 0b101;
            raw.packet_pacing_caps =
                ibv_packet_pacing_caps { qp_rate_limit_min: 10, qp_rate_limit_max: 1000, supported_qpts: 1 << 8 };
        });
        for capability in [
            Capability::AlternatePath,
            Capability::ResizeQueues,
            Capability::RateLimit(Transport::RawPacket),
            Capability::OnDemand,
        ] {
            assert_eq!(capability.check("mlx5_0", &able), Ok(()));
        }
        let refused = Capability::RateLimit(Transport::Rc).check("mlx5_0", &able).unwrap_err();
        assert_eq!(refused.says, "RC is not in its packet_pacing_caps.supported_qpts");
        assert!(able.on_demand.supported && !able.on_demand.implicit);
        assert_eq!(able.on_demand.of(Transport::Uc), OnDemandOps::SEND | OnDemandOps::WRITE);
        assert!(!able.on_demand.of(Transport::Rc).contains(OnDemandOps::SEND));
    }
}
