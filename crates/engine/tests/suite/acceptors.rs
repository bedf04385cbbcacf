//! Acceptors of a port that takes many peers, on the software RNIC: how they see a request, their
//! answers, and the consequences for the peer, the stages and the report.
//!
//! Each test has a port number of its own: the software RNICs share one set of listeners.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use crate::common::desk;
use crate::common::peers::Peers;
use crate::common::porter::{self, Seen};
use crate::common::{OUT, PATIENCE, assert_clean, plan, registry, until};
use verbline_engine::{
    Answer, ConnectionChange, ConnectionEvent, ConnectionPeer, ConnectionsReport, Ended, EngineError, Outputs,
    Registry, Report, Running, Runtime, Stage, StageSpec,
};
use verbline_mem::Batch;
use verbline_verbs::connection::{ConnectOptions, ConnectionError};

/// The peers that the stage was told of.
type Told = Arc<Mutex<Vec<ConnectionPeer>>>;

/// Answers each packet, and remembers the peers it was told of.
struct Desk {
    told: Told,
}

impl Stage for Desk {
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        for packet in input.drain_front(input.len()) {
            let connection = packet.connection().expect("it came by a connection");
            assert!(out.peer(connection).is_some());
            out.send(OUT, packet);
        }
    }

    fn connection_event(&mut self, event: ConnectionEvent, out: &mut Outputs<'_>) {
        let peer = out.peer(event.connection).cloned();
        match event.change {
            ConnectionChange::Opened => self.told.lock().unwrap().extend(peer),
            _ => assert_eq!(peer, None, "it is over"),
        }
    }
}

/// An app with the acceptor and the stage, and the records of both.
fn app() -> (Registry, Seen, Told) {
    let (mut registry, seen, told) = (registry(), Seen::default(), Told::default());
    porter::register(&mut registry, &seen);
    let shared = Arc::clone(&told);
    let spec = StageSpec { outputs: &["out"], summary: "answers, and knows its peers", ..StageSpec::default() };
    registry.stage("desk", spec, move |_| Ok(Box::new(Desk { told: Arc::clone(&shared) })));
    (registry, seen, told)
}

/// A server with these rules for its acceptor.
fn server(port: u16, rules: &str) -> String {
    let keys = format!("acceptor = \"porter\"\nacceptor_params = {{ {rules} }}\nconnections_max = 8");
    desk::server(port, &(keys + "\nrx_shared_wr = 256\ntx_depth_wr = 16\n"))
}

fn start(text: &str) -> (Running, Seen, Told) {
    let (registry, seen, told) = app();
    let running = Runtime::build(&plan(&registry, text), &registry).unwrap().start().unwrap();
    (running, seen, told)
}

#[track_caller]
fn counts<'a>(report: &'a Report, port: &str) -> &'a ConnectionsReport {
    report.port(port).unwrap().connections.as_ref().unwrap()
}

/// Options of a peer that gives its name.
fn named(name: &str) -> ConnectOptions {
    ConnectOptions { private_data: name.as_bytes().to_vec(), ..ConnectOptions::default() }
}

/// Returns a listener's reason for a rejection.
#[track_caller]
fn reason(answer: Result<usize, ConnectionError>) -> String {
    match answer {
        Err(ConnectionError::Rejected { private_data, .. }) => String::from_utf8(private_data).unwrap(),
        other => panic!("not rejected: {other:?}"),
    }
}

#[test]
fn an_acceptor_refuses_by_number_until_somebody_has_left() {
    let (running, ..) = start(&server(7301, "at_most = 2"));
    let mut peers = Peers::new(7301);
    let first = peers.ask().unwrap();
    peers.ask().unwrap();
    assert_eq!(reason(peers.ask()), "too many");
    peers.leave(first);
    until(&running, |report| counts(report, "door").closed == 1);
    let third = loop {
        match peers.ask() {
            Ok(third) => break third,
            // The last queue pair may still be on its way back.
            Err(error) => assert!(matches!(error, ConnectionError::Rejected { .. }), "{error}"),
        }
    };
    peers.round_trip(third, b"mine now");
    let report = running.stop().unwrap();
    assert_clean(&report);
    let counts = counts(&report, "door");
    assert!(counts.rejected_acceptor >= 1, "{counts:?}");
    assert_eq!((counts.opened, counts.rejected_full, counts.open_max), (3, 0, 2));
}

#[test]
fn an_acceptor_refuses_by_rate() {
    let (running, ..) = start(&server(7302, "an_hour = 3"));
    let mut peers = Peers::new(7302);
    for _ in 0..3 {
        let peer = peers.ask().unwrap();
        peers.round_trip(peer, b"hello");
        peers.leave(peer);
    }
    for _ in 0..5 {
        assert_eq!(reason(peers.ask()), "too often");
    }
    let report = running.stop().unwrap();
    assert_clean(&report);
    let counts = counts(&report, "door");
    assert_eq!((counts.requests, counts.opened, counts.rejected_acceptor), (8, 3, 5));
}

#[test]
fn an_acceptor_refuses_by_identity_and_the_stage_learns_who_came() {
    let (running, _, told) = start(&server(7303, r#"accounts = ["alice", "bob"]"#));
    let mut peers = Peers::new(7303);
    let bob = peers.ask_with(&named("bob")).unwrap();
    assert_eq!(peers.all[bob].connection.as_ref().unwrap().private_data(), b"welcome bob");
    assert_eq!(reason(peers.ask_with(&named("bob"))), "bob is here already");
    assert_eq!(reason(peers.ask_with(&named("mallory"))), "no account mallory");
    assert_eq!(reason(peers.ask()), "no account ");
    let alice = peers.ask_with(&named("alice")).unwrap();
    for peer in [alice, bob] {
        peers.round_trip(peer, b"hello");
    }
    peers.leave(bob);
    until(&running, |report| counts(report, "door").closed == 1);
    let again = loop {
        match peers.ask_with(&named("bob")) {
            Ok(again) => break again,
            Err(error) => assert!(matches!(error, ConnectionError::Rejected { .. }), "{error}"),
        }
    };
    peers.round_trip(again, b"back");
    let report = running.stop().unwrap();
    assert_clean(&report);
    let told: Vec<_> = told.lock().unwrap().iter().map(|peer| (peer.tag, peer.private_data.to_vec())).collect();
    assert_eq!(told, [(2, b"bob".to_vec()), (1, b"alice".to_vec()), (2, b"bob".to_vec())]);
}

#[test]
fn an_acceptor_sees_what_a_request_says() {
    let (running, seen, _) = start(&server(7304, ""));
    let mut peers = Peers::new(7304);
    let options = ConnectOptions {
        private_data: b"deep".to_vec(),
        responder_resources: 3,
        initiator_depth: 5,
        retry_count: 6,
        rnr_retry_count: 2,
        ..ConnectOptions::default()
    };
    peers.ask_with(&options).unwrap();
    peers.ask().unwrap();
    running.stop().unwrap();
    let seen = seen.lock().unwrap();
    let (data, param, connections) = &seen[0];
    assert_eq!((data.as_slice(), *connections, seen[1].2), (&b"deep"[..], 0, 1));
    // Requests that the peer starts, this side serves, and the reverse.
    assert_eq!((param.responder_resources, param.initiator_depth), (5, 3));
    assert_eq!((param.retry_count, param.rnr_retry_count, param.srq), (6, 2, false));
    assert_ne!(param.qp_num, seen[1].1.qp_num);
}

#[test]
fn private_data_of_any_bytes_arrives_and_what_is_too_long_is_refused_where_it_is_given() {
    let (running, seen, _) = start(&server(7305, "answer_bytes = 196"));
    let mut peers = Peers::new(7305);
    let contents = [vec![], vec![0xff; 56], vec![0; 56], b"\x80\xc3(\n\x1b[2J".to_vec()];
    for private_data in &contents {
        let peer = peers.ask_with(&ConnectOptions { private_data: private_data.clone(), ..ConnectOptions::default() });
        let connection = peers.all[peer.unwrap()].connection.as_ref().unwrap();
        assert_eq!(connection.private_data(), [0xff; 196]);
    }
    let long = ConnectOptions { private_data: vec![1; 57], ..ConnectOptions::default() };
    let error = peers.ask_with(&long).unwrap_err();
    assert_eq!(error.to_string(), "57 bytes of private data; a request has room for 56");
    let report = running.stop().unwrap();
    assert_clean(&report);
    assert_eq!(counts(&report, "door").requests, 4, "the fifth was never sent");
    let seen: Vec<_> = seen.lock().unwrap().iter().map(|(data, ..)| data.clone()).collect();
    assert_eq!(seen, contents);
}

#[test]
fn an_answer_has_as_much_room_as_its_message() {
    assert!(Answer::accept().private_data(&[1; 196]).is_ok());
    assert!(Answer::reject().private_data(&[1; 148]).is_ok());
    let error = Answer::accept().private_data(&[1; 197]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "197 bytes of private data; an acceptance has room for 196: send the rest as a message"
    );
    let error = Answer::reject().private_data(&[1; 149]).unwrap_err();
    assert_eq!((error.what, error.len_bytes, error.max_bytes), ("a rejection", 149, 148));

    let (running, ..) = start(&server(7306, "answer_bytes = 197"));
    let said = reason(Peers::new(7306).ask());
    assert!(said.starts_with("197 bytes of private data"), "{said}");
    running.stop().unwrap();
}

/// Runs a server whose acceptor panics, and returns the reason of the run's failure.
#[track_caller]
fn failure_of(port: u16, rules: &str, provoke: impl FnOnce(&mut Peers, usize)) -> String {
    let (running, ..) = start(&server(port, rules));
    let mut peers = Peers::new(port);
    let before = peers.ask().unwrap();
    peers.round_trip(before, b"all is well");
    provoke(&mut peers, before);
    assert_eq!(running.wait(Some(PATIENCE)), Ended::Failed);
    // Nobody else is accepted: a peer that comes early finds the listener about to go, later ones
    // find none.
    let deadline = Instant::now() + PATIENCE;
    while !matches!(peers.ask(), Err(ConnectionError::Refused { .. })) {
        assert!(Instant::now() < deadline, "somebody still listens");
    }
    let EngineError::Failed { lcore, message, report, .. } = running.stop().unwrap_err() else {
        panic!("the acceptor failed")
    };
    assert_eq!((lcore.as_str(), report.failures.len()), ("only", 1));
    assert_eq!(report.packets.held, 0, "it ended in order: {report:#?}");
    message
}

#[test]
fn an_acceptor_that_panics_ends_the_run_in_order_with_its_name() {
    let message = failure_of(7307, r#"panic_at = "mallory""#, |peers, before| {
        assert_eq!(reason(peers.ask_with(&named("mallory"))), "");
        assert!(peers.all[before].connection.is_some());
    });
    assert!(message.starts_with("acceptor `porter` of port.door panicked: "), "{message}");
    assert!(message.contains("as asked"), "{message}");
}

#[test]
fn an_acceptor_that_panics_as_it_hears_of_an_end_ends_the_run_too() {
    let message = failure_of(7308, "panic_at_end = true", |peers, before| peers.leave(before));
    assert_eq!(message, "acceptor `porter` of port.door panicked: as asked");
}

#[test]
fn what_an_acceptor_is_told_wrongly_is_a_fault_of_the_plan() {
    let (registry, ..) = app();
    let faulty = plan(&registry, &server(7309, "at_most = 0"));
    let faults = Runtime::check(&faulty, &registry).unwrap_err().render(false);
    assert!(faults.contains("nobody could come in") && faults.contains("at_most = 0"), "{faults}");
    let error = Runtime::build(&faulty, &registry).unwrap_err();
    assert!(matches!(error, EngineError::Params(_)), "{error}");
    let unknown = plan(&registry, &server(7309, "at_least = 1"));
    assert!(Runtime::check(&unknown, &registry).unwrap_err().render(false).contains("at_least"));
}

/// The client half of a plan whose server half is [`server`].
fn client(port: u16, name: &str) -> String {
    let guest = "[stage.guest]\nuse = \"desk\"\nlcore = \"other\"\nout = { out = \"port.caller\" }\n";
    let keys = format!("connections = 1\nprivate_data = \"{name}\"\nnext = \"stage.guest\"\n");
    desk::caller(port, &keys) + guest
}

#[test]
fn two_lcores_tell_each_other_who_they_are() {
    if crate::common::lacks_cpus(2) {
        return;
    }
    let (running, _, told) = start(&(server(7310, r#"accounts = ["alice"]"#) + &client(7310, "alice")));
    until(&running, |report| counts(report, "caller").open == 1 && counts(report, "door").open == 1);
    let report = running.stop().unwrap();
    assert_clean(&report);
    let mut told: Vec<_> = told.lock().unwrap().iter().map(|peer| (peer.tag, peer.private_data.to_vec())).collect();
    told.sort();
    assert_eq!(told, [(0, b"welcome alice".to_vec()), (1, b"alice".to_vec())]);
    assert_eq!(counts(&report, "caller").last_error, None);
}

#[test]
fn two_lcores_of_which_one_is_rejected_say_why() {
    if crate::common::lacks_cpus(2) {
        return;
    }
    let (running, ..) = start(&(server(7311, r#"accounts = ["alice"]"#) + &client(7311, "mallory")));
    let report = until(&running, |report| counts(report, "caller").rejected_by_peer >= 2);
    let error = counts(&report, "caller").last_error.clone().unwrap();
    assert_eq!(error, "rejected by 10.9.9.1:7311 (reason 28): no account mallory");
    let report = running.stop().unwrap();
    assert_clean(&report);
    let (caller, door) = (counts(&report, "caller"), counts(&report, "door"));
    assert_eq!((caller.opened, door.opened, door.rejected_acceptor), (0, 0, caller.rejected_by_peer));
    assert_eq!(caller.rejected_by_peer, caller.unanswered, "that is what failed");
}
