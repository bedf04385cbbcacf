//! Strangers: hosts that know another host's names, which cross the wire in the clear, but not its
//! secret; and hosts that take connections and stay silent.

use std::time::{Duration, Instant};

use crate::common::proving::{OTHER, SECRET, SUCCESS, guarded, key};
use crate::common::{CONNECT, ENTRIES, Host, NAMES, SECOND, SUBSYSTEM, end, plan, start, target, until};
use verbline::verbs::connection::ConnectionError;
use verbline_nvme::auth::{Body, Message, Reason};
use verbline_nvme::cm::{Reject, Request};
use verbline_nvme::connect::{CNTLID_ANY, Connect};
use verbline_nvme::{Command, DISCOVERY_NQN, Response, Sgl, Status, opcode};

fn keep_alive() -> Command {
    Command::new(opcode::admin::KEEP_ALIVE, 0, Sgl::NONE)
}

/// A queue that never proved anything ends alone, and takes no number from its owner, whether the
/// stranger sends anything or nothing.
#[test]
fn a_stranger_on_an_authenticated_controller_ends_itself_alone() {
    let (running, _folder) = guarded(7890);
    let mut victim = Host::new(7890);
    let (admin, cntlid) = victim.proven_controller();
    let (io, _) = victim.candidate(cntlid, 1);
    assert_eq!(victim.prove(io, 2, &key(SECRET)).body, SUCCESS);

    let mut stranger = Host::new(7890);
    // The number of an authenticated queue is taken.
    let (taken, answer) = stranger.candidate(cntlid, 1);
    assert_eq!((answer.status.sc(), answer.result), (0x82, Response::invalid_parameter(42, false)));
    // Five ways to fail on the number that the victim uses next.
    let failure = Message { transaction: 7, body: Body::Failure2(Reason::Failed) };
    let (rude, _) = stranger.candidate(cntlid, 2);
    assert!(stranger.send_message(rude, &failure).status.is_success());
    stranger.wait_cut_off(rude);
    let (liar, _) = stranger.candidate(cntlid, 2);
    assert_eq!(stranger.prove(liar, 8, &key(OTHER)).body, Body::Failure1(Reason::Failed));
    stranger.wait_cut_off(liar);
    let (garbler, _) = stranger.candidate(cntlid, 2);
    assert!(stranger.send_bytes(garbler, &[0xEE; 64], true).status.is_success());
    assert!(stranger.receive(garbler).is_ok());
    stranger.wait_cut_off(garbler);
    let (breaker, _) = stranger.candidate(cntlid, 2);
    stranger.send(breaker, &[1, 2, 3]);
    stranger.wait_cut_off(breaker);
    let (silent, answer) = stranger.candidate(cntlid, 2);
    assert!(answer.status.is_success());

    // While the stranger's last queue exists, the owner gets the number; after that the stranger
    // can't.
    let (second, _) = victim.candidate(cntlid, 2);
    assert_eq!(victim.prove(second, 3, &key(SECRET)).body, SUCCESS);
    assert_eq!(stranger.prove(silent, 9, &key(SECRET)).body, Body::Failure1(Reason::Failed), "it is taken");
    stranger.wait_cut_off(silent);
    drop(stranger);
    std::thread::sleep(Duration::from_millis(300));
    assert!(victim.ask(admin, &keep_alive()).status.is_success());
    victim.assert_served(io);
    victim.assert_served(second);
    let _ = taken;
    victim.vanish();
    end(running);
}

/// Regression: an I/O queue that named the discovery subsystem need not authenticate, and got a
/// place at the controller of a host that must.
#[test]
fn the_name_of_the_discovery_subsystem_is_no_way_around_a_proof() {
    let (running, _folder) = guarded(7950);
    let mut victim = Host::new(7950);
    let (_, cntlid) = victim.proven_controller();
    let mut stranger = Host::new(7950);
    let io = stranger.dial_queue(1);
    let data = stranger.data(cntlid, DISCOVERY_NQN);
    let answer = stranger.connect(io, Connect { qid: 1, ..CONNECT }, &data);
    assert_eq!((answer.status.sc(), answer.result), (0x82, Response::invalid_parameter(16, true)), "{answer:?}");
    assert!(stranger.ask(io, &stranger.read(0, 1)).status.is(Status::SEQUENCE_ERROR), "it is not connected");
    // The number is still its owner's.
    let (own, _) = victim.candidate(cntlid, 1);
    assert_eq!(victim.prove(own, 2, &key(SECRET)).body, SUCCESS);
    end(running);
}

/// A host can't guess the numbers of other controllers from its own.
#[test]
fn controllers_are_not_numbered_in_order() {
    let running = target(7891, "");
    let mut host = Host::new(7891);
    let mut numbers = Vec::new();
    for name in &NAMES[..3] {
        host.name = name;
        numbers.push(host.controller().1);
    }
    // By chance once in 700 million runs.
    let steps: Vec<_> = numbers.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
    assert!(steps.iter().any(|step| !(1..=4).contains(step)), "{numbers:?}");
    end(running);
}

/// All lcores use the controller numbers of the plan, and none twice.
#[test]
fn controllers_are_numbered_within_the_range_of_the_plan() {
    let running = target(7892, "cntlid_min = 1001\ncntlid_max = 1016");
    let mut host = Host::new(7892);
    let mut numbers = Vec::new();
    for name in NAMES {
        host.name = name;
        numbers.push(host.controller().1);
    }
    numbers.sort_unstable();
    numbers.dedup();
    assert!(numbers.len() == 8 && numbers.iter().all(|number| (1001..=1016).contains(number)), "{numbers:?}");
    end(running);
}

/// Silent connections keep their places for the plan's time-out: then the next host gets one.
#[test]
fn silent_connections_give_their_places_back() {
    let timeouts_ms = [1000, 4000, 16_000];
    let enough = timeouts_ms.into_iter().find(|timeout_ms| places_come_back(Duration::from_millis(*timeout_ms)));
    assert!(enough.is_some(), "the machine takes longer than {timeouts_ms:?} ms for nine connections");
}

/// False if the machine did not ask for nine connections within the time-out, so that there was
/// nothing to see.
fn places_come_back(timeout: Duration) -> bool {
    let running = target(7893, &format!("connect_timeout_ms = {}", timeout.as_millis()));
    let began = Instant::now();
    let mut silent = Host::new(7893);
    let request = Request { qid: 0, recv_depth: ENTRIES, send_depth_less_one: ENTRIES - 1, cntlid: 0 };
    let queues: Vec<_> = (0..8).map(|qid| silent.dial(Request { qid, ..request }.to_bytes().to_vec())).collect();
    let queues: Vec<usize> = queues.into_iter().map(|queue| queue.expect("a place is free")).collect();
    // One of them sends a command, but no Connect.
    silent.send(queues[7], &keep_alive().to_bytes());
    let answer = silent.response_within(queues[7], timeout);
    let mut late = Host::new(7893);
    let is_full = late.dial(request.to_bytes().to_vec()).is_err();
    if began.elapsed() >= timeout {
        end(running);
        return false;
    }
    assert!(answer.is_some_and(|answer| answer.status.is(Status::SEQUENCE_ERROR)), "{answer:?}");
    assert!(is_full, "all places are taken");
    queues.into_iter().for_each(|queue| silent.wait_cut_off(queue));
    until(&running, "never_connected", 8);
    // A connected host may be silent for longer.
    let deadline = Instant::now() + Duration::from_secs(20);
    let admin = loop {
        match late.dial(request.to_bytes().to_vec()) {
            Ok(admin) => break admin,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
    };
    let data = late.data(CNTLID_ANY, SUBSYSTEM);
    assert!(late.connect(admin, CONNECT, &data).status.is_success());
    std::thread::sleep(timeout + timeout / 2);
    assert!(late.ask(admin, &keep_alive()).status.is(Status::SEQUENCE_ERROR), "it is there, and not enabled");
    end(running);
    true
}

/// One address has its share of the connections, under any host names; other addresses get the
/// rest.
#[test]
fn an_address_has_no_more_than_its_share() {
    let running = start(&(plan(7894, "address_connections_max = 3")));
    let mut host = Host::new(7894);
    (0..3).for_each(|qid| _ = host.dial_queue(qid));
    let request = Request { qid: 3, recv_depth: ENTRIES, send_depth_less_one: ENTRIES - 1, cntlid: 0 };
    let mut other = Host::new(7894);
    match other.dial(request.to_bytes().to_vec()) {
        Err(ConnectionError::Rejected { private_data, .. }) => {
            assert_eq!(Reject::read(&private_data), Some(Reject::NoResources));
        }
        other => panic!("not rejected: {other:?}"),
    }
    Host::at(7894, 1).dial_queue(3);
    host.vanish();
    let deadline = Instant::now() + Duration::from_secs(20);
    while let Err(error) = other.dial(request.to_bytes().to_vec()) {
        assert!(Instant::now() < deadline, "their places come back: {error}");
    }
    end(running);
}

/// Regression: the queues of one address got all places for commands, and the next host was
/// rejected. By default an address has half of them, but no less than a controller may have: 32 + 2
/// * 32.
#[test]
fn an_address_has_no_more_than_its_share_of_the_commands() {
    for (key, settings, queues) in
        [(7948, "entries_max = 32\nqueues_max = 2\ncommands_max = 112", 6), (7949, "address_commands_max = 32", 2)]
    {
        let running = start(&plan(key, &format!("address_connections_max = 8\n{settings}")));
        let mut host = Host::new(key);
        (0..queues).for_each(|_| _ = host.dial_queue(1));
        let request = Request { qid: 1, recv_depth: ENTRIES, send_depth_less_one: ENTRIES - 1, cntlid: 0 };
        match host.dial(request.to_bytes().to_vec()) {
            Err(ConnectionError::Rejected { private_data, .. }) => {
                assert_eq!(Reject::read(&private_data), Some(Reject::NoResources), "{settings}");
            }
            other => panic!("not rejected: {other:?}"),
        }
        Host::at(key, 1).dial_queue(1);
        host.vanish();
        end(running);
    }
}

/// Of 16 places on two lcores, one address has 9: half would be less than the queues of one
/// controller.
#[test]
fn two_lcores_share_the_places_of_an_address() {
    if std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() < 2) {
        println!("skipped: one CPU");
        return;
    }
    let running = start(&(plan(7895, "") + SECOND));
    let mut host = Host::new(7895);
    (0..9).for_each(|qid| _ = host.dial_queue(qid));
    let request = Request { qid: 1, recv_depth: ENTRIES, send_depth_less_one: ENTRIES - 1, cntlid: 0 };
    assert!(host.dial(request.to_bytes().to_vec()).is_err());
    end(running);
}
