//! Protection domains.

use super::context::Context;
use super::errno::Refused;
use super::target::verb;
use rdma_sys::ibv_pd;
use std::cell::Cell;
use std::ptr;
use std::rc::Rc;

/// A protection domain. Clones share it; the last one deallocates it.
#[derive(Clone)]
pub(crate) struct Pd(Rc<PdInner>);

struct PdInner {
    context: Rc<Context>,
    raw: Cell<*mut ibv_pd>,
}

impl Pd {
    pub(super) fn alloc(context: &Rc<Context>) -> Result<Pd, Refused> {
        // SAFETY: the context is open.
        let raw = unsafe { verb!(context.provider, ibv_alloc_pd(context.raw)) };
        if raw.is_null() {
            return Err(Refused::last("ibv_alloc_pd"));
        }
        Ok(Pd(Rc::new(PdInner { context: context.clone(), raw: Cell::new(raw) })))
    }

    pub(super) fn context(&self) -> &Rc<Context> {
        &self.0.context
    }

    pub(super) fn raw(&self) -> *mut ibv_pd {
        let raw = self.0.raw.get();
        assert!(!raw.is_null(), "the row uses a protection domain that it deallocated");
        raw
    }

    /// Deallocates the domain now, if the device permits.
    pub(crate) fn try_dealloc(&self) -> Result<(), Refused> {
        self.0.dealloc()
    }
}

impl PdInner {
    fn dealloc(&self) -> Result<(), Refused> {
        // SAFETY: live, or the cell would be null; objects created in it keep it, and are the
        // device's possible reason for refusing.
        let value = unsafe { verb!(self.context.provider, ibv_dealloc_pd(self.raw.get())) };
        Refused::check("ibv_dealloc_pd", value)?;
        self.raw.set(ptr::null_mut());
        Ok(())
    }
}

impl Drop for PdInner {
    fn drop(&mut self) {
        if !self.raw.get().is_null() {
            self.dealloc().unwrap_or_else(|refused| self.context.complain(refused));
        }
    }
}
