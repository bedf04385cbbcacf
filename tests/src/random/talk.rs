//! Two stages that talk: the caller sends only once all that it sent has come back.
//!
//! While a packet is under way neither of them wants to be polled, so that an lcore that sleeps
//! through one sleeps until the safety time-out. The engine counts a rescue if the packet was there
//! and nobody announced it; the caller counts a late round, also if the one with the packet slept
//! on it. The pauses before each of them speaks differ from round to round, so that one speaks as
//! the other goes to sleep.

use fastrand::Rng;
use serde::Deserialize;
use verbline::engine::{Counter, StageError, Tick};
use verbline::prelude::*;

use super::marks::{
    ANSWERER, CALLER, Counters, DROPS, LATE_NS, ON_PURPOSE, RETRY_NS, STAMP_BYTES, Stamps, TALK_PACKETS_MAX, fill,
    is_filled,
};

const OUT: OutId = OutId(0);

pub(super) fn register(registry: &mut Registry) {
    let spec = |source, holds_packets, summary| StageSpec {
        outputs: &["a"],
        source,
        holds_packets,
        drops: DROPS,
        summary,
        ..StageSpec::default()
    };
    let caller = spec(true, 0, "sends, waits until it has everything back, pauses, and sends again");
    registry.stage("caller", caller, |context| Ok(Box::new(Caller::new(context)?)));
    let answerer = spec(false, TALK_PACKETS_MAX.into(), "sends back what comes, after a pause");
    registry.stage("answerer", answerer, |context| Ok(Box::new(Answerer::new(context)?)));
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CallerParams {
    node: u8,
    seed: u64,
    pause_ns: u64,
    waits_in_call: bool,
    rounds: u32,
    window_packets: usize,
}

struct Caller {
    params: CallerParams,
    rng: Rng,
    counters: Counters,
    /// Rounds that took as long as a safety time-out.
    late: Counter,
    stamps: Stamps,
    rounds_left: u32,
    under_way: usize,
    sent_ns: Tick,
    /// The time at which it speaks next, while nothing is under way.
    due_ns: Tick,
    stopping: bool,
}

impl Caller {
    fn new(context: &StageContext<'_>) -> Result<Caller, StageError> {
        let params: CallerParams = context.params()?;
        Ok(Caller {
            rng: Rng::with_seed(params.seed),
            counters: Counters::new(context),
            late: context.counter("late"),
            stamps: Stamps::new(params.node),
            rounds_left: params.rounds,
            under_way: 0,
            sent_ns: 0,
            due_ns: 0,
            stopping: false,
            params,
        })
    }

    /// Sends the packets of a round. Packets without room are not awaited.
    fn call(&mut self, out: &mut Outputs<'_>) {
        self.sent_ns = out.fresh_ns();
        let window = self.rng.usize(1..=self.params.window_packets).min(out.room(OUT));
        for _ in 0..window {
            let Some(mut packet) = self.counters.take(out) else { break };
            let fits = packet.set_len(self.rng.usize(STAMP_BYTES..=packet.tailroom().max(STAMP_BYTES)));
            assert!(fits, "a plan's packets hold a stamp");
            self.stamps.stamp(&mut packet, 0, ANSWERER as u8);
            fill(packet.data_mut());
            match out.send(OUT, packet) {
                true => {
                    self.counters.sent[0].add(1);
                    self.under_way += 1;
                }
                false => self.counters.refused[0].add(1),
            }
        }
        self.rounds_left -= 1;
    }
}

impl Stage for Caller {
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        for packet in input.as_slice() {
            self.counters.astray.add((!self.stamps.is_next(packet) || !is_filled(packet.data())).into());
        }
        let came = input.len();
        self.counters.came.add(came as u64);
        self.counters.on_purpose.add(came as u64);
        out.drop_batch(input, ON_PURPOSE);
        self.under_way -= came;
        if self.under_way > 0 || self.stopping {
            return;
        }
        let now_ns = out.fresh_ns();
        if now_ns.saturating_sub(self.sent_ns) > LATE_NS {
            self.late.add(1);
            // One late round is enough, and each takes a second.
            self.rounds_left = 0;
        }
        self.due_ns = now_ns + self.rng.u64(..=self.params.pause_ns);
    }

    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        if self.under_way > 0 {
            return Next::At(Tick::MAX);
        }
        if self.rounds_left == 0 {
            return Next::Done;
        }
        if !self.params.waits_in_call && out.now_ns() < self.due_ns {
            return Next::At(self.due_ns);
        }
        wait_in_call(self.due_ns, out);
        self.call(out);
        match self.under_way {
            0 => Next::At(out.now_ns() + RETRY_NS),
            _ => Next::At(Tick::MAX),
        }
    }

    fn stop(&mut self, _: &mut Outputs<'_>) {
        self.stopping = true;
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AnswererParams {
    node: u8,
    seed: u64,
    pause_ns: u64,
    waits_in_call: bool,
}

struct Answerer {
    params: AnswererParams,
    rng: Rng,
    counters: Counters,
    stamps: Stamps,
    held: Batch,
    due_ns: Tick,
    stopping: bool,
}

impl Answerer {
    fn new(context: &StageContext<'_>) -> Result<Answerer, StageError> {
        let params: AnswererParams = context.params()?;
        Ok(Answerer {
            rng: Rng::with_seed(params.seed),
            counters: Counters::new(context),
            stamps: Stamps::new(params.node),
            held: Batch::with_capacity(TALK_PACKETS_MAX.into()),
            due_ns: 0,
            stopping: false,
            params,
        })
    }

    /// Sends back as much as there is room for: the caller waits for each one.
    fn answer(&mut self, out: &mut Outputs<'_>) {
        for mut packet in self.held.drain_front(self.held.len().min(out.room(OUT))) {
            self.stamps.stamp(&mut packet, 0, CALLER as u8);
            fill(packet.data_mut());
            match out.send(OUT, packet) {
                true => self.counters.sent[0].add(1),
                false => self.counters.refused[0].add(1),
            }
        }
    }
}

impl Stage for Answerer {
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        for packet in input.as_slice() {
            self.counters.astray.add((!self.stamps.is_next(packet) || !is_filled(packet.data())).into());
        }
        self.counters.came.add(input.len() as u64);
        // No more than the caller's window ever comes, so all of it fits.
        self.held.append(input);
        let now_ns = out.fresh_ns();
        self.due_ns = now_ns + if self.stopping { 0 } else { self.rng.u64(..=self.params.pause_ns) };
        if self.params.waits_in_call {
            wait_in_call(self.due_ns, out);
            self.answer(out);
        }
    }

    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        if !self.held.is_empty() {
            if out.now_ns() < self.due_ns {
                return Next::At(self.due_ns);
            }
            self.answer(out);
        }
        match self.held.is_empty() {
            true => Next::At(Tick::MAX),
            false => Next::At(out.now_ns() + RETRY_NS),
        }
    }

    fn stop(&mut self, out: &mut Outputs<'_>) {
        self.stopping = true;
        self.due_ns = 0;
        self.answer(out);
    }
}

/// Keeps the lcore busy until this tick, which an app's stage should never do.
fn wait_in_call(until_ns: Tick, out: &Outputs<'_>) {
    while out.fresh_ns() < until_ns {
        std::hint::spin_loop();
    }
}
