//! A queue pair: its parts, the objects that it keeps alive, and its guarantees. Posting,
//! completions and destruction have their own files.
//!
//! - Posting moves packets into the QP; a completion moves them out. Meanwhile nobody can read,
//!   write or free them.
//! - It keeps its PD, CQs, AHs and context alive. It does not keep pools: a pool that is dropped
//!   while the QP holds its packets is leaked.
//! - Dropping it brings it to ERR, destroys it and returns every packet. If a device does not
//!   destroy it within [`QpSpec::destroy_timeout`], the memory of its packets is never freed
//!   ([`leaked_queue_pairs`]).
//! - It may move to another thread; one thread at a time uses it (`Send`, not `Sync`).

pub(crate) mod attr;
mod cancel;
pub(crate) mod capability_check;
pub(crate) mod connected;
mod destinations;
mod destroy;
mod done;
mod end_marker;
mod error;
mod maker;
pub(crate) mod multicast;
pub(crate) mod one_sided;
mod out_of_buffer;
mod posting;
mod spec;
pub(crate) mod srq;
pub(crate) mod state;
pub(crate) mod thread_domain;

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rdma_sys::ibv_qp;
use verbline_mem::Batch;
use verbline_softnic::counters::count_out_of_buffer;
use verbline_softnic::qp_table::Transport;

pub use destroy::leaked_queue_pairs;
pub use end_marker::MarkerError;
pub use error::QpError;
pub use maker::QpMaker;
pub use out_of_buffer::OutOfBuffer;
pub use spec::QpSpec;

use crate::cq::CqInner;
use crate::device::gid::{Endpoint, Gid};
use crate::device::provider::Provider;
use crate::memory::pd::{PdInner, ProtectionDomain};
use crate::memory::window::MemoryWindow;
use crate::mlx5::extended::ExtendedQp;
use crate::qp::attr::QpState;
use crate::qp::multicast::Membership;
use crate::qp::srq::SrqInner;
use crate::qp::thread_domain::OwnDomain;
use crate::signature::QpSignature;
use crate::wr::kept::KeptMemory;
use crate::wr::post_verb::{PostRecv, PostSend};
use crate::wr::recv::{RecvQueue, ScatterQueue};
use crate::wr::send::{SendQueue, SendQueueSpec};
use crate::wr_id::WrKind;

/// Errors of a QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct QpCounters {
    /// Completions that matched no outstanding work request.
    pub stale: u64,
    /// Work requests that the device refused.
    pub refused: u64,
}

/// A send queue and a receive queue of one device. Posted memory belongs to it until it completes;
/// see the crate page for the path of a packet.
pub struct QueuePair {
    pub(crate) raw: NonNull<ibv_qp>,
    pub(crate) post_send: PostSend,
    post_recv: PostRecv,
    pub(crate) send: ManuallyDrop<SendQueue>,
    recv: ManuallyDrop<RecvQueue>,
    /// The receive queue for lists, if receives are lists; then `recv` takes nothing.
    recv_scatter: ManuallyDrop<Option<Box<ScatterQueue>>>,
    pub(crate) state: QpState,
    pub(crate) local: Local,
    counters: QpCounters,
    /// A batch for a packet that is posted alone through the batch path; empty between posts.
    single: Batch,
    keep: ManuallyDrop<Keep>,
    destroy_timeout: Duration,
    /// One thread at a time uses it.
    _not_sync: PhantomData<Cell<()>>,
}

impl ProtectionDomain {
    /// Creates a QP in the state RESET; [`QueuePair::to_init`] is the next step.
    pub fn create_qp(&self, spec: &QpSpec<'_>) -> Result<QueuePair, QpError> {
        QueuePair::create(&self.inner, spec, spec.srq.map(|srq| &srq.inner), Arc::default())
    }
}

// SAFETY: every use goes through `&mut self` (or reads what only `&mut self` writes), and neither
// libibverbs nor softnic ties a QP to a thread.
unsafe impl Send for QueuePair {}

/// Objects that the QP keeps alive.
pub(crate) struct Keep {
    /// The parent domain that the QP was created on, if not on the PD itself.
    domain: Option<OwnDomain>,
    /// Functions for posting to a QP that configures keys on a card.
    extended: Option<Box<ExtendedQp>>,
    pub(crate) pd: Arc<PdInner>,
    _send_cq: Arc<CqInner>,
    _recv_cq: Arc<CqInner>,
    pub(crate) srq: Option<Arc<SrqInner>>,
    pub(crate) groups: Vec<Membership>,
    /// Memory that operations name by a number.
    pub(crate) memory: KeptMemory,
    /// The window that markers behind all sends unbind, from the first such marker on.
    pub(crate) marker: Option<MemoryWindow>,
    /// The software RNIC's counter for this QP.
    pub(crate) out_of_buffer: Arc<AtomicU64>,
}

/// This side of the connection, as learned by `to_init`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Local {
    pub(crate) port: u8,
    pub(crate) gid_index: u8,
    pub(crate) gid: Gid,
    pub(crate) lid: u16,
    pub(crate) psn: u32,
    pub(crate) qkey: u32,
    /// The peer of the step to RTR.
    pub(crate) peer: Option<Endpoint>,
}

impl QueuePair {
    /// Creates a QP that receives from `srq`; the spec's own SRQ is ignored. On the software RNIC,
    /// messages that find no receive are counted in `out_of_buffer`.
    pub(crate) fn create(
        pd: &Arc<PdInner>,
        spec: &QpSpec<'_>,
        srq: Option<&Arc<SrqInner>>,
        out_of_buffer: Arc<AtomicU64>,
    ) -> Result<QueuePair, QpError> {
        let inner = srq.map(|srq| &**srq);
        spec::check(pd, spec, inner)?;
        let spec::Made { raw, inline_bytes, domain, extended } = spec::create_in_domain(pd, spec, inner)?;
        let send = SendQueue::new(SendQueueSpec {
            depth: spec.tx_depth_wr,
            tag: spec.tag,
            pd_id: pd.id,
            transport: spec.transport,
            inline_bytes,
            signal_every: spec.signal_every_wr,
            max_sge: spec.max_send_sge.max(1),
            solicited: spec.solicited,
            configures_keys: spec.signature != QpSignature::None,
        });
        if pd.context.provider == Provider::Soft {
            // SAFETY: the QP was just created, by the software RNIC.
            unsafe { count_out_of_buffer(raw.as_ptr(), out_of_buffer.clone()) };
        }
        // A QP on an SRQ has no receives of its own.
        let (rx_depth, list_depth) = match srq {
            Some(_) => (0, None),
            None if spec.max_recv_sge > 1 => (0, Some(spec.rx_depth_wr)),
            None => (spec.rx_depth_wr, None),
        };
        let recv_scatter = list_depth
            .map(|depth| Box::new(ScatterQueue::new(WrKind::Recv, depth, spec.max_recv_sge, spec.tag, pd.id)));
        // SAFETY: the QP was just created.
        let qpn = unsafe { (*raw.as_ptr()).qp_num };
        let mut recv = RecvQueue::new(WrKind::Recv, rx_depth, spec.tag, pd.id, spec.transport);
        recv.set_open(false);
        tracing::debug!(qpn, device = %pd.context.name, transport = %spec.transport, inline_bytes, "QP created");
        Ok(QueuePair {
            raw,
            post_send: match &extended {
                Some(_) => ExtendedQp::post_verb(raw.as_ptr()),
                // SAFETY: the QP was just created, and `QueuePair` keeps it alive from here on.
                None => unsafe { PostSend::of(raw.as_ptr()) },
            },
            // SAFETY: the QP was just created, and `QueuePair` keeps it alive from here on.
            post_recv: unsafe { PostRecv::of(raw.as_ptr()) },
            send: ManuallyDrop::new(send),
            recv: ManuallyDrop::new(recv),
            recv_scatter: ManuallyDrop::new(recv_scatter),
            state: QpState::Reset,
            // Any 24 bits do; a fresh number keeps out packets of an earlier connection of the same
            // QP number.
            local: Local { psn: fresh_psn(), ..Local::default() },
            counters: QpCounters::default(),
            single: Batch::with_capacity(1),
            keep: ManuallyDrop::new(Keep {
                domain,
                extended,
                pd: pd.clone(),
                _send_cq: spec.send_cq.inner.clone(),
                _recv_cq: spec.recv_cq.inner.clone(),
                srq: srq.cloned(),
                groups: Vec::new(),
                memory: KeptMemory::default(),
                marker: None,
                out_of_buffer,
            }),
            destroy_timeout: spec.destroy_timeout,
            _not_sync: PhantomData,
        })
    }

    /// The QP number (24 bits) that peers address and completions carry.
    pub fn qpn(&self) -> u32 {
        // SAFETY: the QP is live; the field is not written after creation.
        unsafe { (*self.raw.as_ptr()).qp_num }
    }

    /// The transport of the QP; it never changes.
    pub fn transport(&self) -> Transport {
        self.send.transport
    }

    /// The [`crate::Completion::tag`] of its completions.
    pub fn tag(&self) -> u16 {
        self.send.tag
    }

    /// Whether the QP has a thread domain of its own ([`QpSpec::thread_domain`]).
    pub fn has_thread_domain(&self) -> bool {
        self.keep.domain.is_some()
    }

    /// The QP's protection domain; memory of another is refused.
    pub fn pd(&self) -> ProtectionDomain {
        ProtectionDomain { inner: self.keep.pd.clone() }
    }

    /// The longest packet that goes inline: the requested length, or less if the device grants
    /// less.
    pub fn max_inline_bytes(&self) -> u32 {
        self.send.inline_bytes
    }

    /// The longest message, bytes: on UD, the port's MTU. Known from INIT on.
    pub fn max_message_bytes(&self) -> u32 {
        self.send.max_message_bytes()
    }

    /// The most non-empty parts of a list that is sent, written from or read into.
    pub fn max_send_sge(&self) -> u32 {
        self.send.max_sge()
    }

    /// Sends that can be posted now.
    #[inline]
    pub fn send_room(&self) -> usize {
        self.send.room() as usize
    }

    /// Receives that can be posted now.
    #[inline]
    pub fn recv_room(&self) -> usize {
        let lists = self.recv_scatter.as_ref().map_or(0, |lists| lists.room());
        (self.recv.room() + lists) as usize
    }

    /// Sends posted and not known to be done; unsignaled ones count until a later completion covers
    /// them.
    #[inline]
    pub fn sends_outstanding(&self) -> usize {
        self.send.outstanding() as usize
    }

    /// Receives posted and not completed.
    #[inline]
    pub fn recvs_outstanding(&self) -> usize {
        let lists = self.recv_scatter.as_ref().map_or(0, |lists| lists.outstanding());
        (self.recv.outstanding() + lists) as usize
    }

    /// Errors so far.
    pub fn counters(&self) -> QpCounters {
        self.counters
    }

    /// Returns every packet to its pool. Call it only once the QP is in RESET: the device then
    /// holds none.
    pub(crate) fn reclaim(&mut self) -> u32 {
        let lists = self.recv_scatter.as_mut().map_or(0, |lists| lists.reclaim());
        self.send.reclaim() + self.recv.reclaim() + lists
    }

    /// Whether the QP receives from an SRQ.
    pub fn uses_srq(&self) -> bool {
        self.keep.srq.is_some()
    }

    pub(crate) fn keep(&self) -> &Keep {
        &self.keep
    }

    pub(crate) fn keep_mut(&mut self) -> &mut Keep {
        &mut self.keep
    }

    #[inline]
    pub(crate) fn check_transport(&self, asked: Transport) -> Result<(), QpError> {
        match self.transport() {
            is if is == asked => Ok(()),
            is => Err(QpError::NotTransport { qpn: self.qpn(), is, asked }),
        }
    }

    /// Records the state, and which work requests may be posted in it.
    pub(crate) fn set_state(&mut self, state: QpState) {
        self.state = state;
        let may_send = self.may_send();
        self.send.set_open(may_send);
        self.recv.set_open(state != QpState::Reset);
    }
}

impl fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePair")
            .field("qpn", &self.qpn())
            .field("transport", &self.transport())
            .field("state", &self.state)
            .field("sends_outstanding", &self.sends_outstanding())
            .field("recvs_outstanding", &self.recvs_outstanding())
            .finish_non_exhaustive()
    }
}

/// A 24-bit number that differs from connection to connection.
pub(crate) fn fresh_psn() -> u32 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    // Relaxed: only spreading the numbers matters. The multiplier is 2^64 over the golden ratio,
    // which spreads consecutive numbers evenly.
    let n = NEXT.fetch_add(1, Ordering::Relaxed).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (n >> 40) as u32
}
