//! The send queue: packets move into slots when posted and out when a signaled completion covers
//! them.
//!
//! Every `signal_every`-th work request is signaled, counted over whatever was posted, and never
//! fewer than one in the queue's depth: a full queue always holds one that will complete. Positions
//! count up for ever and wrap, together with the numbers in `wr_id`: how many posts ago a number
//! was taken says which work request it is, so no table is kept of them.

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

use crate::datagram::ah::{AddressHandle, AhSpec};
use crate::device::gid::Endpoint;
use crate::memory::window::PostedBind;
use crate::signature::PostedConfiguration;
use crate::transport::Transport;
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
    /// Kept for as long as the queue: a posted send may still use it.
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

/// What a slot of the SQ keeps for a work request that is not a packet of a batch.
pub(crate) enum Kept {
    /// Memory, which goes back to the user.
    Memory(Buffer),
    /// The scatter/gather list of a listed operation, which does so too.
    List(Box<SgList>),
    /// A bind: the window and what it was bound to before, and memory that goes back to the user.
    Bind(PostedBind, Buffer),
    /// A configuration, or an invalidation, of a signature key.
    Configuration(PostedConfiguration),
}

pub(crate) struct SendQueue {
    /// The low bits of a number are its slot.
    sequence: Sequence,
    /// How many, the last taken included, are not known to be done.
    outstanding: u32,
    pub(crate) depth: u32,
    /// The depth; 0 where nothing may be posted.
    usual_depth: u32,
    /// The post in which this comes to 0 is signaled.
    until_signal: u32,
    signal_every: u32,
    /// The flag of every SEND, or none.
    solicited: u32,
    /// What goes inline by [`SendQueue::post_one`]; 0 where there is more to write: on UD, and
    /// where all is solicited.
    one_inline_bytes: u32,
    pub(crate) inline_bytes: u32,
    max_sge: u32,
    max_message_bytes: u32,
    /// How many of `packets` are taken.
    packets_kept: u32,
    /// How many of `ops` are taken.
    ops_kept: u32,
    /// How many of `listed` are set.
    listed_kept: u32,
    key: PoolKey,
    pub(crate) pd_id: u64,
    pub(crate) tag: u16,
    pub(crate) transport: Transport,
    configures_keys: bool,
    /// A packet that the device may still read. Empty for inline sends and for ops.
    packets: Slots,
    /// What one-sided work requests read or write, in the same slots.
    ops: Box<[Option<Kept>]>,
    /// Which of these slots have an operation of a list. Its packet is in `packets`; only of a bind
    /// and of a scatter/gather list is there something in `ops`.
    listed: Box<[bool]>,
    /// Room for the entries of work requests that have scatter/gather lists, used during their
    /// post: as many as one may have at least.
    sges: Box<[ibv_sge]>,
    pub(crate) destinations: Vec<Destination>,
    /// Addresses that were replaced, oldest first, each with the last work request that may use it.
    pub(crate) replaced: VecDeque<(u64, AddressHandle)>,
}

pub(crate) struct SendQueueSpec {
    pub(crate) depth: u32,
    pub(crate) tag: u16,
    pub(crate) pd_id: u64,
    pub(crate) transport: Transport,
    pub(crate) inline_bytes: u32,
    /// 1 signals all.
    pub(crate) signal_every: u32,
    /// Scatter/gather entries a work request.
    pub(crate) max_sge: u32,
    /// Whether every SEND is.
    pub(crate) solicited: bool,
    /// Whether its work requests may configure signature keys.
    pub(crate) configures_keys: bool,
}

impl SendQueue {
    pub(crate) fn new(spec: SendQueueSpec) -> SendQueue {
        // One more for the marker that a drain posts behind a full queue.
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
        // Until the port is known. The specification's limit (ibv_post_send(3)).
        queue.set_max_message_bytes(1 << 31);
        queue
    }

    /// Says whether anything may be posted. It has no say in what takes lists.
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

    /// Slots that are taken.
    #[inline]
    pub(crate) fn outstanding(&self) -> u32 {
        self.outstanding
    }

    /// The number, without its kind, of the work request that was posted `ago` posts ago, 1 being
    /// the last; at most as many as are outstanding.
    pub(crate) fn taken(&self, ago: u32) -> u64 {
        self.sequence.taken(ago)
    }

    pub(crate) fn reserve_destinations(&mut self, more: usize) {
        self.destinations.reserve(more);
        self.replaced.reserve(more);
    }

    /// An address that is no destination any more; what is posted may use it still.
    pub(crate) fn replace(&mut self, ah: AddressHandle) {
        let last = if self.outstanding > 0 { self.taken(1) } else { NO_WR_ID };
        self.replaced.push_back((last, ah));
    }

    /// The oldest that was replaced, once nothing that is posted can use it.
    pub(crate) fn take_replaced(&mut self) -> Option<AddressHandle> {
        let (last, _) = self.replaced.front()?;
        let is_used = self.sequence.age(*last, self.outstanding).is_some();
        if is_used { None } else { self.replaced.pop_front().map(|(_, ah)| ah) }
    }

    /// Work requests that fit now.
    #[inline]
    pub(crate) fn room(&self) -> u32 {
        self.depth.saturating_sub(self.outstanding)
    }

    /// How many can be posted as a list, at most `want`.
    #[inline]
    fn reserve(&mut self, want: usize) -> usize {
        // A block of numbers ends once in a million posts; then the rest goes round again.
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

/// The flags that options ask for.
#[inline]
fn flags(options: &SendOptions) -> u32 {
    flags_of(options.solicited, options.fence)
}

#[inline]
fn flags_of(solicited: bool, fence: bool) -> u32 {
    let flag = |set: bool, flag: u32| if set { flag } else { 0 };
    flag(solicited, SOLICITED) | flag(fence, FENCE)
}
