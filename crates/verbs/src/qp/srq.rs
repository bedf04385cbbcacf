//! A shared receive queue: one stock of empty packets for many QPs (ibv_create_srq(3)).
//!
//! The owner of the handle posts; each message takes the oldest packet, on any of the QPs. The
//! completion, in that QP's receive CQ, carries [`WrKind::SrqRecv`] with the SRQ's tag and the QP's
//! number. Packets come back out of order. When the handle is dropped while QPs still use the
//! queue, its packets stay with the device until the last QP is gone.
//!
//! A QP may be dropped, or reset, while completions of its receives are still in its CQ, not polled
//! yet. On the software RNIC they come by the next poll all the same, as flushed; on rdma_rxe they
//! stay in the CQ. A driver that clears the CQ of them (mlx5) never reports which packets they
//! were: there, bring the QP to ERR and poll until the CQ is empty, before dropping it.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rdma_sys::{ibv_srq, ibv_srq_attr, ibv_srq_attr_mask, ibv_srq_init_attr};
use verbline_mem::{Batch, Packet};
use verbline_softnic::qp_table::Transport;

use crate::cq::completion::{Completion, Stale};
use crate::device::context::Context;
use crate::device::provider::verb;
use crate::errno::VerbError;
use crate::memory::pd::PdInner;
use crate::memory::pd::ProtectionDomain;
use crate::wr::buffer::{Buffer, Refused};
use crate::wr::post::{PostStop, RecvOutcome};
use crate::wr::recv::{RecvQueue, ScatterQueue};
use crate::wr::sg_list::SgList;
use crate::wr_id::{MAX_SLOTS, WrKind};

/// Why an SRQ could not be created or changed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SrqError {
    /// The device or the kernel refused.
    #[error(transparent)]
    Verb(#[from] VerbError),
    /// No queue here has this depth.
    #[error(
        "an SRQ of {depth_wr} receives: the depth must be 1 to {max}; see DeviceAttr::max_srq_wr for the device's limit"
    )]
    Depth {
        /// The requested depth.
        depth_wr: u32,
        /// The limit.
        max: u32,
    },
    /// More scatter/gather entries per receive than the device takes.
    #[error("an SRQ with max_sge {asked}: {device} takes at most {max} entries a receive (DeviceAttr::max_srq_sge)")]
    Sges {
        /// The requested number.
        asked: u32,
        /// The device's limit.
        max: u32,
        /// The device.
        device: String,
    },
}

/// The parameters of an SRQ.
#[derive(Clone, Copy, Debug)]
pub struct SrqSpec {
    /// The transport of its QPs: datagrams come with 40 bytes before them, connections' messages do
    /// not.
    pub transport: Transport,
    /// The most receives posted at once.
    pub depth_wr: u32,
    /// The most non-empty parts of a receive; at least 1. Above 1, its receives are scatter/gather
    /// lists ([`SharedReceiveQueue::post_recv_scatter`]) only.
    pub max_sge: u32,
    /// The [`Completion::tag`] of its receives.
    pub tag: u16,
}

impl ProtectionDomain {
    /// Creates an SRQ: receives shared by several QPs.
    pub fn create_srq(&self, spec: &SrqSpec) -> Result<SharedReceiveQueue, SrqError> {
        let pd = &self.inner;
        if spec.depth_wr == 0 || spec.depth_wr > MAX_SLOTS {
            return Err(SrqError::Depth { depth_wr: spec.depth_wr, max: MAX_SLOTS });
        }
        check_sges(pd, spec)?;
        // Relaxed: only uniqueness matters; the counter publishes nothing.
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let mut init = ibv_srq_init_attr {
            // A number that names the SRQ in asynchronous events; it is never dereferenced.
            srq_context: ptr::without_provenance_mut(id as usize),
            attr: ibv_srq_attr { max_wr: spec.depth_wr, max_sge: spec.max_sge.max(1), srq_limit: 0 },
        };
        // SAFETY: the PD is alive and kept; the attributes may be written by the call.
        let raw = unsafe { verb!(pd.provider(), ibv_create_srq(pd.as_ptr(), &raw mut init)) };
        let raw = NonNull::new(raw).ok_or_else(|| {
            VerbError::last("ibv_create_srq", || format!("{} receives on {}", spec.depth_wr, pd.describe()))
        })?;
        let inner = SrqInner { pd: pd.clone(), raw, id, transport: spec.transport, parked: Mutex::default() };
        let (kind, SrqSpec { transport, depth_wr, max_sge, tag }) = (WrKind::SrqRecv, *spec);
        let lists = (max_sge > 1).then(|| Box::new(ScatterQueue::new(kind, depth_wr, max_sge, tag, pd.id)));
        let packets_wr = if lists.is_some() { 0 } else { depth_wr };
        Ok(SharedReceiveQueue {
            inner: Arc::new(inner),
            queue: Some(RecvQueue::new(kind, packets_wr, tag, pd.id, transport)),
            lists,
            stale: 0,
            _not_sync: PhantomData,
        })
    }
}

impl SrqSpec {
    /// For QPs of this transport: `depth_wr` receives, each one packet.
    pub fn new(transport: Transport, depth_wr: u32) -> SrqSpec {
        SrqSpec { transport, depth_wr, max_sge: 1, tag: 0 }
    }
}

/// A shared receive queue. `Send`, not `Sync`: one thread at a time posts.
pub struct SharedReceiveQueue {
    pub(crate) inner: Arc<SrqInner>,
    /// `None` only while it is dropped.
    queue: Option<RecvQueue>,
    /// The queue for lists, if receives are lists; then `queue` takes nothing.
    lists: Option<Box<ScatterQueue>>,
    stale: u64,
    _not_sync: PhantomData<Cell<()>>,
}

impl SharedReceiveQueue {
    /// Posts packets from the front of the batch for receiving. Each is emptied first: the device
    /// overwrites its contents.
    #[inline]
    pub fn post_recv(&mut self, batch: &mut Batch) -> RecvOutcome {
        let srq = self.inner.as_ptr();
        let Some(queue) = &mut self.queue else { return RecvOutcome::default() };
        // SAFETY: the SRQ is alive while `inner` is, and `queue` is its; the packets move into its
        // slots.
        let post = |wr, bad: &mut _| unsafe { rdma_sys::ibv_post_srq_recv(srq, wr, bad) };
        match batch.as_slice() {
            // SAFETY: `queue` is that of the SRQ that `post` posts to, and takes the packet.
            [packet] if queue.takes_one(packet) => unsafe { queue.post_only(batch, post) },
            _ if self.lists.is_some() => RecvOutcome { posted: 0, stop: Some(PostStop::OtherReceives { lists: true }) },
            // SAFETY: `queue` is that of the SRQ that `post` posts to.
            _ => unsafe { queue.post_batch(batch, post) },
        }
    }

    /// Posts a list for receiving, like [`crate::QueuePair::post_recv_scatter`].
    pub fn post_recv_scatter(&mut self, list: SgList) -> Result<(), Refused> {
        let srq = self.inner.as_ptr();
        let Some(lists) = &mut self.lists else {
            return Err(Refused { buffer: Buffer::List(list), reason: PostStop::OtherReceives { lists: false } });
        };
        // SAFETY: the SRQ is alive while `inner` is, and `lists` is its; the list moves into its
        // place.
        unsafe { lists.post(list, |wr, bad| rdma_sys::ibv_post_srq_recv(srq, wr, bad)) }
    }

    /// The list that a completion filled: like [`crate::QueuePair::recv_scatter_done`], in any
    /// order.
    pub fn recv_scatter_done(&mut self, completion: &Completion) -> Result<SgList, Stale> {
        let done = match &mut self.lists {
            // The queue has no number of another kind of work request.
            Some(lists) => lists.complete(completion),
            None => Err(Stale { wr_id: completion.wr_id() }),
        };
        done.inspect_err(|_| self.stale += 1)
    }

    /// The packet that a completion filled: like [`crate::QueuePair::recv_done`], in any order.
    #[inline]
    pub fn recv_done(&mut self, completion: &Completion) -> Result<Packet, Stale> {
        let stale = Stale { wr_id: completion.wr_id() };
        let done = match &mut self.queue {
            Some(queue) if completion.kind() == WrKind::SrqRecv => queue.complete(completion),
            _ => Err(stale),
        };
        done.inspect_err(|_| self.stale += 1)
    }

    /// The packets of the run of completions at the front: like [`crate::QueuePair::recv_run`], of
    /// any QPs.
    #[inline]
    pub fn recv_run(&mut self, completions: &[Completion], packets: &mut Batch) -> usize {
        self.queue.as_mut().map_or(0, |queue| queue.complete_run(completions, packets))
    }

    /// Raises [`crate::event::AsyncEventKind::SrqLimitReached`] once, when fewer than `limit_wr`
    /// receives are left; 0 turns it off.
    pub fn arm_limit(&mut self, limit_wr: u32) -> Result<(), SrqError> {
        let mut attr = ibv_srq_attr { max_wr: 0, max_sge: 0, srq_limit: limit_wr };
        let mask = ibv_srq_attr_mask::IBV_SRQ_LIMIT.0.cast_signed();
        let provider = self.inner.pd.provider();
        // SAFETY: the SRQ is alive; the attributes are read during the call.
        let ret = unsafe { verb!(provider, ibv_modify_srq(self.inner.as_ptr(), &raw mut attr, mask)) };
        VerbError::check("ibv_modify_srq", ret, || format!("{} to limit {limit_wr}", self.inner.describe()))?;
        Ok(())
    }

    /// The armed limit; 0 if none is armed, or it was reached (ibv_query_srq(3)).
    pub fn limit(&self) -> Result<u32, SrqError> {
        let mut attr = ibv_srq_attr { max_wr: 0, max_sge: 0, srq_limit: 0 };
        let provider = self.inner.pd.provider();
        // SAFETY: the SRQ is alive; the attributes may be written by the call.
        let ret = unsafe { verb!(provider, ibv_query_srq(self.inner.as_ptr(), &raw mut attr)) };
        VerbError::check("ibv_query_srq", ret, || self.inner.describe())?;
        Ok(attr.srq_limit)
    }

    /// Receives that can be posted now.
    #[inline]
    pub fn recv_room(&self) -> usize {
        let lists = self.lists.as_ref().map_or(0, |lists| lists.room());
        (self.queue.as_ref().map_or(0, RecvQueue::room) + lists) as usize
    }

    /// Receives posted and not handed back.
    #[inline]
    pub fn recvs_outstanding(&self) -> usize {
        let lists = self.lists.as_ref().map_or(0, |lists| lists.outstanding());
        (self.queue.as_ref().map_or(0, RecvQueue::outstanding) + lists) as usize
    }

    /// Completions that matched no outstanding receive.
    pub fn stale(&self) -> u64 {
        self.stale
    }

    /// Identifies this SRQ in asynchronous events; never reused.
    pub fn id(&self) -> u64 {
        self.inner.id
    }
}

impl Drop for SharedReceiveQueue {
    fn drop(&mut self) {
        // QPs may still take from it: its packets stay until `inner` is destroyed.
        let parked = Parked { packets: self.queue.take(), lists: self.lists.take() };
        *self.inner.parked.lock().unwrap_or_else(PoisonError::into_inner) = parked;
    }
}

impl fmt::Debug for SharedReceiveQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedReceiveQueue")
            .field("id", &self.id())
            .field("recvs_outstanding", &self.recvs_outstanding())
            .finish_non_exhaustive()
    }
}

fn check_sges(pd: &Arc<PdInner>, spec: &SrqSpec) -> Result<(), SrqError> {
    if spec.max_sge <= 1 {
        return Ok(());
    }
    let context = Context { inner: pd.context.clone() };
    let (asked, max) = (spec.max_sge, context.query_device()?.max_srq_sge);
    if asked > max {
        return Err(SrqError::Sges { asked, max, device: context.name().to_owned() });
    }
    Ok(())
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// The device's queue. Destroyed when the handle and every QP of it are gone.
pub(crate) struct SrqInner {
    pub(crate) pd: Arc<PdInner>,
    raw: NonNull<ibv_srq>,
    pub(crate) id: u64,
    pub(crate) transport: Transport,
    /// The posted receives of a dropped handle.
    parked: Mutex<Parked>,
}

#[derive(Default)]
struct Parked {
    packets: Option<RecvQueue>,
    lists: Option<Box<ScatterQueue>>,
}

// SAFETY: posting goes through the one handle's `&mut self`; what is shared here is the address,
// for creating QPs, and the parked packets behind their mutex.
unsafe impl Send for SrqInner {}
// SAFETY: threads share the address, and the parked packets behind their mutex.
unsafe impl Sync for SrqInner {}

impl SrqInner {
    pub(crate) fn as_ptr(&self) -> *mut ibv_srq {
        self.raw.as_ptr()
    }

    fn describe(&self) -> String {
        format!("SRQ {} on {}", self.id, self.pd.describe())
    }
}

impl fmt::Debug for SrqInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe())
    }
}

impl Drop for SrqInner {
    fn drop(&mut self) {
        // SAFETY: every QP of the SRQ holds the Arc of this one, so that none is left; destroyed
        // once.
        let ret = unsafe { verb!(self.pd.provider(), ibv_destroy_srq(self.as_ptr())) };
        let Some(errno) = self.pd.context.undestroyed(ret) else { return };
        // The device may still write them.
        let parked = std::mem::take(self.parked.get_mut().unwrap_or_else(PoisonError::into_inner));
        let lists = parked.lists.as_ref().map_or(0, |lists| lists.outstanding());
        let receives = parked.packets.as_ref().map_or(0, RecvQueue::outstanding) + lists;
        std::mem::forget(parked);
        let device = &self.pd.context.name;
        tracing::warn!(srq = self.id, %device, %errno, receives, "the SRQ would not go: its receives are leaked");
    }
}
