//! Hostile or faulty hosts: each gets the status that the specification names, or is disconnected,
//! and the host beside it is not affected. docs/nvme-target.md has the table.

use std::time::{Duration, Instant};

use crate::common::{BLOCKS, CONNECT, ENTRIES, Host, SUBSYSTEM, end, target, until};
use verbline_nvme::cm::Request;
use verbline_nvme::connect::{CNTLID_ANY, Connect};
use verbline_nvme::feature::{self, QueueCount};
use verbline_nvme::identify::cns;
use verbline_nvme::log::LogRequest;
use verbline_nvme::property::{self, Property};
use verbline_nvme::{Command, Response, Sgl, Status, opcode};

#[test]
fn commands_out_of_order_are_told_so() {
    let running = target(7804, "");
    let mut host = Host::new(7804);
    let admin = host.dial_queue(0);
    let keep_alive = Command::new(opcode::admin::KEEP_ALIVE, 0, Sgl::NONE);
    let cap = Property { offset: property::CAP, is_wide: true }.get(0);
    for command in [keep_alive, cap] {
        assert!(host.ask(admin, &command).status.is(Status::SEQUENCE_ERROR), "before Connect");
    }
    let data = host.data(CNTLID_ANY, SUBSYSTEM);
    let cntlid = host.connect(admin, CONNECT, &data).result as u16;
    assert!(host.ask(admin, &keep_alive).status.is(Status::SEQUENCE_ERROR), "before CC.EN");
    assert!(host.ask(admin, &cap).status.is_success());

    // An I/O queue before the controller is enabled, of another controller, and one not granted.
    let io = host.dial_queue(1);
    assert!(host.ask(io, &host.read(0, 1)).status.is(Status::SEQUENCE_ERROR), "before Connect");
    let asked = Connect { qid: 1, ..CONNECT };
    let data = host.data(cntlid, SUBSYSTEM);
    assert!(host.connect(io, asked, &data).status.is(Status::SEQUENCE_ERROR), "before CC.EN");
    let cc = Property { offset: property::CC, is_wide: false };
    assert!(host.ask(admin, &cc.set(0, property::CC_USUAL.into())).status.is_success());
    let none = host.connect(io, asked, &data);
    assert_eq!((none.status.sc(), none.result), (0x82, Response::invalid_parameter(42, false)), "none was granted");
    let other = host.data(cntlid + 1, SUBSYSTEM);
    let other = host.connect(io, asked, &other);
    assert_eq!((other.status.sc(), other.result), (0x82, Response::invalid_parameter(16, true)));

    // After a shutdown nothing is carried out.
    let shutdown = host.ask(admin, &cc.set(0, u64::from(property::CC_USUAL) | 1 << 14));
    assert!(shutdown.status.is_success());
    assert!(host.ask(admin, &keep_alive).status.is(Status::SEQUENCE_ERROR));
    end(running);
}

#[test]
fn a_queue_of_the_same_number_is_refused() {
    let running = target(7805, "");
    let mut host = Host::new(7805);
    let (_, cntlid) = host.controller();
    let first = host.io_queue(cntlid, 1);
    let again = host.dial_queue(1);
    let data = host.data(cntlid, SUBSYSTEM);
    let answer = host.connect(again, Connect { qid: 1, ..CONNECT }, &data);
    assert_eq!((answer.status.sc(), answer.result), (0x82, Response::invalid_parameter(42, false)));
    host.assert_served(first);
    end(running);
}

#[test]
fn reads_and_writes_that_lie_are_told_so() {
    let running = target(7806, "");
    let mut host = Host::new(7806);
    let (_, io) = host.queues();
    let keyed = |len| host.keyed(0, len);
    let read = |slba, blocks, sgl| host.of_blocks(opcode::io::READ, slba, blocks, sgl);
    let write = |slba, blocks, sgl| host.of_blocks(opcode::io::WRITE, slba, blocks, sgl);
    let in_capsule = |offset, len| Sgl::InCapsule { offset, len };
    let space = |nsid, command| Command { nsid, ..command };
    let cases = [
        (read(0, 1, keyed(0)), Status::SGL_DATA_LENGTH_INVALID),
        (read(0, 1, keyed(4095)), Status::SGL_DATA_LENGTH_INVALID),
        (read(0, 1, keyed(0xFF_FFFF)), Status::SGL_DATA_LENGTH_INVALID),
        (read(0, 1, in_capsule(0, 4096)), Status::SGL_TYPE_INVALID),
        (read(0, 3, keyed(3 * 4096)), Status::INVALID_FIELD),
        (read(BLOCKS, 1, keyed(4096)), Status::LBA_OUT_OF_RANGE),
        (read(BLOCKS - 1, 2, keyed(8192)), Status::LBA_OUT_OF_RANGE),
        (read(u64::MAX, 1, keyed(4096)), Status::LBA_OUT_OF_RANGE),
        (write(0, 1, in_capsule(0, 4096)), Status::SGL_DATA_LENGTH_INVALID),
        (write(0, 1, in_capsule(u64::MAX, 4096)), Status::SGL_OFFSET_INVALID),
        (write(0, 1, in_capsule(1, 4096)), Status::SGL_OFFSET_INVALID),
        (space(3, read(0, 1, keyed(4096))), Status::INVALID_NAMESPACE),
        (space(0, read(0, 1, keyed(4096))), Status::INVALID_NAMESPACE),
        (space(u32::MAX, read(0, 1, keyed(4096))), Status::INVALID_NAMESPACE),
        (space(2, write(0, 1, keyed(4096))), Status::ATTEMPTED_WRITE_TO_READ_ONLY),
        (host.of_blocks(0x7E, 0, 1, Sgl::NONE), Status::INVALID_OPCODE),
    ];
    for (command, status) in cases {
        let answer = host.ask(io, &command);
        assert!(answer.status.is(status) && answer.status.is_final(), "{command:?}: {answer:?}");
    }
    // A descriptor of another transport; a PRP; a fused command.
    for (at, value, status) in
        [(39, 0x5A, Status::SGL_TYPE_INVALID), (1, 0, Status::INVALID_FIELD), (1, 0x41, Status::INVALID_FIELD)]
    {
        let mut bytes = Command { cid: 99, ..host.read(0, 1) }.to_bytes();
        bytes[at] = value;
        host.send(io, &bytes);
        let answer = host.response(io);
        assert!(answer.cid == 99 && answer.status.is(status), "{answer:?}");
    }
    host.assert_served(io);
    let report = end(running);
    assert_eq!(report.stage("target").and_then(|stage| stage.counter("failed")), Some(19));
}

#[test]
fn pages_logs_and_features_that_are_not_there_are_told_so() {
    let running = target(7807, "");
    let mut host = Host::new(7807);
    let (admin, _) = host.controller();
    let front = host.keyed(0, 0);
    let keyed = |len: u32| match front {
        Sgl::Keyed { addr, key, .. } => Sgl::Keyed { addr, len, key, invalidate: false },
        other => other,
    };
    let identify = |cns: u8, nsid, len| {
        let command = Command::new(opcode::admin::IDENTIFY, 0, keyed(len)).with([cns.into(), 0, 0, 0, 0, 0]);
        Command { nsid, ..command }
    };
    let log = |id, len: u32, offset| {
        let asked = LogRequest { id, retain_event: false, offset, len: len.into() };
        Command::new(opcode::admin::GET_LOG_PAGE, 0, keyed(len)).with(asked.dwords())
    };
    let feature = |opcode, number: u32| Command::new(opcode, 0, Sgl::NONE).with([number, 0, 0, 0, 0, 0]);
    let cases = [
        (identify(0x77, 0, 4096), Status::INVALID_FIELD),
        (identify(cns::CONTROLLER, 0, 4092), Status::SGL_DATA_LENGTH_INVALID),
        (identify(cns::NAMESPACE, 0, 4096), Status::INVALID_NAMESPACE),
        (identify(cns::NAMESPACE_DESCRIPTORS, 9, 4096), Status::INVALID_NAMESPACE),
        (identify(cns::ACTIVE_NAMESPACES, u32::MAX, 4096), Status::INVALID_NAMESPACE),
        (log(0x0C, 4, 0), Status::INVALID_LOG_PAGE),
        (log(0x70, 1024, 0), Status::INVALID_LOG_PAGE),
        (log(0x02, 512, 516), Status::INVALID_FIELD),
        (log(0x02, 512, u64::MAX - 3), Status::INVALID_FIELD),
        (log(0x02, 16 << 10, 0), Status::INVALID_FIELD),
        (feature(opcode::admin::SET_FEATURES, 0x7E), Status::INVALID_FIELD),
        (feature(opcode::admin::GET_FEATURES, 0x7E), Status::INVALID_FIELD),
        (feature(opcode::admin::SET_FEATURES, 1 << 31 | 1), Status::FEATURE_NOT_SAVEABLE),
        (feature(0x80, 0), Status::INVALID_OPCODE),
    ];
    for (command, status) in cases {
        let answer = host.ask(admin, &command);
        assert!(answer.status.is(status) && answer.status.is_final(), "{command:?}: {answer:?}");
    }
    for command in
        [identify(cns::NAMESPACE, 1, 4096), log(0x01, 64, 0), log(0x02, 512, 0), log(0x05, 4096, 0), log(0x04, 4096, 0)]
    {
        assert!(host.ask(admin, &command).status.is_success(), "{command:?}");
    }
    // The latest error comes first: the log that was too long, with its number and status.
    host.ask(admin, &log(0x01, 64, 0));
    let entry = host.bytes(0, 16);
    assert_eq!(
        (entry[0], u16::from_le_bytes([entry[12], entry[13]])),
        (14, Status::INVALID_OPCODE.do_not_retry().field())
    );
    end(running);
}

/// Four event requests are held; the identifiers of commands in flight are taken.
#[test]
fn events_are_held_to_a_limit_and_identifiers_are_not_reused() {
    let running = target(7808, "");
    let mut host = Host::new(7808);
    let (admin, _) = host.controller();
    let event = |cid| Command::new(opcode::admin::ASYNC_EVENT_REQUEST, cid, Sgl::NONE).to_bytes();
    (0x7001..0x7005).for_each(|cid| host.send(admin, &event(cid)));
    host.send(admin, &event(0x7005));
    let fifth = host.response(admin);
    assert!(fifth.cid == 0x7005 && fifth.status.is(Status::ASYNC_EVENT_LIMIT), "{fifth:?}");
    host.send(admin, &Command::new(opcode::admin::KEEP_ALIVE, 0x7003, Sgl::NONE).to_bytes());
    let conflict = host.response(admin);
    assert!(conflict.cid == 0x7003 && conflict.status.is(Status::ID_CONFLICT), "{conflict:?}");
    assert!(host.ask(admin, &Command::new(opcode::admin::KEEP_ALIVE, 0, Sgl::NONE)).status.is_success());
    end(running);
}

/// Hosts that break the rules of their queue are disconnected; the host beside them is served.
#[test]
fn who_breaks_the_rules_of_a_queue_is_disconnected() {
    let running = target(7809, "");
    let mut good = Host::new(7809);
    good.name = "nqn.2026-01.org.example:good";
    let (_, served) = good.queues();
    let wrong_key = |host: &Host, opcode| match host.keyed(0, 4096) {
        Sgl::Keyed { addr, len, key, .. } => {
            let sgl = Sgl::Keyed { addr, len, key: key ^ 0x5A5A, invalidate: false };
            host.of_blocks(opcode, 0, 1, sgl).to_bytes().to_vec()
        }
        other => panic!("{other:?}"),
    };
    for kind in 0..4 {
        let mut bad = Host::new(7809);
        let (_, io) = bad.queues();
        let capsule = match kind {
            0 => vec![1, 2, 3],
            1 => vec![0; 63],
            2 => wrong_key(&bad, opcode::io::READ),
            _ => wrong_key(&bad, opcode::io::WRITE),
        };
        bad.send(io, &capsule);
        bad.wait_cut_off(io);
        good.assert_served(served);
    }
    end(running);
}

/// Held event requests count as commands: they can fill a queue.
#[test]
fn a_queue_that_is_overrun_is_disconnected() {
    let running = target(7810, "");
    let mut host = Host::new(7810);
    let request = Request { qid: 0, recv_depth: 3, send_depth_less_one: 1, cntlid: 0 };
    let admin = host.dial(request.to_bytes().to_vec()).expect("a queue of two entries");
    let data = host.data(CNTLID_ANY, SUBSYSTEM);
    assert!(host.connect(admin, Connect { sqsize: 1, ..CONNECT }, &data).status.is_success());
    let cc = Property { offset: property::CC, is_wide: false };
    assert!(host.ask(admin, &cc.set(0, property::CC_USUAL.into())).status.is_success());
    for cid in 1..=3 {
        host.send(admin, &Command::new(opcode::admin::ASYNC_EVENT_REQUEST, cid, Sgl::NONE).to_bytes());
    }
    host.wait_cut_off(admin);
    let report = end(running);
    let overrun = report.drops.iter().find(|drop| drop.place == "stage.target" && drop.reason == "queue_overrun");
    assert_eq!(overrun.map(|drop| drop.packets), Some(1), "{:?}", report.drops);
}

/// A host that is silent for its time-out loses its controller and all queues; one that is not,
/// stays.
#[test]
fn a_host_that_is_silent_is_disconnected() {
    let running = target(7811, "");
    let mut silent = Host::new(7811);
    let (admin, io) = silent.queues();
    silent.fall_silent(admin);
    silent.wait_cut_off(admin);
    silent.wait_cut_off(io);
    until(&running, "keep_alive_expired", 1);
    // It may connect again, once its last command has ended.
    let mut again = Host::new(7811);
    let (_, io) = again.queues();
    again.assert_served(io);
    end(running);
}

/// Hosts that vanish with commands in flight, again and again: places and packets come back.
#[test]
fn hosts_that_vanish_leave_nothing_behind() {
    let running = target(7812, "");
    for _ in 0..40 {
        let mut host = Host::new(7812);
        let (admin, io) = host.queues();
        host.send(admin, &Command::new(opcode::admin::ASYNC_EVENT_REQUEST, 0x7001, Sgl::NONE).to_bytes());
        for cid in 1..ENTRIES - 1 {
            let opcode = if cid % 2 == 0 { opcode::io::READ } else { opcode::io::WRITE };
            let command = host.of_blocks(opcode, cid.into(), 1, host.keyed(0, 4096));
            host.send(io, &Command { cid, ..command }.to_bytes());
        }
        host.vanish();
    }
    let mut host = Host::new(7812);
    let (_, io) = host.queues();
    host.assert_served(io);
    end(running);
}

/// A disabled controller keeps its admin queue and loses its I/O queues; enabled again, it takes
/// new ones.
#[test]
fn a_controller_that_is_disabled_has_no_queues() {
    let running = target(7832, "");
    let mut host = Host::new(7832);
    let (admin, cntlid) = host.controller();
    let io = host.io_queue(cntlid, 1);
    host.assert_served(io);
    let cc = Property { offset: property::CC, is_wide: false };
    assert!(host.ask(admin, &cc.set(0, 0)).status.is_success());
    host.wait_cut_off(io);
    assert!(host.ask(admin, &cc.set(0, property::CC_USUAL.into())).status.is_success());
    let again = host.io_queue(cntlid, 2);
    host.assert_served(again);
    end(running);
}

/// Regression: CSTS.RDY was cleared before the queues were gone. A host that had waited for it
/// found its queue numbers taken, and could not ask for queues.
#[test]
fn a_reset_is_over_when_the_queues_are() {
    let running = target(7951, "");
    let mut host = Host::new(7951);
    let (admin, cntlid) = host.controller();
    let cc = Property { offset: property::CC, is_wide: false };
    let csts = Property { offset: property::CSTS, is_wide: false };
    let queues = QueueCount { submission_less_one: 1, completion_less_one: 1 };
    let set = Command::new(opcode::admin::SET_FEATURES, 0, Sgl::NONE);
    let set = set.with([feature::NUMBER_OF_QUEUES.into(), queues.to_dword(), 0, 0, 0, 0]);
    let deadline = Instant::now() + Duration::from_secs(20);
    for _ in 0..3 {
        let io = [1, 2].map(|qid| host.io_queue(cntlid, qid));
        io.into_iter().for_each(|queue| host.assert_served(queue));
        assert!(host.ask(admin, &cc.set(0, 0)).status.is_success());
        while host.ask(admin, &csts.get(0)).result != 0 {
            assert!(Instant::now() < deadline, "it is over");
        }
        assert!(host.ask(admin, &cc.set(0, property::CC_USUAL.into())).status.is_success());
        let answer = host.ask(admin, &set);
        assert!(answer.status.is_success(), "{answer:?}");
        io.into_iter().for_each(|queue| host.wait_cut_off(queue));
    }
    end(running);
}

/// Regression: a reset controller kept its old event requests. New ones were then too many, or had
/// identifiers in flight.
#[test]
fn a_reset_answers_the_requests_for_events() {
    let running = target(7952, "");
    let mut host = Host::new(7952);
    let (admin, _) = host.controller();
    let event = |cid| Command::new(opcode::admin::ASYNC_EVENT_REQUEST, cid, Sgl::NONE).to_bytes();
    let cc = Property { offset: property::CC, is_wide: false };
    for _ in 0..2 {
        (0x7001..=0x7004).for_each(|cid| host.send(admin, &event(cid)));
        assert!(host.response_within(admin, Duration::from_millis(50)).is_none(), "they wait");
        host.send(admin, &cc.set(0x6001, 0).to_bytes());
        let mut answers = [(); 5].map(|()| host.response(admin));
        answers.sort_unstable_by_key(|answer| answer.cid);
        assert!(answers[0].status.is_success() && answers[0].cid == 0x6001, "{answers:?}");
        assert!(answers[1..].iter().all(|answer| answer.status.is(Status::ABORT_REQUESTED)), "{answers:?}");
        assert!(host.ask(admin, &cc.set(0, property::CC_USUAL.into())).status.is_success());
    }
    end(running);
}
