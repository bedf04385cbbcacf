//! The receive queue: empty packets move into slots when posted, and out, filled, with their
//! completion.

mod done;
mod form;
mod scatter;
#[cfg(test)]
mod tests;

use rdma_sys::ibv_recv_wr;
use verbline_mem::{Batch, Packet};
use verbline_softnic::qp_table::Transport;

use crate::datagram::grh::GRH_BYTES;
use crate::wr::post::{PostStop, RecvOutcome, Unposted};
use crate::wr::slots::Slots;
use crate::wr::wr_list::{LONGEST, WrList, for_each};
use crate::wr_id::{NO_WR_ID, Sequence, WrKind};

pub(crate) use scatter::ScatterQueue;

use form::Form;

/// The receive queue of a QP or of an SRQ.
pub(crate) struct RecvQueue {
    /// The number that completes next, as long as receives complete in posting order: the taken
    /// slots are then the last `outstanding` before the next number. [`NO_WR_ID`] after one
    /// overtook another, until none is outstanding.
    expected: u64,
    /// Numbers; the low bits of one are its slot.
    sequence: Sequence,
    /// The packets that the device may write.
    packets: Slots,
    /// The number of taken slots.
    outstanding: u32,
    depth: u32,
    /// The depth; 0 if [`RecvQueue::post_one`] must not be used: nothing may be posted, or the next
    /// slot may be taken.
    usual_depth: u32,
    open: bool,
    form: Form,
    /// By slot, the number of a packet that stayed there while the numbers went round all slots;
    /// else 0.
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
            form: Form::new(pd_id, lead_bytes),
        }
    }

    /// Sets whether anything may be posted. [`RecvQueue::post_batch`] ignores it.
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

    /// Whether [`RecvQueue::post_one`] can post this packet: the usual case.
    #[inline(always)]
    pub(crate) fn takes_one(&self, packet: &Packet) -> bool {
        let fits = self.outstanding < self.usual_depth && self.sequence.has_next();
        fits && packet.pool_id() == self.form.pool
    }

    /// Posts a packet. A list of one takes twice as many instructions.
    ///
    /// # Safety
    /// `post` posts the list to the live device queue behind this one, sets `bad_wr` and returns
    /// the verb's result; it calls nothing else. [`RecvQueue::takes_one`] returned true.
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

    /// Like [`RecvQueue::post_one`], for the only packet of the batch.
    ///
    /// # Safety
    /// The contract of [`RecvQueue::post_one`].
    #[inline(always)]
    pub(crate) unsafe fn post_only(
        &mut self,
        batch: &mut Batch,
        post: impl FnOnce(*mut ibv_recv_wr, &mut *mut ibv_recv_wr) -> i32,
    ) -> RecvOutcome {
        let Some(packet) = batch.pop() else { return RecvOutcome::default() };
        // SAFETY: by the contract of `post_one`, `post` is for the live QP of this queue.
        match unsafe { self.post_one(packet, post) } {
            Ok(()) => RecvOutcome { posted: 1, stop: None },
            // The packet came from the batch, so there is space for it.
            Err(Unposted { packet, stop }) => RecvOutcome { posted: 1 - batch.push_iter(packet), stop: Some(stop) },
        }
    }

    #[inline]
    fn keep_one(&mut self, packet: Packet) {
        self.packets.put(self.sequence.next(), Some(packet));
        self.take(1);
    }

    /// Returns a packet that the device refused to the caller, unless the device took it all the
    /// same.
    #[cold]
    fn one_refused(&mut self, packet: Packet, taken: u32, ret: i32) -> Unposted {
        let stop = PostStop::of_device(ret);
        if taken == 0 {
            return Unposted { packet: Some(packet), stop };
        }
        self.keep_one(packet);
        Unposted { packet: None, stop }
    }

    /// Posts all of the batch as one list, in the usual case, and returns how many the device took
    /// and its result. In any other case returns `None` and does nothing.
    ///
    /// # Safety
    /// The contract of [`RecvQueue::post_one`].
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
        // A copy, since the compiler cannot know that work requests are not part of the queue.
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
    /// The contract of [`RecvQueue::post_one`].
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

    /// How many packets can be posted as a list, at most `want`: from the next number on, that many
    /// slots are free and that many numbers reserved.
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
        // There is a free slot, because the queue is not full.
        while self.packets.at(self.sequence.next()).is_some() {
            let slot = self.packets.slot(self.sequence.next());
            if self.passed[slot] == 0 {
                self.passed[slot] = self.sequence.taken(self.packets.len());
            }
            // Slot and number advance together.
            self.sequence.reserve(1);
            self.sequence.advance(1);
        }
        let want = self.sequence.reserve(want);
        self.packets.free_run(self.sequence.next(), want as usize)
    }

    /// Writes work requests for the packets; there are enough free slots and reserved numbers for
    /// them. Returns how many it wrote, and why the next packet cannot be posted.
    #[inline]
    fn format(&mut self, list: &mut WrList<ibv_recv_wr>, packets: &[Packet]) -> (u32, Option<PostStop>) {
        let first = self.sequence.next();
        let mut wr_id = first;
        // A copy, since the compiler cannot know that work requests are not part of the queue.
        let mut form = self.form;
        let mut stop = None;
        for (packet, entry) in packets.iter().zip(list.entries()) {
            if packet.pool_id() != form.pool {
                // By value, so that it stays in registers.
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
}
