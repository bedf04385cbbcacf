//! The send queue on a fake device.

mod model;

use super::*;
use crate::fake_device::{self, Fake, PD, Posted};
use crate::memory::peer::Remote;
use crate::signature::{KeptSignatureKey, KeySpec};
use crate::wr::connected::OnRc;
use crate::wr::kept::{KeptKey, KeptMemory};
use crate::wr::local::Local;
use crate::wr::operation::{Operation, Transfer, WorkOptions};
use crate::wr::post::{PostStop, SendOutcome};
use crate::wr::post_verb::PostSend;
use crate::wr::wr_queue::{Work, WorkList};
use rdma_sys::ibv_wr_opcode;
use verbline_mem::{Batch, Packet, Pool};

fn spec(depth: u32, signal_every: u32) -> SendQueueSpec {
    SendQueueSpec {
        depth,
        tag: 3,
        pd_id: PD,
        transport: Transport::Rc,
        inline_bytes: 16,
        signal_every,
        solicited: false,
        configures_keys: true,
        max_sge: 1,
    }
}

fn queue(depth: u32, signal_every: u32) -> SendQueue {
    let mut queue = SendQueue::new(spec(depth, signal_every));
    queue.set_open(true);
    queue
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

/// Builds the outcome as the QP does.
fn outcome((taken, ret): (u32, i32)) -> SendOutcome {
    let stop = (ret != 0).then(|| PostStop::of_device(ret));
    SendOutcome { posted: taken as usize, inlined: taken as usize, stop }
}

#[test]
fn inline_lists_are_signaled_where_they_should_be_and_nowhere_else_also_after_a_refusal() {
    let (pool, mut fake) = (fake_device::pool(32), Fake::new());
    let (mut queue, mut other) = (queue(64, 5), queue(64, 3));
    for (takes, lens) in [(9, 4), (2, 7), (9, 6), (0, 3), (9, 1), (9, 8), (9, 2)] {
        fake.takes = takes;
        let mut packets = batch(&pool, &[9; 9][..lens]);
        let took = takes.min(lens);
        let stop = (took < lens).then_some(PostStop::Full);
        let posted = post(&mut queue, &mut fake, &mut packets);
        assert_eq!(posted, SendOutcome { posted: took, inlined: took, stop });
        // Another queue of the thread signals other entries of the same work requests.
        assert_eq!(post(&mut other, &mut Fake::new(), &mut batch(&pool, &[3; 7])).posted, 7);
        assert_eq!(pool.account().held, (lens - took) as u32);
    }
    let expected: Vec<_> = (1..=23).map(|number| number % 5 == 0).collect();
    assert_eq!(signaled(&fake.posted), expected);
    assert!(fake.posted.iter().all(|wr| wr.flags & !SIGNALED == INLINE));
}

#[test]
fn a_lone_packet_that_is_refused_stays_with_the_caller_unless_the_device_may_have_it() {
    let (pool, mut fake) = (fake_device::pool(8), Fake::new());
    let mut queue = queue(8, 2);
    let mut lone = batch(&pool, &[9]);
    let addr = lone.as_slice()[0].addr();
    (fake.takes, fake.refusal) = (0, libc::EINVAL);
    assert_eq!(post(&mut queue, &mut fake, &mut lone), outcome((0, libc::EINVAL)));
    assert_eq!((lone.as_slice()[0].addr(), queue.outstanding(), pool.account().held), (addr, 0, 1));
    fake.silent = true;
    assert_eq!(post(&mut queue, &mut fake, &mut lone), outcome((1, libc::EINVAL)));
    assert_eq!((lone.len(), queue.outstanding(), pool.account().held), (0, 1, 0));
}

fn post(queue: &mut SendQueue, fake: &mut Fake, batch: &mut Batch) -> SendOutcome {
    // SAFETY: the fake's QP is alive and its posts follow no pointer beyond the list.
    unsafe {
        let post = PostSend::of(fake.qp());
        if matches!(batch.as_slice(), [packet] if queue.takes_one(packet)) {
            let refused = queue.post_one(post, batch.pop().unwrap()).err();
            let posted = 1 - refused.as_ref().map_or(0, |refused| usize::from(refused.packet.is_some()));
            let stop = refused.map(|refused| {
                batch.push_iter(refused.packet);
                refused.stop
            });
            return SendOutcome { posted, inlined: posted, stop };
        }
        let posted = queue.post_all(post, batch).map(outcome);
        posted.unwrap_or_else(|| queue.post_batch(post, batch, None::<fn(usize, &Packet) -> SendOptions>))
    }
}

fn signaled(posted: &[Posted]) -> Vec<bool> {
    posted.iter().map(|wr| wr.flags & SIGNALED != 0).collect()
}

#[test]
fn what_came_before_bad_wr_stays_with_the_queue_and_the_rest_with_the_caller() {
    let (pool, mut fake) = (fake_device::pool(32), Fake::new());
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
    // The refused packets left no gap: every fourth taken one is signaled, and the numbers are
    // consecutive.
    assert_eq!(signaled(&fake.posted), [false, false, false, true, false, false, false, true]);
    assert!(fake.posted.windows(2).all(|pair| pair[1].wr_id == pair[0].wr_id + 1));
    assert_eq!(pool.account().held, 8);
    queue.reclaim();
    assert_eq!(pool.account().held, 0);
}

#[test]
fn a_refusal_that_names_no_work_request_frees_nothing() {
    let (pool, mut fake) = (fake_device::pool(32), Fake::new());
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
    let (pool, mut fake) = (fake_device::pool(8), Fake::new());
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
    let (pool, mut fake) = (fake_device::pool(32), Fake::new());
    let mut queue = queue(8, 4);
    let mut freed = Batch::with_capacity(32);
    for round in 0..1000 {
        let mut batch = batch(&pool, &[100; 4]);
        let sent: Vec<u64> = batch.iter().map(Packet::addr).collect();
        assert_eq!(post(&mut queue, &mut fake, &mut batch).posted, 4, "round {round}");
        let last = fake.posted.last().unwrap().wr_id;
        let done = fake_device::completions(&[(last, 0, 0)]);
        assert_eq!(queue.complete(&done.as_slice()[0], &mut freed).unwrap(), 4);
        assert_eq!(freed.iter().map(Packet::addr).collect::<Vec<_>>(), sent);
        freed.clear();
        assert!(queue.complete(&done.as_slice()[0], &mut freed).is_err());
    }
}

#[test]
fn numbers_go_on_across_the_end_of_a_block() {
    let (pool, mut fake) = (fake_device::pool(32), Fake::new());
    // A million posts to the end of a block, three at a time, so that a batch straddles it.
    let mut queue = queue(8, 1);
    let mut freed = Batch::with_capacity(32);
    let mut packets = batch(&pool, &[100; 3]);
    for _ in 0..(1 << 20) / 3 + 2 {
        let outcome = post(&mut queue, &mut fake, &mut packets);
        assert_eq!((outcome.posted, outcome.stop), (3, None));
        let last = fake.posted.last().unwrap().wr_id;
        fake.posted.clear();
        let done = fake_device::completions(&[(last, 0, 0)]);
        assert_eq!(queue.complete(&done.as_slice()[0], &mut freed).unwrap(), 3);
        packets.append(&mut freed);
    }
}

#[test]
fn a_marker_fits_behind_a_full_queue() {
    let (pool, mut fake) = (fake_device::pool(32), Fake::new());
    let mut queue = queue(4, 100);
    let mut batch = batch(&pool, &[100; 5]);
    assert_eq!(post(&mut queue, &mut fake, &mut batch).posted, 4);
    // SAFETY: the fake's QP is alive, and `queue` is the one that posts to it.
    assert!(unsafe { queue.post_marker(PostSend::of(fake.qp())) });
    let marker = *fake.posted.last().unwrap();
    assert_eq!((marker.len, marker.flags), (None, SIGNALED));
    let done = fake_device::completions(&[(marker.wr_id, 5, 0)]);
    let mut freed = Batch::with_capacity(8);
    assert_eq!(queue.complete(&done.as_slice()[0], &mut freed).unwrap(), 5);
    assert_eq!((freed.len(), queue.outstanding()), (4, 0));
}

#[test]
fn whoever_is_asked_for_options_may_post_to_another_queue() {
    let (pool, mut fake, mut other_fake) = (fake_device::pool(32), Fake::new(), Fake::new());
    let (mut queue, mut other) = (queue(8, 4), queue(8, 4));
    let mut packets = batch(&pool, &[100; 3]);
    let options = |at: usize, _: &Packet| {
        let mut others = batch(&pool, &[7, 0]);
        assert_eq!(post(&mut other, &mut other_fake, &mut others).posted, 2);
        SendOptions::<OnRc> { imm: (at == 1).then_some(5), ..SendOptions::default() }
    };
    // SAFETY: the fake's QP is alive, and `queue` is the one that posts to it.
    let outcome = unsafe { queue.post_batch(PostSend::of(fake.qp()), &mut packets, Some(options)) };
    assert_eq!((outcome.posted, outcome.stop), (3, None));
    let seen: Vec<_> = fake.posted.iter().map(|wr| (wr.len, wr.opcode, wr.flags)).collect();
    let (plain, with_imm) = (ibv_wr_opcode::IBV_WR_SEND, ibv_wr_opcode::IBV_WR_SEND_WITH_IMM);
    assert_eq!(seen, [(Some(100), plain, 0), (Some(100), with_imm, 0), (Some(100), plain, 0)]);
    // The unusual fields are restored in the next list.
    fake.posted.clear();
    assert_eq!(post(&mut queue, &mut fake, &mut batch(&pool, &[9; 3])).posted, 3);
    assert!(fake.posted.iter().all(|wr| (wr.len, wr.opcode) == (Some(9), plain)));
    queue.reclaim();
    other.reclaim();
}

/// The positions of signals do not depend on which packets were refused.
#[test]
fn a_lone_packet_that_is_refused_does_not_count_for_signals() {
    let (pool, mut fake) = (fake_device::pool(8), Fake::new());
    for refused_at in 0..6 {
        let mut queue = queue(64, 3);
        fake.posted.clear();
        for number in 0..9 {
            let mut lone = batch(&pool, &[9]);
            if number == refused_at {
                fake.takes = 0;
                assert_eq!(post(&mut queue, &mut fake, &mut lone), outcome((0, libc::ENOMEM)));
                assert_eq!(post(&mut queue, &mut fake, &mut lone), outcome((0, libc::ENOMEM)));
                fake.takes = usize::MAX;
            }
            assert_eq!(post(&mut queue, &mut fake, &mut lone), outcome((1, 0)));
        }
        let every_third: Vec<_> = (1..=9).map(|number| number % 3 == 0).collect();
        assert_eq!(signaled(&fake.posted), every_third, "refused at {refused_at}");
    }
}

/// Every option reaches the device, and none remains for the next work request.
#[test]
fn each_option_reaches_its_work_request_and_no_other() {
    let (pool, mut fake) = (fake_device::pool(32), Fake::new());
    let mut queue = queue(64, 100);
    let plain = SendOptions::<OnRc>::default();
    let asked = [
        (plain, 0),
        (SendOptions { fence: true, ..plain }, FENCE),
        (SendOptions { solicited: true, ..plain }, SOLICITED),
        (SendOptions { signaled: true, ..plain }, SIGNALED),
        (SendOptions { fence: true, solicited: true, signaled: true, ..plain }, FENCE | SOLICITED | SIGNALED),
        (plain, 0),
    ];
    for (len, inline) in [(9, INLINE), (100, 0)] {
        fake.posted.clear();
        let mut packets = batch(&pool, &[len; 6]);
        let options = Some(|at: usize, _: &Packet| asked[at].0);
        // SAFETY: the fake's QP is alive, and `queue` is the one that posts to it.
        let outcome = unsafe { queue.post_batch(PostSend::of(fake.qp()), &mut packets, options) };
        assert_eq!((outcome.posted, outcome.stop), (6, None));
        let flags: Vec<_> = fake.posted.iter().map(|wr| wr.flags).collect();
        assert_eq!(flags, asked.map(|(_, flags)| flags | inline));
    }
    queue.reclaim();
}

/// A packet with `comes_back` does not go inline, however short it is, and stays in its slot until
/// its completion, in a batch and in a list.
#[test]
fn a_packet_that_comes_back_is_kept_whatever_its_length() {
    let (pool, mut fake) = (fake_device::pool(32), Fake::new());
    let mut queue = queue(64, 100);
    let lens = [0, 9, 100];
    let back =
        SendOptions::<OnRc> { imm: Some(3), fence: true, signaled: true, comes_back: true, ..Default::default() };
    let (mut packets, options) = (batch(&pool, &lens), Some(|_: usize, _: &Packet| back));
    // SAFETY: the fake's QP is alive, and `queue` is the one that posts to it.
    let outcome = unsafe { queue.post_batch(PostSend::of(fake.qp()), &mut packets, options) };
    assert_eq!((outcome.posted, outcome.inlined, outcome.stop), (3, 0, None));
    let mut works = WorkList::with_capacity(8);
    for packet in batch(&pool, &lens).drain_front(3) {
        works.push(Work::SendWith { packet, options: back }).unwrap();
    }
    assert_eq!((works.sends(), works.send_bytes()), (3, 109));
    // SAFETY: as above, and nothing is kept that an operation names.
    let outcome = unsafe { queue.post_works(PostSend::of(fake.qp()), &mut works, &mut KeptMemory::default()) };
    assert_eq!((outcome.posted, outcome.inlined, outcome.stop), (3, 0, None));
    for wr in &fake.posted {
        assert_eq!((wr.flags, wr.opcode), (FENCE | SIGNALED, ibv_wr_opcode::IBV_WR_SEND_WITH_IMM));
    }
    let posted: Vec<_> = fake.posted.iter().map(|wr| wr.len).collect();
    assert_eq!(posted, [None, Some(9), Some(100), None, Some(9), Some(100)]);
    assert_eq!(pool.account().held, 6);
    queue.reclaim();
    assert_eq!(pool.account().held, 0);
}

/// Exactly the work requests that take a receive of the peer are solicited, on every posting path.
#[test]
fn every_send_of_a_solicited_queue_is_solicited() {
    let (pool, mut fake) = (fake_device::pool(32), Fake::new());
    let mut queue = SendQueue::new(SendQueueSpec { solicited: true, ..spec(64, 100) });
    queue.set_open(true);
    for (len, inline) in [(9, INLINE), (100, 0)] {
        for count in [1, 4] {
            fake.posted.clear();
            let mut packets = batch(&pool, &vec![len; count]);
            assert!(packets.iter().all(|packet| !queue.takes_one(packet)), "which writes no flags");
            assert_eq!(post(&mut queue, &mut fake, &mut packets).posted, count);
            assert!(fake.posted.iter().all(|wr| wr.flags == SOLICITED | inline), "{count} of {len} B");
        }
    }
    let to = Remote { addr: 4096, rkey: 7 };
    let asked = [
        (Operation::send(Local::Empty), SOLICITED),
        (Operation::Transfer { transfer: Transfer::write(to, Some(1)), local: Local::Empty }, SOLICITED),
        (Operation::write(Local::Empty, to), 0),
        (Operation::read(Local::Empty, to), 0),
    ];
    let expected = asked.each_ref().map(|(_, flags)| *flags);
    let mut works = WorkList::with_capacity(8);
    for (operation, _) in asked {
        works.push(Work::plain(operation)).unwrap();
    }
    fake.posted.clear();
    // SAFETY: the fake's QP is alive, and `queue` is the one that posts to it.
    let outcome = unsafe { queue.post_works(PostSend::of(fake.qp()), &mut works, &mut KeptMemory::default()) };
    assert_eq!(outcome.posted, 4, "{outcome:?}");
    let flags: Vec<_> = fake.posted.iter().map(|wr| wr.flags & !SIGNALED).collect();
    assert_eq!(flags, expected);
    queue.reclaim();
}

/// A response is fenced even if not requested: the data it answers with must have been read.
#[test]
fn each_option_reaches_its_work_request_of_a_list_and_no_other() {
    let mut fake = Fake::new();
    let pd = fake_device::soft_with(|_| ()).alloc_pd().unwrap();
    let key = KeptSignatureKey::new(pd.create_signature_key(&KeySpec::default()).unwrap());
    let mut kept = KeptMemory { keys: vec![key], ..KeptMemory::default() };
    let mut queue = queue(64, 100);
    let to = Remote { addr: 4096, rkey: 7 };
    let respond = || Operation::Respond { key: KeptKey(0), invalidate: None, local: Local::Empty, on: OnRc };
    let write = || Operation::write(Local::Empty, to);
    let send = || Operation::send(Local::Empty);
    let plain = WorkOptions::default();
    let fenced = WorkOptions { fence: true, ..plain };
    let solicited = WorkOptions { solicited: true, ..plain };
    let signaled = WorkOptions { signaled: true, ..plain };
    let asked = [
        (write(), plain, 0),
        (write(), fenced, FENCE),
        (Operation::read(Local::Empty, to), fenced, FENCE),
        (send(), solicited, SOLICITED),
        (send(), signaled, SIGNALED),
        (send(), plain, 0),
        (respond(), plain, FENCE),
        (respond(), fenced, FENCE),
        (send(), plain, SIGNALED),
    ];
    let expected = asked.each_ref().map(|(_, _, flags)| *flags);
    let mut works = WorkList::with_capacity(asked.len());
    for (operation, options, _) in asked {
        works.push(Work::Operation { operation, options }).unwrap();
    }
    // SAFETY: the fake's QP is alive, `queue` is the one that posts to it, and `kept` outlives it.
    let outcome = unsafe { queue.post_works(PostSend::of(fake.qp()), &mut works, &mut kept) };
    assert_eq!((outcome.posted, outcome.stop), (expected.len(), None));
    let flags: Vec<_> = fake.posted.iter().map(|wr| wr.flags).collect();
    // The last of a list is signaled in any case.
    assert_eq!(flags, expected);
    queue.reclaim();
}
