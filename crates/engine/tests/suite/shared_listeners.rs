//! A server whose connections are spread over two lcores: two ports, one of which listens for both.
//! Each connection is served by its own lcore's stage.
//!
//! Each test has a port number of its own: the software RNICs share one set of listeners.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::common::peers::Peers;
use crate::common::porter::{self, Seen};
use crate::common::{OUT, PATIENCE, assert_clean, lacks_cpus, plan, registry, until};
use verbline_engine::{
    Acceptor, Answer, ConnectionRequest, ConnectionsReport, Ended, EngineError, Outputs, Registry, Report, Running,
    Runtime, Stage, StageSpec,
};
use verbline_mem::Batch;
use verbline_verbs::connection::{ConnectOptions, ConnectionError};

/// The threads and the ports of the plan that they served.
type Served = Arc<Mutex<BTreeSet<(String, u16)>>>;

/// Answers each packet with its lcore's letter.
struct Desk {
    letter: u8,
    served: Served,
}

impl Stage for Desk {
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        for mut packet in input.drain_front(input.len()) {
            let connection = packet.connection().expect("it came by a connection");
            assert_eq!(connection.port(), packet.port(), "a connection is of the port that it came by");
            let thread = std::thread::current().name().unwrap_or_default().to_owned();
            self.served.lock().unwrap().insert((thread, connection.port()));
            assert!(packet.fill(&[self.letter]));
            out.send(OUT, packet);
        }
    }
}

fn app() -> (Registry, Served) {
    let (mut registry, served) = (registry(), Served::default());
    porter::register(&mut registry, &Seen::default());
    let shared = Arc::clone(&served);
    let spec = StageSpec { outputs: &["out"], summary: "says whose it is", ..StageSpec::default() };
    registry.stage("desk", spec, move |context| {
        let letter = context.lcore().as_bytes()[0];
        Ok(Box::new(Desk { letter, served: Arc::clone(&shared) }))
    });
    (registry, served)
}

/// A server on the lcores `a` and `b`, whose ports take this many connections each, with these keys
/// for the listening one.
fn server(port: u16, most: [u32; 2], keys: &str) -> String {
    let half = |name: &str, place: usize, keys: &str| {
        format!(
            r#"
            [lcore.{name}]
            cpu = "allowed:{place}"
            [pool.{name}]
            device = "nic0"
            packets = 2048
            data_bytes = 128
            pages = "4KiB"
            [port.{name}]
            lcore = "{name}"
            device = "nic0"
            pool = "{name}"
            transport = "rc"
            connections_max = {most}
            rx_shared_wr = 256
            tx_depth_wr = 16
            next = "stage.{name}"
            {keys}
            [stage.{name}]
            use = "desk"
            lcore = "{name}"
            out = {{ out = "port.{name}" }}
            "#,
            most = most[place]
        )
    };
    let device = "[device.nic0]\nprovider = \"soft\"\nname = \"soft0\"\n".to_owned();
    // The sharing port stands first: the order in the file does not matter.
    let sharing = half("b", 1, "listen_with = \"port.a\"");
    device + &sharing + &half("a", 0, &format!("listen = \"10.9.9.1:{port}\"\n{keys}"))
}

fn start(text: &str) -> (Running, Served) {
    let (registry, served) = app();
    (Runtime::build(&plan(&registry, text), &registry).unwrap().start().unwrap(), served)
}

fn counts<'a>(report: &'a Report, port: &str) -> &'a ConnectionsReport {
    report.port(port).unwrap().connections.as_ref().unwrap()
}

fn open(report: &Report) -> [u64; 2] {
    ["a", "b"].map(|port| counts(report, port).open)
}

/// Returns the letter of the lcore that serves a peer.
fn server_of(peers: &mut Peers, peer: usize) -> u8 {
    peers.send(peer, b"whose am I?");
    peers.receive(1)[0].1[0]
}

fn named(name: &str) -> ConnectOptions {
    ConnectOptions { private_data: name.as_bytes().to_vec(), ..ConnectOptions::default() }
}

#[test]
fn two_lcores_share_what_comes_by_one_listener() {
    if lacks_cpus(2) {
        return;
    }
    for (port, placement) in [(7401, "fewest"), (7402, "round-robin")] {
        let (running, served) = start(&server(port, [32, 32], &format!("placement = \"{placement}\"")));
        let mut peers = Peers::new(port);
        for _ in 0..64 {
            peers.ask().unwrap();
        }
        until(&running, |report| open(report) == [32, 32]);
        let letters: Vec<u8> = (0..64).map(|peer| server_of(&mut peers, peer)).collect();
        assert_eq!(letters.iter().filter(|letter| **letter == b'a').count(), 32);
        let error = peers.ask().unwrap_err().to_string();
        assert!(error.ends_with("port.a has 64 connections, and takes no more"), "{error}");
        (0..64).for_each(|peer| peers.leave(peer));
        until(&running, |report| counts(report, "a").closed + counts(report, "b").closed == 64);
        let report = running.stop().unwrap();
        assert_clean(&report);
        // Each connection's packets stay on its port's thread: `b` is first in the file.
        let expected = [("vl-a".to_owned(), 1), ("vl-b".to_owned(), 0)];
        assert_eq!(*served.lock().unwrap(), expected.into());
        let (a, b) = (counts(&report, "a"), counts(&report, "b"));
        assert_eq!((a.requests, a.rejected_full, b.requests, b.rejected_full), (65, 1, 32, 0));
        assert_eq!((a.opened, b.opened), (32, 32));
    }
}

#[test]
fn two_lcores_of_which_one_is_full_leave_the_rest_to_the_other() {
    if lacks_cpus(2) {
        return;
    }
    let (running, _) = start(&server(7403, [8, 2], ""));
    let mut peers = Peers::new(7403);
    for _ in 0..10 {
        peers.ask().unwrap();
    }
    until(&running, |report| open(report) == [8, 2]);
    // The peers of `b` leave: its places are the only free ones, and all later peers get them.
    let of_b: Vec<usize> = (0..10).filter(|peer| server_of(&mut peers, *peer) == b'b').collect();
    of_b.iter().for_each(|peer| peers.leave(*peer));
    until(&running, |report| open(report) == [8, 0]);
    let deadline = Instant::now() + PATIENCE;
    let mut found = 0;
    while found < 2 {
        assert!(Instant::now() < deadline, "the places come back");
        if let Ok(peer) = peers.ask() {
            assert_eq!(server_of(&mut peers, peer), b'b');
            found += 1;
        }
    }
    let report = running.stop().unwrap();
    assert_clean(&report);
    assert_eq!((counts(&report, "a").opened, counts(&report, "b").opened), (8, 4));
}

#[test]
fn two_lcores_get_whom_the_acceptor_gives_them() {
    if lacks_cpus(2) {
        return;
    }
    let keys = "acceptor = \"porter\"\nacceptor_params = { by_letter = true }";
    let (running, _) = start(&server(7404, [8, 8], keys));
    let mut peers = Peers::new(7404);
    for name in ["bob", "berta", "alice", "bill"] {
        let peer = peers.ask_with(&named(name)).unwrap();
        assert_eq!(server_of(&mut peers, peer), name.as_bytes()[0], "{name}");
    }
    let error = peers.ask_with(&named("zoe")).unwrap_err();
    assert_eq!(error.to_string(), "rejected by 10.9.9.1:7404 (reason 28): port.a has no such place on soft0");
    for _ in 0..5 {
        peers.ask_with(&named("b")).unwrap();
    }
    let error = peers.ask_with(&named("bert")).unwrap_err().to_string();
    assert!(error.ends_with("takes no more"), "{error}");
    let report = running.stop().unwrap();
    assert_clean(&report);
    let (a, b) = (counts(&report, "a"), counts(&report, "b"));
    assert_eq!((a.opened, b.opened, a.rejected_acceptor, a.rejected_full), (1, 8, 1, 1));
}

#[test]
fn two_lcores_stop_in_order_if_the_acceptor_panics_at_an_end_on_the_other() {
    if lacks_cpus(2) {
        return;
    }
    let keys = "acceptor = \"porter\"\nacceptor_params = { by_letter = true, panic_at_end = true }";
    let (running, _) = start(&server(7405, [8, 8], keys));
    let mut peers = Peers::new(7405);
    let (bob, alice) = (peers.ask_with(&named("bob")).unwrap(), peers.ask_with(&named("alice")).unwrap());
    assert_eq!((server_of(&mut peers, bob), server_of(&mut peers, alice)), (b'b', b'a'));
    peers.leave(bob);
    assert_eq!(running.wait(Some(PATIENCE)), Ended::Failed);
    let EngineError::Failed { lcore, message, report, .. } = running.stop().unwrap_err() else { panic!("it failed") };
    assert_eq!((lcore.as_str(), message.as_str()), ("b", "acceptor `porter` of port.a panicked: as asked"));
    assert_eq!((report.failures.len(), report.packets.held), (1, 0));
}

/// Decides about `bert` only once it may. An end makes it panic, which ends the run.
struct Slow(Arc<AtomicBool>);

impl Acceptor for Slow {
    fn decide(&mut self, request: &ConnectionRequest<'_>) -> Answer {
        while request.private_data == b"bert" && !self.0.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        Answer::accept().place(usize::from(request.private_data[0] - b'a'))
    }

    fn ended(&mut self, _: u64) {
        panic!("as asked");
    }
}

/// Regression: a request that had been handed to the other port, whose cm thread then ended, was
/// in no count but that of all requests.
#[test]
fn two_lcores_account_for_a_request_that_the_end_overtook() {
    if lacks_cpus(2) {
        return;
    }
    let (mut registry, _) = app();
    let may_decide = Arc::new(AtomicBool::new(false));
    let shared = Arc::clone(&may_decide);
    registry.acceptor("slow", move |_| Ok(Box::new(Slow(Arc::clone(&shared)))));
    let text = server(7407, [8, 8], "acceptor = \"slow\"");
    let running = Runtime::build(&plan(&registry, &text), &registry).unwrap().start().unwrap();
    let mut peers = Peers::new(7407);
    let bob = peers.ask_with(&named("bob")).unwrap();
    assert_eq!(server_of(&mut peers, bob), b'b');
    let bert = peers.begin(&named("bert")).unwrap();
    until(&running, |report| counts(report, "a").requests == 2);
    peers.leave(bob);
    until(&running, |report| counts(report, "b").closed == 1);
    // Until the cm thread of `b` waits for the acceptor.
    std::thread::sleep(Duration::from_millis(100));
    may_decide.store(true, Ordering::Relaxed);
    assert_eq!(running.wait(Some(PATIENCE)), Ended::Failed);
    let EngineError::Failed { report, .. } = running.stop().unwrap_err() else { panic!("it failed") };
    drop(bert);
    let (a, b) = (counts(&report, "a"), counts(&report, "b"));
    let ends = |told: &ConnectionsReport| {
        told.opened + told.unanswered + told.rejected_full + told.rejected_acceptor + told.rejected_resources
    };
    assert_eq!((a.requests, b.requests), (2, ends(b)), "{a:?}\n{b:?}");
    assert_eq!(a.requests, ends(a) + b.requests, "{a:?}\n{b:?}");
}

/// Most come and go without a word, often before their server has heard that they are there; some
/// wait for an answer.
#[test]
fn two_lcores_bear_peers_that_come_and_go() {
    if lacks_cpus(2) {
        return;
    }
    let (running, _) = start(&server(7406, [4, 4], "placement = \"round-robin\""));
    let mut peers = Peers::new(7406);
    let stays = peers.ask().unwrap();
    let mine = server_of(&mut peers, stays);
    for asked in 0..500 {
        match peers.ask() {
            Ok(peer) => {
                if asked % 7 == 0 {
                    server_of(&mut peers, peer);
                }
                peers.leave(peer);
            }
            Err(error) => assert!(matches!(error, ConnectionError::Rejected { .. }), "{error}"),
        }
        assert_eq!(server_of(&mut peers, stays), mine);
    }
    let report = until(&running, |report| open(report).iter().sum::<u64>() == 1);
    assert!(["a", "b"].iter().all(|port| counts(&report, port).opened > 10), "{report:#?}");
    let report = running.stop().unwrap();
    assert_eq!((report.packets.held, report.drained), (0, true));
}
