//! Messages that ask for an acknowledgement, and those that don't: no completion waits for them,
//! and they arrive all the same.

use verbline_roce::transport::{Changes, Discard, Retries, Serving, ack_timeout_ns};
use verbline_roce::wire::seal;
use verbline_roce::wire::{Rc, Segment, Syndrome, WriteEnd};
use verbline_roce::{Operation, Status};

use crate::pair::{Datagram, PSNS, Pair, RIGHTS, due, remote, statuses};
use crate::reliable::{MTU, SEND, said};
use crate::sim::for_seeds;

/// The time within which a tail that has not asked is due.
const TAIL_NS: u64 = 1_000_000;

fn pair() -> Pair {
    Pair::rc(Retries::default(), RIGHTS)
}

fn asked(sent: &[Datagram]) -> Vec<bool> {
    sent.iter().map(|datagram| datagram.packet().bth.ack_request).collect()
}

/// A pair whose first message is acknowledged, so that the next one does not come after a pause.
fn begun(retries: Retries, now_ns: u64) -> Pair {
    let mut pair = Pair::rc(retries, RIGHTS);
    pair.b.receive(100, 10);
    pair.a.send(100, SEND, 10);
    pair.settle(now_ns);
    assert_eq!((statuses(&mut pair.a).len(), statuses(&mut pair.b).len()), (1, 1));
    pair
}

#[test]
fn a_stream_has_an_acknowledgement_for_each_signaled_message_and_no_other() {
    let mut pair = begun(Retries::default(), 0);
    let before = pair.b.qp.counters().acks_sent;
    for round in 0..20 {
        for id in 0..4 {
            pair.b.receive(id, 10);
            let now_ns = (round * 4 + id) * 10_000;
            if id < 3 {
                pair.a.send_unsignaled(id, SEND, 10)
            } else {
                pair.a.send(id, SEND, 10)
            }
            let sent = pair.a.all(now_ns);
            assert_eq!(asked(&sent), [id == 3]);
            pair.b.take(now_ns, &sent[0]).expect("taken");
            assert_eq!(pair.b.qp.owes_acknowledgement(), id == 3);
            pair.settle(now_ns);
        }
        assert_eq!((statuses(&mut pair.a), statuses(&mut pair.b).len()), (vec![(3, Status::Success)], 4));
        assert_eq!(pair.a.qp.deadline_ns(), None);
    }
    assert_eq!(pair.b.qp.counters().acks_sent - before, 20);
}

#[test]
fn half_a_window_does_not_go_without_asking() {
    let mut pair = begun(Retries { window_packets: 8, ..Retries::default() }, 0);
    pair.a.send_unsignaled(1, SEND, 7 * MTU);
    pair.a.send_unsignaled(2, SEND, 7 * MTU);
    let sent = pair.a.all(0);
    assert_eq!(asked(&sent), [false, false, false, true, false, false, false, true]);
    pair.b.receive(1, 7 * MTU);
    pair.b.receive(2, 7 * MTU);
    sent.iter().for_each(|datagram| pair.b.take(0, datagram).expect("taken"));
    pair.settle(0);
    assert_eq!(statuses(&mut pair.b).len(), 2);
}

/// The last packet is sent once more, by which the peer finds out what is missing, if anything.
#[test]
fn a_tail_that_has_not_asked_is_asked_for_within_its_time() {
    for lost in [0, 1, 2, 3] {
        let mut pair = begun(Retries::default(), 0);
        for id in 1..3 {
            pair.b.receive(id, 10);
            pair.a.send_unsignaled(id, SEND, 10);
        }
        let sent = pair.a.all(1_000);
        assert_eq!(asked(&sent), [false, false]);
        // Delivers the datagrams whose bits in `lost` are not set.
        for (at, datagram) in sent.iter().enumerate().filter(|(at, _)| lost & (1 << at) == 0) {
            assert_eq!(pair.b.take(1_000, datagram).is_ok(), lost & 1 == 0, "{lost} {at}");
        }
        if lost == 1 {
            // The second reports it itself, at once.
            pair.settle(1_000);
        } else {
            assert_eq!(pair.b.all(1_000), []);
            let now_ns = 1_000 + TAIL_NS;
            let question = due(&mut pair, now_ns);
            let numbers: Vec<_> = question.iter().map(|datagram| datagram.packet().bth.psn).collect();
            assert_eq!((asked(&question), numbers), (vec![true], vec![PSNS[0].plus(2)]));
            _ = pair.b.take(now_ns, &question[0]);
            pair.settle(now_ns);
        }
        assert_eq!(statuses(&mut pair.b), [(1, Status::Success), (2, Status::Success)], "{lost}");
        assert_eq!((pair.a.qp.deadline_ns(), pair.a.completions()), (None, vec![]));
        let [a, b] = [&pair.a, &pair.b].map(|half| *half.qp.counters().incidents());
        let repeated = [0, 2, 0, 2][lost];
        assert_eq!((a.timeouts, a.retransmitted), (0, repeated), "{lost}: a question is no repetition");
        assert_eq!(b.duplicates, 0, "{lost}: what asks is no duplicate");
        assert_eq!(b.discarded(Discard::Duplicate), 0);
    }
}

/// The oldest of them sets the time: while a program keeps on sending, one of these messages asks.
#[test]
fn no_message_goes_on_without_an_answer_because_others_follow() {
    let mut pair = begun(Retries::default(), 0);
    for at in 1..=4 {
        pair.a.send_unsignaled(at, SEND, 10);
        assert_eq!(asked(&pair.a.all(at * TAIL_NS * 9 / 20)), [at == 4], "{at}");
    }
    let mut pair = begun(Retries::default(), 0);
    pair.a.send_unsignaled(1, SEND, 10);
    assert_eq!(asked(&pair.a.all(0)), [false]);
    pair.a.send_unsignaled(2, SEND, 10);
    pair.a.send_unsignaled(3, SEND, 10);
    assert_eq!(asked(&pair.a.all(TAIL_NS)), [false, true], "the last of those that were posted");
}

/// Waiting gains nothing where nothing follows: no question is sent.
#[test]
fn who_sends_now_and_then_asks_with_each_message() {
    let mut pair = pair();
    for at in 0..4 {
        let now_ns = at * TAIL_NS;
        pair.b.receive(at, 1000);
        let is_one_packet = at % 2 == 0;
        pair.a.send_unsignaled(at, SEND, if is_one_packet { MTU } else { 2 * MTU });
        let sent = pair.a.all(now_ns);
        assert_eq!(asked(&sent), if is_one_packet { &[true][..] } else { &[false, true] });
        sent.iter().for_each(|datagram| pair.b.take(now_ns, datagram).expect("taken"));
        pair.settle(now_ns);
        assert_eq!(pair.a.qp.deadline_ns(), None);
    }
}

/// Below an ACK time-out of 4 ms, a quarter of that is a tail's time: also once it has changed.
#[test]
fn a_new_time_out_changes_the_time_of_a_tail() {
    let mut pair = begun(Retries::default(), 0);
    let retries = Retries { timeout: 5, ..Retries::default() };
    pair.a.qp.change(&Changes { rights: RIGHTS, route: None, serving: Serving::default(), retries });
    pair.a.send_unsignaled(1, SEND, 10);
    assert_eq!(asked(&pair.a.all(0)), [false]);
    let tail_ns = ack_timeout_ns(5).expect("a time-out") / 4;
    assert_eq!(asked(&due(&mut pair, tail_ns)), [true]);
}

/// From the question on a probe, the time-out and the retries apply as usual.
#[test]
fn an_unsignaled_send_to_a_peer_that_is_gone_fails() {
    for timeout in [5, 14] {
        let retries = Retries { timeout, retry_count: 2, ..Retries::default() };
        let wait_ns = ack_timeout_ns(timeout).expect("a time-out");
        let tail_ns = TAIL_NS.min(wait_ns / 4);
        let mut pair = begun(retries, 0);
        pair.a.send_unsignaled(1, SEND, 10);
        pair.a.send_unsignaled(2, SEND, 10);
        assert_eq!(pair.a.all(0).len(), 2);
        let question = due(&mut pair, tail_ns);
        assert_eq!(asked(&question), [true], "the question");
        assert_eq!(due(&mut pair, 2 * tail_ns), question, "and the probe");
        let mut now_ns = tail_ns;
        for _ in 0..2 {
            now_ns += wait_ns;
            let again = due(&mut pair, now_ns);
            assert_eq!(asked(&again), [false, true], "what is repeated asks at its end");
        }
        assert_eq!(due(&mut pair, now_ns + wait_ns).len(), 0);
        assert_eq!(statuses(&mut pair.a), [(1, Status::RetryExceeded), (2, Status::Flushed)]);
    }
    // Without a time-out there are one question, one probe, and a wait for their answer.
    let mut pair = begun(Retries { timeout: 0, ..Retries::default() }, 0);
    pair.a.send_unsignaled(1, SEND, 10);
    assert_eq!(pair.a.all(0).len(), 1);
    assert_eq!(due(&mut pair, TAIL_NS).len(), 1);
    assert_eq!((due(&mut pair, 2 * TAIL_NS).len(), pair.a.qp.deadline_ns()), (1, None));
}

#[test]
fn held_sends_ask_at_once_whether_what_was_sent_has_arrived() {
    let mut pair = begun(Retries::default(), 0);
    pair.b.receive(1, 10);
    pair.a.send_unsignaled(1, SEND, 10);
    let sent = pair.a.all(0);
    pair.b.take(0, &sent[0]).expect("taken");
    assert_eq!(pair.a.all(0), []);
    assert!(!pair.a.qp.hold());
    pair.a.send_unsignaled(2, SEND, 10);
    let question = pair.a.all(0);
    assert_eq!((asked(&question), pair.a.all(0)), (vec![true], vec![]));
    assert_eq!(question[0].packet().bth.psn, sent[0].packet().bth.psn);
    _ = pair.b.take(0, &question[0]);
    pair.settle(0);
    assert!(pair.a.qp.hold(), "all that was sent is finished");
    // A message that was sent in part is finished first.
    let mut pair = begun(Retries::default(), 0);
    pair.b.receive(1, 1000);
    pair.a.send_unsignaled(1, SEND, 3 * MTU);
    let first = pair.a.next(0).expect("the first of three");
    pair.a.send_unsignaled(2, SEND, 10);
    assert!(!pair.a.qp.hold());
    pair.b.take(0, &first).expect("taken");
    pair.settle(0);
    assert!(pair.a.qp.hold() && statuses(&mut pair.b).len() == 1);
}

/// The next step can't begin, or complete, before the sent messages are acknowledged.
#[test]
fn what_waits_for_an_acknowledgement_has_it_asked_for_at_once() {
    // A local operation, posted later, or together with the messages before it.
    let mut pair = begun(Retries::default(), 0);
    pair.b.receive(1, 10);
    pair.a.send_unsignaled(1, SEND, 10);
    assert_eq!(pair.a.all(0).iter().map(|datagram| pair.b.take(0, datagram)).collect::<Vec<_>>(), [Ok(())]);
    pair.a.send(2, Operation::Local, 0);
    pair.settle(0);
    assert_eq!(statuses(&mut pair.a), [(2, Status::Success)]);
    pair.a.send_unsignaled(3, SEND, 10);
    pair.a.send(4, Operation::Local, 0);
    assert_eq!(asked(&pair.a.all(0)), [true]);
    // A local operation that nobody waits for does not ask, nor does one without a message before
    // it.
    let mut pair = begun(Retries::default(), 0);
    pair.a.send(1, Operation::Local, 0);
    assert_eq!((pair.a.all(0), statuses(&mut pair.a).len()), (vec![], 1));
    pair.a.send_unsignaled(2, SEND, 10);
    assert_eq!(pair.a.all(0).len(), 1);
    pair.a.send_unsignaled(3, Operation::Local, 0);
    assert_eq!(pair.a.all(0), []);
    // A send whose data can't be read fails once the sends before it are done.
    let mut pair = begun(Retries::default(), 0);
    pair.b.receive(1, 10);
    pair.a.send_unsignaled(1, SEND, 10);
    let own = std::mem::replace(&mut pair.a.local, (0, 1));
    pair.a.send_unsignaled(2, SEND, 10);
    pair.a.local = own;
    pair.settle(0);
    assert_eq!(statuses(&mut pair.a), [(2, Status::LocalProtection)]);
    // A READ whose answer has no room.
    let mut pair = begun(Retries { window_packets: 8, ..Retries::default() }, 0);
    pair.b.receive(1, 5 * MTU);
    pair.a.send_unsignaled(1, SEND, 5 * MTU);
    pair.a.send(2, Operation::Read(remote(&pair.b)), 4 * MTU);
    let sent = pair.a.all(0);
    assert_eq!(asked(&sent), [false, false, false, true, false, true], "five packets, and a question");
    sent.iter().for_each(|datagram| _ = pair.b.take(0, datagram));
    pair.settle(0);
    assert_eq!(statuses(&mut pair.a), [(2, Status::Success)]);
}

/// A queue pair that is about to be destroyed acknowledges everything received, though no packet
/// has asked yet: afterwards it could not.
#[test]
fn who_is_about_to_go_acknowledges_what_has_not_asked() {
    let mut pair = begun(Retries::default(), 0);
    let mut out = [0; 512];
    let last_word = |pair: &mut Pair, out: &mut [u8]| {
        let sent = pair.b.qp.transmit_acknowledgement(out)?;
        let len = seal(out, sent.len, &sent.route, 0);
        Some(Datagram { route: sent.route, bytes: out[..len].to_vec() })
    };
    assert_eq!(last_word(&mut pair, &mut out), None, "all is acknowledged");
    for id in 1..3 {
        pair.b.receive(id, 10);
        pair.a.send_unsignaled(id, SEND, 10);
    }
    pair.a.all(0).iter().for_each(|datagram| pair.b.take(0, datagram).expect("taken"));
    let acknowledgement = last_word(&mut pair, &mut out).expect("two have come");
    assert_eq!((said(&acknowledgement), last_word(&mut pair, &mut out)), (Some(Syndrome::ACK), None));
    pair.a.take(0, &acknowledgement).expect("taken");
    assert!(pair.a.qp.hold() && pair.a.qp.deadline_ns().is_none(), "both are acknowledged");
    // The answer of a READ has acknowledged it.
    let mut pair = begun(Retries::default(), 0);
    pair.a.send(1, Operation::Read(remote(&pair.b)), 10);
    pair.settle(0);
    assert_eq!((last_word(&mut pair, &mut out), statuses(&mut pair.a).len()), (None, 1));
}

/// A program may not do that; but before there were questions, its message was acknowledged.
#[test]
fn data_that_is_gone_is_asked_for_without() {
    let mut pair = begun(Retries::default(), 0);
    pair.b.receive(1, 10);
    pair.a.send_unsignaled(1, SEND, 10);
    assert_eq!(pair.a.all(0).iter().map(|datagram| pair.b.take(0, datagram)).collect::<Vec<_>>(), [Ok(())]);
    pair.a.memory.regions[pair.a.local.0 as usize] = None;
    let question = due(&mut pair, TAIL_NS);
    let first = |datagram: &Datagram| match datagram.segment() {
        Segment::Rc(Rc::Write { first: Some(reth), last: Some(WriteEnd::Plain) }) => Some(reth.len),
        _ => None,
    };
    assert_eq!(question.iter().map(first).collect::<Vec<_>>(), [Some(0)]);
    assert_eq!(pair.b.take(TAIL_NS, &question[0]), Err(Discard::Duplicate));
    pair.settle(TAIL_NS);
    assert!(!pair.a.qp.is_failed() && pair.a.qp.hold(), "it is acknowledged");
}

/// One datagram of many is lost, in either direction: a message that did not ask arrives within the
/// time of a tail.
#[test]
fn one_loss_delays_no_unsignaled_message_for_longer_than_a_tail_is_let_be() {
    for_seeds(300, |seed| {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut pair = begun(Retries::default(), 0);
        let (mut now_ns, mut count, lost) = (0, 0, rng.usize(..60));
        let mut waiting = Vec::new();
        for id in 0..40 {
            now_ns += rng.u64(..TAIL_NS / 4);
            pair.b.receive(id, 10);
            let signaled = id % 4 == 3;
            if signaled {
                pair.a.send(id, SEND, 10)
            } else {
                pair.a.send_unsignaled(id, SEND, 10)
            }
            waiting.push((id, now_ns, u64::MAX));
            let until_ns = if id == 39 || rng.u8(..4) == 0 { now_ns + 4 * TAIL_NS } else { now_ns };
            let mut is_full = true;
            loop {
                pair.a.qp.advance(now_ns);
                loop {
                    let (to_b, to_a) = (pair.a.all(now_ns), pair.b.all(now_ns));
                    if to_b.is_empty() && to_a.is_empty() {
                        break;
                    }
                    let mut arrives = || {
                        count += 1;
                        count != lost
                    };
                    // The last one posted has not asked: no completion waits for the time-out.
                    if let ([one], Some((last, _, limit_ns))) = (&to_b[..], waiting.last_mut())
                        && *last == id
                        && asked(&to_b) == [false]
                    {
                        assert_eq!(one.packet().bth.psn, PSNS[0].plus(1 + id as u32));
                        *limit_ns = TAIL_NS;
                    }
                    to_b.iter().filter(|_| arrives()).for_each(|datagram| _ = pair.b.take(now_ns, datagram));
                    to_a.iter().filter(|_| arrives()).for_each(|datagram| _ = pair.a.take(now_ns, datagram));
                }
                for (id, _) in statuses(&mut pair.b) {
                    let (sent, sent_ns, limit_ns) = waiting.remove(0);
                    assert_eq!(sent, id);
                    assert!(now_ns - sent_ns <= limit_ns, "{id}: {} ns", now_ns - sent_ns);
                }
                // A signaled send keeps its slot until it has completed.
                is_full = signaled && pair.a.completions().is_empty() && is_full;
                match pair.a.qp.deadline_ns() {
                    Some(due_ns) if due_ns <= until_ns || is_full => now_ns = due_ns,
                    _ => break,
                }
            }
            now_ns = now_ns.max(until_ns);
        }
    });
}
