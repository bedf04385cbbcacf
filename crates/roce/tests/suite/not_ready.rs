//! Receivers without a receive for a message, and the cost to its sender.

use verbline_roce::Status;
use verbline_roce::transport::{Changes, Discard, Retries, Serving, ack_timeout_ns, rnr_timer_ns};
use verbline_roce::wire::Syndrome;

use crate::pair::{Pair, RIGHTS, statuses};
use crate::reliable::{SEND, said};

#[test]
fn a_receiver_that_is_not_ready_is_waited_for() {
    // 7 stands for forever.
    for rnr_retry in 0..=7 {
        let mut pair = Pair::rc(Retries { rnr_retry, ..Retries::default() }, RIGHTS);
        pair.a.send(1, SEND, 10);
        let mut now_ns = 0;
        for refused in 0..if rnr_retry == 7 { 300 } else { u64::from(rnr_retry) + 1 } {
            let sent = pair.a.all(now_ns);
            assert_eq!(pair.b.take(now_ns, &sent[0]), Err(Discard::NoReceive));
            let naks = pair.b.all(now_ns);
            assert_eq!(said(&naks[0]), Some(Syndrome::RNR | 1));
            pair.a.take(now_ns, &naks[0]).expect("taken");
            if rnr_retry < 7 && refused == u64::from(rnr_retry) {
                break;
            }
            assert!(!pair.a.qp.is_failed(), "refused {refused} times of {rnr_retry}");
            assert_eq!(pair.a.qp.deadline_ns(), Some(now_ns + rnr_timer_ns(1)));
            assert!(pair.a.all(now_ns).is_empty(), "it waits");
            // The same refusal again costs nothing, and changes nothing.
            pair.a.take(now_ns + 1, &naks[0]).expect("taken");
            assert_eq!(pair.a.qp.deadline_ns(), Some(now_ns + rnr_timer_ns(1)));
            now_ns += rnr_timer_ns(1);
            pair.a.qp.advance(now_ns);
            let overdue_ns = now_ns + ack_timeout_ns(Retries::default().timeout).expect("a time-out");
            assert_eq!(pair.a.qp.deadline_ns(), Some(overdue_ns), "if nothing can be sent, it is overdue once");
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

/// Regression: lost packets added up over a long wait for a receive, until the retries were used up
/// though the peer had answered in between.
#[test]
fn a_peer_that_refuses_is_there_and_restores_the_retries() {
    let mut pair = Pair::rc(Retries { retry_count: 1, ..Retries::default() }, RIGHTS);
    pair.a.send(1, SEND, 10);
    let mut now_ns = 0;
    for refused in 0..5 {
        assert_eq!(pair.a.all(now_ns).len(), 1, "this one is lost: {refused}");
        now_ns = pair.a.qp.deadline_ns().expect("it is overdue");
        pair.a.qp.advance(now_ns);
        let sent = pair.a.all(now_ns);
        assert_eq!(pair.b.take(now_ns, &sent[0]), Err(Discard::NoReceive), "{refused}");
        let naks = pair.b.all(now_ns);
        pair.a.take(now_ns, &naks[0]).expect("taken");
        now_ns = pair.a.qp.deadline_ns().expect("it waits");
        pair.a.qp.advance(now_ns);
    }
    // Two losses in a row are one too many.
    for lost in 0..2 {
        assert!(!pair.a.qp.is_failed(), "{lost}");
        pair.a.all(now_ns);
        now_ns = pair.a.qp.deadline_ns().expect("it is overdue");
        pair.a.qp.advance(now_ns);
    }
    assert_eq!(statuses(&mut pair.a), [(1, Status::RetryExceeded)]);
}

/// Later packets do not change the refusal of a message without a receive; a wait is five bits.
#[test]
fn of_several_messages_without_a_receive_the_first_is_refused_and_no_packet_is_missing() {
    let mut pair = Pair::rc(Retries { retry_count: 0, ..Retries::default() }, RIGHTS);
    let serving = Serving { reads: 2, rnr_timer: 0x60 | 1, answered_psns: 64 };
    pair.b.qp.change(&Changes { rights: RIGHTS, route: None, serving, retries: Retries::default() });
    (1..=3).for_each(|id| pair.a.send(id, SEND, 10));
    pair.a.all(0).iter().for_each(|datagram| _ = pair.b.take(0, datagram).expect_err("no receive"));
    let naks = pair.b.all(0);
    assert_eq!(naks.iter().map(said).collect::<Vec<_>>(), [Some(Syndrome::RNR | 1)]);
    pair.a.take(0, &naks[0]).expect("taken");
    (1..=3).for_each(|id| pair.b.receive(id, 10));
    pair.a.qp.advance(rnr_timer_ns(1));
    pair.settle(rnr_timer_ns(1));
    assert_eq!(statuses(&mut pair.a), [1, 2, 3].map(|id| (id, Status::Success)));
}

/// Regression: a refusal that came late, of a message that was sent again and has arrived, held up
/// the next ones for its whole wait.
#[test]
fn a_refusal_holds_up_nothing_once_its_message_is_acknowledged() {
    let mut pair = Pair::rc(Retries { timeout: 5, ..Retries::default() }, RIGHTS);
    let serving = Serving { reads: 2, rnr_timer: 0, answered_psns: 64 };
    pair.b.qp.change(&Changes { rights: RIGHTS, route: None, serving, retries: Retries::default() });
    pair.a.send(1, SEND, 10);
    let sent = pair.a.all(0);
    pair.b.take(0, &sent[0]).expect_err("no receive");
    let refusal = pair.b.all(0);
    let now_ns = pair.a.qp.deadline_ns().expect("it waits");
    pair.a.qp.advance(now_ns);
    let again = pair.a.all(now_ns);
    pair.b.receive(1, 10);
    pair.b.receive(2, 10);
    pair.b.take(now_ns, &again[0]).expect("taken");
    pair.a.take(now_ns, &refusal[0]).expect("it is believed");
    pair.a.send(2, SEND, 10);
    assert_eq!(pair.a.all(now_ns), []);
    pair.settle(now_ns);
    assert_eq!(statuses(&mut pair.a), [(1, Status::Success), (2, Status::Success)]);
    assert_eq!(pair.a.qp.deadline_ns(), None);
}
