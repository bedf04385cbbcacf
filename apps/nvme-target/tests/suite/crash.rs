//! Crashes under a target, by seed: data that a host was told is durable is there after the
//! restart, and no block holds data that was never written to it. To show that the judge notices, a
//! disk that lies is found out.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::common::{Host, end, plan, start_app, until};
use fastrand::Rng;
use nvme_target::NvmeTarget;
use verbline::engine::Running;
use verbline_nvme::io::{FORCE_UNIT_ACCESS, ReadWrite};
use verbline_nvme::property::{self, Property};
use verbline_nvme::{Command, Sgl, Status, opcode};
use verbline_store::{Disk, Faults, FaultyStore};

pub(crate) const NSID: u32 = 3;
pub(crate) const BLOCK: usize = 512;
pub(crate) const BLOCKS: u64 = 32;
/// Commands that the host sends at once.
const AT_ONCE: usize = 6;

/// The judge: the writes that each block may hold after a crash, by number; 0 for none.
struct Judge {
    /// By block: the durable write, and the writes begun after it.
    allowed: Vec<Vec<u64>>,
    /// By block: the last write that was acknowledged.
    last_done: Vec<u64>,
}

impl Judge {
    /// The judge after a restart: the blocks found are durable.
    fn of(blocks: &[u64]) -> Judge {
        Judge { allowed: blocks.iter().map(|number| vec![*number]).collect(), last_done: blocks.to_vec() }
    }

    /// No write before this one may come back.
    fn persisted(&mut self, block: usize, number: u64) {
        self.allowed[block].retain(|other| *other >= number);
    }
}

/// A command in flight.
enum Asked {
    Write {
        slba: u64,
        blocks: u64,
        number: u64,
        fua: bool,
    },
    /// With FUA, into the host's memory at `at`.
    Read {
        slba: u64,
        blocks: u64,
        at: usize,
    },
    /// With the acknowledged writes at the time it was sent, by block.
    Flush {
        covered: Vec<u64>,
    },
}

/// Where the host's memory for reads begins.
const READS_AT: usize = 32 << 10;

/// A target over the disk, and a host with an I/O queue.
pub(crate) struct Served {
    running: Running,
    pub(crate) host: Host,
    admin: usize,
    pub(crate) io: usize,
}

pub(crate) fn serve(port: u16, disk: &Disk) -> Served {
    serve_with(port, "", disk).0
}

/// Like [`serve`], with more of a plan. Returns the app as well, for a plan that is read again.
pub(crate) fn serve_with(port: u16, more: &str, disk: &Disk) -> (Served, NvmeTarget) {
    let bytes = BLOCKS * BLOCK as u64;
    let namespace = format!("[nvme.namespace.{NSID}]\nnull_bytes = {bytes}\nblock_bytes = {BLOCK}\n");
    let disk = disk.clone();
    let app = NvmeTarget::default().with_store(NSID, move |depth| FaultyStore::over(&disk, depth));
    let running = start_app(&(plan(port, &namespace) + more), &app);
    let mut host = Host::new(port);
    let (admin, io) = host.queues();
    (Served { running, host, admin, io }, app)
}

impl Served {
    /// Reads every block. Returns the write that each holds, or the block that holds two.
    pub(crate) fn read_all(&mut self) -> Result<Vec<u64>, String> {
        let per_read = 16;
        let mut numbers = Vec::new();
        for slba in (0..BLOCKS).step_by(per_read) {
            let range = ReadWrite { slba, blocks: per_read as u32 };
            let sgl = self.host.keyed(0, (per_read * BLOCK) as u32);
            let read = Command { nsid: NSID, ..Command::new(opcode::io::READ, 0, sgl).with(range.dwords()) };
            // The disk may fail a read now and then.
            let is_read = (0..100).any(|_| self.host.ask(self.io, &read).status.is_success());
            assert!(is_read, "blocks from {slba} on can be read");
            for (block, bytes) in (slba..).zip(self.host.bytes(0, per_read * BLOCK).chunks(BLOCK)) {
                let words: Vec<u64> =
                    bytes.chunks(8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes"))).collect();
                if words.iter().any(|word| *word != words[0]) {
                    return Err(format!("block {block} holds parts of two writes"));
                }
                numbers.push(words[0]);
            }
        }
        Ok(numbers)
    }

    /// Sends some commands at once; no two write the same block, and reads find any of them.
    fn send(&mut self, judge: &mut Judge, next: &mut u64, rng: &mut Rng) -> BTreeMap<u16, Asked> {
        let (mut asked, mut taken) = (BTreeMap::new(), [false; BLOCKS as usize]);
        for _ in 0..rng.usize(1..=AT_ONCE) {
            let cid = self.host.cid();
            if rng.u32(0..5) == 0 {
                let flush = Command { cid, nsid: NSID, ..Command::new(opcode::io::FLUSH, 0, Sgl::NONE) };
                self.host.send(self.io, &flush.to_bytes());
                asked.insert(cid, Asked::Flush { covered: judge.last_done.clone() });
                continue;
            }
            let (blocks, fua) = (rng.u64(1..=4), rng.u32(0..3) == 0);
            let slba = rng.u64(0..=BLOCKS - blocks);
            if rng.u32(0..12) == 0 {
                let at = READS_AT + asked.len() * 4 * BLOCK;
                let sgl = self.host.keyed(at as u64, (blocks as usize * BLOCK) as u32);
                let mut dwords = ReadWrite { slba, blocks: blocks as u32 }.dwords();
                dwords[2] |= FORCE_UNIT_ACCESS;
                let read = Command { cid, nsid: NSID, ..Command::new(opcode::io::READ, 0, sgl).with(dwords) };
                self.host.send(self.io, &read.to_bytes());
                asked.insert(cid, Asked::Read { slba, blocks, at });
                continue;
            }
            let span = slba as usize..(slba + blocks) as usize;
            if taken[span.clone()].contains(&true) {
                continue;
            }
            taken[span.clone()].fill(true);
            let number = std::mem::replace(next, *next + 1);
            judge.allowed[span].iter_mut().for_each(|allowed| allowed.push(number));
            let mut dwords = ReadWrite { slba, blocks: blocks as u32 }.dwords();
            dwords[2] |= if fua { FORCE_UNIT_ACCESS } else { 0 };
            let data = number.to_le_bytes().repeat(blocks as usize * BLOCK / 8);
            // In the capsule, or out of the host's memory, each at a place of its own.
            let at = asked.len() * 4 * BLOCK;
            let sgl = match rng.bool() {
                true => Sgl::InCapsule { offset: 0, len: data.len() as u32 },
                false => {
                    self.host.memory.write_from(at, &data).expect("within the memory");
                    self.host.keyed(at as u64, data.len() as u32)
                }
            };
            let in_capsule = if matches!(sgl, Sgl::InCapsule { .. }) { &data[..] } else { &[] };
            let write = Command { cid, nsid: NSID, ..Command::new(opcode::io::WRITE, 0, sgl).with(dwords) };
            self.host.send(self.io, &[&write.to_bytes()[..], in_capsule].concat());
            asked.insert(cid, Asked::Write { slba, blocks, number, fua });
        }
        asked
    }

    /// Takes this many responses. A success is an acknowledgement, whenever it is read.
    fn take(&mut self, count: usize, asked: &mut BTreeMap<u16, Asked>, judge: &mut Judge) {
        for _ in 0..count {
            let answer = self.host.response(self.io);
            match (asked.remove(&answer.cid).expect("each once"), answer.status.is_success()) {
                (Asked::Write { slba, blocks, number, fua }, true) => {
                    for block in slba as usize..(slba + blocks) as usize {
                        judge.last_done[block] = number;
                        if fua {
                            judge.persisted(block, number);
                        }
                    }
                }
                (Asked::Flush { covered }, true) => {
                    covered.into_iter().enumerate().for_each(|(block, number)| judge.persisted(block, number));
                }
                // What a host has read with FUA is there after a crash.
                (Asked::Read { slba, blocks, at }, true) => {
                    let found = self.host.bytes(at, blocks as usize * BLOCK);
                    for (block, bytes) in (slba as usize..).zip(found.chunks(BLOCK)) {
                        judge.persisted(block, word(bytes));
                    }
                }
                (_, false) => {}
            }
        }
    }
}

/// The first word of a block: the number of its write.
fn word(block: &[u8]) -> u64 {
    u64::from_le_bytes(block[..8].try_into().expect("8 bytes"))
}

/// Writes, crashes and restarts, a few times. Returns the first fault found.
fn workload(port: u16, faults: Faults, seed: u64) -> Option<String> {
    let disk = Disk::new(BLOCKS as usize * BLOCK, BLOCK as u32, faults, seed).expect("a disk");
    let (mut rng, mut next) = (Rng::with_seed(!seed), 1);
    let mut judge = Judge::of(&[0; BLOCKS as usize]);
    for round in 0..4 {
        let mut served = serve(port, &disk);
        match served.read_all() {
            Err(broken) => return ended(served, Some(broken)),
            Ok(numbers) => {
                for (block, number) in numbers.iter().enumerate() {
                    if !judge.allowed[block].contains(number) {
                        let allowed = &judge.allowed[block];
                        let broken = format!("block {block} holds {number}, and may hold {allowed:?}");
                        return ended(served, Some(broken));
                    }
                }
                judge = Judge::of(&numbers);
            }
        }
        if round == 3 {
            return ended(served, None);
        }
        for _ in 0..rng.usize(1..40) {
            let mut asked = served.send(&mut judge, &mut next, &mut rng);
            let count = asked.len();
            served.take(count, &mut asked, &mut judge);
        }
        // The power fails while some writes are acknowledged, and some in flight.
        let mut asked = served.send(&mut judge, &mut next, &mut rng);
        let before = rng.usize(0..=asked.len());
        served.take(before, &mut asked, &mut judge);
        disk.crash();
        let after = asked.len();
        served.take(after, &mut asked, &mut judge);
        ended(served, None);
    }
    None
}

pub(crate) fn ended(mut served: Served, found: Option<String>) -> Option<String> {
    served.host.vanish();
    end(served.running);
    found
}

#[test]
fn what_was_acknowledged_as_durable_is_there_after_a_restart() {
    for seed in 0..24 {
        let (latency_polls_max, error_once_in) = ((seed % 4) as u32 * 40, (seed % 3) as u32 * 11);
        let faults = Faults { latency_polls_max, error_once_in, ..Faults::default() };
        assert_eq!(workload(7870, faults, seed), None, "seed {seed}");
    }
}

/// Writes eight blocks without a flush, runs `then`, and checks that the blocks survive any crash.
#[track_caller]
fn assert_durable_after(port: u16, faults: Faults, seed: u64, then: impl FnOnce(&mut Served)) {
    let disk = Disk::new(BLOCKS as usize * BLOCK, BLOCK as u32, faults, seed).expect("a disk");
    let mut served = serve(port, &disk);
    served.host.memory.write_from(0, &seed.to_le_bytes().repeat(8 * BLOCK / 8)).expect("within the memory");
    served.of_eight(opcode::io::WRITE, 0);
    then(&mut served);
    disk.crash();
    ended(served, None);
    let mut again = serve(port, &disk);
    assert_eq!(again.read_all().map(|blocks| blocks[..8].to_vec()), Ok(vec![seed; 8]), "seed {seed}");
    ended(again, None);
}

impl Served {
    /// A command for the first eight blocks, with these bits in its dword 12.
    #[track_caller]
    pub(crate) fn of_eight(&mut self, opcode: u8, bits: u32) {
        let sgl = if opcode == opcode::io::VERIFY { Sgl::NONE } else { self.host.keyed(0, 8 * BLOCK as u32) };
        let mut dwords = ReadWrite { slba: 0, blocks: 8 }.dwords();
        dwords[2] |= bits;
        let command = Command { nsid: NSID, ..Command::new(opcode, 0, sgl).with(dwords) };
        assert!(self.host.ask(self.io, &command).status.is_success(), "{command:?}");
    }

    /// Shuts the controller down. Returns the status, and the shutdown's progress in CSTS.
    pub(crate) fn shut_down(&mut self) -> (Status, u32) {
        let [cc, csts] = [property::CC, property::CSTS].map(|offset| Property { offset, is_wide: false });
        let answer = self.host.ask(self.admin, &cc.set(0, SHUT_DOWN));
        (answer.status, self.host.ask(self.admin, &csts.get(0)).result as u32 & property::CSTS_SHUTDOWN)
    }
}

/// CC of a controller that works, with a normal shutdown.
const SHUT_DOWN: u64 = (property::CC_USUAL | 1 << 14) as u64;

/// A host that shuts its controller down need not flush before.
#[test]
fn what_was_written_before_a_shutdown_is_there_after_a_restart() {
    for seed in 1..=8 {
        let faults = Faults { latency_polls_max: 400, ..Faults::default() };
        assert_durable_after(7873, faults, seed, |served| {
            assert_eq!(served.shut_down(), (Status::SUCCESS, property::CSTS_SHUTDOWN_COMPLETE));
        });
    }
}

/// A flush that fails leaves the shutdown incomplete, and the host is told. A host that leaves
/// meanwhile leaves nothing behind.
#[test]
fn a_shutdown_whose_flush_fails_is_not_complete() {
    let faults = Faults { error_once_in: 1, latency_polls_max: 2_000, ..Faults::default() };
    let disk = Disk::new(BLOCKS as usize * BLOCK, BLOCK as u32, faults, 1).expect("a disk");
    let mut served = serve(7874, &disk);
    let (status, shown) = served.shut_down();
    assert!(status.is(Status::WRITE_FAULT) && shown == property::CSTS_SHUTDOWN_BEGUN, "{status:?} {shown}");
    let again = Property { offset: property::CC, is_wide: false }.set(0, SHUT_DOWN);
    served.host.send(served.admin, &again.to_bytes());
    ended(served, None);
}

/// Data that a host read with FUA survives, even without a flush.
#[test]
fn what_was_read_with_fua_is_there_after_a_restart() {
    for (seed, opcode) in (1..).zip([opcode::io::READ, opcode::io::COMPARE, opcode::io::VERIFY]) {
        assert_durable_after(7872, Faults::default(), seed, |served| served.of_eight(opcode, FORCE_UNIT_ACCESS));
    }
}

/// Regression: the store was flushed before the blocks were read, so that a Write between the two
/// was shown, and lost in a crash.
#[test]
fn what_was_read_with_fua_while_it_was_written_is_there_after_a_restart() {
    for seed in 1..=8 {
        let disk = Disk::new(BLOCKS as usize * BLOCK, BLOCK as u32, Faults::default(), seed).expect("a disk");
        let mut served = serve(7986, &disk);
        let data = seed.to_le_bytes().repeat(8 * BLOCK / 8);
        served.host.memory.write_from(0, &data).expect("within the memory");
        disk.stall(true);
        let commands = served.running.snapshot().stage("target").and_then(|stage| stage.counter("commands"));
        let sgl = |served: &Served, at| served.host.keyed(at, 8 * BLOCK as u32);
        for (cid, opcode, bits, at) in
            [(0x7001, opcode::io::READ, FORCE_UNIT_ACCESS, READS_AT as u64), (0x7002, opcode::io::WRITE, 0, 0)]
        {
            let mut dwords = ReadWrite { slba: 0, blocks: 8 }.dwords();
            dwords[2] |= bits;
            let command = Command { cid, nsid: NSID, ..Command::new(opcode, 0, sgl(&served, at)).with(dwords) };
            served.host.send(served.io, &command.to_bytes());
        }
        until(&served.running, "commands", commands.unwrap_or(0) + 2);
        // The Write's data is fetched meanwhile.
        std::thread::sleep(Duration::from_millis(20));
        disk.stall(false);
        for _ in 0..2 {
            assert!(served.host.response(served.io).status.is_success());
        }
        let found: Vec<u64> = served.host.bytes(READS_AT, 8 * BLOCK).chunks(BLOCK).map(word).collect();
        disk.crash();
        ended(served, None);
        let mut again = serve(7986, &disk);
        let left = again.read_all().expect("whole blocks");
        for (block, (found, left)) in found.iter().zip(&left).enumerate() {
            assert!(*left >= *found, "block {block} held {found} as it was read, and {left} after the crash");
        }
        ended(again, None);
    }
}

#[test]
fn a_disk_that_lies_is_found_out() {
    let lies = [
        Faults { lost_flush_once_in: 2, latency_polls_max: 40, ..Faults::default() },
        Faults { ignores_fua: true, latency_polls_max: 40, ..Faults::default() },
        Faults { tear_bytes: 64, latency_polls_max: 40, ..Faults::default() },
    ];
    for faults in lies {
        let found = (0..8).filter(|seed| workload(7871, faults, *seed).is_some()).count();
        assert!(found > 0, "{faults:?}: none of 8 runs");
    }
}
