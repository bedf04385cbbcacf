//! The safe verbs API on rdma-sys: devices, memory registration, CQs, QPs and the packets that pass through them.
//!
//! One data path serves two devices: an RNIC (or the kernel's rdma_rxe) and the software RNIC of this process. Both are reached
//! through the function table of `ibv_context`; which one it is was decided once, at [`Device::list`], by [`Provider`].
//!
//! What this crate guarantees to safe code:
//! - A posted packet, or other memory of a work request, has moved into the QP. It comes back by its completion or when the QP
//!   is gone; until then nobody can read, write or free it.
//! - No object outlives what it stands on: each keeps its context, PD, CQs and AHs.
//! - A completion that fits nothing outstanding is counted and refused.
//! - Memory that peers may write is a [`PeerMr`]: never a slice.
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

pub mod connection;
mod cq;
mod device;
mod errno;
#[cfg(test)]
mod fake;
mod memory;
mod qp;
pub mod script;
mod wr;

pub use cq::channel::{ChannelError, CompletionChannel};
pub use cq::completion::{Completion, Completions, Stale, Status, WcOpcode};
pub use cq::{ArmedCq, CompletionQueue, CqError, Notify};
pub use device::attr::{AtomicCap, DeviceAttr, GidEntry, GidKind, LinkLayer, Mtu, PortAttr, PortState};
pub use device::capability::{Capability, Lacking};
pub use device::caps::{OnDemandCaps, OnDemandOps, RateLimitCaps};
pub use device::context::Context;
pub use device::event::{AsyncEvent, AsyncEventKind, AsyncEventSource, AsyncEvents};
pub use device::gid::Gid;
pub use device::provider::Provider;
pub use device::{Device, DeviceError};
pub use errno::{Errno, VerbError};
pub use memory::mr::{Access, MrError, MrOptions};
pub use memory::pd::ProtectionDomain;
pub use memory::peer::{NotReplaced, PeerMr, PeerSlice, Remote};
pub use memory::window::{MemoryWindow, WindowKind};
pub use qp::ah::{AddressHandle, AhSpec, MULTICAST_QPN};
pub use qp::attr::{AttrMask, DEFAULT_QKEY, InitSpec, QpAttr, QpCap, QpState, RtrSpec, RtsSpec};
pub use qp::endpoint::{Endpoint, Transport};
pub use qp::srq::{SharedReceiveQueue, SrqError, SrqSpec};
pub use qp::{QpCounters, QpError, QpMaker, QpSpec, QueuePair, leaked_queue_pairs};
/// Faults of the software RNIC, to order.
pub use verbline_softnic::fault;
pub use wr::buffer::{Buffer, Refused};
pub use wr::grh::{GRH_BYTES, Grh, ReplyError};
pub use wr::one_sided::{RcQp, UcQp, UdQp};
pub use wr::post::{DestinationId, PostStop, RecvOutcome, SendOptions, SendOutcome, Unposted};
pub use wr::sg_list::{SgEntry, SgList, SgListFull};
pub use wr::wr_id::WrKind;
