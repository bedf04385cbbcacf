//! An address handle: the path to a port or a multicast group, for UD sends (ibv_create_ah(3)).

use std::ptr::NonNull;
use std::sync::Arc;

use rdma_sys::{ibv_ah, ibv_ah_attr, ibv_global_route};

use crate::device::gid::Endpoint;
use crate::device::gid::Gid;
use crate::device::provider::verb;
use crate::errno::VerbError;
use crate::memory::pd::{PdInner, ProtectionDomain};

/// The QP number that addresses every member of the group in a multicast send.
pub const MULTICAST_QPN: u32 = 0xff_ffff;

/// A path: the local port and GID, the destination, and the header fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AhSpec {
    /// The local port.
    pub port: u8,
    /// The local GID's index in that port's table.
    pub gid_index: u8,
    /// The destination's GID, or the group's. `None` routes by LID alone, within an InfiniBand
    /// subnet.
    pub gid: Option<Gid>,
    /// The destination's LID; 0 on Ethernet.
    pub lid: u16,
    /// Hops before the packet is dropped.
    pub hop_limit: u8,
    /// Traffic class; its upper six bits are the DSCP of RoCEv2.
    pub traffic_class: u8,
    /// Service level; the priority on Ethernet.
    pub service_level: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
}

impl ProtectionDomain {
    /// Creates an address handle, the destination of UD sends.
    pub fn create_ah(&self, spec: &AhSpec) -> Result<AddressHandle, VerbError> {
        let pd = &self.inner;
        let mut attr = spec.to_raw();
        // SAFETY: the PD is alive; `attr` is read during the call.
        let raw = unsafe { verb!(pd.provider(), ibv_create_ah(pd.as_ptr(), &raw mut attr)) };
        let raw = NonNull::new(raw)
            .ok_or_else(|| VerbError::last("ibv_create_ah", || format!("{spec:?} on {}", pd.describe())))?;
        Ok(AddressHandle { inner: Arc::new(AhInner { pd: pd.clone(), raw, spec: *spec }) })
    }
}

impl AhSpec {
    /// A path to a GID, from port 1 and GID index 0, within 64 hops.
    pub fn to_gid(gid: Gid) -> AhSpec {
        AhSpec { gid: Some(gid), ..AhSpec::default() }
    }

    /// A path to a peer, by the GID of its [`crate::QueuePair::endpoint`], from port 1 and GID
    /// index 0.
    pub fn to_endpoint(peer: &Endpoint) -> AhSpec {
        AhSpec { gid: Some(peer.gid), lid: peer.lid, ..AhSpec::default() }
    }

    /// Starts the path at this local port and GID index instead of port 1 and index 0.
    #[must_use]
    pub fn from_port(self, port: u8, gid_index: u8) -> AhSpec {
        AhSpec { port, gid_index, ..self }
    }

    pub(crate) fn to_raw(self) -> ibv_ah_attr {
        ibv_ah_attr {
            grh: ibv_global_route {
                dgid: self.gid.unwrap_or_default().to_raw(),
                flow_label: self.flow_label,
                sgid_index: self.gid_index,
                hop_limit: self.hop_limit,
                traffic_class: self.traffic_class,
            },
            dlid: self.lid,
            sl: self.service_level,
            src_path_bits: 0,
            static_rate: 0,
            is_global: self.gid.is_some().into(),
            port_num: self.port,
        }
    }

    pub(crate) fn from_raw(raw: &ibv_ah_attr) -> AhSpec {
        AhSpec {
            port: raw.port_num,
            gid_index: raw.grh.sgid_index,
            gid: (raw.is_global != 0).then(|| Gid::from_raw(&raw.grh.dgid)),
            lid: raw.dlid,
            hop_limit: raw.grh.hop_limit,
            traffic_class: raw.grh.traffic_class,
            service_level: raw.sl,
            flow_label: raw.grh.flow_label,
        }
    }
}

impl Default for AhSpec {
    fn default() -> AhSpec {
        AhSpec {
            port: 1,
            gid_index: 0,
            gid: None,
            lid: 0,
            hop_limit: 64,
            traffic_class: 0,
            service_level: 0,
            flow_label: 0,
        }
    }
}

/// An address handle. Cloning it is cheap and shares it; a QP that sends with it keeps it alive.
#[derive(Clone, Debug)]
pub struct AddressHandle {
    pub(crate) inner: Arc<AhInner>,
}

#[derive(Debug)]
pub(crate) struct AhInner {
    pub(crate) pd: Arc<PdInner>,
    /// The path it was made from.
    pub(crate) spec: AhSpec,
    raw: NonNull<ibv_ah>,
}

// SAFETY: an ibv_ah is not written after it was created; post_send only reads it.
unsafe impl Send for AhInner {}
// SAFETY: threads that share an ibv_ah only read it.
unsafe impl Sync for AhInner {}

impl AhInner {
    pub(crate) fn as_ptr(&self) -> *mut ibv_ah {
        self.raw.as_ptr()
    }
}

impl Drop for AhInner {
    fn drop(&mut self) {
        // SAFETY: created by the same provider, destroyed once; QPs that send by it hold the Arc of
        // this one.
        let ret = unsafe { verb!(self.pd.provider(), ibv_destroy_ah(self.as_ptr())) };
        if let Some(errno) = self.pd.context.undestroyed(ret) {
            tracing::warn!(pd = %self.pd.describe(), %errno, "the AH would not go");
        }
    }
}
