//! A node: a stage in its place on an lcore, with its input, its outputs, the time of its next
//! poll, its counters, and what it waits for besides packets.

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
    /// Index of its input among the lcore's sinks.
    input: usize,
    /// Index of its pool's cache among the lcore's; past the last if it has no pool.
    cache: usize,
    /// The batch that `process` works on, while its input gathers what comes next.
    work: Batch,
    /// What that and its input hold.
    batch_packets: usize,
    polling: Polling,
    /// Its timers, which it reaches whenever it is called.
    timers: Option<Box<Wheel>>,
    /// What else it waits for besides packets; `None` if the stage has neither this nor timers.
    waits: Option<Box<Waits>>,
    /// The ports that lead to the stage and those that it leads to, by their places in the plan.
    ports: Box<[u16]>,
    held: Held,
    /// The stage was told that the run is stopping.
    has_stopped: bool,
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

    /// Its input's index among the lcore's sinks, now.
    pub(crate) fn input(&self) -> usize {
        self.input
    }

    /// Where its outputs lead.
    pub(crate) fn links(&self) -> &[Output] {
        &self.links
    }

    /// The sinks that its outputs lead to.
    pub(crate) fn reached(&self) -> impl Iterator<Item = usize> {
        self.links.iter().flat_map(Output::sinks).map(|&sink| sink.into())
    }

    /// Whether the stage is still to be told that the run is stopping.
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

    /// Of how many ports it is told.
    pub(crate) fn told_ports(&self) -> usize {
        self.ports.len()
    }

    /// Tells the stage what happened to a port. What it sends goes on in the next turn.
    pub(crate) fn port_event(&mut self, event: PortEvent, lcore: &mut LcoreState) {
        self.call(lcore, |stage, out| stage.port_event(event, out));
        self.poll_soon();
    }

    /// A call of the stage may have changed when it wants to be polled.
    fn poll_soon(&mut self) {
        if let Some(waits) = &mut self.waits {
            waits.revive();
        }
        self.poll_in_next_turn();
    }

    /// The node is polled in the next turn, or once no ring holds it back.
    fn poll_in_next_turn(&mut self) {
        if self.held.rings > 0 {
            self.held.polling = Polling::EACH_LOOP;
        } else if self.polling != Polling::DONE {
            self.polling = Polling::EACH_LOOP;
        }
    }

    /// Tells the stage what happened to a connection. What it sends goes on in the next turn.
    pub(crate) fn connection_event(&mut self, event: ConnectionEvent, lcore: &mut LcoreState) {
        self.call(lcore, |stage, out| stage.connection_event(event, out));
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

    /// Whether it is a source whose last poll said that it has finished; each says so once.
    #[inline]
    pub(crate) fn has_finished(&self) -> bool {
        self.source && self.polling >= Polling::ENDED
    }

    /// When the stage wants to be polled.
    #[inline]
    pub(crate) fn polling(&self) -> Polling {
        self.polling
    }

    /// When the lcore must be awake for it, if that is a tick.
    #[inline]
    pub(crate) fn due_ns(&self) -> Option<Tick> {
        match &self.waits {
            None => self.polling.at(),
            Some(waits) => waits.due_ns,
        }
    }

    /// A descriptor has ended a sleep: a stage that has some looks at them in the next turn.
    #[cold]
    pub(crate) fn wake(&mut self) {
        if self.waits.as_mut().is_some_and(|waits| waits.wake()) {
            self.poll_in_next_turn();
        }
    }

    /// Polls the stage. True if it sent some packets, or says that there is more to do. `WATCHED`:
    /// for an lcore that is watched.
    // Made once for each kind of turn, and so a part of it.
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

    /// The same of a stage that waits for more than packets.
    // Apart, so that another stage's poll is what it would be without.
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

    /// A stage that waits for more than packets has finished.
    #[cold]
    fn end_waits(&mut self) {
        if let Some(waits) = &mut self.waits {
            self.polling = waits.end();
        }
    }

    /// Notes what a poll came to.
    // Always a part of its callers: a call of its own costs 20 instructions an empty turn.
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
        let mut out = outputs(&self.links, &self.stats, self.cache, self.timers.as_deref_mut(), lcore);
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

/// When a poll that begins now began. Most polls send nothing and are not charged: not worth a look
/// at the clock, which would be half of an empty turn.
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
