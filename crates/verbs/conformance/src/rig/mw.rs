//! Memory windows.

use super::access::Access;
use super::errno::Refused;
use super::mr::Mr;
use super::pd::Pd;
use rdma_sys::{ibv_mw, ibv_mw_bind_info, ibv_mw_type};
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::ptr;
use std::rc::Rc;

/// `enum ibv_mw_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MwType {
    /// Bound by `ibv_bind_mw(3)`.
    One,
    /// Bound by a work request.
    Two,
}

/// The memory that a window is bound to.
#[derive(Clone)]
pub(crate) struct Window {
    pub(crate) mr: Mr,
    /// The range within the region.
    pub(crate) range: Range<usize>,
    pub(crate) access: Access,
}

impl Window {
    pub(super) fn raw(&self) -> ibv_mw_bind_info {
        ibv_mw_bind_info {
            mr: self.mr.raw(),
            addr: self.mr.addr() + self.range.start as u64,
            length: self.range.len() as u64,
            mw_access_flags: self.access.0,
        }
    }
}

/// A memory window. Clones share it; the last one deallocates it.
#[derive(Clone)]
pub(crate) struct Mw(Rc<MwInner>);

struct MwInner {
    pd: Pd,
    raw: Cell<*mut ibv_mw>,
    /// The regions that it may be bound to, kept for as long as it may be.
    bound: RefCell<Vec<Mr>>,
}

impl Mw {
    pub(crate) fn alloc(pd: &Pd, kind: MwType) -> Result<Mw, Refused> {
        let kind = match kind {
            MwType::One => ibv_mw_type::IBV_MW_TYPE_1,
            MwType::Two => ibv_mw_type::IBV_MW_TYPE_2,
        };
        // SAFETY: the PD is live. The function is in the context's table, of either provider.
        let raw = unsafe { rdma_sys::ibv_alloc_mw(pd.raw(), kind) };
        match raw.filter(|raw| !raw.is_null()) {
            Some(raw) => Ok(Mw(Rc::new(MwInner { pd: pd.clone(), raw: Cell::new(raw), bound: RefCell::default() }))),
            None => Err(Refused::last("ibv_alloc_mw")),
        }
    }

    /// The R_Key; each bind of type 1 changes it.
    pub(crate) fn rkey(&self) -> u32 {
        // SAFETY: `self` keeps the memory window alive.
        unsafe { (*self.raw()).rkey }
    }

    /// The key to give to the next bind of a type 2 window (`ibv_inc_rkey(3)`).
    pub(crate) fn next_rkey(&self) -> u32 {
        let rkey = self.rkey();
        rkey & !0xff | (rkey.wrapping_add(1) & 0xff)
    }

    /// Sets the handle's key, which the program maintains after a posted bind of a type 2 window
    /// (ibv_post_send(3)), or after a failed bind of type 1 (ibv_bind_mw(3)).
    pub(crate) fn set_rkey(&self, rkey: u32) {
        // SAFETY: live, and only this thread has it.
        unsafe { (*self.raw()).rkey = rkey };
    }

    pub(crate) fn try_dealloc(&self) -> Result<(), Refused> {
        self.0.dealloc()
    }

    pub(super) fn keep(&self, mr: &Mr) {
        self.0.bound.borrow_mut().push(mr.clone());
    }

    pub(super) fn raw(&self) -> *mut ibv_mw {
        let raw = self.0.raw.get();
        assert!(!raw.is_null(), "the row uses a memory window that it deallocated");
        raw
    }
}

impl MwInner {
    fn dealloc(&self) -> Result<(), Refused> {
        // SAFETY: live, or the cell would be null.
        let value = unsafe { rdma_sys::ibv_dealloc_mw(self.raw.get()) };
        Refused::check("ibv_dealloc_mw", value)?;
        self.raw.set(ptr::null_mut());
        Ok(())
    }
}

impl Drop for MwInner {
    fn drop(&mut self) {
        if !self.raw.get().is_null() {
            self.dealloc().unwrap_or_else(|refused| self.pd.context().complain(refused));
        }
    }
}
