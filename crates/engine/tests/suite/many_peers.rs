//! A port that takes many peers, on the software RNIC: they come, talk and go, each with a handle
//! of its own. The peers are not engines, but queue pairs of the test.
//!
//! Each test has a port number of its own: the software RNICs share one set of listeners.

use crate::common::desk::{counts, desk, server, start};
use crate::common::peers::Peers;
use crate::common::{PATIENCE, assert_clean, plan, until};
use verbline_engine::Runtime;
use verbline_verbs::connection::{ConnectOptions, ConnectionError};

const SHARED: &str = "connections_max = 256\nrx_shared_wr = 1024\ntx_depth_wr = 16\n";
const OWN: &str = "connections_max = 256\nrx_depth_wr = 4\ntx_depth_wr = 16\n";

#[test]
fn two_hundred_and_fifty_six_peers_talk_to_one_port() {
    for (port, keys) in [(7101, SHARED), (7102, OWN)] {
        let running = start(&server(port, keys));
        let mut peers = Peers::new(port);
        for _ in 0..256 {
            peers.ask().unwrap();
        }
        until(&running, |report| counts(report).open == 256);
        for round in 0..4u32 {
            for peer in 0..256u32 {
                peers.send(peer as usize, &[peer.to_le_bytes(), round.to_le_bytes()].concat());
            }
            for (peer, bytes) in peers.receive(256) {
                assert_eq!(bytes, [(peer as u32).to_le_bytes(), round.to_le_bytes()].concat());
            }
        }
        for peer in 0..256 {
            peers.leave(peer);
        }
        until(&running, |report| counts(report).closed == 256);
        let report = running.stop().unwrap();
        assert_clean(&report);
        let counts = counts(&report);
        assert_eq!((counts.max, counts.opened, counts.open, counts.open_max), (256, 256, 0, 256));
        assert_eq!((counts.requests, counts.failed, counts.rejected_full, counts.unanswered), (256, 0, 0, 0));
        assert_eq!(report.stage("desk").unwrap().counter("ended"), Some(256));
        // Each queue pair on the shared queue raised this event as it was released.
        let ends = report.events.iter().filter(|event| event.event == "IBV_EVENT_QP_LAST_WQE_REACHED");
        assert_eq!(ends.count(), 0, "a connection's end is counted with the connections");
        assert_eq!(report.drops, []);
    }
}

#[test]
fn a_place_is_used_again_and_an_old_handle_reaches_nobody() {
    let running = start(&server(7103, "connections_max = 2\nrx_shared_wr = 64\ntx_depth_wr = 16\n"));
    let mut peers = Peers::new(7103);
    let stays = peers.ask().unwrap();
    for round in 0..200u64 {
        let peer = peers.ask().unwrap();
        // The peer may have its answer before the lcore knows of the connection: then its messages
        // wait.
        peers.round_trip(peer, &round.to_le_bytes());
        peers.leave(peer);
        until(&running, |report| counts(report).closed == round + 1);
        peers.send(stays, b"late");
        peers.send(stays, b"nobody");
        peers.round_trip(stays, b"still here");
    }
    let report = running.stop().unwrap();
    assert_eq!(report.packets.held, 0);
    assert_eq!(report.dropped("no_connection"), 400);
    let counts = counts(&report);
    assert_eq!((counts.opened, counts.closed, counts.failed, counts.open_max), (201, 200, 0, 2));
}

#[test]
fn who_finds_no_place_is_told_and_may_come_later() {
    let running = start(&server(7104, "connections_max = 1\nrx_shared_wr = 64\ntx_depth_wr = 16\n"));
    let mut peers = Peers::new(7104);
    let first = peers.ask().unwrap();
    let error = peers.ask().unwrap_err();
    assert_eq!(
        error.to_string(),
        "rejected by 10.9.9.1:7104 (reason 28): port.door has 1 connections, and takes no more"
    );
    peers.round_trip(first, b"mine");
    peers.leave(first);
    until(&running, |report| counts(report).closed == 1);
    let second = loop {
        match peers.ask() {
            Ok(second) => break second,
            // The last queue pair may still be on its way back.
            Err(error) => assert!(matches!(error, ConnectionError::Rejected { .. }), "{error}"),
        }
    };
    peers.round_trip(second, b"now mine");
    let report = running.stop().unwrap();
    assert_eq!((report.packets.held, counts(&report).opened), (0, 2));
    assert!(counts(&report).rejected_full >= 1);
}

#[test]
fn who_is_in_the_middle_of_a_handshake_as_the_run_ends_is_counted() {
    let running = start(&server(7120, "connections_max = 4\nrx_shared_wr = 64\ntx_depth_wr = 16\n"));
    let mut peers = Peers::new(7120);
    let first = peers.ask().unwrap();
    peers.round_trip(first, b"in earnest");
    let asked: Vec<_> = (0..2).map(|_| peers.begin(&ConnectOptions::default()).unwrap()).collect();
    until(&running, |report| counts(report).requests == 3);
    let report = running.stop().unwrap();
    let counts = counts(&report);
    assert_eq!((counts.requests, counts.opened, counts.unanswered), (3, 1, 2), "{counts:?}");
    drop(asked);
}

#[test]
fn a_stage_closes_a_connection_and_its_last_answer_arrives() {
    let running = start(&server(7105, SHARED));
    let mut peers = Peers::new(7105);
    let (leaves, stays) = (peers.ask().unwrap(), peers.ask().unwrap());
    peers.round_trip(leaves, b"hello");
    peers.round_trip(leaves, b"bye");
    let connection = peers.all[leaves].connection.as_mut().unwrap();
    assert!(connection.wait_disconnected(PATIENCE).unwrap(), "the peer is told");
    peers.round_trip(stays, b"still here");
    let report = running.stop().unwrap();
    assert_clean(&report);
    assert_eq!((counts(&report).closed, counts(&report).failed), (1, 0));
}

/// The client half of a plan whose server half is [`server`].
fn client(port: u16, keys: &str, count: u64) -> String {
    format!(
        r#"
        [pool.c]
        device = "nic0"
        packets = 4096
        data_bytes = 128
        pages = "4KiB"
        [port.caller]
        lcore = "only"
        device = "nic0"
        pool = "c"
        transport = "rc"
        connect = "10.9.9.1:{port}"
        rx_shared_wr = 256
        tx_depth_wr = 16
        next = "stage.sink"
        {keys}
        [stage.gen]
        use = "generator"
        lcore = "only"
        pool = "c"
        out = {{ out = "port.caller" }}
        params = {{ count = {count}, gap_us = 20 }}
        [stage.sink]
        use = "sink"
        lcore = "only"
        params = {{ any_order = true }}
        "#
    )
}

/// The peers of a plan's server are the connections of a client in the same plan: packets without a
/// connection go to each in turn.
#[test]
fn a_port_that_connects_often_spreads_what_it_sends() {
    let text = server(7107, SHARED) + &client(7107, "connections = 8", 2000);
    let registry = desk();
    let running = Runtime::build(&plan(&registry, &text), &registry).unwrap().start().unwrap();
    until(&running, |report| counts(report).open == 8);
    running.wait(Some(PATIENCE));
    let report = running.stop().unwrap();
    assert_eq!(report.packets.held, 0);
    let [door, caller] = ["door", "caller"].map(|name| report.port(name).unwrap());
    let connections = caller.connections.as_ref().unwrap();
    assert_eq!((connections.opened, connections.open_max, counts(&report).opened), (8, 8, 8));
    // Packets sent before any connection was open had nowhere to go.
    assert_eq!(door.rx_packets + report.dropped("no_connection"), 2000);
    // Packets that came before their connection was known are answered in one burst, which may be
    // more than the connection can send.
    let unsent: u64 = report.drops.iter().filter(|drop| drop.place == "port.door").map(|drop| drop.packets).sum();
    assert_eq!(unsent, report.dropped("tx_full"), "{:?}", report.drops);
    assert_eq!((caller.rx_packets, door.tx_packets + unsent), (door.tx_packets, door.rx_packets));
}

/// Of its three addresses, the first is a server that takes two, the second is nobody's, and the
/// third is a server that takes many.
#[test]
fn a_port_that_connects_to_several_addresses_fails_over() {
    let second = server(7109, "connections_max = 16\nrx_shared_wr = 64\ntx_depth_wr = 16\n");
    let second = &second[second.find("[port.door]").unwrap()..second.find("[stage.desk]").unwrap()];
    let second = second.replace("[port.door]", "[port.back]").replace("stage.desk", "drop");
    let three = "[\"10.9.9.1:7108\", \"10.9.9.1:7199\", \"10.9.9.1:7109\"]";
    let caller = client(7108, "connections = 8", 2000).replace("\"10.9.9.1:7108\"", three);
    let first = server(7108, "connections_max = 2\nrx_shared_wr = 64\ntx_depth_wr = 16\n");
    let registry = desk();
    let text = first + &second + &caller;
    let running = Runtime::build(&plan(&registry, &text), &registry).unwrap().start().unwrap();
    let of = |report: &verbline_engine::Report, port: &str| report.port(port).unwrap().connections.clone().unwrap();
    until(&running, |report| of(report, "caller").open == 8);
    running.wait(Some(PATIENCE));
    let report = running.stop().unwrap();
    assert_eq!(report.packets.held, 0);
    let [door, back, caller] = ["door", "back", "caller"].map(|port| of(&report, port));
    // Two found a place at the first address; the second has no listener; the third has the rest.
    assert_eq!((door.open_max, back.open_max, caller.open_max), (2, 6, 8), "{report:#?}");
    assert!(caller.failed_over >= 1 && caller.rejected_by_peer >= 1, "{caller:?}");
    assert_eq!((caller.unanswered, caller.opened), (caller.requests - 8, 8), "{caller:?}");
}
