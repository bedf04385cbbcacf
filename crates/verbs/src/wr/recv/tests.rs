//! The receive queue on a fake device.

use super::*;
use crate::cq::completion::Completion;
use crate::fake_device::{self, Fake, PD};
use crate::wr::post_verb::PostRecv;
use crate::wr::sg_list::SgEntry;
use verbline_mem::Pool;

fn batch(pool: &Pool, count: usize) -> Batch {
    let mut batch = Batch::with_capacity(count);
    assert_eq!(pool.cache(0).get_bulk(&mut batch, count), count);
    batch
}

/// Builds the outcome as the QP does.
fn outcome((taken, ret): (u32, i32)) -> RecvOutcome {
    RecvOutcome { posted: taken as usize, stop: (ret != 0).then(|| PostStop::of_device(ret)) }
}

#[test]
fn a_lone_packet_that_is_refused_stays_with_the_caller_unless_the_device_may_have_it() {
    let (pool, mut fake) = (fake_device::pool(8), Fake::new());
    let mut queue = RecvQueue::new(WrKind::Recv, 4, 1, PD, Transport::Rc);
    // The queue learns the pool; then the usual case follows.
    assert_eq!(post(&mut queue, &mut fake, &mut batch(&pool, 2)).posted, 2);
    let mut lone = batch(&pool, 1);
    let addr = lone.as_slice()[0].addr();
    (fake.takes, fake.refusal) = (0, libc::EINVAL);
    let refused = post(&mut queue, &mut fake, &mut lone);
    assert_eq!(refused, outcome((0, libc::EINVAL)));
    assert_eq!((lone.as_slice()[0].addr(), queue.outstanding(), pool.account().held), (addr, 2, 3));
    fake.silent = true;
    assert_eq!(post(&mut queue, &mut fake, &mut lone), outcome((1, libc::EINVAL)));
    assert_eq!((lone.len(), queue.outstanding(), pool.account().held), (0, 3, 3));
    queue.reclaim();
    assert_eq!(pool.account().held, 0);
}

#[test]
fn a_lone_completion_does_nothing_where_there_is_no_room_or_it_is_not_the_next() {
    let (pool, mut fake) = (fake_device::pool(8), Fake::new());
    let mut queue = RecvQueue::new(WrKind::Recv, 4, 1, PD, Transport::Rc);
    assert_eq!(post(&mut queue, &mut fake, &mut batch(&pool, 2)).posted, 2);
    let mut first = Batch::with_capacity(1);
    let done = fake_device::completions(&[(fake.posted[0].wr_id, 0, 5)]);
    assert_eq!(complete_one(&mut queue, &done.as_slice()[0], &mut first), 1);
    let next = fake.posted[1].wr_id;
    let one = |status, len| fake_device::completions(&[(next, status, len)]);
    let mut full = batch(&pool, 1);
    assert_eq!(queue.complete_run(one(0, 5).as_slice(), &mut full), 0);
    let mut packets = Batch::with_capacity(4);
    // Failed; longer than the packet; correct; stale.
    for (status, len, count) in [(5, 5, 0), (0, 4096, 0), (0, 5, 1), (0, 5, 0)] {
        assert_eq!(complete_one(&mut queue, &one(status, len).as_slice()[0], &mut packets), count, "{status} {len}");
    }
    assert_eq!((packets.len(), packets.as_slice()[0].len(), queue.outstanding()), (1, 5, 0));
}

fn complete_one(queue: &mut RecvQueue, completion: &Completion, packets: &mut Batch) -> usize {
    packets.push_iter(queue.complete_one(completion))
}

fn post(queue: &mut RecvQueue, fake: &mut Fake, batch: &mut Batch) -> RecvOutcome {
    let qp = fake.qp();
    // SAFETY: the fake's QP is alive and its posts follow no pointer beyond the list.
    let verb = unsafe { PostRecv::of(qp) };
    if matches!(batch.as_slice(), [packet] if queue.takes_one(packet)) {
        // SAFETY: the fake's QP is alive, and `queue` is the one that posts to it.
        return unsafe { queue.post_only(batch, |wr, bad| verb.call(wr, bad)) };
    }
    // SAFETY: the fake's QP is alive, and `queue` is the one that posts to it.
    let posted = unsafe { queue.post_all(batch, |wr, bad| verb.call(wr, bad)) }.map(outcome);
    // SAFETY: the fake's QP is alive, and `queue` is the one that posts to it.
    posted.unwrap_or_else(|| unsafe { queue.post_batch(batch, |wr, bad| verb.call(wr, bad)) })
}

#[test]
fn what_came_before_bad_wr_stays_with_the_queue_and_the_rest_with_the_caller() {
    let (pool, mut fake) = (fake_device::pool(32), Fake::new());
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
    // Of a pool that the queue knows by now: the quick path.
    fake.takes = 2;
    let mut packets = batch(&pool, 6);
    assert_eq!(post(&mut queue, &mut fake, &mut packets).posted, 2);
    assert_eq!((packets.len(), queue.outstanding(), pool.account().held), (4, 10, 14));
    assert!(fake.posted.windows(2).all(|pair| pair[1].wr_id == pair[0].wr_id + 1));
}

#[test]
fn a_length_that_the_device_cannot_have_written_shows_nothing() {
    let (pool, mut fake) = (fake_device::pool(32), Fake::new());
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
        let done = fake_device::completions(&[(wr_id, 0, byte_len)]);
        assert_eq!(queue.complete(&done.as_slice()[0]).unwrap().len(), expected, "{transport} {byte_len}");
    }
}

#[test]
fn packets_of_several_pools_keep_the_shape_of_their_own() {
    let (large, small, mut fake) = (fake_device::pool(32), fake_device::pool_of(32, 128, 16), Fake::new());
    let mut queue = RecvQueue::new(WrKind::Recv, 8, 1, PD, Transport::Rc);
    let mut packets = Batch::with_capacity(8);
    for round in 0..6 {
        // One pool alone, both pools in one list, the other pool alone: in lists, and packet by
        // packet.
        let shapes: &[(&Pool, usize)] = match round % 3 {
            0 => &[(&large, 4)],
            1 => &[(&large, 2), (&small, 3)],
            _ => &[(&small, 2), (&large, 1)],
        };
        for &(pool, count) in shapes {
            packets.append(&mut batch(pool, count));
        }
        let expected: Vec<_> = packets.iter().map(|packet| (packet.addr(), packet.capacity())).collect();
        fake.posted.clear();
        assert_eq!(post(&mut queue, &mut fake, &mut packets).posted, expected.len());
        let done: Vec<_> = fake.posted.iter().map(|wr| (wr.wr_id, 0, 100)).collect();
        let done = fake_device::completions(&done);
        let mut rest = done.as_slice();
        while let Some(first) = rest.first() {
            let count = match round < 3 {
                true => queue.complete_run(rest, &mut packets),
                false => complete_one(&mut queue, first, &mut packets),
            };
            assert!(count > 0);
            rest = &rest[count..];
        }
        let came: Vec<_> = packets.iter().map(|packet| (packet.addr(), packet.capacity())).collect();
        assert_eq!(came, expected, "round {round}");
        assert!(packets.iter().all(|packet| packet.len() == 100));
        packets.clear();
    }
    // A message longer than the smaller pool's packets does not complete one of them.
    packets.append(&mut batch(&large, 1));
    packets.append(&mut batch(&small, 1));
    fake.posted.clear();
    assert_eq!(post(&mut queue, &mut fake, &mut packets).posted, 2);
    let done = fake_device::completions(&[(fake.posted[0].wr_id, 0, 200), (fake.posted[1].wr_id, 0, 200)]);
    assert_eq!(queue.complete_run(done.as_slice(), &mut packets), 1);
    assert_eq!(queue.complete(&done.as_slice()[1]).unwrap().len(), 0);
}

#[test]
fn slots_that_stay_taken_are_passed_over() {
    let (pool, mut fake) = (fake_device::pool(32), Fake::new());
    // Five of eight slots may be taken at once.
    let mut queue = RecvQueue::new(WrKind::SrqRecv, 5, 1, PD, Transport::Rc);
    let mut packets = batch(&pool, 5);
    assert_eq!(post(&mut queue, &mut fake, &mut packets).posted, 5);
    let (kept, rest) = (fake.posted[1].wr_id, [0, 2, 3, 4]);
    for at in rest {
        let done = fake_device::completions(&[(fake.posted[at].wr_id, 0, 7)]);
        queue.complete(&done.as_slice()[0]).unwrap();
    }
    for _ in 0..20 {
        fake.posted.clear();
        let mut packets = batch(&pool, 5);
        let outcome = post(&mut queue, &mut fake, &mut packets);
        assert_eq!((outcome.posted, outcome.stop, queue.outstanding()), (4, Some(PostStop::Full), 5));
        for wr in &fake.posted {
            let done = fake_device::completions(&[(wr.wr_id, 0, 7)]);
            queue.complete(&done.as_slice()[0]).unwrap();
        }
    }
    let done = fake_device::completions(&[(kept, 0, 9)]);
    assert_eq!(queue.complete(&done.as_slice()[0]).unwrap().len(), 9);
    assert_eq!((queue.outstanding(), pool.account().held), (0, 0));
}

#[test]
fn completions_may_be_handed_back_in_any_order() {
    let (pool, mut fake) = (fake_device::pool(32), Fake::new());
    let mut queue = RecvQueue::new(WrKind::Recv, 4, 1, PD, Transport::Rc);
    for _ in 0..10 {
        fake.posted.clear();
        let mut packets = batch(&pool, 4);
        assert_eq!(post(&mut queue, &mut fake, &mut packets).posted, 4);
        for at in [2, 0, 3, 1] {
            let done = fake_device::completions(&[(fake.posted[at].wr_id, 0, 7)]);
            assert_eq!(queue.complete(&done.as_slice()[0]).unwrap().len(), 7);
            assert!(queue.complete(&done.as_slice()[0]).is_err());
        }
        assert_eq!(queue.outstanding(), 0);
    }
}

/// Regression: the number that means "none is expected" was taken for the expected one.
#[test]
fn a_number_that_no_work_request_has_is_stale_also_while_none_is_expected() {
    let (pool, mut fake) = (fake_device::pool(32), Fake::new());
    let mut packets = Batch::with_capacity(4);
    // Out-of-order completion leaves the last slot empty, or full.
    for early in [3, 1] {
        let mut queue = RecvQueue::new(WrKind::Recv, 4, 1, PD, Transport::Rc);
        assert_eq!(post(&mut queue, &mut fake, &mut batch(&pool, 4)).posted, 4);
        let done = fake_device::completions(&[(fake.posted[early].wr_id, 0, 7), (u64::MAX, 0, 7)]);
        let [early, strange] = done.as_slice() else { panic!("two are there") };
        queue.complete(early).unwrap();
        assert!(queue.complete(strange).is_err() && queue.complete_one(strange).is_none());
        assert_eq!(queue.complete_run(&done.as_slice()[1..], &mut packets), 0);
        assert_eq!((queue.outstanding(), pool.account().held), (3, 3));
        queue.reclaim();
        fake.posted.clear();
    }
}

/// The receives that the device holds, oldest first, with their posted lengths.
fn outstanding(fake: &mut Fake) -> std::collections::VecDeque<(u64, u32)> {
    fake.posted.drain(..).map(|wr| (wr.wr_id, wr.len.unwrap())).collect()
}

#[test]
fn a_run_ends_where_something_else_begins() {
    let (pool, mut fake) = (fake_device::pool(32), Fake::new());
    // The process's first block of numbers begins like a new queue's numbers, so that no completion
    // would be unexpected: another queue takes that block.
    let mut other = RecvQueue::new(WrKind::Recv, 8, 1, PD, Transport::Rc);
    assert_eq!(post(&mut other, &mut fake, &mut batch(&pool, 8)).posted, 8);
    fake.posted.clear();
    let mut queue = RecvQueue::new(WrKind::Recv, 8, 1, PD, Transport::Rc);
    assert_eq!(post(&mut queue, &mut fake, &mut batch(&pool, 8)).posted, 8);
    let ids: Vec<u64> = fake.posted.iter().map(|wr| wr.wr_id).collect();
    let mut packets = Batch::with_capacity(3);
    // Four came, one failed; one is too long; one came to another queue.
    let done = fake_device::completions(&[
        (ids[0], 0, 10),
        (ids[1], 0, 11),
        (ids[2], 0, 12),
        (ids[3], 0, 13),
        (ids[4], 5, 0),
        (ids[5], 0, 513),
        (ids[6] ^ 1 << 48, 0, 7),
        (ids[6], 0, 16),
    ]);
    let mut rest = done.as_slice();
    let mut lens = Vec::new();
    let mut runs = Vec::new();
    while let Some(first) = rest.first() {
        let mut count = queue.complete_run(rest, &mut packets);
        lens.extend(packets.iter().map(Packet::len));
        packets.clear();
        runs.push(count);
        if count == 0 {
            lens.extend(queue.complete(first).map(|packet| packet.len()));
            count = 1;
        }
        rest = &rest[count..];
    }
    // The first number of a block is unexpected, so it comes by itself.
    assert_eq!(runs, [1, 3, 0, 0, 0, 1]);
    assert_eq!(lens, [10, 11, 12, 13, 0, 0, 16]);
    assert_eq!(queue.complete_run(done.as_slice(), &mut packets), 0);
    assert_eq!(queue.outstanding(), 1);
}

#[test]
fn runs_go_on_across_the_end_of_a_block_and_after_disorder() {
    let (pool, mut fake) = (fake_device::pool(32), Fake::new());
    let mut queue = RecvQueue::new(WrKind::Recv, 8, 1, PD, Transport::Ud);
    let mut packets = batch(&pool, 8);
    assert_eq!(post(&mut queue, &mut fake, &mut packets).posted, 8);
    let mut device = outstanding(&mut fake);
    // A million receives to the end of a block, three at a time, so that a list straddles it.
    for round in 0..(1 << 20) / 3 + 20 {
        let disorder = round % 100_000 == 17;
        let mut entries: Vec<_> = device.drain(..3).map(|(wr_id, _)| (wr_id, 0, 47)).collect();
        if disorder {
            entries.swap(0, 2);
        }
        let done = fake_device::completions(&entries);
        let mut taken = 0;
        while taken < 3 {
            let run = queue.complete_run(&done.as_slice()[taken..], &mut packets);
            assert!(run > 0, "round {round}, {taken} taken");
            taken += run;
        }
        assert!(packets.iter().all(|packet| packet.len() == 7));
        assert_eq!(post(&mut queue, &mut fake, &mut packets).posted, 3);
        assert_eq!(queue.outstanding(), 8);
        device.extend(outstanding(&mut fake));
        if disorder {
            // Once all have completed, receives are in order again.
            let entries: Vec<_> = device.drain(..).map(|(wr_id, len)| (wr_id, 0, len)).collect();
            let done = fake_device::completions(&entries);
            for completion in &done {
                packets.push(queue.complete(completion).unwrap()).unwrap();
            }
            assert_eq!(post(&mut queue, &mut fake, &mut packets).posted, 8);
            device.extend(outstanding(&mut fake));
            assert_ne!(queue.expected, NO_WR_ID);
        }
    }
}

#[test]
fn any_order_gives_each_packet_once() {
    let (pool, mut fake) = (fake_device::pool(32), Fake::new());
    let mut random = 1u64;
    let mut below = |n: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) as usize % n
    };
    let mut queue = RecvQueue::new(WrKind::SrqRecv, 6, 1, PD, Transport::Rc);
    let mut device = std::collections::VecDeque::new();
    let mut old = Vec::new();
    for _ in 0..20_000 {
        let count = below(8) + 1;
        let mut packets = batch(&pool, count);
        let addrs: Vec<u64> = packets.iter().map(Packet::addr).collect();
        let mut posted = 0;
        // Slots that stay taken cut a list short.
        while let Some(more) = Some(post(&mut queue, &mut fake, &mut packets)).filter(|more| more.posted > 0) {
            posted += more.posted;
        }
        assert_eq!(posted, count.min(6 - device.len()));
        device.extend(fake.posted.drain(..).map(|wr| wr.wr_id).zip(addrs));
        // The first is held back most of the time, so that its slot is passed over again and again.
        for _ in 0..below(device.len() + 1) {
            let at = if below(50) == 0 { 0 } else { below(device.len()) };
            let (wr_id, addr) = device.remove(at).unwrap();
            let done = fake_device::completions(&[(wr_id, 0, 9)]);
            let packet = queue.complete(&done.as_slice()[0]).unwrap();
            assert_eq!((packet.addr(), packet.len()), (addr, 9));
            old.push(wr_id);
        }
        // A reset, at which slots may have been passed over.
        if below(50) == 0 {
            assert_eq!(queue.reclaim() as usize, device.len());
            old.extend(device.drain(..).map(|(wr_id, _)| wr_id));
        }
        let stale = fake_device::completions(&[(old.get(below(old.len() + 1)).copied().unwrap_or(0), 0, 9)]);
        assert!(queue.complete(&stale.as_slice()[0]).is_err());
        assert_eq!(queue.outstanding() as usize, device.len());
    }
    queue.reclaim();
    assert_eq!(pool.account().held, 0);
}

/// A queue of packets and one of lists post from the same work requests of the thread.
#[test]
fn a_list_leaves_nothing_to_the_packet_that_is_posted_next() {
    let (pool, mut fake) = (fake_device::pool(8), Fake::new());
    let mut queue = RecvQueue::new(WrKind::Recv, 4, 1, PD, Transport::Rc);
    assert_eq!(post(&mut queue, &mut fake, &mut batch(&pool, 2)).posted, 2);
    let mut lists = ScatterQueue::new(WrKind::Recv, 4, 2, 9, PD);
    let list = batch(&pool, 2).drain_front(2).map(SgEntry::Packet).collect();
    // SAFETY: the fake's QP is alive and its posts follow no pointer beyond the list.
    let verb = unsafe { PostRecv::of(fake.qp()) };
    // SAFETY: as above; it calls nothing else.
    unsafe { lists.post(list, |wr, bad| verb.call(wr, bad)) }.unwrap();
    let mut lone = batch(&pool, 1);
    let addr = lone.as_slice()[0].addr();
    assert_eq!(post(&mut queue, &mut fake, &mut lone).posted, 1);
    assert_eq!(fake.posted.last().unwrap().at.unwrap().0, addr);
    queue.reclaim();
    lists.reclaim();
}
