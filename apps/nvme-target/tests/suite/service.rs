//! Well-behaved hosts get their blocks.

use crate::common::{BLOCKS, Host, SECOND, end, plan, start, target};
use verbline_nvme::identify::{PAGE_BYTES, cns};
use verbline_nvme::{Command, Sgl, Status, opcode};

/// Written blocks are read back, by every path of data; and the other commands.
#[test]
fn blocks_hold_what_was_written_and_compared() {
    let running = target(7813, "");
    let mut host = Host::new(7813);
    let (_, io) = host.queues();
    let data: Vec<u8> = (0..4096_u32).map(|at| (at % 251) as u8).collect();
    let in_capsule = Sgl::InCapsule { offset: 0, len: 4096 };
    let written = host.ask_with(io, &host.of_blocks(opcode::io::WRITE, 3, 1, in_capsule), &data);
    assert!(written.status.is_success(), "{written:?}");
    host.memory.write_from(8192, &data).expect("within the memory");
    assert!(host.ask(io, &host.of_blocks(opcode::io::WRITE, 4, 1, host.keyed(8192, 4096))).status.is_success());
    assert!(host.ask(io, &host.read(3, 2)).status.is_success());
    assert_eq!(host.bytes(0, 8192), [&data[..], &data].concat());

    let compare = host.of_blocks(opcode::io::COMPARE, 4, 1, host.keyed(8192, 4096));
    assert!(host.ask(io, &compare).status.is_success());
    let other = host.ask_with(io, &host.of_blocks(opcode::io::COMPARE, 5, 1, in_capsule), &data);
    assert!(other.status.is(Status::COMPARE_FAILURE), "{other:?}");

    for command in [
        host.of_blocks(opcode::io::VERIFY, 0, BLOCKS as u32, Sgl::NONE),
        host.of_blocks(opcode::io::FLUSH, 0, 1, Sgl::NONE),
        host.of_blocks(opcode::io::WRITE_ZEROES, 0, BLOCKS as u32, Sgl::NONE),
    ] {
        let answer = host.ask(io, &command);
        assert!(answer.status.is_success(), "{command:?}: {answer:?}");
    }
    assert!(host.ask(io, &host.read(3, 2)).status.is_success());
    assert_eq!(host.bytes(0, 8192), [0; 8192], "all blocks were zeroed");
    let range = verbline_nvme::io::DsmRange { attributes: 0, blocks: 8, slba: 1 }.to_bytes();
    let far = verbline_nvme::io::DsmRange { attributes: 0, blocks: 8, slba: BLOCKS }.to_bytes();
    for (ranges, is_good) in [([range, range], true), ([range, far], false)] {
        let sgl = Sgl::InCapsule { offset: 0, len: 32 };
        let command = Command::new(opcode::io::DATASET_MANAGEMENT, 0, sgl).with([1, 4, 0, 0, 0, 0]);
        let answer = host.ask_with(io, &Command { nsid: 1, ..command }, &ranges.concat());
        assert_eq!(answer.status.is_success(), is_good, "{answer:?}");
    }
    end(running);
}

/// Identify says that there is a write cache, and that a Flush names its namespace.
#[test]
fn a_flush_is_as_identify_says() {
    let running = target(7967, "");
    let mut host = Host::new(7967);
    let (admin, io) = host.queues();
    let identify = Command::new(opcode::admin::IDENTIFY, 0, host.keyed(0, PAGE_BYTES as u32));
    let identify = identify.with([cns::CONTROLLER.into(), 0, 0, 0, 0, 0]);
    assert!(host.ask(admin, &identify).status.is_success());
    assert_eq!(host.bytes(525, 1), [0b101], "VWC");
    assert_eq!(host.bytes(96, 4), [1, 0, 0, 0], "CTRATT: host identifiers have 128 bits, as in Connect");
    let every = Command { nsid: u32::MAX, ..Command::new(opcode::io::FLUSH, 0, Sgl::NONE) };
    let answer = host.ask(io, &every);
    assert!(answer.status.is(Status::INVALID_NAMESPACE), "{answer:?}");
    end(running);
}

/// The queues of a host are spread over the lcores, which serve the same blocks. A controller that
/// ends on one lcore ends on the other.
#[test]
fn two_lcores_share_the_queues_of_a_host() {
    if std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() < 2) {
        println!("skipped: one CPU");
        return;
    }
    let running = start(&(plan(7815, "") + SECOND));
    let mut host = Host::new(7815);
    let (admin, cntlid) = host.controller();
    let queues = [1, 2, 3, 4].map(|qid| host.io_queue(cntlid, qid));
    for (number, writer) in queues.into_iter().enumerate() {
        let data = vec![number as u8 + 1; 4096];
        let in_capsule = Sgl::InCapsule { offset: 0, len: 4096 };
        let write = host.of_blocks(opcode::io::WRITE, number as u64, 1, in_capsule);
        assert!(host.ask_with(writer, &write, &data).status.is_success());
        for reader in queues {
            assert!(host.ask(reader, &host.read(number as u64, 1)).status.is_success());
            assert_eq!(host.bytes(0, 4096), data);
        }
    }
    // Silence ends the controller on both.
    host.fall_silent(admin);
    queues.into_iter().for_each(|queue| host.wait_cut_off(queue));
    let report = end(running);
    for stage in ["target", "target2"] {
        let commands = report.stage(stage).and_then(|stage| stage.counter("commands"));
        assert!(commands > Some(8), "stage.{stage} served {commands:?}");
    }
}
