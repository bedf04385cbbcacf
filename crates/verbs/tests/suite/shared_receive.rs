//! One stock of receives for several QPs.

use crate::common::{Options, PATIENCE, Side, bring_up, hand_back, open, spec};
use verbline_mem::Batch;
use verbline_verbs::{
    Access, PostStop, QpError, QpSpec, QueuePair, SharedReceiveQueue, SrqSpec, Transport, WrKind,
    datagram::GRH_BYTES,
    event::{AsyncEventKind, AsyncEventSource},
    expert::SgList,
};

fn post(srq: &mut SharedReceiveQueue, side: &Side, count: usize) -> usize {
    let mut batch = Batch::with_capacity(count);
    assert_eq!(side.cache.get_bulk(&mut batch, count), count);
    srq.post_recv(&mut batch).posted
}

/// A side whose PD also has an SRQ, and two QPs on it, each connected to a client of its own.
fn served(transport: Transport, max_sge: u32) -> (Side, SharedReceiveQueue, Vec<QueuePair>, Vec<Side>) {
    let options = Options::new(transport);
    let server = Side::new("soft0", &options, 0);
    let srq = server.pd.create_srq(&SrqSpec { tag: 0x5a, max_sge, ..SrqSpec::new(transport, 8) }).unwrap();
    let mut clients: Vec<_> = (1..=2).map(|tag| Side::new("soft1", &options, tag)).collect();
    let mut qps = Vec::new();
    for client in &mut clients {
        let with_srq = QpSpec { srq: Some(&srq), ..spec(&options, &server.cq, 9) };
        let mut qp = server.pd.create_qp(&with_srq).unwrap();
        qp.to_init(&crate::common::init_spec()).unwrap();
        let mut lent = Side { qp, ..Side::build(server.context.clone(), &options, 0, false) };
        let (theirs, ours) = (client.qp.endpoint(), lent.qp.endpoint());
        if transport == Transport::Ud {
            lent.qp.to_rtr(&verbline_verbs::RtrSpec::datagram()).unwrap();
            lent.qp.to_rts(&options.rts).unwrap();
        } else {
            bring_up(&mut lent, &theirs, &options);
        }
        bring_up(client, &ours, &options);
        qps.push(lent.qp);
    }
    (server, srq, qps, clients)
}

#[test]
fn messages_of_all_qps_take_from_one_stock() {
    for transport in [Transport::Rc, Transport::Ud] {
        let (mut server, mut srq, qps, mut clients) = served(transport, 1);
        assert_eq!(post(&mut srq, &server, 8), 8);
        assert_eq!(post(&mut srq, &server, 1), 0);
        for (number, client) in (0..).zip(&mut clients) {
            for message in 0..3 {
                client.send(&[number, message]);
            }
        }
        let mut got = Vec::new();
        let deadline = std::time::Instant::now() + PATIENCE;
        while got.len() < 6 {
            assert!(std::time::Instant::now() < deadline, "{got:?}");
            server.cq.poll(&mut server.completions);
            for completion in &server.completions {
                assert_eq!((completion.kind(), completion.tag()), (WrKind::SrqRecv, 0x5a));
                let from = qps.iter().position(|qp| qp.qpn() == completion.qp_num()).unwrap();
                let packet = srq.recv_done(completion).unwrap();
                assert_eq!(usize::from(packet.data()[0]), from);
                got.push((from, packet.data()[1]));
            }
            for client in &mut clients {
                client.poll(hand_back);
            }
        }
        got.sort_unstable();
        assert_eq!(got, [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]);
        assert_eq!((srq.recvs_outstanding(), srq.recv_room(), srq.stale()), (2, 6, 0));
    }
}

#[test]
fn a_qp_on_an_srq_takes_no_receives_of_its_own() {
    let (server, srq, mut qps, _clients) = served(Transport::Rc, 1);
    let mut batch = Batch::with_capacity(1);
    server.cache.get_bulk(&mut batch, 1);
    assert_eq!(qps[0].post_recv(&mut batch).stop, Some(PostStop::UsesSrq));
    assert_eq!(batch.len(), 1);
    drop(srq);
}

#[test]
fn packets_stay_until_the_last_qp_is_gone_and_then_come_back() {
    let (server, mut srq, qps, clients) = served(Transport::Rc, 1);
    assert_eq!(post(&mut srq, &server, 5), 5);
    drop(srq);
    server.cache.flush();
    assert_eq!(server.pool.account().held, 5);
    drop(qps);
    server.assert_all_free();
    drop(clients);
}

/// A QP takes receives and is then dropped or reset, before anybody polls. The next polls bring the
/// receives back, so that the stock never runs dry.
#[test]
fn what_a_dropped_qp_had_taken_comes_back_by_the_next_poll() {
    let options = Options::new(Transport::Rc);
    let mut server = Side::new("soft0", &options, 0);
    let mut srq = server.pd.create_srq(&SrqSpec::new(Transport::Rc, 4)).unwrap();
    for round in 0..6 {
        assert_eq!((srq.recv_room(), post(&mut srq, &server, 4)), (4, 4), "round {round}");
        let mut client = Side::new("soft1", &options, 1);
        server.qp = server.pd.create_qp(&QpSpec { srq: Some(&srq), ..spec(&options, &server.cq, 9) }).unwrap();
        server.qp.to_init(&crate::common::init_spec()).unwrap();
        crate::common::connect(&mut server, &mut client, &options);
        for message in 0..4 {
            client.send(&[message]);
        }
        // The fourth is signaled; once it is acknowledged all are delivered.
        client.wait_for(WrKind::Send, |qp, freed, completion| assert!(qp.send_done(completion, freed).is_ok()));
        if round % 2 == 0 {
            server.qp.to_reset().unwrap();
        } else {
            server.qp = server.pd.create_qp(&spec(&options, &server.cq, 0)).unwrap();
        }
        let deadline = std::time::Instant::now() + PATIENCE;
        while srq.recvs_outstanding() > 0 {
            assert!(std::time::Instant::now() < deadline, "{} come back", srq.recvs_outstanding());
            server.cq.poll(&mut server.completions);
            for completion in &server.completions {
                assert_eq!(completion.kind(), WrKind::SrqRecv);
                drop(srq.recv_done(completion).unwrap());
            }
        }
        assert_eq!(srq.stale(), 0);
    }
    server.assert_all_free();
}

#[test]
fn running_low_is_reported_once() {
    let (mut server, mut srq, _qps, mut clients) = served(Transport::Rc, 1);
    let events = server.context.async_events();
    assert_eq!(post(&mut srq, &server, 4), 4);
    srq.arm_limit(3).unwrap();
    assert_eq!(srq.limit().unwrap(), 3);
    clients[0].send(b"one");
    clients[0].send(b"two");
    let deadline = std::time::Instant::now() + PATIENCE;
    let event = loop {
        server.cq.poll(&mut server.completions);
        for completion in &server.completions {
            srq.recv_done(completion).unwrap();
        }
        match events.try_next().unwrap() {
            Some(event) => break event,
            None => assert!(std::time::Instant::now() < deadline, "the limit is reported"),
        }
    };
    assert_eq!((event.kind, event.source), (AsyncEventKind::SrqLimitReached, AsyncEventSource::Srq(srq.id())));
    assert_eq!(srq.limit().unwrap(), 0);
}

#[test]
fn messages_of_all_qps_are_scattered_over_the_lists_of_one_stock() {
    for transport in [Transport::Rc, Transport::Ud] {
        let (mut server, mut srq, qps, mut clients) = served(transport, 3);
        let blocks = server.peer_region(4096, Access::LOCAL_WRITE);
        let grh = if transport == Transport::Ud { GRH_BYTES } else { 0 };
        for place in 0..8 {
            let header = server.packet(&vec![0; grh + 2]).into();
            let block = blocks.slice(100 * place, 100).unwrap().into();
            srq.post_recv_scatter([header, block, server.packet(&[0; 8]).into()].into_iter().collect()).unwrap();
        }
        let refused = srq.post_recv_scatter(SgList::default()).unwrap_err();
        assert_eq!((refused.reason, srq.recv_room(), srq.recvs_outstanding()), (PostStop::Full, 0, 8));
        for round in 0..3u8 {
            for (number, client) in (0..).zip(&mut clients) {
                let bytes: Vec<u8> = [number, round].into_iter().chain([number ^ 0x55; 104]).collect();
                client.send(&bytes);
            }
        }
        let mut got = Vec::new();
        let deadline = std::time::Instant::now() + PATIENCE;
        while got.len() < 6 {
            assert!(std::time::Instant::now() < deadline, "{got:?}");
            server.cq.poll(&mut server.completions);
            for completion in &server.completions {
                assert_eq!((completion.kind(), completion.tag()), (WrKind::SrqRecv, 0x5a));
                let from = qps.iter().position(|qp| qp.qpn() == completion.qp_num()).unwrap() as u8;
                assert!(srq.recv_done(completion).is_err(), "it is no packet");
                let list = srq.recv_scatter_done(completion).unwrap();
                assert!(srq.recv_scatter_done(completion).is_err(), "it is handed back once");
                let [header, _, trailer] = list.as_slice() else { panic!("{list:?}") };
                let header = &header.as_packet().unwrap().data()[grh..];
                assert_eq!((header[0], header.len()), (from, 2));
                assert_eq!(trailer.as_packet().unwrap().data(), [from ^ 0x55; 4]);
                got.push((from, header[1]));
            }
            for client in &mut clients {
                client.poll(hand_back);
            }
        }
        // One message or the other filled each block.
        let filled = |place: usize| {
            let mut block = [0; 100];
            blocks.read_into(100 * place, &mut block).unwrap();
            (block[0], block.iter().all(|&byte| byte == block[0]))
        };
        let mut fillings: Vec<_> = (0..8).map(filled).collect();
        fillings.sort_unstable();
        assert_eq!(fillings, [[(0, true); 2].as_slice(), &[(0x54, true); 3], &[(0x55, true); 3]].concat());
        got.sort_unstable();
        assert_eq!(got, [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]);
        assert_eq!((srq.recvs_outstanding(), srq.recv_room(), srq.stale()), (2, 6, 12));
        // Posted receives stay with the device until the last QP is gone.
        drop(srq);
        server.cache.flush();
        assert_eq!(server.pool.account().held, 4);
        drop(qps);
        server.assert_all_free();
    }
}

#[test]
fn an_srq_takes_lists_or_packets_and_lists_no_longer_than_it_was_made_for() {
    let (server, mut lists, qps, _clients) = served(Transport::Rc, 2);
    let mut batch = server.batch([&b""[..]; 2]);
    assert_eq!(lists.post_recv(&mut batch).stop, Some(PostStop::OtherReceives { lists: true }));
    let mut one = server.batch([&b""[..]]);
    assert_eq!((lists.post_recv(&mut one).stop, one.len()), (Some(PostStop::OtherReceives { lists: true }), 1));
    let three = (0..3).map(|_| server.packet(&[0; 4]).into()).collect();
    let refused = lists.post_recv_scatter(three).unwrap_err();
    assert_eq!(refused.reason, PostStop::TooManySges { sges: 3, max_sge: 2 });
    assert_eq!(refused.buffer.into_list().unwrap().len(), 3);
    let mut packets = server.pd.create_srq(&SrqSpec::new(Transport::Rc, 8)).unwrap();
    let refused = packets.post_recv_scatter(SgList::default()).unwrap_err();
    assert_eq!(refused.reason, PostStop::OtherReceives { lists: false });

    let most = server.context.query_device().unwrap().max_srq_sge;
    let error = server.pd.create_srq(&SrqSpec { max_sge: most + 1, ..SrqSpec::new(Transport::Rc, 8) }).unwrap_err();
    let (asked, name) = (most + 1, server.context.name());
    assert_eq!(
        error.to_string(),
        format!("an SRQ with max_sge {asked}: {name} takes at most {most} entries a receive (DeviceAttr::max_srq_sge)")
    );
    drop(qps);
}

#[test]
fn what_does_not_fit_together_is_refused() {
    let (soft0, soft1) = (open("soft0"), open("soft1"));
    let (pd, other) = (soft0.alloc_pd().unwrap(), soft1.alloc_pd().unwrap());
    let cq = soft0.create_cq(64, None).unwrap();
    let datagrams = pd.create_srq(&SrqSpec::new(Transport::Ud, 8)).unwrap();
    let error = pd.create_qp(&QpSpec { srq: Some(&datagrams), ..QpSpec::new(Transport::Rc, &cq) }).unwrap_err();
    assert!(matches!(error, QpError::SrqTransport { srq: Transport::Ud, qp: Transport::Rc }), "{error}");
    let foreign = other.create_srq(&SrqSpec::new(Transport::Rc, 8)).unwrap();
    let error = pd.create_qp(&QpSpec { srq: Some(&foreign), ..QpSpec::new(Transport::Rc, &cq) }).unwrap_err();
    assert!(matches!(error, QpError::Foreign { what: "SRQ", .. }), "{error}");
    assert!(pd.create_srq(&SrqSpec::new(Transport::Rc, 0)).is_err());
}
