//! A node: a stage in its place on an lcore, with its input, its outputs, the time of its next
//! poll, and its counters.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use crossbeam_utils::CachePadded;
use verbline_mem::Batch;

use crate::api::connection::ConnectionEvent;
use crate::api::guarded::Guarded;
use crate::api::outputs::{Output, Outputs};
use crate::api::sink::Sink;
use crate::api::stage::{Next, PortEvent, Stage};
use crate::lcore::state::LcoreState;
use crate::stats::clock::Tick;
use crate::stats::count::{Count, Shared};
use crate::stats::counters::StageStats;
use crate::stats::drop_reason::DropReason;
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

/// How long the lcore may sleep, where that is not when the node is to be polled: said by what
/// stands between node and stage, on the same lcore.
#[derive(Debug, Default)]
pub(crate) struct Until {
    /// 0: until something comes.
    due_ns: Count,
    woken: Count,
}

impl Until {
    /// `None`: until something comes.
    pub(crate) fn set(&self, due_ns: Option<Tick>) {
        self.due_ns.set(due_ns.map_or(0, |due_ns| due_ns.max(1)));
    }

    pub(crate) fn due_ns(&self) -> Option<Tick> {
        Some(self.due_ns.value()).filter(|due_ns| *due_ns > 0)
    }

    /// Whether a descriptor has ended a sleep since this was last asked.
    pub(crate) fn take_woken(&self) -> bool {
        let woken = self.woken.value() > 0;
        self.woken.set(0);
        woken
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
    /// What is between node and stage hands operations back to it, also after it was stopped.
    operates: bool,
    stage: Guarded<dyn Stage>,
    links: Box<[Output]>,
    /// Index of its input among the lcore's sinks.
    input: usize,
    /// Index of its pool's cache among the lcore's; past the last if it has no pool.
    cache: usize,
    /// The batch that `process` works on, while its input gathers what comes next.
    work: Batch,
    /// What that and its input hold.
    batch_packets: usize,
    polling: Polling,
    /// `None`: until it is to be polled.
    until: Option<Arc<Until>>,
    /// The stage has descriptors.
    watches: bool,
    /// The ports that lead to the stage and those that it leads to, by their places in the plan.
    ports: Box<[u16]>,
    held: Held,
    /// It was said that the stage swaps its input.
    told_of_swap: bool,
}

/// What is kept of a node while rings hold it back. Its input is then a batch that nobody fills,
/// and it waits for packets: what asks about either need not know.
#[derive(Debug)]
struct Held {
    /// How many rings do.
    rings: usize,
    /// Its own input.
    input: usize,
    /// When it wants to be polled.
    polling: Polling,
}

/// What the plan and the registry say of a node.
pub(crate) struct NodeSpec {
    pub(crate) name: String,
    pub(crate) source: bool,
    pub(crate) stats: Shared<StageStats>,
    pub(crate) stage: Guarded<dyn Stage>,
    pub(crate) operates: bool,
    pub(crate) links: Box<[Output]>,
    pub(crate) input: usize,
    pub(crate) cache: Option<usize>,
    pub(crate) batch_packets: usize,
    pub(crate) until: Option<Arc<Until>>,
    pub(crate) watches: bool,
    pub(crate) ports: Box<[u16]>,
}

impl Node {
    pub(crate) fn new(spec: NodeSpec) -> Node {
        Node {
            name: spec.name,
            source: spec.source,
            stats: spec.stats,
            stage: spec.stage,
            operates: spec.operates,
            links: spec.links,
            input: spec.input,
            cache: spec.cache.unwrap_or(usize::MAX),
            work: Batch::with_capacity(spec.batch_packets),
            batch_packets: spec.batch_packets,
            polling: Polling::EACH_LOOP,
            until: spec.until,
            watches: spec.watches,
            ports: spec.ports,
            held: Held { rings: 0, input: spec.input, polling: Polling::EACH_LOOP },
            told_of_swap: false,
        }
    }

    /// Whether the stage has input.
    #[inline]
    pub(crate) fn has_input(&self, lcore: &LcoreState) -> bool {
        !lcore.ctx.sinks[self.input].batch.is_empty()
    }

    /// Tells the stage that the run is stopping. A source is not polled from now on.
    pub(crate) fn stop(&mut self, lcore: &mut LcoreState) {
        let mut out = outputs(&self.links, &self.stats, self.cache, lcore);
        self.stage.stop(&mut out);
        self.stats.packets_out.add(out.sent);
        match self.source && !self.operates {
            true => self.polling = Polling::DONE,
            false => self.poll_soon(),
        }
    }

    /// Counts what its stage was given and has left, because it panicked.
    pub(crate) fn count_stopped(&self) {
        self.stats.drops.add(DropReason::Stopped, self.work.len() as u64);
    }

    /// Drops the stage. Gives what it said, if it panicked.
    pub(crate) fn let_go(self) -> Option<String> {
        self.stage.let_go()
    }

    /// Whether what happens to this port is for the stage to know.
    pub(crate) fn is_told_of(&self, port: u16) -> bool {
        self.ports.contains(&port)
    }

    /// Tells the stage what happened to a port. What it sends goes on in the next turn.
    pub(crate) fn port_event(&mut self, event: PortEvent, lcore: &mut LcoreState) {
        let mut out = outputs(&self.links, &self.stats, self.cache, lcore);
        self.stage.port_event(event, &mut out);
        self.stats.packets_out.add(out.sent);
        self.poll_soon();
    }

    /// A call of the stage may have changed when it wants to be polled.
    fn poll_soon(&mut self) {
        if self.held.rings > 0 {
            self.held.polling = Polling::EACH_LOOP;
        } else if self.polling != Polling::DONE {
            self.polling = Polling::EACH_LOOP;
        }
    }

    /// Tells the stage what happened to a connection. What it sends goes on in the next turn.
    pub(crate) fn connection_event(&mut self, event: ConnectionEvent, lcore: &mut LcoreState) {
        let mut out = outputs(&self.links, &self.stats, self.cache, lcore);
        self.stage.connection_event(event, &mut out);
        self.stats.packets_out.add(out.sent);
        self.poll_soon();
    }

    /// One more ring holds the stage back, or one less. True if it may run again.
    pub(crate) fn hold(&mut self, more: bool) -> bool {
        match (more, self.held.rings) {
            (true, 0) => {
                self.held = Held { rings: 1, input: self.input, polling: self.polling };
                self.input = Sink::EMPTY;
                // One that has ended stays so.
                self.polling = self.polling.max(Polling::FED);
            }
            (true, rings) => self.held.rings = rings + 1,
            (false, 1) => {
                self.held.rings = 0;
                self.input = self.held.input;
                if self.polling != Polling::DONE {
                    self.polling = self.held.polling;
                }
                return true;
            }
            (false, rings) => self.held.rings = rings - 1,
        }
        false
    }

    /// When the stage wants to be polled.
    #[inline]
    pub(crate) fn polling(&self) -> Polling {
        self.polling
    }

    /// When the lcore must be awake for it, if that is a tick.
    #[inline]
    pub(crate) fn due_ns(&self) -> Option<Tick> {
        match &self.until {
            None => self.polling.at(),
            Some(until) => until.due_ns(),
        }
    }

    /// A descriptor has ended a sleep: a stage that has some looks at them in the next turn.
    #[cold]
    pub(crate) fn wake(&mut self) {
        if let Some(until) = self.until.as_ref().filter(|_| self.watches) {
            until.woken.set(1);
            if self.polling != Polling::DONE {
                self.polling = Polling::EACH_LOOP;
            }
        }
    }

    /// Polls the stage.
    #[inline]
    pub(crate) fn poll(&mut self, lcore: &mut LcoreState) -> NodePolled {
        // Most polls send nothing and are not charged: not worth a look at the clock, which would
        // be half of an empty turn.
        let began = lcore.ctx.stage_ended.unwrap_or(lcore.ctx.time.last_cycles());
        let mut out = outputs(&self.links, &self.stats, self.cache, lcore);
        let next = self.stage.poll(&mut out);
        let sent = out.sent;
        self.stats.polls.add(1);
        if sent > 0 {
            self.stats.packets_out.add(sent);
            lcore.ctx.stage_ends(began, lcore.ctx.weights.polls, &self.stats);
        }
        self.polling = Polling::after(next);
        let busy = sent > 0 || next == Next::Busy;
        if busy {
            lcore.ctx.time.wake();
        }
        NodePolled { busy, finished: self.source && next == Next::Done }
    }

    /// Runs the stage on its input.
    // A part of the one place that calls it, of which there is one in each kind of work.
    #[inline(always)]
    pub(crate) fn process(&mut self, lcore: &mut LcoreState) {
        self.work.swap(&mut lcore.ctx.sinks[self.input].batch);
        let (packets, stats) = (self.work.len() as u64, &self.stats);
        // Before the stage has them: also of one that panics it is known what it was given.
        stats.calls.add(1);
        stats.packets_in.add(packets);
        stats.batch_max.raise_to(packets);
        let began = lcore.ctx.stage_begins();
        let mut out = outputs(&self.links, &self.stats, self.cache, lcore);
        self.stage.process(&mut self.work, &mut out);
        let sent = out.sent;
        lcore.ctx.stage_ends(began, lcore.ctx.weights.calls, stats);
        stats.packets_out.add(sent);
        // One question for both: packets are left, or the batch is another one.
        if self.work.room() != self.batch_packets {
            self.tidy_up();
        }
        // The packets may have changed when the stage wants to be polled.
        if self.polling != Polling::DONE {
            self.polling = Polling::EACH_LOOP;
        }
    }
}

impl Node {
    /// The stage has left packets, or has put a batch of another size in the place of its input:
    /// without capacity it would starve. That is replaced, which may allocate.
    #[cold]
    fn tidy_up(&mut self) {
        if !self.work.is_empty() {
            self.stats.drops.add(DropReason::Unclaimed, self.work.len() as u64);
            self.work.clear();
        }
        if self.work.capacity() == self.batch_packets {
            return;
        }
        if !std::mem::replace(&mut self.told_of_swap, true) {
            let (left_packets, input_packets) = (self.work.capacity(), self.batch_packets);
            tracing::warn!(
                stage = %self.name, left_packets, input_packets,
                "it leaves a batch of another capacity in place of its input, which costs an allocation each time: \
                 move the packets with `append`, or swap batches of `batch_max` packets"
            );
        }
        self.work = Batch::with_capacity(self.batch_packets);
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("name", &self.name).field("polling", &self.polling).finish_non_exhaustive()
    }
}

fn outputs<'a>(
    links: &'a [Output],
    stats: &'a CachePadded<StageStats>,
    cache: usize,
    lcore: &'a mut LcoreState,
) -> Outputs<'a> {
    Outputs { links, stats, lcore, cache, timers: None, sent: 0 }
}
