//! A reliable connection, packet by packet: its answers, and the consequences of errors.

use verbline_roce::transport::{Discard, PeerFault, Retries, Rights, ack_timeout_ns};
use verbline_roce::wire::{AtomicExtension, AtomicOp, Rc, ReadPart, Segment, SendEnd, Syndrome, WriteEnd};
use verbline_roce::{Completed, Completion, Data, Operation, Remote, SendRequest, Status};

use crate::pair::{Datagram, Half, PSNS, Pair, RIGHTS, ROOM, remote, statuses};

pub(crate) const SEND: Operation = Operation::Send(SendEnd::Plain);
pub(crate) const MTU: u32 = 256;

pub(crate) fn pair() -> Pair {
    Pair::rc(Retries { timeout: 5, ..Retries::default() }, RIGHTS)
}

pub(crate) fn said(datagram: &Datagram) -> Option<u8> {
    match datagram.segment() {
        Segment::Rc(Rc::Acknowledge(syndrome)) => Some(syndrome.code),
        _ => None,
    }
}

#[test]
fn a_message_is_cut_at_the_mtu_and_numbers_wrap() {
    let mut pair = pair();
    pair.b.receive(9, 1000);
    pair.a.memory.fill(pair.a.local.0, pair.a.local.1, &[7; 600]);
    pair.a.send(1, Operation::Send(SendEnd::Immediate(5)), 600);
    let sent = pair.a.all(0);
    let parts: Vec<_> = sent.iter().map(|datagram| (datagram.segment(), datagram.packet().payload.len())).collect();
    let part = |first, last| Segment::Rc(Rc::Send { first, last });
    assert_eq!(
        parts,
        [(part(true, None), 256), (part(false, None), 256), (part(false, Some(SendEnd::Immediate(5))), 88)]
    );
    let psns: Vec<_> = sent.iter().map(|datagram| datagram.packet().bth.psn).collect();
    assert_eq!(psns, [PSNS[0], PSNS[0].plus(1), PSNS[0].plus(2)]);
    assert_eq!(psns[2].number(), 0);
    sent.iter().for_each(|datagram| pair.b.take(0, datagram).expect("taken"));
    let answers = pair.b.all(0);
    assert_eq!(answers.len(), 1, "one acknowledgement for all");
    assert_eq!(answers[0].packet().bth.psn, psns[2]);
    assert_eq!(
        pair.b.memory.bytes(pair.b.local.0, pair.b.local.1 + (ROOM / 2) as u64, 601),
        [[7; 600].to_vec(), vec![0]].concat()
    );
    pair.a.take(0, &answers[0]).expect("taken");
    let completed = Completed::Receive(SendEnd::Immediate(5));
    let received = Completion { id: 9, status: Status::Success, completed, bytes: 600, solicited: false, source: None };
    assert_eq!((pair.b.completions(), statuses(&mut pair.a)), (vec![received], vec![(1, Status::Success)]));
    assert_eq!(pair.a.qp.deadline_ns(), None);
}

/// Behind the message, since then both may leave in one run.
#[test]
fn an_acknowledgement_goes_behind_the_message_that_is_to_be_sent() {
    let mut pair = pair();
    for turn in 0..3 {
        pair.b.receive(turn, 1000);
        pair.a.receive(turn, 1000);
        assert!(!pair.b.qp.owes_acknowledgement());
        pair.a.send(turn, SEND, 10);
        pair.a.all(0).iter().for_each(|datagram| pair.b.take(0, datagram).expect("taken"));
        assert!(pair.b.qp.owes_acknowledgement());
        // After an odd number of datagrams no turn is left over.
        if turn == 1 {
            let answers = pair.b.all(0);
            assert_eq!(answers.iter().map(said).collect::<Vec<_>>(), [Some(Syndrome::ACK)]);
            answers.iter().for_each(|datagram| pair.a.take(0, datagram).expect("taken"));
            continue;
        }
        pair.b.send(turn, SEND, 10);
        let sent = pair.b.all(0);
        assert_eq!(sent.iter().map(said).collect::<Vec<_>>(), [None, Some(Syndrome::ACK)]);
        sent.iter().for_each(|datagram| pair.a.take(0, datagram).expect("taken"));
        assert!(pair.a.qp.owes_acknowledgement());
    }
    // Nor is one left over after a message alone.
    _ = (pair.a.completions(), pair.b.completions());
    for lone in [true, false] {
        pair.a.receive(7, 1000);
        pair.b.receive(7, 1000);
        if !lone {
            pair.a.send(7, SEND, 10);
            pair.a.all(0).iter().for_each(|datagram| pair.b.take(0, datagram).expect("taken"));
        }
        pair.b.send(7, SEND, 10);
        let sent = pair.b.all(0);
        let expected = [None, Some(Syndrome::ACK)];
        assert_eq!(sent.iter().map(said).collect::<Vec<_>>(), expected[..2 - usize::from(lone)]);
        sent.iter().for_each(|datagram| pair.a.take(0, datagram).expect("taken"));
        pair.settle(0);
    }
    pair.b.memory.fill(pair.b.remote.0, pair.b.remote.1, &[7; 10]);
    pair.a.send(9, Operation::Read(remote(&pair.b)), 10);
    pair.a.all(0).iter().for_each(|datagram| _ = pair.b.take(0, datagram));
    assert!(!pair.b.qp.owes_acknowledgement(), "an answer with data waits for nobody");
}

#[test]
fn an_acknowledgement_that_waits_to_be_sent_is_not_forgotten() {
    let mut pair = pair();
    (0..2).for_each(|id| pair.b.receive(id, 1000));
    pair.a.send(1, SEND, 10);
    pair.a.send(2, SEND, 2 * MTU);
    let sent = pair.a.all(0);
    sent[..2].iter().for_each(|datagram| pair.b.take(0, datagram).expect("taken"));
    assert!(!sent[1].packet().bth.ack_request);
    let answers = pair.b.all(0);
    assert_eq!((answers.len(), answers[0].packet().bth.psn), (1, PSNS[0].plus(1)));
    pair.a.take(0, &answers[0]).expect("taken");
    assert_eq!(statuses(&mut pair.a), [(1, Status::Success)]);
}

#[test]
fn what_is_not_answered_is_repeated_as_often_as_was_asked_for() {
    for retry_count in [0, 1, 7] {
        let mut pair = Pair::rc(Retries { timeout: 5, retry_count, ..Retries::default() }, RIGHTS);
        pair.a.send(1, SEND, 10);
        pair.a.send(2, SEND, 10);
        let wait_ns = ack_timeout_ns(5).expect("a time-out");
        assert_eq!(wait_ns, 131_072);
        let mut now_ns = 77;
        for _ in 0..=retry_count {
            assert_eq!(pair.a.all(now_ns).len(), 2);
            assert_eq!(pair.a.qp.deadline_ns(), Some(now_ns + wait_ns));
            pair.a.qp.advance(now_ns + wait_ns - 1);
            assert!(pair.a.all(now_ns).is_empty(), "too early");
            now_ns += wait_ns;
            pair.a.qp.advance(now_ns);
        }
        assert!(pair.a.all(now_ns).is_empty() && pair.a.qp.is_failed());
        assert_eq!(statuses(&mut pair.a), [(1, Status::RetryExceeded), (2, Status::Flushed)]);
        assert_eq!(pair.a.qp.deadline_ns(), None);
    }
    assert_eq!(ack_timeout_ns(0), None, "for ever");
}

/// Each fault, with the requester's status, the receive's status, and the event.
#[test]
fn a_request_that_is_refused_ends_both_sides() {
    const NONE: Rights = Rights { write: false, read: false, atomic: false };
    let outside = |half: &Half| Remote { addr: half.remote.1 + ROOM as u64 - 1, ..remote(half) };
    let unknown = |half: &Half| Remote { rkey: 99, ..remote(half) };
    let odd = |half: &Half| Remote { addr: half.remote.1 + 4, ..remote(half) };
    let add =
        |at: Remote| Operation::Atomic(AtomicExtension { addr: at.addr, rkey: at.rkey, op: AtomicOp::FetchAdd(1) });
    let write = |at: Remote| Operation::Write(at, WriteEnd::Plain);
    type Row<'a> = (&'a str, Rights, &'a dyn Fn(&Half) -> Operation, Status, Status, PeerFault);
    let rows: [Row<'_>; 11] = [
        ("too long", RIGHTS, &|_| SEND, Status::RemoteInvalidRequest, Status::LocalLength, PeerFault::Request),
        (
            "no key",
            RIGHTS,
            &|_| Operation::Send(SendEnd::Invalidate(99)),
            Status::RemoteInvalidRequest,
            Status::LocalLength,
            PeerFault::Request,
        ),
        ("write outside", RIGHTS, &|b| write(outside(b)), Status::RemoteAccess, Status::Flushed, PeerFault::Access),
        ("write unknown", RIGHTS, &|b| write(unknown(b)), Status::RemoteAccess, Status::Flushed, PeerFault::Access),
        (
            "write not allowed",
            NONE,
            &|b| write(remote(b)),
            Status::RemoteInvalidRequest,
            Status::Flushed,
            PeerFault::Request,
        ),
        (
            "read outside",
            RIGHTS,
            &|b| Operation::Read(outside(b)),
            Status::RemoteAccess,
            Status::Flushed,
            PeerFault::Access,
        ),
        (
            "read unknown",
            RIGHTS,
            &|b| Operation::Read(unknown(b)),
            Status::RemoteAccess,
            Status::Flushed,
            PeerFault::Access,
        ),
        (
            "read not allowed",
            NONE,
            &|b| Operation::Read(remote(b)),
            Status::RemoteInvalidRequest,
            Status::Flushed,
            PeerFault::Request,
        ),
        ("atomic outside", RIGHTS, &|b| add(unknown(b)), Status::RemoteAccess, Status::Flushed, PeerFault::Access),
        (
            "atomic not aligned",
            RIGHTS,
            &|b| add(odd(b)),
            Status::RemoteInvalidRequest,
            Status::Flushed,
            PeerFault::Request,
        ),
        (
            "atomic not allowed",
            NONE,
            &|b| add(remote(b)),
            Status::RemoteInvalidRequest,
            Status::Flushed,
            PeerFault::Request,
        ),
    ];
    for (what, rights, operation, status, local, fault) in rows {
        let mut pair = Pair::rc(Retries::default(), rights);
        pair.b.receive(5, 4);
        pair.b.receive(6, 4);
        let operation = operation(&pair.b);
        let len = 8;
        pair.a.send(1, operation, len);
        pair.a.send(2, SEND, 1);
        pair.settle(0);
        assert_eq!(statuses(&mut pair.a), [(1, status), (2, Status::Flushed)], "{what}");
        assert_eq!(statuses(&mut pair.b), [(5, local), (6, Status::Flushed)], "{what}");
        assert_eq!((pair.b.qp.take_fault(), pair.b.qp.take_fault()), (Some(fault), None), "{what}");
        assert!(pair.a.qp.is_failed() && pair.b.qp.is_failed());
        assert_eq!(pair.b.qp.counters().incidents().fatal_naks_sent, 1);
        // Work requests posted from now on are flushed.
        pair.a.send(3, SEND, 1);
        pair.b.receive(7, 1);
        assert_eq!(statuses(&mut pair.a), [(3, Status::Flushed)]);
        assert_eq!(statuses(&mut pair.b), [(7, Status::Flushed)]);
    }
}

#[test]
fn a_key_that_is_invalidated_by_a_send_grants_nothing_more() {
    let mut pair = pair();
    pair.b.receive(5, 4);
    let target = remote(&pair.b);
    pair.a.send(1, Operation::Send(SendEnd::Invalidate(target.rkey)), 4);
    pair.a.send(2, Operation::Read(target), 4);
    pair.settle(0);
    assert_eq!(statuses(&mut pair.a), [(1, Status::Success), (2, Status::RemoteAccess)]);
    assert_eq!(pair.b.completions()[0].completed, Completed::Receive(SendEnd::Invalidate(target.rkey)));
    // An unknown key is refused, and the receive reports it.
    let mut pair = self::pair();
    pair.b.receive(5, 4);
    pair.a.send(1, Operation::Send(SendEnd::Invalidate(99)), 4);
    pair.settle(0);
    assert_eq!(statuses(&mut pair.a), [(1, Status::RemoteAccess)]);
    assert_eq!(statuses(&mut pair.b), [(5, Status::LocalAccess)]);
}

#[test]
fn a_local_key_that_grants_nothing_fails_its_send_after_those_before() {
    let mut pair = pair();
    pair.b.receive(5, 4);
    pair.a.send(1, SEND, 4);
    let bad = [verbline_roce::Sge { key: 99, ..pair.a.sge(4) }];
    let request = SendRequest {
        id: 2,
        operation: SEND,
        data: Data::Memory(&bad),
        signaled: false,
        solicited: false,
        fence: false,
    };
    pair.a.qp.post_send(&request).expect("posted");
    pair.a.send(3, SEND, 4);
    let sent = pair.a.all(0);
    assert_eq!(sent.len(), 1);
    assert_eq!(statuses(&mut pair.a), []);
    pair.b.take(0, &sent[0]).expect("taken");
    pair.settle(0);
    assert_eq!(statuses(&mut pair.a), [(1, Status::Success), (2, Status::LocalProtection), (3, Status::Flushed)]);
    // The answer of a READ without a place for it.
    let mut pair = self::pair();
    let bad = [verbline_roce::Sge { key: 99, ..pair.a.sge(4) }];
    let operation = Operation::Read(remote(&pair.b));
    pair.a.qp.post_send(&SendRequest { operation, data: Data::Memory(&bad), ..request }).expect("posted");
    pair.settle(0);
    assert_eq!(statuses(&mut pair.a), [(2, Status::LocalProtection)]);
}

#[test]
fn an_atomic_that_comes_again_is_answered_and_not_carried_out_again() {
    let mut pair = pair();
    let at = remote(&pair.b);
    let add = Operation::Atomic(AtomicExtension { addr: at.addr, rkey: at.rkey, op: AtomicOp::FetchAdd(5) });
    pair.a.send(1, add, 8);
    let asked = pair.a.all(0);
    pair.b.take(0, &asked[0]).expect("taken");
    let answers = pair.b.all(0);
    for _ in 0..3 {
        assert_eq!(pair.b.take(0, &asked[0]), Err(Discard::Duplicate));
        assert_eq!(pair.b.all(0), answers);
    }
    assert_eq!(pair.b.memory.bytes(at.rkey, at.addr, 8), 5_u64.to_ne_bytes());
    pair.a.take(0, &answers[0]).expect("taken");
    assert_eq!(pair.a.take(0, &answers[0]), Err(Discard::Duplicate));
    assert_eq!(statuses(&mut pair.a), [(1, Status::Success)]);
}

#[test]
fn a_read_is_asked_for_again_from_where_its_answer_got_lost() {
    let mut pair = pair();
    let bytes: Vec<u8> = (0..5 * MTU).map(|at| (at % 251) as u8).collect();
    pair.b.memory.fill(pair.b.remote.0, pair.b.remote.1, &bytes);
    pair.a.send(1, Operation::Read(remote(&pair.b)), 5 * MTU);
    let asked = pair.a.all(0);
    pair.b.take(0, &asked[0]).expect("taken");
    let answers = pair.b.all(0);
    assert!(matches!(answers[0].segment(), Segment::Rc(Rc::ReadResponse(ReadPart::First(_)))));
    assert!(matches!(answers[4].segment(), Segment::Rc(Rc::ReadResponse(ReadPart::Last(_)))));
    pair.a.take(0, &answers[0]).expect("taken");
    assert_eq!(pair.a.take(0, &answers[2]), Err(Discard::OutOfOrder));
    let asked = pair.a.all(0);
    let Segment::Rc(Rc::ReadRequest(reth)) = asked[0].segment() else { panic!("{asked:?}") };
    assert_eq!((reth.addr, reth.len), (pair.b.remote.1 + u64::from(MTU), 4 * MTU));
    pair.settle(0);
    pair.b.take(0, &asked[0]).expect_err("a duplicate");
    pair.settle(0);
    assert_eq!(statuses(&mut pair.a), [(1, Status::Success)]);
    assert_eq!(pair.a.memory.bytes(pair.a.local.0, pair.a.local.1, bytes.len()), bytes);
}

#[test]
fn a_fence_waits_for_reads_and_reads_for_their_turn() {
    let mut pair = pair();
    pair.b.receive(5, 4);
    let (read, sges) = (Operation::Read(remote(&pair.b)), [pair.a.sge(4)]);
    let send = |fence| SendRequest {
        id: 2,
        operation: SEND,
        data: Data::Memory(&sges),
        signaled: true,
        solicited: true,
        fence,
    };
    pair.a.send(1, read, 4);
    pair.a.qp.post_send(&send(true)).expect("posted");
    let asked = pair.a.all(0);
    assert_eq!(asked.len(), 1, "the fence holds");
    pair.b.take(0, &asked[0]).expect("taken");
    pair.settle(0);
    assert_eq!(statuses(&mut pair.a), [(1, Status::Success), (2, Status::Success)]);
    assert!(pair.b.completions()[0].solicited);
    // The most READs that the peer serves.
    let mut pair = Pair::rc(Retries { reads: 2, ..Retries::default() }, RIGHTS);
    (0..4).for_each(|id| pair.a.send(id, read, 4));
    assert_eq!(pair.a.all(0).len(), 2);
    // A requester with more READs under way breaks the rules.
    let mut pair = Pair::rc(Retries { reads: 3, ..Retries::default() }, RIGHTS);
    (0..4).for_each(|id| pair.a.send(id, read, 4));
    let asked = pair.a.all(0);
    asked.iter().for_each(|datagram| _ = pair.b.take(0, datagram));
    assert!(pair.b.qp.is_failed());
    pair.settle(0);
    assert_eq!(
        statuses(&mut pair.a)[..3],
        [(0, Status::Success), (1, Status::Success), (2, Status::RemoteInvalidRequest)]
    );
}
