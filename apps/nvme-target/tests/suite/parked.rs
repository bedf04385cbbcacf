//! Commands that wait while their namespaces change: each is carried out on the blocks that it
//! named, or fails.

use std::time::{Duration, Instant};

use crate::common::{Host, changed, end, plan, start_app, until};
use nvme_target::NvmeTarget;
use verbline::cli::App;
use verbline_nvme::{Command, Sgl, Status, opcode};

/// Reads that a host sends at once.
const AT_ONCE: usize = 15;

/// A target with few operations, and a second namespace in memory under number 9.
fn plan_of_two(port: u16, more: &str) -> String {
    let text = plan(port, &format!("[nvme.namespace.9]\nmemory = \"disk2\"\n{more}"));
    let text = text.replace("regions = [\"disk\"]", "regions = [\"disk\", \"disk2\"]");
    let text =
        text.replace("ops_depth_wr = 64", "ops_depth_wr = 4").replace("ops_shared_wr = 256", "ops_shared_wr = 32");
    text + "[region.disk2]\ndevice = \"nic0\"\nbytes = 1_048_576\npages = \"4KiB\"\nrights = [\"local-write\"]\n"
}

fn write_in_capsule(host: &mut Host, queue: usize, nsid: u32, slba: u64, filling: u8) -> Status {
    let in_capsule = Sgl::InCapsule { offset: 0, len: 4096 };
    let write = Command { nsid, ..host.of_blocks(opcode::io::WRITE, slba, 1, in_capsule) };
    host.ask_with(queue, &write, &[filling; 4096]).status
}

/// More reads at once than there is room for, of one namespace and of two in turn: each gets the
/// blocks that it named, also where namespace 1 stores nothing.
#[test]
fn a_read_that_waits_gets_the_blocks_that_it_named() {
    for (port, first) in [(7820, "memory = \"disk\""), (7821, "null_bytes = 1_048_576")] {
        let app = NvmeTarget::default();
        let running = start_app(&plan_of_two(port, "").replace("memory = \"disk\"\n", &format!("{first}\n")), &app);
        let mut host = Host::new(port);
        let (_, io) = host.queues();
        for block in 0..AT_ONCE as u64 {
            assert!(write_in_capsule(&mut host, io, 9, block, 0x90 + block as u8).is_success());
            let status = write_in_capsule(&mut host, io, 1, block, 0x10 + block as u8);
            assert!(status.is_success(), "{status}");
        }
        let keeps = first.starts_with("memory");
        for round in 0..100 {
            let mut nsids = [0; AT_ONCE];
            for (block, nsid) in nsids.iter_mut().enumerate() {
                *nsid = if round % 2 == 0 || block % 2 == 0 || !keeps { 9 } else { 1 };
                let at = block * 4096;
                host.memory.write_from(at, &[0xEE; 4096]).expect("within the memory");
                let read = host.of_blocks(opcode::io::READ, block as u64, 1, host.keyed(at as u64, 4096));
                let read = Command { nsid: *nsid, cid: 0x100 + block as u16, ..read };
                host.send(io, &read.to_bytes());
            }
            for _ in 0..AT_ONCE {
                let answer = host.response(io);
                assert!(answer.status.is_success(), "{answer:?}");
                let block = usize::from(answer.cid - 0x100);
                let wanted = (if nsids[block] == 9 { 0x90 } else { 0x10 }) + block as u8;
                assert_eq!(host.bytes(block * 4096, 4096), [wanted; 4096], "block {block} of {}", nsids[block]);
            }
        }
        until(&running, "waited", 1);
        end(running);
    }
}

/// A region moves from one namespace to another, while a Write to the first waits: it is done, or
/// refused, before the other namespace appears.
#[test]
fn a_write_that_waits_is_never_in_its_namespaces_successor() {
    let app = NvmeTarget::default();
    let text = plan_of_two(7822, "");
    let running = start_app(&text, &app);
    let mut host = Host::new(7822);
    let (_, cntlid) = host.controller();
    let (slow, good) = (host.deaf_queue(cntlid, 1), host.io_queue(cntlid, 2));
    // The first reads keep their resources until the host takes their responses.
    for cid in 1..=4 {
        host.send(slow, &Command { cid, ..host.read(0, 1) }.to_bytes());
    }
    host.memory.write_from(8192, &[0x11; 4096]).expect("within the memory");
    let write = host.of_blocks(opcode::io::WRITE, 5, 1, host.keyed(8192, 4096));
    host.send(slow, &Command { cid: 5, ..write }.to_bytes());
    until(&running, "waited", 1);

    let text = text.replace("[nvme.namespace.1]", "[nvme.namespace.7]");
    app.reload(&changed(&text)).expect("taken");
    let write_to_7 = |host: &mut Host| write_in_capsule(host, good, 7, 5, 0x77).is_success();
    let deadline = Instant::now() + Duration::from_millis(700);
    let mut is_written = false;
    while !is_written && Instant::now() < deadline {
        is_written = write_to_7(&mut host);
    }
    let first = Command { nsid: 1, ..host.read(0, 1) };
    assert!(host.ask(good, &first).status.is(Status::INVALID_NAMESPACE), "it has left");

    host.listen_again(slow);
    for _ in 1..=5 {
        host.response(slow);
    }
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_written {
        is_written = write_to_7(&mut host);
        assert!(Instant::now() < deadline, "the successor comes when nothing of the other is under way");
    }
    let read = Command { nsid: 7, ..host.read(5, 1) };
    assert!(host.ask(good, &read).status.is_success());
    assert_eq!(host.bytes(0, 4096), [0x77; 4096], "the write that was answered last");
    end(running);
}
