//! Shared receive queues.

use super::context::Context;
use super::errno::PostRefused;
use super::errno::Refused;
use super::pd::Pd;
use super::raw_wr::RawRecvs;
use super::target::verb;
use super::wr::Recv;
use rdma_sys::{ibv_srq, ibv_srq_attr, ibv_srq_attr_mask, ibv_srq_init_attr};
use std::cell::Cell;
use std::ffi::c_int;
use std::ptr;
use std::rc::Rc;

/// A shared receive queue. Clones share it; the last one destroys it.
#[derive(Clone)]
pub(crate) struct Srq(Rc<SrqInner>);

struct SrqInner {
    pd: Pd,
    raw: Cell<*mut ibv_srq>,
}

/// `struct ibv_srq_attr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SrqAttr {
    pub(crate) depth: u32,
    pub(crate) sges: u32,
    pub(crate) limit: u32,
}

impl Srq {
    pub(crate) fn create(pd: &Pd, depth: u32, sges: u32) -> Result<Srq, Refused> {
        let attr = ibv_srq_attr { max_wr: depth, max_sge: sges, srq_limit: 0 };
        let mut init = ibv_srq_init_attr { srq_context: ptr::null_mut(), attr };
        // SAFETY: the PD is live; `init` may be read and written.
        let raw = unsafe { verb!(pd.context().provider, ibv_create_srq(pd.raw(), &raw mut init)) };
        if raw.is_null() {
            return Err(Refused::last("ibv_create_srq"));
        }
        Ok(Srq(Rc::new(SrqInner { pd: pd.clone(), raw: Cell::new(raw) })))
    }

    pub(super) fn context(&self) -> &Context {
        self.0.pd.context()
    }

    pub(crate) fn query(&self) -> Result<SrqAttr, Refused> {
        let mut attr = ibv_srq_attr { max_wr: 0, max_sge: 0, srq_limit: 0 };
        // SAFETY: live; `attr` may be written.
        let value = unsafe { verb!(self.0.pd.context().provider, ibv_query_srq(self.raw(), &raw mut attr)) };
        Refused::check("ibv_query_srq", value)?;
        Ok(SrqAttr { depth: attr.max_wr, sges: attr.max_sge, limit: attr.srq_limit })
    }

    /// Raises an event when fewer receives than this are left.
    pub(crate) fn set_limit(&self, limit: u32) -> Result<(), Refused> {
        self.modify(ibv_srq_attr { max_wr: 0, max_sge: 0, srq_limit: limit }, ibv_srq_attr_mask::IBV_SRQ_LIMIT)
    }

    pub(crate) fn resize(&self, depth: u32) -> Result<(), Refused> {
        self.modify(ibv_srq_attr { max_wr: depth, max_sge: 0, srq_limit: 0 }, ibv_srq_attr_mask::IBV_SRQ_MAX_WR)
    }

    fn modify(&self, mut attr: ibv_srq_attr, mask: ibv_srq_attr_mask) -> Result<(), Refused> {
        let provider = self.0.pd.context().provider;
        // SAFETY: live; `attr` is read during the call.
        let value = unsafe { verb!(provider, ibv_modify_srq(self.raw(), &raw mut attr, mask.0 as c_int)) };
        Refused::check("ibv_modify_srq", value)
    }

    pub(crate) fn post(&self, recvs: &[Recv]) -> Result<(), PostRefused> {
        let mut raw = RawRecvs::new(recvs);
        let mut bad = ptr::null_mut();
        // SAFETY: live; the list is linked and ends, and lives during the call.
        let errno = unsafe { rdma_sys::ibv_post_srq_recv(self.raw(), raw.first(), &raw mut bad) };
        raw.outcome("ibv_post_srq_recv", errno, bad)
    }

    pub(crate) fn try_destroy(&self) -> Result<(), Refused> {
        self.0.destroy()
    }

    pub(super) fn raw(&self) -> *mut ibv_srq {
        let raw = self.0.raw.get();
        assert!(!raw.is_null(), "the row uses a shared receive queue that it destroyed");
        raw
    }
}

impl SrqInner {
    fn destroy(&self) -> Result<(), Refused> {
        // SAFETY: live, or the cell would be null. Queue pairs keep it, and are the device's
        // possible reason for refusing.
        let value = unsafe { verb!(self.pd.context().provider, ibv_destroy_srq(self.raw.get())) };
        Refused::check("ibv_destroy_srq", value)?;
        self.raw.set(ptr::null_mut());
        Ok(())
    }
}

impl Drop for SrqInner {
    fn drop(&mut self) {
        if !self.raw.get().is_null() {
            self.destroy().unwrap_or_else(|refused| self.pd.context().complain(refused));
        }
    }
}
