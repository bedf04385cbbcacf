//! A node: a stage in its place on an lcore, with its input, its outputs, the time of its next
//! poll, and its counters.

use crossbeam_utils::CachePadded;
use verbline_mem::{Batch, BoundCache};

use crate::api::outputs::{Link, Outputs, Sink};
use crate::api::stage::{Next, PortEvent, Stage};
use crate::stats::clock::Tick;
use crate::stats::count::Shared;
use crate::stats::counters::{LcoreStats, StageStats};
use crate::stats::drop_reason::DropReason;
use crate::stats::sampling::Weights;
use crate::stats::turn_time::TurnTime;

/// When a stage wants its `poll` called: at a tick or once packets arrive; once packets arrive; in
/// every loop; or never again. It is one number, since every turn compares it with the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Polling(Tick);

impl Polling {
    pub(crate) const EACH_LOOP: Polling = Polling(0);
    /// Once packets arrive: a tick that is never reached.
    const FED: Polling = Polling(Tick::MAX - 1);
    pub(crate) const DONE: Polling = Polling(Tick::MAX);

    pub(crate) fn after(next: Next) -> Polling {
        match next {
            Next::Busy | Next::Idle => Polling::EACH_LOOP,
            // Tick 0 is as long ago as tick 1. The last ticks are never reached, which is not the
            // end of a source.
            Next::At(tick) => Polling(tick.clamp(Polling::EACH_LOOP.0 + 1, Polling::FED.0)),
            Next::Done => Polling::DONE,
        }
    }

    /// Whether the stage is to be polled now. Only a stage that waits for a tick needs the time.
    #[inline]
    pub(crate) fn is_due(self, time: &TurnTime) -> bool {
        match self {
            Polling::EACH_LOOP => true,
            Polling::FED | Polling::DONE => false,
            Polling(tick) => tick <= time.now_ns(),
        }
    }

    /// The tick, if it is one.
    #[inline]
    pub(crate) fn at(self) -> Option<Tick> {
        (Polling::EACH_LOOP.0 + 1..Polling::FED.0).contains(&self.0).then_some(self.0)
    }
}

/// The result of polling a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodePolled {
    /// It sent some packets, or says that there is more to do.
    pub(crate) busy: bool,
    /// It is a source and has finished now.
    pub(crate) finished: bool,
}

/// A stage in its place on an lcore.
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) source: bool,
    pub(crate) stats: Shared<StageStats>,
    stage: Box<dyn Stage>,
    links: Box<[Link]>,
    /// Index of its input among the lcore's sinks.
    input: usize,
    /// Index of its pool's cache among the lcore's.
    cache: Option<usize>,
    /// The batch that `process` works on, while its input gathers what comes next.
    work: Batch,
    polling: Polling,
}

/// What the nodes and ports of an lcore share.
pub(crate) struct LcoreContext {
    pub(crate) sinks: Vec<Sink>,
    pub(crate) caches: Vec<BoundCache>,
    pub(crate) time: TurnTime,
    pub(crate) stats: Shared<LcoreStats>,
    /// What the time of this turn's stages counts for.
    pub(crate) weights: Weights,
    /// When the last stage of this turn ended, in cycles: where the next one's time begins, so that
    /// a timed turn of n stages reads the clock n + 1 times.
    pub(crate) stage_ended: Option<u64>,
}

impl LcoreContext {
    /// When a stage that is called now began, if that is timed.
    #[inline]
    fn stage_begins(&self) -> u64 {
        match self.weights.calls {
            0 => 0,
            _ => self.stage_ended.unwrap_or_else(|| self.time.clock().cycles()),
        }
    }

    /// Ends a stage that began at `began`; charges it with its cycles, if they count for something.
    #[inline]
    fn stage_ends(&mut self, began: u64, weight: u64, stats: &StageStats) {
        if weight > 0 {
            self.charge(began, weight, stats);
        }
    }

    // Not inlined: of the turns of an lcore that has work, few are timed.
    #[cold]
    fn charge(&mut self, began: u64, weight: u64, stats: &StageStats) {
        let now = self.time.clock().cycles();
        self.stage_ended = Some(now);
        let ran = self.time.ran_cycles(now.wrapping_sub(began));
        stats.cycles.add(ran * weight);
        stats.timed.add(1);
        // Of a sum of calls each of which is timed once in `weight`, as Horvitz and Thompson
        // estimate it.
        stats.variance.add((ran as f64).powi(2) * (weight * (weight - 1)) as f64);
    }
}

/// What the plan and the registry say of a node.
pub(crate) struct NodeSpec {
    pub(crate) name: String,
    pub(crate) source: bool,
    pub(crate) stats: Shared<StageStats>,
    pub(crate) stage: Box<dyn Stage>,
    pub(crate) links: Box<[Link]>,
    pub(crate) input: usize,
    pub(crate) cache: Option<usize>,
    pub(crate) batch_packets: usize,
}

impl Node {
    pub(crate) fn new(spec: NodeSpec) -> Node {
        Node {
            name: spec.name,
            source: spec.source,
            stats: spec.stats,
            stage: spec.stage,
            links: spec.links,
            input: spec.input,
            cache: spec.cache,
            work: Batch::with_capacity(spec.batch_packets),
            polling: Polling::EACH_LOOP,
        }
    }

    /// Whether the stage has input.
    #[inline]
    pub(crate) fn has_input(&self, ctx: &LcoreContext) -> bool {
        !ctx.sinks[self.input].batch.is_empty()
    }

    /// Tells the stage that the run is stopping. Returns true if that ends a source, which is not
    /// polled from now on.
    pub(crate) fn stop(&mut self, ctx: &mut LcoreContext) -> bool {
        let mut out = outputs(&self.links, &self.stats, self.cache, ctx);
        self.stage.stop(&mut out);
        self.stats.packets_out.add(out.sent);
        let ends = self.source && self.polling != Polling::DONE;
        if self.source {
            self.polling = Polling::DONE;
        }
        ends
    }

    /// Counts what its stage was given and has left, because it panicked.
    pub(crate) fn count_stopped(&self) {
        self.stats.drops.add(DropReason::Stopped, self.work.len() as u64);
    }

    /// Tells the stage what happened to a port. What it sends goes on in the next turn.
    pub(crate) fn port_event(&mut self, event: PortEvent, ctx: &mut LcoreContext) {
        let mut out = outputs(&self.links, &self.stats, self.cache, ctx);
        self.stage.port_event(event, &mut out);
        self.stats.packets_out.add(out.sent);
        // The event may have changed when the stage wants to be polled.
        if self.polling != Polling::DONE {
            self.polling = Polling::EACH_LOOP;
        }
    }

    /// When the stage wants to be polled.
    #[inline]
    pub(crate) fn polling(&self) -> Polling {
        self.polling
    }

    /// The same, if it is a tick.
    #[inline]
    pub(crate) fn due_ns(&self) -> Option<Tick> {
        self.polling.at()
    }

    /// Polls the stage.
    #[inline]
    pub(crate) fn poll(&mut self, ctx: &mut LcoreContext) -> NodePolled {
        // Most polls send nothing and are not charged: not worth a look at the clock, which would
        // be half of an empty turn.
        let began = ctx.stage_ended.unwrap_or(ctx.time.last_cycles());
        let mut out = outputs(&self.links, &self.stats, self.cache, ctx);
        let next = self.stage.poll(&mut out);
        let sent = out.sent;
        self.stats.polls.add(1);
        if sent > 0 {
            self.stats.packets_out.add(sent);
            ctx.stage_ends(began, ctx.weights.polls, &self.stats);
        }
        self.polling = Polling::after(next);
        let busy = sent > 0 || next == Next::Busy;
        if busy {
            ctx.time.wake();
        }
        NodePolled { busy, finished: self.source && next == Next::Done }
    }

    /// Runs the stage on its input.
    #[inline]
    pub(crate) fn process(&mut self, ctx: &mut LcoreContext) {
        self.work.swap(&mut ctx.sinks[self.input].batch);
        let (packets, stats) = (self.work.len() as u64, &self.stats);
        // Before the stage has them: also of one that panics it is known what it was given.
        stats.calls.add(1);
        stats.packets_in.add(packets);
        stats.batch_max.raise_to(packets);
        let began = ctx.stage_begins();
        let mut out = outputs(&self.links, &self.stats, self.cache, ctx);
        self.stage.process(&mut self.work, &mut out);
        let sent = out.sent;
        ctx.stage_ends(began, ctx.weights.calls, stats);
        stats.packets_out.add(sent);
        if !self.work.is_empty() {
            stats.drops.add(DropReason::Unclaimed, self.work.len() as u64);
            self.work.clear();
        }
        // The packets may have changed when the stage wants to be polled.
        if self.polling != Polling::DONE {
            self.polling = Polling::EACH_LOOP;
        }
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("name", &self.name).field("polling", &self.polling).finish_non_exhaustive()
    }
}

fn outputs<'a>(
    links: &'a [Link],
    stats: &'a CachePadded<StageStats>,
    cache: Option<usize>,
    ctx: &'a mut LcoreContext,
) -> Outputs<'a> {
    Outputs {
        links,
        sinks: &mut ctx.sinks,
        cache: cache.map(|index| &*ctx.caches[index]),
        stats,
        lcore: &ctx.stats,
        time: &ctx.time,
        sent: 0,
    }
}
