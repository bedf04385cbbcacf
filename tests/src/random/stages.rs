//! The stages of random plans. Their seeds determine their actions; their counters record them.

use fastrand::Rng;
use serde::Deserialize;
use verbline::engine::{Counter, DueTimer, OutputPrepends, StageError, Tick};
use verbline::prelude::*;

use super::clerk::{Asked, ask, some};
use super::gate::Gate;
use super::marks::{
    ASKS_AT, Counters, DROPS, ON_PURPOSE, OUTPUTS_MAX, PREPEND_BYTES, SECTION, STAMP_BYTES, Stamps, fill, is_filled,
    stamped_by,
};
use super::taps::Taps;
use super::timers::Timers;
use super::watches::Sockets;
use super::ways::Ways;

/// The most packets that a holder keeps.
const HOLD_MAX: u32 = 64;
/// A stage that answers `Idle` may sleep until the safety time-out each time, so it does so seldom
/// and says `Busy` later.
const IDLES_MAX: u32 = 1;
/// A stage that has nothing to do and answers `Busy` keeps its lcore awake; after this many answers
/// it waits instead.
const BUSY_MAX: u32 = 2_000;

/// How many keys packets have.
const KEYS: u64 = 1_000;

/// Those that end with a `p` prepend.
const KINDS: [(&str, usize); 18] = [
    ("source1", 1),
    ("source2", 2),
    ("source3", 3),
    ("relay1", 1),
    ("relay2", 2),
    ("relay3", 3),
    ("holder1", 1),
    ("holder2", 2),
    ("holder3", 3),
    ("source1p", 1),
    ("source2p", 2),
    ("source3p", 3),
    ("relay1p", 1),
    ("relay2p", 2),
    ("relay3p", 3),
    ("holder1p", 1),
    ("holder2p", 2),
    ("holder3p", 3),
];
const OUTPUTS: [&str; OUTPUTS_MAX] = ["a", "b", "c"];
const PREPENDS: [OutputPrepends; OUTPUTS_MAX] = [
    OutputPrepends { output: OUTPUTS[0], bytes: PREPEND_BYTES as u32 },
    OutputPrepends { output: OUTPUTS[1], bytes: PREPEND_BYTES as u32 },
    OutputPrepends { output: OUTPUTS[2], bytes: PREPEND_BYTES as u32 },
];

/// The kinds that random plans use. What threads of the embedder want to know of stages lies in the
/// taps and the sockets, and what acceptors know in the gate.
pub(super) fn registry(taps: &Taps, gate: &Gate, sockets: &Sockets) -> Registry {
    let mut registry = Registry::new("random");
    for (name, outputs) in KINDS {
        let spec = StageSpec {
            outputs: &OUTPUTS[..outputs],
            prepends: if name.ends_with('p') { &PREPENDS[..outputs] } else { &[] },
            source: name.starts_with("source"),
            holds_packets: if name.starts_with("holder") { HOLD_MAX } else { 0 },
            drops: DROPS,
            summary: "does at random what the engine allows",
            ..StageSpec::default()
        };
        registry.stage(name, spec, move |context| Ok(Box::new(Habitual::new(context, outputs)?)));
    }
    super::clerk::register(&mut registry);
    super::talk::register(&mut registry);
    super::operator::register(&mut registry);
    super::owner::register(&mut registry);
    super::polls::register(&mut registry);
    super::taps::register(&mut registry, taps);
    super::visits::register(&mut registry);
    super::gate::register(&mut registry, gate);
    super::watches::register(&mut registry, sockets);
    registry.section(SECTION);
    registry
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    node: u8,
    seed: u64,
    next: Vec<String>,
    hold_packets: usize,
    drop_percent: u8,
    leave_percent: u8,
    take_percent: u8,
    batches: bool,
    polite: bool,
    #[serde(default)]
    timers: usize,
    /// Possible requests of its packets for their sends.
    #[serde(default)]
    asks: u8,
    /// Bytes that it leaves free in fresh packets: others put as many in front.
    #[serde(default)]
    spare_bytes: usize,
    count: Option<u64>,
    /// For each output, the nodes that it leads to, and how packets are dealt out to them.
    to: Vec<Vec<u8>>,
    by: Vec<String>,
    /// Nodes and outputs whose packets come over rings of this stage's own, with the rings'
    /// priorities.
    urgency: Vec<[u8; 3]>,
    /// Nodes and outputs whose packets come from a port that sends as they ask; 1: with immediate
    /// data.
    #[serde(default)]
    asked: Vec<[u8; 3]>,
}

/// A possible answer of `poll`.
#[derive(Clone, Copy, Debug)]
enum Answer {
    Busy,
    /// This many ns from now.
    After(u64),
    At(Tick),
    Idle,
    Fed,
    Done,
}

impl Answer {
    fn parse(word: &str) -> Result<Answer, StageError> {
        Ok(match word.split_once(' ') {
            None if word == "busy" => Answer::Busy,
            None if word == "idle" => Answer::Idle,
            None if word == "fed" => Answer::Fed,
            None if word == "done" => Answer::Done,
            Some(("after", micros)) => Answer::After(micros.parse::<u64>()? * 1_000),
            Some(("at", tick)) => Answer::At(tick.parse()?),
            _ => return Err(format!("`{word}` is no answer of `poll`").into()),
        })
    }
}

struct Habitual {
    params: Params,
    answers: Vec<Answer>,
    rng: Rng,
    outputs: usize,
    is_source: bool,
    prepends: bool,
    burst: usize,
    counters: Counters,
    /// Batches of rings of several priorities.
    mixed: Counter,
    held: Batch,
    /// Packets on their way out of one call.
    outgoing: Batch,
    stamps: Stamps,
    timers: Timers,
    asked: Asked,
    ways: Vec<Ways>,
    /// Packets that a source has still to make.
    left: Option<u64>,
    idles: u32,
    busies: u32,
    stopping: bool,
    is_done: bool,
}

impl Habitual {
    fn new(context: &StageContext<'_>, outputs: usize) -> Result<Habitual, StageError> {
        let params: Params = context.params()?;
        let answers = params.next.iter().map(|word| Answer::parse(word)).collect::<Result<Vec<_>, _>>()?;
        Ok(Habitual {
            answers,
            rng: Rng::with_seed(params.seed),
            outputs,
            is_source: context.kind().starts_with("source"),
            prepends: context.kind().ends_with('p'),
            burst: context.burst(),
            counters: Counters::new(context),
            mixed: context.counter("mixed"),
            held: Batch::with_capacity(params.hold_packets),
            outgoing: Batch::with_capacity(context.batch_max() + context.burst() + HOLD_MAX as usize),
            stamps: Stamps::new(params.node),
            timers: Timers::new(context, params.timers),
            asked: Asked::new(context, &params.asked),
            ways: params.to.iter().zip(&params.by).map(|(to, by)| Ways::new(to, by)).collect(),
            left: params.count,
            idles: 0,
            busies: 0,
            stopping: false,
            is_done: false,
            params,
        })
    }

    /// Whether a batch has come over rings of which one is more urgent than another.
    fn is_mixed(&self, input: &Batch) -> bool {
        let priority = |packet: &Packet| {
            let came_by = stamped_by(packet);
            self.params.urgency.iter().find(|[node, output, _]| came_by == Some([*node, *output])).map(|way| way[2])
        };
        let mut priorities = input.iter().filter_map(priority);
        priorities.next().is_some_and(|first| priorities.any(|priority| priority != first))
    }

    fn chance(&mut self, percent: u8) -> bool {
        percent > 0 && self.rng.u8(..100) < percent
    }

    /// Takes fresh packets, a burst at the most, as the plan's sum allows.
    fn take(&mut self, out: &mut Outputs<'_>, at_most: usize) {
        let wanted = self.rng.usize(..=at_most.min(self.burst)).min(self.outgoing.room());
        for _ in 0..wanted {
            let Some(mut packet) = self.counters.take(out) else { break };
            let capacity = packet.tailroom() - self.params.spare_bytes;
            let fits = packet.set_len(self.rng.usize(STAMP_BYTES..=capacity.max(STAMP_BYTES)));
            assert!(fits, "a plan's packets hold a stamp");
            self.outgoing.push(packet).expect("there is room");
        }
    }

    /// Sends the outgoing packets, by one output at random.
    fn send(&mut self, out: &mut Outputs<'_>) {
        let output = self.rng.usize(..self.outputs);
        let id = OutId(output as u16);
        let count = match self.params.polite {
            true => self.outgoing.len().min(out.room(id)),
            false => self.outgoing.len(),
        };
        let ways = &self.ways[output];
        for packet in self.outgoing.as_mut_slice() {
            if self.prepends {
                // Often all that it may.
                let bytes = self.rng.usize(..=2 * PREPEND_BYTES).min(PREPEND_BYTES);
                self.counters.astray.add(packet.prepend(bytes).is_none().into());
            }
            packet.set_mark(self.rng.u64(..KEYS));
            let asks = some(self.params.asks, &mut self.rng);
            // Fresh packets ask for nothing.
            if self.params.asks != 0 || !self.is_source {
                ask(packet, asks, self.stamps.number(output));
            }
            self.stamps.stamp(packet, output, ways.node_of(packet));
            packet.data_mut()[ASKS_AT] = asks;
            fill(packet.data_mut());
        }
        match self.params.batches {
            true => ways.send_batch(id, &mut self.outgoing, &self.counters, out),
            false => {
                self.outgoing.drain_front(count).for_each(|packet| ways.send(id, packet, &self.counters, out));
            }
        }
        self.counters.on_purpose.add(self.outgoing.len() as u64);
        out.drop_batch(&mut self.outgoing, ON_PURPOSE);
    }

    /// A finished stage hears of the timers that it had armed, and gets no more.
    fn step_timers(&mut self, out: &mut Outputs<'_>) {
        if !self.is_done && !self.stopping {
            self.timers.step(&mut self.rng, out);
        }
    }

    fn answer(&mut self, out: &Outputs<'_>) -> Next {
        if self.is_source && self.left == Some(0) {
            self.is_done = true;
            return Next::Done;
        }
        let answer = self.answers[self.rng.usize(..self.answers.len())];
        match answer {
            Answer::After(wait_ns) => Next::At(out.now_ns() + wait_ns),
            // Past ticks and `Busy` mean at once; a stage with nothing to do says so only for a
            // while.
            Answer::Busy | Answer::At(_) if !self.is_source && self.busies >= BUSY_MAX => Next::At(Tick::MAX),
            Answer::Busy => self.at_once(Next::Busy),
            Answer::At(tick) => self.at_once(Next::At(tick)),
            Answer::Idle if self.idles < IDLES_MAX => {
                self.idles += 1;
                Next::Idle
            }
            Answer::Idle => self.at_once(Next::At(1)),
            Answer::Fed => Next::At(Tick::MAX),
            Answer::Done => {
                self.is_done = true;
                Next::Done
            }
        }
    }

    fn at_once(&mut self, next: Next) -> Next {
        self.busies += 1;
        next
    }
}

impl Stage for Habitual {
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        self.counters.came.add(input.len() as u64);
        self.mixed.add(self.is_mixed(input).into());
        let leave = if self.chance(self.params.leave_percent) { self.rng.usize(..=input.len()) } else { 0 };
        let take = input.len() - leave;
        self.counters.left.add(leave as u64);
        for packet in input.drain_front(take) {
            let is_well = self.stamps.is_next(&packet) && is_filled(packet.data()) && self.asked.is_well(&packet);
            self.counters.astray.add((!is_well).into());
            if self.chance(self.params.drop_percent) {
                self.counters.on_purpose.add(1);
                out.drop(packet, ON_PURPOSE);
            } else if !self.stopping && !self.held.is_full() && self.rng.bool() {
                self.held.push(packet).expect("there is room");
            } else {
                self.outgoing.push(packet).expect("there is room for a whole input");
            }
        }
        let is_well = |packet: &Packet| self.asked.is_well(packet);
        self.counters.astray.add(input.iter().filter(|packet| !is_well(packet)).count() as u64);
        if self.chance(self.params.take_percent) {
            self.take(out, self.burst);
        }
        self.step_timers(out);
        self.send(out);
    }

    fn timers(&mut self, due: &[DueTimer], out: &mut Outputs<'_>) {
        self.timers.due(due, out);
        self.step_timers(out);
    }

    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        assert!(!self.is_done, "a stage that is done is not asked again");
        assert!(!(self.is_source && self.stopping), "a source is not asked after its stop");
        if self.is_source {
            let left = self.left.unwrap_or(u64::MAX).min(self.burst as u64) as usize;
            self.take(out, left);
            self.left = self.left.map(|left| left - self.outgoing.len() as u64);
        } else if self.rng.bool() {
            self.outgoing.append(&mut self.held);
        }
        if !self.outgoing.is_empty() {
            self.send(out);
        }
        self.step_timers(out);
        self.answer(out)
    }

    fn stop(&mut self, out: &mut Outputs<'_>) {
        assert!(!self.stopping, "a stage is stopped once");
        self.stopping = true;
        self.outgoing.append(&mut self.held);
        self.send(out);
    }
}
