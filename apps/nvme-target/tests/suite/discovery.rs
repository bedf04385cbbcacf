//! Facts for hosts that have no namespace yet: the subsystem's addresses, and a controller's
//! description of itself.

use std::time::Duration;

use crate::common::{CONNECT, Host, SUBSYSTEM, end, load, plan, start, target};
use nvme_target::NvmeTarget;
use verbline::engine::{ConnectionPeer, Running};
use verbline::testing::StageTest;
use verbline_nvme::cm::Request;
use verbline_nvme::connect::{CNTLID_ANY, Connect, ConnectData, DATA_BYTES};
use verbline_nvme::discovery::{DiscoveryEntry, read_head};
use verbline_nvme::identify::cns;
use verbline_nvme::log::LogRequest;
use verbline_nvme::property::{self, Property};
use verbline_nvme::{Command, DISCOVERY_NQN, Nqn, Sgl, opcode};

fn log(host: &Host, id: u8, len: u32) -> Command {
    let asked = LogRequest { id, retain_event: true, offset: 0, len: len.into() };
    Command::new(opcode::admin::GET_LOG_PAGE, 0, host.keyed(0, len)).with(asked.dwords())
}

/// The generation of the discovery log, and its entries.
#[track_caller]
fn discovered(host: &mut Host) -> (u64, Vec<DiscoveryEntry>) {
    let admin = host.dial_queue(0);
    let data = host.data(CNTLID_ANY, DISCOVERY_NQN);
    assert!(host.connect(admin, CONNECT, &data).status.is_success());
    let cc = Property { offset: property::CC, is_wide: false };
    assert!(host.ask(admin, &cc.set(0, property::CC_USUAL.into())).status.is_success());
    let command = log(host, 0x70, 4096);
    assert!(host.ask(admin, &command).status.is_success());
    let page = host.bytes(0, 4096);
    let (generation, entries) = read_head(&page).expect("a head");
    let entries =
        page[1024..].chunks(1024).take(entries as usize).map(|entry| DiscoveryEntry::read(entry).expect("an entry"));
    (generation, entries.collect())
}

#[test]
fn discovery_says_where_the_subsystem_is() {
    let running = target(7814, "");
    let (first, entries) = discovered(&mut Host::new(7814));
    let [entry] = entries[..] else { panic!("{entries:?}") };
    assert_eq!((entry.address, entry.subsystem.as_str()), (([10, 9, 9, 1], 7814).into(), SUBSYSTEM));
    end(running);
    // The next run may have other listeners: hosts see that its log differs.
    let running = target(7814, "addresses = [\"192.0.2.1:4420\", \"192.0.2.2:4421\"]");
    let (second, entries) = discovered(&mut Host::new(7814));
    let addresses = entries.iter().map(|entry| entry.address.to_string());
    assert_eq!(addresses.collect::<Vec<_>>(), ["192.0.2.1:4420", "192.0.2.2:4421"]);
    assert!(first > 1 && second > first, "{first}, {second}");
    end(running);
}

/// For a listener on every address, discovery names the address that the host used: it can connect
/// there.
#[test]
fn a_listener_on_every_address_is_found_where_it_was_called() {
    for (port, every) in [(7896, "0.0.0.0"), (7897, "[::]")] {
        let running = start(&plan(port, "").replace(&format!("10.9.9.1:{port}"), &format!("{every}:{port}")));
        let (_, entries) = discovered(&mut Host::new(port));
        let addresses: Vec<_> = entries.iter().map(|entry| entry.address).collect();
        assert_eq!(addresses, [([10, 9, 9, 1], port).into()]);
        end(running);
    }
}

/// The firmware slot log is mandatory: one slot, with the revision in Identify.
#[test]
fn the_firmware_is_in_its_slot() {
    let running = target(7898, "");
    let mut host = Host::new(7898);
    let (admin, _) = host.controller();
    let command = log(&host, 0x03, 512);
    assert!(host.ask(admin, &command).status.is_success());
    let slots = host.bytes(0, 512);
    let identify = Command::new(opcode::admin::IDENTIFY, 0, host.keyed(0, 4096));
    assert!(host.ask(admin, &identify.with([cns::CONTROLLER.into(), 0, 0, 0, 0, 0])).status.is_success());
    let page = host.bytes(0, 4096);
    assert_eq!((slots[0], page[260]), (1, 0x03), "slot 1 is active; there is one, and nobody writes it");
    assert_eq!(slots[8..16], page[64..72]);
    assert!(slots[16..].iter().all(|byte| *byte == 0));
    end(running);
}

/// Linux accepts any name for hosts and subsystems.
#[test]
fn names_need_not_begin_as_the_specification_says() {
    let running: Running = start(&plan(7899, "hosts = [\"plain-host\"]").replace(SUBSYSTEM, "blktests-subsystem-1"));
    let mut host = Host::new(7899);
    host.name = "plain-host";
    let admin = host.dial_queue(0);
    let data = host.data(CNTLID_ANY, "blktests-subsystem-1");
    let answer = host.connect(admin, CONNECT, &data);
    assert!(answer.status.is_success(), "{answer:?}");
    end(running);
}

/// Regression: a discovery controller without a keep-alive time-out kept its connection for ever,
/// if its host vanished without a word.
#[test]
fn a_discovery_controller_that_hears_nothing_for_two_minutes_ends() {
    for (name, kato_ms, is_ended) in [(DISCOVERY_NQN, 0, true), (DISCOVERY_NQN, 400_000, false), (SUBSYSTEM, 0, false)]
    {
        let (registry, plan) = load(&NvmeTarget::default(), &plan(7997, ""));
        let mut target = StageTest::open(&plan, &registry, "target").unwrap_or_else(|error| panic!("{error}"));
        let asked = Request { qid: 0, recv_depth: 16, send_depth_less_one: 15, cntlid: 0 };
        let [address, local] = [[192, 0, 2, 1], [192, 0, 2, 2]].map(|ip| (ip, 4791).into());
        let peer = ConnectionPeer { address, local, private_data: asked.to_bytes().into(), tag: 0 };
        let connection = target.connect_as("hosts", peer);
        let say = |target: &mut StageTest, bytes: &[u8]| {
            let capsule = target.packet_over(connection, bytes);
            target.process([capsule]);
            let mut answers = 0;
            target.complete("host", |_| {
                answers += 1;
                Ok(())
            });
            assert_eq!(answers, 1, "{name}");
        };
        let nqn = |text| Nqn::new(text).expect("a name");
        let data = ConnectData { host_id: [7; 16], cntlid: CNTLID_ANY, subsystem: nqn(name), host: nqn("nqn.x:host") };
        let sgl = Sgl::InCapsule { offset: 0, len: DATA_BYTES as u32 };
        let connect = Connect { sqsize: 15, kato_ms, ..CONNECT }.command(1, sgl);
        say(&mut target, &[&connect.to_bytes()[..], &data.to_bytes()].concat());
        let cc = Property { offset: property::CC, is_wide: false };
        say(&mut target, &cc.set(2, property::CC_USUAL.into()).to_bytes());
        let ended = |target: &StageTest| {
            let report = target.report();
            report.stage("target").and_then(|stage| stage.counter("keep_alive_expired"))
        };
        // Any command counts, as there is no time-out for Keep Alive to keep.
        for command in [cc.get(3), Command::new(opcode::admin::GET_FEATURES, 4, Sgl::NONE)] {
            target.advance(Duration::from_secs(110));
            assert_eq!(ended(&target), Some(0), "{name}, {kato_ms} ms");
            say(&mut target, &command.to_bytes());
        }
        target.advance(Duration::from_secs(119));
        assert_eq!(ended(&target), Some(0), "{name}, {kato_ms} ms");
        target.advance(Duration::from_secs(2));
        assert_eq!(ended(&target), Some(is_ended.into()), "{name}, {kato_ms} ms");
    }
}
