//! Operations that send no packet: when and how often they are carried out, and when they complete.

use verbline_roce::transport::Retries;
use verbline_roce::wire::SendEnd;
use verbline_roce::{Data, Operation, SendRequest, Status};

use crate::pair::{Half, Pair, QPNS, RIGHTS, remote, statuses};

const SEND: Operation = Operation::Send(SendEnd::Plain);
const LEN: u32 = 10;

fn pair() -> Pair {
    let mut pair = Pair::rc(Retries { timeout: 5, ..Retries::default() }, RIGHTS);
    (0..3).for_each(|id| pair.b.receive(id, LEN));
    pair
}

fn carried_out(half: &Half) -> Vec<u64> {
    half.memory.carried_out.get(&QPNS[0].number()).cloned().unwrap_or_default()
}

#[test]
fn it_is_carried_out_in_its_place_once_and_completes_in_its_turn() {
    let mut pair = pair();
    pair.a.send(1, SEND, LEN);
    pair.a.send(2, Operation::Local, 0);
    pair.a.send(3, SEND, LEN);
    assert_eq!(carried_out(&pair.a), [0; 0], "not before what it is behind");
    let first = pair.a.next(0).expect("a packet");
    assert_eq!(carried_out(&pair.a), [0; 0]);
    let second = pair.a.next(0).expect("another");
    assert_eq!((carried_out(&pair.a), pair.a.next(0)), (vec![2], None));
    assert!(pair.a.completions().is_empty(), "the first is not acknowledged");
    // Both packets are lost and sent again: the operation is not carried out again.
    let overdue_ns = pair.a.qp.deadline_ns().expect("it waits");
    pair.a.qp.advance(overdue_ns);
    assert_eq!(pair.a.all(overdue_ns), [first.clone(), second.clone()]);
    pair.b.take(overdue_ns, &first).expect("taken");
    let acked = pair.b.all(overdue_ns);
    pair.a.take(overdue_ns, &acked[0]).expect("taken");
    assert_eq!(statuses(&mut pair.a), [(1, Status::Success), (2, Status::Success)]);
    pair.b.take(overdue_ns, &second).expect("taken");
    pair.settle(overdue_ns);
    assert_eq!((statuses(&mut pair.a), carried_out(&pair.a)), (vec![(3, Status::Success)], vec![2]));
}

#[test]
fn alone_it_completes_without_a_packet() {
    for mut pair in [pair(), Pair::uc()] {
        (1..=3).for_each(|id| pair.a.send(id, Operation::Local, 0));
        assert_eq!(pair.a.next(0), None);
        assert_eq!(statuses(&mut pair.a), [1, 2, 3].map(|id| (id, Status::Success)));
        assert_eq!(pair.a.qp.deadline_ns(), None, "nothing to wait for");
        pair.a.send(4, SEND, LEN);
        assert!(pair.a.next(0).is_some());
    }
}

#[test]
fn behind_a_fence_it_waits_for_reads() {
    let mut pair = pair();
    pair.a.send(1, Operation::Read(remote(&pair.b)), 4);
    let data = Data::Memory(&[]);
    let fenced =
        SendRequest { id: 2, operation: Operation::Local, data, signaled: true, solicited: false, fence: true };
    pair.a.qp.post_send(&fenced).expect("posted");
    let asked = pair.a.all(0);
    assert_eq!((asked.len(), carried_out(&pair.a)), (1, vec![]));
    pair.b.take(0, &asked[0]).expect("taken");
    pair.settle(0);
    assert_eq!(statuses(&mut pair.a), [(1, Status::Success), (2, Status::Success)]);
    assert_eq!(carried_out(&pair.a), [2]);
}

/// The sends before it are finished, and those behind it are never sent.
#[test]
fn one_that_is_refused_fails_in_its_turn() {
    let mut pair = pair();
    pair.a.memory.refused = Some(2);
    pair.a.send(1, SEND, LEN);
    pair.a.send(2, Operation::Local, 0);
    pair.a.send(3, SEND, LEN);
    assert_eq!(pair.a.all(0).len(), 1);
    assert!(!pair.a.qp.is_failed());
    pair.a.qp.advance(pair.a.qp.deadline_ns().expect("it waits"));
    pair.settle(0);
    assert_eq!(statuses(&mut pair.a), [(1, Status::Success), (2, Status::LocalRefused), (3, Status::Flushed)]);
    assert!(pair.a.qp.is_failed());
    // On an unreliable connection only the sends fail.
    let mut pair = Pair::uc();
    pair.a.memory.refused = Some(1);
    pair.a.send(1, Operation::Local, 0);
    pair.a.send(2, SEND, LEN);
    assert_eq!(pair.a.next(0), None);
    assert_eq!(statuses(&mut pair.a), [(1, Status::LocalRefused), (2, Status::Flushed)]);
    pair.a.qp.send_again();
    pair.a.send(3, SEND, LEN);
    assert!(pair.a.next(0).is_some());
}

#[test]
fn what_is_held_is_not_carried_out() {
    let mut pair = pair();
    assert!(pair.a.qp.hold());
    pair.a.send(1, Operation::Local, 0);
    assert_eq!((pair.a.next(0), carried_out(&pair.a)), (None, vec![]));
    pair.a.qp.send_again();
    assert_eq!((pair.a.next(0), carried_out(&pair.a)), (None, vec![1]));
}
