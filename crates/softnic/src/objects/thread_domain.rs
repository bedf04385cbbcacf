//! Thread domains: a caller's word that what is made in one is used by one thread at a time.
//!
//! What it guarantees: a domain that a parent domain still refers to isn't deallocated (`EBUSY`).
//! Nothing else follows from one here: posting takes no lock in any case, so that there is none to
//! leave out.

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
    /// A parent domain refers to it.
    pub(crate) fn adopt(&self) {
        // Relaxed: a count; `retire` comes after, by contract.
        self.users.fetch_add(1, Ordering::Relaxed);
    }

    /// A parent domain that referred to it is gone.
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
