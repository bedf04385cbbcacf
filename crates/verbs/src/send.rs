//! The send queue: packets move into slots when posted and out when a signaled completion covers them.
//!
//! Every `signal_every`-th work request is signaled, counted over whatever was posted, and never fewer than one in the queue's
//! depth: a full queue always holds one that will complete. Positions count up for ever and wrap, together with the numbers in
//! `wr_id`: how many posts ago a number was taken says which work request it is, so no table is kept of them.

mod op;
mod transfers;

use std::ptr;

use rdma_sys::{ibv_qp, ibv_send_flags, ibv_send_wr, ibv_sge, ibv_wr_opcode};
use verbline_mem::{Batch, Packet};

use crate::ah::AddressHandle;
use crate::completion::{Completion, Stale};
use crate::one_sided::{Buffer, Kept};
use crate::post::{DestinationId, PoolKey, PostStop, SendOptions, SendOutcome};
use crate::qp_attr::Transport;
use crate::slots::Slots;
use crate::wr_id::{self, Sequence, WrKind};
use crate::wr_list::{Entry, WrList};

pub(crate) use transfers::Direction;

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

pub(crate) struct SendQueue {
    list: WrList<ibv_send_wr>,
    /// Position of the next post.
    head: u32,
    /// Position of the oldest that is not known to be done.
    tail: u32,
    pub(crate) depth: u32,
    /// How many of `packets` are taken.
    packets_kept: u32,
    /// How many of `ops` are taken.
    ops_kept: u32,
    /// Posted since the last signaled one.
    unsignaled: u32,
    signal_every: u32,
    pub(crate) inline_bytes: u32,
    pub(crate) max_message_bytes: u32,
    sequence: Sequence,
    pd_id: u64,
    pub(crate) tag: u16,
    pub(crate) transport: Transport,
    /// A packet that the device may still read. Empty for inline sends and for ops.
    packets: Slots,
    /// What one-sided work requests read or write, in the same slots.
    ops: Box<[Option<Kept>]>,
    pub(crate) destinations: Vec<Destination>,
}

pub(crate) struct SendQueueSpec {
    pub(crate) depth: u32,
    pub(crate) tag: u16,
    pub(crate) pd_id: u64,
    pub(crate) transport: Transport,
    pub(crate) inline_bytes: u32,
    /// 1 signals all.
    pub(crate) signal_every: u32,
}

impl SendQueue {
    pub(crate) fn new(spec: SendQueueSpec) -> SendQueue {
        // One more for the marker that a drain posts behind a full queue.
        let packets = Slots::new(spec.depth + 1);
        SendQueue {
            list: WrList::new(spec.depth),
            ops: std::iter::repeat_with(|| None).take(packets.len() as usize).collect(),
            packets,
            packets_kept: 0,
            ops_kept: 0,
            head: 0,
            tail: 0,
            depth: spec.depth,
            sequence: Sequence::new(),
            tag: spec.tag,
            pd_id: spec.pd_id,
            transport: spec.transport,
            inline_bytes: spec.inline_bytes,
            // Until the port is known. The specification's limit (ibv_post_send(3)).
            max_message_bytes: 1 << 31,
            signal_every: spec.signal_every.clamp(1, spec.depth.max(1)),
            unsignaled: 0,
            destinations: Vec::new(),
        }
    }

    /// Slots that are taken.
    #[inline]
    pub(crate) fn outstanding(&self) -> u32 {
        self.head.wrapping_sub(self.tail)
    }

    /// Work requests that fit now.
    #[inline]
    pub(crate) fn room(&self) -> u32 {
        self.depth.saturating_sub(self.outstanding())
    }

    /// Posts the front of the batch.
    ///
    /// # Safety
    /// `qp` is the live QP whose send queue this is.
    #[inline]
    pub(crate) unsafe fn post_batch(
        &mut self,
        qp: *mut ibv_qp,
        batch: &mut Batch,
        mut options: impl FnMut(usize, &Packet) -> SendOptions,
    ) -> SendOutcome {
        if let ([packet], true) = (batch.as_slice(), self.outstanding() < self.depth) {
            let options = options(0, packet);
            // SAFETY: the caller's word.
            return unsafe { self.post_single(qp, batch, &options) };
        }
        let mut outcome = SendOutcome::default();
        while !batch.is_empty() {
            let room = (self.room() as usize).min(batch.len()) as u32;
            // A block of sequence numbers ends once in a million posts; then the rest goes round again.
            let want = self.sequence.reserve(room);
            if want == 0 {
                outcome.stop = Some(PostStop::Full);
                break;
            }
            let done = outcome.posted;
            let (list, stop) = self.format(&batch.as_slice()[..want as usize], |at, packet| options(done + at, packet));
            let inlined = list.inlined;
            // SAFETY: the caller's word.
            let (taken, refusal) = unsafe { self.post_list(qp, list) };
            outcome.inlined += self.keep(batch, taken, inlined);
            outcome.posted += taken as usize;
            outcome.stop = refusal.or(stop);
            if outcome.stop.is_some() {
                break;
            }
        }
        outcome
    }

    /// Posts the only packet of the batch; there is room. A list of one took 60 instructions more.
    ///
    /// # Safety
    /// As [`SendQueue::post_batch`].
    #[inline]
    unsafe fn post_single(&mut self, qp: *mut ibv_qp, batch: &mut Batch, options: &SendOptions) -> SendOutcome {
        let refused = |stop| SendOutcome { posted: 0, inlined: 0, stop: Some(stop) };
        if self.sequence.reserve(1) == 0 {
            return refused(PostStop::Full);
        }
        let [packet] = batch.as_slice() else { return SendOutcome::default() };
        let mut form = Form::new(self);
        let entry = self.list.first();
        let inline = match form.write(entry, packet, options, &self.destinations) {
            Ok(inline) => inline,
            Err(stop) => return refused(stop),
        };
        let signal = options.signaled | (self.unsignaled + 1 >= self.signal_every);
        entry.wr.send_flags |= if signal { SIGNALED } else { 0 };
        entry.wr.wr_id = wr_id::pack(self.tag, WrKind::Send, self.sequence.peek(0));
        // SAFETY: the caller's word.
        let (taken, ret) = self.list.post(1, |wr| unsafe { post(qp, wr) });
        if taken == 1 {
            self.unsignaled = if signal { 0 } else { self.unsignaled + 1 };
            if inline {
                batch.clear();
            } else {
                *self.packets.at(self.head.into()) = batch.pop();
                self.packets_kept += 1;
            }
            self.advance(1);
        }
        let stop = if ret == 0 { None } else { Some(PostStop::of_device(ret)) };
        SendOutcome { posted: taken as usize, inlined: usize::from(inline) & taken as usize, stop }
    }

    /// Posts an empty, signaled send behind everything, even a full queue: on a QP in ERR its flush completion covers all that
    /// was posted. False when it could not be posted.
    ///
    /// # Safety
    /// `qp` is the live QP whose send queue this is.
    pub(crate) unsafe fn post_marker(&mut self, qp: *mut ibv_qp) -> bool {
        let destination = self.destination(DestinationId::default());
        let (true, Ok(destination)) = (self.outstanding() < self.packets.len(), destination) else { return false };
        if self.sequence.reserve(1) == 0 {
            return false;
        }
        let wr_id = wr_id::pack(self.tag, WrKind::Send, self.sequence.peek(0));
        let wr = &mut self.list.first().wr;
        wr.wr_id = wr_id;
        wr.opcode = ibv_wr_opcode::IBV_WR_SEND;
        wr.send_flags = SIGNALED;
        wr.num_sge = 0;
        if let Some(to) = destination {
            wr.wr.ud = to;
        }
        // SAFETY: the caller's word.
        let (taken, _) = unsafe { self.post_list(qp, List { len: 1, inlined: 0, unsignaled: 0 }) };
        self.advance(taken);
        taken == 1
    }

    /// Writes work requests for the packets, which are no more than the depth and the numbers reserved. Gives those written, and
    /// what is wrong with the packet behind them.
    #[inline]
    fn format(
        &mut self,
        packets: &[Packet],
        mut options: impl FnMut(usize, &Packet) -> SendOptions,
    ) -> (List, Option<PostStop>) {
        let first = wr_id::pack(self.tag, WrKind::Send, self.sequence.peek(0));
        let mut form = Form::new(self);
        let mut list = List { len: 0, inlined: 0, unsignaled: self.unsignaled };
        for (packet, entry) in packets.iter().zip(self.list.entries()) {
            let options = options(list.len as usize, packet);
            match form.write(entry, packet, &options, &self.destinations) {
                Ok(inline) => list.inlined += u32::from(inline),
                Err(stop) => return (list, Some(stop)),
            }
            entry.wr.wr_id = first + u64::from(list.len);
            entry.wr.send_flags |= list.signal(options.signaled, self.signal_every);
            list.len += 1;
        }
        (list, None)
    }

    #[inline]
    fn destination(&self, id: DestinationId) -> Result<Option<rdma_sys::ud_t>, PostStop> {
        match self.transport {
            Transport::Ud => destination(&self.destinations, id).map(Some),
            _ => Ok(None),
        }
    }

    /// Gives how many the device took, and its refusal. The caller moves what was taken into the slots and advances.
    ///
    /// # Safety
    /// `qp` is the live QP whose send queue this is; the memory of the formatted work requests stays until they complete.
    #[inline]
    unsafe fn post_list(&mut self, qp: *mut ibv_qp, list: List) -> (u32, Option<PostStop>) {
        if list.len == 0 {
            return (0, None);
        }
        // SAFETY: the caller's word; `wr` is a list of formatted work requests that ends.
        let (taken, ret) = self.list.post(list.len, |wr| unsafe { post(qp, wr) });
        if ret == 0 {
            self.unsignaled = list.unsignaled;
            return (taken, None);
        }
        self.recount_unsignaled(taken);
        (taken, Some(PostStop::of_device(ret)))
    }

    /// After a post that was refused halfway: what counts is what was taken.
    #[cold]
    fn recount_unsignaled(&mut self, taken: u32) {
        for entry in &self.list.entries()[..taken as usize] {
            self.unsignaled = if entry.wr.send_flags & SIGNALED != 0 { 0 } else { self.unsignaled + 1 };
        }
    }

    /// Moves the first `taken` packets from the batch into their slots; those that went inline go back to their pool, and
    /// are counted.
    #[inline]
    fn keep(&mut self, batch: &mut Batch, taken: u32, inlined: u32) -> usize {
        let inlined = match inlined {
            // Back in bulk: 51 ns a packet for the whole of examples/overhead, against 59 one by one.
            _ if taken as usize == batch.len() && inlined == taken => {
                batch.clear();
                taken as usize
            }
            0 => {
                self.packets.take_front(self.head, batch, taken as usize);
                self.packets_kept += taken;
                0
            }
            _ => self.keep_mixed(batch, taken),
        };
        self.advance(taken);
        inlined
    }

    fn keep_mixed(&mut self, batch: &mut Batch, taken: u32) -> usize {
        let mut inlined = 0;
        let entries = self.list.entries().iter();
        for ((position, entry), packet) in (self.head..).zip(entries).zip(batch.drain_front(taken as usize)) {
            if entry.wr.send_flags & INLINE != 0 {
                inlined += 1;
                drop(packet);
            } else {
                *self.packets.at(position.into()) = Some(packet);
                self.packets_kept += 1;
            }
        }
        inlined
    }

    #[inline]
    fn advance(&mut self, taken: u32) {
        self.head = self.head.wrapping_add(taken);
        self.sequence.advance(taken);
    }

    /// Frees every slot up to the completion's. Packets go to `freed`, or to their pool when it is full; buffers of ops before
    /// this one are dropped, this one's is given back. Gives the number of work requests that are done by it.
    #[inline]
    pub(crate) fn complete(
        &mut self,
        completion: &Completion,
        freed: &mut Batch,
    ) -> Result<(usize, Option<Buffer>), Stale> {
        let wr_id = completion.wr_id();
        let count = self.count_to(wr_id).ok_or(Stale { wr_id })?;
        let buffer = match wr_id::kind(wr_id) {
            WrKind::Op => self.take_op(self.tail.wrapping_add(count - 1)),
            _ => None,
        };
        self.release(count, |packet| drop(freed.push(packet)));
        Ok((count as usize, buffer))
    }

    fn take_op(&mut self, position: u32) -> Option<Buffer> {
        let kept = self.ops[self.packets.slot(position.into())].take()?;
        self.ops_kept -= 1;
        Some(kept.buffer)
    }

    /// How many are outstanding up to the one with this number, it included.
    #[inline]
    fn count_to(&self, wr_id: u64) -> Option<u32> {
        let outstanding = self.outstanding();
        let age = self.sequence.age(wr_id::sequence(wr_id), outstanding)?;
        (wr_id::tag(wr_id) == self.tag).then_some(outstanding - age)
    }

    #[inline]
    fn release(&mut self, count: u32, free: impl FnMut(Packet)) {
        // Inline sends leave nothing behind.
        if self.packets_kept | self.ops_kept > 0 {
            self.release_kept(count, free);
        }
        self.tail = self.tail.wrapping_add(count);
    }

    fn release_kept(&mut self, count: u32, mut free: impl FnMut(Packet)) {
        for ahead in 0..count {
            let position = u64::from(self.tail.wrapping_add(ahead));
            match self.packets.at(position).take() {
                Some(packet) => {
                    self.packets_kept -= 1;
                    free(packet);
                }
                None if self.ops_kept > 0 => {
                    self.ops_kept -= u32::from(self.ops[self.packets.slot(position)].take().is_some());
                }
                None => {}
            }
        }
    }

    /// Frees every slot: the device has let go of all of them.
    pub(crate) fn reclaim(&mut self) -> u32 {
        let count = self.outstanding();
        self.release(count, drop);
        self.unsignaled = 0;
        count
    }
}

/// What work requests are written by: copies, since the compiler can't know that work requests are not part of the queue.
struct Form {
    transport: Transport,
    inline_bytes: usize,
    max_bytes: u32,
    key: PoolKey,
}

impl Form {
    #[inline]
    fn new(queue: &SendQueue) -> Form {
        Form {
            transport: queue.transport,
            inline_bytes: queue.inline_bytes as usize,
            max_bytes: queue.max_message_bytes,
            key: PoolKey::new(queue.pd_id),
        }
    }

    /// Writes all but the number and the signal; says whether it goes inline.
    #[inline(always)]
    fn write(
        &mut self,
        entry: &mut Entry<ibv_send_wr>,
        packet: &Packet,
        options: &SendOptions,
        destinations: &[Destination],
    ) -> Result<bool, PostStop> {
        let (addr, len) = packet.span();
        if len > self.max_bytes as usize {
            return Err(PostStop::TooLong { len_bytes: len, max_bytes: self.max_bytes });
        }
        // Inline data needs no registration: the CPU copies it during the call (ibv_post_send(3)).
        let inline = len <= self.inline_bytes;
        let lkey = if inline { 0 } else { self.key.lkey(packet)? };
        if options.fence && self.transport != Transport::Rc {
            return Err(PostStop::NotOn(self.transport, "fence"));
        }
        let Entry { sge, wr } = entry;
        if self.transport == Transport::Ud {
            wr.wr.ud = destination(destinations, options.destination)?;
        }
        wr.send_flags = flags(options, inline);
        wr.opcode = ibv_wr_opcode::IBV_WR_SEND;
        if let Some(imm) = options.imm {
            wr.opcode = ibv_wr_opcode::IBV_WR_SEND_WITH_IMM;
            wr.imm_data_invalidated_rkey_union.imm_data = imm.to_be();
        }
        // An SGE of length 0 means 2^31 bytes; a message without bytes has no SGE.
        wr.num_sge = (len > 0).into();
        *sge = ibv_sge { addr, length: len as u32, lkey };
        Ok(inline)
    }
}

#[inline]
fn destination(table: &[Destination], id: DestinationId) -> Result<rdma_sys::ud_t, PostStop> {
    match table.get(usize::from(id.0)) {
        Some(to) => Ok(rdma_sys::ud_t { ah: to.ah.inner.as_ptr(), remote_qpn: to.qpn, remote_qkey: to.qkey }),
        None => Err(PostStop::NoDestination(id.0)),
    }
}

/// # Safety
/// `qp` is a live QP, and `wr` a list of work requests that ends, whose memory stays until they complete.
#[inline]
unsafe fn post(qp: *mut ibv_qp, wr: *mut ibv_send_wr) -> (i32, *mut ibv_send_wr) {
    let mut bad = ptr::null_mut();
    // SAFETY: the caller's word.
    let ret = unsafe { rdma_sys::ibv_post_send(qp, wr, &raw mut bad) };
    (ret, bad)
}

#[inline]
fn flags(options: &SendOptions, inline: bool) -> u32 {
    let flag = |set: bool, flag: u32| if set { flag } else { 0 };
    flag(options.solicited, SOLICITED) | flag(options.fence, FENCE) | flag(inline, INLINE)
}

/// The work requests formatted for one post.
struct List {
    len: u32,
    inlined: u32,
    /// How many at its end are not signaled, those before the list included.
    unsignaled: u32,
}

impl List {
    #[inline]
    fn signal(&mut self, asked: bool, every: u32) -> u32 {
        self.unsignaled += 1;
        if asked || self.unsignaled >= every {
            self.unsignaled = 0;
            return SIGNALED;
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{self, Fake, PD, Posted};
    use crate::post::PostStop;
    use verbline_mem::Pool;

    fn queue(depth: u32, signal_every: u32) -> SendQueue {
        let transport = Transport::Rc;
        SendQueue::new(SendQueueSpec { depth, tag: 3, pd_id: PD, transport, inline_bytes: 16, signal_every })
    }

    fn batch(pool: &Pool, lens: &[usize]) -> Batch {
        let cache = pool.cache(0);
        let mut batch = Batch::with_capacity(lens.len());
        for &len in lens {
            let mut packet = cache.get().unwrap();
            assert!(packet.set_len(len));
            batch.push(packet).unwrap();
        }
        batch
    }

    fn post(queue: &mut SendQueue, fake: &mut Fake, batch: &mut Batch) -> SendOutcome {
        // SAFETY: the fake's QP is alive and its posts follow no pointer beyond the list.
        unsafe { queue.post_batch(fake.qp(), batch, |_, _| SendOptions::default()) }
    }

    fn signaled(posted: &[Posted]) -> Vec<bool> {
        posted.iter().map(|wr| wr.flags & SIGNALED != 0).collect()
    }

    #[test]
    fn what_came_before_bad_wr_stays_with_the_queue_and_the_rest_with_the_caller() {
        let (pool, mut fake) = (fake::pool(32), Fake::new());
        let mut queue = queue(16, 4);
        for takes in [3, 0, 5] {
            let mut batch = batch(&pool, &[100; 8]);
            let kept: Vec<u64> = batch.iter().map(Packet::addr).skip(takes).collect();
            fake.takes = takes;
            let outcome = post(&mut queue, &mut fake, &mut batch);
            assert_eq!((outcome.posted, outcome.stop), (takes, Some(PostStop::Full)));
            assert_eq!(batch.iter().map(Packet::addr).collect::<Vec<_>>(), kept);
        }
        assert_eq!(queue.outstanding(), 8);
        // The refused ones left no gap: every fourth of those taken is signaled, and the numbers are consecutive.
        assert_eq!(signaled(&fake.posted), [false, false, false, true, false, false, false, true]);
        assert!(fake.posted.windows(2).all(|pair| pair[1].wr_id == pair[0].wr_id + 1));
        assert_eq!(pool.account().held, 8);
        queue.reclaim();
        assert_eq!(pool.account().held, 0);
    }

    #[test]
    fn a_refusal_that_names_no_work_request_frees_nothing() {
        let (pool, mut fake) = (fake::pool(32), Fake::new());
        let mut queue = queue(16, 4);
        (fake.takes, fake.silent, fake.refusal) = (2, true, libc::EIO);
        let mut batch = batch(&pool, &[100; 5]);
        let outcome = post(&mut queue, &mut fake, &mut batch);
        assert_eq!(outcome.posted, 5);
        assert!(matches!(outcome.stop, Some(PostStop::Device(errno)) if errno.raw() == libc::EIO));
        assert_eq!((batch.len(), queue.outstanding(), pool.account().held), (0, 5, 5));
    }

    #[test]
    fn lengths_flags_and_inline_are_as_the_packet_wants() {
        let (pool, mut fake) = (fake::pool(8), Fake::new());
        let mut queue = queue(8, 3);
        let mut batch = batch(&pool, &[0, 16, 17]);
        let outcome = post(&mut queue, &mut fake, &mut batch);
        assert_eq!((outcome.posted, outcome.inlined, outcome.stop), (3, 2, None));
        let lens: Vec<_> = fake.posted.iter().map(|wr| wr.len).collect();
        // An SGE of no bytes would mean 2^31.
        assert_eq!(lens, [None, Some(16), Some(17)]);
        let inline: Vec<_> = fake.posted.iter().map(|wr| wr.flags & INLINE != 0).collect();
        assert_eq!(inline, [true, true, false]);
        assert_eq!(pool.account().held, 1);
    }

    #[test]
    fn a_signaled_completion_frees_all_before_it_in_order() {
        let (pool, mut fake) = (fake::pool(32), Fake::new());
        let mut queue = queue(8, 4);
        let mut freed = Batch::with_capacity(32);
        for round in 0..1000 {
            let mut batch = batch(&pool, &[100; 4]);
            let sent: Vec<u64> = batch.iter().map(Packet::addr).collect();
            assert_eq!(post(&mut queue, &mut fake, &mut batch).posted, 4, "round {round}");
            let last = fake.posted.last().unwrap().wr_id;
            let done = fake::completions(&[(last, 0, 0)]);
            assert_eq!(queue.complete(&done.as_slice()[0], &mut freed).unwrap().0, 4);
            assert_eq!(freed.iter().map(Packet::addr).collect::<Vec<_>>(), sent);
            freed.clear();
            assert!(queue.complete(&done.as_slice()[0], &mut freed).is_err());
        }
    }

    #[test]
    fn numbers_go_on_across_the_end_of_a_block() {
        let (pool, mut fake) = (fake::pool(32), Fake::new());
        // A million posts to the end of a block, three at a time, so that a batch straddles it.
        let mut queue = queue(8, 1);
        let mut freed = Batch::with_capacity(32);
        let mut packets = batch(&pool, &[100; 3]);
        for _ in 0..(1 << 20) / 3 + 2 {
            let outcome = post(&mut queue, &mut fake, &mut packets);
            assert_eq!((outcome.posted, outcome.stop), (3, None));
            let last = fake.posted.last().unwrap().wr_id;
            fake.posted.clear();
            let done = fake::completions(&[(last, 0, 0)]);
            assert_eq!(queue.complete(&done.as_slice()[0], &mut freed).unwrap().0, 3);
            packets.append(&mut freed);
        }
    }

    #[test]
    fn a_marker_fits_behind_a_full_queue() {
        let (pool, mut fake) = (fake::pool(32), Fake::new());
        let mut queue = queue(4, 100);
        let mut batch = batch(&pool, &[100; 5]);
        assert_eq!(post(&mut queue, &mut fake, &mut batch).posted, 4);
        // SAFETY: as in `post`.
        assert!(unsafe { queue.post_marker(fake.qp()) });
        let marker = *fake.posted.last().unwrap();
        assert_eq!((marker.len, marker.flags), (None, SIGNALED));
        let done = fake::completions(&[(marker.wr_id, 5, 0)]);
        let mut freed = Batch::with_capacity(8);
        assert_eq!(queue.complete(&done.as_slice()[0], &mut freed).unwrap().0, 5);
        assert_eq!((freed.len(), queue.outstanding()), (4, 0));
    }
}
