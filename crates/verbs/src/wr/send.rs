//! The send queue: packets move into slots when posted and out when a signaled completion covers
//! them.
//!
//! Every `signal_every`-th work request is signaled, counted over all kinds, and at least one in
//! the queue's depth: a full queue always holds one that will complete. Positions count up for ever
//! and wrap, together with the numbers in `wr_id`: the age of a number in posts identifies its work
//! request, so there is no table of numbers.

mod batch;
mod done;
mod inline;
mod listed_wr;
mod named;
mod op;
mod post_queue;
mod signal;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use rdma_sys::{ibv_send_flags, ibv_sge};
use verbline_softnic::qp_table::Transport;

use crate::datagram::ah::{AddressHandle, AhSpec};
use crate::device::gid::Endpoint;
use crate::memory::window::PostedBind;
use crate::signature::PostedConfiguration;
use crate::wr::buffer::Buffer;
use crate::wr::post::{DestinationId, PoolKey, PostStop, SendOptions};
use crate::wr::sg_list::SgList;
use crate::wr::slots::Slots;
use crate::wr::wr_list::LONGEST;
use crate::wr_id::{NO_WR_ID, Sequence, WrKind};

const FENCE: u32 = ibv_send_flags::IBV_SEND_FENCE.0;
const SIGNALED: u32 = ibv_send_flags::IBV_SEND_SIGNALED.0;
const SOLICITED: u32 = ibv_send_flags::IBV_SEND_SOLICITED.0;
const INLINE: u32 = ibv_send_flags::IBV_SEND_INLINE.0;

/// One entry of the destination table.
pub(crate) struct Destination {
    /// Kept for the life of the queue: a posted send may still use it.
    pub(crate) ah: AddressHandle,
    pub(crate) qpn: u32,
    pub(crate) qkey: u32,
}

impl Destination {
    pub(crate) fn endpoint(&self) -> Endpoint {
        let AhSpec { gid, lid, .. } = self.ah.inner.spec;
        Endpoint { qpn: self.qpn, psn: 0, gid: gid.unwrap_or_default(), lid, qkey: self.qkey }
    }
}

/// Held by a slot of the SQ for a work request other than a packet of a batch.
pub(crate) enum Kept {
    /// Memory that goes back to the user.
    Memory(Buffer),
    /// The scatter/gather list of a listed operation, which goes back to the user.
    List(Box<SgList>),
    /// A bind: the window and its previous memory, and memory that goes back to the user.
    Bind(PostedBind, Buffer),
    /// A configuration, or an invalidation, of a signature key.
    Configuration(PostedConfiguration),
}

pub(crate) struct SendQueue {
    /// Numbers; the low bits of one are its slot.
    sequence: Sequence,
    /// How many of the last numbers, up to the last taken, are not known to be done.
    outstanding: u32,
    pub(crate) depth: u32,
    /// The depth; 0 if nothing may be posted.
    usual_depth: u32,
    /// Counts down; the post that brings it to 0 is signaled.
    until_signal: u32,
    signal_every: u32,
    /// The solicited flag for every SEND, or 0.
    solicited: u32,
    /// Longest message that [`SendQueue::post_one`] sends inline; 0 if more fields must be written:
    /// on UD, and with solicited SENDs.
    one_inline_bytes: u32,
    pub(crate) inline_bytes: u32,
    max_sge: u32,
    max_message_bytes: u32,
    /// The number of occupied `packets`.
    packets_kept: u32,
    /// The number of occupied `ops`.
    ops_kept: u32,
    /// The number of set `listed`.
    listed_kept: u32,
    key: PoolKey,
    pub(crate) pd_id: u64,
    pub(crate) tag: u16,
    pub(crate) transport: Transport,
    configures_keys: bool,
    /// Packets that the device may still read. Empty for inline sends and for ops.
    packets: Slots,
    /// Memory that one-sided work requests read or write, in the same slots.
    ops: Box<[Option<Kept>]>,
    /// Whether each slot has an operation of a list. Its packet is in `packets`; only a bind or a
    /// scatter/gather list has an entry in `ops`.
    listed: Box<[bool]>,
    /// Space for the entries of work requests with scatter/gather lists, used during their post:
    /// enough for at least one work request.
    sges: Box<[ibv_sge]>,
    pub(crate) destinations: Vec<Destination>,
    /// Replaced address handles, oldest first, each with the last work request that may use it.
    pub(crate) replaced: VecDeque<(u64, AddressHandle)>,
}

pub(crate) struct SendQueueSpec {
    pub(crate) depth: u32,
    pub(crate) tag: u16,
    pub(crate) pd_id: u64,
    pub(crate) transport: Transport,
    pub(crate) inline_bytes: u32,
    /// 1 signals every work request.
    pub(crate) signal_every: u32,
    /// Scatter/gather entries per work request.
    pub(crate) max_sge: u32,
    /// Whether every SEND is solicited.
    pub(crate) solicited: bool,
    /// Whether work requests may configure signature keys.
    pub(crate) configures_keys: bool,
}

impl SendQueue {
    pub(crate) fn new(spec: SendQueueSpec) -> SendQueue {
        // One more slot for the marker that a drain posts behind a full queue.
        let packets = Slots::new(spec.depth + 1);
        let signal_every = spec.signal_every.clamp(1, spec.depth.max(1));
        let sges = if spec.max_sge > 1 { (spec.max_sge as usize).max(LONGEST) } else { 1 };
        let mut queue = SendQueue {
            ops: std::iter::repeat_with(|| None).take(packets.len() as usize).collect(),
            sges: vec![ibv_sge { addr: 0, length: 0, lkey: 0 }; sges].into(),
            max_sge: spec.max_sge,
            listed: vec![false; packets.len() as usize].into(),
            packets,
            packets_kept: 0,
            ops_kept: 0,
            listed_kept: 0,
            outstanding: 0,
            depth: spec.depth,
            usual_depth: 0,
            sequence: Sequence::new(spec.tag, WrKind::Send),
            key: PoolKey::new(spec.pd_id),
            tag: spec.tag,
            pd_id: spec.pd_id,
            transport: spec.transport,
            solicited: flags_of(spec.solicited, false),
            configures_keys: spec.configures_keys,
            inline_bytes: spec.inline_bytes,
            one_inline_bytes: 0,
            max_message_bytes: 0,
            signal_every,
            until_signal: signal_every,
            destinations: Vec::new(),
            replaced: VecDeque::new(),
        };
        // The specification's limit (ibv_post_send(3)), until the port is known.
        queue.set_max_message_bytes(1 << 31);
        queue
    }

    /// Sets whether anything may be posted. The paths for lists ignore it.
    pub(crate) fn set_open(&mut self, open: bool) {
        self.usual_depth = if open { self.depth } else { 0 };
    }

    pub(crate) fn max_message_bytes(&self) -> u32 {
        self.max_message_bytes
    }

    pub(crate) fn max_sge(&self) -> u32 {
        self.max_sge
    }

    pub(crate) fn set_max_message_bytes(&mut self, bytes: u32) {
        self.max_message_bytes = bytes;
        let has_more = self.transport == Transport::Ud || self.solicited != 0;
        self.one_inline_bytes = if has_more { 0 } else { self.inline_bytes.min(bytes) };
    }

    /// The number of taken slots.
    #[inline]
    pub(crate) fn outstanding(&self) -> u32 {
        self.outstanding
    }

    /// The number, without its kind, of the work request posted `ago` posts ago; 1 is the last.
    /// `ago` is at most the number outstanding.
    pub(crate) fn taken(&self, ago: u32) -> u64 {
        self.sequence.taken(ago)
    }

    pub(crate) fn reserve_destinations(&mut self, more: usize) {
        self.destinations.reserve(more);
        self.replaced.reserve(more);
    }

    /// Records a replaced address handle; posted sends may still use it.
    pub(crate) fn replace(&mut self, ah: AddressHandle) {
        let last = if self.outstanding > 0 { self.taken(1) } else { NO_WR_ID };
        self.replaced.push_back((last, ah));
    }

    /// The oldest replaced address handle, once no posted send can use it.
    pub(crate) fn take_replaced(&mut self) -> Option<AddressHandle> {
        let (last, _) = self.replaced.front()?;
        let is_used = self.sequence.age(*last, self.outstanding).is_some();
        if is_used { None } else { self.replaced.pop_front().map(|(_, ah)| ah) }
    }

    /// Whether the work request of this number, which is a send, is not known to be done.
    pub(crate) fn is_out(&self, number: u64) -> bool {
        self.sequence.age(number, self.outstanding).is_some()
    }

    /// The number of work requests that fit now.
    #[inline]
    pub(crate) fn room(&self) -> u32 {
        self.depth.saturating_sub(self.outstanding)
    }

    /// How many work requests can be posted as a list, at most `want`.
    #[inline]
    fn reserve(&mut self, want: usize) -> usize {
        // A block of numbers ends once in a million posts; the rest is posted in the next round.
        self.sequence.reserve(want.min(self.room() as usize).min(LONGEST) as u32) as usize
    }

    #[inline]
    fn destination(&self, id: DestinationId) -> Result<Option<rdma_sys::ud_t>, PostStop> {
        if self.transport != Transport::Ud {
            return Ok(None);
        }
        match self.destinations.get(usize::from(id.0)) {
            Some(to) => Ok(Some(rdma_sys::ud_t { ah: to.ah.inner.as_ptr(), remote_qpn: to.qpn, remote_qkey: to.qkey })),
            None => Err(PostStop::NoDestination(id.0)),
        }
    }

    #[inline]
    fn advance(&mut self, taken: u32) {
        self.outstanding += taken;
        self.sequence.advance(taken);
    }
}

/// The flags of these options.
#[inline]
fn flags(options: &SendOptions) -> u32 {
    flags_of(options.solicited, options.fence)
}

#[inline]
fn flags_of(solicited: bool, fence: bool) -> u32 {
    let flag = |set: bool, flag: u32| if set { flag } else { 0 };
    flag(solicited, SOLICITED) | flag(fence, FENCE)
}
