//! Reads of protected blocks in memory that the device checks as it sends them, with the response
//! already posted behind: the host's view of bad blocks, its agreement with the CPU's checks, and
//! the choice between device and CPU.

use std::collections::BTreeMap;

use crate::common::protected::{
    NONE, Served, TO, all, pract, serve, serve_checked, serve_pipelined, set_tuple, tuple_of,
};
use crate::common::{end, until};
use fastrand::Rng;
use verbline_nvme::protection::{Action, ProtectionType, Tuple};
use verbline_nvme::{Command, Response, Status, opcode};

/// Writes blocks of the namespace in memory, unchecked, with one bit of data inverted in the `bad`
/// ones.
fn write_blocks(served: &mut Served, blocks: u32, bad: &[u32]) -> Vec<u8> {
    let protection = served.protection(1);
    let extended = protection.extended_bytes() as usize;
    let good = served.blocks(1, blocks, 0x33, all(0, 9));
    let mut stored = good.clone();
    bad.iter().for_each(|block| stored[*block as usize * extended + 1000] ^= 0x10);
    for (block, bytes) in stored.chunks_exact(extended).enumerate() {
        assert!(served.write(1, (block as u64, 1), NONE, bytes).status.is_success());
    }
    good
}

fn operations(served: &Served) -> [u64; 3] {
    let report = served.running.snapshot();
    let operations = report.port("hosts").and_then(|port| port.operations.as_ref()).expect("its operations");
    let failed = operations.kind("respond").map_or(0, |kind| kind.failed);
    [operations.bad_blocks, operations.stops, failed]
}

#[test]
fn a_bad_block_is_a_guard_error_and_its_neighbours_and_the_next_read_are_good() {
    let mut served = serve_pipelined(7840, ProtectionType::Type1, 8);
    let good = write_blocks(&mut served, 4, &[1]);
    let protection = served.protection(1);
    let extended = protection.extended_bytes() as usize;
    for action in [all(0, 9), pract(all(0, 9))] {
        for (slba, blocks, bad) in [(0, 1, None), (1, 1, Some(1)), (2, 2, None), (0, 3, Some(1)), (3, 1, None)] {
            let action = Action { ref_tag: slba, ..action };
            let (answer, read) = served.read(1, (slba.into(), blocks), action);
            let Some(lba) = bad else {
                assert!(answer.status.is_success(), "{answer:?}");
                let mut wanted = good[slba as usize * extended..(slba + blocks) as usize * extended].to_vec();
                if action.pract {
                    let len = protection.strip(&mut wanted);
                    wanted.truncate(len);
                }
                assert!(read == wanted, "{blocks} blocks from {slba} on");
                continue;
            };
            assert!(answer.status.is(Status::GUARD_CHECK_ERROR), "{answer:?}");
            assert_eq!((answer.status.field() >> 9 & 7, answer.status.field() >> 1 & 0xFF), (2, 0x82));
            assert_eq!(served.last_error(), (answer.status, lba, 1));
        }
    }
    // Unchecked, the block is read as it is, straight out of memory.
    let (answer, _) = served.read(1, (1, 1), NONE);
    assert!(answer.status.is_success(), "{answer:?}");
    until(&served.running, "pipelined", 10);
    let [bad, stops, failed] = operations(&served);
    assert_eq!([bad, failed], [4, 4]);
    assert!((1..=4).contains(&stops), "{stops}");
    end(served.running);
}

/// Sends reads of single blocks all at once. Returns the responses by block.
fn read_at_once(served: &mut Served, blocks: &[u32], action: Action) -> BTreeMap<u32, Response> {
    let mut cids = BTreeMap::new();
    let bytes = served.protection(1).wire_bytes(action, 1);
    for (index, block) in blocks.iter().enumerate() {
        let action = Action { ref_tag: *block, ..action };
        let sgl = served.host.keyed(index as u64 * bytes, bytes as u32);
        let cid = served.host.cid();
        let command = served.command(opcode::io::READ, 1, (u64::from(*block), 1), action, sgl);
        served.host.send(served.io, &Command { cid, ..command }.to_bytes());
        cids.insert(cid, *block);
    }
    let mut answers = BTreeMap::new();
    for _ in blocks {
        let answer = served.host.response(served.io);
        let block = cids.remove(&answer.cid).expect("each once");
        answers.insert(block, answer);
    }
    answers
}

/// With a key for each read, and with fewer keys: the CPU checks the other reads. The checker
/// changes again and again while the host reads, and the host notices nothing.
#[test]
fn of_many_reads_under_way_those_of_bad_blocks_fail() {
    for (port, keys) in [(7841, 32), (7842, 3), (7843, 1)] {
        let mut served = serve_pipelined(port, ProtectionType::Type1, keys);
        let bad = [2, 3, 9];
        let good = write_blocks(&mut served, 12, &bad);
        let extended = served.protection(1).extended_bytes() as usize;
        let action = pract(all(0, 9));
        for round in 0..20 {
            let first = round % 7;
            let blocks: Vec<u32> = (0..12).map(|at| (at * 5 + first) % 12).collect();
            let answers = read_at_once(&mut served, &blocks, action);
            for (index, block) in blocks.iter().enumerate() {
                let status = answers[block].status;
                if bad.contains(block) {
                    assert!(status.is(Status::GUARD_CHECK_ERROR), "block {block}: {status:?}");
                    continue;
                }
                assert!(status.is_success(), "block {block}: {status:?}");
                let read = served.host.bytes(index * 4096, 4096);
                assert!(read == good[*block as usize * extended..][..4096], "block {block}");
            }
        }
        let [pipelined, cpu_checked] = served.checked();
        assert_eq!(pipelined + cpu_checked, 240, "each read is checked once");
        assert!(pipelined > 0 && (cpu_checked > 0) == (keys < 12), "{keys} keys: {pipelined} {cpu_checked}");
        let bad_blocks = operations(&served)[0];
        assert!(bad_blocks == 60 || keys < 12 && bad_blocks < 60, "{bad_blocks}");
        let report = end(served.running);
        assert!(report.drops.is_empty(), "{:?}", report.drops);
    }
}

/// The software RNIC runs on the CPU that posts: it checks no faster, and is not used unless the
/// plan says so.
#[test]
fn the_software_rnic_checks_where_the_plan_says_so_and_else_the_cpu() {
    for (port, by, checked) in [(7846, "auto", [0, 12]), (7847, "device", [12, 0])] {
        let mut served = serve_checked(port, ProtectionType::Type1, (16, by));
        let good = write_blocks(&mut served, 12, &[5]);
        let blocks: Vec<u32> = (0..12).collect();
        let answers = read_at_once(&mut served, &blocks, pract(all(0, 9)));
        let extended = served.protection(1).extended_bytes() as usize;
        for (index, block) in blocks.iter().enumerate() {
            match block {
                5 => assert!(answers[block].status.is(Status::GUARD_CHECK_ERROR), "{:?}", answers[block]),
                _ => assert!(served.host.bytes(index * 4096, 4096) == good[index * extended..][..4096], "{block}"),
            }
        }
        assert_eq!(served.checked(), checked, "by {by}");
        end(served.running);
    }
}

/// One connection is stopped by bad blocks, again and again, while another is served.
#[test]
fn other_queues_are_served_while_one_stands() {
    let mut served = serve_pipelined(7844, ProtectionType::Type1, 8);
    write_blocks(&mut served, 4, &[0, 1, 2, 3]);
    let protection = served.protection(1);
    assert!(served.write(1, (8, 1), NONE, &served.blocks(1, 1, 1, all(8, 9))).status.is_success());
    let bad_queue = served.io;
    let good_queue = served.host.io_queue(served.cntlid, 2);
    let action = all(0, 9);
    for _ in 0..50 {
        let bytes = protection.wire_bytes(action, 1) as u32;
        let read = served.command(opcode::io::READ, 1, (0, 1), action, served.host.keyed(0, bytes));
        let cid = served.host.cid();
        served.host.send(bad_queue, &Command { cid, ..read }.to_bytes());
        let good = Action { ref_tag: 8, ..action };
        let read = served.command(opcode::io::READ, 1, (8, 1), good, served.host.keyed(TO, bytes));
        assert!(served.host.ask(good_queue, &read).status.is_success());
        assert!(served.host.response(bad_queue).status.is(Status::GUARD_CHECK_ERROR));
    }
    end(served.running);
}

/// Hosts leave while their queue is stopped; the next ones are served.
#[test]
fn a_host_that_vanishes_with_a_bad_block_under_way_disturbs_nobody() {
    let mut served = serve_pipelined(7845, ProtectionType::Type1, 8);
    write_blocks(&mut served, 2, &[0]);
    for _ in 0..20 {
        let bytes = served.protection(1).wire_bytes(all(0, 9), 1) as u32;
        for _ in 0..8 {
            let read = served.command(opcode::io::READ, 1, (0, 1), all(0, 9), served.host.keyed(0, bytes));
            let cid = served.host.cid();
            served.host.send(served.io, &Command { cid, ..read }.to_bytes());
        }
        served.host.vanish();
        let (admin, cntlid) = served.host.controller();
        (served.admin, served.cntlid) = (admin, cntlid);
        served.io = served.host.io_queue(cntlid, 1);
        let (answer, _) = served.read(1, (1, 1), all(1, 9));
        assert!(answer.status.is_success(), "{answer:?}");
    }
    end(served.running);
}

/// For any fault of any blocks, and any checks: the same statuses, the same block in the error log,
/// the same data.
#[test]
fn the_device_says_what_the_cpu_says() {
    let kinds = [ProtectionType::Type1, ProtectionType::Type2, ProtectionType::Type3];
    for (index, kind) in (0..).zip(kinds) {
        let mut ways = [serve_pipelined(7850 + index, kind, 4), serve(7860 + index, kind)];
        let mut numbers = Rng::with_seed(u64::from(index) + 1);
        let protection = ways[0].protection(1);
        let is_third = kind == ProtectionType::Type3;
        for round in 0..150 {
            let slba = numbers.u32(..200);
            let ref_tag = if kind == ProtectionType::Type1 { slba } else { numbers.u32(..u32::MAX) };
            let tags = Action { checks_ref_tag: !is_third, ..all(ref_tag, 0x0102) };
            let mut bytes = ways[0].blocks(1, 3, round as u8, tags);
            for block in 0..3 {
                let tuple = tuple_of(&bytes, protection, block);
                let tuple = match numbers.u32(..8) {
                    0 => Tuple { guard: tuple.guard ^ 0x100, ..tuple },
                    1 => Tuple { app_tag: tuple.app_tag ^ 1 << numbers.u32(..16), ..tuple },
                    2 => Tuple { ref_tag: tuple.ref_tag ^ 2, ..tuple },
                    3 => Tuple { guard: 1, app_tag: u16::MAX, ref_tag: tuple.ref_tag },
                    4 => Tuple::DEALLOCATED,
                    _ => tuple,
                };
                set_tuple(&mut bytes, protection, block, tuple);
            }
            let mut flag = || numbers.u32(..3) > 0;
            let action = Action {
                pract: flag(),
                checks_guard: flag(),
                checks_app_tag: flag(),
                checks_ref_tag: !is_third && flag(),
                app_mask: [u16::MAX, 0xFF00, 0][(round % 3) as usize],
                ..tags
            };
            let told = ways.each_mut().map(|served| {
                for (block, bytes) in (0..).zip(bytes.chunks_exact(protection.extended_bytes() as usize)) {
                    assert!(served.write(1, (u64::from(slba) + block, 1), NONE, bytes).status.is_success());
                }
                let (answer, read) = served.read(1, (slba.into(), 3), action);
                let error = (!answer.status.is_success()).then(|| served.last_error());
                (answer.status, error, answer.status.is_success().then_some(read))
            });
            assert!(told[0] == told[1], "round {round}: {action:?}: {:?} {:?}", told[0].1, told[1].1);
        }
        let [[pipelined, _], [none, by_cpu]] = ways.each_ref().map(Served::checked);
        assert!(pipelined > 60 && none == 0 && by_cpu > 60, "{pipelined} {none} {by_cpu}");
        ways.into_iter().for_each(|served| _ = end(served.running));
    }
}
