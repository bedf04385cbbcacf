//! Address handles: where a datagram goes.
//!
//! What it guarantees: the handle names a device of the fabric, a multicast group, or nobody; resolved once, at creation.

use crate::errno;
use crate::objects::device::{self, Device};
use crate::objects::mcast::{self, Group};
use crate::objects::pd::Pd;
use rdma_sys::*;
use std::ffi::c_int;

/// Where it leads.
#[derive(Clone, Copy)]
pub(crate) enum Route {
    /// To the queue pairs of that device.
    Device(&'static Device),
    /// To everybody in the group.
    Group(&'static Group),
    /// To an address that nobody has: datagrams are lost, as on a wire.
    Nowhere,
}

/// `ibv_ah` first, so that a pointer to one is a pointer to the other.
#[repr(C)]
pub(crate) struct Ah {
    raw: ibv_ah,
    pub(crate) route: Route,
    /// As given, for the receiver's GRH and work completion.
    pub(crate) attr: ibv_ah_attr,
    /// The sender's GID and LID.
    pub(crate) source_gid: [u8; 16],
    pub(crate) source_lid: u16,
    /// The protection domain's number.
    pub(crate) pd: u32,
}

impl Ah {
    /// # Safety
    /// `ah` is one that [`create`] gave and [`destroy`] has not taken back.
    pub(crate) unsafe fn from_raw<'a>(ah: *mut ibv_ah) -> &'a Ah {
        // SAFETY: `raw` is first in an `Ah`.
        unsafe { &*ah.cast::<Ah>() }
    }
}

/// `ibv_create_ah(3)`. `EINVAL` for another port, a source GID that the port lacks, or multicast without a GRH.
///
/// # Safety
/// `pd` is allocated, `attr` is readable.
pub(crate) unsafe fn create(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah {
    // SAFETY: the caller's.
    let (domain, attr) = unsafe { (Pd::from_raw(pd), *attr) };
    let source = domain.context().device;
    let Some(route) = route(&attr) else { return errno::null(libc::EINVAL) };
    let source_gid = if attr.is_global != 0 { source.gid(usize::from(attr.grh.sgid_index)) } else { source.gid(0) };
    let Some(source_gid) = source_gid else { return errno::null(libc::EINVAL) };
    domain.adopt();
    let raw = ibv_ah { context: domain.context().as_ptr(), pd, handle: 0 };
    let ah = Ah { raw, route, attr, source_gid, source_lid: source.lid(), pd: domain.id };
    Box::into_raw(Box::new(ah)).cast()
}

/// Where an address leads; `None` if it isn't one. By GID where there is one, else by LID.
fn route(attr: &ibv_ah_attr) -> Option<Route> {
    if attr.port_num != device::PORT {
        return None;
    }
    if attr.is_global == 0 {
        // Multicast LIDs carry no group without a GRH here.
        let multicast = (0xc000..0xffff).contains(&attr.dlid);
        return (!multicast).then(|| device::by_lid(attr.dlid).map_or(Route::Nowhere, Route::Device));
    }
    // SAFETY: both arms of the union are sixteen bytes; any are a GID.
    let gid = unsafe { attr.grh.dgid.raw };
    if mcast::is_multicast(&gid) {
        return Some(Route::Group(mcast::group(&gid)));
    }
    Some(device::by_gid(&gid).map_or(Route::Nowhere, Route::Device))
}

/// `ibv_init_ah_from_wc(3)`: the way back to the sender of a received datagram.
///
/// # Safety
/// `wc` is a receive completion, `grh` the first 40 bytes of its buffer if `wc` has `IBV_WC_GRH`; `attr` is writable.
pub(crate) unsafe fn init_from_wc(
    context: *mut ibv_context,
    port: u8,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    attr: *mut ibv_ah_attr,
) -> c_int {
    // SAFETY: zero is a value of every field.
    let mut out: ibv_ah_attr = unsafe { std::mem::zeroed() };
    // SAFETY: the caller's.
    let wc = unsafe { &*wc };
    (out.dlid, out.sl, out.src_path_bits, out.port_num) = (wc.slid, wc.sl, wc.dlid_path_bits, port);
    if wc.wc_flags & ibv_wc_flags::IBV_WC_GRH.0 != 0 {
        // SAFETY: the caller's; it may lie at any alignment in the buffer.
        let grh = unsafe { grh.read_unaligned() };
        // SAFETY: the caller's.
        let device = unsafe { crate::objects::context::Context::from_raw(context) }.device;
        // SAFETY: any sixteen bytes are a GID.
        let local = unsafe { grh.dgid.raw };
        let index = (0..device::GIDS).find(|index| device.gid(*index) == Some(local));
        // A multicast datagram is answered from the first GID.
        let index = index.or_else(|| mcast::is_multicast(&local).then_some(0));
        let Some(index) = index else { return errno::minus_one(libc::EINVAL) };
        out.is_global = 1;
        out.grh.dgid = grh.sgid;
        out.grh.sgid_index = index as u8;
        out.grh.hop_limit = 0xff;
        let flow = u32::from_be(grh.version_tclass_flow);
        out.grh.flow_label = flow & 0xf_ffff;
        out.grh.traffic_class = (flow >> 20) as u8;
    }
    // SAFETY: the caller's.
    unsafe { attr.write(out) };
    0
}

/// `ibv_destroy_ah(3)`.
///
/// # Safety
/// `ah` is alive, no work request that uses it is outstanding, and it isn't used after.
pub(crate) unsafe fn destroy(ah: *mut ibv_ah) -> c_int {
    // SAFETY: the caller's; the domain outlives the handle, which refers to it.
    unsafe {
        Pd::from_raw((*ah).pd).release();
        drop(Box::from_raw(ah.cast::<Ah>()));
    }
    0
}
