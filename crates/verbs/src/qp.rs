//! A queue pair: what it is made of, posting to it, taking completions back, and letting go of it.
//!
//! - Posting moves packets into the QP; a completion moves them out. Meanwhile nobody can read, write or free them.
//! - It keeps its PD, CQs, AHs and context alive. It does not keep pools: one that goes while the QP holds its packets is leaked.
//! - Dropping it brings it to ERR, destroys it and returns every packet. A device that will not let go within
//!   [`QpSpec::destroy_timeout`] keeps the packets for ever: their memory is never freed ([`leaked_queue_pairs`]).
//! - It may move to another thread and is used by one at a time (`Send`, not `Sync`).

mod destinations;
mod scatter;
mod spec;

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rdma_sys::ibv_qp;
use verbline_mem::{Batch, Packet};

pub use spec::QpSpec;

use crate::completion::{Completion, Stale};
use crate::cq::CqInner;
use crate::errno::{Errno, VerbError};
use crate::gid::Gid;
use crate::mr::Access;
use crate::multicast::Membership;
use crate::one_sided::{Buffer, Op, RcQp, Refused, UcQp, UdQp};
use crate::pd::{PdInner, ProtectionDomain};
use crate::peer::{PeerSlice, Remote};
use crate::post::{PostStop, RecvOutcome, SendOptions, SendOutcome, Unposted};
use crate::post_verb::{PostRecv, PostSend};
use crate::provider::verb;
use crate::qp_attr::{QpState, Transport};
use crate::recv::{RecvQueue, ScatterQueue};
use crate::send::{Direction, SendQueue, SendQueueSpec};
use crate::srq::SrqInner;
use crate::window::MemoryWindow;
use crate::wr_id::WrKind;

/// Why a QP could not be made, changed or used so.
#[derive(Clone, Debug, thiserror::Error)]
pub enum QpError {
    /// The device or the kernel refused.
    #[error(transparent)]
    Verb(#[from] VerbError),
    /// The state table has no such step, or an attribute is missing or too many (ibv_modify_qp(3)).
    #[error("QP {qpn:#x} on {device}: {refusal}")]
    Transition {
        /// The QP.
        qpn: u32,
        /// Its device.
        device: String,
        /// What the table says.
        refusal: verbline_softnic::qp_table::Refusal,
    },
    /// An attribute that cannot be set here.
    #[error("QP {qpn:#x} on {device}: {what}")]
    Attribute {
        /// The QP.
        qpn: u32,
        /// Its device.
        device: String,
        /// Which, and why.
        what: String,
    },
    /// The network interface under the device could not join a multicast group.
    #[error("QP {qpn:#x} on {device}: the interface with {local} cannot join {group}: {source}")]
    Multicast {
        /// The QP.
        qpn: u32,
        /// Its device.
        device: String,
        /// The QP's own GID.
        local: Gid,
        /// The group.
        group: Gid,
        /// What the kernel said.
        source: std::sync::Arc<std::io::Error>,
    },
    /// More scatter/gather entries a work request than the device takes.
    #[error("{what} of {asked}: {device} takes at most {max} entries a work request (DeviceAttr::max_sge)")]
    Sges {
        /// Which limit.
        what: &'static str,
        /// What was asked.
        asked: u32,
        /// The device's limit.
        max: u32,
        /// The device.
        device: String,
    },
    /// A depth beyond what a queue here can have.
    #[error("{what} of {asked} work requests; at most {max} fit a queue")]
    Depth {
        /// Which depth.
        what: &'static str,
        /// What was asked.
        asked: u32,
        /// The limit.
        max: u32,
    },
    /// An object of another device or PD.
    #[error("the {what} belongs to {theirs}, the QP to {ours}; make both from the same one")]
    Foreign {
        /// What kind of object.
        what: &'static str,
        /// Where it belongs.
        theirs: String,
        /// Where the QP belongs.
        ours: String,
    },
    /// A typed handle of another transport.
    #[error("QP {qpn:#x} is {is}, not {asked}")]
    NotTransport {
        /// The QP.
        qpn: u32,
        /// What it is.
        is: Transport,
        /// What was asked for.
        asked: Transport,
    },
    /// An SRQ of datagrams cannot serve connections, nor the other way: the GRH comes before one and not the other.
    #[error("the SRQ is for {srq}, the QP is {qp}; datagrams and connections each need an SRQ of their own")]
    SrqTransport {
        /// What the SRQ was made for.
        srq: Transport,
        /// What the QP is.
        qp: Transport,
    },
    /// More destinations than the table holds.
    #[error("QP {qpn:#x} has {max} destinations already")]
    Destinations {
        /// The QP.
        qpn: u32,
        /// The limit.
        max: usize,
    },
}

/// What a QP holds and what went wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct QpCounters {
    /// Completions that matched nothing outstanding.
    pub stale: u64,
    /// Work requests that the device refused.
    pub refused: u64,
}

/// A queue pair.
pub struct QueuePair {
    pub(crate) raw: NonNull<ibv_qp>,
    pub(crate) post_send: PostSend,
    post_recv: PostRecv,
    pub(crate) send: ManuallyDrop<SendQueue>,
    recv: ManuallyDrop<RecvQueue>,
    /// Where receives are lists; then `recv` takes nothing.
    recv_scatter: ManuallyDrop<Option<Box<ScatterQueue>>>,
    pub(crate) state: QpState,
    pub(crate) local: Local,
    counters: QpCounters,
    /// Room for a packet that is posted alone and goes the way of batches; empty between posts.
    single: Batch,
    keep: ManuallyDrop<Keep>,
    destroy_timeout: Duration,
    /// Used by one thread at a time.
    _not_sync: PhantomData<Cell<()>>,
}

// SAFETY: every use goes through `&mut self` (or reads what only `&mut self` writes), and neither libibverbs nor softnic ties a
// QP to a thread.
unsafe impl Send for QueuePair {}

/// What the QP keeps alive.
pub(crate) struct Keep {
    pub(crate) pd: Arc<PdInner>,
    _send_cq: Arc<CqInner>,
    _recv_cq: Arc<CqInner>,
    pub(crate) srq: Option<Arc<SrqInner>>,
    pub(crate) groups: Vec<Membership>,
}

/// This side of the connection, as `to_init` learned it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Local {
    pub(crate) port: u8,
    pub(crate) gid_index: u8,
    pub(crate) gid: Gid,
    pub(crate) lid: u16,
    pub(crate) psn: u32,
    pub(crate) qkey: u32,
}

impl QueuePair {
    pub(crate) fn create(pd: &Arc<PdInner>, spec: &QpSpec<'_>) -> Result<QueuePair, QpError> {
        spec::check(pd, spec)?;
        let (raw, inline_bytes) = spec::create_with_spare(pd, spec)?;
        let send = SendQueue::new(SendQueueSpec {
            depth: spec.tx_depth_wr,
            tag: spec.tag,
            pd_id: pd.id,
            transport: spec.transport,
            inline_bytes,
            signal_every: spec.signal_every_wr,
            max_sge: spec.max_send_sge.max(1),
        });
        // A QP on an SRQ has no receives of its own.
        let (rx_depth, list_depth) = match spec.srq {
            Some(_) => (0, None),
            None if spec.max_recv_sge > 1 => (0, Some(spec.rx_depth_wr)),
            None => (spec.rx_depth_wr, None),
        };
        let recv_scatter =
            list_depth.map(|depth| Box::new(ScatterQueue::new(depth, spec.max_recv_sge, spec.tag, pd.id)));
        // SAFETY: the QP was just created.
        let qpn = unsafe { (*raw.as_ptr()).qp_num };
        let mut recv = RecvQueue::new(WrKind::Recv, rx_depth, spec.tag, pd.id, spec.transport);
        recv.set_open(false);
        tracing::debug!(qpn, device = %pd.context.name, transport = %spec.transport, inline_bytes, "QP created");
        Ok(QueuePair {
            raw,
            // SAFETY: as above.
            post_send: unsafe { PostSend::of(raw.as_ptr()) },
            // SAFETY: as above.
            post_recv: unsafe { PostRecv::of(raw.as_ptr()) },
            send: ManuallyDrop::new(send),
            recv: ManuallyDrop::new(recv),
            recv_scatter: ManuallyDrop::new(recv_scatter),
            state: QpState::Reset,
            // Any 24 bits do; a fresh number keeps packets of an earlier connection of the same QP number out.
            local: Local { psn: fresh_psn(), ..Local::default() },
            counters: QpCounters::default(),
            single: Batch::with_capacity(1),
            keep: ManuallyDrop::new(Keep {
                pd: pd.clone(),
                _send_cq: spec.send_cq.inner.clone(),
                _recv_cq: spec.recv_cq.inner.clone(),
                srq: spec.srq.map(|srq| srq.inner.clone()),
                groups: Vec::new(),
            }),
            destroy_timeout: spec.destroy_timeout,
            _not_sync: PhantomData,
        })
    }

    /// Posts packets from the front of the batch, in order, as one list; more than 64 as several. Those posted have moved into
    /// the QP, or back to their pool when they went inline; the rest is still in the batch.
    #[inline(always)]
    pub fn post_send(&mut self, batch: &mut Batch) -> SendOutcome {
        match batch.as_slice() {
            // SAFETY: the QP is live until drop, `send` is its send queue, and takes it.
            [packet] if self.send.takes_one(packet) => match unsafe { self.send.post_only(self.post_send, batch) } {
                (taken, None) => SendOutcome { posted: taken, inlined: taken, stop: None },
                (taken, stop) => {
                    self.count_refusal(stop);
                    SendOutcome { posted: taken, inlined: taken, stop }
                }
            },
            _ => self.post_send_list(batch),
        }
    }

    /// Posts one packet. It has moved into the QP, or back to its pool when it went inline; else it comes back.
    #[inline(always)]
    pub fn post_send_one(&mut self, packet: Packet) -> Result<(), Unposted> {
        if self.send.takes_one(&packet) {
            // SAFETY: the QP is live until drop, `send` is its send queue, and takes it.
            unsafe { self.send.post_one(self.post_send, packet) }.map_err(|unposted| self.refused(unposted))
        } else {
            self.post_single(packet, |qp, batch| qp.post_send_any(batch).stop)
        }
    }

    #[cold]
    fn refused(&mut self, unposted: Unposted) -> Unposted {
        self.count_refusal(Some(unposted.stop));
        unposted
    }

    /// Posts a packet the way that batches go.
    #[inline(never)]
    fn post_single(
        &mut self,
        packet: Packet,
        post: impl FnOnce(&mut QueuePair, &mut Batch) -> Option<PostStop>,
    ) -> Result<(), Unposted> {
        let mut single = std::mem::replace(&mut self.single, Batch::with_capacity(0));
        // Empty, and made for one.
        single.push_iter([packet]);
        let stop = post(self, &mut single);
        let packet = single.pop();
        self.single = single;
        stop.map_or(Ok(()), |stop| Err(Unposted { packet, stop }))
    }

    #[inline(never)]
    fn post_send_list(&mut self, batch: &mut Batch) -> SendOutcome {
        // SAFETY: the QP is live until drop, and `send` is its send queue.
        match unsafe { self.send.post_all(self.post_send, batch) } {
            Some((taken, ret)) => {
                let stop = self.stop_of(ret);
                SendOutcome { posted: taken as usize, inlined: taken as usize, stop }
            }
            None => self.post_send_any(batch),
        }
    }

    #[inline(never)]
    fn post_send_any(&mut self, batch: &mut Batch) -> SendOutcome {
        if !self.may_send() {
            return SendOutcome { stop: Some(PostStop::NotReady(self.state)), ..SendOutcome::default() };
        }
        // SAFETY: the QP is live until drop, and `send` is its send queue.
        let outcome = unsafe { self.send.post_batch(self.post_send, batch) };
        self.count_refusal(outcome.stop);
        outcome
    }

    /// As [`QueuePair::post_send`], with options a packet: called with its place in the batch and the packet, before the list
    /// is posted, and so for some packets twice when the device refuses some.
    #[inline]
    pub fn post_send_with(
        &mut self,
        batch: &mut Batch,
        options: impl FnMut(usize, &Packet) -> SendOptions,
    ) -> SendOutcome {
        if !self.may_send() {
            return SendOutcome { stop: Some(PostStop::NotReady(self.state)), ..SendOutcome::default() };
        }
        // SAFETY: the QP is live until drop, and `send` is its send queue.
        let outcome = unsafe { self.send.post_batch_with(self.post_send, batch, options) };
        self.count_refusal(outcome.stop);
        outcome
    }

    /// Posts packets from the front of the batch for receiving. Each is emptied first: what it held is overwritten.
    #[inline(always)]
    pub fn post_recv(&mut self, batch: &mut Batch) -> RecvOutcome {
        let verb = self.post_recv;
        // A QP on an SRQ has a queue of no depth, in which nothing fits.
        match batch.as_slice() {
            [packet] if self.recv.takes_one(packet) => {
                // SAFETY: the QP is live until drop, `recv` is its receive queue, and takes it.
                let outcome = unsafe { self.recv.post_only(batch, |wr, bad| verb.call(wr, bad)) };
                self.count_refusal(outcome.stop);
                outcome
            }
            _ => self.post_recv_list(batch),
        }
    }

    /// Posts one packet for receiving. It is emptied first: what it held is overwritten.
    #[inline(always)]
    pub fn post_recv_one(&mut self, packet: Packet) -> Result<(), Unposted> {
        if self.recv.takes_one(&packet) {
            let verb = self.post_recv;
            // SAFETY: the QP is live until drop, `recv` is its receive queue, and takes it.
            let posted = unsafe { self.recv.post_one(packet, |wr, bad| verb.call(wr, bad)) };
            posted.map_err(|unposted| self.refused(unposted))
        } else {
            self.post_single(packet, |qp, batch| qp.post_recv_any(batch).stop)
        }
    }

    #[inline(never)]
    fn post_recv_list(&mut self, batch: &mut Batch) -> RecvOutcome {
        let verb = self.post_recv;
        // SAFETY: the QP is live until drop, and `recv` is its receive queue.
        match unsafe { self.recv.post_all(batch, |wr, bad| verb.call(wr, bad)) } {
            Some((taken, ret)) => RecvOutcome { posted: taken as usize, stop: self.stop_of(ret) },
            None => self.post_recv_any(batch),
        }
    }

    #[inline(never)]
    fn post_recv_any(&mut self, batch: &mut Batch) -> RecvOutcome {
        if self.state == QpState::Reset {
            return RecvOutcome { posted: 0, stop: Some(PostStop::NotReady(self.state)) };
        }
        if self.keep.srq.is_some() {
            return RecvOutcome { posted: 0, stop: Some(PostStop::UsesSrq) };
        }
        if self.recv_scatter.is_some() {
            return RecvOutcome { posted: 0, stop: Some(PostStop::OtherReceives { lists: true }) };
        }
        let verb = self.post_recv;
        // SAFETY: the QP is live until drop, and `recv` is its receive queue.
        let outcome = unsafe { self.recv.post_batch(batch, |wr, bad| verb.call(wr, bad)) };
        self.count_refusal(outcome.stop);
        outcome
    }

    /// The packet that a receive completion filled. Its length is what came; on UD the GRH is taken off. It is empty when the
    /// receive failed, and when an RDMA WRITE with immediate put its bytes elsewhere.
    #[inline]
    pub fn recv_done(&mut self, completion: &Completion) -> Result<Packet, Stale> {
        // The number of another kind of work request is none of the queue's.
        self.recv.complete(completion).inspect_err(|_| self.counters.stale += 1)
    }

    /// Takes the receive completions at the front, as long as they are this QP's, in the order that it posted them in, and
    /// brought a message: their packets go to the end of `packets`, as far as there is room, as [`QueuePair::recv_done`] would
    /// give them. Gives how many; 0 says that the first is something else, and `recv_done` says what.
    ///
    /// What a poll found is mostly runs of one QP's receives, and a run takes half of what as many calls of `recv_done` do.
    #[inline(always)]
    pub fn recv_run(&mut self, completions: &[Completion], packets: &mut Batch) -> usize {
        match completions {
            // A lone one is part of the caller, which spares saving registers around a call.
            [completion] if !packets.is_full() => {
                let packet = self.recv.complete_one(completion);
                packet.map_or(0, |packet| packets.push_iter([packet]))
            }
            _ => self.recv.complete_run(completions, packets),
        }
    }

    /// The packet of a completion, as [`QueuePair::recv_run`] of this one would give it; `None`, and nothing done, where that would
    /// give none.
    #[inline(always)]
    pub fn recv_one(&mut self, completion: &Completion) -> Option<Packet> {
        self.recv.complete_one(completion)
    }

    /// Takes a send's completion: the packets of all sends up to it go to `freed`, or to their pools when it is full; the last
    /// is the completion's own, if it was not inline. Gives how many work requests are done by it. Hand completions in the
    /// order that they were polled in; one that is overtaken is stale.
    #[inline]
    pub fn send_done(&mut self, completion: &Completion, freed: &mut Batch) -> Result<usize, Stale> {
        let done = match completion.kind() {
            WrKind::Send => self.send.complete(completion, freed),
            _ => Err(Stale { wr_id: completion.wr_id() }),
        };
        done.map(|(count, _)| count).inspect_err(|_| self.counters.stale += 1)
    }

    /// Takes the completion of a one-sided or special work request: its memory comes back, and the packets of all sends up to
    /// it go to `freed`, or to their pools when it is full. Of a list, what comes back is [`Buffer::Empty`], or one of its slices.
    pub fn op_done(&mut self, completion: &Completion, freed: &mut Batch) -> Result<Buffer, Stale> {
        let done = match completion.kind() {
            WrKind::Op => self.send.complete(completion, freed),
            _ => Err(Stale { wr_id: completion.wr_id() }),
        };
        done.map(|(_, buffer)| buffer.unwrap_or_default()).inspect_err(|_| self.counters.stale += 1)
    }

    /// The work requests of RC.
    pub fn rc(&mut self) -> Result<RcQp<'_>, QpError> {
        self.check_transport(Transport::Rc)?;
        Ok(RcQp::new(self))
    }

    /// The work requests of UC.
    pub fn uc(&mut self) -> Result<UcQp<'_>, QpError> {
        self.check_transport(Transport::Uc)?;
        Ok(UcQp::new(self))
    }

    /// The work requests of UD.
    pub fn ud(&mut self) -> Result<UdQp<'_>, QpError> {
        self.check_transport(Transport::Ud)?;
        Ok(UdQp::new(self))
    }

    pub(crate) fn post_op(&mut self, op: &Op, buffer: Buffer) -> Result<(), Refused> {
        if !self.may_send() {
            return Err(Refused { buffer, reason: PostStop::NotReady(self.state) });
        }
        // SAFETY: the QP is live until drop, and `send` is its send queue.
        let posted = unsafe { self.send.post_op(self.post_send, op, buffer) };
        posted.inspect_err(|refused| self.count_refusal(Some(refused.reason)))
    }

    #[inline]
    pub(crate) fn post_transfers<'a>(
        &mut self,
        direction: Direction,
        options: &SendOptions,
        transfers: impl Iterator<Item = (&'a PeerSlice, Remote)>,
    ) -> SendOutcome {
        if !self.may_send() {
            return SendOutcome { stop: Some(PostStop::NotReady(self.state)), ..SendOutcome::default() };
        }
        // SAFETY: the QP is live until drop, and `send` is its send queue.
        let outcome = unsafe { self.send.post_transfers(self.post_send, direction, options, transfers) };
        self.count_refusal(outcome.stop);
        outcome
    }

    pub(crate) fn bind_window(
        &mut self,
        window: &mut MemoryWindow,
        slice: PeerSlice,
        access: Access,
        options: SendOptions,
    ) -> Result<(), Refused> {
        let options = SendOptions { imm: None, ..options };
        if !self.may_send() {
            return Err(Refused { buffer: slice.into(), reason: PostStop::NotReady(self.state) });
        }
        // SAFETY: the QP is live until drop, and `send` is its send queue.
        let posted = unsafe { self.send.bind_window(self.post_send, window, slice, access, options) };
        posted.inspect_err(|refused| self.count_refusal(Some(refused.reason)))
    }

    /// Its number, 24 bits.
    pub fn qpn(&self) -> u32 {
        // SAFETY: the QP is live; the field is not written after creation.
        unsafe { (*self.raw.as_ptr()).qp_num }
    }

    /// Its transport.
    pub fn transport(&self) -> Transport {
        self.send.transport
    }

    /// What [`Completion::tag`] says of its completions.
    pub fn tag(&self) -> u16 {
        self.send.tag
    }

    /// Its PD.
    pub fn pd(&self) -> ProtectionDomain {
        ProtectionDomain { inner: self.keep.pd.clone() }
    }

    /// The longest packet that goes inline: what was asked, or what the device grants if that is less.
    pub fn max_inline_bytes(&self) -> u32 {
        self.send.inline_bytes
    }

    /// The longest message, bytes: on UD, the port's MTU. Known from INIT on.
    pub fn max_message_bytes(&self) -> u32 {
        self.send.max_message_bytes()
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

    /// Sends posted and not known to be done; unsignaled ones count until a later completion covers them.
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

    /// What went wrong so far.
    pub fn counters(&self) -> QpCounters {
        self.counters
    }

    /// Returns every packet to its pool: the device holds none. For those who brought the QP to RESET.
    pub(crate) fn reclaim(&mut self) -> u32 {
        let lists = self.recv_scatter.as_mut().map_or(0, |lists| lists.reclaim());
        self.send.reclaim() + self.recv.reclaim() + lists
    }

    /// Whether its receives come from an SRQ.
    pub fn uses_srq(&self) -> bool {
        self.keep.srq.is_some()
    }

    pub(crate) fn keep(&self) -> &Keep {
        &self.keep
    }

    pub(crate) fn keep_mut(&mut self) -> &mut Keep {
        &mut self.keep
    }

    pub(crate) fn check_transport(&self, asked: Transport) -> Result<(), QpError> {
        match self.transport() {
            is if is == asked => Ok(()),
            is => Err(QpError::NotTransport { qpn: self.qpn(), is, asked }),
        }
    }

    /// Notes the state, and what may be posted in it.
    pub(crate) fn set_state(&mut self, state: QpState) {
        self.state = state;
        let may_send = self.may_send();
        self.send.set_open(may_send);
        self.recv.set_open(state != QpState::Reset);
    }

    /// A device may take and forget a send posted in RESET, INIT or RTR (ibv_post_send(3)), so it is not asked.
    #[inline]
    fn may_send(&self) -> bool {
        !matches!(self.state, QpState::Reset | QpState::Init | QpState::Rtr)
    }

    /// What a verb's answer means for the batch, counted.
    #[inline]
    fn stop_of(&mut self, ret: i32) -> Option<PostStop> {
        if ret == 0 {
            return None;
        }
        let stop = Some(PostStop::of_device(ret));
        self.count_refusal(stop);
        stop
    }

    #[inline]
    fn count_refusal(&mut self, stop: Option<PostStop>) {
        if matches!(stop, Some(PostStop::Device(_))) {
            self.counters.refused += 1;
        }
    }

    /// Destroys the QP, trying again for a while. False when the device would not.
    fn destroy(&mut self) -> Result<(), Errno> {
        let provider = self.keep.pd.provider();
        let deadline = Instant::now() + self.destroy_timeout;
        loop {
            // SAFETY: the QP is live; this is its end if the call succeeds.
            let ret = unsafe { verb!(provider, ibv_destroy_qp(self.raw.as_ptr())) };
            match self.keep.pd.context.undestroyed(ret) {
                None => return Ok(()),
                Some(errno) if Instant::now() >= deadline => return Err(errno),
                Some(_) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        self.detach_all();
        // Stops the device before it is asked to let go; destroying works from any state, so a refusal does not matter.
        let _ = self.to_err();
        match self.destroy() {
            Ok(()) => {
                // SAFETY: dropped once, here. ibv_destroy_qp succeeded, so the device reaches none of the packets any more.
                unsafe {
                    ManuallyDrop::drop(&mut self.send);
                    ManuallyDrop::drop(&mut self.recv);
                    ManuallyDrop::drop(&mut self.recv_scatter);
                    ManuallyDrop::drop(&mut self.keep);
                }
            }
            Err(errno) => self.leak(errno),
        }
    }
}

impl QueuePair {
    /// The device may still write the packets: they, and what the QP stands on, are never freed.
    #[cold]
    fn leak(&mut self, errno: Errno) {
        // Relaxed: a count for people.
        LEAKED.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(
            qpn = self.qpn(),
            device = %self.keep.pd.context.name,
            %errno,
            packets = self.sends_outstanding() + self.recvs_outstanding(),
            "the device would not destroy the QP: its packets and their pools are leaked, because it may still write them"
        );
    }
}

static LEAKED: AtomicU64 = AtomicU64::new(0);

/// QPs of this process that a device would not let go of. Each one's packets, and so their pools, are never freed.
pub fn leaked_queue_pairs() -> u64 {
    LEAKED.load(Ordering::Relaxed)
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

/// 24 bits that differ from QP to QP.
fn fresh_psn() -> u32 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    // Relaxed: only spreading the numbers matters. The multiplier is 2^64 over the golden ratio, which spreads consecutive
    // numbers evenly.
    let n = NEXT.fetch_add(1, Ordering::Relaxed).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (n >> 40) as u32
}
