//! Crash consistency, by seed: a write acknowledged as durable survives a crash; no block holds
//! data never written to it. The judge also catches a disk that lies.

use std::collections::VecDeque;
use std::ops::Range;

use crate::common::oracle::Oracle;
use crate::common::{filled, one, pool};
use fastrand::Rng;
use verbline_mem::PoolCache;
use verbline_store::{Disk, Done, Fault, Faults, FaultyStore, Request, Store};

const BLOCK: usize = 512;
const BLOCKS: usize = 32;

/// The permitted contents of each block after a crash: numbers of writes, 0 for none.
struct Judge {
    /// By block: the durable write, and all writes begun after it.
    allowed: Vec<Vec<u64>>,
    /// By block: the last completed write.
    last_done: Vec<u64>,
    next: u64,
}

impl Judge {
    /// Starts from a disk after a crash: its contents are durable.
    fn of(contents: &[u8]) -> Judge {
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes[..8].try_into().unwrap());
        let last_done: Vec<u64> = contents.chunks(BLOCK).map(number).collect();
        let next = last_done.iter().max().unwrap() + 1;
        Judge { allowed: last_done.iter().map(|&number| vec![number]).collect(), last_done, next }
    }

    /// Notes the start of a write; returns its number.
    fn begin(&mut self, blocks: Range<usize>) -> u64 {
        let number = self.next;
        self.next += 1;
        self.allowed[blocks].iter_mut().for_each(|allowed| allowed.push(number));
        number
    }

    /// No write before this one may come back. Writes of a block come one after another.
    fn persisted(&mut self, block: usize, number: u64) {
        self.allowed[block].retain(|&other| other >= number);
    }

    /// Describes the first block with forbidden contents.
    fn broken(&self, contents: &[u8]) -> Option<String> {
        contents.chunks(BLOCK).enumerate().find_map(|(block, bytes)| {
            let numbers: Vec<u64> = bytes.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
            let whole = numbers.iter().all(|number| *number == numbers[0]);
            let allowed = &self.allowed[block];
            (!whole || !allowed.contains(&numbers[0]))
                .then(|| format!("block {block} holds {:?}…, and may hold {allowed:?}", &numbers[..2]))
        })
    }
}

/// A request, by tag.
enum Asked {
    Write {
        blocks: Range<usize>,
        number: u64,
        fua: bool,
    },
    /// With the completed writes at its submission, by block.
    Flush {
        covered: Vec<u64>,
    },
}

/// Runs a workload with crashes; returns the fault after one of them.
fn workload(faults: Faults, seed: u64) -> Option<String> {
    let disk = Disk::new(BLOCKS * BLOCK, BLOCK as u32, faults, seed).unwrap();
    let pool = pool(64, 4 * BLOCK as u32);
    let cache = pool.cache(64).bind();
    let mut rng = Rng::with_seed(!seed);
    for _ in 0..4 {
        let mut judge = Judge::of(&disk.contents());
        let mut store = FaultyStore::over(&disk, 8);
        run(&mut store, &cache, &mut judge, &mut rng);
        disk.crash();
        if let Some(broken) = judge.broken(&disk.contents()) {
            return Some(broken);
        }
    }
    None
}

fn run(store: &mut FaultyStore, cache: &PoolCache, judge: &mut Judge, rng: &mut Rng) {
    let mut asked: [Option<Asked>; 8] = Default::default();
    let mut done = Vec::<Done>::with_capacity(8);
    for _ in 0..rng.usize(1..200) {
        if let Some(tag) = asked.iter().position(Option::is_none) {
            let (request, what) = ask(cache, judge, rng, tag as u64);
            let is_busy = |blocks: &Range<usize>| {
                asked.iter().flatten().any(|one| match one {
                    Asked::Write { blocks: other, .. } => blocks.start < other.end && other.start < blocks.end,
                    Asked::Flush { .. } => false,
                })
            };
            if !matches!(&what, Asked::Write { blocks, .. } if is_busy(blocks)) {
                store.submit(&mut VecDeque::from([request]));
                asked[tag] = Some(what);
            }
        }
        store.poll(&mut done);
        for one in done.drain(..) {
            match (asked[one.tag as usize].take().unwrap(), one.result) {
                (Asked::Write { blocks, number, fua }, Ok(())) => {
                    for block in blocks {
                        judge.last_done[block] = number;
                        if fua {
                            judge.persisted(block, number);
                        }
                    }
                }
                (Asked::Flush { covered }, Ok(())) => {
                    covered.into_iter().enumerate().for_each(|(block, number)| judge.persisted(block, number));
                }
                (_, Err(_)) => {}
            }
        }
    }
}

/// A flush, or a write of a few blocks that hold its number.
fn ask(cache: &PoolCache, judge: &mut Judge, rng: &mut Rng, tag: u64) -> (Request, Asked) {
    if rng.u32(0..8) == 0 {
        return (Request::flush(tag), Asked::Flush { covered: judge.last_done.clone() });
    }
    let count = rng.usize(1..=4);
    let lba = rng.usize(0..=BLOCKS - count);
    let (blocks, fua) = (lba..lba + count, rng.u32(0..4) == 0);
    let number = judge.begin(blocks.clone());
    let mut packet = cache.get_of_len(count * BLOCK).expect("packets enough");
    packet.data_mut().chunks_mut(8).for_each(|word| word.copy_from_slice(&number.to_le_bytes()));
    (Request::write(lba as u64, count as u32, packet, fua, tag), Asked::Write { blocks, number, fua })
}

#[test]
fn what_was_acknowledged_as_durable_survives_a_crash() {
    for seed in 0..300 {
        let (latency_polls_max, error_once_in) = ((seed % 5) as u32 * 2, (seed % 3) as u32 * 7);
        let faults = Faults { latency_polls_max, error_once_in, ..Faults::default() };
        assert_eq!(workload(faults, seed), None, "seed {seed}");
    }
}

#[test]
fn a_disk_that_lies_is_found_out() {
    let lies = [
        Faults { lost_flush_once_in: 2, latency_polls_max: 2, ..Faults::default() },
        Faults { ignores_fua: true, latency_polls_max: 2, ..Faults::default() },
        Faults { tear_bytes: 64, latency_polls_max: 2, ..Faults::default() },
    ];
    for faults in lies {
        let found = (0..50).filter(|&seed| workload(faults, seed).is_some()).count();
        assert!(found > 10, "{faults:?}: {found} of 50 runs");
    }
}

#[test]
fn random_operations_agree_with_an_oracle() {
    let pool = pool(64, 8 * BLOCK as u32);
    let cache = pool.cache(64).bind();
    for seed in 0..3 {
        for error_once_in in [0, 9] {
            let faults = Faults { error_once_in, latency_polls_max: 3, ..Faults::default() };
            let disk = Disk::new(64 * BLOCK, BLOCK as u32, faults, seed).unwrap();
            let mut store = FaultyStore::over(&disk, 16);
            let mut oracle = Oracle::new(&store, &cache, seed, 24);
            oracle.may_fail = error_once_in > 0;
            oracle.run(&mut store, 2000);
            assert_eq!((disk.contents() == oracle.bytes, oracle.failed > 0), (true, error_once_in > 0));
        }
    }
}

#[test]
fn a_disk_stalls_fails_rots_and_dies_when_it_is_told_to() {
    let cache = pool(16, BLOCK as u32).cache(16);
    let disk = Disk::new(8 * BLOCK, BLOCK as u32, Faults::default(), 1).unwrap();
    let mut store = FaultyStore::over(&disk, 2);
    let write = |fua| Request::write(1, 1, filled(&cache, BLOCK, 5), fua, 0);
    disk.stall(true);
    let mut done = Vec::with_capacity(2);
    store.submit(&mut VecDeque::from([write(false)]));
    assert_eq!((0..100).map(|_| store.poll(&mut done)).sum::<usize>(), 0);
    disk.stall(false);
    assert_eq!((store.poll(&mut done), done[0].result, disk.unflushed_bytes()), (1, Ok(()), BLOCK));
    assert_eq!((one(&mut store, Request::flush(0)).result, disk.unflushed_bytes()), (Ok(()), 0));

    disk.fail_changes(Some(Fault::NoSpace));
    assert_eq!(one(&mut store, write(true)).result, Err(Fault::NoSpace));
    disk.fail_changes(None);
    disk.corrupt(BLOCK + 3);
    let read = one(&mut store, Request::read(1, 1, filled(&cache, BLOCK, 0), 0)).packet.unwrap();
    assert_eq!((read.data()[2], read.data()[3]), (5, !5));

    store.submit(&mut VecDeque::from([write(true)]));
    disk.crash();
    done.clear();
    assert_eq!((store.poll(&mut done), done[0].result), (1, Err(Fault::Closed)));
    assert_eq!(one(&mut store, Request::flush(0)).result, Err(Fault::Closed));
    assert!(one(&mut FaultyStore::over(&disk, 2), Request::flush(0)).result.is_ok());
}
