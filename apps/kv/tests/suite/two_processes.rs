//! Server and client as two processes, each with a software device of its own address: service over
//! UDP, and the fate of one when the other is killed, stopped, or comes back.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use verbline_tests::{
    Finished, Program, Started, assert_is_within_memory_sum, counted, own_address, two_lcores, unwrapped,
};

/// A server and its client, each at an address of its own.
struct Rig {
    /// The folder of both sockets; it lives as long as the runs.
    _folder: tempfile::TempDir,
    server: Program,
    client: Program,
}

impl Rig {
    /// `None` where two lcores can't run.
    fn new() -> Option<Rig> {
        two_lcores(["server", "load"])?;
        let folder = tempfile::tempdir().unwrap();
        let (at_server, at_client) = (own_address(1), own_address(2));
        let run = |plan: &str, lcore: &str, sets: &[String]| {
            let run = app(folder.path(), &["run", &format!("config/two-processes/{plan}.toml"), "--json", "--quiet"]);
            let sets = sets.iter().cloned().chain([format!("lcore.{lcore}.drain=60s")]);
            run.with(sets.flat_map(|set| ["--set".to_owned(), set]))
        };
        let server = [format!("device.nic0.address={at_server}"), format!("port.server.listen={at_server}:4430")];
        let client = [format!("device.nic0.address={at_client}"), format!("port.clients.connect={at_server}:4430")];
        let (server, client) = (run("kv-server", "server", &server), run("kv-client", "load", &client));
        Some(Rig { _folder: folder, server, client })
    }

    /// Like [`Rig::new`], but the client closes no connection, so that each ends as the test has it
    /// end. A connection closed while its server is gone has not failed.
    fn that_closes_none() -> Option<Rig> {
        let rig = Rig::new()?;
        Some(Rig { client: rig.client.with(["--set", "kv.close_every_ms=0"]), ..rig })
    }

    /// Starts both, until all connections are made and the client has done some work. On a fast
    /// machine, the first few connections do that work before the others are made.
    fn start(&self) -> (Started, Started) {
        let server = self.server.start();
        let client = self.client.start();
        self.await_connections("be made", |now| now["opened"].as_u64() >= Some(16));
        self.await_operations(1000);
        (server, client)
    }

    /// The client's current report.
    fn live(&self) -> Option<Value> {
        self.client.live(Some("kv-client"))
    }

    fn operations(&self) -> u64 {
        self.live().map_or(0, |report| counted(&report, "client", "operations"))
    }

    /// Waits until the client has done this many more operations.
    #[track_caller]
    fn await_operations(&self, more: u64) {
        let before = self.operations();
        let has_done = |report: &Value| counted(report, "client", "operations") >= before + more;
        self.client.await_live(Some("kv-client"), "operations of the client", has_done);
    }

    /// Waits until the client's connections satisfy `are_so`.
    #[track_caller]
    fn await_connections(&self, what: &str, are_so: impl Fn(&Value) -> bool) {
        self.await_connections_of("kv-client", what, are_so);
    }

    #[track_caller]
    fn await_connections_of(&self, run: &str, what: &str, are_so: impl Fn(&Value) -> bool) {
        let are_so = |report: &Value| are_so(&report["ports"][0]["connections"]);
        self.client.await_live(Some(run), &format!("its connections to {what}"), are_so);
    }

    /// Waits until all connections of the client are gone, some for want of an answer.
    fn await_gone(&self) {
        self.await_connections("fail", |now| now["open"] == 0 && now["failed"].as_u64() > Some(0));
    }
}

/// A command of the app whose runs listen in `folder`.
fn app(folder: &Path, words: &[&str]) -> Program {
    Program::new(env!("CARGO_BIN_EXE_kv")).with(words).listening_in(folder)
}

/// READs that a client's ports have completed.
fn reads(report: &Value) -> u64 {
    let ports = report["ports"].as_array().into_iter().flatten();
    let kinds = ports.flat_map(|port| port["operations"]["kinds"].as_array().into_iter().flatten());
    kinds.filter(|kind| kind["kind"] == "read").filter_map(|kind| kind["completed"].as_u64()).sum()
}

fn count(shown: &Finished, key: &str) -> u64 {
    shown.json()["counts"][key].as_u64().unwrap_or_else(|| panic!("{key}: {shown}"))
}

/// Asserts that every value found was put, and is new enough.
#[track_caller]
fn assert_values(client: &Finished) {
    let wrong = ["stale", "corrupt", "malformed"].map(|key| count(client, key));
    assert_eq!(wrong, [0; 3], "{client}");
    assert!(count(client, "verified") > 0, "{client}");
}

/// Messages, READs and connections that come and go: nothing is lost on a lossless network.
#[test]
fn two_lcores_of_two_processes_serve_and_check_every_value() {
    let Some(rig) = Rig::new() else { return };
    let (server, client) = rig.start();
    rig.await_operations(5000);
    let memory = [(&rig.server, server.resident_bytes()), (&rig.client, client.resident_bytes())];
    let (client, server) = (client.end_whole(0), server.end_whole(0));
    memory.into_iter().for_each(|(run, bytes)| assert_is_within_memory_sum(run, bytes));
    assert_values(&client);
    let json = client.json();
    for way in ["get", "read", "put"] {
        assert!(json["latency_ns"][way]["operations"].as_u64() > Some(0), "{way}: {client}");
    }
    let connections = &server.json()["ports"][0]["connections"];
    assert!(connections["opened"].as_u64() >= Some(16) && connections["failed"] == 0, "{server}");
    for end in [&client, &server] {
        let json = end.json();
        let (wire, connections) = (&json["wires"][0], &json["ports"][0]["connections"]);
        assert!(
            wire["datagrams_sent"].as_u64() > Some(5000) && wire["datagrams_received"].as_u64() > Some(5000),
            "{end}"
        );
        assert!(wire["fatal_naks_sent"] == 0 && wire["unsent"].as_array().is_some_and(Vec::is_empty), "{end}");
        assert!(connections["over_udp"].as_u64() >= Some(16), "all of them went by UDP: {end}");
    }
}

/// Two clients at once, each with keys of its own: every value found was put by the client that
/// asked for it.
#[test]
fn two_lcores_of_a_server_serve_two_clients_at_once() {
    let Some(rig) = Rig::that_closes_none() else { return };
    let (server, first) = rig.start();
    let (at_server, at_second) = (own_address(1), own_address(3));
    let sets = ["name=kv-second".to_owned(), format!("device.nic0.address={at_second}"), "kv.client=1".to_owned()];
    let second = rig.client.with(sets.into_iter().flat_map(|set| ["--set".to_owned(), set])).start();
    let has_done = |report: &Value| counted(report, "client", "operations") >= 30_000;
    rig.client.await_live(Some("kv-second"), &format!("operations at {at_server}"), has_done);
    rig.await_operations(1000);
    let (second, first) = (second.end_whole(0), first.end_whole(0));
    server.end_whole(0);
    [&first, &second].into_iter().for_each(assert_values);
}

/// A killed server's connections end within the retries. Another server at its address, without the
/// first one's data, serves the client's next connections: the client finds that answered PUTs are
/// gone, and every value found was put.
#[test]
fn two_lcores_of_two_processes_outlive_a_server_that_is_killed() {
    let Some(rig) = Rig::that_closes_none() else { return };
    let (mut server, client) = rig.start();
    server.child().kill().unwrap();
    server.child().wait().unwrap();
    rig.await_gone();
    let again = rig.server.start();
    rig.await_operations(1000);
    let (client, _again) = (client.end_whole(1), again.end_whole(0));
    assert_eq!(["corrupt", "malformed"].map(|key| count(&client, key)), [0; 2], "{client}");
    assert!(count(&client, "cut_off") > 0 && count(&client, "stale") > 0, "{client}");
    assert_eq!(counted(&client.json(), "client", "wrong_values"), count(&client, "stale"), "seen while it lasts");
    assert!(unwrapped(&client.stderr).contains("values were wrong"), "{client}");
}

/// The tables of another server are elsewhere: the client requests their locations, and reads
/// those. No READ of an old location ends a connection.
#[test]
fn two_lcores_of_two_processes_read_the_tables_of_the_next_server() {
    let Some(rig) = Rig::that_closes_none() else { return };
    // A table's location differs from run to run, with the memory before it.
    let next = rig.server.clone().with(["--set", "region.table0.bytes=4194304", "--set", "pool.packets.packets=8192"]);
    let (mut server, client) = rig.start();
    server.child().kill().unwrap();
    server.child().wait().unwrap();
    rig.await_gone();
    let again = next.start();
    rig.await_connections("come back", |now| now["open"] == 16);
    rig.await_operations(500);
    let failed = || rig.live().map(|report| report["ports"][0]["connections"]["failed"].clone());
    let before = failed();
    rig.await_operations(3000);
    assert_eq!(failed(), before, "no connection failed since the next server serves");
    drop((client, again));
}

/// A server stopped for longer than the retries loses its connections, and nothing else: when it
/// continues, the client's next connections find every value.
#[test]
fn two_lcores_of_two_processes_outlive_a_server_that_is_stopped() {
    let Some(rig) = Rig::that_closes_none() else { return };
    let (server, client) = rig.start();
    server.signal(Signal::STOP);
    rig.await_gone();
    server.signal(Signal::CONT);
    rig.await_connections("come back", |now| now["open"] == 16);
    rig.await_operations(1000);
    let (client, server) = (client.end_whole(0), server.end_whole(0));
    assert_values(&client);
    assert!(count(&client, "cut_off") > 0, "{client}");
    let connections = &server.json()["ports"][0]["connections"];
    assert!(connections["opened"].as_u64() >= Some(32), "{server}");
}

/// A client stopped for longer than the server's retries loses connections; when it continues, it
/// opens others, and finds every value.
#[test]
fn two_lcores_of_two_processes_outlive_a_client_that_is_stopped() {
    let Some(rig) = Rig::new() else { return };
    let (server, client) = rig.start();
    client.signal(Signal::STOP);
    rig.await_connections_of("kv-server", "fail", |now| now["failed"].as_u64() > Some(0));
    client.signal(Signal::CONT);
    rig.await_operations(1000);
    rig.await_connections("come back", |now| now["open"] == 16);
    let (client, _server) = (client.end_whole(0), server.end_whole(0));
    assert_values(&client);
}

/// A client whose server is gone for good ends in order, reports its unanswered requests, and
/// fails: its measurements are of the time before.
#[test]
fn two_lcores_of_two_processes_end_without_a_server() {
    let Some(rig) = Rig::new() else { return };
    let (mut server, client) = rig.start();
    server.child().kill().unwrap();
    let began = Instant::now();
    rig.await_gone();
    let unanswered = |now: &Value| now["last_error"].as_str().is_some_and(|error| error.contains("does not answer"));
    rig.await_connections("are asked for in vain", unanswered);
    let client = client.end_whole(1);
    assert!(unwrapped(&client.stderr).contains("the server had been silent for"), "{client}");
    assert!(client.json()["server_silent_ns"].as_u64() > Some(1_000_000_000), "{client}");
    assert!(began.elapsed() < Duration::from_secs(30), "it ends within its time-outs: {client}");
    let (port, wire) = (&client.json()["ports"][0], &client.json()["wires"][0]);
    assert!(wire["timeouts"].as_u64() > Some(0) && wire["retransmitted"].as_u64() > Some(0), "{client}");
    assert_eq!(port["errors"][0]["status"], "RETRY_EXC_ERR", "{client}");
    let error = port["connections"]["last_error"].as_str().unwrap_or_default();
    assert!(error.contains("UDP port 4791"), "{client}");
}

/// A server is ended in order while its client goes on. Regression: it served the client until its
/// drain was over, and then said that packets were on their way.
#[test]
fn two_lcores_of_a_server_that_is_ended_under_load_have_drained() {
    let Some(rig) = Rig::that_closes_none() else { return };
    let rig = Rig { server: rig.server.with(["--set", "lcore.server.drain=300ms"]), ..rig };
    let (server, client) = rig.start();
    let server = server.end_whole(0);
    assert_eq!(server.json()["drained"], true, "{server}");
    // Its last requests have lost their connections.
    client.end_whole(1);
}

/// A client is killed amid its operations: the server goes on to serve the next one, at the same
/// address.
#[test]
fn two_lcores_of_two_processes_outlive_a_client_that_is_killed() {
    let Some(rig) = Rig::new() else { return };
    let (server, mut client) = rig.start();
    client.child().kill().unwrap();
    client.child().wait().unwrap();
    let again = rig.client.start();
    rig.await_operations(1000);
    let (again, _server) = (again.end_whole(0), server.end_whole(0));
    assert_values(&again);
}

/// A client whose settings are not those of its server, or those of another client, is told which.
#[test]
fn two_lcores_of_two_processes_name_settings_that_do_not_agree() {
    let cases = [
        ("kv.shards=3", "some of 3 shards never said where their tables are"),
        ("kv.shards=1", "GETs by READ found no key in a table, though the server had it"),
        ("kv.value_bytes=400", "PUTs were too long for the server; lower kv.value_bytes"),
    ];
    for (set, says) in cases {
        let Some(rig) = Rig::that_closes_none() else { return };
        let rig = Rig { client: rig.client.with(["--set", set, "--set", "kv.timeout_ms=300"]), ..rig };
        let (server, client) = rig.start();
        rig.await_operations(3000);
        // On a busy machine a few requests of another kind, or to another shard, are in vain, too;
        // and the first thousands of operations may all be done without a table's location.
        if set == "kv.shards=3" {
            let has_waited = |report: &Value| counted(report, "client", "locates_timed_out") >= 6;
            rig.client.await_live(Some("kv-client"), "six requests in vain", has_waited);
        } else {
            rig.client.await_live(Some("kv-client"), "a thousand READs", |report| reads(report) >= 1000);
        }
        let shown = client.end_whole(1);
        server.end_whole(0);
        assert!(unwrapped(&shown.stderr).contains(says), "{set}: {shown}");
    }
}
