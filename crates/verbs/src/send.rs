//! The send queue: packets move into slots when posted and out when a signaled completion covers them.
//!
//! Every `signal_every`-th work request is signaled, counted over whatever was posted, and never fewer than one in the queue's
//! depth: a full queue always holds one that will complete. Positions count up for ever and wrap, together with the numbers in
//! `wr_id`: how many posts ago a number was taken says which work request it is, so no table is kept of them.

mod op;
#[cfg(test)]
mod tests;
mod transfers;

use rdma_sys::{ibv_send_flags, ibv_send_wr, ibv_sge, ibv_wr_opcode};
use verbline_mem::{Batch, Packet};

use crate::ah::AddressHandle;
use crate::completion::{Completion, Stale, Status};
use crate::one_sided::{Buffer, Kept};
use crate::post::{DestinationId, PoolKey, PostStop, SendOptions, SendOutcome, Unposted};
use crate::post_verb::PostSend;
use crate::qp_attr::Transport;
use crate::slots::Slots;
use crate::wr_id::{self, Sequence, WrKind};
use crate::wr_list::{Entry, LONGEST, WrList, for_each};

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
    /// What goes inline by [`SendQueue::post_one`]; 0 on UD, which has more to write.
    one_inline_bytes: u32,
    pub(crate) inline_bytes: u32,
    max_message_bytes: u32,
    /// How many of `packets` are taken.
    packets_kept: u32,
    /// How many of `ops` are taken.
    ops_kept: u32,
    key: PoolKey,
    pub(crate) pd_id: u64,
    pub(crate) tag: u16,
    pub(crate) transport: Transport,
    /// A packet that the device may still read. Empty for inline sends and for ops.
    packets: Slots,
    /// What one-sided work requests read or write, in the same slots.
    ops: Box<[Option<Kept>]>,
    /// Room for the entries of a work request that has a scatter/gather list, used during its post.
    sges: Box<[ibv_sge]>,
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
    /// Scatter/gather entries a work request.
    pub(crate) max_sge: u32,
}

impl SendQueue {
    pub(crate) fn new(spec: SendQueueSpec) -> SendQueue {
        // One more for the marker that a drain posts behind a full queue.
        let packets = Slots::new(spec.depth + 1);
        let signal_every = spec.signal_every.clamp(1, spec.depth.max(1));
        let mut queue = SendQueue {
            ops: std::iter::repeat_with(|| None).take(packets.len() as usize).collect(),
            sges: vec![ibv_sge { addr: 0, length: 0, lkey: 0 }; spec.max_sge as usize].into(),
            packets,
            packets_kept: 0,
            ops_kept: 0,
            outstanding: 0,
            depth: spec.depth,
            usual_depth: 0,
            sequence: Sequence::new(spec.tag, WrKind::Send),
            key: PoolKey::new(spec.pd_id),
            tag: spec.tag,
            pd_id: spec.pd_id,
            transport: spec.transport,
            inline_bytes: spec.inline_bytes,
            one_inline_bytes: 0,
            max_message_bytes: 0,
            signal_every,
            until_signal: signal_every,
            destinations: Vec::new(),
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
        self.sges.len() as u32
    }

    pub(crate) fn set_max_message_bytes(&mut self, bytes: u32) {
        self.max_message_bytes = bytes;
        self.one_inline_bytes = if self.transport == Transport::Ud { 0 } else { self.inline_bytes.min(bytes) };
    }

    /// Slots that are taken.
    #[inline]
    pub(crate) fn outstanding(&self) -> u32 {
        self.outstanding
    }

    /// Work requests that fit now.
    #[inline]
    pub(crate) fn room(&self) -> u32 {
        self.depth.saturating_sub(self.outstanding)
    }

    /// Whether [`SendQueue::post_one`] is for this packet: the usual case.
    #[inline(always)]
    pub(crate) fn takes_one(&self, packet: &Packet) -> bool {
        let fits = self.outstanding < self.usual_depth && self.sequence.has_next();
        // One compare for both: a message without bytes has no SGE.
        fits && (packet.len() as u32).wrapping_sub(1) < self.one_inline_bytes
    }

    /// Posts a packet inline. A list of one takes twice as many instructions.
    ///
    /// # Safety
    /// `post` is for the live QP whose send queue this is, and [`SendQueue::takes_one`] said so.
    #[inline(always)]
    pub(crate) unsafe fn post_one(&mut self, post: PostSend, packet: Packet) -> Result<(), Unposted> {
        let (addr, len) = packet.span();
        // SAFETY: from here to the end nothing but the device is called.
        let mut list = unsafe { WrList::inline_of_thread() };
        let lone = list.lone();
        (lone.sge.addr, lone.sge.length) = (addr, len as u32);
        lone.wr.wr_id = self.sequence.next();
        self.until_signal -= 1;
        let signaled = self.until_signal == 0;
        if signaled {
            lone.wr.send_flags = INLINE | SIGNALED;
            self.until_signal = self.signal_every;
        }
        // SAFETY: the caller's word; inline data is copied during the call.
        let refusal = list.post_lone(|wr, bad| unsafe { post.call(wr, bad) });
        if signaled {
            list.lone().wr.send_flags = INLINE;
        }
        if let Some((taken, ret)) = refusal {
            return Err(self.one_refused(signaled, packet, taken, ret));
        }
        self.advance(1);
        drop(packet);
        Ok(())
    }

    /// As [`SendQueue::post_one`], of the packet that is alone in the batch. Gives how many the device took.
    ///
    /// # Safety
    /// As [`SendQueue::post_one`].
    #[inline(always)]
    pub(crate) unsafe fn post_only(&mut self, post: PostSend, batch: &mut Batch) -> (usize, Option<PostStop>) {
        let Some(packet) = batch.pop() else { return (0, None) };
        // SAFETY: the caller's word.
        match unsafe { self.post_one(post, packet) } {
            Ok(()) => (1, None),
            // It came from there, so there is room.
            Err(Unposted { packet, stop }) => (1 - batch.push_iter(packet), Some(stop)),
        }
    }

    /// What the device refused goes back to the caller, unless it was taken all the same.
    #[cold]
    fn one_refused(&mut self, signaled: bool, packet: Packet, taken: u32, ret: i32) -> Unposted {
        let stop = PostStop::of_device(ret);
        if taken == 0 {
            // As it was before.
            self.until_signal = if signaled { 1 } else { self.until_signal + 1 };
            return Unposted { packet: Some(packet), stop };
        }
        self.advance(1);
        Unposted { packet: None, stop }
    }

    /// Posts all of the batch inline as one list, in the usual case, and gives how many the device took and its answer; `None`,
    /// and nothing done, in any other.
    ///
    /// # Safety
    /// As [`SendQueue::post_one`].
    #[inline]
    pub(crate) unsafe fn post_all(&mut self, post: PostSend, batch: &mut Batch) -> Option<(u32, i32)> {
        let packets = batch.as_slice();
        let would_be = u64::from(self.outstanding) + packets.len() as u64;
        let fits = would_be <= self.usual_depth.into() && self.sequence.has(packets.len());
        if !fits || !(1..=LONGEST).contains(&packets.len()) {
            return None;
        }
        // SAFETY: from here to the end nothing but the device is called.
        let mut list = unsafe { WrList::inline_of_thread() };
        let entries = list.entries();
        let (inline_bytes, mut wr_id) = (self.one_inline_bytes, self.sequence.next());
        let written = for_each(packets, entries, |packet, Entry { sge, wr }| {
            let (addr, len) = packet.span();
            (sge.addr, sge.length) = (addr, len as u32);
            wr.wr_id = wr_id;
            wr_id += 1;
            (len as u32).wrapping_sub(1) < inline_bytes
        });
        if !written {
            return None;
        }
        let (count, first, every) = (packets.len(), self.until_signal, self.signal_every);
        let until_signal = signal(&mut entries[..count], first, every);
        // SAFETY: the caller's word; inline data is copied during the call.
        let (taken, ret) = list.post(count as u32, |wr, bad| unsafe { post.call(wr, bad) });
        self.advance(taken);
        let entries = list.entries();
        if ret == 0 {
            self.until_signal = until_signal;
            batch.clear();
        } else {
            self.recount(&entries[..taken as usize]);
            drop(batch.drain_front(taken as usize));
        }
        for_each_signaled(&mut entries[..count], first, every, |flags| *flags = INLINE);
        Some((taken, ret))
    }

    /// Posts the front of the batch, without options.
    ///
    /// # Safety
    /// As [`SendQueue::post_one`].
    #[inline]
    pub(crate) unsafe fn post_batch(&mut self, post: PostSend, batch: &mut Batch) -> SendOutcome {
        let mut outcome = SendOutcome::default();
        while !batch.is_empty() && outcome.stop.is_none() {
            let want = self.reserve(batch.len());
            // SAFETY: the caller's word.
            unsafe { self.post_list_of(post, batch, want, None, &mut outcome) };
        }
        outcome
    }

    /// Posts the front of the batch.
    ///
    /// # Safety
    /// As [`SendQueue::post_one`].
    #[inline]
    pub(crate) unsafe fn post_batch_with(
        &mut self,
        post: PostSend,
        batch: &mut Batch,
        mut options: impl FnMut(usize, &Packet) -> SendOptions,
    ) -> SendOutcome {
        let mut outcome = SendOutcome::default();
        let mut asked = [SendOptions::default(); LONGEST];
        while !batch.is_empty() && outcome.stop.is_none() {
            let want = self.reserve(batch.len());
            // Before the list is taken, since whoever answers may post to another queue.
            for (at, (packet, asked)) in batch.iter().zip(&mut asked[..want]).enumerate() {
                *asked = options(outcome.posted + at, packet);
            }
            // SAFETY: the caller's word.
            unsafe { self.post_list_of(post, batch, want, Some(&asked[..want]), &mut outcome) };
        }
        outcome
    }

    /// How many can be posted as a list, at most `want`.
    #[inline]
    fn reserve(&mut self, want: usize) -> usize {
        // A block of numbers ends once in a million posts; then the rest goes round again.
        self.sequence.reserve(want.min(self.room() as usize).min(LONGEST) as u32) as usize
    }

    /// Posts the first `want` of the batch, for which there is room and numbers.
    ///
    /// # Safety
    /// As [`SendQueue::post_one`].
    #[inline]
    unsafe fn post_list_of(
        &mut self,
        post: PostSend,
        batch: &mut Batch,
        want: usize,
        options: Option<&[SendOptions]>,
        outcome: &mut SendOutcome,
    ) {
        if want == 0 {
            outcome.stop = Some(PostStop::Full);
            return;
        }
        // SAFETY: from here to the end nothing but the device is called.
        let mut list = unsafe { WrList::<ibv_send_wr>::of_thread() };
        let packets = &batch.as_slice()[..want];
        let formatted = match options {
            None => self.format(list.entries(), packets),
            Some(options) => self.format_with(list.entries(), packets, options),
        };
        outcome.stop = formatted.stop;
        if formatted.len > 0 {
            // SAFETY: the caller's word; packets that do not go inline move into their slots below.
            let (taken, ret) = list.post(formatted.len, |wr, bad| unsafe { post.call(wr, bad) });
            self.count_signals(ret, formatted.until_signal, &list.entries()[..taken as usize]);
            if ret != 0 {
                outcome.stop = Some(PostStop::of_device(ret));
            }
            outcome.inlined += self.keep(batch, taken, formatted.kept, list.entries());
            outcome.posted += taken as usize;
        }
        if formatted.altered {
            list.altered(want);
        }
    }

    /// Posts an empty, signaled send behind everything, even a full queue: on a QP in ERR its flush completion covers all that
    /// was posted. False when it could not be posted.
    ///
    /// # Safety
    /// As [`SendQueue::post_one`].
    pub(crate) unsafe fn post_marker(&mut self, post: PostSend) -> bool {
        let destination = self.destination(DestinationId::default());
        let (true, Ok(destination)) = (self.outstanding < self.packets.len(), destination) else { return false };
        if self.sequence.reserve(1) == 0 {
            return false;
        }
        let write = |wr: &mut ibv_send_wr, _: &mut ibv_sge| {
            wr.send_flags = SIGNALED;
            wr.num_sge = 0;
            if let Some(to) = destination {
                wr.wr.ud = to;
            }
        };
        // SAFETY: the caller's word.
        unsafe { self.post_special(post, WrKind::Send, write) }.is_ok()
    }

    /// Posts one signaled work request; `write` writes all but its number, and calls nothing. There is a number for it. What
    /// the device refused is not in the queue.
    ///
    /// # Safety
    /// As [`SendQueue::post_one`]; the memory of the work request stays until it completes.
    unsafe fn post_special(
        &mut self,
        post: PostSend,
        kind: WrKind,
        write: impl FnOnce(&mut ibv_send_wr, &mut ibv_sge),
    ) -> Result<(), PostStop> {
        // SAFETY: from here to the end nothing but the device is called.
        let mut list = unsafe { WrList::<ibv_send_wr>::of_thread() };
        let Entry { wr, sge } = list.lone();
        write(wr, sge);
        wr.wr_id = self.sequence.next() | wr_id::kind_bits(kind);
        // SAFETY: the caller's word.
        let refusal = list.post_lone(|wr, bad| unsafe { post.call(wr, bad) });
        list.altered(0);
        if let Some((0, ret)) = refusal {
            return Err(PostStop::of_device(ret));
        }
        self.until_signal = self.signal_every;
        self.advance(1);
        Ok(())
    }

    /// Writes work requests for the packets, which are no more than there is room and numbers for, without options.
    #[inline]
    fn format(&mut self, entries: &mut [Entry<ibv_send_wr>; LONGEST], packets: &[Packet]) -> Formatted {
        let mut formatted = Formatted::new(self.until_signal);
        let destination = match self.destination(DestinationId::default()) {
            Ok(destination) => destination,
            Err(stop) => return Formatted { stop: Some(stop), ..formatted },
        };
        // Copies, since the compiler can't know that work requests are not part of the queue.
        let (first, mut form) = (self.sequence.next(), Form::new(self));
        let mut wr_id = first;
        for (packet, Entry { sge, wr }) in packets.iter().zip(&mut *entries) {
            let (addr, len) = packet.span();
            // Length and key, as one word.
            let mut length_lkey = len as u64;
            wr.send_flags = INLINE;
            if !form.is_inline(len) {
                match form.unusual(packet, len, wr, &mut formatted) {
                    Ok(lkey) => length_lkey |= u64::from(lkey) << 32,
                    Err(stop) => {
                        formatted.stop = Some(stop);
                        break;
                    }
                }
            }
            *sge = ibv_sge { addr, length: length_lkey as u32, lkey: (length_lkey >> 32) as u32 };
            wr.wr_id = wr_id;
            wr_id += 1;
        }
        self.key = form.key;
        formatted.len = (wr_id - first) as u32;
        let formatted_entries = &mut entries[..formatted.len as usize];
        if let Some(to) = destination {
            formatted_entries.iter_mut().for_each(|entry| entry.wr.wr.ud = to);
        }
        formatted.until_signal = signal(formatted_entries, formatted.until_signal, self.signal_every);
        formatted
    }

    /// As [`SendQueue::format`], with options.
    fn format_with(
        &mut self,
        entries: &mut [Entry<ibv_send_wr>; LONGEST],
        packets: &[Packet],
        options: &[SendOptions],
    ) -> Formatted {
        let (first, mut form) = (self.sequence.next(), Form::new(self));
        let mut formatted = Formatted::new(self.until_signal);
        for ((packet, options), Entry { sge, wr }) in packets.iter().zip(options).zip(entries) {
            let (addr, len) = packet.span();
            let mut write = || {
                if options.fence && self.transport != Transport::Rc {
                    return Err(PostStop::NotOn(self.transport, "fence"));
                }
                if let Some(to) = self.destination(options.destination)? {
                    wr.wr.ud = to;
                }
                wr.send_flags = INLINE;
                if form.is_inline(len) { Ok(0) } else { form.unusual(packet, len, wr, &mut formatted) }
            };
            let lkey = match write() {
                Ok(lkey) => lkey,
                Err(stop) => {
                    formatted.stop = Some(stop);
                    break;
                }
            };
            if let Some(imm) = options.imm {
                wr.opcode = ibv_wr_opcode::IBV_WR_SEND_WITH_IMM;
                wr.imm_data_invalidated_rkey_union.imm_data = imm.to_be();
                formatted.altered = true;
            }
            *sge = ibv_sge { addr, length: len as u32, lkey };
            wr.wr_id = first + u64::from(formatted.len);
            wr.send_flags |= flags(options) | formatted.signal(options.signaled, self.signal_every);
            formatted.len += 1;
        }
        self.key = form.key;
        formatted
    }

    #[inline]
    fn destination(&self, id: DestinationId) -> Result<Option<rdma_sys::ud_t>, PostStop> {
        match self.transport {
            Transport::Ud => destination(&self.destinations, id).map(Some),
            _ => Ok(None),
        }
    }

    /// After a post: what is until the next signal when all was taken, or what was.
    #[inline]
    fn count_signals(&mut self, ret: i32, until_signal: u32, taken: &[Entry<ibv_send_wr>]) {
        if ret == 0 {
            self.until_signal = until_signal;
        } else {
            self.recount(taken);
        }
    }

    #[cold]
    fn recount(&mut self, taken: &[Entry<ibv_send_wr>]) {
        for entry in taken {
            let signaled = entry.wr.send_flags & SIGNALED != 0;
            self.until_signal = if signaled { self.signal_every } else { self.until_signal - 1 };
        }
    }

    /// Moves the first `taken` packets from the batch into their slots; those that went inline go back to their pool, and
    /// are counted.
    #[inline]
    fn keep(&mut self, batch: &mut Batch, taken: u32, kept: u32, entries: &[Entry<ibv_send_wr>; LONGEST]) -> usize {
        let inlined = match kept {
            // Back in bulk: 51 ns a packet for the whole of examples/overhead, against 59 one by one.
            0 if taken as usize == batch.len() => {
                batch.clear();
                taken as usize
            }
            _ if kept == taken => {
                self.packets.take_front(self.sequence.next(), batch, taken as usize);
                self.packets_kept += taken;
                0
            }
            _ => self.keep_mixed(batch, taken, entries),
        };
        self.advance(taken);
        inlined
    }

    fn keep_mixed(&mut self, batch: &mut Batch, taken: u32, entries: &[Entry<ibv_send_wr>; LONGEST]) -> usize {
        let mut inlined = 0;
        for ((position, entry), packet) in (self.sequence.next()..).zip(entries).zip(batch.drain_front(taken as usize))
        {
            if entry.wr.send_flags & INLINE != 0 {
                inlined += 1;
                drop(packet);
            } else {
                self.packets.put(position, Some(packet));
                self.packets_kept += 1;
            }
        }
        inlined
    }

    #[inline]
    fn advance(&mut self, taken: u32) {
        self.outstanding += taken;
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
        let kind = wr_id::kind(wr_id);
        // The numbers of ops are drawn with those of sends.
        let number = if kind == WrKind::Op { wr_id ^ wr_id::kind_bits(kind) } else { wr_id };
        let age = self.sequence.age(number, self.outstanding).ok_or(Stale { wr_id })?;
        let count = self.outstanding - age;
        let buffer = if kind == WrKind::Op { self.take_op(number, completion.status()) } else { None };
        self.release(count, |packet| drop(freed.push(packet)));
        Ok((count as usize, buffer))
    }

    fn take_op(&mut self, number: u64, status: Status) -> Option<Buffer> {
        let kept = self.ops[self.packets.slot(number)].take()?;
        self.ops_kept -= 1;
        if let Some(bind) = kept.bind {
            bind.done(status);
        }
        Some(kept.buffer)
    }

    #[inline]
    fn release(&mut self, count: u32, free: impl FnMut(Packet)) {
        // Inline sends leave nothing behind.
        if self.packets_kept | self.ops_kept > 0 {
            self.release_kept(count, free);
        }
        self.outstanding -= count;
    }

    fn release_kept(&mut self, count: u32, mut free: impl FnMut(Packet)) {
        // Slots go round without a jump, also where numbers jump to another block.
        let oldest = self.sequence.next().wrapping_sub(self.outstanding.into());
        for ahead in 0..count {
            let position = oldest.wrapping_add(ahead.into());
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
        let count = self.outstanding;
        self.release(count, drop);
        self.until_signal = self.signal_every;
        count
    }
}

/// What work requests are written by.
struct Form {
    inline_bytes: u32,
    max_bytes: u32,
    key: PoolKey,
}

impl Form {
    #[inline]
    fn new(queue: &SendQueue) -> Form {
        Form {
            inline_bytes: queue.inline_bytes.min(queue.max_message_bytes),
            max_bytes: queue.max_message_bytes,
            key: queue.key,
        }
    }

    /// Whether the message goes inline, and has bytes.
    #[inline]
    fn is_inline(&self, len: usize) -> bool {
        (len as u32).wrapping_sub(1) < self.inline_bytes
    }

    /// A message that is empty, or does not go inline, or is too long. Gives its key.
    #[inline]
    fn unusual(
        &mut self,
        packet: &Packet,
        len: usize,
        wr: &mut ibv_send_wr,
        formatted: &mut Formatted,
    ) -> Result<u32, PostStop> {
        if len > self.max_bytes as usize {
            return Err(PostStop::TooLong { len_bytes: len, max_bytes: self.max_bytes });
        }
        if len == 0 {
            // An SGE of length 0 means 2^31 bytes; a message without bytes has no SGE.
            (wr.num_sge, formatted.altered) = (0, true);
            return Ok(0);
        }
        // Inline data needs no registration: the CPU copies it during the call (ibv_post_send(3)). This is not.
        let lkey = self.key.lkey(packet)?;
        wr.send_flags = 0;
        formatted.kept += 1;
        Ok(lkey)
    }
}

#[inline]
fn destination(table: &[Destination], id: DestinationId) -> Result<rdma_sys::ud_t, PostStop> {
    match table.get(usize::from(id.0)) {
        Some(to) => Ok(rdma_sys::ud_t { ah: to.ah.inner.as_ptr(), remote_qpn: to.qpn, remote_qkey: to.qkey }),
        None => Err(PostStop::NoDestination(id.0)),
    }
}

/// Marks every `every`-th entry as signaled, the first after `until_signal`, and gives how many it is until the next behind
/// them. Done last, since where signals fall does not hang on the packets.
#[inline]
fn signal(entries: &mut [Entry<ibv_send_wr>], until_signal: u32, every: u32) -> u32 {
    let behind = for_each_signaled(entries, until_signal, every, |flags| *flags |= SIGNALED);
    behind - entries.len() as u32
}

/// Hands on the flags of every `every`-th entry, the first after `until_signal`, and gives the place of the first behind them.
#[inline]
fn for_each_signaled(
    entries: &mut [Entry<ibv_send_wr>],
    mut until_signal: u32,
    every: u32,
    mut each: impl FnMut(&mut u32),
) -> u32 {
    while let Some(entry) = entries.get_mut(until_signal as usize - 1) {
        each(&mut entry.wr.send_flags);
        until_signal += every;
    }
    until_signal
}

/// The flags that options ask for.
#[inline]
fn flags(options: &SendOptions) -> u32 {
    let flag = |set: bool, flag: u32| if set { flag } else { 0 };
    flag(options.solicited, SOLICITED) | flag(options.fence, FENCE)
}

/// The work requests formatted for one post.
struct Formatted {
    len: u32,
    /// How many do not go inline.
    kept: u32,
    /// Behind the last.
    until_signal: u32,
    /// Some are not as they are between posts.
    altered: bool,
    /// What is wrong with the packet behind them.
    stop: Option<PostStop>,
}

impl Formatted {
    #[inline]
    fn new(until_signal: u32) -> Formatted {
        Formatted { len: 0, kept: 0, until_signal, altered: false, stop: None }
    }

    #[inline]
    fn signal(&mut self, asked: bool, every: u32) -> u32 {
        self.until_signal -= 1;
        if asked || self.until_signal == 0 {
            self.until_signal = every;
            return SIGNALED;
        }
        0
    }
}
