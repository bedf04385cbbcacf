//! Unreliable connections and datagrams: messages arrive whole or not at all, without a report.

use fastrand::Rng;
use verbline_roce::transport::{Discard, Receives, Receiving, Sending};
use verbline_roce::wire::{
    Addresses, AtomicExtension, AtomicOp, Bth, Deth, HEADERS_MAX_BYTES, Packet, Qpn, Route, Segment, SendEnd, WriteEnd,
};
use verbline_roce::{Completed, Operation, Remote, Sge, Status, To};

use crate::pair::{DEPTH, Datagram, Half, MTU, PSNS, Pair, QKEY, QPNS, RIGHTS, ROOM};
use crate::sim::for_seeds;

const SEND: Operation = Operation::Send(SendEnd::Plain);
const LEN: u32 = 600;

fn pattern(id: u64) -> Vec<u8> {
    let mut bytes = vec![0; LEN as usize];
    Rng::with_seed(id).fill(&mut bytes);
    bytes
}

/// A message with a missing packet is not received, and its receive goes to the next one.
#[test]
fn a_connection_receives_whole_messages_or_nothing() {
    for_seeds(300, |seed| {
        let mut rng = Rng::with_seed(seed);
        let mut pair = Pair::uc();
        let (mut whole, mut received) = (Vec::new(), Vec::new());
        let mut waits = false;
        for id in 0..20 {
            // The receive of a lost message is still posted.
            if !std::mem::replace(&mut waits, true) {
                pair.b.receive(id, LEN);
            }
            pair.a.memory.fill(pair.a.local.0, pair.a.local.1, &pattern(id));
            pair.a.send(id, Operation::Send(SendEnd::Immediate(id as u32)), LEN);
            let mut sent = pair.a.all(0);
            assert_eq!(pair.a.completions().len(), 1, "complete once sent");
            let trouble = rng.u8(..4);
            match trouble {
                0 => _ = sent.remove(rng.usize(..sent.len())),
                1 => sent.swap(0, 1),
                2 => sent.push(sent[rng.usize(1..sent.len())].clone()),
                _ => {}
            }
            if trouble > 1 {
                whole.push(id);
            }
            sent.iter().for_each(|datagram| _ = pair.b.take(0, datagram));
            assert!(pair.b.all(0).is_empty(), "nobody is told");
            for completion in pair.b.completions() {
                assert_eq!((completion.status, completion.bytes), (Status::Success, LEN));
                let Completed::Receive(SendEnd::Immediate(id)) = completion.completed else { panic!() };
                let at = pair.b.local.1 + (ROOM / 2) as u64;
                assert!(pair.b.memory.bytes(pair.b.local.0, at, LEN as usize) == pattern(u64::from(id)));
                received.push(u64::from(id));
                waits = false;
            }
        }
        assert_eq!(received, whole);
    });
}

#[test]
fn a_write_over_an_unreliable_connection_needs_a_key_and_a_right() {
    let mut pair = Pair::uc();
    let target = Remote { rkey: pair.b.remote.0, addr: pair.b.remote.1 };
    pair.a.memory.fill(pair.a.local.0, pair.a.local.1, &pattern(3));
    pair.b.receive(1, 0);
    pair.a.send(1, Operation::Write(target, WriteEnd::Immediate(8)), LEN);
    pair.settle(0);
    assert_eq!(pair.b.memory.bytes(target.rkey, target.addr, LEN as usize), pattern(3));
    assert_eq!(pair.b.completions()[0].completed, Completed::ReceiveWrite { immediate: 8 });
    pair.a.send(2, Operation::Write(Remote { rkey: 99, ..target }, WriteEnd::Plain), 10);
    let sent = pair.a.all(0);
    assert_eq!(pair.b.take(0, &sent[0]), Err(Discard::Refused));
    assert!(!pair.b.qp.is_failed() && pair.b.all(0).is_empty());
}

/// The whole range is checked before the first byte is written.
#[test]
fn a_write_over_an_unreliable_connection_that_ends_outside_writes_nothing() {
    let mut pair = Pair::uc();
    let target = Remote { rkey: pair.b.remote.0, addr: pair.b.remote.1 + ROOM as u64 - 256 };
    pair.a.memory.fill(pair.a.local.0, pair.a.local.1, &pattern(3));
    pair.a.send(1, Operation::Write(target, WriteEnd::Plain), 512);
    let sent = pair.a.all(0);
    let taken: Vec<_> = sent.iter().map(|datagram| pair.b.take(0, datagram)).collect();
    assert_eq!(taken, [Err(Discard::Refused), Err(Discard::OutOfOrder)]);
    assert_eq!(pair.b.memory.bytes(target.rkey, target.addr, 256), [0; 256]);
}

#[test]
fn a_message_that_is_too_long_ends_an_unreliable_connection() {
    let mut pair = Pair::uc();
    pair.b.receive(1, 599);
    pair.a.send(1, SEND, LEN);
    pair.settle(0);
    let statuses: Vec<_> = pair.b.completions().iter().map(|completion| completion.status).collect();
    assert_eq!((statuses, pair.b.qp.is_failed()), (vec![Status::LocalLength], true));
    assert!(!pair.a.qp.is_failed(), "the sender isn't told");
}

#[test]
fn a_send_that_fails_locally_leaves_receiving_as_it_is() {
    let mut pair = Pair::uc();
    pair.a.memory.regions[0] = None;
    pair.a.send(1, SEND, 10);
    pair.a.send(2, SEND, 10);
    assert!(pair.a.all(0).is_empty());
    let statuses: Vec<_> = pair.a.completions().iter().map(|completion| completion.status).collect();
    assert_eq!(statuses, [Status::LocalProtection, Status::Flushed]);
    let target = Remote { rkey: pair.a.remote.0, addr: pair.a.remote.1 };
    pair.b.send(1, Operation::Write(target, WriteEnd::Plain), 10);
    let sent = pair.b.all(0);
    pair.a.take(0, &sent[0]).expect("it still receives");
}

fn to(pair: &Pair) -> To {
    let _ = pair;
    To { route: Half::peer_of(0).route, qpn: QPNS[1], qkey: QKEY }
}

#[test]
fn a_datagram_comes_with_its_header_and_its_sender() {
    let mut pair = Pair::ud();
    pair.a.memory.fill(pair.a.local.0, pair.a.local.1, b"hello");
    pair.b.receive(1, 45);
    let target = to(&pair);
    pair.a.send(1, Operation::Datagram(target, WriteEnd::Immediate(7)), 5);
    pair.settle(0);
    let completion = pair.b.completions()[0];
    let source = completion.source.expect("a datagram's");
    assert_eq!((completion.completed, completion.bytes), (Completed::Receive(SendEnd::Immediate(7)), 45));
    assert_eq!((source.qpn, source.addr), (QPNS[0], target.route.addresses.source()));
    let bytes = pair.b.memory.bytes(pair.b.local.0, pair.b.local.1 + (ROOM / 2) as u64, 45);
    assert_eq!((&bytes[40..], bytes[20], &bytes[32..40]), (&b"hello"[..], 0x45, &[10, 0, 0, 1, 10, 0, 0, 2][..]));
    // Over IPv6 the global route header is whole.
    let v6 = Addresses::V6 { source: "fd00::1".parse().expect("one"), destination: "fd00::2".parse().expect("one") };
    let target = To { route: Route { addresses: v6, ..target.route }, ..target };
    pair.b.receive(2, 45);
    pair.a.send(2, Operation::Datagram(target, WriteEnd::Plain), 5);
    pair.settle(0);
    let bytes = pair.b.memory.bytes(pair.b.local.0, pair.b.local.1 + (ROOM / 2) as u64, 40);
    assert_eq!((bytes[0], bytes[6], bytes[23], bytes[39]), (0x60, 17, 1, 2));
}

#[test]
fn a_datagram_that_has_no_place_costs_nothing() {
    let mut pair = Pair::ud();
    let target = to(&pair);
    let rows = [
        (To { qkey: 1, ..target }, 5, None, Discard::Key),
        (target, 5, None, Discard::NoReceive),
        (target, 5, Some(44), Discard::NoReceive),
    ];
    for (target, len, receive, why) in rows {
        if let Some(len) = receive {
            pair.b.receive(1, len);
        }
        pair.a.send(1, Operation::Datagram(target, WriteEnd::Plain), len);
        let sent = pair.a.next(0).expect("sent");
        assert_eq!(pair.b.take(0, &sent), Err(why));
        assert_eq!(pair.a.completions()[0].status, Status::Success);
        assert!(pair.b.all(0).is_empty() && pair.b.completions().is_empty() && !pair.b.qp.is_failed());
    }
    // The receive that was too short for that datagram takes the next one.
    pair.a.send(1, Operation::Datagram(target, WriteEnd::Plain), 4);
    pair.settle(0);
    assert_eq!(pair.b.completions()[0].bytes, 44);
    assert_eq!(MTU.bytes(), 256, "more is not posted");
    let sges = [pair.a.sge(257)];
    let request = verbline_roce::SendRequest {
        id: 1,
        operation: Operation::Datagram(target, WriteEnd::Plain),
        data: verbline_roce::Data::Memory(&sges),
        signaled: true,
        solicited: false,
        fence: false,
    };
    let error = verbline_roce::PostError::Length { bytes: 257, max: 256 };
    assert_eq!(pair.a.qp.post_send(&request), Err(error));
    // Nor is it taken in.
    pair.b.receive(1, 400);
    let (route, payload) = (Half::peer_of(0).route, [7; 260]);
    for (len, taken) in [(256, Ok(())), (257, Err(Discard::Unfitting)), (260, Err(Discard::Unfitting))] {
        let segment = Segment::Ud(Deth { qkey: QKEY, source: QPNS[0] }, None);
        let packet = Packet { bth: Bth::new(QPNS[1], PSNS[0]), segment, payload: &payload[..len] };
        let mut bytes = vec![0; len + HEADERS_MAX_BYTES];
        let whole = packet.write(&mut bytes, &route, 0);
        bytes.truncate(whole);
        assert_eq!(pair.b.take(0, &Datagram { route, bytes }), taken, "{len}");
    }
}

/// Receives of a shared queue are taken when a message comes, and only while there is room for its
/// completion.
#[test]
fn a_shared_queue_serves_as_many_messages_as_there_is_room_for_completions() {
    let mut pair = Pair::uc();
    let mut half = Half::new(1, RIGHTS, Receives::Shared { queue: 3, completions: 2 });
    half.qp.receive_from(Receiving::Uc(Half::peer_of(1))).expect("new");
    half.qp.start_sending(Sending::Uc(PSNS[1])).expect("receives");
    pair.b = half;
    for id in 0..DEPTH as u64 {
        let at = Sge { addr: pair.b.local.1, len: 10, key: pair.b.local.0 };
        pair.b.memory.shared.push_back((id, at));
        pair.a.send(id, SEND, 10);
    }
    let sent = pair.a.all(0);
    let taken: Vec<_> = sent.iter().map(|datagram| pair.b.take(0, datagram)).collect();
    assert_eq!(taken, [Ok(()), Ok(()), Err(Discard::NoReceive), Err(Discard::NoReceive)]);
    assert_eq!(pair.b.memory.shared.len(), 2, "what is not taken stays for others");
    assert_eq!(pair.b.completions().len(), 2);
    pair.b.qp.fail();
    assert_eq!((pair.b.memory.shared.len(), pair.b.completions().len()), (2, 0));
    assert!(pair.b.qp.post_receive(1, &[]).is_err(), "receives are posted to the shared queue");
}

#[test]
fn what_a_transport_has_not_is_not_taken_from_the_wire() {
    let mut rc = Pair::rc(Default::default(), RIGHTS);
    let at = AtomicExtension { addr: rc.b.remote.1, rkey: rc.b.remote.0, op: AtomicOp::FetchAdd(1) };
    rc.a.send(1, Operation::Atomic(at), 8);
    let datagram = rc.a.next(0).expect("sent");
    for mut other in [Pair::uc(), Pair::ud()] {
        assert_eq!(other.b.take(0, &datagram), Err(Discard::Transport));
        assert_eq!(other.b.qp.counters().incidents().discarded(Discard::Transport), 1);
    }
    assert_eq!(QPNS[1], Qpn::new(0x32_0022));
}
