//! A stage that asks for operations on another's region.
//!
//! A reliable connection carries out what one port is given in its order. So the operator keeps a
//! copy of the region, and knows of each operation what it must bring back as it hands it over. By
//! the wire a READ reads as its answer is sent, which may be behind WRITEs that came after it, as
//! the ordering rules of RC allow: there these have a fence.
//!
//! Where the region is reached by windows, each key holds until the operator gives it back, in
//! order with its operations: by a SEND that takes it back, or by a message that asks for that.

use std::collections::VecDeque;

use fastrand::Rng;
use serde::Deserialize;
use verbline::engine::{
    Completed, Done, Local, Operation, OperationKind, Part, Region, Remote, StageError, Tick, Word,
};
use verbline::prelude::*;

use super::clerk::{ask, some};
use super::gather::Ground;
use super::marks::{
    ASKS_AT, Counters, DROPS, LATE_NS, OPERATIONS, OPERATOR, OWNER, RETRY_NS, SLOT_BYTES, SLOTS_SPARE, STAMP_BYTES,
    Stamps, WORD_BYTES, WORDS_FIXED,
};
use super::owner::{NO_WORD, OPERATES, TAKE_BACK, TOLD_BYTES, there};

const OUT: OutId = OutId(0);
/// The words that one operation writes or reads at most.
const WORDS_MAX: usize = SLOT_BYTES / WORD_BYTES;
/// One operation in this many gives a window's key back.
const GIVE_BACK_ONE_IN: u32 = 12;

pub(super) fn register(registry: &mut Registry) {
    let operator = StageSpec {
        outputs: &["a"],
        source: true,
        operations: OPERATES,
        drops: DROPS,
        summary: "asks for operations, and knows what they bring back",
        ..StageSpec::default()
    };
    registry.stage("operator", operator, |context| Ok(Box::new(Operator::new(context)?)));
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
    /// Possible requests for their sends.
    asks: u8,
    /// WRITEs wait for the READs before them.
    fences: bool,
    /// Parts of an operation's memory.
    max_sge: usize,
    /// The windows whose keys it gets; 0: it gets the region's.
    windows: usize,
}

/// An operation that is under way.
struct Flight {
    tag: u64,
    kind: OperationKind,
    slot: usize,
    words: usize,
    /// Its result, if it reads.
    expected: [u64; WORDS_MAX],
    since_ns: Tick,
}

struct Operator {
    params: Params,
    rng: Rng,
    counters: Counters,
    /// Finished operations, by kind.
    did: [Counter; OPERATIONS.len()],
    declined: Counter,
    /// The sum of its additions.
    added: Counter,
    /// Operations that took as long as a safety time-out.
    late: Counter,
    stamps: Stamps,
    own: Region,
    /// Those that hold, the one in use first.
    keys: VecDeque<Remote>,
    given_back: Counter,
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
            keys: VecDeque::new(),
            given_back: context.counter("given_back"),
            there: vec![0; WORDS_FIXED + params.words],
            // Two slots more than room, so that some operations are declined.
            free: (0..params.depth + SLOTS_SPARE).collect(),
            flights: VecDeque::with_capacity(params.depth),
            left: params.count,
            next_tag: 0,
            written: 0,
            params,
        })
    }

    /// Memory of this many words: a part of the region, or a packet. If the operation writes, its
    /// memory holds the values to write.
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

    fn ground(&self, slot: usize) -> Ground<'_> {
        Ground { own: &self.own, at: slot * SLOT_BYTES, counters: &self.counters }
    }

    /// The same, perhaps in several parts.
    fn local(&mut self, slot: usize, values: &[u64], out: &mut Outputs<'_>) -> Option<Local> {
        if self.params.max_sge == 1 || self.rng.bool() {
            return self.memory(slot, values, out);
        }
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
        let mut rng = self.rng.fork();
        self.ground(slot).list(&bytes, self.params.max_sge, &mut rng, out).map(Local::from)
    }

    /// The memory of a SEND, perhaps in several parts.
    fn message_local(&mut self, slot: usize, told: Option<(u64, u64)>, out: &mut Outputs<'_>) -> Option<Local> {
        let packet = self.message(told, out)?;
        if self.params.max_sge == 1 || self.rng.bool() {
            return Some(packet.into());
        }
        let mut rng = self.rng.fork();
        let Some(list) = self.ground(slot).list(packet.data(), self.params.max_sge, &mut rng, out) else {
            return Some(packet.into());
        };
        self.ground(slot).drop_local(packet.into(), out);
        Some(list.into())
    }

    /// A message, which may tell of a word that is written before, or ask for something.
    fn message(&mut self, told: Option<(u64, u64)>, out: &mut Outputs<'_>) -> Option<Packet> {
        let mut packet = self.counters.take(out)?;
        assert!(packet.set_len(TOLD_BYTES), "a plan's packets hold a message");
        self.stamps.stamp(&mut packet, 0, OWNER as u8);
        let (word, value) = told.unwrap_or((NO_WORD, 0));
        packet.data_mut()[STAMP_BYTES..].copy_from_slice(&[word.to_le_bytes(), value.to_le_bytes()].concat());
        Some(packet)
    }

    /// Asks for one operation, or two that go together. False if there is no packet for it, or no
    /// room.
    fn ask(&mut self, key: Remote, out: &mut Outputs<'_>) -> bool {
        let Some(slot) = self.free.pop() else { return false };
        let gives_back = self.params.windows > 0 && self.rng.u32(..GIVE_BACK_ONE_IN) == 0;
        let asked = match self.rng.u32(..6) {
            _ if gives_back => self.give_key_back(key, slot, out),
            0 | 1 => self.write(key, slot, out),
            2 => self.read(key, slot, out),
            3 => self.fetch_add(key, slot, out),
            4 => self.compare_swap(key, slot, out),
            _ => self.message_local(slot, None, out).and_then(|message| {
                let operation = self.finished(Operation::send(message));
                self.hand_over([operation], [(slot, 0, [0; WORDS_MAX])], out)
            }),
        };
        if asked.is_none() {
            self.free.push(slot);
        }
        asked.is_some()
    }

    /// Behind all that is to go by it, and behind what the READs and atomics among that bring.
    fn give_key_back(&mut self, key: Remote, slot: usize, out: &mut Outputs<'_>) -> Option<()> {
        let asks = self.rng.bool();
        let message = self.message_local(slot, asks.then_some((TAKE_BACK, key.rkey.into())), out)?;
        let operation = match asks {
            true => Operation::send(message),
            false => Operation::send_with_invalidate(message, key.rkey),
        };
        let operation = self.finished(operation).fenced();
        self.hand_over([operation], [(slot, 0, [0; WORDS_MAX])], out)?;
        self.keys.pop_front();
        self.given_back.add(1);
        Some(())
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
        let memory = self.local(slot, &values[..words], out)?;
        let operation = self.finished(Operation::write(memory, there(key, first)));
        let operation = if self.params.fences { operation.fenced() } else { operation };
        let flight = (slot, 0, values);
        // The SEND behind a WRITE tells of it.
        let second = if self.rng.bool() { self.free.pop() } else { None };
        if let Some(second) = second {
            let Some(told) = self.message_local(second, Some((first as u64, values[0])), out) else {
                self.free.push(second);
                self.ground(slot).drop_local(operation.into_local(), out);
                return None;
            };
            let send = self.finished(Operation::send(told));
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
        let memory = self.local(slot, &[u64::MAX; WORDS_MAX][..words], out)?;
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

    /// Half of them find the value that they compare with.
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

    /// Hands operations over, with the last tags; each has its slot and its expected result.
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
                let memory = declined.operation.into_iter().map(Operation::into_local);
                memory.for_each(|memory| self.ground(0).drop_local(memory, out));
                None
            }
        }
    }

    /// Whether an operation brought back what it must. Its packets are dropped.
    fn is_as_expected(&self, flight: &Flight, done: Done, out: &mut Outputs<'_>) -> bool {
        let is_well = done.result.is_ok() && (done.tag, done.kind) == (flight.tag, flight.kind);
        let ground = self.ground(flight.slot);
        let (bytes, memory) = match done.packet().is_some() {
            true => done.into_packet().map(|packet| (packet.data().to_vec(), Local::from(packet))),
            false => done.into_list().map(|list| (ground.bytes_of(&list), Local::from(list))),
        }
        .unwrap_or_else(|| (ground.bytes(flight.words * WORD_BYTES), Local::Empty));
        ground.drop_local(memory, out);
        let expected = flight.expected[..flight.words].iter().flat_map(|word| word.to_ne_bytes());
        is_well && bytes.into_iter().take(flight.words * WORD_BYTES).eq(expected)
    }
}

impl Stage for Operator {
    /// Keys: one, or those of windows.
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        for packet in input.as_slice() {
            let key = packet.data().get(STAMP_BYTES..).and_then(|bytes| bytes.try_into().ok()).map(Remote::from_bytes);
            let is_new = |key: &Remote| match self.params.windows > 0 {
                true => self.keys.iter().all(|known| known.rkey != key.rkey),
                false => self.keys.is_empty(),
            };
            self.counters.astray.add((!key.as_ref().is_some_and(is_new)).into());
            self.keys.extend(key);
        }
        self.counters.came.add(input.len() as u64);
        self.counters.drop_all(input, out);
    }

    fn operations(&mut self, done: &mut Completed<'_>, out: &mut Outputs<'_>) {
        while let Some(done) = done.pop() {
            if let Some(kind) = OPERATIONS.iter().position(|kind| *kind == done.kind) {
                self.did[kind].add(1);
            }
            let Some(flight) = self.flights.pop_front() else {
                self.counters.astray.add(1);
                continue;
            };
            self.late.add((out.fresh_ns().saturating_sub(flight.since_ns) > LATE_NS).into());
            let is_well = self.is_as_expected(&flight, done, out);
            self.counters.astray.add((!is_well).into());
            self.free.push(flight.slot);
        }
    }

    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        for _ in 0..self.rng.usize(..=self.params.depth) {
            let Some(key) = self.keys.front().copied() else { break };
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
            // Its peer may be another process, and sends no key to one that has ended.
            true if self.left == 0 && self.keys.len() >= self.params.windows.max(1) => Next::Done,
            // Results or a key wake it.
            _ if self.left == 0 || self.keys.is_empty() => Next::At(Tick::MAX),
            true => Next::At(out.now_ns() + RETRY_NS),
            false if self.rng.bool() => Next::At(Tick::MAX),
            false => Next::At(out.now_ns() + self.rng.u64(..=self.params.pause_ns)),
        }
    }
}
