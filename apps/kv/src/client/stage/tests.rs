//! The client without a server: the test gives the answers, or none.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use verbline::cli::App;
use verbline::plan::Machine;
use verbline::testing::StageTest;
use verbline_tests::root;

use super::*;
use crate::KeyValue;
use crate::protocol::Status;

/// A client, its connections, and a server of the test's own.
struct Rig {
    app: KeyValue,
    client: StageTest,
    connections: Vec<ConnectionId>,
    values: HashMap<Vec<u8>, Vec<u8>>,
}

impl Rig {
    /// A client that has had a few answers over each of its connections.
    fn new(connections: usize, sets: &[&str]) -> Rig {
        let mut rig = Rig::silent(connections, sets);
        (0..20).for_each(|_| rig.answer(usize::MAX));
        // It asks again.
        rig.client.turn();
        rig
    }

    /// A client that has had no answer.
    fn silent(connections: usize, sets: &[&str]) -> Rig {
        let app = KeyValue::default();
        let mut registry = Registry::new("kv");
        app.register(&mut registry);
        let fixed = [
            r#"device.nic0={provider="soft"}"#,
            "lcore.load.cpu=allowed:0",
            "kv.shards=1",
            "kv.keys=8",
            "kv.read_share=0",
            "kv.close_every_ms=0",
        ];
        let most = format!("port.clients.connections={}", connections.max(1));
        let sets = fixed.iter().chain(sets).copied().chain([&*most]);
        let loader = Loader::new(registry.catalog(), Machine::detect()).sets(sets);
        let plan = loader.load_path(root().join("tests/plans/kv-client.toml"));
        let plan = plan.unwrap_or_else(|faults| panic!("{faults}"));
        let mut client = StageTest::open(&plan, &registry, "client").unwrap_or_else(|error| panic!("{error}"));
        let connections = (0..connections).map(|_| client.connect("clients")).collect();
        Rig { app, client, connections, values: HashMap::new() }
    }

    /// The server answers the client's requests, up to `most` of them.
    fn answer(&mut self, most: usize) {
        self.client.advance(Duration::from_micros(10));
        for packet in self.client.sent("send").into_iter().take(most) {
            let request = Request::read(packet.data()).expect("a request");
            let value = match request.opcode {
                Opcode::Put => self.values.insert(request.key.to_vec(), request.value.to_vec()).map(|_| Vec::new()),
                _ => self.values.get(request.key).cloned(),
            };
            let is_found = value.is_some() || request.opcode != Opcode::Get;
            let (status, value) = (if is_found { Status::Ok } else { Status::NotFound }, value.unwrap_or_default());
            let header = Reply::header(request.opcode, status, request.id, value.len() as u32);
            let connection = packet.connection().expect("one of the client's");
            let reply = self.client.packet_over(connection, &[&header, &value[..]].concat());
            self.client.process([reply]);
        }
    }

    /// The failures of the client at its end.
    fn failures(self) -> Vec<String> {
        let report = self.client.finish();
        self.app.outcome(&report).failures
    }
}

/// Ends all connections as those to a server that has vanished.
fn vanish(rig: &mut Rig) {
    for connection in rig.connections.clone() {
        rig.client.end_connection(connection, ConnectionChange::Failed { reason: "RETRY_EXC_ERR" });
    }
}

/// Regression: a client whose server had vanished less than a second before its end succeeded.
#[test]
fn requests_that_lose_their_connections_at_the_end_are_a_failure() {
    for is_stopped in [true, false] {
        let mut rig = Rig::new(2, &[]);
        rig.client.advance(Duration::from_millis(300));
        if is_stopped {
            rig.client.stop();
            assert!(rig.client.awaits_packets(), "the requests under way");
        }
        vanish(&mut rig);
        rig.client.stop();
        assert!(!rig.client.awaits_packets(), "nobody is left to answer");
        let failures = rig.failures();
        assert!(matches!(&failures[..], [failure] if failure.contains("silent for 300.")), "{failures:?}");
    }
}

/// Regression: the client waited for all of the drain of a plan that says nothing of it, and the
/// run failed with packets on their way.
#[test]
fn the_drain_waits_for_a_silent_server_no_longer_than_it_lasts() {
    let mut rig = Rig::new(2, &[]);
    let stopped_at = Instant::now();
    rig.client.stop();
    while rig.client.awaits_packets() {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(stopped_at.elapsed() < Duration::from_millis(900), "{:?}", stopped_at.elapsed());
}

/// One answer is lost, and the server has given another one since: it is there.
#[test]
fn a_request_without_an_answer_is_no_failure_where_others_get_one() {
    let mut rig = Rig::new(2, &[]);
    rig.client.stop();
    assert!(rig.client.awaits_packets());
    rig.answer(1);
    assert!(!rig.client.awaits_packets());
    assert_eq!(rig.failures(), [""; 0]);
}

#[test]
fn requests_that_are_answered_in_the_drain_are_no_failure() {
    let mut rig = Rig::new(2, &[]);
    rig.client.stop();
    rig.answer(2);
    assert!(!rig.client.awaits_packets());
    assert_eq!(rig.failures(), [""; 0]);
}

/// A request is under way when the client closes its connection.
#[test]
fn requests_on_connections_that_the_client_closed_are_no_failure() {
    let mut rig = Rig::new(1, &["kv.close_every_ms=100"]);
    rig.client.advance(Duration::from_millis(101));
    rig.client.stop();
    assert!(!rig.client.awaits_packets());
    assert_eq!(rig.failures(), [""; 0]);
}

/// Regression: the percentiles were those of the answered operations alone, however many got no
/// answer.
#[test]
fn operations_without_an_answer_are_in_the_percentiles_and_not_in_the_rate() {
    let mut rig = Rig::new(1, &["kv.get_share=1", "kv.timeout_ms=50"]);
    rig.client.advance(Duration::from_millis(51));
    rig.client.stop();
    let report = rig.client.finish();
    let json = rig.app.outcome(&report).json;
    let [operations, max] = ["operations", "max"].map(|key| json["latency_ns"]["get"][key].as_u64().expect("a number"));
    let answered = report.stages.iter().filter_map(|stage| stage.counter("operations")).sum::<u64>();
    // The first PUTs and the look for the table are not measured.
    assert_eq!((&json["counts"]["timed_out"], operations), (&1.into(), answered - 8 - 1 + 1), "{json:?}");
    assert!(max >= 50_000_000, "{max} ns: the operation lasted until it was given up");
    let rate = json["operations_per_second"].as_f64().expect("a rate");
    assert!(rate < (operations - 1) as f64 / 0.050, "{rate} a second: {json:?}");
}

/// Regression: a client that was connected, to a peer that is no kv server, blamed its connections.
#[test]
fn a_peer_that_answers_no_request_is_named_as_what_it_is() {
    let mut rig = Rig::silent(2, &[]);
    let requests = rig.client.sent("send");
    for packet in &requests {
        let echo = rig.client.packet_over(packet.connection().expect("one of the client's"), packet.data());
        rig.client.process([echo]);
    }
    rig.client.stop();
    let [unmeasured, malformed] = &rig.failures()[..] else { panic!("two failures") };
    assert!(unmeasured.contains("no request was answered over the 2 connections"), "{unmeasured}");
    assert!(malformed.starts_with("2 messages came from the server that are no replies"), "{malformed}");

    let mut rig = Rig::silent(0, &[]);
    rig.client.stop();
    let [unmeasured] = &rig.failures()[..] else { panic!("one failure") };
    assert!(unmeasured.contains("no connection was made"), "{unmeasured}");
}
