//! A file store over a scripted device: transfers cut short, temporary refusals, permanent
//! refusals, and failures, in any order.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

use crate::common::oracle::Oracle;
use crate::common::{filled, one, pool, until};
use fastrand::Rng;
use rustix::io::Errno;
use verbline_mem::Packet;
use verbline_mem::uring::{Completed, PushError, Submission, What};
use verbline_store::file::device::Device;
use verbline_store::{Fault, FileStore, Geometry, Op, Request, Store};

const BLOCK: usize = 512;
const BLOCKS: u64 = 64;

/// The odds of each fault: one in this number; 0 is never.
#[derive(Clone, Copy, Debug, Default)]
struct Odds {
    short: u32,
    again: u32,
    error: u32,
    /// The kernel takes only a part of the pushed entries.
    partly: u32,
    no_zero_range: bool,
    no_punch_hole: bool,
    /// Holes and ranges of zeros must be multiples of this, as on block devices; 0 for no limit.
    whole: u64,
}

/// Memory as a file; entries complete in any order, some of them later.
struct Script {
    bytes: Vec<u8>,
    rng: Rng,
    odds: Odds,
    pushed: VecDeque<Submission>,
    started: Vec<Submission>,
    /// While set, ends every entry with this error.
    every: Arc<Mutex<Option<Errno>>>,
    /// Once set, takes no more entries, and fails with this error.
    broken: Arc<Mutex<Option<Errno>>>,
    /// The operations carried out.
    log: Arc<Mutex<Vec<What>>>,
}

impl Script {
    fn new(seed: u64, odds: Odds) -> Script {
        Script {
            bytes: vec![0; BLOCKS as usize * BLOCK],
            rng: Rng::with_seed(seed),
            odds,
            pushed: VecDeque::new(),
            started: Vec::new(),
            every: Arc::default(),
            broken: Arc::default(),
            log: Arc::default(),
        }
    }

    fn once_in(&mut self, odds: u32) -> bool {
        odds > 0 && self.rng.u32(0..odds) == 0
    }

    fn carry_out(&mut self, entry: &mut Submission) -> Result<u32, Errno> {
        if let Some(errno) = *self.every.lock().unwrap() {
            return Err(errno);
        }
        if self.once_in(self.odds.again) {
            return Err(if self.rng.bool() { Errno::AGAIN } else { Errno::INTR });
        }
        if self.once_in(self.odds.error) {
            return Err(if self.rng.bool() { Errno::IO } else { Errno::NOSPC });
        }
        self.log.lock().unwrap().push(entry.what);
        let cut = if self.once_in(self.odds.short) { self.rng.usize(1..4 * BLOCK) } else { usize::MAX };
        match entry.what {
            What::Read { offset, skip } => {
                let data = &mut entry.packet.as_mut().unwrap().data_mut()[skip as usize..];
                let rest = &self.bytes[(offset as usize).min(self.bytes.len())..];
                let len = data.len().min(cut).min(rest.len());
                data[..len].copy_from_slice(&rest[..len]);
                Ok(len as u32)
            }
            What::Write { offset, skip, .. } => {
                let data = &entry.packet.as_ref().unwrap().data()[skip as usize..];
                let len = data.len().min(cut);
                self.bytes[offset as usize..][..len].copy_from_slice(&data[..len]);
                Ok(len as u32)
            }
            What::WriteZeros { offset, len, .. } => {
                let len = (len as usize).min(cut);
                self.bytes[offset as usize..][..len].fill(0);
                Ok(len as u32)
            }
            What::ZeroRange { .. } if self.odds.no_zero_range => Err(Errno::OPNOTSUPP),
            What::PunchHole { .. } if self.odds.no_punch_hole => Err(Errno::OPNOTSUPP),
            What::ZeroRange { offset, len } | What::PunchHole { offset, len }
                if self.odds.whole > 0 && !(offset | len).is_multiple_of(self.odds.whole) =>
            {
                Err(Errno::INVAL)
            }
            What::ZeroRange { offset, len } | What::PunchHole { offset, len } => {
                self.bytes[offset as usize..][..len as usize].fill(0);
                Ok(0)
            }
            What::Sync => Ok(0),
        }
    }
}

impl Device for Script {
    fn push(&mut self, entry: Submission) -> Result<(), (Submission, PushError)> {
        self.pushed.push_back(entry);
        Ok(())
    }

    fn submit(&mut self) -> io::Result<bool> {
        if let Some(errno) = *self.broken.lock().unwrap() {
            return Err(errno.into());
        }
        let taken = if self.once_in(self.odds.partly) { self.rng.usize(0..=self.pushed.len()) } else { usize::MAX };
        let taken = taken.min(self.pushed.len());
        self.started.extend(self.pushed.drain(..taken));
        Ok(self.pushed.is_empty())
    }

    fn take_back(&mut self, each: &mut dyn FnMut(u64, Option<Packet>)) {
        self.pushed.drain(..).for_each(|entry| each(entry.tag, entry.packet));
    }

    fn complete(&mut self, most: usize, each: &mut dyn FnMut(Completed)) -> usize {
        let count = self.rng.usize(0..=self.started.len().min(most));
        for _ in 0..count {
            let at = self.rng.usize(0..self.started.len());
            let mut entry = self.started.swap_remove(at);
            let result = self.carry_out(&mut entry).map_err(Errno::raw_os_error);
            each(Completed { tag: entry.tag, result, packet: entry.packet });
        }
        count
    }

    fn under_way(&self) -> usize {
        self.pushed.len() + self.started.len()
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn len_bytes(&self) -> io::Result<u64> {
        Ok(self.bytes.len() as u64)
    }
}

fn store(script: Script, align_bytes: u32) -> FileStore<Script> {
    let geometry = Geometry::of_bytes(BLOCKS * BLOCK as u64, BLOCK as u32).unwrap();
    FileStore::over(script, Geometry { align_bytes, volatile_cache: true, ..geometry }, 16, Vec::new())
}

#[test]
fn whatever_is_cut_short_or_asked_again_is_carried_out() {
    let plain = Odds { short: 3, again: 4, partly: 3, ..Odds::default() };
    let lacking = [(false, false), (true, false), (false, true), (true, true)];
    for (seed, (no_zero_range, no_punch_hole)) in lacking.into_iter().enumerate() {
        for align_bytes in [1, 512] {
            // A kernel cuts direct I/O at blocks. Within a block, moved bytes are moved again, and
            // if there are no others, it is an error.
            let odds = Odds { no_zero_range, no_punch_hole, ..plain };
            let mut store = store(Script::new(seed as u64, odds), align_bytes);
            let pool = pool(64, 8 * BLOCK as u32);
            let cache = pool.cache(64).bind();
            let mut oracle = Oracle::new(&store, &cache, seed as u64 + 10, 24);
            oracle.may_fail = align_bytes > 1;
            oracle.run(&mut store, 3000);
            let counts = store.counts();
            assert!(counts.cut_short > 100 && counts.tried_again > 100 && counts.submitted_again > 100, "{counts:?}");
            drop(oracle);
            assert_eq!(pool.account().held, 0);
        }
    }
}

/// A block device zeroes and discards only whole blocks of its own size: blocks of 520 bytes are
/// zeroed by writing, and never discarded.
#[test]
fn blocks_that_are_no_devices_are_zeroed_all_the_same() {
    for seed in 0..4 {
        let script = Script::new(seed, Odds { short: 4, again: 5, whole: 512, ..Odds::default() });
        let geometry = Geometry::of_bytes(BLOCKS * BLOCK as u64, 520).unwrap();
        let mut store = FileStore::over(script, Geometry { volatile_cache: true, ..geometry }, 16, Vec::new());
        let pool = pool(64, 8 * 520);
        let cache = pool.cache(64).bind();
        let mut oracle = Oracle::new(&store, &cache, seed, 24);
        oracle.run(&mut store, 2000);
        drop(oracle);
        assert_eq!(pool.account().held, 0);
    }
}

#[test]
fn what_fails_says_so_and_harms_no_other_block() {
    for seed in 0..4 {
        let odds = Odds { short: 5, again: 6, error: 8, partly: 4, ..Odds::default() };
        let mut store = store(Script::new(seed, odds), 1);
        let pool = pool(64, 8 * BLOCK as u32);
        let cache = pool.cache(64).bind();
        let mut oracle = Oracle::new(&store, &cache, seed, 24);
        oracle.may_fail = true;
        oracle.run(&mut store, 2000);
        assert!(oracle.failed > 100, "{}", oracle.failed);
    }
}

#[test]
fn numbers_of_the_kernel_have_a_meaning() {
    let script = Script::new(0, Odds::default());
    let every = Arc::clone(&script.every);
    let mut store = store(script, 512);
    let cache = pool(8, BLOCK as u32).cache(8);
    let meanings = [
        (Errno::NOSPC, Fault::NoSpace),
        (Errno::DQUOT, Fault::NoSpace),
        (Errno::IO, Fault::Medium),
        (Errno::ROFS, Fault::ReadOnly),
        (Errno::FBIG, Fault::OutOfRange),
        (Errno::INVAL, Fault::Misaligned),
        (Errno::OPNOTSUPP, Fault::Unsupported),
        (Errno::NOMEM, Fault::Os(Errno::NOMEM.raw_os_error())),
    ];
    for (errno, fault) in meanings {
        *every.lock().unwrap() = Some(errno);
        let done = one(&mut store, Request::write(0, 1, filled(&cache, BLOCK, 1), false, 0));
        assert_eq!((done.result, done.packet.is_some()), (Err(fault), true), "{errno}");
        assert!(!fault.to_string().is_empty());
    }
    *every.lock().unwrap() = None;
    assert!(one(&mut store, Request::write(0, 1, filled(&cache, BLOCK, 1), true, 0)).result.is_ok());
}

#[test]
fn after_a_flush_that_failed_nothing_is_promised() {
    let script = Script::new(0, Odds::default());
    let every = Arc::clone(&script.every);
    let mut store = store(script, 1);
    let cache = pool(8, BLOCK as u32).cache(8);
    *every.lock().unwrap() = Some(Errno::IO);
    assert_eq!(one(&mut store, Request::flush(0)).result, Err(Fault::Medium));
    *every.lock().unwrap() = None;
    // The kernel would report success.
    assert_eq!(one(&mut store, Request::flush(0)).result, Err(Fault::Medium));
    let write = |fua| Request::write(0, 1, filled(&cache, BLOCK, 1), fua, 0);
    assert_eq!(one(&mut store, write(true)).result, Err(Fault::Medium));
    let zeroes = Request::without_data(Op::WriteZeroes { fua: true, deallocate: false }, 0, 1, 0);
    assert_eq!(one(&mut store, zeroes).result, Err(Fault::Medium));
    assert_eq!(one(&mut store, write(false)).result, Ok(()));
    assert_eq!(one(&mut store, Request::read(0, 1, filled(&cache, BLOCK, 0), 0)).result, Ok(()));
}

/// Regression: durability was never promised again, though space was back.
#[test]
fn a_durable_write_for_which_there_is_no_space_fails_alone() {
    let script = Script::new(0, Odds::default());
    let every = Arc::clone(&script.every);
    let mut store = store(script, 1);
    let cache = pool(8, BLOCK as u32).cache(8);
    let write = || Request::write(0, 1, filled(&cache, BLOCK, 1), true, 0);
    *every.lock().unwrap() = Some(Errno::NOSPC);
    assert_eq!(one(&mut store, write()).result, Err(Fault::NoSpace));
    *every.lock().unwrap() = None;
    assert_eq!(one(&mut store, write()).result, Ok(()));
    assert_eq!(one(&mut store, Request::flush(0)).result, Ok(()));
    // If a flush fails, earlier writes are lost.
    *every.lock().unwrap() = Some(Errno::NOSPC);
    assert_eq!(one(&mut store, Request::flush(0)).result, Err(Fault::NoSpace));
    *every.lock().unwrap() = None;
    assert_eq!(one(&mut store, write()).result, Err(Fault::NoSpace));
}

#[test]
fn zeros_are_durable_where_that_is_asked_and_space_is_kept_where_it_is() {
    let asked = [
        (false, false, vec![What::ZeroRange { offset: 512, len: 1024 }]),
        (true, false, vec![What::ZeroRange { offset: 512, len: 1024 }, What::Sync]),
        (true, true, vec![What::PunchHole { offset: 512, len: 1024 }, What::Sync]),
    ];
    for (fua, deallocate, steps) in asked {
        let script = Script::new(0, Odds::default());
        let log = Arc::clone(&script.log);
        let mut store = store(script, 1);
        let request = Request::without_data(Op::WriteZeroes { fua, deallocate }, 1, 2, 0);
        assert!(one(&mut store, request).result.is_ok());
        assert_eq!(*log.lock().unwrap(), steps);
    }
}

#[test]
fn an_lcore_does_not_sleep_over_what_the_kernel_did_not_take() {
    let mut store = store(Script::new(3, Odds { partly: 1, ..Odds::default() }), 1);
    let cache = pool(16, BLOCK as u32).cache(16);
    let mut requests: VecDeque<_> =
        (0..16).map(|lba| Request::write(lba, 1, filled(&cache, BLOCK, 1), false, lba)).collect();
    assert_eq!(store.submit(&mut requests), 16);
    assert!(!store.may_sleep());
    let mut done = Vec::with_capacity(16);
    until(|| {
        store.poll(&mut done);
        done.len() == 16
    });
    assert!(store.may_sleep() && store.counts().submitted_again > 0);
}

/// The ring breaks in the middle of everything: each request is answered once, with its packet.
/// Requests that the kernel had taken by then may be done, and no others are.
#[test]
fn a_ring_that_breaks_leaves_no_request_unanswered() {
    for seed in 0..64 {
        let script = Script::new(seed, Odds { short: 3, again: 3, partly: 2, ..Odds::default() });
        let broken = Arc::clone(&script.broken);
        let mut store = store(script, 1);
        let pool = pool(64, 4 * BLOCK as u32);
        let cache = pool.cache(64).bind();
        let write = |lba| Request::write(lba, 4, filled(&cache, 4 * BLOCK, 1), lba % 8 == 0, lba);
        let mut requests: VecDeque<_> = (0..12).map(|lba| write(4 * lba)).collect();
        requests.push_back(Request::flush(100));
        assert_eq!(store.submit(&mut requests), 13);
        let mut done = Vec::with_capacity(64);
        (0..seed % 8).for_each(|_| _ = store.poll(&mut done));
        *broken.lock().unwrap() = Some(Errno::PERM);
        // The next submission notices, of a new request at the latest.
        let mut later = VecDeque::from([Request::read(0, 1, filled(&cache, BLOCK, 0), 200), Request::flush(201)]);
        until(|| {
            store.submit(&mut later);
            store.poll(&mut done);
            later.is_empty() && store.under_way() == 0
        });
        assert!(store.may_sleep(), "nothing is under way");
        let fault = Fault::RingBroken(Errno::PERM.raw_os_error());
        let mut tags: Vec<u64> = done.iter().map(|done| done.tag).collect();
        tags.sort_unstable();
        let wanted: Vec<u64> = (0..12).map(|lba| 4 * lba).chain([100, 200, 201]).collect();
        assert_eq!(tags, wanted, "seed {seed}: each once");
        for done in &done {
            assert!(done.result.is_ok() || done.result == Err(fault), "seed {seed}: {done:?}");
            assert_eq!(done.packet.is_some(), done.op.moves_data(), "seed {seed}: {done:?}");
        }
        let failed = done.iter().filter(|done| done.result.is_err()).count() as u64;
        assert_eq!(store.counts().ring_broken, failed, "seed {seed}");
        assert!(done.iter().filter(|done| done.tag >= 200).all(|done| done.result == Err(fault)), "seed {seed}");
        drop((done, store));
        assert_eq!(pool.account().held, 0);
    }
}
