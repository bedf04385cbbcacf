//! Receivers without a receive for a message, and the cost to its sender.

use verbline_roce::Status;
use verbline_roce::transport::{Discard, Retries, ack_timeout_ns, rnr_timer_ns};
use verbline_roce::wire::Syndrome;

use crate::pair::{Pair, RIGHTS, statuses};
use crate::reliable::{SEND, said};

#[test]
fn a_receiver_that_is_not_ready_is_waited_for() {
    for rnr_retry in [0, 2, 7] {
        let mut pair = Pair::rc(Retries { rnr_retry, ..Retries::default() }, RIGHTS);
        pair.a.send(1, SEND, 10);
        let mut now_ns = 0;
        for _ in 0..rnr_retry.clamp(1, 100) {
            let sent = pair.a.all(now_ns);
            assert_eq!(pair.b.take(now_ns, &sent[0]), Err(Discard::NoReceive));
            let naks = pair.b.all(now_ns);
            assert_eq!(said(&naks[0]), Some(Syndrome::RNR | 1));
            pair.a.take(now_ns, &naks[0]).expect("taken");
            if rnr_retry == 0 {
                break;
            }
            assert_eq!(pair.a.qp.deadline_ns(), Some(now_ns + rnr_timer_ns(1)));
            assert!(pair.a.all(now_ns).is_empty(), "it waits");
            now_ns += rnr_timer_ns(1);
            pair.a.qp.advance(now_ns);
        }
        if rnr_retry == 2 {
            let sent = pair.a.all(now_ns);
            pair.b.take(now_ns, &sent[0]).expect_err("no receive");
            let naks = pair.b.all(now_ns);
            pair.a.take(now_ns, &naks[0]).expect("taken");
        }
        if rnr_retry < 7 {
            assert_eq!(statuses(&mut pair.a), [(1, Status::RnrRetryExceeded)]);
        } else {
            pair.b.receive(3, 10);
            pair.settle(now_ns);
            assert_eq!(statuses(&mut pair.a), [(1, Status::Success)]);
        }
    }
    assert_eq!([0, 1, 31].map(rnr_timer_ns), [655_360_000, 10_000, 491_520_000]);
}

/// Regression: the remaining retries were judged before the acknowledgement of the same NAK
/// counted, and the ACK time-out ran on while the peer lacked a receive.
#[test]
fn a_refusal_that_acknowledges_gives_hope_before_it_costs_a_retry() {
    // One receive for two messages: the refusal of the second acknowledges the first.
    let refuse = |pair: &mut Pair, now_ns| {
        pair.b.receive(1, 100);
        pair.a.all(now_ns).iter().for_each(|datagram| _ = pair.b.take(now_ns, datagram));
        pair.b.all(now_ns).iter().for_each(|datagram| pair.a.take(now_ns, datagram).expect("an answer"));
    };
    let mut pair = Pair::rc(Retries { timeout: 1, retry_count: 0, ..Retries::default() }, RIGHTS);
    [1, 2].into_iter().for_each(|id| pair.a.send(id, SEND, 10));
    refuse(&mut pair, 0);
    assert_eq!(statuses(&mut pair.a), [(1, Status::Success)]);
    assert_eq!(pair.a.qp.deadline_ns(), Some(rnr_timer_ns(1)));
    assert!(ack_timeout_ns(1).is_some_and(|timeout_ns| timeout_ns < rnr_timer_ns(1)));
    pair.a.qp.advance(rnr_timer_ns(1));
    assert_eq!((pair.a.qp.is_failed(), pair.a.qp.counters().incidents().timeouts), (false, 0));

    let mut pair = Pair::rc(Retries { rnr_retry: 1, ..Retries::default() }, RIGHTS);
    [1, 2].into_iter().for_each(|id| pair.a.send(id, SEND, 10));
    // None of them finds a receive at first.
    pair.a.all(0).iter().for_each(|datagram| _ = pair.b.take(0, datagram));
    pair.b.all(0).iter().for_each(|datagram| pair.a.take(0, datagram).expect("an answer"));
    for id in [1, 2] {
        let now_ns = id * rnr_timer_ns(1);
        pair.a.qp.advance(now_ns);
        refuse(&mut pair, now_ns);
        assert_eq!(statuses(&mut pair.a), [(id, Status::Success)]);
    }
}
