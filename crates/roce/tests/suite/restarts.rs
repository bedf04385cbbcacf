//! A peer that restarts with its old numbers: requests under way end in error, and nothing is
//! received twice.

use verbline_roce::transport::Retries;
use verbline_roce::wire::SendEnd;
use verbline_roce::{Completed, Operation, Status};

use crate::pair::{Pair, RIGHTS};

const SEND: Operation = Operation::Send(SendEnd::Plain);

fn pair() -> Pair {
    Pair::rc(Retries { timeout: 5, ..Retries::default() }, RIGHTS)
}

/// Carries datagrams both ways, and lets time pass, until neither side waits.
fn run(pair: &mut Pair) {
    let mut now_ns = 0;
    for _ in 0..100 {
        pair.settle(now_ns);
        let due = [pair.a.qp.deadline_ns(), pair.b.qp.deadline_ns()];
        let Some(at_ns) = due.into_iter().flatten().min() else { return };
        now_ns = now_ns.max(at_ns);
        pair.a.qp.advance(now_ns);
        pair.b.qp.advance(now_ns);
    }
    panic!("it never ends");
}

/// The statuses of the sends, and the number of receives.
fn outcome(pair: &mut Pair) -> [(Vec<(u64, Status)>, usize); 2] {
    [&mut pair.a, &mut pair.b].map(|half| {
        let (received, sent): (Vec<_>, Vec<_>) = half
            .completions()
            .into_iter()
            .filter(|done| done.status != Status::Flushed)
            .partition(|done| matches!(done.completed, Completed::Receive(_)));
        (sent.iter().map(|done| (done.id, done.status)).collect(), received.len())
    })
}

/// A pair after some messages each way, with a new queue pair at the other end.
fn restarted() -> Pair {
    let mut pair = pair();
    for id in 0..3 {
        pair.a.receive(id, 100);
        pair.b.receive(id, 100);
        pair.a.send(id, SEND, 10);
        pair.b.send(id, SEND, 10);
        pair.settle(0);
    }
    let all = (0..3).map(|id| (id, Status::Success)).collect::<Vec<_>>();
    assert_eq!(outcome(&mut pair), [(all.clone(), 3), (all, 3)]);
    pair.b = self::pair().b;
    for half in [&mut pair.a, &mut pair.b] {
        half.receive(7, 100);
    }
    pair
}

#[test]
fn what_is_sent_to_it_fails_and_is_not_received() {
    let mut pair = restarted();
    pair.a.send(9, SEND, 10);
    run(&mut pair);
    assert_eq!(outcome(&mut pair), [(vec![(9, Status::RetryExceeded)], 0), (vec![], 0)]);
}

#[test]
fn what_it_sends_fails_and_is_not_received_again() {
    let mut pair = restarted();
    pair.b.send(9, SEND, 10);
    run(&mut pair);
    assert_eq!(outcome(&mut pair), [(vec![], 0), (vec![(9, Status::RetryExceeded)], 0)]);
}

#[test]
fn both_ends_fail_that_send_at_once() {
    let mut pair = restarted();
    pair.a.send(9, SEND, 10);
    pair.b.send(9, SEND, 10);
    run(&mut pair);
    let failed = vec![(9, Status::RetryExceeded)];
    assert_eq!(outcome(&mut pair), [(failed.clone(), 0), (failed, 0)]);
}
