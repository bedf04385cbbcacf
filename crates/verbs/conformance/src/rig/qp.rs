//! Queue pairs.

use super::ah::Ah;
use super::attr::{Attr, AttrMask, State, Transport};
use super::cq::Cq;
use super::errno::{PostRefused, Refused};
use super::mw::{Mw, Window};
use super::pd::Pd;
use super::port::Gid;
use super::query::Queried;
use super::raw_wr::{RawRecvs, RawSends, UNTOUCHED};
use super::srq::Srq;
use super::target::verb;
use super::wr::{Recv, Target, Wr};
use crate::check::{Failure, Outcome, same};
use rdma_sys::{ibv_gid, ibv_mw_bind, ibv_qp, ibv_qp_attr, ibv_qp_cap, ibv_qp_init_attr, ibv_send_flags, ibv_send_wr};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::ptr;
use std::rc::Rc;
use verbline_softnic::mlx5dv::{QpExtras, mlx5dv_create_qp};

/// `struct ibv_qp_cap`, requested or granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cap {
    pub(crate) send_wr: u32,
    pub(crate) recv_wr: u32,
    pub(crate) send_sge: u32,
    pub(crate) recv_sge: u32,
    pub(crate) inline_bytes: u32,
}

impl Default for Cap {
    fn default() -> Cap {
        Cap { send_wr: 16, recv_wr: 16, send_sge: 4, recv_sge: 4, inline_bytes: 64 }
    }
}

impl Cap {
    pub(crate) fn from_query(raw: &ibv_qp_cap) -> Cap {
        Cap {
            send_wr: raw.max_send_wr,
            recv_wr: raw.max_recv_wr,
            send_sge: raw.max_send_sge,
            recv_sge: raw.max_recv_sge,
            inline_bytes: raw.max_inline_data,
        }
    }

    fn raw(self) -> ibv_qp_cap {
        ibv_qp_cap {
            max_send_wr: self.send_wr,
            max_recv_wr: self.recv_wr,
            max_send_sge: self.send_sge,
            max_recv_sge: self.recv_sge,
            max_inline_data: self.inline_bytes,
        }
    }
}

/// The arguments of `ibv_create_qp(3)`.
pub(crate) struct QpSpec<'a> {
    pub(crate) transport: Transport,
    pub(crate) send_cq: &'a Cq,
    pub(crate) recv_cq: &'a Cq,
    pub(crate) srq: Option<&'a Srq>,
    pub(crate) cap: Cap,
    pub(crate) sig_all: bool,
    /// The queue pair's use of signature keys.
    pub(crate) extras: QpExtras,
}

/// A queue pair. Clones share it; the last one destroys it.
#[derive(Clone)]
pub(crate) struct Qp(Rc<QpInner>);

struct QpInner {
    pd: Pd,
    transport: Transport,
    raw: Cell<*mut ibv_qp>,
    granted: Cap,
    /// Address handles of posted work requests, kept until the queue pair is gone.
    addresses: RefCell<Vec<Ah>>,
    windows: RefCell<Vec<Mw>>,
    keys: RefCell<Vec<Box<dyn Any>>>,
    _send_cq: Cq,
    _recv_cq: Cq,
    _srq: Option<Srq>,
}

impl Qp {
    /// A queue pair whose queues have one CQ, without an SRQ or signature keys.
    pub(crate) fn on(pd: &Pd, transport: Transport, cq: &Cq, cap: Cap) -> Result<Qp, Refused> {
        let extras = QpExtras::default();
        Qp::create(pd, &QpSpec { transport, send_cq: cq, recv_cq: cq, srq: None, cap, sig_all: false, extras })
    }

    pub(crate) fn create(pd: &Pd, spec: &QpSpec<'_>) -> Result<Qp, Refused> {
        let mut init = ibv_qp_init_attr {
            qp_context: ptr::null_mut(),
            send_cq: spec.send_cq.raw(),
            recv_cq: spec.recv_cq.raw(),
            srq: spec.srq.map_or(ptr::null_mut(), Srq::raw),
            cap: spec.cap.raw(),
            qp_type: spec.transport.raw(),
            sq_sig_all: spec.sig_all.into(),
        };
        let raw = if spec.extras == QpExtras::default() {
            // SAFETY: all objects live; `init` may be read and written.
            unsafe { verb!(pd.context().provider, ibv_create_qp(pd.raw(), &raw mut init)) }
        } else {
            assert!(pd.context().has(super::context::Cap::Signatures), "the row needs Cap::Signatures");
            // SAFETY: all objects live; `init` may be read and written; it is the software RNIC.
            unsafe { mlx5dv_create_qp(pd.raw(), &raw mut init, spec.extras) }
        };
        if raw.is_null() {
            return Err(Refused::last("ibv_create_qp"));
        }
        Ok(Qp(Rc::new(QpInner {
            pd: pd.clone(),
            transport: spec.transport,
            raw: Cell::new(raw),
            granted: Cap::from_query(&init.cap),
            addresses: RefCell::default(),
            windows: RefCell::default(),
            keys: RefCell::default(),
            _send_cq: spec.send_cq.clone(),
            _recv_cq: spec.recv_cq.clone(),
            _srq: spec.srq.cloned(),
        })))
    }

    pub(crate) fn number(&self) -> u32 {
        // SAFETY: `self` keeps the queue pair alive.
        unsafe { (*self.raw()).qp_num }
    }

    pub(crate) fn transport(&self) -> Transport {
        self.0.transport
    }

    /// The capacities that the device granted at creation.
    pub(crate) fn granted(&self) -> Cap {
        self.0.granted
    }

    /// Valid attributes for the queue pair, with an empty mask.
    pub(crate) fn attr(&self, peer_qpn: u32) -> Attr {
        let context = self.0.pd.context();
        Attr::valid(context.port(), context.far_port(), peer_qpn)
    }

    pub(crate) fn modify(&self, attr: &Attr) -> Result<(), Refused> {
        Refused::check("ibv_modify_qp", self.modify_value(attr))
    }

    /// The verb's plain result.
    pub(crate) fn modify_value(&self, attr: &Attr) -> c_int {
        let mut raw = super::attr::copy(&attr.raw);
        let mask = attr.mask.0 as c_int;
        // SAFETY: live; `raw` is read during the call.
        unsafe { verb!(self.0.pd.context().provider, ibv_modify_qp(self.raw(), &raw mut raw, mask)) }
    }

    pub(crate) fn query(&self) -> Result<Queried, Refused> {
        // SAFETY: integers, and pointers that may be null.
        let (mut attr, mut init) = unsafe { std::mem::zeroed::<(ibv_qp_attr, ibv_qp_init_attr)>() };
        // All attributes, which is what `ibv_query_qp` fills on every device.
        const ALL: c_int = 0x01ff_ffff;
        let provider = self.0.pd.context().provider;
        // SAFETY: live; both may be written.
        let value = unsafe { verb!(provider, ibv_query_qp(self.raw(), &raw mut attr, ALL, &raw mut init)) };
        Refused::check("ibv_query_qp", value)?;
        Ok(Queried::new(attr, &init))
    }

    /// The state that the device reports.
    pub(crate) fn state(&self) -> Outcome<State> {
        self.query()?.state().ok_or_else(|| Failure::new("ibv_query_qp answered a state that is none"))
    }

    pub(crate) fn expect_state(&self, want: State) -> Outcome {
        same("the state of the queue pair", self.state()?, want)
    }

    /// Posts a linked list of work requests, then overwrites all of it: the caller may reuse it.
    pub(crate) fn post_send(&self, wrs: &[Wr]) -> Result<(), PostRefused> {
        let mut raw = self.raw_sends(wrs);
        let base = raw.first();
        let mut bad: *mut ibv_send_wr = ptr::without_provenance_mut(UNTOUCHED);
        // SAFETY: live; the list is linked and ends, and lives during the call with its
        // scatter/gather lists. Inline data, which the CPU itself reads, was found to be ours by
        // `raw_sends`.
        let errno = unsafe { rdma_sys::ibv_post_send(self.raw(), base, &raw mut bad) };
        let outcome = PostRefused::check("ibv_post_send", errno, bad.addr(), base.addr(), size_of::<ibv_send_wr>());
        raw.scribble();
        outcome
    }

    pub(super) fn keep_key(&self, key: impl Any) {
        self.0.keys.borrow_mut().push(Box::new(key));
    }

    /// Posts one work request.
    pub(crate) fn send(&self, wr: Wr) -> Result<(), PostRefused> {
        self.post_send(&[wr])
    }

    pub(crate) fn post_recv(&self, recvs: &[Recv]) -> Result<(), PostRefused> {
        let mut raw = RawRecvs::new(recvs);
        let mut bad = ptr::without_provenance_mut(UNTOUCHED);
        // SAFETY: live; the list is linked and ends, and lives during the call.
        let errno = unsafe { rdma_sys::ibv_post_recv(self.raw(), raw.first(), &raw mut bad) };
        raw.outcome("ibv_post_recv", errno, bad)
    }

    /// Posts one receive.
    pub(crate) fn recv(&self, recv: Recv) -> Result<(), PostRefused> {
        self.post_recv(&[recv])
    }

    pub(crate) fn attach(&self, group: &Gid) -> Result<(), Refused> {
        let gid = ibv_gid { raw: group.0 };
        // SAFETY: live; `gid` is read during the call.
        let value = unsafe { verb!(self.0.pd.context().provider, ibv_attach_mcast(self.raw(), &raw const gid, 0)) };
        Refused::check("ibv_attach_mcast", value)
    }

    pub(crate) fn detach(&self, group: &Gid) -> Result<(), Refused> {
        let gid = ibv_gid { raw: group.0 };
        // SAFETY: live; `gid` is read during the call.
        let value = unsafe { verb!(self.0.pd.context().provider, ibv_detach_mcast(self.raw(), &raw const gid, 0)) };
        Refused::check("ibv_detach_mcast", value)
    }

    pub(crate) fn try_destroy(&self) -> Result<(), Refused> {
        self.0.destroy()
    }

    /// Goes to ERR.
    pub(crate) fn to_err(&self) -> Result<(), Refused> {
        self.modify(&self.attr(0).to(State::Err))
    }

    /// Goes to RESET.
    pub(crate) fn to_reset(&self) -> Result<(), Refused> {
        self.modify(&self.attr(0).to(State::Reset))
    }

    /// Goes from RESET to INIT, with the attributes that the transport needs.
    pub(crate) fn to_init(&self) -> Result<(), Refused> {
        let mask = match self.transport() {
            Transport::Rc | Transport::Uc => AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::ACCESS_FLAGS,
            Transport::Ud => AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::QKEY,
            Transport::RawPacket => AttrMask::PORT,
        };
        self.modify(&self.attr(0).to(State::Init).masked(mask | AttrMask::STATE))
    }

    pub(super) fn raw(&self) -> *mut ibv_qp {
        let raw = self.0.raw.get();
        assert!(!raw.is_null(), "the row uses a queue pair that it destroyed");
        raw
    }

    fn raw_sends(&self, wrs: &[Wr]) -> RawSends {
        let context = self.0.pd.context();
        let mut raw = RawSends::default();
        for wr in wrs {
            for sge in wr.sges.iter().filter(|_| wr.is_inline()) {
                assert!(sge.length > 0, "an inline entry of length 0 may mean 2 GiB that the CPU would read");
                assert!(context.owns(sge.addr, sge.length as usize), "inline data must be this rig's memory");
            }
            match &wr.target {
                Target::Ud { ah, .. } => self.0.addresses.borrow_mut().push(ah.clone()),
                Target::Bind { mw, window, .. } => {
                    mw.keep(&window.mr);
                    self.0.windows.borrow_mut().push(mw.clone());
                }
                Target::None | Target::Rdma(_) | Target::Atomic { .. } => {}
            }
            raw.push(wr);
        }
        raw
    }
}

impl Mw {
    /// `ibv_bind_mw(3)`: type 1 only. A window of length 0 unbinds.
    pub(crate) fn bind(&self, qp: &Qp, id: u64, window: &Window) -> Result<(), Refused> {
        self.keep(&window.mr);
        let mut bind =
            ibv_mw_bind { wr_id: id, send_flags: ibv_send_flags::IBV_SEND_SIGNALED.0, bind_info: window.raw() };
        // SAFETY: all objects live; `bind` is read during the call.
        let value = unsafe { rdma_sys::ibv_bind_mw(qp.raw(), self.raw(), &raw mut bind) };
        Refused::check("ibv_bind_mw", value)
    }
}

impl QpInner {
    fn destroy(&self) -> Result<(), Refused> {
        // A window bound by this queue pair would keep it.
        self.windows.take();
        // SAFETY: live, or the cell would be null.
        let value = unsafe { verb!(self.pd.context().provider, ibv_destroy_qp(self.raw.get())) };
        Refused::check("ibv_destroy_qp", value)?;
        self.raw.set(ptr::null_mut());
        Ok(())
    }
}

impl Drop for QpInner {
    fn drop(&mut self) {
        if !self.raw.get().is_null() {
            self.destroy().unwrap_or_else(|refused| self.pd.context().complain(refused));
        }
    }
}
