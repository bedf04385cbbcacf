//! The receive queue: empty packets move into slots when posted and out, filled, when their completion comes.

use std::ptr;

use rdma_sys::{ibv_recv_wr, ibv_sge};
use verbline_mem::{Batch, Packet};

use crate::completion::{Completion, Stale};
use crate::post::{PoolKey, PostStop, RecvOutcome};
use crate::qp_attr::Transport;
use crate::slots::Slots;
use crate::wr_id::{self, Sequence, WrKind};
use crate::wr_list::WrList;

/// What a UD receive puts before the message: a Global Routing Header, or 40 bytes that mean nothing when none came
/// (InfiniBand Architecture Specification, 11.4.1.2).
pub const GRH_BYTES: usize = 40;

/// Of a QP or of an SRQ.
pub(crate) struct RecvQueue {
    list: WrList<ibv_recv_wr>,
    /// A packet that the device may write.
    packets: Slots,
    /// What each slot's packet was last posted as.
    wr_ids: Box<[u64]>,
    /// Position of the next post, unless its slot is taken.
    head: u32,
    /// Slots that are taken.
    outstanding: u32,
    depth: u32,
    tag: u16,
    kind: WrKind,
    sequence: Sequence,
    pd_id: u64,
    /// Bytes that come before the message.
    lead_bytes: usize,
}

impl RecvQueue {
    pub(crate) fn new(kind: WrKind, depth: u32, tag: u16, pd_id: u64, transport: Transport) -> RecvQueue {
        let packets = Slots::new(depth);
        RecvQueue {
            list: WrList::new(depth),
            wr_ids: vec![0; packets.len() as usize].into(),
            packets,
            head: 0,
            outstanding: 0,
            depth,
            sequence: Sequence::new(),
            tag,
            kind,
            pd_id,
            lead_bytes: if transport == Transport::Ud { GRH_BYTES } else { 0 },
        }
    }

    #[inline]
    pub(crate) fn outstanding(&self) -> u32 {
        self.outstanding
    }

    #[inline]
    pub(crate) fn room(&self) -> u32 {
        self.depth - self.outstanding
    }

    /// Posts the front of the batch, each packet emptied first; `post` is the verb.
    ///
    /// # Safety
    /// `post` posts the list to the live queue that this one stands for, and returns what the verb returned and its `bad_wr`.
    #[inline]
    pub(crate) unsafe fn post_batch(
        &mut self,
        batch: &mut Batch,
        mut post: impl FnMut(*mut ibv_recv_wr) -> (i32, *mut ibv_recv_wr),
    ) -> RecvOutcome {
        let mut outcome = RecvOutcome::default();
        while !batch.is_empty() {
            let room = (self.room() as usize).min(batch.len()) as u32;
            if room == 0 {
                outcome.stop = Some(PostStop::Full);
                break;
            }
            self.skip_taken();
            // The first slot is free, as was just seen.
            let want = match self.sequence.reserve(room) as usize {
                1 => 1,
                want => self.packets.free_run(self.head, want),
            };
            let (formatted, stop) = self.format(&mut batch.as_mut_slice()[..want]);
            let (taken, ret) = match formatted {
                0 => (0, 0),
                _ => self.list.post(formatted, &mut post),
            };
            self.keep(batch, taken);
            outcome.posted += taken as usize;
            outcome.stop = match ret {
                0 => stop,
                ret => Some(PostStop::of_device(ret)),
            };
            if outcome.stop.is_some() {
                break;
            }
        }
        outcome
    }

    /// Moves the head on to a free slot; there is one, because the queue is not full. Slots are freed in order unless
    /// completions are handed back in another order, never, or come from an SRQ.
    #[inline]
    fn skip_taken(&mut self) {
        while self.packets.at(self.head.into()).is_some() {
            self.head = self.head.wrapping_add(1);
            // Slot and sequence number go together.
            if self.sequence.reserve(1) == 1 {
                self.sequence.advance(1);
            }
        }
    }

    /// Writes work requests for the packets, which are no more than there are free slots from the head on and numbers reserved.
    /// Gives how many, and what is wrong with the next packet.
    #[inline]
    fn format(&mut self, packets: &mut [Packet]) -> (u32, Option<PostStop>) {
        let lead_bytes = self.lead_bytes;
        let first = wr_id::pack(self.tag, self.kind, self.sequence.peek(0));
        let mut wr_id = first;
        let mut key = PoolKey::new(self.pd_id);
        let mut stop = None;
        for (packet, entry) in packets.iter_mut().zip(self.list.entries()) {
            let lkey = match key.lkey(packet) {
                Ok(lkey) => lkey,
                Err(reason) => {
                    stop = Some(reason);
                    break;
                }
            };
            let (addr, capacity) = match lead_bytes {
                0 => packet.reset_span(),
                // Into the headroom if it is long enough, so that the message lands where messages lie; else before it.
                lead => {
                    packet.reset();
                    let _ = packet.prepend(lead);
                    (packet.addr(), packet.capacity())
                }
            };
            let length = u32::try_from(capacity).unwrap_or(u32::MAX);
            entry.wr.wr_id = wr_id;
            // An SGE of length 0 means 2^31 bytes; a packet without room has no SGE.
            entry.wr.num_sge = (length > 0).into();
            entry.sge = ibv_sge { addr, length, lkey };
            wr_id += 1;
        }
        ((wr_id - first) as u32, stop)
    }

    #[inline]
    fn keep(&mut self, batch: &mut Batch, taken: u32) {
        let first = wr_id::pack(self.tag, self.kind, self.sequence.peek(0));
        if taken == 1 {
            let slot = self.packets.slot(self.head.into());
            self.wr_ids[slot] = first;
            *self.packets.at(self.head.into()) = batch.take_first();
        } else {
            self.keep_list(batch, taken, first);
        }
        self.head = self.head.wrapping_add(taken);
        self.outstanding += taken;
        self.sequence.advance(taken);
    }

    fn keep_list(&mut self, batch: &mut Batch, taken: u32, mut wr_id: u64) {
        for part in self.packets.parts(self.head, taken as usize) {
            for posted in &mut self.wr_ids[part] {
                *posted = wr_id;
                wr_id += 1;
            }
        }
        self.packets.take_front(self.head, batch, taken as usize);
    }

    /// The packet that the completion filled: its length set, the GRH taken off. Empty when the receive failed, or when the
    /// data went elsewhere (RDMA WRITE with immediate).
    #[inline]
    pub(crate) fn complete(&mut self, completion: &Completion) -> Result<Packet, Stale> {
        let wr_id = completion.wr_id();
        let slot = self.packets.slot(wr_id);
        if self.wr_ids[slot] != wr_id {
            return Err(Stale { wr_id });
        }
        let mut packet = self.packets.at(wr_id).take().ok_or(Stale { wr_id })?;
        self.outstanding -= 1;
        // A length beyond the packet is the device's mistake; what it wrote is not known, so nothing is shown.
        let len = if completion.filled_its_buffer() { completion.byte_len() as usize } else { 0 };
        if !packet.set_len(len) || (self.lead_bytes > 0 && !packet.trim_front(self.lead_bytes)) {
            packet.set_len(0);
        }
        Ok(packet)
    }

    /// Frees every slot: the device has let go of all of them.
    pub(crate) fn reclaim(&mut self) -> u32 {
        self.packets.clear();
        std::mem::take(&mut self.outstanding)
    }
}

/// # Safety
/// `qp` is a live QP and the list's memory stays until the work requests complete.
#[inline]
pub(crate) unsafe fn post_recv(qp: *mut rdma_sys::ibv_qp, wr: *mut ibv_recv_wr) -> (i32, *mut ibv_recv_wr) {
    let mut bad = ptr::null_mut();
    // SAFETY: the caller's word.
    let ret = unsafe { rdma_sys::ibv_post_recv(qp, wr, &raw mut bad) };
    (ret, bad)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{self, Fake, PD};
    use verbline_mem::Pool;

    fn batch(pool: &Pool, count: usize) -> Batch {
        let mut batch = Batch::with_capacity(count);
        assert_eq!(pool.cache(0).get_bulk(&mut batch, count), count);
        batch
    }

    fn post(queue: &mut RecvQueue, fake: &mut Fake, batch: &mut Batch) -> RecvOutcome {
        let qp = fake.qp();
        // SAFETY: the fake's QP is alive and its posts follow no pointer beyond the list.
        unsafe { queue.post_batch(batch, |wr| post_recv(qp, wr)) }
    }

    #[test]
    fn what_came_before_bad_wr_stays_with_the_queue_and_the_rest_with_the_caller() {
        let (pool, mut fake) = (fake::pool(32), Fake::new());
        let mut queue = RecvQueue::new(WrKind::Recv, 16, 1, PD, Transport::Rc);
        (fake.takes, fake.refusal) = (3, libc::EINVAL);
        let mut packets = batch(&pool, 8);
        let outcome = post(&mut queue, &mut fake, &mut packets);
        assert_eq!(outcome.posted, 3);
        assert!(matches!(outcome.stop, Some(PostStop::Device(errno)) if errno.raw() == libc::EINVAL));
        assert_eq!((packets.len(), queue.outstanding()), (5, 3));
        fake.takes = 5;
        assert_eq!(post(&mut queue, &mut fake, &mut packets).posted, 5);
        assert!(fake.posted.windows(2).all(|pair| pair[1].wr_id == pair[0].wr_id + 1));
    }

    #[test]
    fn a_length_that_the_device_cannot_have_written_shows_nothing() {
        let (pool, mut fake) = (fake::pool(32), Fake::new());
        for (transport, byte_len, expected) in [
            (Transport::Rc, 512, 512),
            (Transport::Rc, 513, 0),
            (Transport::Rc, u32::MAX, 0),
            (Transport::Ud, 40, 0),
            (Transport::Ud, 39, 0),
            (Transport::Ud, 552, 512),
            (Transport::Ud, 553, 0),
        ] {
            let mut queue = RecvQueue::new(WrKind::Recv, 4, 1, PD, transport);
            assert_eq!(post(&mut queue, &mut fake, &mut batch(&pool, 1)).posted, 1);
            let wr_id = fake.posted.last().unwrap().wr_id;
            let done = fake::completions(&[(wr_id, 0, byte_len)]);
            assert_eq!(queue.complete(&done.as_slice()[0]).unwrap().len(), expected, "{transport} {byte_len}");
        }
    }

    #[test]
    fn slots_that_stay_taken_are_passed_over() {
        let (pool, mut fake) = (fake::pool(32), Fake::new());
        // Five of eight slots may be taken at once.
        let mut queue = RecvQueue::new(WrKind::SrqRecv, 5, 1, PD, Transport::Rc);
        let mut packets = batch(&pool, 5);
        assert_eq!(post(&mut queue, &mut fake, &mut packets).posted, 5);
        let (kept, rest) = (fake.posted[1].wr_id, [0, 2, 3, 4]);
        for at in rest {
            let done = fake::completions(&[(fake.posted[at].wr_id, 0, 7)]);
            queue.complete(&done.as_slice()[0]).unwrap();
        }
        for _ in 0..20 {
            fake.posted.clear();
            let mut packets = batch(&pool, 5);
            let outcome = post(&mut queue, &mut fake, &mut packets);
            assert_eq!((outcome.posted, outcome.stop, queue.outstanding()), (4, Some(PostStop::Full), 5));
            for wr in &fake.posted {
                let done = fake::completions(&[(wr.wr_id, 0, 7)]);
                queue.complete(&done.as_slice()[0]).unwrap();
            }
        }
        let done = fake::completions(&[(kept, 0, 9)]);
        assert_eq!(queue.complete(&done.as_slice()[0]).unwrap().len(), 9);
        assert_eq!((queue.outstanding(), pool.account().held), (0, 0));
    }

    #[test]
    fn completions_may_be_handed_back_in_any_order() {
        let (pool, mut fake) = (fake::pool(32), Fake::new());
        let mut queue = RecvQueue::new(WrKind::Recv, 4, 1, PD, Transport::Rc);
        for _ in 0..10 {
            fake.posted.clear();
            let mut packets = batch(&pool, 4);
            assert_eq!(post(&mut queue, &mut fake, &mut packets).posted, 4);
            for at in [2, 0, 3, 1] {
                let done = fake::completions(&[(fake.posted[at].wr_id, 0, 7)]);
                assert_eq!(queue.complete(&done.as_slice()[0]).unwrap().len(), 7);
                assert!(queue.complete(&done.as_slice()[0]).is_err());
            }
            assert_eq!(queue.outstanding(), 0);
        }
    }
}
