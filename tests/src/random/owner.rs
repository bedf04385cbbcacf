//! The stage that owns the region which an operator's operations reach: by its key, or by those of
//! memory windows, of which each is bound anew whenever its key came back.

use std::collections::VecDeque;

use serde::Deserialize;
use verbline::engine::{
    Completed, Counter, KeptWindow, Operation, OperationKind, OutputOperations, Region, Remote, Rights, StageError,
    invalidated_key,
};
use verbline::prelude::*;

use super::clerk::Asked;
use super::marks::{Counters, DROPS, OPERATOR, OWNER, RETRY_NS, STAMP_BYTES, Stamps, WORD_BYTES};

const OUT: OutId = OutId(0);
/// A stamp, a word's index and the value written there before.
pub(super) const TOLD_BYTES: usize = STAMP_BYTES + 2 * WORD_BYTES;
/// The place in a message that tells of no word.
pub(super) const NO_WORD: u64 = u64::MAX;
/// Instead of a place: the key is to be taken back.
pub(super) const TAKE_BACK: u64 = u64::MAX - 1;

pub(super) const OPERATES: &[OutputOperations] = &[OutputOperations { output: "a", kinds: &[] }];

pub(super) fn register(registry: &mut Registry) {
    let owner =
        StageSpec { outputs: &["a"], drops: DROPS, summary: "owns what operations reach", ..StageSpec::default() };
    let lender = StageSpec { operations: OPERATES, summary: "owns what operations reach by windows", ..owner };
    for (kind, spec) in [("owner", owner), ("lender", lender)] {
        registry.stage(kind, spec, |context| Ok(Box::new(Owner::new(context)?)));
    }
}

/// A word of the region.
pub(super) fn there(key: Remote, word: usize) -> Remote {
    key.offset((word * WORD_BYTES) as u64)
}

/// Owns the region, and sends its key or those of its windows.
pub(super) struct Owner {
    counters: Counters,
    /// The sum of additions, when the run stops.
    sum: Counter,
    /// Keys that were given back, and those that were bound and taken back by operations of its
    /// own; windows that stayed free as the run had stopped.
    came_back: Counter,
    bound: Counter,
    took_back: Counter,
    stayed_free: Counter,
    stamps: Stamps,
    asked: Asked,
    there: Region,
    /// The key of each window that the operator has.
    windows: Vec<Option<u32>>,
    /// Keys that are to be sent.
    fresh: VecDeque<Remote>,
    has_begun: bool,
    stopping: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OwnerParams {
    /// Like that of a stage of the graph.
    asked: Vec<[u8; 3]>,
    windows: usize,
}

impl Owner {
    pub(super) fn new(context: &StageContext<'_>) -> Result<Owner, StageError> {
        let OwnerParams { asked, windows } = context.params()?;
        Ok(Owner {
            counters: Counters::new(context),
            sum: context.counter("sum"),
            came_back: context.counter("came_back"),
            bound: context.counter("bound"),
            took_back: context.counter("took_back"),
            stayed_free: context.counter("stayed_free"),
            stamps: Stamps::new(OWNER as u8),
            asked: Asked::new(context, &asked),
            there: context.region("there")?,
            windows: vec![None; windows],
            fresh: VecDeque::new(),
            has_begun: false,
            stopping: false,
        })
    }

    /// Whether what a message tells is so: a word has been written, or a key is one to give back.
    fn is_true(&mut self, packet: &Packet, out: &mut Outputs<'_>) -> bool {
        let Ok(told) = <&[u8; TOLD_BYTES]>::try_from(packet.data()) else { return false };
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| told[at + byte]));
        let (what, value) = (word(STAMP_BYTES), word(STAMP_BYTES + WORD_BYTES));
        let given_back = invalidated_key(packet).filter(|_| !self.windows.is_empty());
        match (what, given_back) {
            (NO_WORD, Some(rkey)) => self.bind_again(rkey, false, out),
            (NO_WORD, None) => true,
            (_, Some(_)) => false,
            (TAKE_BACK, None) => self.bind_again(value as u32, true, out),
            (index, None) => {
                let there = self.there.load_u64(index as usize * WORD_BYTES);
                there.is_ok_and(|there| there >= value)
            }
        }
    }

    /// Binds the window of a key that came back, which is first taken back if it is still `held`.
    fn bind_again(&mut self, rkey: u32, held: bool, out: &mut Outputs<'_>) -> bool {
        let Some(window) = self.windows.iter().position(|key| *key == Some(rkey)) else { return false };
        self.windows[window] = None;
        self.came_back.add(1);
        if self.stopping {
            self.stayed_free.add(1);
            return true;
        }
        let invalidate = Operation::invalidate(rkey).tag(window as u64);
        let taken = !held || out.operate(OUT, invalidate).is_ok();
        taken && self.bind(window, out)
    }

    fn bind(&self, window: usize, out: &mut Outputs<'_>) -> bool {
        let whole = self.there.part(0, self.there.len_bytes()).expect("it is as long as it is");
        let rights = Rights::REMOTE_READ | Rights::REMOTE_WRITE | Rights::REMOTE_ATOMIC;
        out.operate(OUT, Operation::bind(KeptWindow(window as u16), whole, rights).tag(window as u64)).is_ok()
    }

    /// Sends a key. False: there is no packet for it, or no room.
    fn send(&mut self, key: Remote, out: &mut Outputs<'_>) -> bool {
        if out.room(OUT) == 0 {
            return false;
        }
        let Some(mut packet) = self.counters.take(out) else { return false };
        let key = key.to_bytes();
        assert!(packet.set_len(STAMP_BYTES + key.len()), "a plan's packets hold a key");
        self.stamps.stamp(&mut packet, 0, OPERATOR as u8);
        packet.data_mut()[STAMP_BYTES..].copy_from_slice(&key);
        match out.send(OUT, packet) {
            true => self.counters.sent[0].add(1),
            false => self.counters.refused[0].add(1),
        }
        true
    }

    fn begin(&mut self, out: &mut Outputs<'_>) {
        if self.windows.is_empty() {
            self.fresh.push_back(self.there.remote(0).expect("its memory is there"));
        }
        let bound = (0..self.windows.len()).filter(|window| self.bind(*window, out)).count();
        self.counters.astray.add((bound < self.windows.len()).into());
    }
}

impl Stage for Owner {
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        for packet in input.as_slice() {
            let is_well = self.stamps.is_next(packet) && self.is_true(packet, out) && self.asked.is_well(packet);
            self.counters.astray.add((!is_well).into());
        }
        self.counters.came.add(input.len() as u64);
        self.counters.drop_all(input, out);
    }

    fn operations(&mut self, done: &mut Completed<'_>, _: &mut Outputs<'_>) {
        while let Some(done) = done.pop() {
            let is_well = match (done.kind, done.key) {
                (OperationKind::Invalidate, None) => {
                    self.took_back.add(1);
                    done.result.is_ok()
                }
                (OperationKind::Bind, Some(key)) => {
                    self.bound.add(1);
                    self.fresh.push_back(key);
                    let key_before = self.windows.get_mut(done.tag as usize).map(|held| held.replace(key.rkey));
                    done.result.is_ok() && key_before == Some(None)
                }
                _ => false,
            };
            self.counters.astray.add((!is_well).into());
        }
    }

    /// Sends the keys, once there are packets for them.
    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        if !std::mem::replace(&mut self.has_begun, true) {
            self.begin(out);
        }
        while let Some(key) = self.fresh.front().copied() {
            if !self.send(key, out) {
                return Next::At(out.now_ns() + RETRY_NS);
            }
            self.fresh.pop_front();
        }
        if self.windows.is_empty() { Next::Done } else { Next::At(Tick::MAX) }
    }

    fn stop(&mut self, _: &mut Outputs<'_>) {
        self.stopping = true;
        self.sum.set(self.there.load_u64(0).expect("its memory is there"));
    }
}
