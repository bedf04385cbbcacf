//! An opened device, and its reported attributes.

use super::attr::Transport;
use super::errno::Refused;
use super::mem::{Mem, MemInner};
use super::patience;
use super::port::{Gid, PORT, PortAttr, PortFacts};
use super::target::{Kind, Provider, Target, verb};
use crate::check::{Failure, Outcome};
use rdma_sys::{
    ibv_context, ibv_device_attr, ibv_device_attr_ex, ibv_device_cap_flags, ibv_gid, ibv_odp_caps,
    ibv_odp_general_caps, ibv_odp_transport_cap_bits, ibv_port_attr, ibv_query_device_ex_input, verbs_context,
};
use std::cell::{OnceCell, RefCell};
use std::mem::offset_of;
use std::os::fd::RawFd;
use std::rc::{Rc, Weak};

/// An opened device.
pub(crate) struct Context {
    pub(super) raw: *mut ibv_context,
    pub(super) provider: Provider,
    target: Target,
    attr: ibv_device_attr,
    odp: ibv_odp_caps,
    /// `packet_pacing_caps.supported_qpts`.
    paced_transports: u32,
    port: PortFacts,
    /// The port at the other end of a pair, if it is of another device.
    far: OnceCell<PortFacts>,
    /// The descriptor of its asynchronous events.
    pub(super) async_fd: RawFd,
    memories: RefCell<Vec<Weak<MemInner>>>,
    complaints: RefCell<Vec<String>>,
}

/// A capability that a device may lack, and where the device reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cap {
    RawPacket,
    ResizeQp,
    /// Packet pacing on this transport.
    RateLimit(Transport),
    AlternatePath,
    Srq,
    SrqResize,
    Multicast,
    Atomics,
    MemoryWindows,
    MemoryWindowsType2,
    /// SEND_WITH_INV and LOCAL_INV.
    MemoryExtensions,
    /// A port where every address needs a GRH.
    GrhRequired,
    /// A port with LIDs: addresses without a GRH work.
    Lids,
    OnDemand,
    /// Messages to and from such memory, on this transport.
    OnDemandMessages(Transport),
    /// RDMA WRITE to and from such memory, on this transport.
    OnDemandWrite(Transport),
    /// RDMA READ and atomics on such memory, on RC.
    OnDemandReadAtomic,
    /// Signature offload and its pipelining: keys of mlx5dv.
    Signatures,
    /// Messages of 2^31 bytes within the time limit of a row.
    LongMessages,
}

impl Cap {
    /// The device's own report of the lack; `None` if it has the capability.
    pub(crate) fn lacking(self, context: &Context) -> Option<String> {
        use ibv_device_cap_flags as bit;
        use ibv_odp_transport_cap_bits as op;
        let attr = &context.attr;
        let flags = ibv_device_cap_flags(attr.device_cap_flags);
        let count = |name: &str, count: i32| (count == 0).then(|| format!("the device says {name} = 0"));
        let flag = |name: &str, any: bit| {
            (flags.0 & any.0 == 0).then(|| format!("{name} is not in the device's device_cap_flags"))
        };
        let windows = bit::IBV_DEVICE_MEM_WINDOW_TYPE_2A | bit::IBV_DEVICE_MEM_WINDOW_TYPE_2B;
        match self {
            Cap::Signatures => (context.provider == Provider::Kernel).then(|| {
                "signature offload is asked of the software RNIC only: the suite calls no driver's extension".to_owned()
            }),
            Cap::LongMessages => match context.target.kind {
                Kind::Soft => None,
                Kind::SoftUdp => {
                    Some("2^31 bytes go through a socket in packets: not within the time of a row".to_owned())
                }
                Kind::Rxe | Kind::Other => Some(
                    "2^31 bytes are pinned and sent in packets by a kernel device: not within the time of a row"
                        .to_owned(),
                ),
            },
            Cap::RawPacket => count("max_raw_ethy_qp", attr.max_raw_ethy_qp),
            Cap::Srq => count("max_srq", attr.max_srq),
            Cap::Multicast => count("max_mcast_grp", attr.max_mcast_grp),
            Cap::Atomics => (attr.atomic_cap == 0).then(|| "the device says atomic_cap = IBV_ATOMIC_NONE".to_owned()),
            Cap::RateLimit(transport) => {
                let paced = context.paced_transports & 1 << transport.raw();
                (paced == 0).then(|| format!("{transport} is not in the device's packet_pacing_caps.supported_qpts"))
            }
            Cap::ResizeQp => flag("IBV_DEVICE_RESIZE_MAX_WR", bit::IBV_DEVICE_RESIZE_MAX_WR),
            Cap::AlternatePath => flag("IBV_DEVICE_AUTO_PATH_MIG", bit::IBV_DEVICE_AUTO_PATH_MIG).or_else(|| {
                let limit = "kernel limit: ib_modify_qp() takes alternate paths on InfiniBand ports only";
                context.port.attr.is_ethernet.then(|| format!("{limit}, and this one's link layer is Ethernet"))
            }),
            Cap::SrqResize => flag("IBV_DEVICE_SRQ_RESIZE", bit::IBV_DEVICE_SRQ_RESIZE),
            Cap::MemoryWindows => flag("IBV_DEVICE_MEM_WINDOW", bit::IBV_DEVICE_MEM_WINDOW | windows),
            Cap::MemoryWindowsType2 => flag("IBV_DEVICE_MEM_WINDOW_TYPE_2A or _2B", windows),
            Cap::MemoryExtensions => flag("IBV_DEVICE_MEM_MGT_EXTENSIONS", bit::IBV_DEVICE_MEM_MGT_EXTENSIONS),
            Cap::GrhRequired => (!context.port.attr.grh_required)
                .then(|| "IBV_QPF_GRH_REQUIRED is not in the port's flags: no address needs a GRH".to_owned()),
            Cap::OnDemand => (context.odp.general_caps & u64::from(ibv_odp_general_caps::IBV_ODP_SUPPORT.0) == 0)
                .then(|| "IBV_ODP_SUPPORT is not in the device's odp_caps.general_caps".to_owned()),
            Cap::OnDemandMessages(transport) => {
                context.odp_lacking(transport, op::IBV_ODP_SUPPORT_SEND | op::IBV_ODP_SUPPORT_RECV)
            }
            Cap::OnDemandWrite(transport) => context.odp_lacking(transport, op::IBV_ODP_SUPPORT_WRITE),
            Cap::OnDemandReadAtomic => {
                context.odp_lacking(Transport::Rc, op::IBV_ODP_SUPPORT_READ | op::IBV_ODP_SUPPORT_ATOMIC)
            }
            Cap::Lids => {
                (context.port.attr.lid == 0).then(|| "the port says lid = 0: every address needs a GRH".to_owned())
            }
        }
    }
}

impl Context {
    pub(super) fn open(target: &Target) -> Outcome<Rc<Context>> {
        let raw = target.open().ok_or_else(|| Refused::last("ibv_open_device"))?.as_ptr();
        let provider = target.provider;
        // SAFETY: the context is open.
        let async_fd = unsafe { (*raw).async_fd };
        patience::set_nonblocking(async_fd, true).map_err(|error| Failure::new(format!("async_fd: {error}")))?;
        let attr = query_device(provider, raw)?;
        let more = query_device_ex(raw)?;
        let port = port_facts(provider, raw, target.gid_index)?;
        Ok(Rc::new(Context {
            raw,
            provider,
            target: target.clone(),
            attr,
            odp: more.odp_caps,
            paced_transports: more.packet_pacing_caps.supported_qpts,
            port,
            far: OnceCell::new(),
            async_fd,
            memories: RefCell::default(),
            complaints: RefCell::default(),
        }))
    }

    pub(crate) fn name(&self) -> &str {
        &self.target.name
    }

    pub(super) fn target(&self) -> &Target {
        &self.target
    }

    /// The port's attributes, as queried at opening.
    pub(crate) fn port(&self) -> &PortFacts {
        &self.port
    }

    /// Pairs reach from here to that port from now on.
    pub(super) fn face(&self, far: &PortFacts) {
        let is_new = self.far.set(far.clone()).is_ok();
        assert!(is_new, "a context faces one other port");
    }

    /// The port that pairs reach from here: the own one, unless the other end is another device's.
    pub(crate) fn far_port(&self) -> &PortFacts {
        self.far.get().unwrap_or(&self.port)
    }

    /// Whether a pair's side here is to use an object of `other`: of two devices each has its own.
    pub(super) fn uses(&self, other: &Context) -> bool {
        self.far.get().is_none() || std::ptr::eq(self, other)
    }

    pub(crate) fn has(&self, cap: Cap) -> bool {
        cap.lacking(self).is_none()
    }

    /// The operations that a transport lacks on memory paged on demand.
    fn odp_lacking(&self, transport: Transport, needed: ibv_odp_transport_cap_bits) -> Option<String> {
        let caps = &self.odp.per_transport_caps;
        let (name, has) = match transport {
            Transport::Rc => ("rc_odp_caps", caps.rc_odp_caps),
            Transport::Uc => ("uc_odp_caps", caps.uc_odp_caps),
            Transport::Ud => ("ud_odp_caps", caps.ud_odp_caps),
            Transport::RawPacket => return Some("odp_caps has no word for RAW_PACKET".to_owned()),
        };
        let missing = needed.0 & !has;
        (missing != 0).then(|| format!("the device's {name} is {has:#x}: {missing:#x} is not in it"))
    }

    /// The device's limits.
    pub(crate) fn attr(&self) -> &ibv_device_attr {
        &self.attr
    }

    pub(crate) fn comp_vectors(&self) -> i32 {
        // SAFETY: the context is open.
        unsafe { (*self.raw).num_comp_vectors }
    }

    pub(crate) fn query_device(&self) -> Result<ibv_device_attr, Refused> {
        query_device(self.provider, self.raw)
    }

    pub(crate) fn query_port(&self, port: u8) -> Result<PortAttr, Refused> {
        query_port(self.provider, self.raw, port)
    }

    pub(crate) fn query_gid(&self, port: u8, index: i32) -> Result<Gid, Refused> {
        query_gid(self.provider, self.raw, port, index)
    }

    /// Entry `index` of the P_Key table, in host order.
    pub(crate) fn query_pkey(&self, index: i32) -> Result<u16, Refused> {
        let mut pkey = 0;
        // SAFETY: the context is open; `pkey` may be written.
        let value = unsafe { verb!(self.provider, ibv_query_pkey(self.raw, PORT, index, &raw mut pkey)) };
        Refused::check("ibv_query_pkey", value)?;
        Ok(u16::from_be(pkey))
    }

    /// Records that an object could not be destroyed.
    pub(super) fn complain(&self, refused: Refused) {
        self.complaints.borrow_mut().push(refused.to_string());
    }

    pub(super) fn complaints(&self) -> Vec<String> {
        self.complaints.borrow().clone()
    }

    pub(super) fn remember(&self, memory: &Mem) {
        self.memories.borrow_mut().push(memory.downgrade());
    }

    /// Whether the range is memory of this rig. The CPU itself reads inline data, so its memory
    /// must be.
    pub(super) fn owns(&self, addr: u64, length: usize) -> bool {
        self.memories.borrow().iter().filter_map(Weak::upgrade).any(|memory| memory.contains(addr, length))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: opened by `open`, closed once; everything made from it keeps a reference, so it
        // is gone.
        unsafe { verb!(self.provider, ibv_close_device(self.raw)) };
    }
}

fn query_device(provider: Provider, raw: *mut ibv_context) -> Result<ibv_device_attr, Refused> {
    // SAFETY: integers only.
    let mut attr: ibv_device_attr = unsafe { std::mem::zeroed() };
    // SAFETY: the context is open; `attr` may be written.
    let value = unsafe { verb!(provider, ibv_query_device(raw, &raw mut attr)) };
    Refused::check("ibv_query_device", value).map(|()| attr)
}

/// The attributes of `ibv_query_device_ex(3)`; zeros if the driver does not have that verb.
fn query_device_ex(raw: *mut ibv_context) -> Result<ibv_device_attr_ex, Refused> {
    type Query = Option<
        unsafe extern "C" fn(
            *mut ibv_context,
            *const ibv_query_device_ex_input,
            *mut ibv_device_attr_ex,
            usize,
        ) -> std::ffi::c_int,
    >;
    // SAFETY: integers only.
    let mut attr: ibv_device_attr_ex = unsafe { std::mem::zeroed() };
    // rdma-sys's function for it compares abi_compat with 2^32 - 1 instead of verbs.h's
    // UINTPTR_MAX, and never finds the table.
    let behind = |field: usize| offset_of!(verbs_context, context) - field;
    // SAFETY: the context is open; with that abi_compat it is the last part of a verbs_context,
    // whose front may be cut off: `sz`, right before the context, tells where. `attr` may be
    // written.
    let value = unsafe {
        if (*raw).abi_compat.addr() != usize::MAX {
            return Ok(attr);
        }
        let sz = *raw.byte_sub(behind(offset_of!(verbs_context, sz))).cast::<usize>();
        let field = offset_of!(verbs_context, query_device_ex);
        if sz < size_of::<verbs_context>() - field {
            return Ok(attr);
        }
        let Some(query) = *raw.byte_sub(behind(field)).cast::<Query>() else { return Ok(attr) };
        query(raw, std::ptr::null(), &raw mut attr, size_of_val(&attr))
    };
    match value {
        libc::EOPNOTSUPP | libc::ENOSYS => Ok(attr),
        value => Refused::check("ibv_query_device_ex", value).map(|()| attr),
    }
}

fn query_port(provider: Provider, raw: *mut ibv_context, port: u8) -> Result<PortAttr, Refused> {
    // IBV_QPF_GRH_REQUIRED and IBV_LINK_LAYER_ETHERNET of verbs.h.
    const GRH_REQUIRED: u8 = 1;
    const LINK_LAYER_ETHERNET: u8 = 2;
    // SAFETY: integers only; zeroed because rdma-sys's inline function doesn't.
    let mut attr: ibv_port_attr = unsafe { std::mem::zeroed() };
    // SAFETY: the context is open; `attr` may be written.
    let value = unsafe {
        match provider {
            Provider::Kernel => rdma_sys::___ibv_query_port(raw, port, &raw mut attr),
            Provider::Soft => verbline_softnic::provider::ibv_query_port(raw, port, &raw mut attr),
        }
    };
    Refused::check("ibv_query_port", value)?;
    Ok(PortAttr {
        active: attr.state == rdma_sys::ibv_port_state::IBV_PORT_ACTIVE,
        active_mtu: attr.active_mtu,
        max_mtu: attr.max_mtu,
        max_message_bytes: attr.max_msg_sz,
        gids: u32::try_from(attr.gid_tbl_len).unwrap_or(0),
        pkeys: attr.pkey_tbl_len,
        lid: attr.lid,
        is_ethernet: attr.link_layer == LINK_LAYER_ETHERNET,
        grh_required: attr.flags & GRH_REQUIRED != 0,
    })
}

fn query_gid(provider: Provider, raw: *mut ibv_context, port: u8, index: i32) -> Result<Gid, Refused> {
    let mut gid = ibv_gid { raw: [0; 16] };
    // SAFETY: the context is open; `gid` may be written.
    let value = unsafe { verb!(provider, ibv_query_gid(raw, port, index, &raw mut gid)) };
    Refused::check("ibv_query_gid", value)?;
    // SAFETY: all sixteen bytes were initialised above.
    Ok(Gid(unsafe { gid.raw }))
}

/// The port's facts with the requested address, else its best one: the first IPv4 one, since that
/// reaches other hosts, else the first.
fn port_facts(provider: Provider, raw: *mut ibv_context, asked: Option<u8>) -> Outcome<PortFacts> {
    let attr = query_port(provider, raw, PORT)?;
    let entries = (0..attr.gids.min(32) as u8).filter_map(|index| {
        let gid = query_gid(provider, raw, PORT, index.into()).ok()?;
        (!gid.is_zero()).then_some((index, gid))
    });
    let entries: Vec<(u8, Gid)> = entries.collect();
    let best = match asked {
        Some(asked) => entries.iter().find(|&&(index, _)| index == asked),
        None => entries.iter().find(|(_, gid)| gid.is_ipv4()).or(entries.first()),
    };
    let &(gid_index, gid) = best.ok_or_else(|| Failure::new("port 1 has no GID"))?;
    Ok(PortFacts { attr, gid, gid_index })
}
