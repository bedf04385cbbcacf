//! Facts for hosts that have no namespace yet: the subsystem's addresses, and a controller's
//! description of itself.

use crate::common::{CONNECT, Host, SUBSYSTEM, end, plan, start, target};
use verbline::engine::Running;
use verbline_nvme::connect::CNTLID_ANY;
use verbline_nvme::discovery::{DiscoveryEntry, read_head};
use verbline_nvme::identify::cns;
use verbline_nvme::log::LogRequest;
use verbline_nvme::property::{self, Property};
use verbline_nvme::{Command, DISCOVERY_NQN, opcode};

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
