//! The receive queue: empty packets move into slots when posted and out, filled, when their completion comes.

mod scatter;
#[cfg(test)]
mod tests;

use std::{mem, ptr};

use rdma_sys::{ibv_recv_wr, ibv_sge};
use verbline_mem::{Batch, Packet, PoolForm};

use crate::completion::{Completion, Stale};
use crate::grh::GRH_BYTES;
use crate::post::{PostStop, RecvOutcome, Unposted, registered_lkey};
use crate::qp_attr::Transport;
use crate::slots::Slots;
use crate::wr_id::{NO_WR_ID, Sequence, WrKind};
use crate::wr_list::{LONGEST, WrList, for_each};

pub(crate) use scatter::ScatterQueue;

/// Of a QP or of an SRQ.
pub(crate) struct RecvQueue {
    /// The number that completes next, while receives complete in the order that they were posted in: then the slots that are
    /// taken are the last `outstanding` before the next. [`NO_WR_ID`] once one overtook another, until none is outstanding.
    expected: u64,
    /// The low bits of a number are its slot.
    sequence: Sequence,
    /// A packet that the device may write.
    packets: Slots,
    /// Slots that are taken.
    outstanding: u32,
    depth: u32,
    /// The depth; 0 where [`RecvQueue::post_one`] is not for: nothing may be posted, or a slot may be taken.
    usual_depth: u32,
    open: bool,
    form: Form,
    /// The number of a packet that stayed in its slot while the numbers went round all slots; else 0.
    passed: Box<[u64]>,
}

impl RecvQueue {
    pub(crate) fn new(kind: WrKind, depth: u32, tag: u16, pd_id: u64, transport: Transport) -> RecvQueue {
        let packets = Slots::new(depth);
        let lead_bytes = if transport == Transport::Ud { GRH_BYTES } else { 0 };
        let sequence = Sequence::new(tag, kind);
        RecvQueue {
            expected: sequence.next(),
            sequence,
            passed: vec![0; packets.len() as usize].into(),
            packets,
            outstanding: 0,
            depth,
            usual_depth: depth,
            open: true,
            form: Form { pd_id, lead_bytes, pool: 0, offset: 0, length_lkey: 0, only: None },
        }
    }

    /// Says whether anything may be posted. It has no say in [`RecvQueue::post_batch`].
    pub(crate) fn set_open(&mut self, open: bool) {
        self.open = open;
        self.set_usual_depth();
    }

    fn set_usual_depth(&mut self) {
        self.usual_depth = if self.open && self.expected != NO_WR_ID { self.depth } else { 0 };
    }

    #[inline]
    pub(crate) fn outstanding(&self) -> u32 {
        self.outstanding
    }

    #[inline]
    pub(crate) fn room(&self) -> u32 {
        self.depth - self.outstanding
    }

    /// Whether [`RecvQueue::post_one`] is for this packet: the usual case.
    #[inline(always)]
    pub(crate) fn takes_one(&self, packet: &Packet) -> bool {
        let fits = self.outstanding < self.usual_depth && self.sequence.has_next();
        fits && packet.pool_id() == self.form.pool
    }

    /// Posts a packet. A list of one takes twice as many instructions.
    ///
    /// # Safety
    /// `post` posts the list to the live queue that this one stands for, sets `bad_wr` and returns what the verb returns; it
    /// calls nothing else. [`RecvQueue::takes_one`] said so.
    #[inline(always)]
    pub(crate) unsafe fn post_one(
        &mut self,
        packet: Packet,
        post: impl FnOnce(*mut ibv_recv_wr, &mut *mut ibv_recv_wr) -> i32,
    ) -> Result<(), Unposted> {
        let sge = self.form.sge(&packet);
        // SAFETY: the device is called and nothing else, by the caller's word.
        let mut list = unsafe { WrList::<ibv_recv_wr>::of_thread() };
        let lone = list.lone();
        lone.wr.wr_id = self.sequence.next();
        lone.sge = sge;
        if let Some((taken, ret)) = list.post_lone(post) {
            return Err(self.one_refused(packet, taken, ret));
        }
        self.keep_one(packet);
        Ok(())
    }

    /// As [`RecvQueue::post_one`], of the packet that is alone in the batch.
    ///
    /// # Safety
    /// As [`RecvQueue::post_one`].
    #[inline(always)]
    pub(crate) unsafe fn post_only(
        &mut self,
        batch: &mut Batch,
        post: impl FnOnce(*mut ibv_recv_wr, &mut *mut ibv_recv_wr) -> i32,
    ) -> RecvOutcome {
        let Some(packet) = batch.pop() else { return RecvOutcome::default() };
        // SAFETY: the caller's word.
        match unsafe { self.post_one(packet, post) } {
            Ok(()) => RecvOutcome { posted: 1, stop: None },
            // It came from there, so there is room.
            Err(Unposted { packet, stop }) => RecvOutcome { posted: 1 - batch.push_iter(packet), stop: Some(stop) },
        }
    }

    #[inline]
    fn keep_one(&mut self, packet: Packet) {
        self.packets.put(self.sequence.next(), Some(packet));
        self.take(1);
    }

    /// What the device refused goes back to the caller, unless it was taken all the same.
    #[cold]
    fn one_refused(&mut self, packet: Packet, taken: u32, ret: i32) -> Unposted {
        let stop = PostStop::of_device(ret);
        if taken == 0 {
            return Unposted { packet: Some(packet), stop };
        }
        self.keep_one(packet);
        Unposted { packet: None, stop }
    }

    /// Posts all of the batch as one list, in the usual case, and gives how many the device took and its answer; `None`, and
    /// nothing done, in any other.
    ///
    /// # Safety
    /// As [`RecvQueue::post_one`].
    #[inline]
    pub(crate) unsafe fn post_all(
        &mut self,
        batch: &mut Batch,
        post: impl FnOnce(*mut ibv_recv_wr, &mut *mut ibv_recv_wr) -> i32,
    ) -> Option<(u32, i32)> {
        let packets = batch.as_slice();
        let would_be = u64::from(self.outstanding) + packets.len() as u64;
        let fits = would_be <= self.usual_depth.into() && self.sequence.has(packets.len());
        if !fits || !(1..=LONGEST).contains(&packets.len()) {
            return None;
        }
        // SAFETY: the device is called and nothing else, by the caller's word.
        let mut list = unsafe { WrList::<ibv_recv_wr>::of_thread() };
        // A copy, since the compiler can't know that work requests are not part of the queue.
        let (form, mut wr_id) = (self.form, self.sequence.next());
        let written = for_each(packets, list.entries(), |packet, entry| {
            entry.wr.wr_id = wr_id;
            entry.sge = form.sge(packet);
            wr_id += 1;
            packet.pool_id() == form.pool
        });
        if !written {
            return None;
        }
        let (taken, ret) = list.post(packets.len() as u32, post);
        self.packets.take_front(self.sequence.next(), batch, taken as usize);
        self.take(taken);
        Some((taken, ret))
    }

    /// Posts the front of the batch.
    ///
    /// # Safety
    /// As [`RecvQueue::post_one`].
    #[inline]
    pub(crate) unsafe fn post_batch(
        &mut self,
        batch: &mut Batch,
        mut post: impl FnMut(*mut ibv_recv_wr, &mut *mut ibv_recv_wr) -> i32,
    ) -> RecvOutcome {
        let mut posted = 0;
        while !batch.is_empty() {
            let want = self.free_slots(batch.len());
            if want == 0 {
                return RecvOutcome { posted, stop: Some(PostStop::Full) };
            }
            // SAFETY: the device is called and nothing else, by the caller's word.
            let mut list = unsafe { WrList::<ibv_recv_wr>::of_thread() };
            let (formatted, mut stop) = self.format(&mut list, &batch.as_slice()[..want]);
            if formatted > 0 {
                let (taken, ret) = list.post(formatted, &mut post);
                self.packets.take_front(self.sequence.next(), batch, taken as usize);
                self.take(taken);
                posted += taken as usize;
                if ret != 0 {
                    stop = Some(PostStop::of_device(ret));
                }
            }
            if stop.is_some() {
                return RecvOutcome { posted, stop };
            }
        }
        RecvOutcome { posted, stop: None }
    }

    #[inline]
    fn take(&mut self, count: u32) {
        self.outstanding += count;
        self.sequence.advance(count);
    }

    /// How many can be posted as a list, at most `want`: so many slots from the next number on are free, and numbers reserved.
    #[inline]
    fn free_slots(&mut self, want: usize) -> usize {
        let want = want.min(self.room() as usize).min(LONGEST) as u32;
        if self.expected == NO_WR_ID && want > 0 {
            return self.free_slots_between(want);
        }
        self.sequence.reserve(want) as usize
    }

    #[cold]
    fn free_slots_between(&mut self, want: u32) -> usize {
        // There is a free one, because the queue is not full.
        while self.packets.at(self.sequence.next()).is_some() {
            let slot = self.packets.slot(self.sequence.next());
            if self.passed[slot] == 0 {
                self.passed[slot] = self.sequence.taken(self.packets.len());
            }
            // Slot and number go together.
            self.sequence.reserve(1);
            self.sequence.advance(1);
        }
        let want = self.sequence.reserve(want);
        self.packets.free_run(self.sequence.next(), want as usize)
    }

    /// Writes work requests for the packets, which are no more than there are free slots and numbers reserved. Gives how many,
    /// and what is wrong with the next packet.
    #[inline]
    fn format(&mut self, list: &mut WrList<ibv_recv_wr>, packets: &[Packet]) -> (u32, Option<PostStop>) {
        let first = self.sequence.next();
        let mut wr_id = first;
        // A copy, since the compiler can't know that work requests are not part of the queue.
        let mut form = self.form;
        let mut stop = None;
        for (packet, entry) in packets.iter().zip(list.entries()) {
            if packet.pool_id() != form.pool {
                // By value, so that it is in registers.
                match form.learned(packet, self.outstanding == 0 && wr_id == first) {
                    Ok(learned) => form = learned,
                    Err(reason) => {
                        stop = Some(reason);
                        break;
                    }
                }
            }
            entry.wr.wr_id = wr_id;
            entry.sge = form.sge(packet);
            wr_id += 1;
        }
        self.form = form;
        ((wr_id - first) as u32, stop)
    }

    /// The packet that the completion filled: its length set, the GRH taken off. Empty when the receive failed, or when the
    /// data went elsewhere (RDMA WRITE with immediate).
    #[inline]
    pub(crate) fn complete(&mut self, completion: &Completion) -> Result<Packet, Stale> {
        let wr_id = completion.wr_id();
        let mut packet = match self.take_expected(wr_id) {
            Some(packet) => packet,
            None => self.take_unexpected(wr_id).ok_or(Stale { wr_id })?,
        };
        // SAFETY: it was in a slot.
        if !completion.brought_a_message() || !unsafe { self.form.fill(&mut packet, completion.raw_len()) } {
            self.fill_unusual(completion, &mut packet);
        }
        Ok(packet)
    }

    #[cold]
    fn fill_unusual(&self, completion: &Completion, packet: &mut Packet) {
        // A length beyond the packet is the device's mistake; what it wrote is not known, so nothing is shown.
        let len = if completion.filled_its_buffer() { completion.byte_len() as usize } else { 0 };
        if !self.form.fill_any(packet, len) {
            packet.reset();
        }
    }

    /// Moves the packets of the completions at the front, as far as they are this queue's next and succeeded, into `packets`;
    /// gives how many.
    #[inline]
    pub(crate) fn complete_run(&mut self, completions: &[Completion], packets: &mut Batch) -> usize {
        let count = self.complete_stretch(completions, packets);
        if count == completions.len() { count } else { self.complete_rest(completions, count, packets) }
    }

    /// As [`RecvQueue::complete_run`], as far as the array of slots goes.
    #[inline]
    fn complete_stretch(&mut self, completions: &[Completion], packets: &mut Batch) -> usize {
        let (first, form) = (self.expected, &self.form);
        let slots = self.packets.stretch(first, self.outstanding);
        // SAFETY: while one is expected, receives are in order, and the slots of all that are outstanding follow each other. Packets
        // in slots are of the only pool.
        let count = unsafe {
            match &form.only {
                Some(only) => take_filled(completions, slots, packets, first, |packet, len| packet.reset_by(only, len)),
                None => take_filled(completions, slots, packets, first, |packet, len| form.fill_any(packet, len)),
            }
        };
        self.expected = first + count as u64;
        self.outstanding -= count as u32;
        count
    }

    /// As [`RecvQueue::complete_run`], of what is behind the first `count`: their slots begin again, or it is no run.
    #[cold]
    fn complete_rest(&mut self, completions: &[Completion], count: usize, packets: &mut Batch) -> usize {
        match count {
            0 => self.complete_first(completions, packets),
            _ if self.packets.slot(self.expected) == 0 => count + self.complete_stretch(&completions[count..], packets),
            _ => count,
        }
    }

    /// As [`RecvQueue::complete_run`], of one completion: without what a loop has around it.
    #[inline(always)]
    pub(crate) fn complete_one(&mut self, completion: &Completion) -> Option<Packet> {
        let wr_id = completion.wr_id();
        if wr_id != self.expected {
            return self.complete_unexpected(completion);
        }
        if !completion.brought_a_message() {
            return None;
        }
        // Empty when nothing is outstanding: then the number is not one yet.
        let mut packet = self.packets.at(wr_id).take()?;
        // SAFETY: it was in a slot.
        if !unsafe { self.form.fill(&mut packet, completion.raw_len()) } {
            self.packets.put(wr_id, Some(packet));
            return None;
        }
        self.expected = wr_id + 1;
        self.outstanding -= 1;
        Some(packet)
    }

    /// As [`RecvQueue::complete_one`], of a number that was not expected.
    #[cold]
    fn complete_unexpected(&mut self, completion: &Completion) -> Option<Packet> {
        if !completion.brought_a_message() || completion.wr_id() == self.expected {
            return None;
        }
        self.complete(completion).ok()
    }

    /// As [`RecvQueue::complete_run`], of one whose number was not expected.
    #[cold]
    fn complete_first(&mut self, completions: &[Completion], packets: &mut Batch) -> usize {
        match completions.first() {
            Some(first) if !packets.is_full() => {
                self.complete_unexpected(first).map_or(0, |packet| packets.push_iter([packet]))
            }
            _ => 0,
        }
    }

    /// The packet of this number, if it is the one that completes next.
    #[inline]
    fn take_expected(&mut self, wr_id: u64) -> Option<Packet> {
        if wr_id != self.expected {
            return None;
        }
        // Empty when nothing is outstanding: then the number is not one yet.
        let packet = self.packets.at(wr_id).take()?;
        self.expected = wr_id + 1;
        self.outstanding -= 1;
        Some(packet)
    }

    /// The packet of this number, if it is outstanding: the first of a block, or one that completes out of order.
    #[cold]
    fn take_unexpected(&mut self, wr_id: u64) -> Option<Packet> {
        let slot = self.packets.slot(wr_id);
        let age = self.sequence.age(wr_id, self.packets.len());
        // A slot that was passed over holds an older number than the last that fell on it.
        let is_its = if self.passed[slot] == 0 { age.is_some() } else { self.passed[slot] == wr_id };
        if !is_its {
            return None;
        }
        let packet = self.packets.at(wr_id).take()?;
        self.passed[slot] = 0;
        let oldest = self.expected != NO_WR_ID && age == Some(self.outstanding - 1);
        self.outstanding -= 1;
        self.expected = match self.outstanding {
            0 => self.sequence.next(),
            _ if oldest => wr_id + 1,
            _ => NO_WR_ID,
        };
        self.set_usual_depth();
        Some(packet)
    }

    /// Frees every slot: the device has let go of all of them.
    pub(crate) fn reclaim(&mut self) -> u32 {
        self.packets.clear();
        self.passed.fill(0);
        self.expected = self.sequence.next();
        self.set_usual_depth();
        std::mem::take(&mut self.outstanding)
    }
}

/// What a work request says of its packet: the same for all of a pool, so it is looked up when the pool changes.
#[derive(Clone, Copy)]
struct Form {
    /// The pool's number, which no other pool ever has; 0 at first.
    pool: u64,
    /// Where the device writes, from the buffer's start on, bytes.
    offset: u64,
    /// Length, and above it the key: one word, so that it is written as one.
    length_lkey: u64,
    /// Bytes that come before the message.
    lead_bytes: usize,
    pd_id: u64,
    /// What the packets are like, while all that the queue holds are of this pool and nothing comes before their messages. A queue
    /// that once held packets of two pools goes without until it meets another while it is empty.
    only: Option<PoolForm>,
}

impl Form {
    /// `alone` says that the queue holds nothing.
    #[cold]
    fn learned(self, packet: &Packet, alone: bool) -> Result<Form, PostStop> {
        let lkey = registered_lkey(packet, self.pd_id)?;
        // What comes before the message goes into the headroom if that is long enough, so that the message lands where messages
        // lie; else where those lie.
        let (headroom, capacity) = (packet.fresh_headroom(), packet.fresh_capacity());
        let lead = if headroom < self.lead_bytes { 0 } else { self.lead_bytes };
        let length = u32::try_from(capacity + lead).unwrap_or(u32::MAX);
        let length_lkey = u64::from(lkey) << 32 | u64::from(length);
        let only = (alone && self.lead_bytes == 0).then(|| packet.pool_form());
        Ok(Form { pool: packet.pool_id(), offset: (headroom - lead) as u64, length_lkey, only, ..self })
    }

    #[inline]
    fn sge(&self, packet: &Packet) -> ibv_sge {
        // The length is not 0, which would mean 2^31: a pool's packets have room.
        let [length, lkey] = [self.length_lkey as u32, (self.length_lkey >> 32) as u32];
        ibv_sge { addr: packet.buffer_addr() + self.offset, length, lkey }
    }

    /// Makes the packet hold the message; `len` counts what came before it too. False, and no change, when so many bytes
    /// cannot have come.
    ///
    /// # Safety
    /// The packet is, or was, in a slot of the queue whose form this is.
    #[inline]
    unsafe fn fill(&self, packet: &mut Packet, len: usize) -> bool {
        match &self.only {
            // SAFETY: all that are in slots are of this pool.
            Some(only) => unsafe { packet.reset_by(only, len) },
            None => self.fill_any(packet, len),
        }
    }

    /// As [`Form::fill`], of any packet.
    fn fill_any(&self, packet: &mut Packet, len: usize) -> bool {
        match self.lead_bytes {
            0 => packet.reset_to(len),
            lead => fill_behind(packet, lead, len),
        }
    }
}

fn fill_behind(packet: &mut Packet, lead: usize, len: usize) -> bool {
    if packet.fresh_headroom() >= lead {
        return len.checked_sub(lead).is_some_and(|len| packet.reset_to(len));
    }
    len >= lead && packet.reset_to(len) && packet.trim_front(lead)
}

/// Takes the packets of the completions out of their slots and into `packets`, as far as their numbers count up from `first`, they
/// succeeded and `fill` takes their lengths; gives how many. A function of its own, since what it needs then fits the registers:
/// with the queue around it, a packet takes half as much again.
///
/// # Safety
/// Where the first completion has that number, the slots are taken.
#[inline(never)]
unsafe fn take_filled(
    completions: &[Completion],
    slots: &mut [Option<Packet>],
    packets: &mut Batch,
    first: u64,
    fill: impl Fn(&mut Packet, usize) -> bool,
) -> usize {
    let mut expected = first;
    packets.push_up_to(completions.len().min(slots.len()), |at| {
        // SAFETY: it is asked with less than the number of either, as it was told.
        let (completion, slot) = unsafe { (completions.get_unchecked(at), slots.get_unchecked_mut(at)) };
        if completion.wr_id() != expected || !completion.brought_a_message() {
            return None;
        }
        // SAFETY: the caller's word. The slot is emptied, or the packet forgotten.
        let mut packet = unsafe { ptr::read(slot).unwrap_unchecked() };
        if !fill(&mut packet, completion.raw_len()) {
            mem::forget(packet);
            return None;
        }
        // SAFETY: what was there is in `packet`.
        unsafe { ptr::write(slot, None) };
        expected += 1;
        Some(packet)
    })
}
