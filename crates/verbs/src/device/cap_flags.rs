//! The names of a device's capability bits (`enum ibv_device_cap_flags`, verbs.h).

use rdma_sys::ibv_device_cap_flags as flags;

use crate::device::attr::DeviceAttr;

const NAMES: [(flags, &str); 23] = [
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
        NAMES.iter().filter(move |(flag, _)| set & flag.0 != 0).map(|(_, name)| *name)
    }
}
