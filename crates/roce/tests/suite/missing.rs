//! A missing packet of a reliable connection: who asks for it and when, and what is repeated.

use verbline_roce::transport::{Discard, Retries};
use verbline_roce::wire::{AtomicExtension, AtomicOp, Syndrome};
use verbline_roce::{Operation, Remote, Status};

use crate::pair::{Datagram, Half, PSNS, Pair, RIGHTS, remote, statuses};
use crate::refusals::acknowledgement;
use crate::reliable::{MTU, SEND, pair, said};

#[test]
fn a_missing_packet_is_asked_for_once_and_all_from_there_on_is_sent_again() {
    let mut pair = pair();
    pair.b.receive(9, 2000);
    pair.a.send(1, SEND, 4 * MTU);
    let sent = pair.a.all(0);
    pair.b.take(0, &sent[0]).expect("taken");
    assert_eq!(pair.b.take(0, &sent[2]), Err(Discard::OutOfOrder));
    let naks = pair.b.all(0);
    assert_eq!(pair.b.take(0, &sent[3]), Err(Discard::OutOfOrder));
    assert!(pair.b.all(0).is_empty(), "said once");
    assert_eq!((said(&naks[0]), naks[0].packet().bth.psn), (Some(Syndrome::NAK_SEQUENCE), PSNS[0].plus(1)));
    pair.a.take(0, &naks[0]).expect("taken");
    pair.a.take(0, &naks[0]).expect("the same again changes nothing");
    let again = pair.a.all(0);
    assert_eq!(again, sent[1..]);
    assert_eq!(pair.a.qp.counters().incidents().retransmitted, 3);
    again.iter().for_each(|datagram| pair.b.take(0, datagram).expect("taken"));
    pair.settle(0);
    assert_eq!(statuses(&mut pair.a), [(1, Status::Success)]);
}

/// The peer recognizes a repetition without the packet that it asked for, and asks again: no
/// time-out is needed.
#[test]
fn a_packet_that_is_lost_twice_is_asked_for_twice() {
    let mut pair = pair();
    pair.b.receive(9, 2000);
    pair.a.send(1, SEND, 4 * MTU);
    let sent = pair.a.all(0);
    for time in 0..2 {
        sent[1..].iter().for_each(|datagram| assert_eq!(pair.b.take(0, datagram), Err(Discard::OutOfOrder)));
        let naks = pair.b.all(0);
        assert_eq!(naks.iter().map(said).collect::<Vec<_>>(), [Some(Syndrome::NAK_SEQUENCE)], "{time}");
        pair.a.take(0, &naks[0]).expect("taken");
        assert_eq!(pair.a.all(0), sent, "{time}");
    }
    // A third NAK is one too many.
    sent[1..].iter().for_each(|datagram| assert_eq!(pair.b.take(0, datagram), Err(Discard::OutOfOrder)));
    let nak = pair.b.next(0).expect("it asks");
    pair.a.take(0, &nak).expect("taken");
    assert_eq!((pair.a.all(0), pair.a.qp.counters().incidents().timeouts), (vec![], 0));
    let overdue_ns = pair.a.qp.deadline_ns().expect("it waits");
    pair.a.qp.advance(overdue_ns);
    pair.settle(overdue_ns);
    assert_eq!(statuses(&mut pair.a), [(1, Status::Success)]);
}

/// Each loss narrows the window: the repetition may have no room for all that was under way.
#[test]
fn a_packet_of_a_full_window_that_is_lost_twice_is_asked_for_twice() {
    let mut pair = pair();
    for id in 1..=4 {
        pair.b.receive(id, 30 * MTU);
        pair.a.send(id, SEND, 30 * MTU);
    }
    let sent = pair.a.all(0);
    assert_eq!(sent.len(), 120);
    let mut out = sent.clone();
    for room in [64, 32] {
        out[1..].iter().for_each(|datagram| _ = pair.b.take(0, datagram).expect_err("out of order"));
        let nak = pair.b.next(0).expect("it asks");
        pair.a.take(0, &nak).expect("taken");
        out = pair.a.all(0);
        assert_eq!((out.len(), &out[0]), (room, &sent[0]));
    }
    out.iter().for_each(|datagram| pair.b.take(0, datagram).expect("taken"));
    pair.settle(0);
    assert_eq!(statuses(&mut pair.a), [1, 2, 3, 4].map(|id| (id, Status::Success)));
}

/// Until everything was repeated once, an older NAK may still be under way.
#[test]
fn who_asks_for_each_packet_gets_one_repetition_more() {
    let mut pair = pair();
    pair.b.receive(9, 2000);
    pair.a.send(1, SEND, 4 * MTU);
    let sent = pair.a.all(0);
    assert_eq!(pair.b.take(0, &sent[1]), Err(Discard::OutOfOrder));
    let nak = pair.b.next(0).expect("it asks");
    pair.a.take(0, &nak).expect("taken");
    let first = pair.a.next(0).expect("repeated");
    (0..5).for_each(|_| pair.a.take(0, &nak).expect("taken"));
    let again: Vec<_> = std::iter::once(first).chain(pair.a.all(0)).collect();
    assert_eq!(again, [&sent[..], &sent[..]].concat());
}

/// A NAK that began a repetition before a time-out may begin another one after it.
#[test]
fn after_a_time_out_a_missing_packet_may_be_asked_for_again() {
    let mut pair = pair();
    pair.a.send(1, SEND, 2 * MTU);
    let sent = pair.a.all(0);
    pair.b.take(0, &sent[1]).expect_err("out of order");
    let naks = pair.b.all(0);
    let mut now_ns = 0;
    for _ in 0..3 {
        pair.a.take(now_ns, &naks[0]).expect("taken");
        assert_eq!(pair.a.all(now_ns), sent, "asked for");
        // A further one begins a repetition at the cost of none of the retries.
        pair.a.take(now_ns, &naks[0]).expect("taken");
        assert_eq!(pair.a.all(now_ns), sent, "asked for once more");
        now_ns = pair.a.qp.deadline_ns().expect("it waits");
        pair.a.qp.advance(now_ns);
        assert_eq!(pair.a.all(now_ns), sent, "overdue");
    }
}

/// Each loss is asked for, whichever packets an earlier loss was noticed by: up to those before the
/// present one, and those behind it.
#[test]
fn each_of_several_losses_is_asked_for() {
    for (first, noticed, second) in [(1, 2, 5), (1, 7, 5), (3, 4, 4), (3, 5, 5), (5, 7, 6)] {
        let mut pair = pair();
        pair.b.receive(9, 8 * MTU);
        pair.a.send(1, SEND, 8 * MTU);
        let sent = pair.a.all(0);
        for (expected, lost, noticed) in [(0, first, noticed), (first, second, 7)] {
            sent[expected..lost].iter().for_each(|datagram| pair.b.take(0, datagram).expect("taken"));
            sent[lost + 1..=noticed].iter().for_each(|datagram| _ = pair.b.take(0, datagram).expect_err("ahead"));
            let asked: Vec<_> = pair.b.all(0).iter().map(|nak| (said(nak), nak.packet().bth.psn)).collect();
            let expected = [(Some(Syndrome::NAK_SEQUENCE), PSNS[0].plus(lost as u32))];
            assert_eq!(asked, expected, "{first}, noticed up to {noticed}, and {second}");
        }
    }
}

/// A missing packet of any kind arrives before its NAK has left: the responder asks for the one
/// behind it, which it has dropped, and for nothing else.
#[test]
fn what_arrives_late_is_not_asked_for() {
    let read = |pair: &Pair| Operation::Read(remote(&pair.b));
    for (what, operation) in [("send", &(|_: &Pair| SEND) as &dyn Fn(&Pair) -> Operation), ("read", &read)] {
        let mut pair = pair();
        (0..2).for_each(|id| pair.b.receive(id, 100));
        let operation = operation(&pair);
        pair.a.send(1, operation, 10);
        pair.a.send(2, SEND, 10);
        let sent = pair.a.all(0);
        assert_eq!(pair.b.take(0, &sent[1]), Err(Discard::OutOfOrder));
        pair.b.take(0, &sent[0]).expect("taken");
        let answers = pair.b.all(0);
        let naks = answers.iter().filter(|answer| said(answer) == Some(Syndrome::NAK_SEQUENCE));
        let numbers: Vec<_> = naks.map(|nak| nak.packet().bth.psn).collect();
        assert_eq!(numbers, [sent[1].packet().bth.psn], "{what}");
        answers.iter().for_each(|answer| pair.a.take(0, answer).expect("taken"));
        assert_eq!(pair.a.all(0), [sent[1].clone()], "{what}");
    }
}

/// Regression: a packet that came early was dropped, and the one before it then took back the
/// request for a repetition, and with it the acknowledgement of earlier packets. The sender found
/// out by its time-out, or never without one.
#[test]
fn what_came_early_and_was_dropped_is_asked_for_once_the_others_are_there() {
    for order in [&[1, 0][..], &[0, 2, 1], &[0, 3, 1], &[0, 3, 2, 1], &[2, 0, 3, 1], &[0, 1, 3, 2], &[3, 0, 1]] {
        let count = order.iter().max().map_or(0, |last| last + 1);
        for signaled in 0..1_u32 << count {
            let mut pair = Pair::rc(Retries { timeout: 0, ..Retries::default() }, RIGHTS);
            for id in 0..count {
                let is_signaled = signaled >> id & 1 == 1;
                let send = if is_signaled { Half::send } else { Half::send_unsignaled };
                send(&mut pair.a, id as u64, SEND, 10);
                pair.b.receive(id as u64, 10);
            }
            let sent = pair.a.all(0);
            order.iter().for_each(|at| _ = pair.b.take(0, &sent[*at]));
            pair.settle(0);
            assert_eq!(statuses(&mut pair.b).len(), count, "{order:?} {signaled:#b}");
            assert_eq!(statuses(&mut pair.a).len(), signaled.count_ones() as usize, "{order:?} {signaled:#b}");
        }
    }
}

/// Only one packet is behind the lost one, and shows both times that it was lost.
#[test]
fn the_packet_before_the_last_that_is_lost_twice_is_asked_for_twice() {
    let mut pair = pair();
    pair.b.receive(9, 2 * MTU);
    pair.a.send(1, SEND, 2 * MTU);
    let sent = pair.a.all(0);
    for time in 0..2 {
        assert_eq!(pair.b.take(0, &sent[1]), Err(Discard::OutOfOrder));
        assert_eq!(pair.b.all(0).iter().map(said).collect::<Vec<_>>(), [Some(Syndrome::NAK_SEQUENCE)], "{time}");
    }
}

/// An acknowledgement that comes before the repetition has ended shows that it arrives: an older
/// NAK begins no further one.
#[test]
fn progress_ends_a_repetition_that_was_asked_for_again() {
    let mut pair = pair();
    pair.b.receive(9, 4 * MTU);
    pair.a.send(1, SEND, 4 * MTU);
    let sent = pair.a.all(0);
    pair.b.take(0, &sent[1]).expect_err("out of order");
    let nak = pair.b.next(0).expect("it asks");
    pair.a.take(0, &nak).expect("taken");
    let first = pair.a.next(0).expect("repeated");
    assert_eq!(first, sent[0]);
    pair.a.take(0, &nak).expect("the same again");
    pair.a.take(0, &acknowledgement(0, Syndrome::ACK)).expect("taken");
    assert_eq!(pair.a.all(0), sent[1..], "once");
}

/// An acknowledgement of a later message does not stand for the answer of a READ or an atomic: that
/// was lost, and is asked for at once.
#[test]
fn an_acknowledgement_behind_a_read_means_that_its_answer_was_lost() {
    let add =
        |at: Remote| Operation::Atomic(AtomicExtension { addr: at.addr, rkey: at.rkey, op: AtomicOp::FetchAdd(1) });
    for reads in [&Operation::Read as &dyn Fn(Remote) -> Operation, &add] {
        for overtaking in [Syndrome::ACK, Syndrome::RNR] {
            let mut pair = pair();
            if overtaking == Syndrome::ACK {
                pair.b.receive(9, 10);
            }
            let operation = reads(remote(&pair.b));
            pair.a.send(1, operation, 8);
            pair.a.send(2, SEND, 8);
            let sent = pair.a.all(0);
            sent.iter().for_each(|datagram| _ = pair.b.take(0, datagram));
            let answers = pair.b.all(0);
            assert_eq!(said(&answers[1]).map(|code| code & 0x60), Some(overtaking & 0x60));
            pair.a.take(0, &answers[1]).expect("taken");
            assert_eq!((statuses(&mut pair.a), pair.a.all(0)), (vec![], sent), "{operation:?}");
            assert_eq!(pair.a.qp.counters().incidents().timeouts, 0);
        }
    }
}

/// The window is half as wide after a loss, and grows by a packet with each whole window that
/// arrives.
#[test]
fn the_window_grows_again_after_a_loss() {
    let mut pair = Pair::rc(Retries { window_packets: 32, ..Retries::default() }, RIGHTS);
    for id in 1..=4 {
        pair.b.receive(id, 30 * MTU);
        pair.a.send(id, SEND, 30 * MTU);
    }
    let sent = pair.a.all(0);
    assert_eq!(sent.len(), 32);
    pair.b.take(0, &sent[1]).expect_err("out of order");
    let nak = pair.b.next(0).expect("it asks");
    pair.a.take(0, &nak).expect("taken");
    for room in [16, 17, 18] {
        let sent = pair.a.all(0);
        assert_eq!(sent.len(), room);
        sent.iter().for_each(|datagram| pair.b.take(0, datagram).expect("taken"));
        pair.b.all(0).iter().for_each(|datagram| pair.a.take(0, datagram).expect("taken"));
    }
}

/// Of equal atomics each has an answer of its own, also when it is asked for again.
#[test]
fn each_of_two_equal_atomics_has_its_own_answer_again() {
    let mut pair = pair();
    let at = remote(&pair.b);
    let add = Operation::Atomic(AtomicExtension { addr: at.addr, rkey: at.rkey, op: AtomicOp::FetchAdd(1) });
    (0..2).for_each(|id| pair.a.send(id, add, 8));
    let asked = pair.a.all(0);
    asked.iter().for_each(|datagram| pair.b.take(0, datagram).expect("taken"));
    let answers = pair.b.all(0);
    for (again, answer) in asked.iter().zip(&answers) {
        assert_eq!(pair.b.take(0, again), Err(Discard::Duplicate));
        assert_eq!(pair.b.all(0).iter().map(Datagram::segment).collect::<Vec<_>>(), [answer.segment()]);
    }
    assert_ne!(answers[0].segment(), answers[1].segment());
}

/// Brings datagrams to A; returns how many it took.
fn bring(pair: &mut Pair, answers: &[Datagram]) -> usize {
    answers.iter().filter(|answer| pair.a.take(0, answer).is_ok()).count()
}

/// Regression: the answer of a READ that was lost twice came after the time-out only.
#[test]
fn an_answer_that_is_lost_twice_is_asked_for_twice() {
    // A READ of several packets; and one of a packet, before a SEND whose acknowledgement arrives.
    for (packets, sends, lost) in [(4, 0, 1), (4, 0, 2), (1, 1, 1)] {
        let mut pair = pair();
        pair.b.receive(9, 10);
        pair.a.send(1, Operation::Read(remote(&pair.b)), packets * MTU);
        (0..sends).for_each(|_| pair.a.send(2, SEND, 10));
        for time in 0..3 {
            let asked = pair.a.all(0);
            assert_eq!(asked.len(), 1 + sends, "{time}");
            asked.iter().for_each(|datagram| assert_eq!(pair.b.take(0, datagram).is_ok(), time == 0));
            if time < 2 {
                let answers = pair.b.all(0);
                assert_eq!(answers.len(), packets as usize + sends);
                assert_eq!(bring(&mut pair, &answers[lost..]), sends, "acknowledgements");
            }
        }
        pair.settle(0);
        let done = [(1, Status::Success), (2, Status::Success)];
        assert_eq!(statuses(&mut pair.a), done[..1 + sends], "{packets} {lost}");
        assert_eq!(pair.a.qp.counters().incidents().timeouts, 0);
    }
}

/// The request was lost, and then the beginning of its answer. A third loss is one too many.
#[test]
fn an_answer_to_a_repeated_request_that_is_lost_is_asked_for_once() {
    let mut pair = pair();
    pair.b.receive(9, 10);
    pair.a.send(1, Operation::Read(remote(&pair.b)), 3 * MTU);
    pair.a.send(2, SEND, 10);
    let asked = pair.a.all(0);
    pair.b.take(0, &asked[1]).expect_err("ahead");
    let nak = pair.b.next(0).expect("it asks");
    pair.a.take(0, &nak).expect("taken");
    for time in 0..2 {
        assert_eq!(pair.a.all(0), asked, "{time}");
        asked.iter().for_each(|datagram| assert_eq!(pair.b.take(0, datagram).is_ok(), time == 0));
        let answers = pair.b.all(0);
        assert_eq!(bring(&mut pair, &answers[1..]), 1, "the acknowledgement of the SEND");
    }
    assert_eq!((pair.a.all(0), pair.a.qp.counters().incidents().timeouts), (vec![], 0));
    let overdue_ns = pair.a.qp.deadline_ns().expect("it waits");
    pair.a.qp.advance(overdue_ns);
    pair.settle(overdue_ns);
    assert_eq!(statuses(&mut pair.a), [(1, Status::Success), (2, Status::Success)]);
}

/// Answers in their order are of the first request, which was repeated for the first of them.
#[test]
fn later_answers_to_the_first_request_ask_for_nothing() {
    let mut pair = pair();
    pair.a.send(1, Operation::Read(remote(&pair.b)), 6 * MTU);
    let asked = pair.a.all(0);
    pair.b.take(0, &asked[0]).expect("taken");
    let answers = pair.b.all(0);
    assert_eq!(bring(&mut pair, &answers[1..3]), 0);
    assert_eq!(pair.a.next(0).as_ref(), Some(&asked[0]));
    assert_eq!((bring(&mut pair, &answers[3..]), pair.a.all(0)), (0, vec![]));
    // Before the repetition has left, nothing can be its answer.
    let mut pair = self::pair();
    pair.a.send(1, Operation::Read(remote(&pair.b)), 6 * MTU);
    let asked = pair.a.all(0);
    pair.b.take(0, &asked[0]).expect("taken");
    let answers = pair.b.all(0);
    assert_eq!(bring(&mut pair, &[&answers[2..], &answers[1..]].concat()), 0);
    assert_eq!(pair.a.all(0), asked, "once");
}

/// By one packet for each window that has arrived, in however many acknowledgements.
#[test]
fn the_window_grows_by_what_has_arrived_and_not_by_what_was_told() {
    let mut pair = pair();
    (1..=4).for_each(|id| pair.a.send(id, SEND, 30 * MTU));
    pair.a.all(0);
    let mut now_ns = 0;
    for room in [64, 32, 16] {
        now_ns = pair.a.qp.deadline_ns().expect("it waits");
        pair.a.qp.advance(now_ns);
        assert_eq!(pair.a.all(now_ns).len(), room);
    }
    for number in 0..50 {
        pair.a.take(now_ns, &acknowledgement(number, Syndrome::ACK)).expect("taken");
        let is_whole = [15, 15 + 17, 15 + 17 + 18].contains(&number);
        assert_eq!(pair.a.all(now_ns).len(), 1 + usize::from(is_whole), "{number}");
    }
}
