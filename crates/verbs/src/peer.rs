//! Memory that a peer may read or write, registered.
//!
//! There is no `&[u8]` into it: a peer may write at any moment. It is reached by copies and by atomic loads and stores
//! ([`verbline_mem::PeerRegion`]), and by one-sided work requests that hold a [`PeerSlice`] of it.

use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::Arc;

use verbline_mem::PeerRegion;

use crate::mr::{Access, MrError, MrInner, MrOptions};
use crate::pd::PdInner;

/// A registered region that peers may reach. Cloning it is cheap and shares it; it is deregistered, then unmapped, when the
/// last clone and the last work request on it are gone.
#[derive(Clone, Debug)]
pub struct PeerMr {
    inner: Arc<PeerMrInner>,
}

#[derive(Debug)]
pub(crate) struct PeerMrInner {
    /// Gone first: see `drop`.
    mr: ManuallyDrop<MrInner>,
    region: ManuallyDrop<PeerRegion>,
    access: Access,
}

/// Where a peer's memory is, as the peer was told: an address and the key that opens it. Sixteen bytes to put in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Remote {
    /// Virtual address at the peer.
    pub addr: u64,
    /// R_Key of the MR or memory window there.
    pub rkey: u32,
}

impl Remote {
    /// The same memory, `bytes` further.
    #[must_use]
    pub fn offset(self, bytes: u64) -> Remote {
        Remote { addr: self.addr.wrapping_add(bytes), ..self }
    }
}

impl PeerMr {
    pub(crate) fn register(
        pd: &Arc<PdInner>,
        region: PeerRegion,
        access: Access,
        options: MrOptions,
    ) -> Result<PeerMr, MrError> {
        let (addr, len) = (region.as_ptr(), region.len_bytes());
        // SAFETY: `inner` below drops the MR before the region. A PeerRegion is memory that others may write at any time and
        // is only reached by copies and atomics.
        let mr = unsafe { MrInner::register(pd, addr, len, access, options, "peer region")? };
        let (mr, region) = (ManuallyDrop::new(mr), ManuallyDrop::new(region));
        Ok(PeerMr { inner: Arc::new(PeerMrInner { mr, region, access }) })
    }

    /// Changes what is granted, in place (ibv_rereg_mr(3)); the keys may change. Refused while a clone, a [`PeerSlice`], a window
    /// or a posted work request shares the registration.
    pub fn set_access(&mut self, access: Access) -> Result<(), MrError> {
        access.check()?;
        let shared_by = Arc::strong_count(&self.inner) - 1;
        let inner = Arc::get_mut(&mut self.inner).ok_or(MrError::Shared { shared_by })?;
        // SAFETY: nobody else has the registration, so that no work request uses it.
        unsafe { inner.mr.set_access(access)? };
        inner.access = access;
        Ok(())
    }

    /// What to tell a peer so that it can reach the bytes from `offset` on.
    pub fn remote(&self, offset: u64) -> Remote {
        Remote { addr: self.inner.addr().wrapping_add(offset), rkey: self.inner.mr.rkey() }
    }

    /// The key for local use.
    pub fn lkey(&self) -> u32 {
        self.inner.mr.lkey()
    }

    /// The key for peers.
    pub fn rkey(&self) -> u32 {
        self.inner.mr.rkey()
    }

    /// What was granted.
    pub fn access(&self) -> Access {
        self.inner.access
    }

    /// A part of it for a work request: `None` when it leaves the region.
    pub fn slice(&self, offset: usize, len: u32) -> Option<PeerSlice> {
        let end = offset.checked_add(usize::try_from(len).ok()?)?;
        if end > self.inner.region.len_bytes() {
            return None;
        }
        let addr = self.inner.addr() + offset as u64;
        Some(PeerSlice { mr: self.inner.clone(), addr, len })
    }
}

impl Deref for PeerMr {
    type Target = PeerRegion;

    fn deref(&self) -> &PeerRegion {
        &self.inner.region
    }
}

impl PeerMrInner {
    fn addr(&self) -> u64 {
        self.region.as_ptr() as u64
    }
}

impl Drop for PeerMrInner {
    fn drop(&mut self) {
        // SAFETY: taken once, here.
        let (mr, region) = unsafe { (ManuallyDrop::take(&mut self.mr), ManuallyDrop::take(&mut self.region)) };
        if !mr.deregister() {
            // A peer may still write it.
            std::mem::forget(region);
        }
    }
}

/// A part of a [`PeerMr`], for a work request to read from or write to. Keeps the memory registered and mapped.
#[derive(Clone, Debug)]
pub struct PeerSlice {
    mr: Arc<PeerMrInner>,
    addr: u64,
    len: u32,
}

impl PeerSlice {
    /// Length, bytes.
    #[inline]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether both are of one region.
    #[inline]
    pub(crate) fn is_of_region_of(&self, other: &PeerSlice) -> bool {
        Arc::ptr_eq(&self.mr, &other.mr)
    }

    #[inline]
    pub(crate) fn addr(&self) -> u64 {
        self.addr
    }

    pub(crate) fn lkey(&self) -> u32 {
        self.mr.mr.lkey()
    }

    pub(crate) fn sge(&self) -> rdma_sys::ibv_sge {
        rdma_sys::ibv_sge { addr: self.addr, length: self.len, lkey: self.lkey() }
    }

    pub(crate) fn pd_id(&self) -> u64 {
        self.mr.mr.pd().id
    }

    pub(crate) fn mr_ptr(&self) -> *mut rdma_sys::ibv_mr {
        self.mr.mr.as_ptr()
    }
}
