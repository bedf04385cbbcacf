//! Thread domains: a caller's word that what is made in one is used by one thread at a time.
//!
//! What it guarantees: a domain that a parent domain still refers to isn't deallocated (`EBUSY`). Nothing else follows from
//! one here: posting takes no lock in any case, so that there is none to leave out.

use crate::errno;
use crate::objects::context::Context;
use rdma_sys::*;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

/// `ibv_td` first, so that a pointer to one is a pointer to the other.
#[repr(C)]
pub(crate) struct ThreadDomain {
    raw: ibv_td,
    users: AtomicU32,
}

impl ThreadDomain {
    /// # Safety
    /// `td` is one that [`alloc`] gave and [`dealloc`] has not taken back.
    pub(crate) unsafe fn from_raw<'a>(td: *mut ibv_td) -> &'a ThreadDomain {
        // SAFETY: `raw` is first in a `ThreadDomain`.
        unsafe { &*td.cast::<ThreadDomain>() }
    }

    fn context(&self) -> &Context {
        // SAFETY: a context outlives its objects: `close` refuses while there are any.
        unsafe { Context::from_raw(self.raw.context) }
    }

    /// A parent domain refers to it.
    pub(crate) fn adopt(&self) {
        // Relaxed: a count; `dealloc` comes after, by contract.
        self.users.fetch_add(1, Ordering::Relaxed);
    }

    /// A parent domain that referred to it is gone.
    pub(crate) fn release(&self) {
        // Relaxed: as in `adopt`.
        self.users.fetch_sub(1, Ordering::Relaxed);
    }
}

/// `verbs_context.alloc_td`: `ibv_alloc_td(3)`.
///
/// # Safety
/// `context` is open, `init` is readable.
pub(crate) unsafe extern "C" fn alloc(context: *mut ibv_context, init: *mut ibv_td_init_attr) -> *mut ibv_td {
    // SAFETY: the caller's.
    let (this, init) = unsafe { (Context::from_raw(context), &*init) };
    if init.comp_mask != 0 {
        return errno::null(libc::EOPNOTSUPP);
    }
    this.adopt();
    let td = ThreadDomain { raw: ibv_td { context }, users: AtomicU32::new(0) };
    Box::into_raw(Box::new(td)).cast()
}

/// `verbs_context.dealloc_td`: `ibv_dealloc_td(3)`.
///
/// # Safety
/// `td` is allocated, and isn't used after success.
pub(crate) unsafe extern "C" fn dealloc(td: *mut ibv_td) -> c_int {
    // SAFETY: the caller's.
    let this = unsafe { ThreadDomain::from_raw(td) };
    // Relaxed: see `adopt`.
    if this.users.load(Ordering::Relaxed) != 0 {
        return libc::EBUSY;
    }
    this.context().release();
    // SAFETY: the box that `alloc` made.
    drop(unsafe { Box::from_raw(td.cast::<ThreadDomain>()) });
    0
}
