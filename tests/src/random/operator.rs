//! A stage that asks for operations on another's region.
//!
//! A reliable connection carries out what one port is given in its order. So the operator keeps a
//! copy of the region, and knows of each operation what it must bring back as it hands it over. By
//! the wire a READ reads as its answer is sent, which may be behind WRITEs that came after it, as
//! the ordering rules of RC allow: there these have a fence.

use std::collections::VecDeque;

use fastrand::Rng;
use serde::Deserialize;
use verbline::engine::{
    Completed, Done, Local, Operation, OperationKind, OutputOperations, Part, Region, Remote, StageError, Tick, Word,
};
use verbline::prelude::*;

use super::clerk::{ask, some};
use super::marks::{
    ASKS_AT, Counters, DROPS, LATE_NS, ON_PURPOSE, OPERATIONS, OPERATOR, OWNER, RETRY_NS, SLOT_BYTES, SLOTS_SPARE,
    STAMP_BYTES, Stamps, WORD_BYTES, WORDS_FIXED,
};
use super::owner::{NO_WORD, Owner, TOLD_BYTES};

const OUT: OutId = OutId(0);
/// The words that one operation writes or reads at most.
const WORDS_MAX: usize = SLOT_BYTES / WORD_BYTES;

pub(super) fn register(registry: &mut Registry) {
    let spec = |source, summary| StageSpec { outputs: &["a"], source, drops: DROPS, summary, ..StageSpec::default() };
    let operator = StageSpec {
        operations: &[OutputOperations { output: "a", kinds: &[] }],
        ..spec(true, "asks for operations, and knows what they bring back")
    };
    registry.stage("operator", operator, |context| Ok(Box::new(Operator::new(context)?)));
    registry.stage("owner", spec(false, "owns what operations reach"), |context| Ok(Box::new(Owner::new(context)?)));
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    seed: u64,
    count: u32,
    depth: usize,
    words: usize,
    pause_ns: u64,
    sends: bool,
    /// What it may ask of them.
    asks: u8,
    /// WRITEs wait for the READs before them.
    fences: bool,
}

/// An operation that is under way.
struct Flight {
    tag: u64,
    kind: OperationKind,
    slot: usize,
    words: usize,
    /// What it brings back, if it reads.
    expected: [u64; WORDS_MAX],
    since_ns: Tick,
}

struct Operator {
    params: Params,
    rng: Rng,
    counters: Counters,
    /// By kind: what was done.
    did: [Counter; OPERATIONS.len()],
    declined: Counter,
    /// What its additions come to.
    added: Counter,
    /// Operations that took as long as a safety time-out.
    late: Counter,
    stamps: Stamps,
    own: Region,
    key: Option<Remote>,
    /// What the region holds once all that is under way is done.
    there: Vec<u64>,
    free: Vec<usize>,
    flights: VecDeque<Flight>,
    left: u32,
    next_tag: u64,
    /// The last value that was written: each is greater.
    written: u64,
}

impl Operator {
    fn new(context: &StageContext<'_>) -> Result<Operator, StageError> {
        let params: Params = context.params()?;
        Ok(Operator {
            rng: Rng::with_seed(params.seed),
            counters: Counters::new(context),
            did: OPERATIONS.map(|kind| context.counter(format!("did_{}", kind.name()))),
            declined: context.counter("declined"),
            added: context.counter("added"),
            late: context.counter("late"),
            stamps: Stamps::new(OPERATOR as u8),
            own: context.region("own")?,
            key: None,
            there: vec![0; WORDS_FIXED + params.words],
            // Two more than there is room for, so that some are declined.
            free: (0..params.depth + SLOTS_SPARE).collect(),
            flights: VecDeque::with_capacity(params.depth),
            left: params.count,
            next_tag: 0,
            written: 0,
            params,
        })
    }

    /// Memory of this many words: a part of the region, or a packet. What it holds is written by
    /// this operation, if it writes.
    fn memory<M>(&mut self, slot: usize, values: &[u64], out: &mut Outputs<'_>) -> Option<M>
    where
        M: From<Packet> + From<Part>,
    {
        let at = slot * SLOT_BYTES;
        if self.rng.bool() {
            for (word, value) in values.iter().enumerate() {
                self.own.store_u64(at + word * WORD_BYTES, *value).expect("a slot lies in the region");
            }
            return Some(self.own.part(at, values.len() * WORD_BYTES).expect("a slot lies in the region").into());
        }
        let mut packet = self.counters.take(out)?;
        assert!(packet.set_len(values.len() * WORD_BYTES), "a plan's packets hold a slot");
        for (bytes, value) in packet.data_mut().chunks_exact_mut(WORD_BYTES).zip(values) {
            bytes.copy_from_slice(&value.to_ne_bytes());
        }
        Some(packet.into())
    }

    /// A message, which may tell of a word that is written before.
    fn message(&mut self, told: Option<(usize, u64)>, out: &mut Outputs<'_>) -> Option<Packet> {
        let mut packet = self.counters.take(out)?;
        assert!(packet.set_len(TOLD_BYTES), "a plan's packets hold a message");
        self.stamps.stamp(&mut packet, 0, OWNER as u8);
        let (word, value) = told.map_or((NO_WORD, 0), |(word, value)| (word as u64, value));
        packet.data_mut()[STAMP_BYTES..].copy_from_slice(&[word.to_le_bytes(), value.to_le_bytes()].concat());
        Some(packet)
    }

    /// Asks for one operation, or two that go together. False if there is no packet for it, or no
    /// room.
    fn ask(&mut self, key: Remote, out: &mut Outputs<'_>) -> bool {
        let Some(slot) = self.free.pop() else { return false };
        let asked = match self.rng.u32(..6) {
            0 | 1 => self.write(key, slot, out),
            2 => self.read(key, slot, out),
            3 => self.fetch_add(key, slot, out),
            4 => self.compare_swap(key, slot, out),
            _ => self.message(None, out).and_then(|packet| {
                let operation = self.finished(Operation::send(packet));
                self.hand_over([operation], [(slot, 0, [0; WORDS_MAX])], out)
            }),
        };
        if asked.is_none() {
            self.free.push(slot);
        }
        asked.is_some()
    }

    /// Words beyond those that are not written.
    fn some_words(&mut self) -> (usize, usize) {
        let first = self.rng.usize(WORDS_FIXED..self.there.len());
        (first, self.rng.usize(1..=WORDS_MAX.min(self.there.len() - first)))
    }

    fn write(&mut self, key: Remote, slot: usize, out: &mut Outputs<'_>) -> Option<()> {
        let (first, words) = self.some_words();
        let mut values = [0; WORDS_MAX];
        values.iter_mut().zip(self.written + 1..).for_each(|(value, next)| *value = next);
        let memory: Local = self.memory(slot, &values[..words], out)?;
        let operation = self.finished(Operation::write(memory, there(key, first)));
        let operation = if self.params.fences { operation.fenced() } else { operation };
        let flight = (slot, 0, values);
        // The SEND behind a WRITE tells of it.
        if self.rng.bool() && !self.free.is_empty() {
            let Some(told) = self.message(Some((first, values[0])), out) else {
                self.give_back(operation, out);
                return None;
            };
            let send = self.finished(Operation::send(told));
            let second = self.free.pop().expect("there is one");
            if self.hand_over([operation, send], [flight, (second, 0, values)], out).is_none() {
                self.free.push(second);
                return None;
            }
        } else {
            self.hand_over([operation], [flight], out)?;
        }
        self.there[first..first + words].copy_from_slice(&values[..words]);
        self.written += words as u64;
        Some(())
    }

    fn read(&mut self, key: Remote, slot: usize, out: &mut Outputs<'_>) -> Option<()> {
        let (first, words) = self.some_words();
        let mut expected = [0; WORDS_MAX];
        expected[..words].copy_from_slice(&self.there[first..first + words]);
        let memory: Local = self.memory(slot, &[u64::MAX; WORDS_MAX][..words], out)?;
        let operation = self.finished(Operation::read(memory, there(key, first)));
        self.hand_over([operation], [(slot, words, expected)], out)
    }

    fn fetch_add(&mut self, key: Remote, slot: usize, out: &mut Outputs<'_>) -> Option<()> {
        let add = self.rng.u64(..1 << 20);
        let memory: Word = self.memory(slot, &[u64::MAX], out)?;
        let operation = self.finished(Operation::fetch_add(memory, there(key, 0), add));
        self.hand_over([operation], [(slot, 1, [self.there[0]; WORDS_MAX])], out)?;
        self.there[0] += add;
        self.added.add(add);
        Some(())
    }

    /// Half of them find what they compare with.
    fn compare_swap(&mut self, key: Remote, slot: usize, out: &mut Outputs<'_>) -> Option<()> {
        let before = self.there[1];
        let (compare, swap) = (before + u64::from(self.rng.bool()), self.rng.u64(1..1 << 40));
        let memory: Word = self.memory(slot, &[u64::MAX], out)?;
        let operation = self.finished(Operation::compare_swap(memory, there(key, 1), compare, swap));
        self.hand_over([operation], [(slot, 1, [before; WORDS_MAX])], out)?;
        if compare == before {
            self.there[1] = swap;
        }
        Some(())
    }

    fn finished(&mut self, operation: Operation) -> Operation {
        let operation = operation.tag(self.next_tag);
        self.next_tag += 1;
        if self.rng.u32(..8) == 0 { operation.fenced() } else { operation }
    }

    /// Hands operations over, which have the last tags, each with its slot and what it brings back.
    fn hand_over<const N: usize>(
        &mut self,
        operations: [Operation; N],
        flights: [(usize, usize, [u64; WORDS_MAX]); N],
        out: &mut Outputs<'_>,
    ) -> Option<()> {
        let kinds = operations.each_ref().map(Operation::kind);
        match out.operate_all(OUT, operations) {
            Ok(()) => {
                let (first, since_ns) = (self.next_tag - N as u64, out.fresh_ns());
                let under_way = (first..).zip(kinds).zip(flights).map(|((tag, kind), (slot, words, expected))| {
                    Flight { tag, kind, slot, words, expected, since_ns }
                });
                self.flights.extend(under_way);
                self.left = self.left.saturating_sub(N as u32);
                Some(())
            }
            Err(declined) => {
                self.declined.add(N as u64);
                declined.operation.into_iter().for_each(|operation| self.give_back(operation, out));
                None
            }
        }
    }

    fn give_back(&self, operation: Operation, out: &mut Outputs<'_>) {
        if let Some(packet) = operation.into_local().into_packet() {
            self.counters.on_purpose.add(1);
            out.drop(packet, ON_PURPOSE);
        }
    }

    /// Whether an operation brought back what it must.
    fn is_as_expected(&self, flight: &Flight, done: &Done) -> bool {
        let word_of = |word: usize| match done.packet() {
            Some(packet) => packet.data()[word * WORD_BYTES..].first_chunk().map(|bytes| u64::from_ne_bytes(*bytes)),
            None => self.own.load_u64(flight.slot * SLOT_BYTES + word * WORD_BYTES).ok(),
        };
        done.result.is_ok()
            && (done.tag, done.kind) == (flight.tag, flight.kind)
            && (0..flight.words).all(|word| word_of(word) == Some(flight.expected[word]))
    }
}

fn there(key: Remote, word: usize) -> Remote {
    key.offset((word * WORD_BYTES) as u64)
}

impl Stage for Operator {
    /// The key.
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        for packet in input.as_slice() {
            let key = packet.data().get(STAMP_BYTES..).and_then(|bytes| bytes.try_into().ok());
            self.counters.astray.add((self.key.is_some() || key.is_none()).into());
            self.key = key.map(Remote::from_bytes);
        }
        self.counters.came.add(input.len() as u64);
        self.counters.drop_all(input, out);
    }

    fn operations(&mut self, done: &mut Completed<'_>, out: &mut Outputs<'_>) {
        while let Some(done) = done.pop() {
            let flight = self.flights.pop_front();
            let is_well = flight.as_ref().is_some_and(|flight| self.is_as_expected(flight, &done));
            self.counters.astray.add((!is_well).into());
            if let Some(kind) = OPERATIONS.iter().position(|kind| *kind == done.kind) {
                self.did[kind].add(1);
            }
            if let Some(flight) = flight {
                self.late.add((out.fresh_ns().saturating_sub(flight.since_ns) > LATE_NS).into());
                self.free.push(flight.slot);
            }
            if let Some(packet) = done.into_packet() {
                self.counters.on_purpose.add(1);
                out.drop(packet, ON_PURPOSE);
            }
        }
    }

    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        let Some(key) = self.key else { return Next::At(Tick::MAX) };
        for _ in 0..self.rng.usize(..=self.params.depth) {
            if self.left == 0 || !self.ask(key, out) {
                break;
            }
            if self.params.sends && self.rng.bool() {
                let number = self.stamps.number(0);
                let Some(mut packet) = self.message(None, out) else { break };
                let asks = some(self.params.asks, &mut self.rng);
                packet.data_mut()[ASKS_AT] = asks;
                ask(&mut packet, asks, number);
                match out.send(OUT, packet) {
                    true => self.counters.sent[0].add(1),
                    false => self.counters.refused[0].add(1),
                }
            }
        }
        match self.flights.is_empty() {
            true if self.left == 0 => Next::Done,
            true => Next::At(out.now_ns() + RETRY_NS),
            false if self.left == 0 || self.rng.bool() => Next::At(Tick::MAX),
            false => Next::At(out.now_ns() + self.rng.u64(..=self.params.pause_ns)),
        }
    }
}
