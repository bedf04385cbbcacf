//! A protection domain: what belongs together. A QP reaches only memory registered on its own PD.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rdma_sys::ibv_pd;
use verbline_mem::{PeerRegion, Pool};

use crate::device::context::{Context, ContextInner};
use crate::device::provider::{Provider, verb};
use crate::errno::VerbError;
use crate::memory::mr::{Access, MrError, MrOptions};
use crate::memory::peer::PeerMr;
use crate::memory::window::{MemoryWindow, WindowKind};
use crate::qp::ah::{AddressHandle, AhSpec};
use crate::qp::srq::{SharedReceiveQueue, SrqError, SrqSpec};
use crate::qp::{QpError, QpMaker, QpSpec, QueuePair};

/// A protection domain. Cloning it is cheap and shares it.
#[derive(Clone, Debug)]
pub struct ProtectionDomain {
    pub(crate) inner: Arc<PdInner>,
}

impl ProtectionDomain {
    pub(crate) fn alloc(context: &Context) -> Result<ProtectionDomain, VerbError> {
        // SAFETY: the context is open.
        let raw = unsafe { verb!(context.provider(), ibv_alloc_pd(context.inner.as_ptr())) };
        let raw = NonNull::new(raw).ok_or_else(|| VerbError::last("ibv_alloc_pd", || context.name()))?;
        // Relaxed: only uniqueness matters, nothing is published by it.
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        Ok(ProtectionDomain { inner: Arc::new(PdInner { context: context.inner.clone(), raw, id }) })
    }

    /// Names this PD among all of the process; never reused.
    pub fn id(&self) -> u64 {
        self.inner.id
    }

    /// Registers a pool's whole region for local access (receives may write it, sends read it; no peer ever reaches it).
    ///
    /// A pool has one MR for its life: registering it again, here or elsewhere, is refused. It is deregistered when the
    /// pool goes, and keeps this PD and the context open until then.
    pub fn register_pool(&self, pool: &Pool) -> Result<(), MrError> {
        self.register_pool_with(pool, MrOptions::default())
    }

    /// As [`ProtectionDomain::register_pool`], with options.
    pub fn register_pool_with(&self, pool: &Pool, options: MrOptions) -> Result<(), MrError> {
        crate::memory::mr::register_pool(&self.inner, pool, options)
    }

    /// Registers memory that peers may reach, with what they may do there.
    pub fn register_peer_region(&self, region: PeerRegion, access: Access) -> Result<PeerMr, MrError> {
        PeerMr::register(&self.inner, region, access, MrOptions::default())
    }

    /// As [`ProtectionDomain::register_peer_region`], with options.
    pub fn register_peer_region_with(
        &self,
        region: PeerRegion,
        access: Access,
        options: MrOptions,
    ) -> Result<PeerMr, MrError> {
        PeerMr::register(&self.inner, region, access, options)
    }

    /// A QP, in the state RESET.
    pub fn create_qp(&self, spec: &QpSpec<'_>) -> Result<QueuePair, QpError> {
        QueuePair::create(&self.inner, spec)
    }

    /// What makes QPs of this spec later, on any thread. `None` for a spec with an SRQ.
    pub fn qp_maker(&self, spec: &QpSpec<'_>) -> Option<QpMaker> {
        QpMaker::new(&self.inner, spec)
    }

    /// An SRQ: receives that several QPs take from.
    pub fn create_srq(&self, spec: &SrqSpec) -> Result<SharedReceiveQueue, SrqError> {
        SharedReceiveQueue::create(&self.inner, spec)
    }

    /// A memory window, bound to nothing.
    pub fn alloc_mw(&self, kind: WindowKind) -> Result<MemoryWindow, VerbError> {
        MemoryWindow::alloc(&self.inner, kind)
    }

    /// An address handle: where UD sends go.
    pub fn create_ah(&self, spec: &AhSpec) -> Result<AddressHandle, VerbError> {
        AddressHandle::create(&self.inner, spec)
    }
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// The PD. Freed when the last MR, QP and AH of it is gone.
#[derive(Debug)]
pub(crate) struct PdInner {
    pub(crate) context: Arc<ContextInner>,
    raw: NonNull<ibv_pd>,
    pub(crate) id: u64,
}

// SAFETY: the verbs that take a PD may be called from any thread.
unsafe impl Send for PdInner {}
// SAFETY: as above.
unsafe impl Sync for PdInner {}

impl PdInner {
    pub(crate) fn as_ptr(&self) -> *mut ibv_pd {
        self.raw.as_ptr()
    }

    pub(crate) fn provider(&self) -> Provider {
        self.context.provider
    }

    /// The device and the PD, for messages.
    pub(crate) fn describe(&self) -> String {
        format!("PD {} on {}", self.id, self.context.name)
    }
}

impl Drop for PdInner {
    fn drop(&mut self) {
        // SAFETY: everything made on the PD holds the Arc of this one, so that nothing is left; freed once.
        let ret = unsafe { verb!(self.provider(), ibv_dealloc_pd(self.as_ptr())) };
        if let Some(errno) = self.context.undestroyed(ret) {
            tracing::warn!(pd = self.id, device = %self.context.name, %errno, "the PD would not go");
        }
    }
}
