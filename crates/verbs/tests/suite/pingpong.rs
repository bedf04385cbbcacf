//! Messages there and back: every byte arrives, on each transport, at each size with a code path of
//! its own.

use crate::common::{Options, message, pair};
use verbline_mem::{Batch, Packet};
use verbline_verbs::{PostStop, SendOptions, Transport, WcOpcode, WrKind, datagram::GRH_BYTES};

const TRANSPORTS: [Transport; 3] = [Transport::Rc, Transport::Uc, Transport::Ud];

fn there_and_back(options: &Options, sizes: &[usize]) {
    let (mut a, mut b) = pair(options);
    for (number, &len) in (0..).zip(sizes) {
        assert_eq!(b.post_recvs(1), 1);
        let bytes = message(number, len);
        a.send(&bytes);
        let got = b.receive(1);
        assert_eq!(got[0].data(), &bytes[..], "{} of {len} bytes", options.transport);
        assert_eq!(a.post_recvs(1), 1);
        b.send(got[0].data());
        assert_eq!(a.receive(1)[0].data(), &bytes[..]);
    }
    for mut side in [a, b] {
        side.qp.start_drain().unwrap();
        side.drain();
        side.assert_all_free();
    }
}

#[test]
fn every_size_arrives_whole() {
    for transport in TRANSPORTS {
        // Nothing, one byte, around the inline limit, around a cache line, the MTU of UD.
        there_and_back(&Options::new(transport), &[0, 1, 63, 64, 65, 127, 128, 129, 1000, 1024]);
    }
}

#[test]
fn messages_longer_than_the_mtu_arrive_whole_when_connected() {
    for transport in [Transport::Rc, Transport::Uc] {
        there_and_back(&Options { data_bytes: 16384, ..Options::new(transport) }, &[1025, 4096, 4097, 16384]);
    }
}

#[test]
fn ud_data_lies_where_data_lies_with_and_without_headroom_for_the_grh() {
    for headroom_bytes in [0, 39, 40, 64] {
        let options = Options { headroom_bytes, data_bytes: 512, ..Options::new(Transport::Ud) };
        let (mut a, mut b) = pair(&options);
        assert_eq!(b.post_recvs(1), 1);
        a.send(b"datagram");
        let packet = &b.receive(1)[0];
        assert_eq!(packet.data(), b"datagram");
        let expected = if headroom_bytes >= 40 { headroom_bytes as usize } else { headroom_bytes as usize + GRH_BYTES };
        assert_eq!(packet.headroom(), expected);
    }
}

#[test]
fn batches_arrive_in_order() {
    for transport in TRANSPORTS {
        let (mut a, mut b) = pair(&Options::new(transport));
        for round in 0..50 {
            assert_eq!(b.post_recvs(16), 16);
            let messages: Vec<_> = (0..16).map(|n| message(round * 16 + n, 40 + 8 * n as usize)).collect();
            let mut batch = a.batch(messages.iter().map(Vec::as_slice));
            let mut posted = 0;
            while !batch.is_empty() {
                posted += a.qp.post_send(&mut batch).posted;
                a.poll(crate::common::hand_back);
            }
            assert_eq!(posted, 16);
            for (got, sent) in b.receive(16).iter().zip(&messages) {
                assert_eq!(got.data(), &sent[..]);
            }
        }
    }
}

#[test]
fn inline_packets_are_back_at_once_and_others_after_their_completion() {
    let (mut a, mut b) = pair(&Options { inline_bytes: 64, signal_every_wr: 1, ..Options::new(Transport::Rc) });
    assert_eq!(b.post_recvs(2), 2);
    let granted = a.qp.max_inline_bytes() as usize;
    assert_eq!(granted, 64);
    let mut batch = a.batch([&[1u8; 64][..], &[2u8; 65][..]]);
    let outcome = a.qp.post_send(&mut batch);
    assert_eq!((outcome.posted, outcome.inlined), (2, 1));
    a.cache.flush();
    assert_eq!(a.pool.account().held, 1);
    assert_eq!(b.receive(2).len(), 2);
    let freed = a.wait_for(WrKind::Send, |qp, freed, completion| qp.send_done(completion, freed).unwrap());
    assert_eq!(freed, 1);
}

#[test]
fn packets_posted_alone_arrive_inline_or_not_and_come_back_when_there_is_no_room() {
    for transport in [Transport::Rc, Transport::Ud] {
        let options = Options { inline_bytes: 64, tx_depth_wr: 4, rx_depth_wr: 4, ..Options::new(transport) };
        let (mut a, mut b) = pair(&options);
        for _ in 0..4 {
            let packet = b.cache.get().unwrap();
            b.qp.post_recv_one(packet).unwrap();
        }
        let packet = b.cache.get().unwrap();
        let addr = packet.addr();
        let refused = b.qp.post_recv_one(packet).unwrap_err();
        assert_eq!((refused.packet.unwrap().addr(), refused.stop), (addr, PostStop::Full));
        // Inline, empty, too long for inline, and inline again.
        let messages: [&[u8]; 4] = [&[1; 64], &[], &[2; 65], &[3; 7]];
        for message in messages {
            let packet = a.packet(message);
            a.qp.post_send_one(packet).unwrap();
        }
        let packet = a.packet(b"no room");
        let refused = a.qp.post_send_one(packet).unwrap_err();
        assert_eq!((refused.packet.unwrap().data(), refused.stop), (&b"no room"[..], PostStop::Full));
        let came = b.receive(4);
        assert!(came.iter().map(Packet::data).eq(messages), "{came:?}");
        a.wait_for(WrKind::Send, |qp, freed, completion| qp.send_done(completion, freed).unwrap());
        let packet = a.packet(b"room");
        assert_eq!(b.post_recvs(1), 1);
        a.qp.post_send_one(packet).unwrap();
        assert_eq!(b.receive(1)[0].data(), b"room");
    }
}

#[test]
fn a_packet_posted_alone_in_reset_comes_back() {
    let (a, mut b) = pair(&Options::new(Transport::Rc));
    b.qp.to_reset().unwrap();
    let packet = b.packet(b"early");
    let refused = b.qp.post_send_one(packet).unwrap_err();
    assert!(matches!(refused.stop, PostStop::NotReady(_)), "{:?}", refused.stop);
    assert_eq!(refused.packet.as_ref().map(Packet::data), Some(&b"early"[..]));
    let refused = b.qp.post_recv_one(refused.packet.unwrap()).unwrap_err();
    assert!(matches!(refused.stop, PostStop::NotReady(_)), "{:?}", refused.stop);
    drop((refused, a));
    b.cache.flush();
    assert_eq!(b.pool.account().held, 0);
}

#[test]
fn options_reach_the_receiver() {
    let (mut a, mut b) = pair(&Options::new(Transport::Rc));
    assert_eq!(b.post_recvs(2), 2);
    let mut batch = a.batch([&b"with"[..], &b"without"[..]]);
    let outcome = a.qp.rc().unwrap().post_send_with(&mut batch, |at, packet| {
        assert_eq!(packet.len(), if at == 0 { 4 } else { 7 });
        SendOptions { imm: (at == 0).then_some(0x0102_0304), solicited: true, fence: true, ..SendOptions::default() }
    });
    assert_eq!((outcome.posted, outcome.stop), (2, None));
    let mut imms = Vec::new();
    for _ in 0..2 {
        b.wait_for(WrKind::Recv, |_, _, completion| {
            assert_eq!((completion.opcode(), completion.tag()), (WcOpcode::Recv, 0xb));
            imms.push(completion.imm());
        });
        // One call of `wait_for` may have polled both.
        if imms.len() == 2 {
            break;
        }
    }
    assert_eq!(imms, [Some(0x0102_0304), None]);
}

#[test]
fn freed_packets_that_do_not_fit_go_to_their_pool() {
    let (mut a, mut b) = pair(&Options { inline_bytes: 0, signal_every_wr: 8, ..Options::new(Transport::Rc) });
    assert_eq!(b.post_recvs(8), 8);
    let mut batch = a.batch([[7u8; 100]; 8].iter().map(|bytes| &bytes[..]));
    assert_eq!(a.qp.post_send(&mut batch).posted, 8);
    assert_eq!(b.receive(8).len(), 8);
    let mut three = Batch::with_capacity(3);
    let done = a.wait_for(WrKind::Send, |qp, _, completion| qp.send_done(completion, &mut three).unwrap());
    assert_eq!((done, three.len()), (8, 3));
    drop((batch, three));
    a.assert_all_free();
}
