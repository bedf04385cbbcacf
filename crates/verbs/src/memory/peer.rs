//! Registered memory that a peer may read or write.
//!
//! There is no `&[u8]` into it: a peer may write at any moment. Access is by copies and by atomic
//! loads and stores ([`verbline_mem::PeerRegion`]), and by one-sided work requests that hold a
//! [`PeerSlice`] of it.

use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::Arc;

use verbline_mem::PeerRegion;

use crate::memory::mr::{Access, Change, MrError, MrInner, MrOptions, NotChanged};
use crate::memory::pd::{PdInner, ProtectionDomain};
use crate::memory::span::Span;

/// A registered region that peers may reach. Cloning it is cheap and shares it; it is deregistered,
/// then unmapped, when the last clone and the last work request on it are gone.
#[derive(Clone, Debug)]
pub struct PeerMr {
    inner: Arc<PeerMrInner>,
}

#[derive(Debug)]
pub(crate) struct PeerMrInner {
    /// Dropped first: see `drop`.
    mr: ManuallyDrop<MrInner>,
    region: ManuallyDrop<PeerRegion>,
    /// Regions that the registration may also cover since a re-registration failed half-way.
    limbo: Vec<PeerRegion>,
    access: Access,
}

/// Memory that did not come under a registration.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct NotReplaced {
    /// The memory; `None` if the registration may still reach it and therefore keeps it.
    pub region: Option<PeerRegion>,
    /// The reason.
    #[source]
    pub error: MrError,
}

/// A peer's memory as the peer announced it: an address and its key ([`Remote::to_bytes`] for a
/// message).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Remote {
    /// Virtual address at the peer.
    pub addr: u64,
    /// R_Key of the MR or memory window there.
    pub rkey: u32,
}

impl ProtectionDomain {
    /// Registers memory for peers, with their permitted access.
    pub fn register_peer_region(&self, region: PeerRegion, access: Access) -> Result<PeerMr, MrError> {
        self.register_peer_region_with(region, access, MrOptions::default())
    }

    /// Like [`ProtectionDomain::register_peer_region`], with options.
    pub fn register_peer_region_with(
        &self,
        region: PeerRegion,
        access: Access,
        options: MrOptions,
    ) -> Result<PeerMr, MrError> {
        let (addr, len) = (region.as_ptr(), region.len_bytes());
        // SAFETY: `inner` below drops the MR before the region. A PeerRegion is memory that others
        // may write at any time and is only reached by copies and atomics.
        let mr = unsafe { MrInner::register(&self.inner, addr, len, access, options, "peer region")? };
        let (mr, region) = (ManuallyDrop::new(mr), ManuallyDrop::new(region));
        Ok(PeerMr { inner: Arc::new(PeerMrInner { mr, region, limbo: Vec::new(), access }) })
    }
}

impl Remote {
    /// The length of [`Remote::to_bytes`].
    pub const BYTES: usize = 12;

    /// The form in messages: address and key, in network byte order.
    pub fn to_bytes(self) -> [u8; Remote::BYTES] {
        let mut bytes = [0; Remote::BYTES];
        bytes[..8].copy_from_slice(&self.addr.to_be_bytes());
        bytes[8..].copy_from_slice(&self.rkey.to_be_bytes());
        bytes
    }

    /// Decodes the bytes of [`Remote::to_bytes`].
    pub fn from_bytes(bytes: [u8; Remote::BYTES]) -> Remote {
        let [addr @ .., a, b, c, d] = bytes;
        Remote { addr: u64::from_be_bytes(addr), rkey: u32::from_be_bytes([a, b, c, d]) }
    }

    /// The same memory, `bytes` further on.
    #[must_use]
    pub fn offset(self, bytes: u64) -> Remote {
        Remote { addr: self.addr.wrapping_add(bytes), ..self }
    }
}

impl PeerMr {
    /// Changes the permitted access in place (ibv_rereg_mr(3)); the keys may change. Refused while
    /// a clone, a [`PeerSlice`], a window or a posted work request shares the registration. Fails
    /// with EOPNOTSUPP, and changes nothing, if the device cannot change registrations.
    pub fn set_access(&mut self, access: Access) -> Result<(), MrError> {
        access.check()?;
        let inner = self.exclusive()?;
        // SAFETY: the registration has no other user, so that no work request uses it.
        unsafe { inner.mr.change(Change::Access(access)) }.map_err(|not| not.error)?;
        inner.access = access;
        Ok(())
    }

    /// Moves the registration to another PD of the same device, in place: from then on only QPs of
    /// the new PD may use it. Refused like [`PeerMr::set_access`]; the keys may change.
    pub fn set_pd(&mut self, pd: &ProtectionDomain) -> Result<(), MrError> {
        let inner = self.exclusive()?;
        let (ours, theirs) = (&inner.mr.pd().context, &pd.inner.context);
        if !Arc::ptr_eq(ours, theirs) {
            return Err(MrError::Foreign { theirs: theirs.name.clone(), ours: ours.name.clone() });
        }
        // SAFETY: the registration has no other user, so that no work request uses it. It keeps its
        // PD alive.
        unsafe { inner.mr.change(Change::Pd(&pd.inner)) }.map_err(|not| not.error)?;
        Ok(())
    }

    /// Replaces the memory under the registration, in place, and returns the old memory, which the
    /// device can no longer reach. Peers must be told: addresses are the new memory's, and the keys
    /// may change. Refused like [`PeerMr::set_access`].
    pub fn replace_region(&mut self, region: PeerRegion) -> Result<PeerRegion, Box<NotReplaced>> {
        let inner = match self.exclusive() {
            Ok(inner) => inner,
            Err(error) => return Err(NotReplaced { region: Some(region), error }.into()),
        };
        let change = Change::Memory(region.as_ptr(), region.len_bytes());
        // SAFETY: the registration has no other user, so that no work request uses it. The new
        // memory is kept below until the registration is gone, unless the registration is
        // unchanged; the old is kept unless this succeeds. Both are PeerRegions: only reached by
        // copies and atomics.
        let changed = unsafe { inner.mr.change(change) };
        inner.settle(region, changed)
    }

    fn exclusive(&mut self) -> Result<&mut PeerMrInner, MrError> {
        let shared_by = Arc::strong_count(&self.inner) - 1;
        Arc::get_mut(&mut self.inner).ok_or(MrError::Shared { shared_by })
    }

    /// The address and key for a peer to reach the bytes from `offset` on.
    pub fn remote(&self, offset: u64) -> Remote {
        Remote { addr: self.inner.addr().wrapping_add(offset), rkey: self.inner.mr.rkey() }
    }

    /// The key for local use.
    pub(crate) fn lkey(&self) -> u32 {
        self.inner.mr.lkey()
    }

    /// The permitted access.
    pub fn access(&self) -> Access {
        self.inner.access
    }

    /// The address of a part, for a work request that is kept along with the region; `None` when
    /// the part exceeds the region.
    #[inline]
    pub(crate) fn addr_of(&self, span: Span) -> Option<u64> {
        let (addr, len_bytes) = self.span();
        span.is_within(len_bytes).then(|| addr + span.offset())
    }

    /// The region's address, and its length in bytes.
    pub(crate) fn span(&self) -> (u64, u64) {
        (self.inner.addr(), self.inner.region.len_bytes() as u64)
    }

    pub(crate) fn pd(&self) -> &PdInner {
        self.inner.mr.pd()
    }

    /// A part of the region for a work request; `None` when it exceeds the region.
    pub fn slice(&self, offset: usize, len: u32) -> Option<PeerSlice> {
        let end = offset.checked_add(usize::try_from(len).ok()?)?;
        if end > self.inner.region.len_bytes() {
            return None;
        }
        let addr = self.inner.addr() + offset as u64;
        Some(PeerSlice { mr: self.inner.clone(), addr, len_bytes: len.into() })
    }

    /// Like [`PeerMr::slice`], for a window, which may be longer than a message.
    pub(crate) fn slice_of(&self, span: Span) -> Option<PeerSlice> {
        let addr = self.addr_of(span)?;
        Some(PeerSlice { mr: self.inner.clone(), addr, len_bytes: span.len_bytes() })
    }
}

impl Deref for PeerMr {
    type Target = PeerRegion;

    fn deref(&self) -> &PeerRegion {
        &self.inner.region
    }
}

impl PeerMrInner {
    /// Returns the memory that the device has released, and keeps the memory that it may still
    /// reach.
    fn settle(&mut self, region: PeerRegion, changed: Result<(), NotChanged>) -> Result<PeerRegion, Box<NotReplaced>> {
        match changed {
            Ok(()) => Ok(std::mem::replace(&mut *self.region, region)),
            Err(not) if not.as_before => Err(NotReplaced { region: Some(region), error: not.error.into() }.into()),
            Err(not) => {
                self.limbo.push(region);
                Err(NotReplaced { region: None, error: not.error.into() }.into())
            }
        }
    }

    fn addr(&self) -> u64 {
        self.region.as_ptr() as u64
    }
}

impl Drop for PeerMrInner {
    fn drop(&mut self) {
        // SAFETY: taken once, here.
        let (mr, region) = unsafe { (ManuallyDrop::take(&mut self.mr), ManuallyDrop::take(&mut self.region)) };
        if !mr.deregister() {
            // A peer may still write these regions.
            std::mem::forget((region, std::mem::take(&mut self.limbo)));
        }
    }
}

/// A part of a [`PeerMr`] for a work request to read or write. Keeps the memory registered and
/// mapped.
#[derive(Clone, Debug)]
pub struct PeerSlice {
    mr: Arc<PeerMrInner>,
    addr: u64,
    /// At most 32 bits for [`PeerMr::slice`]; a window's memory may be longer.
    len_bytes: u64,
}

impl PeerSlice {
    /// Length, bytes.
    #[inline]
    pub fn len(&self) -> u32 {
        debug_assert!(self.len_bytes <= u32::MAX.into(), "a window's memory is in no other work request");
        self.len_bytes as u32
    }

    /// The length for a window's memory, bytes.
    pub(crate) fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Whether the slice is empty.
    pub fn is_empty(&self) -> bool {
        self.len_bytes == 0
    }

    #[inline]
    pub(crate) fn addr(&self) -> u64 {
        self.addr
    }

    pub(crate) fn lkey(&self) -> u32 {
        self.mr.mr.lkey()
    }

    pub(crate) fn sge(&self) -> rdma_sys::ibv_sge {
        rdma_sys::ibv_sge { addr: self.addr, length: self.len(), lkey: self.lkey() }
    }

    pub(crate) fn pd_id(&self) -> u64 {
        self.mr.mr.pd().id
    }

    pub(crate) fn mr_ptr(&self) -> *mut rdma_sys::ibv_mr {
        self.mr.mr.as_ptr()
    }
}

#[cfg(test)]
mod tests {
    use verbline_mem::{PageChoice, PageSize, Region, RegionSpec};

    use super::*;
    use crate::device::Device;
    use crate::device::provider::Provider;
    use crate::errno::{Errno, VerbError};

    fn region(len_bytes: usize) -> PeerRegion {
        let pages = PageChoice::Exactly(PageSize::Small4K);
        PeerRegion::new(Region::map(&RegionSpec { name: "test".into(), len_bytes, pages, lock: false }).unwrap())
    }

    #[test]
    fn memory_that_the_device_may_reach_is_kept() {
        let pd = Device::find(Provider::Soft, "soft0").unwrap().open().unwrap().alloc_pd().unwrap();
        let mut mr = pd.register_peer_region(region(4096), Access::LOCAL_WRITE).unwrap();
        let inner = Arc::get_mut(&mut mr.inner).unwrap();
        let failed = |as_before| {
            Err(NotChanged { error: VerbError::new("ibv_rereg_mr", "it", Errno::new(libc::EINVAL)), as_before })
        };
        let back = inner.settle(region(8192), failed(true)).unwrap_err().region.unwrap();
        assert_eq!((back.len_bytes(), inner.region.len_bytes(), inner.limbo.len()), (8192, 4096, 0));
        assert!(inner.settle(back, failed(false)).unwrap_err().region.is_none());
        assert_eq!((inner.region.len_bytes(), inner.limbo.len()), (4096, 1));
    }
}
