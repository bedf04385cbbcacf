//! Many queue pairs in one engine: turns, numbers, deadlines.

use verbline_roce::transport::{Discard, PeerFault, Receives, Receiving, Retries, Sending, Serving, ack_timeout_ns};
use verbline_roce::wire::{Qpn, SendEnd, Syndrome};
use verbline_roce::{CreateError, Data, Engine, Operation, Received, SendRequest, Status};

use crate::pair::{Datagram, Half, PSNS, Pair, QPNS, RIGHTS};
use crate::reliable::said;
use crate::sim::memory::Regions;
use verbline_roce::transport::{Arrival, Capacity, Icrc, QueuePair};
use verbline_roce::wire::HEADERS_MAX_BYTES;
use verbline_roce::{Owner, Right, Sge};

const LEN: u32 = 256 * 20;

/// An engine with that many queue pairs, and their memory for sends.
fn engine(count: u32) -> (Engine, Regions, Sge) {
    let (mut engine, mut memory) = (Engine::new(), Regions::default());
    let (key, addr) = memory.add(7, LEN as usize, &[Right::LocalRead]);
    for number in 0..count {
        let owner = Owner { domain: 7, qpn: Qpn::new(1000 + number) };
        let capacity = Capacity { sends: 4, send_sges: 1, inline_bytes: 0, receive_sges: 1 };
        let mut queue_pair = QueuePair::new(owner, RIGHTS, capacity, Receives::Own(4));
        queue_pair.receive_from(Receiving::Rc(Half::peer_of(0), Serving::default())).expect("new");
        let retries = Retries { timeout: 1 + number as u8 % 8, retry_count: 0, ..Retries::default() };
        queue_pair.start_sending(Sending::Rc(PSNS[0], retries)).expect("receives");
        engine.add(queue_pair).expect("a free number");
    }
    (engine, memory, Sge { addr, len: LEN, key })
}

fn post(engine: &mut Engine, qpn: u32, sge: Sge) {
    let operation = Operation::Send(SendEnd::Plain);
    let data = Data::Memory(&[sge]);
    let request = SendRequest { id: qpn.into(), operation, data, signaled: true, solicited: false, fence: false };
    engine.post_send(Qpn::new(qpn), &request).expect("there").expect("room");
}

#[test]
fn queue_pairs_take_turns() {
    let (mut engine, mut memory, sge) = engine(3);
    (1000..1003).for_each(|qpn| post(&mut engine, qpn, sge));
    let mut out = vec![0; 256 + HEADERS_MAX_BYTES];
    let mut runs = Vec::new();
    while let Some(sent) = engine.transmit(0, &mut memory, &mut out, 0) {
        let packet = verbline_roce::wire::read(&out[..sent.len]).expect("a packet");
        let psn = packet.bth.psn.ahead_of(PSNS[0]);
        if psn % 16 == 0 {
            runs.push(0);
        }
        *runs.last_mut().expect("a run") += 1;
    }
    assert_eq!(runs, [16, 16, 16, 4, 4, 4]);
}

#[test]
fn each_deadline_comes_in_its_time() {
    const COUNT: u32 = 50;
    let (mut engine, mut memory, sge) = engine(COUNT);
    (1000..1000 + COUNT).for_each(|qpn| post(&mut engine, qpn, sge));
    let mut out = vec![0; 256 + HEADERS_MAX_BYTES];
    while engine.transmit(0, &mut memory, &mut out, 0).is_some() {}
    let mut failed = 0;
    while let Some(deadline_ns) = engine.deadline_ns() {
        engine.advance(deadline_ns - 1);
        assert_eq!(engine.poll(), None);
        engine.advance(deadline_ns);
        while let Some((qpn, completion)) = engine.poll() {
            assert_eq!(completion.status, Status::RetryExceeded);
            let code = 1 + (qpn.number() - 1000) as u8 % 8;
            assert_eq!(ack_timeout_ns(code), Some(deadline_ns));
            failed += 1;
        }
    }
    assert_eq!(failed, COUNT);
    // Each is reported once.
    let told: std::collections::HashSet<_> = std::iter::from_fn(|| engine.take_failed()).collect();
    assert_eq!(told.len(), COUNT as usize);
    assert!(told.iter().all(|(_, fault)| fault.is_none()) && engine.take_failed().is_none());
    // So are their incidents.
    let noted: std::collections::HashMap<_, _> = std::iter::from_fn(|| engine.take_noted()).collect();
    assert_eq!((noted.len(), engine.incidents().timeouts), (COUNT as usize, COUNT.into()));
    assert!(noted.values().all(|all| all.timeouts == 1 && all.retransmitted == 0), "{noted:?}");
}

/// Regression: a queue pair whose sends had failed counted as reported for good. Nobody learned
/// that it no longer received either.
#[test]
fn one_whose_sends_failed_is_told_of_again_when_it_fails_as_a_whole() {
    let Pair { mut a, mut b } = Pair::uc();
    a.receive(1, 9);
    a.memory.regions[0] = None;
    a.send(1, Operation::Send(SendEnd::Plain), 10);
    b.send(1, Operation::Send(SendEnd::Plain), 10);
    let sent = b.next(0).expect("a message that is too long");
    let (mut engine, qpn) = (Engine::new(), a.qp.qpn());
    engine.add(a.qp).expect("a free number");
    let told = |engine: &mut Engine| std::iter::from_fn(|| engine.take_failed()).collect::<Vec<_>>();
    engine.with(qpn, |_| ());
    assert_eq!(engine.transmit(0, &mut a.memory, &mut [0; 256 + HEADERS_MAX_BYTES], 0), None);
    assert_eq!(told(&mut engine), [(qpn, None)]);
    let arrival = Arrival { route: sent.route, icrc: Icrc::IpId(0) };
    engine.receive(0, arrival, &sent.bytes, &mut a.memory);
    assert_eq!(told(&mut engine), [(qpn, Some(PeerFault::Request))]);
    assert_eq!(told(&mut engine), []);
}

/// Each failure is told, once, also of a queue pair that was allowed to send again.
#[test]
fn one_that_sends_again_is_told_of_when_it_fails_again() {
    let Pair { mut a, .. } = Pair::uc();
    a.memory.regions[0] = None;
    let (mut engine, qpn) = (Engine::new(), a.qp.qpn());
    engine.add(a.qp).expect("a free number");
    let sge = Sge { addr: a.local.1, len: 9, key: a.local.0 };
    for _ in 0..3 {
        post(&mut engine, qpn.number(), sge);
        assert_eq!(engine.transmit(0, &mut a.memory, &mut [0; 256 + HEADERS_MAX_BYTES], 0), None);
        assert_eq!((engine.take_failed(), engine.take_failed()), (Some((qpn, None)), None));
        assert!(engine.poll().is_some() && engine.poll().is_none());
        engine.with(qpn, QueuePair::send_again);
    }
}

#[test]
fn the_first_that_a_queue_pair_takes_in_is_told() {
    let Pair { mut a, mut b } = Pair::rc(Retries::default(), RIGHTS);
    (0..3).for_each(|id| b.receive(id, 64));
    let (mut engine, qpn) = (Engine::new(), b.qp.qpn());
    engine.add(b.qp).expect("a free number");
    (0..3).for_each(|id| a.send(id, Operation::Send(SendEnd::Plain), 64));
    let sent = a.all(0);
    let memory = &mut b.memory;
    let mut take = |at: usize| {
        let datagram = &sent[at];
        let arrival = Arrival { route: datagram.route, icrc: Icrc::IpId(0) };
        engine.receive(0, arrival, &datagram.bytes, memory)
    };
    // A discarded datagram does not count as taken in.
    assert_eq!(take(1), Received::Discarded(Discard::OutOfOrder));
    let told = (0..3).map(take).collect::<Vec<_>>();
    let taken = |is_first| Received::Taken { qpn, is_first };
    assert_eq!(told, [taken(true), taken(false), taken(false)]);
}

#[test]
fn what_is_for_a_number_of_others_is_told_and_what_is_for_nobody_is_counted() {
    let Pair { mut a, mut b } = Pair::rc(Retries::default(), RIGHTS);
    let (mut engine, qpn) = (Engine::new(), b.qp.qpn());
    a.send(0, Operation::Send(SendEnd::Plain), 64);
    let datagram = a.next(0).expect("sent");
    let arrival = Arrival { route: datagram.route, icrc: Icrc::IpId(0) };
    let mut take = |engine: &mut Engine| match engine.receive(0, arrival, &datagram.bytes, &mut b.memory) {
        Received::Elsewhere(to) => Err(to),
        Received::Discarded(why) => Ok(why),
        other => panic!("{other:?}"),
    };
    assert_eq!(take(&mut engine), Ok(Discard::NoQueuePair), "all numbers are its own");
    engine.own_numbers(0..qpn.number());
    assert_eq!(take(&mut engine), Err(qpn));
    assert_eq!(engine.incidents().discarded(Discard::NoQueuePair), 1, "whose it is, is not known yet");
    engine.count_discarded(Discard::NoQueuePair);
    assert_eq!(engine.take_new_incidents().map(|all| all.discarded(Discard::NoQueuePair)), Some(2));
    engine.own_numbers(qpn.number()..qpn.number() + 1);
    assert_eq!(take(&mut engine), Ok(Discard::NoQueuePair));
    // An existing queue pair is found, whatever its number.
    engine.own_numbers(0..1);
    engine.add(b.qp).expect("a free number");
    assert_eq!(take(&mut engine), Ok(Discard::NoReceive));
}

#[test]
fn a_number_is_one_queue_pairs_until_it_is_removed() {
    let (mut engine, mut memory, sge) = engine(2);
    let half = || Half::new(0, RIGHTS, Receives::Own(1)).qp;
    engine.add(half()).expect("free");
    assert_eq!(engine.add(half()).unwrap_err(), CreateError::Taken(QPNS[0].number()));
    for number in [0, 1, 0xFF_FFFF] {
        let capacity = Capacity { sends: 1, send_sges: 0, inline_bytes: 0, receive_sges: 0 };
        let owner = Owner { domain: 0, qpn: Qpn::new(number) };
        let queue_pair = QueuePair::new(owner, RIGHTS, capacity, Receives::Own(1));
        assert_eq!(engine.add(queue_pair).unwrap_err(), CreateError::Reserved(number));
    }
    post(&mut engine, 1001, sge);
    assert!(engine.remove(Qpn::new(1001)).is_some());
    let mut out = vec![0; 256 + HEADERS_MAX_BYTES];
    assert_eq!(engine.transmit(0, &mut memory, &mut out, 0), None, "what it had to send is gone with it");
    assert_eq!((engine.deadline_ns(), engine.poll()), (None, None));
    assert!(engine.queue_pair(Qpn::new(1001)).is_none() && engine.remove(Qpn::new(1001)).is_none());
    // A queue pair without a peer takes nothing in.
    let mut other = Pair::rc(Retries::default(), RIGHTS).b;
    other.send(1, Operation::Send(SendEnd::Plain), 1);
    let datagram = other.next(0).expect("sent");
    let arrival = Arrival { route: datagram.route, icrc: Icrc::IpId(0) };
    let received = engine.receive(0, arrival, &datagram.bytes, &mut memory);
    assert_eq!(received, Received::Discarded(Discard::NotReady));
}

/// Whatever was to be reported of a queue pair goes with it, and the next one in its place begins
/// anew.
#[test]
fn nothing_is_reported_of_a_queue_pair_that_was_removed() {
    let send = Operation::Send(SendEnd::Plain);
    for case in ["failed", "drained", "noted", "sending", "waiting"] {
        let Pair { mut a, mut b } = Pair::rc(Retries::default(), RIGHTS);
        (1..=2).for_each(|id| a.receive(id, 10));
        b.receive(1, 10);
        a.send(1, send, 10);
        let (mut engine, qpn, mut out) = (Engine::new(), a.qp.qpn(), vec![0; 256 + HEADERS_MAX_BYTES]);
        let sent = if matches!(case, "drained" | "waiting") { a.next(0) } else { None };
        engine.add(a.qp).expect("a free number");
        let arrival = |datagram: &Datagram| Arrival { route: datagram.route, icrc: Icrc::IpId(0) };
        match case {
            "failed" => engine.with(qpn, QueuePair::fail).expect("there"),
            "drained" => {
                assert_eq!(engine.with(qpn, |qp| qp.hold()), Some(false));
                b.take(0, &sent.expect("sent")).expect("taken");
                let answer = b.next(0).expect("an acknowledgement");
                engine.receive(0, arrival(&answer), &answer.bytes, &mut a.memory);
            }
            "noted" => {
                (1..=2).for_each(|id| b.send(id, send, 10));
                let second = b.all(0).pop().expect("two");
                let received = engine.receive(0, arrival(&second), &second.bytes, &mut a.memory);
                assert_eq!(received, Received::Discarded(Discard::OutOfOrder));
            }
            _ => engine.with(qpn, |_| ()).expect("there"),
        }
        let is_there = |engine: &Engine| [engine.has_news(), engine.may_transmit(), engine.deadline_ns().is_some()];
        assert!(is_there(&engine).contains(&true), "{case}");
        assert!(engine.remove(qpn).is_some());
        assert_eq!(is_there(&engine), [false; 3], "{case}");
        engine.add(Half::new(1, RIGHTS, Receives::Own(1)).qp).expect("a free number");
        assert_eq!(is_there(&engine), [false; 3], "{case}");
        let reports = (engine.take_failed(), engine.take_drained(), engine.take_noted(), engine.poll());
        assert_eq!(reports, (None, None, None, None), "{case}");
        assert_eq!(engine.transmit(0, &mut a.memory, &mut out, 0), None, "{case}");
    }
}

/// In every round: no turn is left over from the round before.
#[test]
fn an_answer_leaves_before_the_acknowledgement_whatever_was_sent_before() {
    let Pair { mut a, b } = Pair::rc(Retries::default(), RIGHTS);
    let Half { qp, mut memory, local, .. } = b;
    let (mut engine, mut out, operation) = (Engine::new(), vec![0; 4096], Operation::Send(SendEnd::Plain));
    engine.add(qp).expect("a free number");
    for id in 0..4 {
        let sges = [Sge { addr: local.1, len: 8, key: local.0 }];
        // One alone leaves before.
        a.receive(id, 8);
        let data = Data::Memory(&sges);
        let request = SendRequest { id, operation, data, signaled: true, solicited: false, fence: false };
        engine.post_send(QPNS[1], &request).expect("there").expect("room");
        let sent = engine.transmit(0, &mut memory, &mut out, 0).expect("a message");
        a.take(0, &Datagram { route: sent.route, bytes: out[..sent.len].to_vec() }).expect("taken");
        for datagram in a.all(0) {
            let arrival = Arrival { route: datagram.route, icrc: Icrc::IpId(0) };
            engine.receive(0, arrival, &datagram.bytes, &mut memory);
        }
        a.completions();
        while engine.poll().is_some() {}
        engine.post_receive(QPNS[1], id, &sges).expect("there").expect("room");
        a.receive(id, 8);
        a.send(id, operation, 8);
        for datagram in a.all(0) {
            let arrival = Arrival { route: datagram.route, icrc: Icrc::IpId(0) };
            engine.receive(0, arrival, &datagram.bytes, &mut memory);
        }
        assert!(engine.owes_acknowledgement());
        let data = Data::Memory(&sges);
        let request = SendRequest { id, operation, data, signaled: id % 2 == 0, solicited: false, fence: false };
        engine.post_send(QPNS[1], &request).expect("there").expect("room");
        let (mut answers, mut only) = (Vec::new(), vec![engine.only_acknowledges()]);
        while let Some(sent) = engine.transmit(0, &mut memory, &mut out, 0) {
            answers.push(Datagram { route: sent.route, bytes: out[..sent.len].to_vec() });
            only.push(engine.only_acknowledges());
        }
        assert_eq!(answers.iter().map(said).collect::<Vec<_>>(), [None, Some(Syndrome::ACK)], "{id}");
        assert_eq!(only, [false, true, false], "{id}");
        answers.iter().for_each(|datagram| a.take(0, datagram).expect("taken"));
        for datagram in a.all(0) {
            let arrival = Arrival { route: datagram.route, icrc: Icrc::IpId(0) };
            engine.receive(0, arrival, &datagram.bytes, &mut memory);
        }
        a.completions();
        while engine.poll().is_some() {}
    }
}

/// Neither half of a queue pair waits for the other's last datagram.
#[test]
fn an_acknowledgement_leaves_between_the_packets_of_a_message() {
    let Pair { mut a, b } = Pair::rc(Retries::default(), RIGHTS);
    let Half { qp, mut memory, local, .. } = b;
    let (mut engine, mut out, operation) = (Engine::new(), vec![0; 4096], Operation::Send(SendEnd::Plain));
    engine.add(qp).expect("a free number");
    let sges = [Sge { addr: local.1, len: 700, key: local.0 }];
    engine.post_receive(QPNS[1], 1, &sges).expect("there").expect("room");
    a.send(1, operation, 8);
    let sent = a.next(0).expect("a message");
    let arrival = Arrival { route: sent.route, icrc: Icrc::IpId(0) };
    engine.receive(0, arrival, &sent.bytes, &mut memory);
    let data = Data::Memory(&sges);
    let request = SendRequest { id: 1, operation, data, signaled: true, solicited: false, fence: false };
    engine.post_send(QPNS[1], &request).expect("there").expect("room");
    let mut answers = Vec::new();
    while let Some(sent) = engine.transmit(0, &mut memory, &mut out, 0) {
        answers.push(said(&Datagram { route: sent.route, bytes: out[..sent.len].to_vec() }));
    }
    assert_eq!(answers, [None, Some(Syndrome::ACK), None, None]);
}
