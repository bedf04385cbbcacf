//! Keep-alives: when a silent peer is asked, its answer, and the failure without one.

use verbline_roce::transport::{PeerFault, Retries};
use verbline_roce::wire::{Bth, HEADERS_MAX_BYTES, Packet, ROCE_PORT, Rc, Segment, SendEnd, Syndrome};
use verbline_roce::{Operation, Status};

use crate::pair::{Datagram, Half, PSNS, Pair, QPNS, RIGHTS, statuses};

const S_NS: u64 = 1_000_000_000;
const SEND: Operation = Operation::Send(SendEnd::Plain);

fn pair() -> Pair {
    let mut pair = Pair::rc(Retries::default(), RIGHTS);
    pair.a.qp.keep_alive(0);
    pair
}

/// The datagrams that are sent once it is time.
fn at(pair: &mut Pair, now_ns: u64) -> Vec<Datagram> {
    assert_eq!(pair.a.qp.deadline_ns(), Some(now_ns));
    pair.a.qp.advance(now_ns - 1);
    assert!(pair.a.all(now_ns - 1).is_empty(), "not before it is time");
    pair.a.qp.advance(now_ns);
    pair.a.all(now_ns)
}

/// Before the first message, and after some: a keep-alive uses no number, and leaves no trace at
/// the peer. Regression: it came ten to twenty seconds after the peer's last packet.
#[test]
fn a_silent_peer_is_asked_and_answers_as_of_a_request_that_comes_again() {
    let mut pair = pair();
    let mut heard_ns = 0;
    for sent in 0..3 {
        let now_ns = heard_ns + 10 * S_NS;
        let asked = at(&mut pair, now_ns);
        assert_eq!(asked.len(), 1);
        assert_eq!(asked[0].packet().bth.psn, PSNS[0].plus(sent + (1 << 24) - 1));
        let before = *pair.b.qp.counters().incidents();
        pair.b.take(now_ns, &asked[0]).expect("taken");
        let answers = pair.b.all(now_ns);
        let ports = [&asked[0], &answers[0]].map(|datagram| datagram.route.source_port);
        assert!(asked[0].packet().bth.ack_request);
        assert_eq!(ports, [ROCE_PORT; 2], "firewalls let pass what comes from there");
        assert!(
            matches!(answers[..], [ref one] if matches!(one.segment(), Segment::Rc(Rc::Acknowledge(Syndrome { .. })))),
            "{answers:?}"
        );
        pair.a.take(now_ns, &answers[0]).expect("an answer");
        assert_eq!(*pair.b.qp.counters().incidents(), before, "nothing went wrong");
        assert!(pair.a.all(now_ns).is_empty() && pair.a.completions().is_empty());
        // The peer was heard from: the next keep-alive comes after a pause.
        let due_ns = now_ns + 10 * S_NS;
        let now_ns = now_ns + S_NS;
        assert!(at(&mut pair, now_ns).is_empty());
        pair.b.receive(u64::from(sent), 10);
        pair.a.send(u64::from(sent), SEND, 10);
        let message = pair.a.next(now_ns).expect("a message");
        pair.b.take(now_ns, &message).expect("taken");
        let answer = pair.b.next(now_ns).expect("an acknowledgement");
        let routes = [0, 1].map(|which| Half::peer_of(which).route);
        assert_eq!([message.route, answer.route], routes, "the port of the queue pair");
        pair.a.take(now_ns, &answer).expect("taken");
        pair.settle(now_ns);
        assert_eq!(statuses(&mut pair.a), [(u64::from(sent), Status::Success)]);
        pair.b.completions();
        // Packets that arrived meanwhile count as well.
        assert!(at(&mut pair, due_ns).is_empty());
        heard_ns = now_ns;
    }
    assert_eq!(pair.a.qp.counters().incidents().timeouts, 0);
}

#[test]
fn a_peer_that_does_not_answer_is_gone() {
    let mut pair = pair();
    pair.a.receive(7, 10);
    for asked in 0..10 {
        assert_eq!(at(&mut pair, (10 + asked) * S_NS).len(), 1, "{asked}");
    }
    assert!(!pair.a.qp.is_failed());
    assert!(at(&mut pair, 20 * S_NS).is_empty());
    assert!(pair.a.qp.is_failed());
    assert_eq!(pair.a.qp.take_fault(), Some(PeerFault::Silence));
    assert_eq!((statuses(&mut pair.a), pair.a.qp.deadline_ns()), (vec![(7, Status::Flushed)], None));
    assert_eq!(pair.a.qp.counters().incidents().timeouts, 1);
}

/// Requests under way have time-outs of their own, and one answer to the last keep-alives is
/// enough.
#[test]
fn who_waits_for_an_answer_asks_for_no_other() {
    let mut pair = Pair::rc(Retries { timeout: 0, ..Retries::default() }, RIGHTS);
    pair.a.qp.keep_alive(0);
    pair.a.send(1, SEND, 10);
    assert_eq!(pair.a.all(0).len(), 1);
    assert!(at(&mut pair, 10 * S_NS).is_empty() && at(&mut pair, 20 * S_NS).is_empty());
    let mut pair = self::pair();
    for asked in 0..9 {
        at(&mut pair, (10 + asked) * S_NS);
    }
    let last = at(&mut pair, 19 * S_NS);
    pair.b.take(19 * S_NS, &last[0]).expect("taken");
    let answers = pair.b.all(19 * S_NS);
    pair.a.take(19 * S_NS, &answers[0]).expect("an answer");
    assert!(at(&mut pair, 20 * S_NS).is_empty());
    assert!(!pair.a.qp.is_failed());
}

/// Regression: a datagram that only had the peer's address kept a connection open.
#[test]
fn a_number_that_is_far_away_is_not_the_peers() {
    for (ahead, is_heard) in [(1, true), (1 << 20, false)] {
        let mut pair = pair();
        let (route, bth) = (Half::peer_of(1).route, Bth::new(QPNS[0], PSNS[1].plus(ahead)));
        let segment = Segment::Rc(Rc::Send { first: true, last: Some(SendEnd::Plain) });
        let mut bytes = vec![0; HEADERS_MAX_BYTES];
        let len = Packet { bth, segment, payload: &[] }.write(&mut bytes, &route, 0);
        bytes.truncate(len);
        pair.a.take(S_NS, &Datagram { route, bytes }).expect_err("not the next one");
        pair.a.all(S_NS);
        assert_eq!(at(&mut pair, 10 * S_NS).is_empty(), is_heard, "{ahead}");
    }
}
