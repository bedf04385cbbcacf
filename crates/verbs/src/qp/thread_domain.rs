//! A thread domain: the promise that one thread at a time uses the objects in it, so that the
//! driver can skip its locks (ibv_alloc_td(3), ibv_alloc_parent_domain(3)).
//!
//! Each QP that requests one ([`crate::QpSpec::thread_domain`]) has its own domain. `QueuePair`
//! keeps the promise by its type: one thread at a time uses it. No type guarantees that for two QPs
//! in one domain, and drivers give both one doorbell without a lock (mlx5). CQs and SRQs are not
//! put into a domain: dropping a QP cleans its CQ on the dropping thread, and polling frees an
//! SRQ's entries, which needs their locks.

use std::ptr::NonNull;
use std::sync::Arc;

use rdma_sys::{ibv_parent_domain_init_attr, ibv_pd, ibv_td, ibv_td_init_attr};

use crate::device::context::ContextInner;
use crate::device::extended::extended;
use crate::device::provider::verb;
use crate::errno::{Errno, VerbError};
use crate::memory::pd::PdInner;

/// A thread domain with a PD: a parent domain, for one QP. Registrations on the PD serve it.
#[derive(Debug)]
pub(crate) struct OwnDomain {
    raw: NonNull<ibv_pd>,
    /// Freed after the parent domain, like the next field.
    thread_domain: Option<ThreadDomain>,
    base: Arc<PdInner>,
}

// SAFETY: it may be allocated and freed on any thread; nothing else is done with it.
unsafe impl Send for OwnDomain {}
// SAFETY: through `&OwnDomain` threads only read addresses.
unsafe impl Sync for OwnDomain {}

impl OwnDomain {
    pub(crate) fn alloc(base: &Arc<PdInner>) -> Result<OwnDomain, VerbError> {
        let thread_domain = ThreadDomain::alloc(&base.context)?;
        let raw = thread_domain.parent_domain(base)?;
        Ok(OwnDomain { raw, thread_domain: Some(thread_domain), base: base.clone() })
    }

    pub(crate) fn as_ptr(&self) -> *mut ibv_pd {
        self.raw.as_ptr()
    }
}

impl Drop for OwnDomain {
    fn drop(&mut self) {
        // SAFETY: the QP that was made on it is gone; freed once.
        let ret = unsafe { verb!(self.base.provider(), ibv_dealloc_pd(self.as_ptr())) };
        if let Some(errno) = self.base.context.undestroyed(ret) {
            // The device would refuse to free the thread domain too.
            std::mem::forget(self.thread_domain.take());
            let device = &self.base.context.name;
            tracing::warn!(pd = self.base.id, %device, %errno, "the parent domain would not go");
        }
    }
}

#[derive(Debug)]
struct ThreadDomain {
    context: Arc<ContextInner>,
    raw: NonNull<ibv_td>,
}

impl ThreadDomain {
    fn alloc(context: &Arc<ContextInner>) -> Result<ThreadDomain, VerbError> {
        let unsupported = || VerbError::new("ibv_alloc_td", &context.name, Errno::new(libc::EOPNOTSUPP));
        // SAFETY: the context is open.
        let alloc = unsafe { extended!(context.as_ptr(), alloc_td) }.ok_or_else(unsupported)?;
        // SAFETY: integers; a `comp_mask` of 0 means that fields of newer headers are not set.
        let mut init: ibv_td_init_attr = unsafe { std::mem::zeroed() };
        // SAFETY: the context is open; the attributes are read during the call.
        let raw = unsafe { alloc(context.as_ptr(), &raw mut init) };
        let raw = NonNull::new(raw).ok_or_else(|| VerbError::last("ibv_alloc_td", || context.name.clone()))?;
        Ok(ThreadDomain { context: context.clone(), raw })
    }

    /// A parent domain of `base` with this thread domain.
    fn parent_domain(&self, base: &PdInner) -> Result<NonNull<ibv_pd>, VerbError> {
        let unsupported = || VerbError::new("ibv_alloc_parent_domain", base.describe(), Errno::new(libc::EOPNOTSUPP));
        // SAFETY: the context is open.
        let alloc = unsafe { extended!(self.context.as_ptr(), alloc_parent_domain) }.ok_or_else(unsupported)?;
        // SAFETY: integers, pointers and optional functions, and a `comp_mask` of 0, as above.
        let mut init: ibv_parent_domain_init_attr = unsafe { std::mem::zeroed() };
        (init.pd, init.td) = (base.as_ptr(), self.raw.as_ptr());
        // SAFETY: the context is open, PD and thread domain are alive and its own; the attributes
        // are read during the call.
        let raw = unsafe { alloc(self.context.as_ptr(), &raw mut init) };
        NonNull::new(raw).ok_or_else(|| VerbError::last("ibv_alloc_parent_domain", || base.describe()))
    }
}

impl Drop for ThreadDomain {
    fn drop(&mut self) {
        // SAFETY: the context is open. The parent domain is gone before its thread domain, which is
        // freed once, here; a driver that can allocate one can deallocate it.
        let ret = unsafe {
            extended!(self.context.as_ptr(), dealloc_td).map_or(libc::EOPNOTSUPP, |dealloc| dealloc(self.raw.as_ptr()))
        };
        if let Some(errno) = self.context.undestroyed(ret) {
            tracing::warn!(device = %self.context.name, %errno, "the thread domain would not go");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::ptr;

    use rdma_sys::ibv_context;
    use verbline_softnic::qp_table::Transport;

    use super::*;
    use crate::device::context::Context;
    use crate::qp::QpSpec;

    thread_local! {
        /// The fake driver's domain (its `context` is not looked at), and the number of its live
        /// domains.
        static ALIVE: Cell<i32> = const { Cell::new(0) };
        static PARENT: Cell<*mut ibv_pd> = const { Cell::new(ptr::null_mut()) };
    }

    unsafe extern "C" fn alloc_td(context: *mut ibv_context, _: *mut ibv_td_init_attr) -> *mut ibv_td {
        ALIVE.set(ALIVE.get() + 1);
        Box::into_raw(Box::new(ibv_td { context }))
    }

    unsafe extern "C" fn dealloc_td(td: *mut ibv_td) -> libc::c_int {
        ALIVE.set(ALIVE.get() - 1);
        // SAFETY: `alloc_td`'s box.
        drop(unsafe { Box::from_raw(td) });
        0
    }

    /// Checks its arguments; returns another PD of the software RNIC, or ENOMEM.
    unsafe extern "C" fn alloc_parent(
        context: *mut ibv_context,
        init: *mut ibv_parent_domain_init_attr,
    ) -> *mut ibv_pd {
        // SAFETY: ibv_alloc_parent_domain is called with attributes that live during the call.
        let init = unsafe { &*init };
        assert!(!init.pd.is_null() && !init.td.is_null() && init.comp_mask == 0);
        assert_eq!(ALIVE.get(), 1, "the thread domain is there first");
        if PARENT.get().is_null() {
            // SAFETY: the location is this thread's own.
            unsafe { *libc::__errno_location() = libc::ENOMEM };
            return ptr::null_mut();
        }
        // SAFETY: the context is open.
        PARENT.set(unsafe { verbline_softnic::provider::ibv_alloc_pd(context) });
        PARENT.get()
    }

    /// A context of the software RNIC, with the fake driver's thread domains or without any.
    fn open(fake: bool) -> Context {
        crate::fake_device::soft_with(|table| {
            table.alloc_td = fake.then_some(alloc_td as _);
            table.dealloc_td = fake.then_some(dealloc_td as _);
            table.alloc_parent_domain = fake.then_some(alloc_parent as _);
        })
    }

    #[test]
    fn a_parent_domain_is_made_of_both_and_goes_before_them() {
        let context = open(true);
        let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(16, None).unwrap());
        PARENT.set(ptr::dangling_mut());
        let qp = pd.create_qp(&QpSpec { thread_domain: true, ..QpSpec::new(Transport::Rc, &cq) }).unwrap();
        assert!(qp.has_thread_domain());
        assert_eq!(ALIVE.get(), 1);
        // SAFETY: the QP is live.
        assert_eq!(unsafe { (*qp.raw.as_ptr()).pd }, PARENT.get(), "it is made on the parent domain");
        assert_eq!(qp.pd().id(), pd.id());
        drop(pd);
        assert_eq!(ALIVE.get(), 1, "the QP keeps it");
        drop(qp);
        assert_eq!(ALIVE.get(), 0);
    }

    #[test]
    fn a_parent_domain_that_is_refused_leaves_no_thread_domain() {
        let pd = open(true).alloc_pd().unwrap();
        PARENT.set(ptr::null_mut());
        let error = OwnDomain::alloc(&pd.inner).unwrap_err();
        assert_eq!((error.verb, error.errno.raw(), ALIVE.get()), ("ibv_alloc_parent_domain", libc::ENOMEM, 0));
    }

    #[test]
    fn a_qp_that_gets_no_domain_is_made_without() {
        for fake in [true, false] {
            let context = open(fake);
            let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(16, None).unwrap());
            PARENT.set(ptr::null_mut());
            let qp = pd.create_qp(&QpSpec { thread_domain: true, ..QpSpec::new(Transport::Rc, &cq) }).unwrap();
            assert!(!qp.has_thread_domain());
            assert_eq!(ALIVE.get(), 0);
        }
    }

    #[test]
    fn a_driver_without_thread_domains_says_so() {
        let error = OwnDomain::alloc(&open(false).alloc_pd().unwrap().inner).unwrap_err();
        assert_eq!(
            error.to_string(),
            "ibv_alloc_td of soft0: EOPNOTSUPP (Operation not supported); this device has no thread domains: make the \
             QPs on the PD itself, and the driver takes its locks"
        );
    }
}
