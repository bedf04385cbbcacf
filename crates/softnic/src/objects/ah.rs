//! Address handles: the destinations of datagrams.
//!
//! Guarantees: the handle names a device of the fabric, a multicast group, or nobody; resolved
//! once, at creation.

use crate::objects::Object;
use crate::objects::device::{self, Device};
use crate::objects::mcast::{self, Group};
use crate::objects::pd::Pd;
use rdma_sys::*;
use std::ffi::c_int;
use verbline_roce::wire::ip;

/// A handle's destination.
#[derive(Clone, Copy)]
pub(crate) enum Route {
    /// The queue pairs of that device.
    Device(&'static Device),
    /// The members of the group.
    Group(&'static Group),
    /// An address that nobody has: datagrams are lost, as on a wire.
    Nowhere,
}

/// `ibv_ah` first, so that a pointer to one is a pointer to the other.
#[repr(C)]
pub(crate) struct Ah {
    raw: ibv_ah,
    pub(crate) route: Route,
    /// The attributes of creation, for the receiver's GRH and work completion.
    pub(crate) attr: ibv_ah_attr,
    /// The sender's GID and LID.
    pub(crate) source_gid: [u8; 16],
    pub(crate) source_lid: u16,
    /// The protection domain's number.
    pub(crate) pd: u32,
}

// SAFETY: `raw` is the first field of a `repr(C)` struct.
unsafe impl Object for Ah {
    type Raw = ibv_ah;
}

/// `ibv_create_ah(3)`. `EINVAL` for another port, a source GID that the port lacks, or multicast
/// without a GRH.
pub(crate) fn create(domain: &Pd, attr: &ibv_ah_attr) -> Result<*mut ibv_ah, c_int> {
    let source = domain.context().device;
    let route = route(source, attr).ok_or(libc::EINVAL)?;
    let source_gid = if attr.is_global != 0 { source.gid(usize::from(attr.grh.sgid_index)) } else { source.gid(0) };
    let source_gid = source_gid.ok_or(libc::EINVAL)?;
    domain.adopt();
    let raw = ibv_ah { context: domain.context().as_ptr(), pd: domain.as_ptr(), handle: 0 };
    Ok(Ah { raw, route, attr: *attr, source_gid, source_lid: source.lid(), pd: domain.id }.into_raw())
}

/// The destination of an address; `None` if it is invalid. By GID if there is one, else by LID.
/// `Nowhere` leads to the wire, if the device has one.
fn route(source: &Device, attr: &ibv_ah_attr) -> Option<Route> {
    if attr.port_num != device::PORT {
        return None;
    }
    if attr.is_global == 0 {
        // Multicast LIDs carry no group without a GRH here.
        let multicast = (0xc000..0xffff).contains(&attr.dlid);
        return (!multicast).then(|| device::by_lid(attr.dlid).map_or(Route::Nowhere, Route::Device));
    }
    // SAFETY: both arms of the union are sixteen bytes, and any are a GID.
    let gid = unsafe { attr.grh.dgid.raw };
    if mcast::is_multicast(&gid) {
        return Some(Route::Group(mcast::group(&gid)));
    }
    let by_wire = source.carries_own() && usize::from(attr.grh.sgid_index) == device::ADDRESS_GID;
    Some(device::by_gid(&gid).filter(|_| !by_wire).map_or(Route::Nowhere, Route::Device))
}

/// `ibv_init_ah_from_wc(3)`: the path back to the sender of a received datagram. `grh` is the first
/// 40 bytes of its buffer, if the completion has `IBV_WC_GRH`.
pub(crate) fn from_wc(source: &Device, port: u8, wc: &ibv_wc, grh: Option<ibv_grh>) -> Result<ibv_ah_attr, c_int> {
    // SAFETY: zero is a value of every field.
    let mut out: ibv_ah_attr = unsafe { std::mem::zeroed() };
    (out.dlid, out.sl, out.src_path_bits, out.port_num) = (wc.slid, wc.sl, wc.dlid_path_bits, port);
    if let Some(header) = grh.map(Header::of) {
        let Header { local, sender, flow, hop_limit } = header;
        let index = (0..source.gids()).find(|index| source.gid(*index) == Some(local));
        let own = source.gid(device::ADDRESS_GID);
        // The sender may also be another process at the same address.
        let is_elsewhere = device::by_gid(&sender).is_none() || own == Some(sender);
        // A multicast datagram is answered from the first GID, or from the GID that leads out of
        // the process.
        let first = if is_elsewhere && own.is_some() { device::ADDRESS_GID } else { 0 };
        let index = index.or_else(|| mcast::is_multicast(&local).then_some(first)).ok_or(libc::EINVAL)?;
        out.is_global = 1;
        out.grh.dgid = ibv_gid { raw: sender };
        out.grh.sgid_index = index as u8;
        out.grh.hop_limit = hop_limit;
        out.grh.flow_label = flow & 0xf_ffff;
        out.grh.traffic_class = (flow >> 20) as u8;
    }
    Ok(out)
}

/// What the bytes before a received datagram say.
struct Header {
    /// The destination's GID, and the sender's.
    local: [u8; 16],
    sender: [u8; 16],
    /// Traffic class and flow label, as in a GRH.
    flow: u32,
    /// The hop limit of an answer.
    hop_limit: u8,
}

impl Header {
    /// Reads a GRH, or the IPv4 header in its last 20 bytes, of a datagram that came by IPv4.
    fn of(grh: ibv_grh) -> Header {
        // SAFETY: forty bytes without padding, and any are valid.
        let bytes = unsafe { std::mem::transmute::<ibv_grh, [u8; ip::BEFORE_MESSAGE_BYTES]>(grh) };
        match ip::read_v4_before_message(&bytes) {
            Some(v4) => Header {
                local: v4.destination.to_ipv6_mapped().octets(),
                sender: v4.source.to_ipv6_mapped().octets(),
                flow: u32::from(v4.traffic_class) << 20,
                hop_limit: v4.hop_limit,
            },
            None => Header {
                local: part(&bytes, 24),
                sender: part(&bytes, 8),
                flow: u32::from_be_bytes(part(&bytes, 0)),
                hop_limit: 0xff,
            },
        }
    }
}

/// `LEN` of the bytes, from `at` on.
fn part<const LEN: usize>(bytes: &[u8; ip::BEFORE_MESSAGE_BYTES], at: usize) -> [u8; LEN] {
    std::array::from_fn(|index| bytes[at + index])
}

/// `ibv_destroy_ah(3)`, up to freeing it.
pub(crate) fn retire(ah: &Ah) -> Result<(), c_int> {
    // SAFETY: the domain counts the handle and outlives it: `pd::retire` refuses while it has
    // handles.
    unsafe { Pd::from_raw(ah.raw.pd) }.release();
    Ok(())
}
