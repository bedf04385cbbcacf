//! A thin layer over the verbs of either provider: safe to call with all valid arguments of a verb,
//! and with many that it should refuse.
//!
//! Guarantees: every `unsafe` of this program is below this module. Objects keep their parents
//! alive, are destroyed once, and cannot be used after that. Memory that a device may write is only
//! touched through atomics and lives until the [`Rig`] is gone. Checks that belong to the device
//! are left to it: wrong keys, addresses, opcodes and attributes go through unchanged.
//!
//! Control verbs are called by provider, `rdma_sys::*` or `verbline_softnic::provider::*`; the data
//! path goes through rdma-sys's inline functions on both.

mod access;
mod ah;
mod async_event;
mod attr;
mod channel;
mod context;
mod cq;
mod cq_event;
mod errno;
mod keys;
mod mapped;
mod mem;
mod mr;
mod mw;
mod pair;
mod patience;
mod pd;
mod port;
mod qp;
mod query;
mod raw_wr;
mod sge;
mod srq;
mod target;
mod thread;
mod wc;
mod wr;

use crate::check::{Failure, Outcome};
use std::cell::{Cell, RefCell};
use std::net::{Ipv4Addr, UdpSocket};
use std::rc::Rc;

pub(crate) use access::Access;
pub(crate) use ah::{Ah, Flaw};
pub(crate) use async_event::{AsyncKind, Element};
pub(crate) use attr::{Attr, AttrMask, State, Transport};
pub(crate) use channel::Channel;
pub(crate) use context::{Cap, Context};
pub(crate) use cq::{Cq, Notify};
pub(crate) use errno::{PostRefused, Refused, errno_name};
pub(crate) use keys::*;
pub(crate) use mem::Mem;
pub(crate) use mr::{Mr, Rereg};
pub(crate) use mw::{Mw, MwType, Window};
pub(crate) use pair::{Link, Pair, Side, SideSpec};
pub(crate) use patience::{Deadline, QUIET, SOON};
pub(crate) use pd::Pd;
pub(crate) use port::{Gid, PortFacts};
pub(crate) use qp::{Cap as QpCap, Qp};
pub(crate) use sge::{Remote, Sge};
pub(crate) use srq::Srq;
pub(crate) use target::{Kind, Target};
pub(crate) use thread::waits_of_this_thread;
pub(crate) use wc::{RecvOp, SendOp, Status, Wc};
pub(crate) use wr::{Op, Recv, Wr};

/// An opened device with a protection domain, and a factory of the rows' objects.
pub(crate) struct Rig {
    context: Rc<Context>,
    pd: Pd,
    /// All memory handed out, kept until nothing of this rig can write it any more.
    memories: RefCell<Vec<Mem>>,
    /// The device of each pair's other end, if it is another one.
    far: Option<Box<Rig>>,
    /// Whether there was a pair.
    paired: Cell<bool>,
}

impl Rig {
    pub(crate) fn open(target: &Target) -> Outcome<Rig> {
        let far = target.far.as_deref().map(Rig::open).transpose()?;
        let context = Context::open(target)?;
        if let Some(far) = &far {
            context.face(far.port());
            far.context.face(context.port());
        }
        let pd = Pd::alloc(&context)?;
        Ok(Rig { context, pd, memories: RefCell::default(), far: far.map(Box::new), paired: Cell::new(false) })
    }

    /// The device of each pair's other end: mostly this one.
    pub(crate) fn far(&self) -> &Rig {
        self.far.as_deref().unwrap_or(self)
    }

    /// Lacked, for this reason, with the other end on another device.
    pub(crate) fn is_alone(&self, why: &str) -> Outcome {
        if self.far.is_none() { Ok(()) } else { Err(Failure::Lacks(why.to_owned())) }
    }

    /// Waits until what the far device gets has come, as far as nothing else tells: a datagram or a
    /// message of UC is sent before that.
    pub(crate) fn settle(&self) {
        if self.far.is_some() {
            std::thread::sleep(SOON);
        }
    }

    /// Whether the row was about two devices, if it was to be.
    pub(crate) fn is_about_both(&self) -> bool {
        self.far.is_none() || self.paired.get()
    }

    /// The same device, opened once more.
    pub(crate) fn open_again(&self) -> Outcome<Rig> {
        Rig::open(self.context.target())
    }

    /// The target it was opened from, for a thread that opens it for itself.
    pub(crate) fn target(&self) -> Target {
        self.context.target().clone()
    }

    /// The opened device.
    pub(crate) fn context(&self) -> &Rc<Context> {
        &self.context
    }

    /// The port that all queue pairs use.
    pub(crate) fn port(&self) -> &PortFacts {
        self.context.port()
    }

    /// The protection domain of all objects, unless a row uses another.
    pub(crate) fn pd(&self) -> &Pd {
        &self.pd
    }

    /// Another protection domain.
    pub(crate) fn other_pd(&self) -> Outcome<Pd> {
        Ok(Pd::alloc(&self.context)?)
    }

    /// Zeroed memory, page-aligned, not registered.
    pub(crate) fn memory(&self, bytes: usize) -> Mem {
        let memory = Mem::new(bytes);
        self.context.remember(&memory);
        self.memories.borrow_mut().push(memory.clone());
        memory
    }

    /// A long range backed by 2 MiB: see [`Mem::repeated`].
    pub(crate) fn repeated_mr(&self, bytes: usize) -> Outcome<Mr> {
        let memory = Mem::repeated(bytes)?;
        self.context.remember(&memory);
        self.memories.borrow_mut().push(memory.clone());
        Ok(self.pd.reg(&memory, 0..bytes, Access::ALL)?)
    }

    /// A page that the rigs of all threads register, each for itself.
    pub(crate) fn shared_mr(&self) -> Outcome<Mr> {
        let memory = Mem::shared();
        Ok(self.pd.reg(&memory, 0..memory.len(), Access::ALL)?)
    }

    /// Memory registered with every kind of access.
    pub(crate) fn mr(&self, bytes: usize) -> Outcome<Mr> {
        self.mr_with(bytes, Access::ALL)
    }

    /// Memory registered with this access.
    pub(crate) fn mr_with(&self, bytes: usize, access: Access) -> Outcome<Mr> {
        let memory = self.memory(bytes);
        Ok(self.pd.reg(&memory, 0..bytes, access)?)
    }

    /// A completion queue without a channel.
    pub(crate) fn cq(&self, depth: u32) -> Outcome<Cq> {
        Ok(Cq::create(&self.context, depth, None)?)
    }

    /// A completion queue that can raise events on `channel`.
    pub(crate) fn cq_on(&self, channel: &Channel, depth: u32) -> Outcome<Cq> {
        Ok(Cq::create(&self.context, depth, Some(channel))?)
    }

    /// A completion channel, non-blocking.
    pub(crate) fn channel(&self) -> Outcome<Channel> {
        Ok(Channel::create(&self.context)?)
    }

    /// An address handle for the port of each pair's other end.
    pub(crate) fn ah(&self) -> Outcome<Ah> {
        Ok(Ah::create(&self.pd, self.port(), &self.context.far_port().gid)?)
    }

    /// An address handle for a multicast group.
    pub(crate) fn group_ah(&self, group: &Gid) -> Outcome<Ah> {
        Ok(Ah::create(&self.pd, self.port(), group)?)
    }

    /// Joins a group on the network, for the life of the value. A kernel device sits on a network
    /// interface, which drops frames that no socket asked for; the software RNIC's fabric has no
    /// such filter.
    pub(crate) fn join(&self, group: &Gid) -> Outcome<Option<UdpSocket>> {
        let (Some(group), Some(own)) = (group.as_ipv4(), self.port().gid.as_ipv4()) else { return Ok(None) };
        if self.context.provider == target::Provider::Soft {
            return Ok(None);
        }
        self.is_alone("the kernel device's groups may be of another network namespace")?;
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0));
        let joined = socket.and_then(|socket| socket.join_multicast_v4(&group, &own).map(|()| socket));
        Ok(Some(joined.map_err(|error| Failure::new(format!("IP_ADD_MEMBERSHIP: {error}")))?))
    }

    /// The first of these that the device lacks, or the other end's, as it reports.
    pub(crate) fn lacks(&self, needs: &[Cap]) -> Option<String> {
        let contexts = || std::iter::once(&self.context).chain(self.far.iter().map(|far| &far.context));
        needs.iter().find_map(|need| contexts().find_map(|context| need.lacking(context)))
    }

    /// The objects that could not be destroyed, for the suite to report.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let far = self.far.iter().flat_map(|far| far.context.complaints());
        self.context.complaints().into_iter().chain(far).collect()
    }
}
