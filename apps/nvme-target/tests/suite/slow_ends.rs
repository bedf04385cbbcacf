//! Shutdowns and resets that take longer than the host's keep-alive time-out, as a disk may: the
//! controller carries out no Keep Alive meanwhile, and does not count its host as silent.

use std::time::{Duration, Instant};

use crate::common::{Host, end, plan, start_app, until};
use nvme_target::NvmeTarget;
use verbline::engine::Running;
use verbline_nvme::feature;
use verbline_nvme::io::ReadWrite;
use verbline_nvme::log::event;
use verbline_nvme::property::{self, Property};
use verbline_nvme::{Command, Sgl, Status, opcode};
use verbline_store::{Disk, Faults, FaultyStore};

const NSID: u32 = 3;
const BYTES: usize = 1 << 20;
/// Longer than a busy machine keeps the host from its next command.
const KATO_MS: u32 = 2_000;
const STALL: Duration = Duration::from_millis(2_800);

const CC: Property = Property { offset: property::CC, is_wide: false };
const CSTS: Property = Property { offset: property::CSTS, is_wide: false };

/// A target over a disk, and a host with a keep-alive time-out and one Write under way, which the
/// disk does not carry out.
fn stalled(port: u16) -> (Running, Disk, Host, usize) {
    let disk = Disk::new(BYTES, 4096, Faults::default(), 1).expect("a disk");
    let of_target = disk.clone();
    let app = NvmeTarget::default().with_store(NSID, move |depth| FaultyStore::over(&of_target, depth));
    let running = start_app(&plan(port, &format!("[nvme.namespace.{NSID}]\nnull_bytes = {BYTES}\n")), &app);
    let mut host = Host::new(port);
    let (admin, io) = host.queues();
    disk.stall(true);
    let range = ReadWrite { slba: 0, blocks: 1 }.dwords();
    let sgl = host.keyed(0, 4096);
    let write = Command { cid: 0x7001, nsid: NSID, ..Command::new(opcode::io::WRITE, 0, sgl).with(range) };
    host.send(io, &write.to_bytes());
    until(&running, "writes", 1);
    let set = Command::new(opcode::admin::SET_FEATURES, 0, Sgl::NONE);
    let set = set.with([feature::KEEP_ALIVE.into(), KATO_MS, 0, 0, 0, 0]);
    assert!(host.ask(admin, &set).status.is_success());
    (running, disk, host, admin)
}

/// Regression: the controller failed (CSTS.CFS) while its namespaces were flushed, and its host did
/// not learn whether they were.
#[test]
fn a_host_is_not_silent_while_its_shutdown_is_in_progress() {
    let (running, disk, mut host, admin) = stalled(7987);
    let shut_down = CC.set(0x6001, (property::CC_USUAL | 1 << 14).into());
    host.send(admin, &shut_down.to_bytes());
    assert!(host.response_within(admin, STALL).is_none(), "the disk is not flushed");
    disk.stall(false);
    let answer = host.response(admin);
    assert!(answer.cid == 0x6001 && answer.status.is_success(), "{answer:?}");
    let shown = host.ask(admin, &CSTS.get(0)).result as u32;
    assert_eq!(shown & (property::CSTS_SHUTDOWN | property::CSTS_FATAL), property::CSTS_SHUTDOWN_COMPLETE);
    end(running);
}

/// Regression: a host that waited for the end of its reset was disconnected.
#[test]
fn a_host_is_not_silent_while_its_reset_is_in_progress() {
    let (running, disk, mut host, admin) = stalled(7988);
    assert!(host.ask(admin, &CC.set(0, 0)).status.is_success());
    let from = Instant::now();
    while from.elapsed() < STALL {
        assert_eq!(host.ask(admin, &CSTS.get(0)).result, u64::from(property::CSTS_READY), "a Write is under way");
        std::thread::sleep(Duration::from_millis(50));
    }
    disk.stall(false);
    let deadline = Instant::now() + Duration::from_secs(20);
    while host.ask(admin, &CSTS.get(0)).result != 0 {
        assert!(Instant::now() < deadline, "it is over");
    }
    assert!(host.ask(admin, &CC.set(0, property::CC_USUAL.into())).status.is_success());
    let keep_alive = Command::new(opcode::admin::KEEP_ALIVE, 0, Sgl::NONE);
    assert!(host.ask(admin, &keep_alive).status.is_success());
    end(running);
}

/// Regression: a host was told that it had another power state, and errors for blocks that were
/// given back.
#[test]
fn features_that_a_controller_lacks_can_not_be_set() {
    let running = start_app(&plan(7996, ""), &NvmeTarget::default());
    let mut host = Host::new(7996);
    let (admin, _) = host.controller();
    let feature =
        |opcode, number: u8, value| Command::new(opcode, 0, Sgl::NONE).with([number.into(), value, 0, 0, 0, 0]);
    let lacks = [(feature::POWER_MANAGEMENT, 1, 1 << 5), (feature::ERROR_RECOVERY, 1 << 16, 7)];
    for (number, wrong, right) in lacks {
        let answer = host.ask(admin, &feature(opcode::admin::SET_FEATURES, number, wrong));
        assert!(answer.status.is(Status::INVALID_FIELD) && answer.status.is_final(), "{number:#x}: {answer:?}");
        assert!(host.ask(admin, &feature(opcode::admin::SET_FEATURES, number, right)).status.is_success());
        assert_eq!(host.ask(admin, &feature(opcode::admin::GET_FEATURES, number, 0)).result, u64::from(right));
    }
    end(running);
}

/// Regression: features outlived a reset, so that a host was told of events that it had not asked
/// for since.
#[test]
fn features_have_their_defaults_after_a_reset() {
    let app = NvmeTarget::default();
    let running = start_app(&plan(7989, ""), &app);
    let mut host = Host::new(7989);
    let (admin, cntlid) = host.controller();
    let feature =
        |opcode, number: u8, value| Command::new(opcode, 0, Sgl::NONE).with([number.into(), value, 0, 0, 0, 0]);
    let get = |host: &mut Host, number| host.ask(admin, &feature(opcode::admin::GET_FEATURES, number, 0));
    let granted = get(&mut host, feature::NUMBER_OF_QUEUES).result;
    let changed = [(feature::ASYNC_EVENTS, event::NAMESPACE_CHANGED_BIT), (feature::ARBITRATION, 7)];
    for (number, value) in changed {
        assert!(host.ask(admin, &feature(opcode::admin::SET_FEATURES, number, value)).status.is_success());
        assert_eq!(get(&mut host, number).result, u64::from(value));
    }
    for cc in [0, property::CC_USUAL] {
        assert!(host.ask(admin, &CC.set(0, cc.into())).status.is_success());
    }
    for (number, _) in changed {
        let answer = get(&mut host, number);
        assert!(answer.status.is_success() && answer.result == 0, "feature {number:#x}: {answer:?}");
    }
    assert_eq!(get(&mut host, feature::NUMBER_OF_QUEUES).result, granted, "its queues stay granted");
    let io = host.io_queue(cntlid, 1);
    host.assert_served(io);
    assert!(!host.ask(admin, &feature(opcode::admin::GET_FEATURES, 0x7E, 0)).status.is(Status::SUCCESS));
    end(running);
}
