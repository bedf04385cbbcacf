//! Requests against the rules of a reliable connection: each is refused as invalid, at its own
//! number, and changes nothing (table 45 and section 9.7.4.1 of the specification).

use verbline_roce::transport::{PeerFault, Retries};
use verbline_roce::wire::{
    AtomicExtension, AtomicOp, Bth, HEADERS_MAX_BYTES, Packet, Psn, Rc, Reth, Segment, SendEnd, Syndrome, WriteEnd,
};
use verbline_roce::{Operation, Remote};

use crate::pair::{Datagram, Half, PSNS, Pair, QPNS, RIGHTS, ROOM, remote};
use crate::reliable::{MTU, SEND};

/// A packet: its operation, and the length of its payload.
type Part = (Rc, u32);

/// A packet of A to B.
fn datagram(psn: Psn, (rc, len): Part) -> Datagram {
    let (route, payload) = (Half::peer_of(0).route, vec![7; len as usize]);
    let mut bytes = vec![0; payload.len() + HEADERS_MAX_BYTES];
    let bth = Bth { ack_request: true, ..Bth::new(QPNS[1], psn) };
    let len = Packet { bth, segment: Segment::Rc(rc), payload: &payload }.write(&mut bytes, &route, 0);
    bytes.truncate(len);
    Datagram { route, bytes }
}

/// The syndrome of an answer, with its number on the wire and its count of messages.
fn said(answer: &Datagram) -> Option<(u8, Psn, u32)> {
    match answer.segment() {
        Segment::Rc(Rc::Acknowledge(said) | Rc::AtomicResponse(said, _)) => {
            Some((said.code, answer.packet().bth.psn, said.msn))
        }
        _ => None,
    }
}

/// A part of a SEND.
fn send(first: bool, last: bool) -> Rc {
    Rc::Send { first, last: last.then_some(SendEnd::Plain) }
}

/// A part of a WRITE, with the length of the whole if it is the first.
fn write(at: Remote, len: Option<u32>, last: bool) -> Rc {
    let first = len.map(|len| Reth { addr: at.addr, rkey: at.rkey, len });
    Rc::Write { first, last: last.then_some(WriteEnd::Plain) }
}

fn rows(at: Remote) -> Vec<(&'static str, Vec<Part>)> {
    let (begins, goes_on) = (|len| write(at, Some(len), false), write(at, None, false));
    let (only, ends) = (|len| write(at, Some(len), true), write(at, None, true));
    let read = |len| Rc::ReadRequest(Reth { addr: at.addr, rkey: at.rkey, len });
    let add = Rc::Atomic(AtomicExtension { addr: at.addr, rkey: at.rkey, op: AtomicOp::FetchAdd(1) });
    let send_begins = (send(true, false), MTU);
    let write_begins = (begins(3 * MTU), MTU);
    vec![
        ("SEND: first after first", vec![send_begins, send_begins]),
        ("SEND: only after first", vec![send_begins, (send(true, true), 1)]),
        ("SEND: middle without first", vec![(send(false, false), MTU)]),
        ("SEND: last without first", vec![(send(false, true), 1)]),
        ("SEND: first, of less than the MTU", vec![(send(true, false), MTU - 4)]),
        ("SEND: first, of nothing", vec![(send(true, false), 0)]),
        ("SEND: first, of more than the MTU", vec![(send(true, false), MTU + 4)]),
        ("SEND: middle, of less than the MTU", vec![send_begins, (send(false, false), MTU - 4)]),
        ("SEND: last, of nothing", vec![send_begins, (send(false, true), 0)]),
        ("SEND: last, of more than the MTU", vec![send_begins, (send(false, true), MTU + 1)]),
        ("SEND: only, of more than the MTU", vec![(send(true, true), MTU + 1)]),
        ("WRITE: first after first", vec![write_begins, write_begins]),
        ("WRITE: only after first", vec![write_begins, (only(1), 1)]),
        ("WRITE: middle without first", vec![(goes_on, MTU)]),
        ("WRITE: last without first", vec![(ends, 1)]),
        ("WRITE: first, of less than the MTU", vec![(begins(3 * MTU), MTU - 4)]),
        ("WRITE: first, of all", vec![(begins(MTU), MTU)]),
        ("WRITE: first, of more than all", vec![(begins(MTU - 4), MTU)]),
        ("WRITE: middle, of the rest", vec![(begins(2 * MTU), MTU), (goes_on, MTU)]),
        ("WRITE: middle, of more than the rest", vec![(begins(2 * MTU - 4), MTU), (goes_on, MTU)]),
        ("WRITE: last, of less than the rest", vec![write_begins, (ends, 8)]),
        ("WRITE: last, of more than the rest", vec![(begins(MTU + 4), MTU), (ends, 8)]),
        ("WRITE: last, of nothing", vec![write_begins, (ends, 0)]),
        ("WRITE: only, of less than its length", vec![(only(8), 4)]),
        ("WRITE: only, of more than its length", vec![(only(4), 8)]),
        ("WRITE: only, of nothing of its length", vec![(only(8), 0)]),
        ("WRITE: only, of more than the MTU", vec![(only(MTU + 4), MTU + 4)]),
        ("WRITE: first, of more than 2^31", vec![(begins((1 << 31) + 1), MTU)]),
        ("WRITE in the midst of a SEND", vec![send_begins, (only(4), 4)]),
        ("WRITE goes on with a SEND", vec![send_begins, (ends, 4)]),
        ("SEND in the midst of a WRITE", vec![write_begins, (send(true, true), 4)]),
        ("SEND goes on with a WRITE", vec![write_begins, (send(false, true), 4)]),
        ("READ in the midst of a SEND", vec![send_begins, (read(4), 0)]),
        ("READ in the midst of a WRITE", vec![write_begins, (read(4), 0)]),
        ("READ with bytes", vec![(read(4), 4)]),
        ("READ of more than 2^31", vec![(read((1 << 31) + 1), 0)]),
        ("atomic in the midst of a SEND", vec![send_begins, (add, 0)]),
        ("atomic in the midst of a WRITE", vec![write_begins, (add, 0)]),
        ("atomic with bytes", vec![(add, 8)]),
    ]
}

#[test]
fn each_is_refused_at_its_number_and_changes_nothing() {
    let count = rows(Remote { addr: 0, rkey: 0 }).len();
    for row in 0..count {
        let mut pair = Pair::rc(Retries::default(), RIGHTS);
        (0..2).for_each(|id| pair.b.receive(id, 4 * MTU));
        let (what, parts) = rows(remote(&pair.b)).swap_remove(row);
        let (last, before) = parts.split_last().expect("at least one");
        let psn = |index: usize| PSNS[0].plus(index as u32);
        for (index, part) in before.iter().enumerate() {
            let taken = pair.b.take(0, &datagram(psn(index), *part));
            // A part that is wrong by itself is the one that is refused.
            assert_eq!((taken, pair.b.qp.is_failed()), (Ok(()), false), "{what}: {part:?}");
        }
        pair.b.all(0);
        let (memory, own) = (pair.b.memory.bytes(pair.b.remote.0, pair.b.remote.1, ROOM).to_vec(), pair.b.local);
        let received = pair.b.memory.bytes(own.0, own.1, ROOM).to_vec();
        pair.b.take(0, &datagram(psn(before.len()), *last)).expect("refused, not discarded");
        let answers: Vec<_> = pair.b.all(0).iter().map(said).collect();
        assert_eq!(answers, [Some((Syndrome::NAK_INVALID_REQUEST, psn(before.len()), 0))], "{what}");
        assert_eq!((pair.b.qp.is_failed(), pair.b.qp.take_fault()), (true, Some(PeerFault::Request)), "{what}");
        assert!(pair.b.memory.bytes(pair.b.remote.0, pair.b.remote.1, ROOM) == memory, "{what}");
        assert!(pair.b.memory.bytes(own.0, own.1, ROOM) == received, "{what}");
    }
}

/// One READ or atomic more than allowed: the atomic is not carried out.
#[test]
fn an_atomic_too_many_is_not_carried_out() {
    let mut pair = Pair::rc(Retries { reads: 3, ..Retries::default() }, RIGHTS);
    let at = remote(&pair.b);
    let add = Operation::Atomic(AtomicExtension { addr: at.addr, rkey: at.rkey, op: AtomicOp::FetchAdd(1) });
    (0..3).for_each(|id| pair.a.send(id, add, 8));
    pair.a.all(0).iter().for_each(|datagram| pair.b.take(0, datagram).expect("taken"));
    assert!(pair.b.qp.is_failed());
    assert_eq!(pair.b.memory.bytes(at.rkey, at.addr, 8), 2_u64.to_ne_bytes());
}

/// The whole range of a WRITE is checked before its first byte is written.
#[test]
fn a_write_that_ends_outside_writes_nothing() {
    let mut pair = Pair::rc(Retries::default(), RIGHTS);
    let at = Remote { addr: pair.b.remote.1 + ROOM as u64 - u64::from(MTU), ..remote(&pair.b) };
    pair.b.take(0, &datagram(PSNS[0], (write(at, Some(2 * MTU), false), MTU))).expect("refused");
    let answers: Vec<_> = pair.b.all(0).iter().map(said).collect();
    assert_eq!(answers, [Some((Syndrome::NAK_REMOTE_ACCESS, PSNS[0], 0))]);
    assert_eq!(pair.b.memory.bytes(at.rkey, at.addr, MTU as usize), vec![0; MTU as usize]);
}

/// Messages of no bytes, of exactly the MTU and one byte more: the parts are those of the
/// specification, whatever the operation.
#[test]
fn lengths_around_the_mtu_are_cut_as_they_should_be() {
    for (len, packets) in [(0, 1), (1, 1), (MTU - 1, 1), (MTU, 1), (MTU + 1, 2), (2 * MTU, 2), (2 * MTU + 1, 3)] {
        let mut pair = Pair::rc(Retries::default(), RIGHTS);
        let at = remote(&pair.b);
        let operations = [
            SEND,
            Operation::Write(at, WriteEnd::Plain),
            Operation::Write(at, WriteEnd::Immediate(1)),
            Operation::Read(at),
        ];
        for (id, operation) in (0..).zip(operations) {
            pair.b.receive(id, len);
            pair.a.send(id, operation, len);
            let sent = pair.a.all(0);
            let is_read = matches!(operation, Operation::Read(_));
            assert_eq!(sent.len(), if is_read { 1 } else { packets }, "{operation:?} of {len}");
            sent.iter().for_each(|datagram| pair.b.take(0, datagram).expect("taken"));
            let answers = pair.b.all(0);
            assert_eq!(answers.len(), if is_read { packets } else { 1 }, "{operation:?} of {len}");
            answers.iter().for_each(|datagram| pair.a.take(0, datagram).expect("taken"));
            let [done] = pair.a.completions()[..] else { panic!("{operation:?} of {len}") };
            assert_eq!((done.id, done.bytes), (id, len));
            // A WRITE takes a receive for its immediate data only, and reports its whole length.
            let received: Vec<_> = pair.b.completions().iter().map(|done| done.bytes).collect();
            let takes = matches!(operation, Operation::Send(_) | Operation::Write(_, WriteEnd::Immediate(_)));
            assert_eq!(received, if takes { vec![len] } else { vec![] }, "{operation:?} of {len}");
        }
    }
}

/// Each whole message counts: in acknowledgements, NAKs, and the answers of READs and atomics.
#[test]
fn answers_count_the_messages_that_were_carried_out() {
    let mut pair = Pair::rc(Retries::default(), RIGHTS);
    let at = remote(&pair.b);
    let add = Operation::Atomic(AtomicExtension { addr: at.addr, rkey: at.rkey, op: AtomicOp::FetchAdd(1) });
    (0..2).for_each(|id| pair.b.receive(id, 3 * MTU));
    let operations = [
        (SEND, 3 * MTU),
        (Operation::Write(at, WriteEnd::Plain), 2 * MTU),
        (Operation::Read(at), 2 * MTU),
        (add, 8),
        (Operation::Write(at, WriteEnd::Immediate(1)), 0),
    ];
    for (id, (operation, len)) in (0_u32..).zip(operations) {
        pair.a.send(id.into(), operation, len);
        pair.a.all(0).iter().for_each(|datagram| pair.b.take(0, datagram).expect("taken"));
        let answers = pair.b.all(0);
        let last = answers.last().map(|answer| answer.segment());
        let Some(Segment::Rc(
            Rc::Acknowledge(said)
            | Rc::AtomicResponse(said, _)
            | Rc::ReadResponse(verbline_roce::wire::ReadPart::Last(said)),
        )) = last
        else {
            panic!("{last:?}")
        };
        assert_eq!((said.code, said.msn), (Syndrome::ACK, id + 1), "{operation:?}");
        answers.iter().for_each(|datagram| pair.a.take(0, datagram).expect("taken"));
        pair.a.completions();
    }
}

/// The answer of a READ or an atomic acknowledges it and everything before: nothing else leaves,
/// though the requests ask for an acknowledgement, as those of cards may.
#[test]
fn an_answer_with_data_is_the_only_answer() {
    let at = remote(&Pair::rc(Retries::default(), RIGHTS).b);
    let add = Rc::Atomic(AtomicExtension { addr: at.addr, rkey: at.rkey, op: AtomicOp::FetchAdd(1) });
    for request in [add, Rc::ReadRequest(Reth { addr: at.addr, rkey: at.rkey, len: 8 })] {
        let mut pair = Pair::rc(Retries::default(), RIGHTS);
        pair.b.receive(0, 10);
        pair.b.take(0, &datagram(PSNS[0], (send(true, true), 10))).expect("taken");
        pair.b.take(0, &datagram(PSNS[0].plus(1), (request, 0))).expect("taken");
        let answers = pair.b.all(0);
        let numbers: Vec<_> = answers.iter().map(|answer| answer.packet().bth.psn).collect();
        assert_eq!(numbers, [PSNS[0].plus(1)], "{answers:?}");
        assert!(!matches!(answers[0].segment(), Segment::Rc(Rc::Acknowledge(_))));
    }
}
