//! Commands longer than a packet of the stage's pool: they move in pieces, unnoticed by hosts.

use std::time::{Duration, Instant};

use crate::common::protected::{BOTH, FROM, NONE, SMALL, all, pract, serve_in_packets_of, set_tuple, tuple_of};
use crate::common::{ENTRIES, Host, end, plan, start, start_app, until};
use fastrand::Rng;
use nvme_target::NvmeTarget;
use tempfile::TempDir;
use verbline::engine::Running;
use verbline_nvme::identify::cns;
use verbline_nvme::protection::{Action, ProtectionType, Tuple};
use verbline_nvme::{Command, Sgl, Status, opcode};
use verbline_store::{Disk, Faults, FaultyStore};
use verbline_tests::{Finished, Program, assert_report_holds, counted, two_lcores, unwrapped};

/// A namespace in a file, and one in memory for comparison.
const FILE: u32 = 3;
const BLOCK: usize = 4096;
/// Blocks of the longest command, and of a packet.
const LONGEST: u32 = 16;
/// Blocks of the file.
const FILE_BLOCKS: u32 = 64;

/// The plan of a target whose longest command takes eight packets.
fn long_plan(port: u16, more: &str) -> String {
    plan(port, more).replace("transfer_bytes_max = 8192", "transfer_bytes_max = 65_536")
}

fn serve(port: u16, folder: &TempDir) -> Running {
    start(&file_plan(port, folder))
}

fn file_plan(port: u16, folder: &TempDir) -> String {
    let path = folder.path().join("disk");
    let bytes = FILE_BLOCKS as usize * BLOCK;
    let file = format!("[nvme.namespace.{FILE}]\nfile = {path:?}\ncreate_bytes = {bytes}\npage_cache = true\n");
    long_plan(port, &file)
}

fn of(host: &Host, opcode: u8, slba: u32, blocks: u32) -> Command {
    let sgl = host.keyed(0, blocks * BLOCK as u32);
    Command { nsid: FILE, ..host.of_blocks(opcode, slba.into(), blocks, sgl) }
}

/// Writes, reads and compares of every length at every place agree with an oracle.
#[test]
fn long_commands_agree_with_an_oracle() {
    let folder = tempfile::tempdir().unwrap();
    let running = serve(7920, &folder);
    let mut host = Host::new(7920);
    let (_, io) = host.queues();
    let mut rng = Rng::with_seed(1);
    let mut oracle = vec![0; FILE_BLOCKS as usize * BLOCK];
    for round in 0..400 {
        let blocks = rng.u32(1..=LONGEST);
        let slba = rng.u32(0..=FILE_BLOCKS - blocks);
        let (from, len) = (slba as usize * BLOCK, blocks as usize * BLOCK);
        match rng.u8(0..4) {
            0 | 1 => {
                oracle[from..from + len].fill_with(|| rng.u8(..));
                host.memory.write_from(0, &oracle[from..from + len]).expect("within the memory");
                let write = of(&host, opcode::io::WRITE, slba, blocks);
                assert!(host.ask(io, &write).status.is_success());
            }
            2 => {
                host.memory.write_from(0, &vec![0xEE; len]).expect("within the memory");
                let read = of(&host, opcode::io::READ, slba, blocks);
                assert!(host.ask(io, &read).status.is_success());
                assert!(host.bytes(0, len) == oracle[from..from + len], "round {round}: {blocks} from {slba} on");
            }
            _ => {
                let mut bytes = oracle[from..from + len].to_vec();
                let is_same = rng.bool();
                if !is_same {
                    bytes[rng.usize(0..len)] ^= 1;
                }
                host.memory.write_from(0, &bytes).expect("within the memory");
                let compare = of(&host, opcode::io::COMPARE, slba, blocks);
                let answer = host.ask(io, &compare);
                assert!(
                    if is_same { answer.status.is_success() } else { answer.status.is(Status::COMPARE_FAILURE) },
                    "round {round}: {answer:?}"
                );
            }
        }
    }
    assert!(std::fs::read(folder.path().join("disk")).unwrap() == oracle, "what is in the file");
    // One block more than allowed, and one beyond the namespace.
    let too_long = of(&host, opcode::io::READ, 0, LONGEST + 1);
    assert!(host.ask(io, &too_long).status.is(Status::INVALID_FIELD));
    let beyond = of(&host, opcode::io::READ, FILE_BLOCKS - LONGEST + 1, LONGEST);
    assert!(host.ask(io, &beyond).status.is(Status::LBA_OUT_OF_RANGE));
    end(running);
}

/// The data of a capsule may be longer than a packet of data, too.
#[test]
fn a_capsule_is_copied_in_pieces() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let file = format!("file = {path:?}\ncreate_bytes = 65_536\npage_cache = true\nblock_bytes = 512\n");
    let text = long_plan(7921, &format!("in_capsule_bytes = 7680\n[nvme.namespace.{FILE}]\n{file}"));
    let (front, stage) = text.split_once("[stage.target]").expect("a stage");
    let pool = "[pool.data]\ndevice = \"nic0\"\npackets = 1536\ndata_bytes = 4096\npages = \"4KiB\"\n";
    let stage = stage.replacen("pool = \"packets\"", "pool = \"data\"", 1);
    let running = start(&format!("{front}{pool}[stage.target]{stage}"));
    let mut host = Host::new(7921);
    let (_, io) = host.queues();
    let data: Vec<u8> = (0..7680).map(|at| (at % 251) as u8).collect();
    for (slba, offset, len) in [(3, 0, 7680), (40, 512, 7168), (60, 0, 512)] {
        let sgl = Sgl::InCapsule { offset: offset as u64, len: len as u32 };
        let write = Command { nsid: FILE, ..host.of_blocks(opcode::io::WRITE, slba, (len / 512) as u32, sgl) };
        let answer = host.ask_with(io, &write, &data);
        assert!(answer.status.is_success(), "{answer:?}");
        let kept = std::fs::read(&path).unwrap();
        assert!(kept[slba as usize * 512..][..len] == data[offset..offset + len], "{len} bytes from {slba} on");
    }
    end(running);
}

/// All commands of several queues are long, and compete for packets and room: each is answered,
/// with its own blocks. Hosts that leave in the middle leave nothing behind.
#[test]
fn long_commands_of_many_queues_share_what_there_is() {
    let folder = tempfile::tempdir().unwrap();
    let running = serve(7922, &folder);
    let bytes: Vec<u8> = (0..FILE_BLOCKS as usize * BLOCK).map(|at| (at / BLOCK) as u8 + 1).collect();
    std::fs::write(folder.path().join("disk"), &bytes).unwrap();
    for round in 0..6 {
        let mut host = Host::new(7922);
        let (_, cntlid) = host.controller();
        let queues = [1, 2, 3, 4].map(|qid| host.io_queue(cntlid, qid));
        for queue in queues {
            for cid in 1..ENTRIES {
                let slba = u32::from(cid) % (FILE_BLOCKS - LONGEST);
                let opcode = [opcode::io::READ, opcode::io::COMPARE, opcode::io::WRITE][usize::from(cid % 3)];
                // What is written is what is there, as far as it is of one block.
                let command = match opcode {
                    opcode::io::READ => of(&host, opcode, slba, LONGEST),
                    _ => Command { sgl: host.keyed(0, LONGEST * 4096), ..of(&host, opcode, slba, LONGEST) },
                };
                host.send(queue, &Command { cid, ..command }.to_bytes());
            }
        }
        if round % 2 == 1 {
            std::thread::sleep(Duration::from_millis(round));
            host.vanish();
            continue;
        }
        for queue in queues {
            let mut cids: Vec<u16> = (1..ENTRIES)
                .map(|_| {
                    let answer = host.response(queue);
                    let is_told = answer.status.is_success() || answer.status.is(Status::COMPARE_FAILURE);
                    assert!(is_told, "{answer:?}");
                    answer.cid
                })
                .collect();
            cids.sort_unstable();
            assert_eq!(cids, (1..ENTRIES).collect::<Vec<_>>(), "each once");
        }
        host.vanish();
    }
    end(running);
}

/// The pieces of a host that does not take its data use up its own share, and no more.
#[test]
fn long_reads_that_nobody_takes_stop_nobody() {
    let folder = tempfile::tempdir().unwrap();
    // Less than what the deaf queues ask for, whatever of it is posted before the first response.
    let running = start(&file_plan(7923, &folder).replace("ops_shared_wr = 256", "ops_shared_wr = 64"));
    let mut slow = Host::new(7923);
    slow.name = "nqn.2026-01.org.example:slow";
    let (_, cntlid) = slow.controller();
    for qid in 1..=3 {
        let queue = slow.deaf_queue(cntlid, qid);
        for cid in 1..ENTRIES {
            let read = of(&slow, opcode::io::READ, 0, LONGEST);
            slow.send(queue, &Command { cid, ..read }.to_bytes());
        }
    }
    until(&running, "waited", 3);
    let mut good = Host::new(7923);
    let (admin, io) = good.queues();
    let began = Instant::now();
    for slba in 0..40 {
        let read = of(&good, opcode::io::READ, slba, LONGEST);
        assert!(good.ask(io, &read).status.is_success());
    }
    let identify = Command::new(opcode::admin::IDENTIFY, 0, good.keyed(0, 4096));
    let identify = identify.with([cns::CONTROLLER.into(), 0, 0, 0, 0, 0]);
    assert!(good.ask(admin, &identify).status.is_success());
    println!("40 long reads beside three deaf queues: {:?}", began.elapsed());
    end(running);
}

/// A store that fails now and then, in the middle of commands: each failure is reported, and all
/// commands are answered.
#[test]
fn a_store_that_fails_in_the_middle_is_told() {
    let faults = Faults { error_once_in: 12, latency_polls_max: 3, ..Faults::default() };
    let disk = Disk::new(FILE_BLOCKS as usize * BLOCK, 4096, faults, 1).expect("a disk");
    let more = format!("[nvme.namespace.{FILE}]\nnull_bytes = {}\n", FILE_BLOCKS as usize * BLOCK);
    let app = NvmeTarget::default().with_store(FILE, move |depth| FaultyStore::over(&disk, depth));
    let running = start_app(&long_plan(7924, &more), &app);
    let mut host = Host::new(7924);
    let (_, io) = host.queues();
    for opcode in [opcode::io::READ, opcode::io::WRITE, opcode::io::COMPARE] {
        host.memory.write_from(0, &vec![0; LONGEST as usize * BLOCK]).expect("within the memory");
        let failure = if opcode == opcode::io::WRITE { Status::WRITE_FAULT } else { Status::UNRECOVERED_READ_ERROR };
        let statuses: Vec<Status> = (0..40).map(|_| host.ask(io, &of(&host, opcode, 3, LONGEST)).status).collect();
        let good = statuses.iter().filter(|status| status.is_success()).count();
        let failed = statuses.iter().filter(|status| status.is(failure)).count();
        assert!(good > 4 && failed > 4 && good + failed == 40, "{opcode}: {statuses:?}");
    }
    end(running);
}

/// Protection information moves with its block, in any piece: inserted, checked, and stripped.
/// Errors name the wrong block.
#[test]
fn protected_blocks_move_in_pieces() {
    for (index, kind) in (0..).zip([ProtectionType::Type1, ProtectionType::Type2, ProtectionType::Type3]) {
        // Packets hold two blocks of 4,096 bytes, of three in a command; of the small blocks 15.
        let mut served = serve_in_packets_of(8_216, 7925 + index, kind);
        let is_third = kind == ProtectionType::Type3;
        for nsid in BOTH.into_iter().chain([SMALL]) {
            let (slba, blocks) = (9, if nsid == SMALL { 31 } else { 3 });
            let action = Action { checks_ref_tag: !is_third, ..all(slba as u32, 0x21) };
            let good = served.blocks(nsid, blocks, 0x5A, action);
            let protection = served.protection(nsid);
            let mut bare = good.clone();
            let len = protection.strip(&mut bare);
            bare.truncate(len);
            for (way, bytes) in [(action, &good), (pract(action), &bare)] {
                assert!(served.write(nsid, (slba, blocks), way, bytes).status.is_success(), "{nsid}");
                served.assert_read(nsid, (slba, blocks), action, &good);
                served.assert_read(nsid, (slba, blocks), pract(action), &bare);
                served.assert_read(nsid, (slba, blocks), NONE, &good);
            }
            served.host.memory.write_from(FROM as usize, &good).expect("within the memory");
            assert!(served.ask(opcode::io::COMPARE, nsid, (slba, blocks), action, FROM).status.is_success());
            // The last block, which is in the last piece, is wrong when written.
            let mut bad = good.clone();
            let tuple = tuple_of(&bad, protection, blocks - 1);
            set_tuple(&mut bad, protection, blocks - 1, Tuple { guard: tuple.guard ^ 1, ..tuple });
            let answer = served.write(nsid, (slba, blocks), action, &bad);
            let lba = slba + u64::from(blocks) - 1;
            assert!(answer.status.is(Status::GUARD_CHECK_ERROR), "{nsid}: {answer:?}");
            assert_eq!(served.last_error(), (answer.status, lba, nsid));
            served.assert_read(nsid, (slba, blocks), action, &good);
            // Then it is wrong in the store.
            assert!(served.write(nsid, (slba, blocks), NONE, &bad).status.is_success());
            let (answer, _) = served.read(nsid, (slba, blocks), action);
            assert!(answer.status.is(Status::GUARD_CHECK_ERROR), "{nsid}: {answer:?}");
            assert_eq!(served.last_error(), (answer.status, lba, nsid));
        }
        end(served.running);
    }
}

fn app() -> Program {
    Program::new(env!("CARGO_BIN_EXE_nvme-target"))
}

/// The longest command that hosts may send changes no sum of the plan: it moves packet by packet.
#[test]
fn the_longest_command_takes_no_memory() {
    let explain = |sets: &[&str]| {
        let check = app().with(["check", "config/nvme-target.toml", "--explain"]);
        check.with(sets.iter().flat_map(|set| ["--set", set])).run().exited(0)
    };
    let shipped = explain(&[]);
    let sums = |shown: &Finished| {
        // The machine's free memory changes by itself.
        let lines = shown.stdout.lines().filter(|line| !line.contains("nvme") && !line.contains("the machine's"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    for bytes in ["4096", "1048576", "16777216"] {
        let other = explain(&[&format!("nvme.transfer_bytes_max={bytes}")]);
        assert_eq!(sums(&shipped), sums(&other));
    }
    assert!(shipped.stdout.contains("4,096  a page of Identify, or a block"), "{shipped}");
    let with_protection = &["pool.data.data_bytes=4096", "nvme.namespace.1.protection=type1"][..];
    for (sets, needed) in [(&["pool.data.data_bytes=2048"][..], 4096), (with_protection, 4104)] {
        let check = app().with(["check", "config/nvme-target.toml"]);
        let shown = check.with(sets.iter().flat_map(|set| ["--set", set])).run().exited(2);
        assert!(unwrapped(&shown.stderr).contains(&format!("stage.target writes {needed}")), "{shown}");
    }
}

/// Commands of a mebibyte, which the shipped plan lets hosts send: out of memory, and in pieces of
/// a file, with and without protection information.
#[test]
fn two_lcores_serve_commands_of_a_mebibyte() {
    let Some(placed) = two_lcores(["target", "load"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| {
        let path = folder.path().join(name);
        format!("nvme.namespace.1={{ file = {path:?}, create_bytes = 16_875_520, page_cache = true, block_bytes = 4096")
    };
    let cases = [
        vec!["nvme.namespace.1={ memory = \"disk\", block_bytes = 4096 }".to_owned()],
        vec![file("plain") + " }"],
        vec![file("target") + ", protection = \"type1\" }", "load.protection=target".to_owned()],
        vec![
            file("host") + ", protection = \"type2\" }",
            "load.protection=host".to_owned(),
            "nvme.transfer_bytes_max=2097152".to_owned(),
        ],
    ];
    for sets in cases {
        let shared =
            ["load.block_bytes=1048576", "load.depth=2", "region.buffers.bytes=9_000_000", "load.flush_every=8"];
        let run = app().with(["run", "config/nvme-target.toml", "--json"]).with(placed.clone());
        let run = run.with(shared.into_iter().chain(sets.iter().map(String::as_str)).flat_map(|set| ["--set", set]));
        // More reads than may be in flight at once: at least one has come back.
        let shown = run.run_until(|report| counted(report, "target", "reads") > 2).exited(0);
        let json = shown.json();
        assert_report_holds(&json);
        assert!(json["verified"].as_u64() > Some(0), "{sets:?}: {shown}");
        assert_eq!(
            (&json["mismatches"], &json["balance"], &json["counts"]["failed"]),
            (&0.into(), &0.into(), &0.into())
        );
        assert_eq!((&json["packets"]["held"], &json["drained"]), (&0.into(), &true.into()), "{shown}");
    }
}
