//! Memory regions.

use super::access::Access;
use super::context::Context;
use super::errno::Refused;
use super::mem::Mem;
use super::pd::Pd;
use super::sge::{Remote, Sge};
use super::target::verb;
use rdma_sys::{ibv_mr, ibv_rereg_mr_flags as rereg};
use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::ops::Range;
use std::ptr;
use std::rc::Rc;

/// The properties that `ibv_rereg_mr(3)` is to change.
pub(crate) enum Rereg<'a> {
    Translation(&'a Mem, Range<usize>),
    Pd(&'a Pd),
    Access(Access),
}

/// A memory region. Clones share it; the last one deregisters it.
#[derive(Clone)]
pub(crate) struct Mr(Rc<MrInner>);

struct MrInner {
    context: Rc<Context>,
    pd: RefCell<Pd>,
    memory: RefCell<Mem>,
    /// The region's offset in the memory.
    start: Cell<usize>,
    length: Cell<usize>,
    raw: Cell<*mut ibv_mr>,
}

impl Pd {
    /// Registers part of a memory.
    pub(crate) fn reg(&self, memory: &Mem, range: Range<usize>, access: Access) -> Result<Mr, Refused> {
        Mr::register(self, memory, range, access)
    }
}

impl Mr {
    fn register(pd: &Pd, memory: &Mem, range: Range<usize>, access: Access) -> Result<Mr, Refused> {
        assert!(range.end <= memory.len());
        let context = pd.context();
        let (addr, length) = ((memory.addr() + range.start as u64) as *mut _, range.len());
        // The header's macro calls the iova form for optional flags, so that older kernels can
        // ignore them.
        let (raw, name) = if access.0 & Access::RELAXED_ORDERING.0 != 0 {
            // SAFETY: the range is allocated, and stays so for as long as the region.
            let raw =
                unsafe { verb!(context.provider, ibv_reg_mr_iova2(pd.raw(), addr, length, addr as u64, access.0)) };
            (raw, "ibv_reg_mr_iova2")
        } else {
            // SAFETY: `memory` has these bytes, and the region keeps it as long as it is
            // registered.
            let raw = unsafe { verb!(context.provider, ibv_reg_mr(pd.raw(), addr, length, access.0 as c_int)) };
            (raw, "ibv_reg_mr")
        };
        Mr::made(pd, memory, range, raw, name)
    }

    /// Registers at an address other than the memory's own, by which peers and scatter/gather
    /// entries will name it.
    pub(crate) fn register_at(pd: &Pd, memory: &Mem, iova: u64, access: Access) -> Result<Mr, Refused> {
        let (addr, length) = (memory.addr() as *mut _, memory.len());
        // SAFETY: the memory is allocated, and stays so for as long as the region.
        let raw = unsafe { verb!(pd.context().provider, ibv_reg_mr_iova2(pd.raw(), addr, length, iova, access.0)) };
        Mr::made(pd, memory, 0..memory.len(), raw, "ibv_reg_mr_iova2")
    }

    fn made(pd: &Pd, memory: &Mem, range: Range<usize>, raw: *mut ibv_mr, verb: &'static str) -> Result<Mr, Refused> {
        if raw.is_null() {
            return Err(Refused::last(verb));
        }
        Ok(Mr(Rc::new(MrInner {
            context: pd.context().clone(),
            pd: RefCell::new(pd.clone()),
            memory: RefCell::new(memory.clone()),
            start: Cell::new(range.start),
            length: Cell::new(range.len()),
            raw: Cell::new(raw),
        })))
    }

    pub(crate) fn lkey(&self) -> u32 {
        // SAFETY: `self` keeps the memory region alive.
        unsafe { (*self.raw()).lkey }
    }

    pub(crate) fn rkey(&self) -> u32 {
        // SAFETY: `self` keeps the memory region alive.
        unsafe { (*self.raw()).rkey }
    }

    /// The region's address.
    pub(crate) fn addr(&self) -> u64 {
        self.0.memory.borrow().addr() + self.0.start.get() as u64
    }

    pub(crate) fn len(&self) -> usize {
        self.0.length.get()
    }

    /// A scatter/gather entry of part of it.
    pub(crate) fn sge(&self, range: Range<usize>) -> Sge {
        let length = u32::try_from(range.len()).expect("a length");
        Sge { addr: self.addr() + range.start as u64, length, lkey: self.lkey() }
    }

    /// A scatter/gather entry of all of it.
    pub(crate) fn all(&self) -> Sge {
        self.sge(0..self.len())
    }

    /// The address and key for a peer to reach byte `offset`.
    pub(crate) fn remote(&self, offset: usize) -> Remote {
        Remote { addr: self.addr() + offset as u64, rkey: self.rkey() }
    }

    pub(crate) fn put(&self, offset: usize, bytes: &[u8]) {
        self.0.memory.borrow().put(self.0.start.get() + offset, bytes);
    }

    pub(crate) fn take(&self, offset: usize, length: usize) -> Vec<u8> {
        self.0.memory.borrow().take(self.0.start.get() + offset, length)
    }

    pub(crate) fn fill(&self, value: u8) {
        self.put(0, &vec![value; self.len()]);
    }

    /// See [`Mem::number`].
    pub(crate) fn number(&self, offset: usize) -> u64 {
        self.0.memory.borrow().number(self.0.start.get() + offset)
    }

    pub(crate) fn set_number(&self, offset: usize, value: u64) {
        self.0.memory.borrow().set_number(self.0.start.get() + offset, value);
    }

    /// Deregisters the region now, even with work requests posted.
    pub(crate) fn deregister(&self) -> Result<(), Refused> {
        self.0.dereg()
    }

    pub(crate) fn rereg(&self, change: Rereg<'_>) -> Result<(), Refused> {
        let provider = self.0.context.provider;
        let raw = self.raw();
        let none = (ptr::null_mut(), ptr::null_mut(), 0, Access::NONE);
        let (flags, (pd, addr, length, access)) = match &change {
            Rereg::Translation(memory, range) => {
                assert!(range.end <= memory.len());
                let addr = (memory.addr() + range.start as u64) as *mut _;
                (rereg::IBV_REREG_MR_CHANGE_TRANSLATION, (none.0, addr, range.len(), none.3))
            }
            Rereg::Pd(pd) if pd.context().provider == provider => {
                (rereg::IBV_REREG_MR_CHANGE_PD, (pd.raw(), none.1, none.2, none.3))
            }
            Rereg::Pd(_) => panic!("the row takes a domain of the other device"),
            Rereg::Access(access) => (rereg::IBV_REREG_MR_CHANGE_ACCESS, (none.0, none.1, none.2, *access)),
        };
        // SAFETY: all objects live; the range is allocated, and kept below for as long as the
        // region.
        let value =
            unsafe { verb!(provider, ibv_rereg_mr(raw, flags.0 as c_int, pd, addr, length, access.0 as c_int)) };
        if value != 0 {
            // One of enum ibv_rereg_mr_err_code; the reason is in errno (ibv_rereg_mr(3)).
            return Err(Refused::last("ibv_rereg_mr"));
        }
        match change {
            Rereg::Translation(memory, range) => {
                self.0.memory.replace(memory.clone());
                self.0.start.set(range.start);
                self.0.length.set(range.len());
            }
            Rereg::Pd(pd) => drop(self.0.pd.replace(pd.clone())),
            Rereg::Access(_) => {}
        }
        Ok(())
    }

    pub(super) fn raw(&self) -> *mut ibv_mr {
        let raw = self.0.raw.get();
        assert!(!raw.is_null(), "the row uses a memory region that it deregistered");
        raw
    }
}

impl MrInner {
    fn dereg(&self) -> Result<(), Refused> {
        // SAFETY: live, or the cell would be null.
        let value = unsafe { verb!(self.context.provider, ibv_dereg_mr(self.raw.get())) };
        Refused::check("ibv_dereg_mr", value)?;
        self.raw.set(ptr::null_mut());
        Ok(())
    }
}

impl Drop for MrInner {
    fn drop(&mut self) {
        if !self.raw.get().is_null() {
            self.dereg().unwrap_or_else(|refused| self.context.complain(refused));
        }
    }
}
