//! A thread domain: the promise that a QP is used by one thread at a time, so that the driver leaves out its locks
//! (ibv_alloc_td(3), ibv_alloc_parent_domain(3)).
//!
//! `QueuePair` keeps that promise by its type. CQs are not put into the domain: destroying a QP cleans its CQ from whatever
//! thread drops it, and that needs the CQ's lock.

use std::mem::offset_of;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use rdma_sys::{ibv_context, ibv_parent_domain_init_attr, ibv_pd, ibv_td, ibv_td_init_attr, verbs_context};

use crate::context::ContextInner;
use crate::errno::{Errno, VerbError};
use crate::pd::PdInner;
use crate::provider::Provider;

/// A parent domain's other half.
#[derive(Debug)]
pub(crate) struct ThreadDomain {
    context: Arc<ContextInner>,
    raw: NonNull<ibv_td>,
}

// SAFETY: allocated and freed from whatever thread; nothing else is done with it.
unsafe impl Send for ThreadDomain {}
// SAFETY: as above.
unsafe impl Sync for ThreadDomain {}

impl ThreadDomain {
    pub(crate) fn alloc(context: &Arc<ContextInner>) -> Result<ThreadDomain, VerbError> {
        let unsupported = || VerbError::new("ibv_alloc_td", &context.name, Errno::new(libc::EOPNOTSUPP));
        let extended = extended(context).ok_or_else(unsupported)?;
        // SAFETY: `extended` is the open context's own table.
        let alloc = unsafe { op(extended, offset_of!(verbs_context, alloc_td), (*extended.as_ptr()).alloc_td) };
        let mut init = ibv_td_init_attr { comp_mask: 0 };
        // SAFETY: the context is open; the attributes are read during the call.
        let raw = unsafe { alloc.ok_or_else(unsupported)?(context.as_ptr(), &raw mut init) };
        let raw = NonNull::new(raw).ok_or_else(|| VerbError::last("ibv_alloc_td", || context.name.clone()))?;
        Ok(ThreadDomain { context: context.clone(), raw })
    }

    /// A PD that is `base` with this domain.
    pub(crate) fn parent_domain(&self, base: &PdInner) -> Result<NonNull<ibv_pd>, VerbError> {
        let unsupported = || VerbError::new("ibv_alloc_parent_domain", base.describe(), Errno::new(libc::EOPNOTSUPP));
        let extended = extended(&self.context).ok_or_else(unsupported)?;
        // SAFETY: `extended` is the open context's own table.
        let alloc = unsafe {
            let alloc = (*extended.as_ptr()).alloc_parent_domain;
            op(extended, offset_of!(verbs_context, alloc_parent_domain), alloc).ok_or_else(unsupported)?
        };
        let mut init = ibv_parent_domain_init_attr {
            pd: base.as_ptr(),
            td: self.raw.as_ptr(),
            comp_mask: 0,
            alloc: None,
            free: None,
            pd_context: ptr::null_mut(),
        };
        // SAFETY: the context is open, PD and thread domain are alive and its own; the attributes are read during the call.
        let raw = unsafe { alloc(self.context.as_ptr(), &raw mut init) };
        NonNull::new(raw).ok_or_else(|| VerbError::last("ibv_alloc_parent_domain", || base.describe()))
    }
}

impl Drop for ThreadDomain {
    fn drop(&mut self) {
        let Some(extended) = extended(&self.context) else { return };
        // SAFETY: `extended` is the open context's own table; whoever could allocate can deallocate. The parent domain is gone
        // before its thread domain.
        let ret = unsafe {
            op(extended, offset_of!(verbs_context, dealloc_td), (*extended.as_ptr()).dealloc_td)
                .map_or(0, |dealloc| dealloc(self.raw.as_ptr()))
        };
        if let Some(errno) = self.context.undestroyed(ret) {
            tracing::warn!(device = %self.context.name, %errno, "the thread domain would not go");
        }
    }
}

/// The extended table around a context of libibverbs. rdma-sys' own function compares with 2^32 - 1 where verbs.h says
/// UINTPTR_MAX, and so never finds one on 64 bit.
fn extended(context: &ContextInner) -> Option<NonNull<verbs_context>> {
    if context.provider != Provider::Kernel {
        return None;
    }
    let raw: *mut ibv_context = context.as_ptr();
    // SAFETY: the context is open; a context that says so in `abi_compat` is the last part of a verbs_context (verbs.h).
    unsafe {
        let is_extended = (*raw).abi_compat.addr() == usize::MAX;
        is_extended.then(|| NonNull::new_unchecked(raw.byte_sub(offset_of!(verbs_context, context)).cast()))
    }
}

/// The operation, if the library is new enough to have its slot: the table grows at its front, and `sz` says how far.
///
/// # Safety
/// `extended` is a live table. (`op` may have been read from before it: then it is not looked at.)
unsafe fn op<F>(extended: NonNull<verbs_context>, offset: usize, op: Option<F>) -> Option<F> {
    // SAFETY: the caller's word.
    let has_slot = unsafe { (*extended.as_ptr()).sz } >= size_of::<verbs_context>() - offset;
    op.filter(|_| has_slot)
}
