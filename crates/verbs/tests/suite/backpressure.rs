//! Full queues, refused work requests, and late completions: nothing is lost, nothing is freed
//! early.

use crate::common::{Options, Side, hand_back, pair, pool};
use verbline_mem::{Batch, Packet};
use verbline_verbs::expert::{SgEntry, SgList};
use verbline_verbs::rdma::{Local, OnAny, Operation, Work, WorkList};
use verbline_verbs::{PostStop, QpState, SendOptions, Transport, WrKind};

#[test]
fn a_full_sq_takes_what_fits_and_leaves_the_rest() {
    // Nothing needs a signal before the queue's depth: there the last that fits must be signaled.
    let options = Options { tx_depth_wr: 4, signal_every_wr: 1000, inline_bytes: 0, ..Options::new(Transport::Rc) };
    let (mut a, mut b) = pair(&options);
    assert_eq!(b.post_recvs(10), 10);
    let mut batch = a.batch([[1u8; 80]; 10].iter().map(|bytes| &bytes[..]));
    let outcome = a.qp.post_send(&mut batch);
    assert_eq!((outcome.posted, outcome.stop), (4, Some(PostStop::Full)));
    assert_eq!((batch.len(), a.qp.send_room()), (6, 0));
    assert!(outcome.stop.unwrap().is_backpressure());

    let mut posted = outcome.posted;
    while posted < 10 {
        a.wait_for(WrKind::Send, |qp, freed, completion| qp.send_done(completion, freed).unwrap());
        posted += a.qp.post_send(&mut batch).posted;
        b.receive(posted.min(4).min(b.qp.recvs_outstanding()));
    }
    assert!(batch.is_empty());
}

#[test]
fn a_full_queue_always_holds_a_signaled_send() {
    for signal_every_wr in [1, 2, 3, 5, 7, 8, 9, 100] {
        let options = Options {
            tx_depth_wr: 8,
            rx_depth_wr: 16,
            signal_every_wr,
            inline_bytes: 256,
            ..Options::new(Transport::Rc)
        };
        let (mut a, mut b) = pair(&options);
        let mut left = 100;
        while left > 0 {
            // In steps of three, which divides none of the depths.
            let mut batch = a.batch([[1u8; 80]; 3].iter().map(|bytes| &bytes[..]));
            while !batch.is_empty() {
                b.post_recvs(b.qp.recv_room());
                assert!(matches!(a.qp.post_send(&mut batch).stop, None | Some(PostStop::Full)));
                a.poll(hand_back);
                b.poll(hand_back);
            }
            left -= 1;
        }
    }
}

#[test]
fn a_packet_of_an_unregistered_pool_stays_with_the_caller() {
    let (mut a, b) = pair(&Options::new(Transport::Rc));
    let stranger = pool("stranger", 8, 2048, 0);
    let mut batch = a.batch([&[1u8; 100][..]]);
    let mut packet = stranger.cache(0).get().unwrap();
    assert!(packet.set_len(100));
    batch.push(packet).unwrap();
    batch.push(a.packet(&[2; 100])).unwrap();
    let outcome = a.qp.post_send(&mut batch);
    let qp_pd = a.pd.id();
    assert_eq!((outcome.posted, outcome.stop), (1, Some(PostStop::NotRegistered { packet_pd: 0, qp_pd })));
    assert_eq!((batch.len(), batch.as_slice()[0].pool_name()), (2, "stranger"));

    // Registered, but where this QP cannot reach it.
    b.pd.register_pool(&stranger).unwrap();
    let packet_pd = b.pd.id();
    let outcome = a.qp.post_send(&mut batch);
    assert_eq!((outcome.posted, outcome.stop), (0, Some(PostStop::NotRegistered { packet_pd, qp_pd })));
    let outcome = a.qp.post_recv(&mut batch);
    assert_eq!((outcome.posted, outcome.stop), (0, Some(PostStop::NotRegistered { packet_pd, qp_pd })));
    assert_eq!(batch.len(), 2);
}

/// A message without bytes has no SGE, and no key of inline data is checked (ibv_post_send(3)).
#[test]
fn a_packet_that_needs_no_registration_is_sent_whichever_way_it_is_posted() {
    type Way = fn(&mut Side, Packet) -> Option<PostStop>;
    fn works(a: &mut Side, work: Work) -> Option<PostStop> {
        let mut works = WorkList::with_capacity(1);
        works.push(work).unwrap();
        a.qp.post_works(&mut works).stop
    }
    fn with(a: &mut Side, packet: Packet, options: SendOptions<OnAny>) -> Option<PostStop> {
        let mut batch = Batch::with_capacity(1);
        batch.push(packet).unwrap();
        a.qp.post_send_with(&mut batch, |_, _| options).stop
    }
    let copied: [Way; 4] = [
        |a, packet| a.qp.post_send_one(packet).err().map(|unposted| unposted.stop),
        |a, packet| with(a, packet, SendOptions::default()),
        |a, packet| works(a, Work::Send(packet)),
        |a, packet| a.qp.rc().unwrap().send_inline(packet, SendOptions::default()).err().map(|refused| refused.reason),
    ];
    let kept: [Way; 5] = [
        |a, packet| with(a, packet, SendOptions { comes_back: true, ..SendOptions::default() }),
        |a, packet| {
            let options = SendOptions { comes_back: true, ..SendOptions::default() };
            works(a, Work::SendWith { packet, options })
        },
        |a, packet| works(a, Work::plain(Operation::send(Local::Packet(packet)))),
        |a, packet| a.qp.rc().unwrap().send(packet, SendOptions::default()).err().map(|refused| refused.reason),
        |a, packet| {
            let list: SgList = [SgEntry::from(packet)].into_iter().collect();
            works(a, Work::plain(Operation::send(Local::List(Box::new(list)))))
        },
    ];
    let (mut a, mut b) = pair(&Options::new(Transport::Rc));
    let stranger = pool("stranger", 16, 2048, 0);
    let (cache, packet_pd, qp_pd) = (stranger.cache(0), 0, a.pd.id());
    let packet = |len| {
        let mut packet = cache.get().unwrap();
        assert!(packet.set_len(len));
        packet
    };
    for (len, ways) in [(0, &copied[..]), (0, &kept[..]), (8, &copied[..])] {
        for (at, way) in ways.iter().enumerate() {
            assert_eq!(b.post_recvs(1), 1);
            assert_eq!(way(&mut a, packet(len)), None, "{len} bytes, way {at}");
            assert_eq!(b.receive(1)[0].len(), len, "way {at}");
            a.poll(hand_back);
        }
    }
    // Bytes that the device reads need it: more than go inline.
    for (at, way) in copied[..3].iter().chain(&kept).enumerate() {
        assert_eq!(way(&mut a, packet(100)), Some(PostStop::NotRegistered { packet_pd, qp_pd }), "way {at}");
    }
}

#[test]
fn a_message_beyond_the_ud_mtu_is_refused_with_both_lengths() {
    let (mut a, _b) = pair(&Options { data_bytes: 8192, ..Options::new(Transport::Ud) });
    let max_bytes = a.qp.max_message_bytes();
    let len_bytes = max_bytes as usize + 1;
    let mut batch = a.batch([&vec![0; len_bytes][..]]);
    let outcome = a.qp.post_send(&mut batch);
    assert_eq!((outcome.posted, outcome.stop), (0, Some(PostStop::TooLong { len_bytes, max_bytes })));
    assert!(outcome.stop.unwrap().to_string().contains(&format!("{len_bytes} bytes")));
}

#[test]
fn nothing_can_be_sent_before_rts_or_received_in_reset() {
    let options = Options::new(Transport::Rc);
    let mut side = Side::new("soft0", &options, 1);
    let mut batch = side.batch([&b"early"[..]]);
    assert_eq!(side.qp.post_send(&mut batch).stop, Some(PostStop::NotReady(QpState::Init)));
    side.qp.to_reset().unwrap();
    assert_eq!(side.qp.post_recv(&mut batch).stop, Some(PostStop::NotReady(QpState::Reset)));
    assert_eq!(batch.len(), 1);
    let refused = side.qp.rc().unwrap().send(batch.pop().unwrap(), SendOptions::default()).unwrap_err();
    assert_eq!(refused.reason, PostStop::NotReady(QpState::Reset));
    assert_eq!(refused.buffer.into_packet().unwrap().data(), b"early");
}

#[test]
fn a_ud_send_without_a_destination_is_refused() {
    let options = Options::new(Transport::Ud);
    let mut side = Side::new("soft0", &options, 1);
    side.qp.to_rtr(&verbline_verbs::RtrSpec::datagram()).unwrap();
    side.qp.to_rts(&options.rts).unwrap();
    let mut batch = side.batch([&b"where to"[..]]);
    assert_eq!(side.qp.post_send(&mut batch).stop, Some(PostStop::NoDestination(0)));
}

#[test]
fn an_rq_takes_its_depth_and_no_more() {
    let (mut a, _b) = pair(&Options { rx_depth_wr: 5, ..Options::new(Transport::Rc) });
    let mut batch = Batch::with_capacity(8);
    a.cache.get_bulk(&mut batch, 8);
    let outcome = a.qp.post_recv(&mut batch);
    assert_eq!((outcome.posted, outcome.stop, batch.len()), (5, Some(PostStop::Full), 3));
    assert_eq!((a.qp.recv_room(), a.qp.recvs_outstanding()), (0, 5));
    assert_eq!(a.qp.post_recv(&mut batch).posted, 0);
}

#[test]
fn a_completion_can_be_handed_back_once_and_to_its_own_qp_only() {
    let (mut a, mut b) = pair(&Options { signal_every_wr: 1, inline_bytes: 0, ..Options::new(Transport::Rc) });
    assert_eq!((a.post_recvs(4), b.post_recvs(4)), (4, 4));
    a.send(&[1; 100]);
    let a_qp = &mut a.qp;
    b.wait_for(WrKind::Recv, |qp, freed, completion| {
        assert!(a_qp.recv_done(completion).is_err(), "another QP's completion");
        assert!(qp.send_done(completion, freed).is_err(), "another queue's completion");
        assert!(qp.op_done(completion, freed).is_err(), "another queue's completion");
        assert_eq!(qp.recv_done(completion).unwrap().len(), 100);
        let stale = qp.recv_done(completion).unwrap_err();
        assert_eq!(stale.wr_id, completion.wr_id());
    });
    assert_eq!((a.qp.counters().stale, b.qp.counters().stale), (1, 3));
    a.wait_for(WrKind::Send, |qp, freed, completion| {
        assert_eq!(qp.send_done(completion, freed).unwrap(), 1);
        assert!(qp.send_done(completion, freed).is_err());
    });
}

#[test]
fn a_completion_kept_while_its_slot_is_used_again_is_stale() {
    use verbline_verbs::Completions;
    let options = Options { rx_depth_wr: 2, signal_every_wr: 1, ..Options::new(Transport::Rc) };
    let (mut a, mut b) = pair(&options);
    let mut kept = Completions::with_capacity(1);
    assert_eq!(b.post_recvs(1), 1);
    a.send(b"first");
    while b.cq.poll(&mut kept) == 0 {}
    assert_eq!(b.qp.recv_done(&kept.as_slice()[0]).unwrap().data(), b"first");
    // Round the two slots several times, so that the first is posted again.
    for _ in 0..4 {
        assert_eq!(b.post_recvs(2), 2);
        assert!(b.qp.recv_done(&kept.as_slice()[0]).is_err());
        a.send(b"x");
        a.send(b"y");
        b.receive(2);
        a.poll(hand_back);
    }
}

#[test]
fn an_overtaken_send_completion_is_stale() {
    use verbline_verbs::Completions;
    let (mut a, mut b) = pair(&Options { signal_every_wr: 1, inline_bytes: 0, ..Options::new(Transport::Rc) });
    assert_eq!(b.post_recvs(2), 2);
    a.send(&[1; 100]);
    a.send(&[2; 100]);
    b.receive(2);
    let (mut first, mut second) = (Completions::with_capacity(1), Completions::with_capacity(1));
    while a.cq.poll(&mut first) == 0 {}
    while a.cq.poll(&mut second) == 0 {}
    assert_eq!(a.qp.send_done(&second.as_slice()[0], &mut a.freed).unwrap(), 2);
    assert!(a.qp.send_done(&first.as_slice()[0], &mut a.freed).is_err());
    assert_eq!(a.freed.len(), 2);
}

#[test]
fn a_receive_completion_that_is_not_handed_back_keeps_only_its_slot() {
    let (mut a, mut b) = pair(&Options { rx_depth_wr: 4, ..Options::new(Transport::Rc) });
    assert_eq!(b.post_recvs(4), 4);
    a.send(b"lost");
    while b.cq.poll(&mut b.completions) == 0 {}
    for round in 0..20 {
        a.send(&[round]);
        assert_eq!(b.receive(1)[0].data(), [round]);
        assert_eq!(b.post_recvs(1), 1);
        a.poll(hand_back);
    }
    assert_eq!(b.qp.recvs_outstanding(), 4);
    drop(b.qp);
    b.cache.flush();
    assert_eq!(b.pool.account().held, 0);
}
