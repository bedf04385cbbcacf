//! Random operations on a store, several in flight at a time, compared with a `Vec` of bytes.
//!
//! Operations in flight together touch no block twice, so the result of each read is known.

use std::collections::VecDeque;

use fastrand::Rng;
use verbline_mem::PoolCache;
use verbline_store::{Done, Fault, Op, Request, Store};

/// The expected result of a request.
struct Expected {
    lba: u64,
    blocks: u32,
    op: Op,
    /// The bytes of a read.
    bytes: Vec<u8>,
    out_of_range: bool,
}

pub(crate) struct Oracle<'a> {
    pub(crate) bytes: Vec<u8>,
    block_bytes: usize,
    cache: &'a PoolCache,
    rng: Rng,
    /// By tag.
    under_way: Vec<Option<Expected>>,
    requests: VecDeque<Request>,
    done: Vec<Done>,
    /// Whether faults that the oracle doesn't foresee are allowed; one may leave a change in any
    /// state, so the oracle writes those blocks anew.
    pub(crate) may_fail: bool,
    pub(crate) failed: u64,
    rewrite: Vec<(u64, u32)>,
}

impl<'a> Oracle<'a> {
    /// For a store that reads as zeros.
    pub(crate) fn new(store: &dyn Store, cache: &'a PoolCache, seed: u64, depth: usize) -> Oracle<'a> {
        let geometry = store.geometry();
        Oracle {
            bytes: vec![0; geometry.len_bytes() as usize],
            block_bytes: geometry.block_bytes as usize,
            cache,
            rng: Rng::with_seed(seed),
            under_way: (0..depth).map(|_| None).collect(),
            requests: VecDeque::new(),
            done: Vec::with_capacity(depth),
            may_fail: false,
            failed: 0,
            rewrite: Vec::new(),
        }
    }

    /// Runs this number of steps, each a few requests and a poll; then waits for the rest.
    pub(crate) fn run(&mut self, store: &mut dyn Store, steps: usize) {
        for _ in 0..steps {
            for _ in 0..self.rng.usize(0..=4) {
                self.ask();
            }
            self.step(store);
        }
        self.finish(store);
    }

    fn step(&mut self, store: &mut dyn Store) {
        let (room, waiting) = (store.room(), self.requests.len());
        let taken = store.submit(&mut self.requests);
        assert_eq!((taken, self.requests.len()), (room.min(waiting), waiting - taken));
        store.poll(&mut self.done);
        self.judge();
    }

    /// Polls until nothing is in flight, waits, or is to be written anew.
    pub(crate) fn finish(&mut self, store: &mut dyn Store) {
        super::until(|| {
            self.step(store);
            while let Some((lba, blocks)) = self.rewrite.pop() {
                let free = self.under_way.iter().position(Option::is_none);
                let Some(tag) = free.filter(|_| self.is_free(lba, blocks)) else {
                    self.rewrite.push((lba, blocks));
                    break;
                };
                self.change(tag, Op::Write { fua: false }, lba, blocks);
            }
            self.requests.is_empty() && store.under_way() == 0 && self.rewrite.is_empty()
        });
    }

    fn is_free(&self, lba: u64, blocks: u32) -> bool {
        let end = lba + u64::from(blocks);
        !self.under_way.iter().flatten().any(|one| lba < one.lba + u64::from(one.blocks) && one.lba < end)
    }

    fn blocks(&self) -> u64 {
        (self.bytes.len() / self.block_bytes) as u64
    }

    fn span(&self, lba: u64, blocks: u32) -> std::ops::Range<usize> {
        lba as usize * self.block_bytes..(lba as usize + blocks as usize) * self.block_bytes
    }

    /// Submits a random request, if its blocks are free of others.
    fn ask(&mut self) {
        let Some(tag) = self.under_way.iter().position(Option::is_none) else { return };
        let blocks_max = self.cache.pool().region().len_bytes() / self.cache.pool().packets() as usize;
        let blocks = self.rng.u32(1..=(blocks_max / self.block_bytes).min(8) as u32);
        if self.rng.u32(0..40) == 0 {
            let places = [self.blocks(), self.blocks() + 1 - u64::from(blocks), u64::MAX, u64::MAX - 3];
            let lba = places[self.rng.usize(0..places.len())].max(self.blocks() + 1 - u64::from(blocks));
            let packet = self.cache.get_of_len(blocks as usize * self.block_bytes).expect("packets enough");
            self.requests.push_back(Request::read(lba, blocks, packet, tag as u64));
            self.expect(tag, Op::Read, lba, 0, true);
            return;
        }
        let lba = self.rng.u64(0..=self.blocks() - u64::from(blocks));
        if !self.is_free(lba, blocks) || self.rewrite.iter().any(|(at, n)| lba < at + u64::from(*n) && *at < lba + 8) {
            return;
        }
        let (fua, deallocate) = (self.rng.bool(), self.rng.bool());
        match self.rng.u32(0..16) {
            0..=6 => {
                let mut packet = self.cache.get_of_len(blocks as usize * self.block_bytes).expect("packets enough");
                packet.data_mut().fill(0xEE);
                self.requests.push_back(Request::read(lba, blocks, packet, tag as u64));
                self.expect(tag, Op::Read, lba, blocks, false);
            }
            7..=12 => self.change(tag, Op::Write { fua }, lba, blocks),
            13 => self.change(tag, Op::WriteZeroes { fua, deallocate }, lba, blocks),
            14 => self.change(tag, Op::Discard, lba, blocks),
            _ => {
                self.requests.push_back(Request::flush(tag as u64));
                self.expect(tag, Op::Flush, 0, 0, false);
            }
        }
    }

    fn expect(&mut self, tag: usize, op: Op, lba: u64, blocks: u32, out_of_range: bool) {
        let bytes = if out_of_range { Vec::new() } else { self.bytes[self.span(lba, blocks)].to_vec() };
        self.under_way[tag] = Some(Expected { lba, blocks, op, bytes, out_of_range });
    }

    fn change(&mut self, tag: usize, op: Op, lba: u64, blocks: u32) {
        let span = self.span(lba, blocks);
        let request = match op {
            Op::Write { fua } => {
                let mut packet = self.cache.get_of_len(span.len()).expect("packets enough");
                self.rng.fill(packet.data_mut());
                self.bytes[span].copy_from_slice(packet.data());
                Request::write(lba, blocks, packet, fua, tag as u64)
            }
            op => {
                if matches!(op, Op::WriteZeroes { .. }) {
                    self.bytes[span].fill(0);
                }
                Request::without_data(op, lba, blocks, tag as u64)
            }
        };
        self.requests.push_back(request);
        self.expect(tag, op, lba, blocks, false);
    }

    fn judge(&mut self) {
        for done in self.done.drain(..) {
            let expected = self.under_way[done.tag as usize].take().expect("each is done once");
            assert_eq!((done.op, done.packet.is_some()), (expected.op, expected.op.moves_data()));
            if expected.out_of_range {
                assert_eq!(done.result, Err(Fault::OutOfRange));
                continue;
            }
            if let Err(fault) = done.result {
                assert!(self.may_fail, "{fault}: {:?} at {}", done.op, expected.lba);
                self.failed += 1;
                if expected.op.is_change() {
                    self.rewrite.push((expected.lba, expected.blocks));
                }
                continue;
            }
            match (done.op, &done.packet) {
                (Op::Read, Some(packet)) => {
                    let differs = packet.data().iter().zip(&expected.bytes).position(|(a, b)| a != b);
                    assert_eq!(differs, None, "a read of {} blocks at {}", expected.blocks, expected.lba);
                }
                // Each block reads as it was, or as zeros: written anew, to know which.
                (Op::Discard, _) => self.rewrite.push((expected.lba, expected.blocks)),
                _ => {}
            }
        }
        // At once if no request is in the way, so that reads may touch them soon.
        let mut kept = Vec::new();
        while let Some((lba, blocks)) = self.rewrite.pop() {
            match self.under_way.iter().position(Option::is_none).filter(|_| self.is_free(lba, blocks)) {
                Some(tag) => self.change(tag, Op::Write { fua: false }, lba, blocks),
                None => kept.push((lba, blocks)),
            }
        }
        self.rewrite = kept;
    }
}
