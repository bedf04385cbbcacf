//! The safe verbs API on rdma-sys: devices, memory registration, CQs, QPs and the packets that they
//! carry.
//!
//! One data path serves two devices: an RNIC (or the kernel's rdma_rxe) and the software RNIC of
//! this process. Both are reached through the function table of `ibv_context`; [`Provider`] chooses
//! one, once, at [`Device::list`].
//!
//! Guarantees to safe code:
//! - A posted packet, or other memory of a work request, has moved into the QP. It comes back with
//!   its completion or when the QP is gone; until then nobody can read, write or free it.
//! - No object outlives its parents: each keeps its context, PD, CQs and AHs alive.
//! - A completion that matches no outstanding work request is counted and refused.
//! - Memory that peers may write is a [`PeerMr`](rdma::PeerMr): never a slice.
//!
//! ```
//! use verbline_mem::{Batch, PageChoice, Pool, PoolSpec, Region, RegionSpec};
//! use verbline_verbs::{Completions, Device, InitSpec, Provider, QpSpec, RtrSpec, RtsSpec, Transport};
//!
//! let context = Device::find(Provider::Soft, "soft0")?.open()?;
//! let pd = context.alloc_pd()?;
//! let spec = PoolSpec { name: "demo".into(), packets: 64, data_bytes: 2048, headroom_bytes: 64 };
//! let len_bytes = Pool::required_bytes(&spec);
//! let region = Region::map(&RegionSpec { name: "demo".into(), len_bytes, pages: PageChoice::Auto, lock: false })?;
//! let pool = Pool::new(region, spec)?;
//! pd.register_pool(&pool)?;
//!
//! // A QP that talks to itself.
//! let mut cq = context.create_cq(256, None)?;
//! let mut qp = pd.create_qp(&QpSpec::new(Transport::Rc, &cq))?;
//! qp.to_init(&InitSpec::default())?;
//! qp.to_rtr(&RtrSpec::connected(qp.endpoint()))?;
//! qp.to_rts(&RtsSpec::default())?;
//!
//! let cache = pool.cache(32);
//! let mut batch = Batch::with_capacity(32);
//! cache.get_bulk(&mut batch, 1);
//! assert_eq!(qp.post_recv(&mut batch).posted, 1);
//! let mut packet = cache.get().expect("packets are free");
//! assert!(packet.fill(b"hello"));
//! batch.push(packet).expect("the batch is empty");
//! assert_eq!(qp.post_send(&mut batch).posted, 1);
//!
//! let mut completions = Completions::with_capacity(32);
//! while cq.poll(&mut completions) == 0 {}
//! assert_eq!(qp.recv_done(&completions.as_slice()[0])?.data(), b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod block_signature;
pub mod connection;
mod cq;
pub mod datagram;
mod device;
mod errno;
#[cfg(test)]
mod fake_device;
mod memory;
mod mlx5;
mod qp;
#[cfg(any(test, feature = "script"))]
pub mod scripted_device;
pub mod signature;
mod wr;
mod wr_id;

pub use cq::channel::{ChannelError, CompletionChannel};
pub use cq::completion::{Completion, Completions, Stale, Status, WcOpcode};
pub use cq::{ArmedCq, CompletionQueue, CqError, Notify};
pub use device::address::{AddressError, Discard, Incidents, LinkCounters, WireCounters, wire_counters};
pub use device::attr::Mtu;
pub use device::context::Context;
pub use device::gid::{Endpoint, Gid};
pub use device::provider::Provider;
pub use device::{Device, DeviceError};
pub use errno::{Errno, VerbError};
pub use memory::mr::{Access, MrError};
pub use memory::pd::ProtectionDomain;
pub use qp::attr::{InitSpec, QpState, RtrSpec, RtsSpec};
pub use qp::srq::{SharedReceiveQueue, SrqError, SrqSpec};
pub use qp::{MarkerError, OutOfBuffer, QpCounters, QpError, QpMaker, QpSpec, QueuePair};
pub use verbline_softnic::qp_table::Transport;
pub use wr::post::{PostStop, RecvOutcome, SendOptions, SendOutcome, Unposted};
pub use wr::wr_list::prepare_thread;
pub use wr_id::WrKind;

/// Attributes of devices and their ports, and capabilities that some devices lack.
pub mod attr {
    pub use crate::device::attr::{AtomicCap, DeviceAttr, GidEntry, GidKind, LinkLayer, PortAttr, PortState};
    pub use crate::device::capability::{Capability, Lacking};
    pub use crate::device::caps::{OnDemandCaps, OnDemandOps, RateLimitCaps};
}

/// Asynchronous events of a device, a port, a CQ, an SRQ or a QP.
pub mod event {
    pub use crate::device::event::{AsyncEvent, AsyncEventKind, AsyncEventSource, AsyncEvents};
}

/// Memory that peers read and write, and the work requests that reach it.
pub mod rdma {
    pub use crate::memory::peer::{NotReplaced, PeerMr, PeerSlice, Remote};
    pub use crate::memory::span::Span;
    pub use crate::qp::one_sided::{RcQp, UcQp, UdQp};
    pub use crate::wr::buffer::{Addressed, Buffer, OpDone, Refused};
    pub use crate::wr::connected::{Carrier, Connected, NoFence, OnAny, OnRc, OnUc, OnUd};
    pub use crate::wr::kept::{KeepSpec, KeptKey, KeptRegion, KeptWindow};
    pub use crate::wr::local::{KeyPart, Local, Part, Word, WorkMemory};
    pub use crate::wr::operation::{Atomic, Operation, Transfer, WorkOptions};
    pub use crate::wr::wr_queue::{Work, WorkList, WorksDone};
}

/// For experts: memory windows, scatter/gather lists, raw QP attributes, registration options, and
/// fault injection into the software RNIC.
pub mod expert {
    pub use crate::memory::mr::MrOptions;
    pub use crate::memory::window::{MemoryWindow, WindowKind};
    pub use crate::qp::attr::{AttrMask, QpAttr, QpCap};
    pub use crate::qp::leaked_queue_pairs;
    pub use crate::wr::sg_list::{SgEntry, SgList, SgListFull};
    pub use verbline_softnic::fault;
}
