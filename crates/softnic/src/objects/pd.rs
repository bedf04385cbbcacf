//! Protection domains: what may be used together.
//!
//! What it guarantees: a domain's number is never used again, so that a key of a deallocated domain matches nothing. A
//! domain that something still refers to isn't deallocated (`EBUSY`). A parent domain is its domain under another handle:
//! it has its number, so that what is registered in one serves both.

use crate::errno;
use crate::objects::context::Context;
use crate::objects::thread_domain::ThreadDomain;
use rdma_sys::*;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

/// `ibv_pd` first, so that a pointer to one is a pointer to the other.
#[repr(C)]
pub(crate) struct Pd {
    raw: ibv_pd,
    /// What keys and queue pairs compare.
    pub(crate) id: u32,
    users: AtomicU32,
    /// Of a parent domain: what it is made of. The thread domain may be absent.
    parts: Option<(*mut ibv_pd, *mut ibv_td)>,
}

impl Pd {
    /// # Safety
    /// `pd` is one that [`alloc`] gave and [`dealloc`] has not taken back.
    pub(crate) unsafe fn from_raw<'a>(pd: *mut ibv_pd) -> &'a Pd {
        // SAFETY: `raw` is first in a `Pd`.
        unsafe { &*pd.cast::<Pd>() }
    }

    pub(crate) fn context(&self) -> &Context {
        // SAFETY: a context outlives its objects: `close` refuses while there are any.
        unsafe { Context::from_raw(self.raw.context) }
    }

    /// Something refers to it.
    pub(crate) fn adopt(&self) {
        // Relaxed: a count; `dealloc` comes after, by contract.
        self.users.fetch_add(1, Ordering::Relaxed);
        self.context().adopt();
    }

    /// Something that referred to it is gone.
    pub(crate) fn release(&self) {
        // Relaxed: as in `adopt`.
        self.users.fetch_sub(1, Ordering::Relaxed);
        self.context().release();
    }
}

/// `ibv_alloc_pd(3)`.
///
/// # Safety
/// `context` is open.
pub(crate) unsafe fn alloc(context: *mut ibv_context) -> *mut ibv_pd {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    // Relaxed: only uniqueness matters.
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    if id == 0 {
        // Every number was used once: none can be given that an old key couldn't match.
        NEXT.store(0, Ordering::Relaxed);
        return errno::null(libc::ENOMEM);
    }
    // SAFETY: the caller's.
    unsafe { Context::from_raw(context) }.adopt();
    let pd = Pd { raw: ibv_pd { context, handle: id }, id, users: AtomicU32::new(0), parts: None };
    Box::into_raw(Box::new(pd)).cast()
}

/// `verbs_context.alloc_parent_domain`: `ibv_alloc_parent_domain(3)`. No allocators of the caller's: `EOPNOTSUPP`.
///
/// # Safety
/// `context` is open, `init` is readable and names live objects.
pub(crate) unsafe extern "C" fn alloc_parent(
    context: *mut ibv_context,
    init: *mut ibv_parent_domain_init_attr,
) -> *mut ibv_pd {
    // SAFETY: the caller's.
    let init = unsafe { &*init };
    if init.comp_mask != 0 {
        return errno::null(libc::EOPNOTSUPP);
    }
    if init.pd.is_null() {
        return errno::null(libc::EINVAL);
    }
    // SAFETY: the caller's.
    let base = unsafe { Pd::from_raw(init.pd) };
    base.adopt();
    if !init.td.is_null() {
        // SAFETY: the caller's.
        unsafe { ThreadDomain::from_raw(init.td) }.adopt();
    }
    let raw = ibv_pd { context, handle: base.id };
    let pd = Pd { raw, id: base.id, users: AtomicU32::new(0), parts: Some((init.pd, init.td)) };
    Box::into_raw(Box::new(pd)).cast()
}

/// `ibv_dealloc_pd(3)`, of a parent domain too.
///
/// # Safety
/// `pd` is allocated, and isn't used after success.
pub(crate) unsafe fn dealloc(pd: *mut ibv_pd) -> c_int {
    // SAFETY: the caller's.
    let this = unsafe { Pd::from_raw(pd) };
    // Relaxed: see `adopt`.
    if this.users.load(Ordering::Relaxed) != 0 {
        return libc::EBUSY;
    }
    match this.parts {
        None => this.context().release(),
        Some((base, td)) => {
            // SAFETY: both are alive: the parent domain, which goes now, refers to them.
            unsafe { Pd::from_raw(base) }.release();
            if !td.is_null() {
                // SAFETY: as above.
                unsafe { ThreadDomain::from_raw(td) }.release();
            }
        }
    }
    // SAFETY: the box that `alloc` or `alloc_parent` made.
    drop(unsafe { Box::from_raw(pd.cast::<Pd>()) });
    0
}
