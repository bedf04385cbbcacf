//! Peers that ask for things they may not have: memory by a wrong key, receives that are not
//! posted, more than a packet holds, a stage's panic. Otherwise like hostile_peers.rs.

use crate::common::desk::{counts, server};
use crate::common::peers::{DEPTH, MESSAGE_BYTES};
use crate::common::scene::{FOUR, Scene, assert_nothing_lost, often};
use crate::common::{PATIENCE, provider, until};
use verbline_engine::{Ended, EngineError, Remote};
use verbline_verbs::connection::ConnectOptions;
use verbline_verbs::{Provider, SendOptions, Status, expert::fault};

/// A server whose stage has a region that peers may write, but not read.
fn with_board(port: u16) -> String {
    let text = server(port, FOUR).replace("use = \"desk\"", "use = \"desk\"\nregions = [\"board\"]");
    text + "[region.board]\ndevice = \"nic0\"\nbytes = 65000\n" + "rights = [\"local-write\", \"remote-write\"]\n"
}

impl Scene {
    /// Asks for the region's key, as one of the bad peers.
    fn key(&mut self, peer: usize) -> Remote {
        self.bad.send(peer, b"key");
        let bytes = self.bad.receive(1).remove(0).1;
        Remote::from_bytes(bytes.as_slice().try_into().unwrap())
    }
}

#[test]
fn dies_amid_writes() {
    let mut scene = Scene::of(7209, &with_board(7209));
    let rounds = often(500);
    for round in 1..=rounds {
        let peer = scene.enter();
        let key = scene.key(peer);
        for at in 0..u64::from(DEPTH) {
            // Half of them are done; the rest never will be.
            if at == u64::from(DEPTH) / 2 && provider() == Provider::Soft {
                assert!(fault::break_queue_pair(scene.bad.all[peer].qp.qpn()));
            }
            let packet = scene.bad.packet(&[round as u8; MESSAGE_BYTES]);
            let to = key.offset(at * MESSAGE_BYTES as u64);
            scene.bad.all[peer].qp.rc().unwrap().write(packet, to, SendOptions::default()).unwrap();
        }
        scene.bad.all.clear();
        scene.bad.forget();
        scene.trip();
    }
    // Nobody wrote to its last part.
    let witness = scene.enter();
    scene.bad.round_trip(witness, b"let in");
    scene.bad.send(witness, b"read");
    assert_eq!(scene.bad.receive(1), [(witness, vec![0; 64])]);
    let report = scene.end();
    assert_eq!(counts(&report).opened, u64::from(rounds) + 2);
    assert_nothing_lost(&report, rounds);
}

/// The ways in which a peer reaches for memory that is not its own.
#[derive(Clone, Copy, Debug)]
enum Reach {
    WrongKey,
    NoKey,
    Beyond,
    NoRight,
    NoRightToAdd,
}

#[test]
fn wrong_key() {
    let mut scene = Scene::of(7210, &with_board(7210));
    let first = scene.enter();
    let key = scene.key(first);
    scene.bad.all.clear();
    scene.ended(1, 0);
    let mut failed = 0;
    for _ in 0..often(20) {
        for reach in [Reach::WrongKey, Reach::NoKey, Reach::Beyond, Reach::NoRight, Reach::NoRightToAdd] {
            // At once, and after the server surely knows the connection.
            for is_known in [false, true] {
                let peer = scene.enter();
                if is_known {
                    scene.bad.round_trip(peer, b"let in");
                }
                let packet = scene.bad.packet(&[0xee; 8]);
                let mut qp = scene.bad.all[peer].qp.rc().unwrap();
                let (rkey, options) = (key.rkey, SendOptions::default());
                let asked = match reach {
                    Reach::WrongKey => qp.write(packet, Remote { rkey: rkey ^ 1, ..key }, options),
                    Reach::NoKey => qp.write(packet, Remote { rkey: 0xffff_ffff, ..key }, options),
                    // Beyond the plan's length, but not beyond the last page.
                    Reach::Beyond => qp.write(packet, key.offset(64_993), options),
                    Reach::NoRight => qp.read(packet, key, options),
                    Reach::NoRightToAdd => qp.fetch_add(packet, key, 1, options),
                };
                asked.unwrap();
                scene.bad.until("the peer is refused", |bad| bad.all[peer].failed.is_some());
                let told = scene.bad.all[peer].failed;
                let wanted = [Status::REM_ACCESS_ERR, Status::REM_INV_REQ_ERR];
                assert!(wanted.contains(&told.unwrap()), "{reach:?}: {told:?}");
                failed += 1;
                // The connection is over although the peer has not left. Only rxe does not report
                // that.
                match provider() {
                    Provider::Soft => scene.ended(1, failed),
                    Provider::Kernel => {
                        scene.bad.leave(peer);
                        scene.over(1 + failed);
                    }
                }
                scene.trip();
            }
        }
    }
    let witness = scene.enter();
    scene.bad.send(witness, b"read");
    assert_eq!(scene.bad.receive(1), [(witness, vec![0; 64])]);
    let report = scene.end();
    assert!(report.events.iter().filter(|event| event.event.contains("QP")).count() <= 2, "{:?}", report.events);
}

#[test]
fn more_than_receives() {
    if provider() != Provider::Soft {
        // With rdma_cm a peer gets the server's count of retries, which is unlimited.
        return eprintln!("skipped: on kernel devices: nobody can ask for fewer RNR retries than the server does");
    }
    let mut scene = Scene::new(7211, "connections_max = 4\nrx_shared_wr = 8\ntx_depth_wr = 16\n");
    let hasty = scene.bad.ask_with(&ConnectOptions { rnr_retry_count: 0, ..ConnectOptions::default() }).unwrap();
    let patient = scene.enter();
    scene.bad.round_trip(hasty, b"let in");
    scene.bad.round_trip(patient, b"let in");
    scene.gate.open(false);
    scene.bad.send(patient, b"nap");
    let mut sent = 0;
    while scene.bad.all[hasty].failed.is_none() {
        if scene.bad.all[hasty].qp.send_room() > 0 {
            scene.bad.send(hasty, b"quiet");
            sent += 1;
        }
        scene.bad.poll();
        assert!(sent < 1_000, "there is no end of receives");
    }
    assert_eq!(scene.bad.all[hasty].failed, Some(Status::RNR_RETRY_EXC_ERR));
    scene.good.send(0, &scene.trips.to_le_bytes());
    scene.gate.open(true);
    assert_eq!(scene.good.receive(1), [(0, scene.trips.to_le_bytes().to_vec())]);
    scene.trips += 1;
    assert_eq!(scene.bad.receive(1), [(patient, b"nap".to_vec())]);
    // The messages that the peer was told were sent are served, and no others.
    let arrived = scene.bad.all[hasty].done - 1;
    assert!(arrived < 8, "the nap and {arrived} more took all receives");
    scene.served(3 + arrived);
    scene.bad.leave(hasty);
    scene.ended(1, 0);
    scene.end();
}

#[test]
fn longer_than_a_packet() {
    let mut scene = Scene::new(7213, FOUR);
    for round in 1..=u64::from(often(500)) {
        let peer = scene.enter();
        if round % 2 == 0 {
            scene.bad.round_trip(peer, b"let in");
        }
        scene.bad.send(peer, &[7; MESSAGE_BYTES]);
        scene.bad.until("the peer is refused", |bad| bad.all[peer].failed.is_some());
        scene.ended(0, round);
        scene.trip();
        until(&scene.running, |report| report.dropped("recv_error") == round);
        // Each remaining peer keeps descriptors, and a process may have 1,024.
        scene.bad.all.clear();
    }
    let report = scene.end();
    let door = report.port("door").unwrap();
    let [error] = &door.errors[..] else { panic!("{:?}", door.errors) };
    assert_eq!(error.count, u64::from(often(500)));
    // For a receive that is too short, rxe reports the status that the sender gets.
    assert!(provider() != Provider::Soft || error.status == "LOC_LEN_ERR", "{error:?}");
}

#[test]
fn stage_panics() {
    let mut scene = Scene::new(7214, FOUR);
    let peer = scene.enter();
    scene.bad.round_trip(peer, b"let in");
    scene.bad.send(peer, b"panic");
    assert_eq!(scene.running.wait(Some(PATIENCE)), Ended::Failed);
    let error = scene.running.stop().unwrap_err();
    let EngineError::Panicked { lcore, stage, message, report } = error else { panic!("{error}") };
    assert_eq!((&*lcore, stage.as_deref(), &*message), ("only", Some("desk"), "as told"));
    assert_eq!(report.packets.held, 0, "{:?}", report.packets);
    assert_eq!(report.failures.len(), 1);
    for peer in [&mut scene.good.all[0], &mut scene.bad.all[0]] {
        let connection = peer.connection.as_mut().unwrap();
        assert!(connection.wait_disconnected(PATIENCE).unwrap(), "each peer is told");
    }
}
