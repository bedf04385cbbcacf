//! Protection domains: sets of objects that may be used together.
//!
//! Guarantees: a domain's number is never used again, so a key of a deallocated domain matches
//! nothing. A domain with objects isn't deallocated (`EBUSY`). A parent domain is its domain under
//! another handle, with the same number, so a region registered in one serves both.
//!
//! A thread domain, a caller's promise that one thread at a time uses the objects of each, isn't
//! deallocated while a parent domain refers to it. It has no other effect: posting never takes a
//! lock, so there is none to omit.

use crate::objects::context::{Context, present};
use crate::objects::{Object, Users};
use crate::queues::rq::Rq;
use rdma_sys::*;
use std::collections::BTreeSet;
use std::ffi::c_int;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// `ibv_pd` first, so that a pointer to one is a pointer to the other.
#[repr(C)]
pub(crate) struct Pd {
    raw: ibv_pd,
    /// The number that keys and queue pairs compare.
    pub(crate) id: u32,
    users: Users,
    /// The parts of a parent domain. The thread domain may be absent.
    parts: Option<(NonNull<Pd>, Option<NonNull<ThreadDomain>>)>,
    /// Receive queues whose senders rely on capacities granted by keys of this domain.
    receive_queues: Mutex<BTreeSet<NonNull<Rq>>>,
}

// SAFETY: `raw` is the first field of a `repr(C)` struct.
unsafe impl Object for Pd {
    type Raw = ibv_pd;
}

impl Pd {
    pub(crate) fn as_ptr(&self) -> *mut ibv_pd {
        (&raw const self.raw).cast_mut()
    }

    pub(crate) fn context(&self) -> &Context {
        // SAFETY: a context outlives its objects: `context::retire` refuses while there are any.
        unsafe { Context::from_raw(self.raw.context) }
    }

    /// Counts an object that refers to it.
    pub(crate) fn adopt(&self) {
        self.users.adopt();
        self.context().users.adopt();
    }

    /// Counts an object that no longer does.
    pub(crate) fn release(&self) {
        self.users.release();
        self.context().users.release();
    }

    /// Makes [`Pd::distrust`] go through this queue's receives from now on.
    ///
    /// # Safety
    /// The queue stays where it is until [`Pd::remove`].
    pub(crate) unsafe fn add(&self, rq: &Rq) {
        self.receive_queues().insert(NonNull::from(rq));
    }

    /// Called before the queue is freed.
    pub(crate) fn remove(&self, rq: &Rq) {
        self.receive_queues().remove(&NonNull::from(rq));
    }

    /// Called when `key` grants nothing any more: senders look closer at posted receives that name
    /// it.
    pub(crate) fn distrust(&self, key: u32) {
        for rq in &*self.receive_queues() {
            // SAFETY: the contract of `add`; `remove` waits for this lock.
            unsafe { rq.as_ref() }.distrust(key);
        }
    }

    /// The queues of the domain itself, under either handle.
    fn receive_queues(&self) -> MutexGuard<'_, BTreeSet<NonNull<Rq>>> {
        // SAFETY: the base domain can't be deallocated while a parent domain refers to it.
        let domain = self.parts.map_or(self, |(base, _)| unsafe { base.as_ref() });
        // Each change is one insertion or removal: a panic leaves the set whole.
        domain.receive_queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `ibv_alloc_pd(3)`.
pub(crate) fn alloc(context: &Context) -> Result<*mut ibv_pd, c_int> {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    // Relaxed: only uniqueness matters.
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    if id == 0 {
        // Every number was used once: an old key could match any number.
        NEXT.store(0, Ordering::Relaxed);
        return Err(libc::ENOMEM);
    }
    context.users.adopt();
    let raw = ibv_pd { context: context.as_ptr(), handle: id };
    Ok(Pd { raw, id, users: Users::default(), parts: None, receive_queues: Mutex::default() }.into_raw())
}

/// The protection domain if its device is still there; `EIO` otherwise.
///
/// # Safety
/// `pd` is allocated.
pub(crate) unsafe fn present_pd<'a>(pd: *mut ibv_pd) -> Result<&'a Pd, c_int> {
    // SAFETY: allocated, by the contract, and its context outlives it.
    unsafe { present((*pd).context).map(|_| Pd::from_raw(pd)) }
}

/// `ibv_alloc_parent_domain(3)`, of a domain and perhaps a thread domain.
pub(crate) fn alloc_parent(context: &Context, base: &Pd, td: Option<&ThreadDomain>) -> *mut ibv_pd {
    base.adopt();
    if let Some(td) = td {
        td.users.adopt();
    }
    let raw = ibv_pd { context: context.as_ptr(), handle: base.id };
    let parts = Some((NonNull::from(base), td.map(NonNull::from)));
    Pd { raw, id: base.id, users: Users::default(), parts, receive_queues: Mutex::default() }.into_raw()
}

/// `ibv_dealloc_pd(3)`, of a parent domain too, up to freeing it.
pub(crate) fn retire(pd: &Pd) -> Result<(), c_int> {
    pd.users.gone()?;
    match pd.parts {
        None => pd.context().users.release(),
        Some((base, td)) => {
            // SAFETY: both are alive: they can't be deallocated while the parent domain refers to
            // them, up to here.
            let (base, td) = unsafe { (base.as_ref(), td.map(|td| td.as_ref())) };
            base.release();
            if let Some(td) = td {
                td.users.release();
            }
        }
    }
    Ok(())
}

/// `ibv_td` first, so that a pointer to one is a pointer to the other.
#[repr(C)]
pub(crate) struct ThreadDomain {
    raw: ibv_td,
    /// The parent domains that refer to it.
    pub(crate) users: Users,
}

// SAFETY: `raw` is the first field of a `repr(C)` struct.
unsafe impl Object for ThreadDomain {
    type Raw = ibv_td;
}

/// `ibv_alloc_td(3)`.
pub(crate) fn alloc_td(context: &Context) -> *mut ibv_td {
    context.users.adopt();
    ThreadDomain { raw: ibv_td { context: context.as_ptr() }, users: Users::default() }.into_raw()
}

/// `ibv_dealloc_td(3)`, up to freeing it.
pub(crate) fn retire_td(td: &ThreadDomain) -> Result<(), c_int> {
    td.users.gone()?;
    // SAFETY: a context outlives its objects: `context::retire` refuses while there are any.
    unsafe { Context::from_raw(td.raw.context) }.users.release();
    Ok(())
}
