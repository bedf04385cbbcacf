//! Commands of all kinds and lengths at random, in memory and in files, against an oracle: what
//! each answers, and which bytes there are then.

use std::ops::Range;
use std::path::PathBuf;

use fastrand::Rng;
use verbline_nvme::io::{DEALLOCATE, DSM_DEALLOCATE, DSM_RANGE_BYTES, DsmRange, FORCE_UNIT_ACCESS};
use verbline_nvme::{Command, Sgl, Status, opcode};

use crate::common::{Host, end, plan, start};

/// Bytes of each namespace.
const BYTES: usize = 1 << 20;
/// Bytes of the longest command: eight packets.
const TRANSFER_BYTES: usize = 64 << 10;
/// Bytes that a capsule has room for.
const CAPSULE_BYTES: usize = 4096;

/// A namespace, and the bytes that it should hold.
struct Space {
    nsid: u32,
    block_bytes: usize,
    oracle: Vec<u8>,
    /// Its file, if it is no memory.
    file: Option<PathBuf>,
}

/// A command, the data behind it, and the answer due.
struct Asked {
    command: Command,
    capsule: Vec<u8>,
    due: Status,
    /// The bytes that it gives back.
    given_back: Vec<Range<usize>>,
}

impl Space {
    /// A first block and a length within `most` bytes, or now and then one that goes past the end.
    fn range(&self, rng: &mut Rng, most: usize) -> (usize, usize) {
        let blocks = rng.usize(1..=most / self.block_bytes);
        let last = BYTES / self.block_bytes - blocks;
        (if rng.u8(..) < 12 { last + rng.usize(1..=blocks) } else { rng.usize(0..=last) }, blocks)
    }

    /// Where the blocks are, or why they are nowhere.
    fn place(&self, (slba, blocks): (usize, usize)) -> Result<Range<usize>, Status> {
        let place = slba * self.block_bytes..(slba + blocks) * self.block_bytes;
        if place.end <= BYTES { Ok(place) } else { Err(Status::LBA_OUT_OF_RANGE) }
    }

    fn command(&self, host: &Host, opcode: u8, (slba, blocks): (usize, usize), sgl: Sgl) -> Command {
        Command { nsid: self.nsid, ..host.of_blocks(opcode, slba as u64, blocks as u32, sgl) }
    }

    /// A Write, a Compare or a Read, whose data is in the host's memory or in the capsule, and
    /// whose length is now and then not that of its blocks.
    fn moving(&mut self, rng: &mut Rng, host: &Host) -> Asked {
        let opcode = [opcode::io::READ, opcode::io::WRITE, opcode::io::COMPARE][rng.usize(0..3)];
        let in_capsule = opcode != opcode::io::READ && rng.bool();
        let range = self.range(rng, if in_capsule { CAPSULE_BYTES } else { TRANSFER_BYTES });
        let len = range.1 * self.block_bytes;
        let mut data: Vec<u8> = std::iter::repeat_with(|| rng.u8(..)).take(len).collect();
        let mut due = Status::SUCCESS;
        let is_wrong = rng.u8(..) < 12;
        match self.place(range) {
            Err(status) => due = status,
            Ok(_) if is_wrong => due = Status::SGL_DATA_LENGTH_INVALID,
            Ok(place) if opcode == opcode::io::WRITE => self.oracle[place].copy_from_slice(&data),
            Ok(place) if opcode == opcode::io::COMPARE && rng.u8(0..4) > 0 => data.copy_from_slice(&self.oracle[place]),
            Ok(place) if opcode == opcode::io::COMPARE && data != self.oracle[place.clone()] => {
                due = Status::COMPARE_FAILURE;
            }
            Ok(_) => {}
        }
        let told = (len - usize::from(is_wrong)) as u32;
        let (sgl, capsule) = match in_capsule {
            true => (Sgl::InCapsule { offset: 0, len: told }, data),
            false => {
                host.memory.write_from(0, &data).expect("within the memory");
                (host.keyed(0, told), Vec::new())
            }
        };
        Asked { command: self.command(host, opcode, range, sgl), capsule, due, given_back: Vec::new() }
    }

    /// A command without data. Write Zeroes is as long as it likes.
    fn dataless(&mut self, rng: &mut Rng, host: &Host) -> Asked {
        let opcode = [opcode::io::WRITE_ZEROES, opcode::io::VERIFY, opcode::io::FLUSH, 0x7D][rng.usize(0..4)];
        let range = self.range(rng, BYTES / 2);
        let mut command = self.command(host, opcode, range, Sgl::NONE);
        let due = match opcode {
            opcode::io::FLUSH => Status::SUCCESS,
            0x7D => Status::INVALID_OPCODE,
            opcode => match self.place(range) {
                Ok(place) if opcode == opcode::io::WRITE_ZEROES => {
                    command.cdw10[2] |= if rng.bool() { DEALLOCATE } else { 0 };
                    self.oracle[place].fill(0);
                    Status::SUCCESS
                }
                Ok(_) => Status::SUCCESS,
                Err(status) => status,
            },
        };
        Asked { command, capsule: Vec::new(), due, given_back: Vec::new() }
    }

    /// A Dataset Management of a few ranges: those before the first that is wrong are given back.
    fn giving_back(&self, rng: &mut Rng, host: &Host) -> Asked {
        let ranges: Vec<_> = (0..rng.usize(1..=8))
            .map(|_| if rng.u8(0..6) == 0 { (rng.usize(0..BYTES), 0) } else { self.range(rng, BYTES / 16) })
            .collect();
        let deallocates = rng.u8(0..4) > 0;
        let (mut due, mut given_back) = (Status::SUCCESS, Vec::new());
        for range in ranges.iter().filter(|range| deallocates && range.1 > 0) {
            match self.place(*range) {
                Ok(place) => given_back.push(place),
                Err(status) => {
                    due = status;
                    break;
                }
            }
        }
        let of = |&(slba, blocks): &(usize, usize)| {
            DsmRange { attributes: 0, blocks: blocks as u32, slba: slba as u64 }.to_bytes()
        };
        let data: Vec<u8> = ranges.iter().flat_map(of).collect();
        let len = (ranges.len() * DSM_RANGE_BYTES) as u32;
        let (sgl, capsule) = match rng.bool() {
            true => (Sgl::InCapsule { offset: 0, len }, data),
            false => {
                host.memory.write_from(0, &data).expect("within the memory");
                (host.keyed(0, len), Vec::new())
            }
        };
        let dwords = [ranges.len() as u32 - 1, if deallocates { DSM_DEALLOCATE } else { 0 }, 0, 0, 0, 0];
        let command = Command::new(opcode::io::DATASET_MANAGEMENT, 0, sgl).with(dwords);
        Asked { command: Command { nsid: self.nsid, ..command }, capsule, due, given_back }
    }

    /// Each block that was given back reads as it was, or as zeros.
    fn settle(&mut self, given_back: Vec<Range<usize>>) {
        let Some(file) = self.file.as_ref().filter(|_| !given_back.is_empty()) else { return };
        let kept = std::fs::read(file).unwrap();
        let blocks = given_back.into_iter().flat_map(|place| place.step_by(self.block_bytes));
        for block in blocks.map(|at| at..at + self.block_bytes) {
            let is_zero = kept[block.clone()].iter().all(|byte| *byte == 0);
            assert!(is_zero || kept[block.clone()] == self.oracle[block.clone()], "{block:?} of {}", self.nsid);
            self.oracle[block.clone()].copy_from_slice(&kept[block]);
        }
    }
}

#[test]
fn commands_at_random_agree_with_an_oracle() {
    let folder = tempfile::tempdir().unwrap();
    let path = |nsid: u32| folder.path().join(nsid.to_string());
    let file = |nsid, more: &str| {
        format!("[nvme.namespace.{nsid}]\nfile = {:?}\ncreate_bytes = {BYTES}\n{more}\n", path(nsid))
    };
    let files = file(3, "page_cache = true\nblock_bytes = 512") + &file(4, "block_bytes = 4096");
    let text = plan(7990, &files).replace("transfer_bytes_max = 8192", "transfer_bytes_max = 65_536");
    // Aligned for files past the page cache.
    let running = start(&text.replacen("data_bytes = 8192", "data_bytes = 8192\nheadroom_bytes = 0", 1));
    let mut host = Host::new(7990);
    let (_, io) = host.queues();
    let mut spaces = [(1, 4096), (3, 512), (4, 4096)].map(|(nsid, block_bytes)| Space {
        nsid,
        block_bytes,
        oracle: vec![0; BYTES],
        file: (nsid != 1).then(|| path(nsid)),
    });
    let mut rng = Rng::with_seed(3);
    for round in 0..1500 {
        let space = &mut spaces[rng.usize(0..3)];
        let mut asked = match rng.u8(0..6) {
            0 => space.dataless(&mut rng, &host),
            1 => space.giving_back(&mut rng, &host),
            _ => space.moving(&mut rng, &host),
        };
        if asked.command.opcode != opcode::io::DATASET_MANAGEMENT && rng.u8(0..4) == 0 {
            asked.command.cdw10[2] |= FORCE_UNIT_ACCESS;
        }
        let answer = host.ask_with(io, &asked.command, &asked.capsule);
        let about = format!("round {round}: {:?} for {:?}", answer.status, asked.command);
        assert!(answer.status.is(asked.due), "{about}, not {:?}", asked.due);
        space.settle(asked.given_back);
        if asked.command.opcode == opcode::io::READ && answer.status.is_success() {
            let range = verbline_nvme::io::ReadWrite::of(&asked.command);
            let place = space.place((range.slba as usize, range.blocks as usize)).expect("it was answered");
            assert!(host.bytes(0, place.len()) == space.oracle[place], "{about}");
        }
    }
    for (space, file) in spaces.iter().filter_map(|space| Some(space).zip(space.file.as_ref())) {
        assert!(std::fs::read(file).unwrap() == space.oracle, "what is in the file of {}", space.nsid);
    }
    end(running);
}
