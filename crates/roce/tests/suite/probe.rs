//! The loss of the last packet under way, or of its answer: it is noticed long before the ACK
//! time-out. What that costs a peer that is slow, gone, or without a receive.

use verbline_roce::transport::{Discard, Mtu, Retries, ack_timeout_ns, rnr_timer_ns};
use verbline_roce::wire::{AtomicExtension, AtomicOp, Rc, Reth, Segment, WriteEnd};
use verbline_roce::{Operation, Status};

use crate::pair::{Datagram, PSNS, Pair, RIGHTS, due, remote, statuses};
use crate::reliable::{MTU, SEND};
use crate::sim::for_seeds;
use crate::sim::network::Faults;
use crate::sim::world::World;

/// The wait for an answer, if the peer's answers before came at once.
const WAIT_NS: u64 = 1_000_000;

/// A pair whose first message was acknowledged after that time.
fn begun(retries: Retries, round_trip_ns: u64) -> Pair {
    let mut pair = Pair::rc(retries, RIGHTS);
    exchange(&mut pair, 0, round_trip_ns);
    pair
}

/// Sends a message of one packet at a time, and takes its acknowledgement later.
fn exchange(pair: &mut Pair, now_ns: u64, round_trip_ns: u64) {
    pair.b.receive(100, 10);
    pair.a.send(100, SEND, 10);
    let sent = pair.a.all(now_ns);
    pair.b.take(now_ns, &sent[0]).expect("taken");
    let answers = pair.b.all(now_ns);
    pair.a.take(now_ns + round_trip_ns, &answers[0]).expect("taken");
    assert_eq!((statuses(&mut pair.a).len(), statuses(&mut pair.b).len()), (1, 1));
}

fn asks(datagram: &Datagram) -> bool {
    datagram.packet().bth.ack_request
}

/// Whether it is a WRITE of no bytes.
fn is_nothing(datagram: &Datagram) -> bool {
    let nothing = Reth { addr: 0, rkey: 0, len: 0 };
    datagram.segment() == Segment::Rc(Rc::Write { first: Some(nothing), last: Some(WriteEnd::Plain) })
}

/// The operations, each with its length.
fn operations(pair: &Pair) -> [(Operation, u32); 6] {
    let at = remote(&pair.b);
    let add = AtomicExtension { addr: at.addr, rkey: at.rkey, op: AtomicOp::FetchAdd(1) };
    let write = Operation::Write(at, WriteEnd::Plain);
    let read = Operation::Read(at);
    [(SEND, 10), (SEND, 3 * MTU), (write, 10), (read, 10), (read, 3 * MTU), (Operation::Atomic(add), 8)]
}

/// All datagrams of one message are lost, or all of its answer, or only the last one of them.
#[test]
fn a_lost_end_is_noticed_within_a_millisecond_whatever_it_is() {
    for which in 0..6 {
        for (is_answer, is_all) in [(false, true), (true, true), (false, false), (true, false)] {
            let mut pair = begun(Retries::default(), 0);
            let (operation, len) = operations(&pair)[which];
            let what = format!("{operation:?}, {len} bytes; answer: {is_answer}, all: {is_all}");
            pair.b.receive(9, len);
            pair.a.send(1, operation, len);
            let mut sent = pair.a.all(0);
            let end = |of: &[Datagram]| if is_all { 0 } else { of.len() - 1 };
            if !is_answer {
                sent.truncate(end(&sent));
            }
            sent.iter().for_each(|datagram| pair.b.take(0, datagram).expect("taken"));
            let mut answers = pair.b.all(0);
            if is_answer {
                answers.truncate(end(&answers));
            }
            answers.iter().for_each(|datagram| pair.a.take(0, datagram).expect("taken"));
            let probe = due(&mut pair, WAIT_NS);
            assert_eq!((probe.len(), asks(&probe[0])), (1, true), "{what}");
            let is_read = matches!(operation, Operation::Read(_) | Operation::Atomic(_));
            assert_eq!(is_nothing(&probe[0]), is_read, "{what}: no second answer is asked for");
            _ = pair.b.take(WAIT_NS, &probe[0]);
            pair.settle(WAIT_NS);
            assert_eq!(statuses(&mut pair.a), [(1, Status::Success)], "{what}");
            let received = if operation == SEND { &[(9, Status::Success)][..] } else { &[] };
            assert_eq!(statuses(&mut pair.b), received, "{what}: once");
            assert_eq!(pair.a.qp.counters().incidents().timeouts, 0);
            assert!(pair.a.qp.counters().incidents().retransmitted > 0, "it counts as sent again");
            if let Operation::Atomic(_) = operation {
                assert_eq!(pair.b.memory.bytes(pair.b.remote.0, pair.b.remote.1, 8), 1_u64.to_ne_bytes(), "once");
            }
            assert_eq!(pair.a.qp.deadline_ns(), None);
        }
    }
}

/// Whatever datagram of many is lost, in either direction, and whatever is posted: no time-out is
/// needed.
#[test]
fn one_loss_waits_for_no_time_out() {
    for_seeds(300, |seed| {
        let mut world = World::new(seed, 2, Faults::default());
        let timeout = world.rng.u8(8..14);
        let window_packets = [2, 3, 8, 128][world.rng.usize(..4)];
        let retries = Retries { timeout, window_packets, ..Retries::default() };
        let mtu = [Mtu::B256, Mtu::B1024][world.rng.usize(..2)];
        world.connect([0, 1], mtu, retries, 30);
        world.programs();
        // Eight that are all local operations, which need no answer, are as good as impossible.
        while world.ends.iter().any(|end| end.side.succeeded < 8) {
            assert!(world.step(), "nothing is lost yet");
        }
        world.network.loses_at = Some(world.rng.u64(1..100));
        world.run();
        for host in &world.hosts {
            assert_eq!(host.engine.incidents().timeouts, 0);
        }
        assert!(world.ends.iter().all(|end| end.arriving.is_empty() && end.side.statuses.is_empty()));
    });
}

/// It costs a peer that doesn't answer one packet, and this end no retry.
#[test]
fn a_peer_that_is_gone_is_probed_once_and_given_up_as_before() {
    for which in 0..6 {
        let timeout_ns = ack_timeout_ns(14).expect("a time-out");
        let mut pair = begun(Retries { retry_count: 2, ..Retries::default() }, 0);
        let (operation, len) = operations(&pair)[which];
        pair.a.send(1, operation, len);
        let sent = pair.a.all(0);
        assert_eq!(due(&mut pair, WAIT_NS).len(), 1);
        for retry in 1..=2 {
            let again = due(&mut pair, retry * timeout_ns);
            assert_eq!(again, sent, "a repetition, and no probe");
        }
        assert_eq!(due(&mut pair, 3 * timeout_ns), []);
        assert_eq!(statuses(&mut pair.a), [(1, Status::RetryExceeded)]);
    }
    // A thread that slept through both times sends the repetition alone.
    let mut pair = begun(Retries::default(), 0);
    pair.a.send(1, SEND, 10);
    let sent = pair.a.all(0);
    let late_ns = ack_timeout_ns(14).expect("a time-out");
    pair.a.qp.advance(late_ns);
    assert_eq!(pair.a.all(late_ns), sent);
    // Without a time-out the probe is all that there is.
    let mut pair = begun(Retries { timeout: 0, ..Retries::default() }, 0);
    pair.a.send(1, SEND, 10);
    assert_eq!(pair.a.all(0).len(), 1);
    assert_eq!((due(&mut pair, WAIT_NS).len(), pair.a.qp.deadline_ns()), (1, None));
}

/// After progress, a peer that falls silent again gets another probe.
#[test]
fn what_was_acknowledged_since_allows_another_probe() {
    let mut pair = begun(Retries::default(), 1_000);
    (1..=2).for_each(|id| pair.b.receive(id, 10));
    (1..=2).for_each(|id| pair.a.send(id, SEND, 10));
    let sent = pair.a.all(0);
    pair.b.take(0, &sent[0]).expect("taken");
    assert_eq!((pair.b.all(0).len(), due(&mut pair, WAIT_NS)), (1, vec![sent[1].clone()]), "both are lost");
    let mut now_ns = WAIT_NS;
    // The acknowledgement of the first comes late.
    pair.a.take(now_ns, &crate::refusals::acknowledgement(1, verbline_roce::wire::Syndrome::ACK)).expect("taken");
    now_ns += WAIT_NS;
    // By now a round trip has taken a millisecond once, which counts as an eighth.
    assert_eq!(due(&mut pair, now_ns), [sent[1].clone()]);
    pair.b.take(now_ns, &sent[1]).expect("taken");
    pair.settle(now_ns);
    assert_eq!(statuses(&mut pair.a), [(1, Status::Success), (2, Status::Success)]);
}

/// Nothing is known of a peer that has acknowledged nothing: it may just be starting.
#[test]
fn before_the_first_acknowledgement_only_the_time_out_counts() {
    let mut pair = Pair::rc(Retries::default(), RIGHTS);
    pair.a.send(1, SEND, 10);
    assert_eq!(pair.a.all(0).len(), 1);
    assert_eq!(due(&mut pair, ack_timeout_ns(14).expect("a time-out")).len(), 1);
}

/// A peer that lacks a receive has answered.
#[test]
fn a_peer_without_a_receive_is_not_probed_while_it_is_waited_for() {
    let mut pair = begun(Retries::default(), 0);
    pair.a.send(1, SEND, 10);
    let sent = pair.a.all(0);
    pair.b.take(0, &sent[0]).expect_err("no receive");
    let refusals = pair.b.all(0);
    pair.a.take(0, &refusals[0]).expect("taken");
    let wait_ns = rnr_timer_ns(1);
    assert!(wait_ns < WAIT_NS);
    assert_eq!(due(&mut pair, wait_ns), sent, "the repetition");
    assert_eq!(due(&mut pair, wait_ns + WAIT_NS), sent, "which was lost, and is probed for");
}

/// The wait adapts: a loaded peer gets fewer probes than messages, and then none.
#[test]
fn a_slow_peer_is_probed_less_and_less() {
    let (round_trip_ns, mut now_ns, mut probes) = (3_000_000, 0, Vec::new());
    let mut pair = begun(Retries::default(), 20_000);
    for _ in 0..100 {
        now_ns += 10_000_000;
        pair.b.receive(100, 10);
        pair.a.send(100, SEND, 10);
        let mut sent = pair.a.all(now_ns);
        let due_ns = pair.a.qp.deadline_ns().filter(|due_ns| *due_ns < now_ns + round_trip_ns);
        if let Some(due_ns) = due_ns {
            sent.extend(due(&mut pair, due_ns));
        }
        probes.push(sent.len() - 1);
        // It comes to both at once, and answers once: what comes twice is acknowledged again.
        let taken: Vec<_> = sent.iter().map(|datagram| pair.b.take(now_ns, datagram)).collect();
        assert_eq!(taken, [Ok(()), Err(Discard::Duplicate)][..sent.len()]);
        now_ns += round_trip_ns;
        pair.settle(now_ns);
        assert_eq!((statuses(&mut pair.a).len(), statuses(&mut pair.b).len()), (1, 1));
    }
    let first = probes.iter().take_while(|count| **count == 1).count();
    assert!((1..5).contains(&first) && probes[first..].iter().all(|count| *count == 0), "{probes:?}");
    // The answer of a READ that comes late is not asked for a second time.
    let mut pair = begun(Retries::default(), 20_000);
    pair.a.send(1, Operation::Read(remote(&pair.b)), 4 * MTU);
    let mut sent = pair.a.all(30_000);
    sent.extend(due(&mut pair, 30_000 + WAIT_NS));
    assert_eq!(sent.iter().map(is_nothing).collect::<Vec<_>>(), [false, true]);
    sent.iter().for_each(|datagram| _ = pair.b.take(2 * WAIT_NS, datagram));
    let answers = pair.b.all(2 * WAIT_NS);
    assert_eq!(answers.len(), 4 + 1, "its packets, and an acknowledgement");
    answers.iter().for_each(|datagram| _ = pair.a.take(2 * WAIT_NS, datagram));
    assert_eq!((statuses(&mut pair.a), pair.a.all(2 * WAIT_NS)), (vec![(1, Status::Success)], vec![]));
}

/// A peer that pauses now and then answers both the packet and its probe. The wait doubles each
/// time, and halves again with each probe that was needed.
#[test]
fn a_peer_that_pauses_now_and_then_gets_few_probes() {
    // No time-out is sooner than a probe.
    let mut pair = begun(Retries { timeout: 0, ..Retries::default() }, 1_000);
    let (mut now_ns, mut waits) = (0, Vec::new());
    let mut one = |pair: &mut Pair, pause_ns: u64, is_lost: bool| {
        // Quick answers in between keep the usual time short.
        for _ in 0..40 {
            now_ns += 10_000;
            exchange(pair, now_ns, 1_000);
        }
        now_ns += 10_000;
        pair.b.receive(100, 10);
        pair.a.send(100, SEND, 10);
        let sent = pair.a.all(now_ns);
        let due_ns = pair.a.qp.deadline_ns().filter(|due_ns| *due_ns <= now_ns + pause_ns);
        let probe = due_ns.map(|due_ns| due(pair, due_ns));
        waits.push(due_ns.map_or(0, |due_ns| (due_ns - now_ns) / WAIT_NS));
        now_ns += pause_ns;
        for datagram in sent[usize::from(is_lost)..].iter().chain(probe.iter().flatten()) {
            _ = pair.b.take(now_ns, datagram);
            pair.settle(now_ns);
        }
        assert_eq!((statuses(&mut pair.a).len(), statuses(&mut pair.b).len()), (1, 1));
    };
    (0..5).for_each(|_| one(&mut pair, 5_000_000, false));
    (0..4).for_each(|_| one(&mut pair, 9_000_000, true));
    (0..8).for_each(|_| one(&mut pair, 99_000_000, false));
    assert_eq!(waits, [1, 2, 4, 0, 0, 8, 8, 4, 2, 1, 2, 4, 8, 16, 32, 64, 64]);
}

/// Below an ACK time-out of 4 ms, a quarter of that is the wait; it is never longer than the
/// time-out.
#[test]
fn a_short_time_out_shortens_the_wait() {
    let mut pair = begun(Retries { timeout: 5, ..Retries::default() }, 0);
    pair.a.send(1, SEND, 10);
    let sent = pair.a.all(0);
    let timeout_ns = ack_timeout_ns(5).expect("a time-out");
    assert_eq!((due(&mut pair, timeout_ns / 4), sent[0].packet().bth.psn), (sent.clone(), PSNS[0].plus(1)));
    let mut pair = begun(Retries { timeout: 5, ..Retries::default() }, timeout_ns / 3);
    pair.a.send(1, SEND, 10);
    let sent = pair.a.all(WAIT_NS);
    assert_eq!(due(&mut pair, WAIT_NS + timeout_ns), sent, "the time-out itself");
    assert_eq!(pair.a.qp.counters().incidents().timeouts, 1);
}
