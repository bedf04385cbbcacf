//! The devices, soft0 and soft1, with one active port each; their attributes and addresses.
//!
//! Guarantees: `ibv_device` pointers are valid for ever. The reported limits are enforced. Both
//! devices are on the same in-process fabric, so any queue pair can reach any other.

use crate::objects::Object;
use crate::queues::wr::MESSAGE_BYTES_MAX;
use rdma_sys::*;
use std::ffi::{c_char, c_int};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// The most queue pairs at a time.
pub(crate) const QPS_MAX: usize = 1 << 18;
/// The number of devices.
pub(crate) const DEVICES: usize = 2;
const NAMES: [&str; DEVICES] = ["soft0", "soft1"];
pub(crate) const PORT: u8 = 1;
const GIDS: usize = 2;
/// The entry of the device's address in the GID table, if it was given one.
pub(crate) const ADDRESS_GID: usize = GIDS;
/// The default partition, full membership.
pub(crate) const PKEY: u16 = 0xffff;
/// The port's MTU, and so the longest UD payload.
pub(crate) const MTU_BYTES: u64 = 4096;
pub(crate) const QP_WR_MAX: u32 = 1 << 16;
pub(crate) const SGE_MAX: u32 = 32;
pub(crate) const INLINE_BYTES_MAX: u32 = 1024;
pub(crate) const CQE_MAX: u32 = 1 << 22;
pub(crate) const RD_ATOMIC_MAX: u8 = 128;
pub(crate) const MCAST_ATTACH_MAX: usize = 1024;

/// One device. `ibv_device` first, so that a pointer to one is a pointer to the other.
#[repr(C)]
pub(crate) struct Device {
    raw: ibv_device,
    /// 0 for soft0, 1 for soft1.
    pub(crate) index: usize,
    /// Messages that arrived with another Q_Key than their queue pair's.
    pub(crate) qkey_violations: AtomicU32,
    /// The address, as a GID, by which other processes reach it, once it was given one.
    address: OnceLock<[u8; 16]>,
    /// Whether what goes from its address to one of this process goes by the wire, too.
    carries_own: AtomicBool,
}

// SAFETY: `raw` is the first field of a `repr(C)` struct. No device is ever freed.
unsafe impl Object for Device {
    type Raw = ibv_device;
}

// SAFETY: `raw` is never written after its creation, and its only pointers are optional functions,
// all absent.
unsafe impl Sync for Device {}
// SAFETY: moving a device to a thread permits only reads of `raw`, which is never written.
unsafe impl Send for Device {}

/// All devices, made at the first call.
pub(crate) fn devices() -> &'static [Device; DEVICES] {
    static ALL: OnceLock<[Device; DEVICES]> = OnceLock::new();
    ALL.get_or_init(|| std::array::from_fn(Device::new))
}

impl Device {
    fn new(index: usize) -> Device {
        let name = NAMES[index];
        let raw = ibv_device {
            _ops: _ibv_device_ops { _dummy1: None, _dummy2: None },
            node_type: ibv_node_type::IBV_NODE_CA,
            transport_type: ibv_transport_type::IBV_TRANSPORT_IB,
            name: text(name),
            dev_name: text(&format!("verbline_{name}")),
            dev_path: text(""),
            ibdev_path: text(""),
        };
        let (qkey_violations, carries_own) = (AtomicU32::new(0), AtomicBool::new(false));
        Device { raw, index, qkey_violations, address: OnceLock::new(), carries_own }
    }

    pub(crate) fn as_ptr(&self) -> *mut ibv_device {
        (&raw const self.raw).cast_mut()
    }

    pub(crate) fn name(&self) -> &'static str {
        NAMES[self.index]
    }

    /// Sets the address by which other processes reach the device. Only the first call counts.
    pub(crate) fn set_address(&self, address: [u8; 16]) {
        let _ = self.address.set(address);
    }

    /// The length of its port's GID table.
    pub(crate) fn gids(&self) -> usize {
        GIDS + usize::from(self.address.get().is_some())
    }

    /// Has what goes from its address to one of this process go by the wire, too.
    pub(crate) fn carry_own(&self) {
        // Relaxed: a lone flag, read by the control path.
        self.carries_own.store(true, Ordering::Relaxed);
    }

    pub(crate) fn carries_own(&self) -> bool {
        // Relaxed: as in `carry_own`.
        self.carries_own.load(Ordering::Relaxed)
    }

    /// Whether its connections may have an alternate path: not on a wire, which has none.
    pub(crate) fn migrates_paths(&self) -> bool {
        self.address.get().is_none()
    }

    /// The local identifier of its port: 1 for soft0, 2 for soft1.
    pub(crate) fn lid(&self) -> u16 {
        self.index as u16 + 1
    }

    /// Its node's GUID, in network order.
    pub(crate) fn guid(&self) -> u64 {
        (0x0200_00ff_fe00_0001u64 + self.index as u64).to_be()
    }

    /// Entry `index` of the port's GID table: link-local, ::ffff:10.9.9.N, the address.
    pub(crate) fn gid(&self, index: usize) -> Option<[u8; 16]> {
        let last = self.index as u8 + 1;
        match index {
            0 => {
                let mut gid = [0; 16];
                gid[0] = 0xfe;
                gid[1] = 0x80;
                gid[8..].copy_from_slice(&self.guid().to_ne_bytes());
                Some(gid)
            }
            1 => Some([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 9, 9, last]),
            ADDRESS_GID => self.address.get().copied(),
            _ => None,
        }
    }

    /// `ibv_query_device(3)`.
    pub(crate) fn attributes(&self) -> ibv_device_attr {
        use ibv_device_cap_flags as cap;
        let flags = cap::IBV_DEVICE_CURR_QP_STATE_MOD
            | cap::IBV_DEVICE_RC_RNR_NAK_GEN
            | cap::IBV_DEVICE_MEM_WINDOW
            | cap::IBV_DEVICE_MEM_MGT_EXTENSIONS
            | cap::IBV_DEVICE_MEM_WINDOW_TYPE_2B
            | cap::IBV_DEVICE_SRQ_RESIZE;
        let flags = if self.migrates_paths() { flags | cap::IBV_DEVICE_AUTO_PATH_MIG } else { flags };
        // SAFETY: integers, for which zero is a value: none of that.
        let none: ibv_device_attr = unsafe { std::mem::zeroed() };
        ibv_device_attr {
            fw_ver: text(env!("CARGO_PKG_VERSION")),
            node_guid: self.guid(),
            sys_image_guid: self.guid(),
            max_mr_size: u64::MAX >> 1,
            page_size_cap: 0xffff_f000,
            hw_ver: 1,
            max_qp: QPS_MAX as c_int,
            max_qp_wr: QP_WR_MAX as c_int,
            device_cap_flags: flags.0,
            max_sge: SGE_MAX as c_int,
            max_sge_rd: SGE_MAX as c_int,
            max_cq: 1 << 20,
            max_cqe: CQE_MAX as c_int,
            max_mr: crate::key_table::KEYS_MAX as c_int,
            max_pd: 1 << 20,
            max_qp_rd_atom: c_int::from(RD_ATOMIC_MAX),
            max_res_rd_atom: c_int::MAX,
            max_qp_init_rd_atom: c_int::from(RD_ATOMIC_MAX),
            atomic_cap: ibv_atomic_cap::IBV_ATOMIC_GLOB,
            max_mw: crate::key_table::KEYS_MAX as c_int,
            max_mcast_grp: 1 << 16,
            max_mcast_qp_attach: MCAST_ATTACH_MAX as c_int,
            max_total_mcast_qp_attach: 1 << 20,
            max_ah: 1 << 20,
            max_srq: 1 << 20,
            max_srq_wr: QP_WR_MAX as c_int,
            max_srq_sge: SGE_MAX as c_int,
            max_pkeys: 1,
            phys_port_cnt: PORT,
            ..none
        }
    }

    /// `ibv_query_device_ex(3)`.
    pub(crate) fn extended_attributes(&self) -> ibv_device_attr_ex {
        use ibv_odp_transport_cap_bits as op;
        // SAFETY: integers, for which zero is a value: no such capability.
        let mut attributes: ibv_device_attr_ex = unsafe { std::mem::zeroed() };
        attributes.orig_attr = self.attributes();
        attributes.device_cap_flags_ex = attributes.orig_attr.device_cap_flags.into();
        #[cfg(phys_port_cnt_ex)]
        {
            attributes.phys_port_cnt_ex = PORT.into();
        }
        // Nothing is pinned: see `mr`. No registration of the whole address space (implicit ODP):
        // access to an unmapped page would be a fault of the process.
        attributes.odp_caps.general_caps = ibv_odp_general_caps::IBV_ODP_SUPPORT.0.into();
        let messages = op::IBV_ODP_SUPPORT_SEND | op::IBV_ODP_SUPPORT_RECV | op::IBV_ODP_SUPPORT_SRQ_RECV;
        let writes = messages | op::IBV_ODP_SUPPORT_WRITE;
        attributes.odp_caps.per_transport_caps = ibv_odp_caps__bindgen_ty_1 {
            rc_odp_caps: (writes | op::IBV_ODP_SUPPORT_READ | op::IBV_ODP_SUPPORT_ATOMIC).0,
            uc_odp_caps: writes.0,
            ud_odp_caps: messages.0,
        };
        attributes
    }

    /// `ibv_query_port(3)`. An InfiniBand port, nominally 4x at FDR speed.
    pub(crate) fn port_attributes(&self) -> ibv_port_attr {
        // SAFETY: integers, for which zero is a value. Newer headers have more fields, and the page
        // defines 0 for them: an `active_speed_ex` of 0 refers to `active_speed`.
        let mut port: ibv_port_attr = unsafe { std::mem::zeroed() };
        port.state = ibv_port_state::IBV_PORT_ACTIVE;
        (port.max_mtu, port.active_mtu) = (ibv_mtu::IBV_MTU_4096, ibv_mtu::IBV_MTU_4096);
        port.gid_tbl_len = self.gids() as c_int;
        port.max_msg_sz = MESSAGE_BYTES_MAX as u32;
        // Relaxed: a statistic.
        port.qkey_viol_cntr = self.qkey_violations.load(Ordering::Relaxed);
        port.pkey_tbl_len = 1;
        (port.lid, port.sm_lid) = (self.lid(), 1);
        port.max_vl_num = 1;
        (port.active_width, port.active_speed) = (2, 16);
        (port.phys_state, port.link_layer) = (5, 1);
        port
    }
}

/// `ibv_get_device_list(3)`: an array that ends with a null pointer.
pub(crate) fn list() -> *mut *mut ibv_device {
    let mut all: Vec<*mut ibv_device> = devices().iter().map(Device::as_ptr).collect();
    all.push(std::ptr::null_mut());
    Box::into_raw(all.into_boxed_slice()).cast()
}

/// # Safety
/// `list` is null, or came from [`list`] and is passed only once.
pub(crate) unsafe fn free_list(list: *mut *mut ibv_device) {
    if !list.is_null() {
        // SAFETY: the box that `list` made, of that length.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(list, DEVICES + 1)) });
    }
}

/// The device that a GID belongs to.
pub(crate) fn by_gid(gid: &[u8; 16]) -> Option<&'static Device> {
    devices().iter().find(|device| (0..device.gids()).any(|index| device.gid(index).as_ref() == Some(gid)))
}

/// The device whose port has this LID.
pub(crate) fn by_lid(lid: u16) -> Option<&'static Device> {
    devices().iter().find(|device| device.lid() == lid)
}

/// `ibv_query_pkey(3)` and `ibv_get_pkey_index(3)`: one partition, the default one.
pub(crate) fn pkey(port: u8, index: c_int) -> Result<u16, c_int> {
    if port == PORT && index == 0 { Ok(PKEY.to_be()) } else { Err(libc::EINVAL) }
}

fn text<const N: usize>(text: &str) -> [c_char; N] {
    assert!(text.len() < N);
    let mut out = [0; N];
    for (to, from) in out.iter_mut().zip(text.bytes()) {
        *to = from as c_char;
    }
    out
}
