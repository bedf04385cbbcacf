//! The peer's refusals: every syndrome, and what a requester makes of it.

use verbline_roce::transport::{Discard, PeerFault, Retries, rnr_timer_ns};
use verbline_roce::wire::{Bth, HEADERS_MAX_BYTES, Packet, Rc, Segment, Syndrome};
use verbline_roce::{Operation, Status};

use crate::pair::{Datagram, Half, PSNS, Pair, QPNS, RIGHTS, remote, statuses};
use crate::reliable::{MTU, SEND, said};

/// An acknowledgement that `b` might have sent for packet `number` of `a`.
pub(crate) fn acknowledgement(number: u32, code: u8) -> Datagram {
    let (route, mut bytes) = (Half::peer_of(1).route, vec![0; HEADERS_MAX_BYTES]);
    let segment = Segment::Rc(Rc::Acknowledge(Syndrome { code, msn: 0 }));
    let packet = Packet { bth: Bth::new(QPNS[0], PSNS[0].plus(number)), segment, payload: &[] };
    let len = packet.write(&mut bytes, &route, 0);
    bytes.truncate(len);
    Datagram { route, bytes }
}

/// All 256 syndromes, for the second of three messages: an ACK acknowledges it, and everything else
/// only the first (table 44 of the specification).
#[test]
fn each_syndrome_means_what_the_specification_says() {
    for code in 0..=255 {
        let mut pair = Pair::rc(Retries { rnr_retry: 0, ..Retries::default() }, RIGHTS);
        (1..=3).for_each(|id| pair.a.send(id, SEND, 10));
        let sent = pair.a.all(0);
        let taken = pair.a.take(0, &acknowledgement(1, code));
        let fails = |status| vec![(1, Status::Success), (2, status), (3, Status::Flushed)];
        let (result, ends, again) = match (code >> 5, code & 0x1F) {
            (0, _) => (Ok(()), vec![(1, Status::Success), (2, Status::Success)], 0),
            (1, _) => (Ok(()), fails(Status::RnrRetryExceeded), 0),
            (3, 0) => (Ok(()), vec![(1, Status::Success)], 2),
            (3, 1) => (Ok(()), fails(Status::RemoteInvalidRequest), 0),
            (3, 2) => (Ok(()), fails(Status::RemoteAccess), 0),
            (3, 3) => (Ok(()), fails(Status::RemoteOperation), 0),
            _ => (Err(Discard::Unfitting), vec![(1, Status::Success)], 0),
        };
        assert_eq!((taken, statuses(&mut pair.a)), (result, ends), "{code:#x}");
        assert_eq!(pair.a.all(0), sent[3 - again..][..again], "{code:#x}");
        let all = pair.a.qp.counters().incidents();
        let counted = [all.rnr_naks_received, all.sequence_naks_received, all.fatal_naks_received];
        let expected = match (code >> 5, code & 0x1F) {
            (1, _) => [1, 0, 0],
            (3, 0) => [0, 1, 0],
            (3, 1..=3) => [0, 0, 1],
            _ => [0; 3],
        };
        assert_eq!(counted, expected, "{code:#x}");
    }
    // Each wait of a receiver that is not ready.
    for code in 0x20..0x40 {
        let mut pair = Pair::rc(Retries::default(), RIGHTS);
        pair.a.send(1, SEND, 10);
        pair.a.all(0);
        pair.a.take(5, &acknowledgement(0, code)).expect("taken");
        assert_eq!(pair.a.qp.deadline_ns(), Some(5 + rnr_timer_ns(code & 0x1F)));
    }
}

/// A receive whose own memory is gone is no fault of its peer's request.
#[test]
fn a_receive_without_memory_is_an_error_of_the_remote_operation() {
    let mut pair = Pair::rc(Retries::default(), RIGHTS);
    pair.b.receive(5, 10);
    pair.b.memory.regions[pair.b.local.0 as usize] = None;
    pair.a.send(1, SEND, 10);
    pair.settle(0);
    assert_eq!(statuses(&mut pair.a), [(1, Status::RemoteOperation)]);
    assert_eq!(statuses(&mut pair.b), [(5, Status::LocalProtection)]);
}

/// Nor over an unreliable connection, whose peer isn't told.
#[test]
fn an_unreliable_receive_without_memory_fails_by_its_own_protection() {
    let mut pair = Pair::uc();
    pair.b.receive(5, 10);
    pair.b.memory.regions[pair.b.local.0 as usize] = None;
    pair.a.send(1, SEND, 10);
    pair.settle(0);
    assert_eq!(statuses(&mut pair.a), [(1, Status::Success)]);
    assert_eq!((statuses(&mut pair.b), pair.b.qp.is_failed()), (vec![(5, Status::LocalProtection)], true));
}

/// A send without memory fails once those before it are done, even if it had memory by then.
#[test]
fn a_send_that_could_not_be_carried_out_is_not_tried_again() {
    let mut pair = Pair::rc(Retries::default(), RIGHTS);
    (5..=6).for_each(|id| pair.b.receive(id, 10));
    (1..=2).for_each(|id| pair.a.send(id, SEND, 10));
    let first = pair.a.next(0).expect("the first");
    let memory = pair.a.memory.regions[pair.a.local.0 as usize].take();
    assert_eq!(pair.a.all(0), []);
    pair.a.memory.regions[pair.a.local.0 as usize] = memory;
    assert_eq!(pair.a.all(0), []);
    pair.b.take(0, &first).expect("taken");
    pair.settle(0);
    assert_eq!(statuses(&mut pair.a), [(1, Status::Success), (2, Status::LocalProtection)]);
}

/// A READ was taken, and its memory goes before the answer, or in its midst: its own packet is
/// refused, whatever was taken behind it.
#[test]
fn a_read_whose_memory_goes_before_its_answer_is_refused_itself() {
    for answered in 0..3 {
        let mut pair = Pair::rc(Retries::default(), RIGHTS);
        pair.b.receive(5, 10);
        let read = Operation::Read(remote(&pair.b));
        pair.a.send(1, read, 3 * MTU);
        pair.a.send(2, SEND, 10);
        pair.a.all(0).iter().for_each(|datagram| pair.b.take(0, datagram).expect("taken"));
        let mut answers: Vec<_> = (0..answered).map(|_| pair.b.next(0).expect("data")).collect();
        pair.b.memory.regions[pair.b.remote.0 as usize] = None;
        answers.extend(pair.b.all(0));
        let refusal = answers.last().expect("a refusal");
        assert_eq!(said(refusal), Some(Syndrome::NAK_REMOTE_ACCESS));
        assert_eq!((answers.len(), refusal.packet().bth.psn), (answered + 1, PSNS[0].plus(answered as u32)));
        assert_eq!(pair.b.qp.take_fault(), Some(PeerFault::Access));
        answers.iter().for_each(|datagram| pair.a.take(0, datagram).expect("an answer"));
        assert_eq!(statuses(&mut pair.a), [(1, Status::RemoteAccess), (2, Status::Flushed)], "{answered} answered");
    }
}

/// A sleeper that waits for a solicited completion has to learn of an error
/// (ibv_req_notify_cq(3)).
#[test]
fn a_completion_in_error_is_solicited() {
    let mut pair = Pair::rc(Retries::default(), RIGHTS);
    (1..=2).for_each(|id| pair.a.receive(id, 10));
    (3..=4).for_each(|id| pair.a.send(id, SEND, 10));
    pair.a.qp.fail();
    let completions = pair.a.completions();
    assert!(completions.len() == 4 && completions.iter().all(|completion| completion.solicited), "{completions:?}");
}

/// Moved to ERR by its program, while an answer with data, an acknowledgement, or a NAK is due.
#[test]
fn a_failed_queue_pair_says_nothing_more() {
    let read = |pair: &Pair| Operation::Read(remote(&pair.b));
    let send = |_: &Pair| SEND;
    for (what, operation, skipped) in
        [("an answer", &read as &dyn Fn(&Pair) -> Operation, 0), ("an acknowledgement", &send, 0), ("a NAK", &send, 1)]
    {
        let mut pair = Pair::rc(Retries::default(), RIGHTS);
        pair.b.receive(1, 2 * MTU);
        let operation = operation(&pair);
        pair.a.send(1, operation, 2 * MTU);
        pair.a.all(0).iter().skip(skipped).for_each(|datagram| _ = pair.b.take(0, datagram));
        pair.b.qp.fail();
        assert_eq!(pair.b.all(0), [], "{what}");
    }
}

/// A NAK for a missing packet costs a retry, as a time-out does.
#[test]
fn a_nak_for_a_missing_packet_costs_a_retry() {
    for retry_count in [0, 1, 2] {
        let mut pair = Pair::rc(Retries { timeout: 5, retry_count, ..Retries::default() }, RIGHTS);
        pair.a.send(1, SEND, 10);
        let mut now_ns = 0;
        for left in (0..retry_count).rev() {
            pair.a.all(now_ns);
            if left == 0 {
                pair.a.take(now_ns, &acknowledgement(0, Syndrome::NAK_SEQUENCE)).expect("taken");
            } else {
                now_ns = pair.a.qp.deadline_ns().expect("it waits");
                pair.a.qp.advance(now_ns);
            }
            assert_eq!(statuses(&mut pair.a), [], "{retry_count}");
        }
        pair.a.all(now_ns);
        if retry_count == 0 {
            pair.a.take(now_ns, &acknowledgement(0, Syndrome::NAK_SEQUENCE)).expect("taken");
        } else {
            pair.a.qp.advance(pair.a.qp.deadline_ns().expect("it waits"));
        }
        assert_eq!(statuses(&mut pair.a), [(1, Status::RetryExceeded)], "{retry_count}");
    }
}
