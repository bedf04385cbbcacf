//! Posted scatter/gather lists of a QP or an SRQ, by number. A list moves in when posted and out,
//! filled, with its completion.

use rdma_sys::{ibv_recv_wr, ibv_sge};

use crate::cq::completion::{Completion, Stale};
use crate::wr::buffer::{Buffer, Refused};
use crate::wr::post::PostStop;
use crate::wr::sg_list::SgList;
use crate::wr::wr_list::WrList;
use crate::wr_id::{Sequence, WrKind};

pub(crate) struct ScatterQueue {
    sequence: Sequence,
    /// The lists that the device may write, each with its number and in that number's slot; the
    /// array's length is a power of two.
    lists: Box<[Option<(u64, SgList)>]>,
    /// Space for the entries of a work request, used during its post.
    sges: Box<[ibv_sge]>,
    outstanding: u32,
    depth: u32,
    pd_id: u64,
}

impl ScatterQueue {
    pub(crate) fn new(kind: WrKind, depth: u32, max_sge: u32, tag: u16, pd_id: u64) -> ScatterQueue {
        let places = depth.max(1).next_power_of_two() as usize;
        ScatterQueue {
            sequence: Sequence::new(tag, kind),
            lists: std::iter::repeat_with(|| None).take(places).collect(),
            sges: vec![ibv_sge { addr: 0, length: 0, lkey: 0 }; max_sge as usize].into(),
            outstanding: 0,
            depth,
            pd_id,
        }
    }

    pub(crate) fn outstanding(&self) -> u32 {
        self.outstanding
    }

    pub(crate) fn room(&self) -> u32 {
        self.depth - self.outstanding
    }

    /// Posts a list; one that is refused comes back.
    ///
    /// # Safety
    /// `post` posts the work request to the live device queue behind this one, sets `bad_wr` and
    /// returns the verb's result; it calls nothing else.
    pub(crate) unsafe fn post(
        &mut self,
        list: SgList,
        post: impl FnOnce(*mut ibv_recv_wr, &mut *mut ibv_recv_wr) -> i32,
    ) -> Result<(), Refused> {
        if let Err(reason) = self.check(&list) {
            return Err(Refused { buffer: Buffer::List(list), reason });
        }
        let wr_id = self.next_free();
        let sges = list.write_sges(&mut self.sges);
        // SAFETY: the device is called and nothing else, by the caller's word.
        let mut wrs = unsafe { WrList::<ibv_recv_wr>::of_thread() };
        let wr = &mut wrs.lone().wr;
        // At most the queue's limit.
        (wr.wr_id, wr.sg_list, wr.num_sge) = (wr_id, self.sges.as_mut_ptr(), sges as i32);
        let refusal = wrs.post_lone(post);
        wrs.altered(0);
        if let Some((0, ret)) = refusal {
            return Err(Refused { buffer: Buffer::List(list), reason: PostStop::of_device(ret) });
        }
        let place = self.place(wr_id);
        self.lists[place] = Some((wr_id, list));
        self.sequence.advance(1);
        self.outstanding += 1;
        Ok(())
    }

    fn check(&self, list: &SgList) -> Result<(), PostStop> {
        let (sges, max_sge) = (list.sges(), self.sges.len());
        if sges > max_sge {
            return Err(PostStop::TooManySges { sges, max_sge: max_sge as u32 });
        }
        if let Some(packet_pd) = list.foreign_pd(self.pd_id) {
            return Err(PostStop::NotRegistered { packet_pd, qp_pd: self.pd_id });
        }
        if self.room() == 0 { Err(PostStop::Full) } else { Ok(()) }
    }

    /// The next number whose slot is free; there is one, because the queue is not full. Slots are
    /// taken in turn, and one that is handed back late is passed over.
    fn next_free(&mut self) -> u64 {
        loop {
            self.sequence.reserve(1);
            let wr_id = self.sequence.next();
            if self.lists[self.place(wr_id)].is_none() {
                return wr_id;
            }
            self.sequence.advance(1);
        }
    }

    fn place(&self, wr_id: u64) -> usize {
        wr_id as usize & (self.lists.len() - 1)
    }

    /// Returns the list that the completion filled. Its packets' lengths are the bytes received
    /// into them; all are 0 if the receive failed, or if the data went elsewhere (RDMA WRITE with
    /// immediate).
    pub(crate) fn complete(&mut self, completion: &Completion) -> Result<SgList, Stale> {
        let wr_id = completion.wr_id();
        let place = self.place(wr_id);
        let (_, mut list) = self.lists[place].take_if(|(number, _)| *number == wr_id).ok_or(Stale { wr_id })?;
        self.outstanding -= 1;
        let len = if completion.filled_its_buffer() { completion.byte_len() as usize } else { 0 };
        // A length beyond the list is the device's mistake; the bytes it wrote are not known, so
        // nothing is shown.
        list.cut_to(if len <= list.len_bytes() { len } else { 0 });
        Ok(list)
    }

    /// Frees every slot. The device holds none of the lists any more.
    pub(crate) fn reclaim(&mut self) -> u32 {
        self.lists.fill_with(|| None);
        std::mem::take(&mut self.outstanding)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_device::{self, Fake, PD};
    use crate::wr::post_verb::PostRecv;
    use crate::wr::sg_list::SgEntry;
    use verbline_mem::Pool;

    fn list(pool: &Pool, lens: &[usize]) -> SgList {
        let cache = pool.cache(0);
        let packets = lens.iter().map(|&len| {
            let mut packet = cache.get().unwrap();
            assert!(packet.set_len(len));
            SgEntry::Packet(packet)
        });
        packets.collect()
    }

    fn post(queue: &mut ScatterQueue, fake: &mut Fake, list: SgList) -> Result<(), Refused> {
        // SAFETY: it posts to the fake, which is alive.
        let verb = unsafe { PostRecv::of(fake.qp()) };
        // SAFETY: as above; it calls nothing else.
        unsafe { queue.post(list, |wr, bad| verb.call(wr, bad)) }
    }

    fn lens(list: &SgList) -> Vec<usize> {
        list.as_slice().iter().map(SgEntry::len_bytes).collect()
    }

    #[test]
    fn lists_come_back_in_any_order_and_a_place_that_is_taken_is_passed_over() {
        let (pool, mut fake) = (fake_device::pool(16), Fake::new());
        let mut queue = ScatterQueue::new(WrKind::Recv, 3, 2, 9, PD);
        for len in 1..=3 {
            post(&mut queue, &mut fake, list(&pool, &[len, 10])).unwrap();
        }
        let mut numbers: Vec<_> = fake.posted.iter().map(|posted| posted.wr_id).collect();
        // The oldest list stays out, while others go round.
        for _ in 0..10 {
            let newest = numbers.pop().unwrap();
            let done = fake_device::completions(&[(newest, 0, 4), (newest, 0, 4)]);
            let filled = queue.complete(&done.as_slice()[0]).unwrap();
            assert_eq!(filled.len_bytes(), 4);
            assert_eq!(queue.complete(&done.as_slice()[1]).unwrap_err(), Stale { wr_id: newest });
            drop(filled);
            post(&mut queue, &mut fake, list(&pool, &[3, 10])).unwrap();
            numbers.push(fake.posted.last().unwrap().wr_id);
            numbers.swap(1, 2);
            assert_eq!((queue.outstanding(), queue.room(), pool.account().held), (3, 0, 6));
        }
        let oldest = fake_device::completions(&[(numbers[0], 0, 11)]);
        assert_eq!(lens(&queue.complete(&oldest.as_slice()[0]).unwrap()), [1, 10]);
        assert_eq!((queue.reclaim(), pool.account().held), (2, 0));
    }

    #[test]
    fn a_list_that_the_device_refuses_comes_back_unless_the_device_may_have_it() {
        let (pool, mut fake) = (fake_device::pool(8), Fake::new());
        let mut queue = ScatterQueue::new(WrKind::Recv, 4, 2, 9, PD);
        (fake.takes, fake.refusal) = (0, libc::EINVAL);
        let refused = post(&mut queue, &mut fake, list(&pool, &[1, 2])).unwrap_err();
        assert!(matches!(refused.reason, PostStop::Device(_)), "{refused}");
        assert_eq!((lens(&refused.buffer.into_list().unwrap()), queue.outstanding()), (vec![1, 2], 0));
        fake.silent = true;
        post(&mut queue, &mut fake, list(&pool, &[1, 2])).unwrap();
        assert_eq!((queue.outstanding(), pool.account().held), (1, 2));
    }

    #[test]
    fn what_failed_or_cannot_have_come_shows_nothing() {
        let (pool, mut fake) = (fake_device::pool(8), Fake::new());
        let mut queue = ScatterQueue::new(WrKind::Recv, 4, 2, 9, PD);
        for (status, len, shown) in [(5, 3, vec![0, 0]), (0, 31, vec![0, 0]), (0, 30, vec![10, 20])] {
            post(&mut queue, &mut fake, list(&pool, &[10, 20])).unwrap();
            let done = fake_device::completions(&[(fake.posted.last().unwrap().wr_id, status, len)]);
            assert_eq!(lens(&queue.complete(&done.as_slice()[0]).unwrap()), shown);
        }
    }
}
