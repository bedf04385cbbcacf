//! Changes of an open connection: its rights, and held sends.

use verbline_roce::transport::{Arrival, Changes, Discard, Icrc, Retries, Rights, Serving};
use verbline_roce::wire::{AtomicExtension, AtomicOp, Rc, Route, Segment, SendEnd, WriteEnd};
use verbline_roce::{Engine, Operation, Status};

use crate::pair::{Datagram, Half, Pair, QPNS, RIGHTS, remote, statuses};
use crate::sim::world::addresses;

const SEND: Operation = Operation::Send(SendEnd::Plain);
const LEN: u32 = 600;

fn changes(rights: Rights) -> Changes {
    Changes { rights, route: None, serving: Serving::default(), retries: Retries::default() }
}

fn write(half: &Half) -> Operation {
    Operation::Write(remote(half), WriteEnd::Plain)
}

#[test]
fn a_right_that_was_taken_back_refuses_the_next_request() {
    let mut pair = Pair::rc(Retries::default(), RIGHTS);
    let to = write(&pair.b);
    pair.a.send(1, to, 8);
    pair.settle(0);
    assert_eq!(statuses(&mut pair.a), [(1, Status::Success)]);
    pair.b.qp.change(&changes(Rights { write: false, ..RIGHTS }));
    pair.a.send(2, to, 8);
    pair.settle(0);
    assert!(matches!(statuses(&mut pair.a)[..], [(2, Status::RemoteAccess | Status::RemoteInvalidRequest)]));
}

#[test]
fn an_unreliable_connection_heeds_a_right_that_was_taken_back_too() {
    let mut pair = Pair::uc();
    pair.b.qp.change(&changes(Rights { write: false, ..RIGHTS }));
    let to = write(&pair.b);
    pair.a.send(1, to, 8);
    let sent = pair.a.all(0);
    assert_eq!(pair.b.take(0, &sent[0]), Err(Discard::Refused));
}

/// Regression: an atomic whose answer there was no place to keep was carried out, and then refused.
#[test]
fn an_atomic_is_carried_out_only_if_its_answer_can_be_kept() {
    let mut pair = Pair::rc(Retries::default(), RIGHTS);
    let (rkey, addr) = pair.b.remote;
    let add = Operation::Atomic(AtomicExtension { addr, rkey, op: AtomicOp::FetchAdd(1) });
    (1..=2).for_each(|id| pair.a.send(id, add, 8));
    pair.a.all(0).iter().for_each(|datagram| pair.b.take(0, datagram).expect("taken"));
    assert!(pair.b.next(0).is_some(), "the answer to the first of them");
    let serving = Serving { reads: 1, ..Serving::default() };
    pair.b.qp.change(&Changes { serving, ..changes(RIGHTS) });
    pair.a.send(3, add, 8);
    pair.a.all(0).iter().for_each(|datagram| _ = pair.b.take(0, datagram));
    assert!(pair.b.qp.is_failed());
    assert_eq!(pair.b.memory.bytes(rkey, addr, 8), 2u64.to_ne_bytes());
}

/// A queue pair has room for at least one READ, also where it is told 0.
#[test]
fn a_read_goes_on_when_no_reads_are_allowed() {
    for reads in [0, 1] {
        let mut pair = Pair::rc(Retries { reads, ..Retries::default() }, RIGHTS);
        pair.a.qp.change(&Changes { retries: Retries { reads, ..Retries::default() }, ..changes(RIGHTS) });
        let from = Operation::Read(remote(&pair.b));
        (1..=2).for_each(|id| pair.a.send(id, from, 8));
        assert_eq!(pair.a.all(0).len(), 1);
        let overdue_ns = pair.a.qp.deadline_ns().expect("an answer is due");
        pair.a.qp.advance(overdue_ns);
        pair.settle(overdue_ns);
        assert_eq!(statuses(&mut pair.a), [(1, Status::Success), (2, Status::Success)]);
    }
}

#[test]
fn held_sends_finish_what_was_begun_and_begin_nothing() {
    let mut pair = Pair::rc(Retries::default(), RIGHTS);
    (1..=2).for_each(|id| pair.b.receive(id, LEN));
    pair.a.send(1, SEND, LEN);
    let first = pair.a.next(0).expect("the first packet of three");
    pair.a.send(2, SEND, LEN);
    assert!(!pair.a.qp.hold(), "one is begun");
    pair.a.send(3, SEND, 0);
    _ = pair.b.take(0, &first);
    pair.settle(0);
    assert_eq!(statuses(&mut pair.a), [(1, Status::Success)]);
    pair.b.receive(3, 0);
    pair.a.qp.send_again();
    pair.settle(0);
    assert_eq!(statuses(&mut pair.a), [(2, Status::Success), (3, Status::Success)]);
}

/// A send that was sent once and lost had begun, though it has to be sent again.
#[test]
fn a_send_that_was_lost_whole_is_repeated_while_others_are_held() {
    let mut pair = Pair::rc(Retries { timeout: 5, ..Retries::default() }, RIGHTS);
    pair.b.receive(1, LEN);
    pair.a.send(1, SEND, LEN);
    assert_eq!(pair.a.all(0).len(), 3, "lost");
    let overdue_ns = pair.a.qp.deadline_ns().expect("an answer is awaited");
    pair.a.qp.advance(overdue_ns);
    assert!(!pair.a.qp.hold());
    pair.settle(0);
    assert_eq!(statuses(&mut pair.a), [(1, Status::Success)]);
}

/// Without an answer, what was begun is finished once its last packet has left.
#[test]
fn held_unreliable_sends_finish_the_message_that_was_begun() {
    for begun in 0..4 {
        let mut pair = Pair::uc();
        pair.a.send(1, SEND, LEN);
        let sent: Vec<_> = (0..begun).map(|_| pair.a.next(0).expect("one of three packets")).collect();
        pair.a.send(2, SEND, LEN);
        assert_eq!(pair.a.qp.hold(), begun == 0 || begun == 3, "{begun}");
        let rest = pair.a.all(0);
        assert_eq!(sent.len() + rest.len(), if begun == 0 { 0 } else { 3 }, "{begun}");
        assert!(pair.a.qp.hold());
        pair.a.qp.send_again();
        assert_eq!(pair.a.all(0).len(), if begun == 0 { 6 } else { 3 });
        assert_eq!(statuses(&mut pair.a), [(1, Status::Success), (2, Status::Success)]);
    }
}

#[test]
fn an_engine_tells_once_that_held_sends_have_drained() {
    let Pair { mut a, mut b } = Pair::rc(Retries::default(), RIGHTS);
    b.receive(1, LEN);
    a.send(1, SEND, LEN);
    let Half { qp, mut memory, .. } = a;
    let mut engine = Engine::new();
    engine.add(qp).expect("a number of its own");
    // It had a datagram to send before.
    engine.with(QPNS[0], |_| ());
    let mut out = vec![0; 4096];
    let mut sent = Vec::new();
    while let Some(one) = engine.transmit(0, &mut memory, &mut out, 0) {
        sent.push(Datagram { route: one.route, bytes: out[..one.len].to_vec() });
    }
    assert_eq!(engine.with(QPNS[0], |qp| qp.hold()), Some(false));
    assert_eq!(engine.take_drained(), None);
    sent.iter().for_each(|datagram| _ = b.take(0, datagram));
    for answer in b.all(0) {
        let arrival = Arrival { route: answer.route, icrc: Icrc::IpId(0) };
        engine.receive(0, arrival, &answer.bytes, &mut memory);
    }
    assert_eq!((engine.take_drained(), engine.take_drained()), (Some(QPNS[0]), None));
}

/// SQE: sends posted meanwhile are flushed, and later ones are sent from their first packet on.
#[test]
fn an_unreliable_connection_sends_again_after_a_send_has_failed() {
    let mut pair = Pair::uc();
    let own = std::mem::replace(&mut pair.a.local, (0, 1));
    pair.a.send(1, SEND, 8);
    pair.a.local = own;
    assert!(pair.a.all(0).is_empty());
    pair.a.send(2, SEND, LEN);
    assert_eq!(statuses(&mut pair.a), [(1, Status::LocalProtection), (2, Status::Flushed)]);
    pair.a.qp.send_again();
    pair.b.receive(1, LEN);
    pair.a.send(3, SEND, LEN);
    pair.settle(0);
    assert_eq!(
        (statuses(&mut pair.a), statuses(&mut pair.b)),
        (vec![(3, Status::Success)], vec![(1, Status::Success)])
    );
}

/// New numbers of retries count from the change on, whatever was used up before.
#[test]
fn changed_retries_are_all_there() {
    for retry_count in [0, 1, 3] {
        let mut pair = Pair::rc(Retries { timeout: 5, retry_count: 1, ..Retries::default() }, RIGHTS);
        pair.a.send(1, SEND, 10);
        pair.a.all(0);
        let overdue = |pair: &mut Pair| {
            let now_ns = pair.a.qp.deadline_ns().expect("an answer is awaited");
            pair.a.qp.advance(now_ns);
            pair.a.all(now_ns).len()
        };
        assert_eq!(overdue(&mut pair), 1);
        let retries = Retries { timeout: 5, retry_count, ..Retries::default() };
        pair.a.qp.change(&Changes { retries, ..changes(RIGHTS) });
        for _ in 0..retry_count {
            assert_eq!(overdue(&mut pair), 1);
        }
        assert_eq!((overdue(&mut pair), statuses(&mut pair.a)), (0, vec![(1, Status::RetryExceeded)]));
    }
}

/// Sends go by the new route, and only what comes back by it is taken.
#[test]
fn a_changed_route_is_that_of_all_further_packets() {
    for mut pair in [Pair::rc(Retries::default(), RIGHTS), Pair::uc()] {
        let other = Route::new(addresses(0, 7), 1, 2);
        pair.a.qp.change(&Changes { route: Some(other), ..changes(RIGHTS) });
        // Without a route, it stays.
        pair.a.qp.change(&changes(RIGHTS));
        pair.a.send(1, SEND, 10);
        assert_eq!(pair.a.all(0).iter().map(|sent| sent.route).collect::<Vec<_>>(), [other]);
        pair.a.receive(1, 10);
        pair.b.send(1, SEND, 10);
        let sent = pair.b.all(0);
        assert_eq!(pair.a.take(0, &sent[0]), Err(Discard::Stranger));
    }
}

/// Nothing is begun, so nothing is left to be told.
#[test]
fn an_idle_queue_pair_that_is_held_has_drained_at_once_and_is_not_told_of() {
    let Pair { a, .. } = Pair::rc(Retries::default(), RIGHTS);
    let mut engine = Engine::new();
    engine.add(a.qp).expect("a number of its own");
    for _ in 0..2 {
        assert_eq!(engine.with(QPNS[0], |qp| qp.hold()), Some(true));
        assert_eq!(engine.take_drained(), None);
        engine.with(QPNS[0], |qp| qp.send_again());
    }
}

/// The window stays as it was, and with it the length of a READ's parts.
#[test]
fn changed_retries_change_no_window() {
    let mut pair = Pair::rc(Retries { window_packets: 8, ..Retries::default() }, RIGHTS);
    pair.a.qp.change(&changes(RIGHTS));
    pair.a.send(1, Operation::Read(remote(&pair.b)), 20 * 256);
    let asked = pair.a.all(0);
    let lengths = asked.iter().map(|datagram| match datagram.segment() {
        Segment::Rc(Rc::ReadRequest(reth)) => reth.len,
        other => panic!("{other:?}"),
    });
    assert_eq!(lengths.collect::<Vec<_>>(), [4 * 256, 4 * 256]);
}
