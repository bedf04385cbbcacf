//! Hostile peers at a port that takes many: their requests are bounded and counted with a reason,
//! and other connections do not notice. docs/hostile-peers.md has the table. On the software RNIC;
//! with `ENGINE_TEST_PROVIDER=kernel` on the kernel's rxe0 and rxe1, as tests/guest/run makes them.
//!
//! The peers are not engines, but queue pairs of the test. Each test has a port number of its own:
//! the software RNICs share one set of listeners.

use std::collections::BTreeSet;

use crate::common::desk::counts;
use crate::common::peers::DEPTH;
use crate::common::scene::{FOUR, Scene, assert_no_growth, assert_nothing_lost, often, resident_bytes};
use crate::common::{provider, until};
use verbline_verbs::Provider;
use verbline_verbs::connection::{CONNECT_PRIVATE_BYTES, ConnectOptions, ConnectionError};

#[test]
fn asks_without_end() {
    let mut scene = Scene::new(7201, FOUR);
    (0..3).for_each(|_| _ = scene.enter());
    let mut before_bytes = 0;
    for asked in 0..often(4_000) {
        let error = scene.bad.ask().unwrap_err();
        assert!(matches!(error, ConnectionError::Rejected { .. }), "{error}");
        if asked == often(400) {
            before_bytes = resident_bytes();
        }
        if asked % 16 == 0 {
            scene.trip();
        }
    }
    assert_no_growth(before_bytes);
    let report = scene.end();
    assert_eq!((counts(&report).opened, counts(&report).open_max), (4, 4));
    assert!(counts(&report).rejected_full >= u64::from(often(4_000)), "{:?}", counts(&report));
}

/// Waits until every request before is answered: requests that wait take memory, which their number
/// bounds.
fn catch_up(scene: &mut Scene) {
    loop {
        match scene.bad.ask() {
            Ok(peer) => return scene.bad.all.truncate(peer),
            Err(error) => {
                assert!(matches!(error, ConnectionError::Refused { .. } | ConnectionError::Rejected { .. }), "{error}")
            }
        }
    }
}

#[test]
fn hangs_up() {
    let mut scene = Scene::new(7202, FOUR);
    let mut before_bytes = 0;
    for asked in 0..often(4_000) {
        match scene.bad.begin(&ConnectOptions::default()) {
            Ok(asked) => drop(asked),
            // The other requests wait for an answer.
            Err(error) => assert!(matches!(error, ConnectionError::Refused { .. }), "{error}"),
        }
        if asked == often(400) {
            catch_up(&mut scene);
            before_bytes = resident_bytes();
        }
        if asked % 16 == 0 {
            scene.trip();
        }
    }
    catch_up(&mut scene);
    assert_no_growth(before_bytes);
    let peer = scene.enter();
    scene.bad.round_trip(peer, b"in earnest");
    let report = scene.end();
    assert!(counts(&report).unanswered > 0, "{:?}", counts(&report));
}

/// One peer connects and sends nothing more; others do not even finish the handshake: the third of
/// its three messages never comes, and their places are free again after five seconds.
#[test]
fn never_answers() {
    let mut scene = Scene::new(7203, FOUR);
    let silent = scene.enter();
    let held: Vec<_> = (0..2).map(|_| scene.bad.begin(&ConnectOptions::default()).unwrap()).collect();
    let error = loop {
        // Their requests may not have been read yet.
        match scene.good.ask() {
            Ok(peer) => scene.good.all.truncate(peer),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, ConnectionError::Rejected { .. }), "{error}");
    until(&scene.running, |report| counts(report).unanswered >= 2);
    scene.trip();
    let other = scene.enter();
    scene.bad.round_trip(other, b"in earnest");
    scene.bad.round_trip(silent, b"here all the time");
    drop(held);
    scene.end();
}

#[test]
fn private_data() {
    let mut scene = Scene::new(7204, FOUR);
    let ask = |scene: &mut Scene, private_data: Vec<u8>| {
        scene.bad.ask_with(&ConnectOptions { private_data, ..ConnectOptions::default() })
    };
    // Any bytes, from a linear congruential generator.
    let mut state = 1u32;
    let mut random = |len: usize| -> Vec<u8> {
        let next = |state: &mut u32| *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        std::iter::repeat_with(|| (next(&mut state), (state >> 24) as u8).1).take(len).collect()
    };
    for len in [0, 1, 7, 32, CONNECT_PRIVATE_BYTES - 1, CONNECT_PRIVATE_BYTES] {
        let peer = loop {
            match ask(&mut scene, random(len)) {
                Ok(peer) => break peer,
                Err(error) => assert!(matches!(error, ConnectionError::Rejected { .. }), "{error}"),
            }
        };
        scene.bad.round_trip(peer, b"let in");
        scene.bad.leave(peer);
        scene.trip();
    }
    let requests = counts(&scene.running.snapshot()).requests;
    for len in [CONNECT_PRIVATE_BYTES + 1, 255, 65_536] {
        let error = ask(&mut scene, random(len)).unwrap_err();
        assert!(matches!(error, ConnectionError::PrivateData { .. }), "{error}");
        scene.trip();
    }
    let report = scene.end();
    assert_eq!(counts(&report).requests, requests);
}

#[test]
fn floods() {
    let mut scene = Scene::new(7205, FOUR);
    let flooder = scene.enter();
    for sent in 0..often(50_000) {
        scene.bad.send(flooder, b"quiet");
        if sent % 64 == 0 {
            scene.trip();
        }
    }
    scene.served(often(50_000).into());
    let report = scene.end();
    let door = report.port("door").unwrap();
    assert_eq!(door.rx_packets, door.tx_packets + u64::from(often(50_000)));
    assert_eq!(report.drops, []);
}

/// The lcore may hear of a connection long after its peer has begun to send.
#[test]
fn floods_too_early() {
    let mut scene = Scene::new(7206, "connections_max = 8\nrx_shared_wr = 256\ntx_depth_wr = 16\n");
    let rounds = often(500);
    for round in 1..=rounds {
        let peer = scene.enter();
        (0..200).for_each(|_| scene.bad.send(peer, b"quiet"));
        scene.bad.round_trip(peer, b"all read");
        scene.bad.leave(peer);
        scene.served(u64::from(round) * 201);
        scene.trip();
    }
    let report = scene.end();
    assert_nothing_lost(&report, rounds);
}

#[test]
fn floods_and_leaves() {
    let mut scene = Scene::new(7207, "connections_max = 8\nrx_shared_wr = 64\ntx_depth_wr = 16\n");
    let rounds = often(500);
    for _ in 0..rounds {
        let peer = scene.enter();
        (0..50).for_each(|_| scene.bad.send(peer, b"quiet"));
        scene.bad.until("all are acknowledged", |bad| bad.all[peer].done == 50);
        scene.bad.leave(peer);
        scene.trip();
    }
    let trips = u64::from(scene.trips) + 1;
    let report = scene.end();
    let served = report.stage("desk").unwrap().counter("served").unwrap() - trips;
    assert_eq!(served + report.dropped("no_connection"), u64::from(rounds) * 50);
}

#[test]
fn stops_reading() {
    let mut scene = Scene::new(7208, "connections_max = 4\nrx_shared_wr = 64\ntx_depth_wr = 4\nsignal_every_wr = 1\n");
    let deaf = scene.enter();
    scene.bad.all[deaf].reads = false;
    // The peer's receives are posted; messages beyond them wait in the server's send queue, which
    // has room for four.
    let (read, waiting, sent) = (u64::from(DEPTH), 4, 40);
    for number in 0..sent {
        scene.bad.send(deaf, b"answer me");
        if number < read {
            assert_eq!(scene.bad.receive(1), [(deaf, b"answer me".to_vec())]);
        }
        scene.trip();
    }
    let dropped = sent - read - waiting;
    until(&scene.running, |report| report.dropped("tx_full") >= dropped);
    assert_eq!(counts(&scene.running.snapshot()).open, 2);
    scene.bad.all.clear();
    let report = scene.end();
    if provider() == Provider::Soft {
        assert_eq!(report.dropped("tx_full"), dropped);
        assert_eq!(report.dropped("send_error"), waiting, "what waited is lost with the connection");
    }
    let door = report.port("door").unwrap();
    assert_eq!(door.rx_packets, door.tx_packets + report.dropped("tx_full"));
}

#[test]
fn comes_back() {
    let mut scene = Scene::new(7212, FOUR);
    let rounds = often(10_000);
    let mut before_bytes = 0;
    for round in 0..rounds {
        let peer = scene.enter();
        if round % 3 > 0 {
            scene.bad.round_trip(peer, &round.to_le_bytes());
        }
        scene.bad.all.clear();
        if round == rounds / 10 {
            before_bytes = resident_bytes();
        }
        if round % 64 == 0 {
            scene.trip();
        }
    }
    assert_no_growth(before_bytes);
    let report = scene.end();
    let counts = counts(&report);
    assert_eq!((counts.opened + counts.unanswered, counts.failed), (u64::from(rounds) + 1, 0));
    assert_nothing_lost(&report, rounds);
}

#[test]
fn the_page_and_the_tests_name_each_other() {
    let page = include_str!("../../../../docs/hostile-peers.md");
    let rows = page.lines().filter(|line| line.starts_with("| ")).skip(2);
    let named: BTreeSet<_> = rows.filter_map(|row| row.rsplit('`').nth(1)).collect();
    let sources = [include_str!("hostile_peers.rs"), include_str!("hostile_requests.rs")];
    let tests = sources.iter().flat_map(|source| source.split("#[test]\nfn ").skip(1));
    let here: BTreeSet<_> = tests.filter_map(|test| test.split('(').next()).collect();
    assert_eq!(here.difference(&named).collect::<Vec<_>>(), [&"the_page_and_the_tests_name_each_other"]);
    assert_eq!(named.difference(&here).next(), None);
}
