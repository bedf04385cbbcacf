//! Address handles.

use super::attr::ah_attr;
use super::errno::Refused;
use super::mem::Mem;
use super::pd::Pd;
use super::port::{Gid, PORT, PortFacts};
use super::target::verb;
use super::wc::Wc;
use rdma_sys::{ibv_ah, ibv_ah_attr, ibv_grh, ibv_wc, ibv_wc_flags};
use std::rc::Rc;

/// A deliberate mistake in an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// A port that does not exist.
    Port,
    /// An entry beyond the GID table.
    GidIndex,
    /// No GRH.
    NoGrh,
}

/// An address handle. Clones share it; queue pairs keep the handles that they sent to.
#[derive(Clone)]
pub(crate) struct Ah(Rc<AhInner>);

struct AhInner {
    pd: Pd,
    raw: *mut ibv_ah,
}

impl Ah {
    pub(crate) fn create(pd: &Pd, port: &PortFacts, gid: &Gid) -> Result<Ah, Refused> {
        Ah::from_attr(pd, ah_attr(port, gid))
    }

    /// An address of the device's own port, with a mistake.
    pub(crate) fn create_flawed(pd: &Pd, port: &PortFacts, flaw: Flaw) -> Result<Ah, Refused> {
        let mut attr = ah_attr(port, &port.gid);
        match flaw {
            Flaw::Port => attr.port_num = PORT + 1,
            Flaw::GidIndex => attr.grh.sgid_index = u8::MAX,
            Flaw::NoGrh => attr.is_global = 0,
        }
        Ah::from_attr(pd, attr)
    }

    fn from_attr(pd: &Pd, mut attr: ibv_ah_attr) -> Result<Ah, Refused> {
        // SAFETY: the PD is live; `attr` is read during the call.
        let raw = unsafe { verb!(pd.context().provider, ibv_create_ah(pd.raw(), &raw mut attr)) };
        Ah::made(pd, raw, "ibv_create_ah")
    }

    /// The path back to the sender of a datagram whose GRH is at the start of `memory`
    /// (`ibv_create_ah_from_wc(3)`).
    pub(crate) fn reply(pd: &Pd, wc: &Wc, memory: &Mem) -> Result<Ah, Refused> {
        // SAFETY: integers and a union of integers.
        let mut raw_wc: ibv_wc = unsafe { std::mem::zeroed() };
        raw_wc.slid = wc.slid;
        raw_wc.src_qp = wc.src_qpn;
        raw_wc.byte_len = wc.bytes;
        raw_wc.wc_flags = if wc.has_grh { ibv_wc_flags::IBV_WC_GRH.0 } else { 0 };
        let grh = memory.addr() as *mut ibv_grh;
        // SAFETY: the PD is live; the header lies at the start of a memory of at least a page,
        // page-aligned, which the device finished writing before the completion.
        let raw = unsafe { verb!(pd.context().provider, ibv_create_ah_from_wc(pd.raw(), &raw mut raw_wc, grh, PORT)) };
        Ah::made(pd, raw, "ibv_create_ah_from_wc")
    }

    fn made(pd: &Pd, raw: *mut ibv_ah, verb: &'static str) -> Result<Ah, Refused> {
        if raw.is_null() {
            return Err(Refused::last(verb));
        }
        Ok(Ah(Rc::new(AhInner { pd: pd.clone(), raw })))
    }

    pub(super) fn raw(&self) -> *mut ibv_ah {
        self.0.raw
    }
}

impl Drop for AhInner {
    fn drop(&mut self) {
        // SAFETY: live; queue pairs that used it kept it until they were destroyed.
        let value = unsafe { verb!(self.pd.context().provider, ibv_destroy_ah(self.raw)) };
        Refused::check("ibv_destroy_ah", value).unwrap_or_else(|refused| self.pd.context().complain(refused));
    }
}
