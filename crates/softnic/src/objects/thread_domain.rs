//! Thread domains: a caller's promise that one thread at a time uses the objects of each.
//!
//! Guarantees: a domain that a parent domain still refers to isn't deallocated (`EBUSY`). A thread
//! domain has no other effect: posting never takes a lock, so there is none to omit.

use crate::objects::Object;
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

// SAFETY: `raw` is the first field of a `repr(C)` struct.
unsafe impl Object for ThreadDomain {
    type Raw = ibv_td;
}

impl ThreadDomain {
    /// Counts a parent domain that refers to it.
    pub(crate) fn adopt(&self) {
        // Relaxed: a count; `retire` comes after, by contract.
        self.users.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a parent domain that no longer does.
    pub(crate) fn release(&self) {
        // Relaxed: as in `adopt`.
        self.users.fetch_sub(1, Ordering::Relaxed);
    }
}

/// `ibv_alloc_td(3)`.
pub(crate) fn alloc(context: &Context) -> *mut ibv_td {
    context.adopt();
    ThreadDomain { raw: ibv_td { context: context.as_ptr() }, users: AtomicU32::new(0) }.into_raw()
}

/// `ibv_dealloc_td(3)`, up to freeing it.
pub(crate) fn retire(td: &ThreadDomain) -> Result<(), c_int> {
    // Relaxed: see `adopt`.
    if td.users.load(Ordering::Relaxed) != 0 {
        return Err(libc::EBUSY);
    }
    // SAFETY: a context outlives its objects: `context::retire` refuses while there are any.
    unsafe { Context::from_raw(td.raw.context) }.release();
    Ok(())
}
