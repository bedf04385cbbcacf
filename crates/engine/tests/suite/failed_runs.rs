//! A run that has failed and is not stopped: its peers hear of its end all the same.

use std::time::{Duration, Instant};

use crate::common::desk::{counts, server, start};
use crate::common::peers::Peers;
use crate::common::{PATIENCE, one_lcore, plan, registry, until};
use verbline_engine::{ConnectionState, Ended, EngineError, Outputs, Registry, Running, Runtime, Stage, StageSpec};
use verbline_mem::Batch;
use verbline_verbs::expert::fault;

/// Fails at its first packet.
struct Fails;

impl Stage for Fails {
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        input.clear();
        out.fail("it cannot go on");
    }
}

fn app() -> Registry {
    let mut registry = registry();
    registry.stage("fails", StageSpec::default(), |_| Ok(Box::new(Fails)));
    registry
}

/// A run whose lcore `only` has a port of these keys, and these stages.
fn end(device: &str, port: &str, stages: &str) -> Runtime {
    let keys = r#"
        [port.line]
        lcore = "only"
        device = "nic0"
        pool = "p"
        transport = "rc"
        rx_depth_wr = 64
        tx_depth_wr = 64
    "#;
    let text = one_lcore("event", &format!("{keys}\n{port}\n{stages}"));
    let text = text.replace("\"soft0\"", &format!("\"{device}\"")).replace("idle =", "drain = \"200ms\"\nidle =");
    Runtime::build(&plan(&app(), &text), &app()).unwrap()
}

/// A server that fails at its first packet, and a client that has sent it one.
fn failed_server(address: &str, keys: &str) -> (Running, Running) {
    let listens = format!("listen = \"{address}\"\n{keys}\nnext = \"stage.fails\"");
    let server = end("soft1", &listens, "[stage.fails]\nuse = \"fails\"\nlcore = \"only\"");
    let generator = "[stage.gen]\nuse = \"generator\"\nlcore = \"only\"\npool = \"p\"\n\
                     out = { out = \"port.line\" }\nparams = { count = 1 }";
    let client = end("soft0", &format!("connect = \"{address}\"\nnext = \"drop\""), generator);
    let client = std::thread::spawn(move || client.start().unwrap());
    let server = server.start().unwrap();
    let client = client.join().unwrap();
    assert_eq!(server.wait(Some(PATIENCE)), Ended::Failed);
    (server, client)
}

// Regression: a peer that only receives waited until the owner of the failed run stopped it.
#[test]
fn the_other_end_of_a_failed_run_is_told_though_nobody_stops_it() {
    for (port, keys) in [(7031, "reconnect = true"), (7032, "reconnect = false")] {
        let (server, client) = failed_server(&format!("10.9.9.2:{port}"), keys);
        let report = until(&client, |report| report.connection("line").unwrap().ended_ns.is_some());
        let line = report.connection("line").unwrap();
        assert_eq!(line.reason.as_deref(), Some("the peer disconnected"), "{keys}");
        // Nobody listens there any more.
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(client.snapshot().connection("line").unwrap().state, ConnectionState::Reconnecting);
        client.stop().unwrap();
        let Err(EngineError::Failed { report, .. }) = server.stop() else { panic!("it has failed") };
        // The connection ended because the run did.
        assert_eq!(report.connection("line").unwrap().state, ConnectionState::Connected);
        assert_eq!(report.packets.held, 0);
    }
}

// Regression: a peer that only receives heard of it at the end of the run.
#[test]
fn the_other_end_of_a_queue_pair_that_fails_for_good_is_told_at_once() {
    let server = end("soft1", "listen = \"10.9.9.2:7035\"\nreconnect = false\nnext = \"drop\"", "");
    let client = end("soft0", "connect = \"10.9.9.2:7035\"\nnext = \"drop\"", "");
    let client = std::thread::spawn(move || client.start().unwrap());
    let server = server.start().unwrap();
    let client = client.join().unwrap();
    assert!(fault::break_queue_pair(server.snapshot().port("line").unwrap().qpn));
    let [told, failed] = [&client, &server].map(|end| {
        let report = until(end, |report| report.connection("line").unwrap().ended_ns.is_some());
        let line = report.connection("line").unwrap();
        (line.state, line.reason.clone().unwrap())
    });
    assert_eq!(told, (ConnectionState::Reconnecting, "the peer disconnected".to_owned()));
    assert!(failed.0 == ConnectionState::Failed && failed.1.starts_with("its queue pair failed: IBV_"), "{failed:?}");
    client.stop().unwrap();
    let error = server.stop().unwrap_err().to_string();
    assert!(error.contains("port.line is down for good"), "{error}");
}

#[test]
fn all_peers_of_a_failed_run_are_told_though_nobody_stops_it() {
    let server = start(&server(7033, "connections_max = 8\nrx_shared_wr = 64\ntx_depth_wr = 16"));
    let mut peers = Peers::new(7033);
    for peer in 0..3 {
        peers.ask().unwrap();
        peers.round_trip(peer, b"hello");
    }
    peers.send(0, b"panic");
    assert_eq!(server.wait(Some(PATIENCE)), Ended::Failed);
    for (number, peer) in peers.all.iter_mut().enumerate() {
        let connection = peer.connection.as_mut().unwrap();
        assert!(connection.wait_disconnected(PATIENCE).unwrap(), "peer {number} is not told");
    }
    let error = peers.ask().unwrap_err().to_string();
    assert!(error.contains("nobody listens at 10.9.9.1:7033"), "{error}");
    let Err(EngineError::Panicked { report, .. }) = server.stop() else { panic!("a stage panicked") };
    assert_eq!((counts(&report).opened, report.packets.held), (3, 0));
}

/// While a failed run drains, it serves its peers, and takes no more.
#[test]
fn a_failed_run_that_drains_takes_no_more_peers() {
    let text = server(7034, "connections_max = 8\nrx_shared_wr = 64\ntx_depth_wr = 16");
    let server = start(&text.replace("cpu = \"allowed:0\"", "cpu = \"allowed:0\"\ndrain = \"4s\""));
    let mut peers = Peers::new(7034);
    peers.ask().unwrap();
    peers.round_trip(0, b"fail");
    assert_eq!(server.wait(Some(PATIENCE)), Ended::Failed);
    let since = Instant::now();
    // One that asked as the listener went was refused by that.
    let nobody = "nobody listens at 10.9.9.1:7034";
    while !peers.ask().is_err_and(|error| error.to_string().contains(nobody)) {
        assert!(since.elapsed() < Duration::from_secs(2), "it takes peers while it drains");
    }
    peers.round_trip(0, b"hello");
    let connection = peers.all[0].connection.as_mut().unwrap();
    assert!(connection.wait_disconnected(PATIENCE).unwrap(), "the peer is not told");
    let Err(EngineError::Failed { report, .. }) = server.stop() else { panic!("it has failed") };
    assert_eq!(report.packets.held, 0);
}
