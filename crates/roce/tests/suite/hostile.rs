//! Hostile datagrams, which anybody can send: their greatest cost.

use fastrand::Rng;
use verbline_roce::transport::{Arrival, Discard, Icrc, Incoming, Retries};
use verbline_roce::wire::{
    self, AtomicExtension, AtomicOp, Bth, HEADERS_MAX_BYTES, Packet, Psn, Qpn, Rc, Reth, Segment, SendEnd, Syndrome,
    WriteEnd,
};
use verbline_roce::{Engine, Operation, Received, Remote};

use crate::pair::{Datagram, Half, MTU, PSNS, Pair, QPNS, RIGHTS, ROOM};
use crate::sim::for_seeds;
use crate::sim::memory::Regions;
use crate::sim::world::addresses;

const SEND: Operation = Operation::Send(SendEnd::Plain);

fn pair() -> Pair {
    Pair::rc(Retries::default(), RIGHTS)
}

fn forged(psn: Psn, rc: Rc, payload: &[u8]) -> Datagram {
    let route = Half::peer_of(0).route;
    let mut bytes = vec![0; payload.len() + HEADERS_MAX_BYTES];
    let bth = Bth { ack_request: true, ..Bth::new(QPNS[1], psn) };
    let len = Packet { bth, segment: Segment::Rc(rc), payload }.write(&mut bytes, &route, 0);
    bytes.truncate(len);
    Datagram { route, bytes }
}

fn whole() -> Rc {
    Rc::Send { first: true, last: Some(SendEnd::Plain) }
}

/// The datagram is discarded for that reason without an answer, and the connection goes on.
fn costs_nothing(pair: &mut Pair, datagram: &Datagram, why: Discard) {
    let before = pair.b.qp.counters().incidents().discarded(why);
    assert_eq!(pair.b.take(0, datagram), Err(why));
    assert_eq!(pair.b.qp.counters().incidents().discarded(why), before + 1);
    assert!(pair.b.all(0).is_empty() && pair.b.completions().is_empty() && !pair.b.qp.is_failed());
    pair.b.receive(1, 10);
    pair.a.send(1, SEND, 10);
    pair.settle(0);
    assert_eq!((pair.a.completions().len(), pair.b.completions().len()), (1, 1));
}

#[test]
fn from_another_address() {
    let mut pair = pair();
    let mut datagram = forged(PSNS[0], whole(), b"x");
    datagram.route.addresses = addresses(7, 1);
    let len = datagram.bytes.len();
    wire::seal(&mut datagram.bytes, len - 4, &datagram.route, 0);
    costs_nothing(&mut pair, &datagram, Discard::Stranger);
    // Nor to another of our addresses.
    datagram.route.addresses = addresses(0, 7);
    wire::seal(&mut datagram.bytes, len - 4, &datagram.route, 0);
    costs_nothing(&mut pair, &datagram, Discard::Stranger);
}

#[test]
fn with_a_number_that_is_far_away() {
    // The window of `Pair` is 64.
    for distance in [65, 1000, 0x7F_FFFF, 0x80_0000, 0xFF_FFFF - 65] {
        for rc in [whole(), Rc::ReadRequest(Reth { addr: 0, rkey: 1, len: 1 << 20 })] {
            costs_nothing(&mut pair(), &forged(PSNS[0].plus(distance), rc, b""), Discard::OutsideWindow);
        }
    }
}

#[test]
fn with_a_number_that_is_near_it_is_answered_once() {
    for (distance, why) in [(1, Discard::OutOfOrder), (64, Discard::OutOfOrder), (0xFF_FFFF, Discard::Duplicate)] {
        let mut pair = pair();
        for _ in 0..10 {
            assert_eq!(pair.b.take(0, &forged(PSNS[0].plus(distance), whole(), b"x")), Err(why));
        }
        assert_eq!(pair.b.all(0).len(), 1);
        pair.b.receive(1, 10);
        pair.a.send(1, SEND, 10);
        pair.settle(0);
        assert_eq!((pair.a.completions().len(), pair.b.completions().len()), (1, 1));
    }
}

#[test]
fn with_a_wrong_checksum() {
    let mut datagram = forged(PSNS[0], whole(), b"hello");
    datagram.bytes[13] ^= 1;
    costs_nothing(&mut pair(), &datagram, Discard::Icrc);
}

/// A limited member of our partition is one of it.
#[test]
fn of_another_partition() {
    let of = |pkey: u16| {
        let mut datagram = forged(PSNS[0], whole(), b"hello");
        datagram.bytes[2..4].copy_from_slice(&pkey.to_be_bytes());
        let len = datagram.bytes.len();
        wire::seal(&mut datagram.bytes, len - 4, &datagram.route, 0);
        datagram
    };
    for pkey in [0, 0xFF, 0xFF00, 0x8000, 0x7FFE, 0xFFFE, 0xBFFF, 0x3FFF, 0x0FFF, 0x8FFF] {
        costs_nothing(&mut pair(), &of(pkey), Discard::Key);
    }
    for pkey in [0xFFFF, 0x7FFF] {
        let mut pair = pair();
        pair.b.receive(1, 10);
        assert_eq!(pair.b.take(0, &of(pkey)), Ok(()), "{pkey:#x}");
    }
}

#[test]
fn that_acknowledges_what_was_never_sent() {
    let ack = Syndrome { code: Syndrome::ACK, msn: 1 };
    let nak = Syndrome { code: Syndrome::NAK_REMOTE_ACCESS, msn: 1 };
    for rc in [Rc::Acknowledge(ack), Rc::Acknowledge(nak), Rc::AtomicResponse(ack, 9)] {
        for distance in [0, 1, 100, 0x80_0000, 0xFF_FFFF] {
            let psn = PSNS[1].plus(distance);
            costs_nothing(&mut pair(), &forged(psn, rc, b""), Discard::OutsideWindow);
        }
    }
}

/// A NAK with an unknown syndrome, or an answer that doesn't fit the request.
#[test]
fn that_answers_what_was_not_asked() {
    let mut pair = pair();
    pair.b.send(1, Operation::Read(Remote { rkey: pair.a.remote.0, addr: pair.a.remote.1 }), 10);
    let asked = pair.b.all(0);
    let said = Syndrome { code: Syndrome::ACK, msn: 1 };
    let part = |part| Rc::ReadResponse(part);
    for (rc, payload) in [
        (part(wire::ReadPart::Only(said)), &b"too long, by far"[..]),
        (part(wire::ReadPart::First(said)), b"0123456789"),
        (part(wire::ReadPart::Middle), b"0123456789"),
        (Rc::AtomicResponse(said, 1), b""),
        (Rc::Acknowledge(Syndrome { code: 0x7F, msn: 1 }), b""),
    ] {
        assert_eq!(pair.b.take(0, &forged(PSNS[1], rc, payload)), Err(Discard::Unfitting), "{rc:?}");
    }
    asked.iter().for_each(|datagram| pair.a.take(0, datagram).expect("taken"));
    pair.settle(0);
    assert_eq!(pair.b.completions().len(), 1);
}

/// The answer of a READ comes for a SEND or an atomic of its length: their own memory stays as it
/// is, and they go on waiting.
#[test]
fn that_answers_a_request_of_another_kind() {
    let mut pair = pair();
    let at = Remote { rkey: pair.a.remote.0, addr: pair.a.remote.1 };
    let add = Operation::Atomic(AtomicExtension { addr: at.addr, rkey: at.rkey, op: AtomicOp::FetchAdd(1) });
    let said = Syndrome { code: Syndrome::ACK, msn: 1 };
    pair.a.receive(1, 8);
    for (number, operation) in [(0, SEND), (1, add)] {
        pair.b.send(number, operation, 8);
        let sent = pair.b.all(0);
        let answer = forged(PSNS[1].plus(number as u32), Rc::ReadResponse(wire::ReadPart::Only(said)), b"01234567");
        assert_eq!(pair.b.take(0, &answer), Err(Discard::Unfitting), "{operation:?}");
        assert_eq!(pair.b.memory.bytes(pair.b.local.0, pair.b.local.1, 8), [0; 8]);
        assert!(pair.b.completions().is_empty());
        sent.iter().for_each(|datagram| pair.a.take(0, datagram).expect("taken"));
        pair.settle(0);
        assert_eq!(pair.b.completions().len(), 1);
    }
}

/// A READ or an atomic with an old number, and other contents than the request of that number.
#[test]
fn that_asks_for_something_else_by_an_old_number() {
    let mut pair = pair();
    let at = Remote { rkey: pair.b.remote.0, addr: pair.b.remote.1 };
    let add = AtomicExtension { addr: at.addr, rkey: at.rkey, op: AtomicOp::FetchAdd(1) };
    pair.a.send(1, Operation::Read(at), 600);
    pair.a.send(2, Operation::Atomic(add), 8);
    pair.settle(0);
    assert_eq!(pair.a.completions().len(), 2);
    let reth = Reth { addr: at.addr, rkey: at.rkey, len: 600 };
    for other in [
        Reth { addr: at.addr + 1, ..reth },
        Reth { rkey: at.rkey + 1, ..reth },
        Reth { len: 601, ..reth },
        Reth { len: u32::MAX, ..reth },
    ] {
        costs_nothing(&mut pair, &forged(PSNS[0], Rc::ReadRequest(other), b""), Discard::OutsideWindow);
    }
    for other in [AtomicExtension { op: AtomicOp::FetchAdd(2), ..add }, AtomicExtension { addr: at.addr + 8, ..add }] {
        costs_nothing(&mut pair, &forged(PSNS[0].plus(3), Rc::Atomic(other), b""), Discard::OutsideWindow);
    }
    pair.b.take(0, &forged(PSNS[0], Rc::ReadRequest(reth), b"")).expect_err("the true one, again");
    assert_eq!(pair.b.all(0).len(), 3);
}

/// Regression: a repeated READ was always answered from the missing packet to the end. A peer may
/// repeat any part that begins with a packet of the answer, and gets no more than that part.
#[test]
fn that_asks_for_a_part_of_what_was_read_is_answered_with_it() {
    let mut pair = pair();
    let at = Remote { rkey: pair.b.remote.0, addr: pair.b.remote.1 };
    let bytes: Vec<u8> = (0..1000u32).map(|index| (index / 4) as u8).collect();
    pair.b.memory.fill(at.rkey, at.addr, &bytes);
    pair.a.send(1, Operation::Read(at), 1000);
    pair.settle(0);
    assert_eq!(pair.a.completions().len(), 1);
    let mtu = MTU.bytes();
    for (packet, len) in [(1, mtu), (1, 2 * mtu), (2, 10), (0, 999), (3, 1000 - 3 * mtu), (1, 0)] {
        let from = packet * mtu;
        let part = Reth { addr: at.addr + u64::from(from), rkey: at.rkey, len };
        let asked = forged(PSNS[0].plus(packet), Rc::ReadRequest(part), b"");
        assert_eq!(pair.b.take(0, &asked), Err(Discard::Duplicate));
        let answers = pair.b.all(0);
        let packets: Vec<_> = answers.iter().map(Datagram::packet).collect();
        let got: Vec<u8> = packets.iter().flat_map(|packet| packet.payload.to_vec()).collect();
        assert_eq!(got, bytes[from as usize..][..len as usize]);
        assert_eq!(packets.len() as u32, len.div_ceil(mtu).max(1));
        for (index, answer) in packets.iter().enumerate() {
            let (is_first, is_last) = (index == 0, index + 1 == packets.len());
            let Segment::Rc(Rc::ReadResponse(part)) = answer.segment else { panic!("{answer:?}") };
            assert_eq!(matches!(part, wire::ReadPart::First(_) | wire::ReadPart::Only(_)), is_first);
            assert_eq!(matches!(part, wire::ReadPart::Last(_) | wire::ReadPart::Only(_)), is_last);
            assert_eq!(answer.bth.psn, PSNS[0].plus(packet + index as u32));
        }
    }
    let beyond = Reth { addr: at.addr + u64::from(mtu), rkey: at.rkey, len: 1000 };
    costs_nothing(&mut pair, &forged(PSNS[0].plus(1), Rc::ReadRequest(beyond), b""), Discard::OutsideWindow);
}

/// Every datagram of a conversation is sent again: nothing happens twice, and each datagram causes
/// at most one answer, unless it repeats a READ.
#[test]
fn that_was_sent_before() {
    for_seeds(50, |seed| {
        let mut rng = Rng::with_seed(seed);
        let mut pair = pair();
        let at = Remote { rkey: pair.b.remote.0, addr: pair.b.remote.1 };
        let add = AtomicExtension { addr: at.addr + 512, rkey: at.rkey, op: AtomicOp::FetchAdd(1) };
        let mut recorded = Vec::new();
        let mut atomics = 0_u64;
        for id in 0..30 {
            let (operation, len) = match rng.u8(..4) {
                0 => (SEND, 300),
                1 => (Operation::Write(at, WriteEnd::Plain), 500),
                2 => (Operation::Read(at), 600),
                _ => (Operation::Atomic(add), 8),
            };
            atomics += u64::from(len == 8);
            pair.b.receive(id, 300);
            pair.a.send(id, operation, len);
            let sent = pair.a.all(0);
            sent.iter().for_each(|datagram| pair.b.take(0, datagram).expect("taken"));
            recorded.extend(sent);
            pair.settle(0);
            pair.a.completions();
            let taken = pair.b.completions().len();
            assert_eq!(taken, usize::from(operation == SEND));
            if taken == 0 {
                // Its receive is still posted; a queue of four holds no more.
                pair.a.send(id, SEND, 1);
                pair.settle(0);
                pair.a.completions();
                pair.b.completions();
            }
        }
        let before = pair.b.memory.bytes(at.rkey, at.addr, ROOM).to_vec();
        for _ in 0..200 {
            let datagram = &recorded[rng.usize(..recorded.len())];
            assert!(pair.b.take(0, datagram).is_err());
            let answers = pair.b.all(0).len();
            let is_read = matches!(datagram.segment(), Segment::Rc(Rc::ReadRequest(_)));
            assert!(answers <= if is_read { 3 } else { 1 }, "{answers}");
        }
        assert!(pair.b.completions().is_empty() && !pair.b.qp.is_failed());
        assert!(pair.b.memory.bytes(at.rkey, at.addr, ROOM) == before, "nothing is written twice");
        assert_eq!(before[512..520], atomics.to_ne_bytes());
    });
}

/// Datagrams of a real conversation, changed at random and with a valid checksum, at both ends at
/// once: nothing panics, each is answered by at most one, and nothing is written outside of the
/// granted memory.
#[test]
fn that_was_changed_on_the_way_by_somebody_who_can() {
    for_seeds(400, |seed| {
        let mut rng = Rng::with_seed(seed);
        let mut pair = pair();
        let at = Remote { rkey: pair.b.remote.0, addr: pair.b.remote.1 };
        for id in 0..3 {
            pair.b.receive(id, 700);
            let operations = [SEND, Operation::Write(at, WriteEnd::Immediate(1)), Operation::Read(at)];
            pair.a.send(id, operations[rng.usize(..3)], 700);
        }
        for _ in 0..60 {
            let mut datagrams = pair.a.all(0);
            datagrams.extend(pair.b.all(0));
            if datagrams.is_empty() {
                break;
            }
            for datagram in &mut datagrams {
                for _ in 0..rng.usize(..3) {
                    let len = datagram.bytes.len() - 4;
                    // The destination stays, or no queue pair would get the datagram.
                    let at = [0, 1, 8, 9, 10, 11, rng.usize(12..=len)][rng.usize(..7)].min(len - 1);
                    datagram.bytes[at] ^= 1 << rng.u8(..8);
                }
                let len = datagram.bytes.len() - 4;
                wire::seal(&mut datagram.bytes, len, &datagram.route, 0);
                let half = if datagram.route.addresses == addresses(0, 1) { &mut pair.b } else { &mut pair.a };
                let arrival = Arrival { route: datagram.route, icrc: Icrc::IpId(0) };
                if let Ok(incoming) = Incoming::read(arrival, &datagram.bytes) {
                    let _ = half.qp.receive(0, &incoming, &mut half.memory);
                }
            }
        }
        // Both queue pairs can still be ended, and all posted work requests are returned.
        pair.a.qp.fail();
        pair.b.qp.fail();
        let ids = |half: &mut Half| half.completions().iter().map(|completion| completion.id).collect::<Vec<_>>();
        let (mut sent, mut received) = (ids(&mut pair.a), ids(&mut pair.b));
        sent.sort_unstable();
        received.sort_unstable();
        assert_eq!((sent, received), (vec![0, 1, 2], vec![0, 1, 2]));
        assert!(pair.a.all(0).is_empty() && pair.b.all(0).is_empty());
    });
}

#[test]
fn to_nobody_is_never_answered() {
    let (mut engine, mut memory) = (Engine::new(), Regions::default());
    let half = pair().b;
    engine.add(half.qp).expect("a number");
    let arrival = Arrival { route: Half::peer_of(0).route, icrc: Icrc::Unknown };
    let mut rng = Rng::with_seed(5);
    let (mut nobody, mut malformed) = (0, 0);
    for _ in 0..20_000 {
        let mut bytes = [0; 80];
        rng.fill(&mut bytes);
        bytes[1] &= 0xF0;
        bytes[0] %= 0x18;
        match engine.receive(0, arrival, &bytes[..rng.usize(..81)], &mut memory) {
            Received::Discarded(Discard::NoQueuePair) => nobody += 1,
            Received::Discarded(Discard::Malformed) => malformed += 1,
            other => panic!("{other:?}"),
        }
    }
    let counted = [Discard::NoQueuePair, Discard::Malformed].map(|why| engine.incidents().discarded(why));
    assert_eq!(counted, [nobody, malformed]);
    assert!(nobody > 1000 && malformed > 1000, "{nobody} {malformed}");
    assert_eq!(engine.transmit(0, &mut memory, &mut vec![0; MTU.bytes() as usize + HEADERS_MAX_BYTES], 0), None);
    assert!(engine.remove(QPNS[1]).is_some() && engine.remove(Qpn::new(5)).is_none());
}
