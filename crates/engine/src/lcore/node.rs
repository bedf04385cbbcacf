//! A node: a stage in its place on an lcore, with its input, outputs, next poll time, counters, and
//! its wait sources other than packets.

#[cfg(test)]
mod tests;

use crossbeam_utils::CachePadded;
use verbline_mem::Batch;

use crate::api::outputs::{Output, Outputs};
use crate::api::stage::{Next, PortEvent, Stage};
use crate::connection::event::ConnectionEvent;
use crate::errors::guarded::Guarded;
use crate::lcore::tapped;
use crate::lcore::waits::{Polling, Waits, WaitsFor};
use crate::ports::context::LcoreContext;
use crate::ports::sink::Sink;
use crate::ports::state::LcoreState;
use crate::stats::clock::Tick;
use crate::stats::counter::Shared;
use crate::stats::counters::StageStats;
use crate::stats::drop_reason::DropReason;
use crate::waiting::wheel::Wheel;

/// A stage in its place on an lcore.
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) source: bool,
    pub(crate) stats: Shared<StageStats>,
    stage: Guarded<dyn Stage>,
    links: Box<[Output]>,
    /// The index of its input among the lcore's sinks.
    input: usize,
    /// The index of its pool's cache among the lcore's; past the last if it has no pool.
    cache: usize,
    /// The batch that `process` works on, while the input gathers the next one.
    work: Batch,
    /// The capacity of `work` and of the input.
    batch_packets: usize,
    polling: Polling,
    /// Its timers, at hand in each of its calls.
    timers: Option<Box<Wheel>>,
    /// Its wait sources other than packets; `None` if the stage has neither these nor timers.
    waits: Option<Box<Waits>>,
    /// The ports that lead to the stage and the ports that it leads to, by their places in the
    /// plan.
    ports: Box<[u16]>,
    held: Held,
    /// The stage was told that the run is stopping.
    has_stopped: bool,
    /// The warning that the stage swaps its input has been given.
    told_of_swap: bool,
}

/// State saved while rings hold the node back. The node meanwhile has an input batch that nobody
/// fills, and a `polling` of [`Polling::FED`]: readers of either need no special case.
#[derive(Debug)]
struct Held {
    /// The number of rings that hold it back.
    rings: usize,
    /// Its own input.
    input: usize,
    /// Its own next poll time.
    polling: Polling,
}

/// A node's settings from the plan and the registry.
pub(crate) struct NodeSpec {
    pub(crate) name: String,
    pub(crate) source: bool,
    pub(crate) stats: Shared<StageStats>,
    pub(crate) stage: Guarded<dyn Stage>,
    pub(crate) links: Box<[Output]>,
    pub(crate) input: usize,
    pub(crate) cache: Option<usize>,
    pub(crate) batch_packets: usize,
    pub(crate) waits_for: WaitsFor,
    pub(crate) ports: Box<[u16]>,
}

impl Node {
    pub(crate) fn new(spec: NodeSpec) -> Node {
        let (timers, waits) = Waits::new(&spec.name, spec.source, spec.waits_for).unzip();
        Node {
            name: spec.name,
            source: spec.source,
            stats: spec.stats,
            stage: spec.stage,
            links: spec.links,
            input: spec.input,
            cache: spec.cache.unwrap_or(usize::MAX),
            work: Batch::with_capacity(spec.batch_packets),
            batch_packets: spec.batch_packets,
            polling: Polling::EACH_LOOP,
            timers: timers.flatten(),
            waits,
            ports: spec.ports,
            held: Held { rings: 0, input: spec.input, polling: Polling::EACH_LOOP },
            has_stopped: false,
            told_of_swap: false,
        }
    }

    /// Whether the stage has input.
    #[inline]
    pub(crate) fn has_input(&self, lcore: &LcoreState) -> bool {
        !lcore.ctx.sinks[self.input].batch.is_empty()
    }

    /// Returns the current index of its input among the lcore's sinks.
    pub(crate) fn input(&self) -> usize {
        self.input
    }

    /// Returns the destinations of its outputs.
    pub(crate) fn links(&self) -> &[Output] {
        &self.links
    }

    /// Returns the sinks that its outputs lead to.
    pub(crate) fn reached(&self) -> impl Iterator<Item = usize> {
        self.links.iter().flat_map(Output::sinks).map(|&sink| sink.into())
    }

    /// Whether the stage must still be told that the run is stopping.
    pub(crate) fn is_to_stop(&self) -> bool {
        !self.has_stopped
    }

    /// Whether a ring holds the stage back.
    pub(crate) fn is_held(&self) -> bool {
        self.held.rings > 0
    }

    /// Tells the stage that the run is stopping. A source is not polled from now on; its operations
    /// still come back to it.
    pub(crate) fn stop(&mut self, lcore: &mut LcoreState) {
        self.has_stopped = true;
        if let Some(timers) = self.timers.as_mut().filter(|_| self.source) {
            timers.close();
        }
        self.call(lcore, |stage, out| stage.stop(out));
        let operates = self.waits.as_mut().is_some_and(|waits| waits.stop());
        match self.source && !operates {
            true => self.polling = Polling::DONE,
            false => self.poll_soon(),
        }
    }

    /// Whether the drain has to wait for packets that the stage expects.
    pub(crate) fn awaits_packets(&self) -> bool {
        self.stage.awaits_packets()
    }

    /// Calls the stage between two turns.
    fn call(&mut self, lcore: &mut LcoreState, call: impl FnOnce(&mut dyn Stage, &mut Outputs<'_>)) {
        tapped::calls(&self.stats, &mut lcore.ctx);
        let mut out = outputs(&self.links, &self.stats, self.cache, self.timers.as_deref_mut(), lcore);
        call(&mut *self.stage, &mut out);
        self.stats.packets_out.add(out.sent);
        tapped::returned(&self.stats, &self.links, &mut lcore.ctx);
    }

    /// Counts the packets in its batch as dropped, because the stage panicked.
    pub(crate) fn count_stopped(&self) {
        self.stats.drops.add(DropReason::Stopped, self.work.len() as u64);
    }

    /// Drops the stage. Returns its panic message, if it panicked.
    pub(crate) fn let_go(self) -> Option<String> {
        self.stage.let_go()
    }

    /// Whether the stage hears of this port's events.
    pub(crate) fn is_told_of(&self, port: u16) -> bool {
        self.ports.contains(&port)
    }

    /// Returns the number of ports whose events the stage hears.
    pub(crate) fn told_ports(&self) -> usize {
        self.ports.len()
    }

    /// Tells the stage what happened to a port. Packets that it sends go on in the next turn.
    pub(crate) fn port_event(&mut self, event: PortEvent, lcore: &mut LcoreState) {
        self.call(lcore, |stage, out| stage.port_event(event, out));
        self.poll_soon();
    }

    /// Schedules a poll: a call of the stage may have changed when it wants to be polled.
    fn poll_soon(&mut self) {
        if let Some(waits) = &mut self.waits {
            waits.revive();
        }
        self.poll_in_next_turn();
    }

    /// Schedules a poll for the next turn, or for the time when no ring holds the node back.
    fn poll_in_next_turn(&mut self) {
        if self.held.rings > 0 {
            self.held.polling = Polling::EACH_LOOP;
        } else if self.polling != Polling::DONE {
            self.polling = Polling::EACH_LOOP;
        }
    }

    /// Tells the stage what happened to a connection. Packets that it sends go on in the next turn.
    pub(crate) fn connection_event(&mut self, event: ConnectionEvent, lcore: &mut LcoreState) {
        self.call(lcore, |stage, out| stage.connection_event(event, out));
        self.poll_soon();
    }

    /// Adds or removes one ring that holds the stage back. Returns true if the stage may run again.
    pub(crate) fn hold(&mut self, more: bool) -> bool {
        match (more, self.held.rings) {
            (true, 0) => {
                self.held = Held { rings: 1, input: self.input, polling: self.polling };
                self.input = Sink::EMPTY;
                // A source that has ended stays so.
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

    /// Whether it is a source whose last poll returned that it has finished; true once per source.
    #[inline]
    pub(crate) fn has_finished(&self) -> bool {
        self.source && self.polling >= Polling::ENDED
    }

    /// Returns when the stage wants to be polled.
    #[inline]
    pub(crate) fn polling(&self) -> Polling {
        self.polling
    }

    /// Returns the tick at which the lcore must be awake for this node, if there is one.
    #[inline]
    pub(crate) fn due_ns(&self) -> Option<Tick> {
        match &self.waits {
            None => self.polling.at(),
            Some(waits) => waits.due_ns,
        }
    }

    /// A descriptor has ended a sleep: a stage with descriptors looks at them in the next turn.
    #[cold]
    pub(crate) fn wake(&mut self) {
        if self.waits.as_mut().is_some_and(|waits| waits.wake()) {
            self.poll_in_next_turn();
        }
    }

    /// Polls the stage. Returns true if it sent packets, or has more to do. `WATCHED`: for a
    /// watched lcore.
    // Compiled once for each kind of turn, and so inlined into it.
    #[inline]
    pub(crate) fn poll<const WATCHED: bool>(&mut self, lcore: &mut LcoreState) -> bool {
        if self.waits.is_some() {
            return self.poll_waits(lcore);
        }
        let began = poll_begins(&lcore.ctx);
        let mut out = outputs(&self.links, &self.stats, self.cache, None, lcore);
        let next = self.stage.poll(&mut out);
        let sent = out.sent;
        self.polled(next, sent, began, lcore)
    }

    /// Like [`Node::poll`], for a stage with wait sources other than packets.
    // Kept apart, so that it adds nothing to the polls of other stages.
    #[inline(never)]
    fn poll_waits(&mut self, lcore: &mut LcoreState) -> bool {
        let began = poll_begins(&lcore.ctx);
        let mut out = outputs(&self.links, &self.stats, self.cache, self.timers.as_deref_mut(), lcore);
        let next = match &mut self.waits {
            Some(waits) => waits.poll(&mut *self.stage, &mut out),
            None => Next::Idle,
        };
        let sent = out.sent;
        let busy = self.polled(next, sent, began, lcore);
        if matches!(next, Next::Done) {
            self.end_waits();
        }
        busy
    }

    /// Records that a stage with wait sources other than packets has finished.
    #[cold]
    fn end_waits(&mut self) {
        if let Some(waits) = &mut self.waits {
            self.polling = waits.end();
        }
    }

    /// Records the result of a poll.
    // Always inlined into its callers: a call of its own costs 20 instructions per empty turn.
    #[inline(always)]
    fn polled(&mut self, next: Next, sent: u64, began: u64, lcore: &mut LcoreState) -> bool {
        self.stats.polls.add(1);
        self.polling = Polling::after(next);
        let busy = sent > 0 || next == Next::Busy;
        if busy {
            if sent > 0 {
                self.stats.packets_out.add(sent);
                lcore.ctx.stage_ends(began, lcore.ctx.weights.polls, &self.stats);
            }
            lcore.ctx.time.wake();
        }
        busy
    }

    /// Runs the stage on its input.
    // Inlined into its only caller, which exists once in each kind of work.
    #[inline(always)]
    pub(crate) fn process(&mut self, lcore: &mut LcoreState) {
        self.work.swap(&mut lcore.ctx.sinks[self.input].batch);
        let (packets, stats) = (self.work.len() as u64, &self.stats);
        // Counted before the stage has the packets: so the count is right also for a stage that
        // panics.
        stats.calls.add(1);
        stats.packets_in.add(packets);
        stats.batch_max.raise_to(packets);
        let began = lcore.ctx.stage_begins();
        let mut out = outputs(&self.links, &self.stats, self.cache, self.timers.as_deref_mut(), lcore);
        self.stage.process(&mut self.work, &mut out);
        let sent = out.sent;
        lcore.ctx.stage_ends(began, lcore.ctx.weights.calls, stats);
        stats.packets_out.add(sent);
        // One test for both cases: packets are left, or the stage has swapped the batch.
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
    /// Handles packets that the stage left, and a batch of another size in the place of its input.
    /// Without capacity the stage would starve: such a batch is replaced, which may allocate.
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

/// Returns the time at which a poll that begins now is said to have begun. Most polls send nothing
/// and are not charged; a clock read for them would cost half of an empty turn.
#[inline]
fn poll_begins(ctx: &LcoreContext) -> u64 {
    ctx.stage_ended.unwrap_or(ctx.time.last_cycles())
}

#[inline]
fn outputs<'a>(
    links: &'a [Output],
    stats: &'a CachePadded<StageStats>,
    cache: usize,
    timers: Option<&'a mut Wheel>,
    lcore: &'a mut LcoreState,
) -> Outputs<'a> {
    Outputs { links, stats, lcore, cache, timers, sent: 0 }
}
