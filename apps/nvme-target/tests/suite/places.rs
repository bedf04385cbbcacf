//! Places for commands: a queue keeps those it was admitted with until its last operation is done,
//! not only until its host leaves.

use std::time::{Duration, Instant};

use crate::common::{BLOCKS, ENTRIES, Host, NAMES, SUBSYSTEM, end, plan, start_app, target};
use nvme_target::NvmeTarget;
use verbline::verbs::connection::ConnectionError;
use verbline_nvme::cm::{Reject, Request};
use verbline_nvme::connect::{CNTLID_ANY, Connect};
use verbline_nvme::{Command, Response, Sgl, Status, opcode};
use verbline_store::{Disk, Faults, FaultyStore};

/// A queue that was admitted with two entries can't connect with more.
#[test]
fn connect_with_more_entries_than_admitted_is_refused() {
    let running = target(7830, "");
    let mut host = Host::new(7830);
    let request = Request { qid: 0, recv_depth: 3, send_depth_less_one: 1, cntlid: 0 };
    let admin = host.dial(request.to_bytes().to_vec()).expect("a queue of two entries");
    let data = host.data(CNTLID_ANY, SUBSYSTEM);
    for sqsize in [2, 15, 31] {
        let answer = host.connect(admin, Connect { qid: 0, sqsize, cattr: 0, kato_ms: 0 }, &data);
        assert!(answer.status.is(Status::CONNECT_INVALID_PARAMETERS), "{sqsize}: {answer:?}");
        assert_eq!(answer.result, Response::invalid_parameter(44, false), "{sqsize}");
    }
    let answer = host.connect(admin, Connect { qid: 0, sqsize: 1, cattr: 0, kato_ms: 0 }, &data);
    assert!(answer.status.is_success(), "{answer:?}");
    end(running);
}

/// Hosts leave one after the other while their disk stalls. A host that is admitted beside their
/// remains has all commands answered, and a host without room is told so.
#[test]
fn places_of_hosts_that_left_are_free_when_their_commands_are_done() {
    const NSID: u32 = 3;
    let disk = Disk::new(1 << 20, 4096, Faults::default(), 1).expect("a disk");
    let more = format!("commands_max = 96\n[nvme.namespace.{NSID}]\nnull_bytes = 1_048_576\n");
    let stalling = disk.clone();
    let app = NvmeTarget::default().with_store(NSID, move |depth| FaultyStore::over(&stalling, depth));
    let running = start_app(&plan(7831, &more), &app);
    disk.stall(true);
    let mut rejected = 0;
    for name in NAMES {
        let mut host = Host::new(7831);
        host.name = name;
        let Some(io) = admitted(&mut host) else {
            rejected += 1;
            continue;
        };
        // Admitted: commands to a namespace that does not stall are answered.
        for slba in 0..5 {
            let cid = host.cid();
            let write = host.of_blocks(opcode::io::WRITE, slba, 1, Sgl::InCapsule { offset: 0, len: 4096 });
            host.send(io, &[&Command { cid, ..write }.to_bytes()[..], &[7; 4096]].concat());
            let answer = host.response_within(io, Duration::from_secs(10));
            assert!(answer.is_some_and(|answer| answer.status.is_success()), "{name}: {answer:?}");
        }
        for cid in 0x100..0x100 + ENTRIES - 1 {
            let write = host.of_blocks(opcode::io::WRITE, 0, 1, Sgl::InCapsule { offset: 0, len: 4096 });
            host.send(io, &[&Command { cid, nsid: NSID, ..write }.to_bytes()[..], &[7; 4096]].concat());
        }
        // All of them have arrived.
        let first = Command { cid: 0x80, ..host.read(BLOCKS - 1, 1) };
        host.send(io, &first.to_bytes());
        host.response_within(io, Duration::from_secs(10)).expect("it is answered");
        host.vanish();
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(rejected >= 3, "{rejected} of {} were rejected", NAMES.len());
    disk.stall(false);
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut host = Host::new(7831);
    host.name = "nqn.2026-01.org.example:last";
    while admitted(&mut host).is_none() {
        assert!(Instant::now() < deadline, "places come back");
        host.vanish();
    }
    end(running);
}

/// An I/O queue of a new controller; `None` without room for it and its admin queue.
fn admitted(host: &mut Host) -> Option<usize> {
    let mut dial = |qid: u16| {
        let request = Request { qid, recv_depth: ENTRIES, send_depth_less_one: ENTRIES - 1, cntlid: 0 };
        match host.dial(request.to_bytes().to_vec()) {
            Ok(queue) => Some(queue),
            Err(ConnectionError::Rejected { private_data, .. }) => {
                assert_eq!(Reject::read(&private_data), Some(Reject::NoResources));
                None
            }
            Err(error) => panic!("{error}"),
        }
    };
    let (admin, io) = (dial(0)?, dial(1)?);
    let cntlid = host.controller_on(admin);
    host.join(io, cntlid, 1);
    Some(io)
}
