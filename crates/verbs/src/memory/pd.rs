//! A protection domain. A QP reaches only memory registered on its own PD.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rdma_sys::ibv_pd;

use crate::device::context::{Context, ContextInner};
use crate::device::provider::{Provider, verb};
use crate::errno::VerbError;

/// A protection domain. Cloning it is cheap and shares it.
#[derive(Clone, Debug)]
pub struct ProtectionDomain {
    pub(crate) inner: Arc<PdInner>,
}

impl Context {
    /// Allocates a protection domain. A queue pair reaches only memory registered on its own.
    pub fn alloc_pd(&self) -> Result<ProtectionDomain, VerbError> {
        // SAFETY: the context is open.
        let raw = unsafe { verb!(self.provider(), ibv_alloc_pd(self.inner.as_ptr())) };
        let raw = NonNull::new(raw).ok_or_else(|| VerbError::last("ibv_alloc_pd", || self.name()))?;
        // Relaxed: only uniqueness matters; the counter publishes nothing.
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        Ok(ProtectionDomain { inner: Arc::new(PdInner { context: self.inner.clone(), raw, id }) })
    }
}

impl ProtectionDomain {
    /// Identifies this PD within the process; never reused.
    pub fn id(&self) -> u64 {
        self.inner.id
    }
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// The PD. Freed when its last MR, QP and AH are gone.
#[derive(Debug)]
pub(crate) struct PdInner {
    pub(crate) context: Arc<ContextInner>,
    raw: NonNull<ibv_pd>,
    pub(crate) id: u64,
}

// SAFETY: the verbs that take a PD may be called from any thread.
unsafe impl Send for PdInner {}
// SAFETY: the verbs that take a PD may be called by several threads at once.
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
        // SAFETY: everything created on the PD holds the Arc of this one, so that nothing is left;
        // freed once.
        let ret = unsafe { verb!(self.provider(), ibv_dealloc_pd(self.as_ptr())) };
        if let Some(errno) = self.context.undestroyed(ret) {
            tracing::warn!(pd = self.id, device = %self.context.name, %errno, "the PD would not go");
        }
    }
}
