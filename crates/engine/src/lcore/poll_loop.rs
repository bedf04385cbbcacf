//! An lcore at work: one thread that polls its queues, runs its stages, sends what they made, and sleeps when there is
//! nothing to do.
//!
//! One turn of the loop: completions → rings → polls → stages in topological order → ports → rings → doorbells. Guarantees:
//! nothing is allocated after [`Lcore::settle`]; a stage is called once a batch; whatever arrived in a turn is handed
//! on, sent, or counted in that turn, except for what the bounded pending batches of ports and rings keep back.

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use verbline_mem::PoolCache;
use verbline_plan::IdlePolicy;
use verbline_verbs::{Completion, Completions};

use crate::api::outputs::Sink;
use crate::api::stage::{PortChange, PortEvent};
use crate::control::notice::Notice;
use crate::control::run_control::{Control, LcoreInbox, Phase, Word};
use crate::idle::policy::{Budget, Idle, Step, Turn};
use crate::idle::sleep::{Bed, Fired, Outcome, sleep};
use crate::idle::wake_set::{Armed, WakeSet};
use crate::lcore::node::{Node, Polling, Surroundings};
use crate::lcore::port::{Health, Port};
use crate::lcore::port_reconnect::HandoverStep;
use crate::lcore::rings::{PeerDoorbell, RingConsumer, RingProducer};
use crate::stats::clock::{Clock, Tick};
use crate::stats::count::Shared;
use crate::stats::counters::LcoreStats;
use crate::stats::down_reason::DownReason;
use crate::stats::drop_reason::DropReason;
use crate::stats::sampling::{Sampler, Weights};
use crate::stats::turn_time::TurnTime;

/// How long the lcore waits for the completions of a queue pair that is being released. A working device delivers them at once.
const RELEASE_NS: u64 = 1_000_000_000;

/// What an lcore is made of, on its way to its thread.
pub(crate) struct LcoreParts {
    /// Its place among the lcores of the plan.
    pub(crate) index: usize,
    pub(crate) name: String,
    pub(crate) cpu: u32,
    pub(crate) budget: Budget,
    pub(crate) drain: Duration,
    pub(crate) clock: Clock,
    /// In topological order.
    pub(crate) nodes: Vec<Node>,
    pub(crate) sinks: Vec<Sink>,
    pub(crate) caches: Vec<PoolCache>,
    /// In the order of their tags.
    pub(crate) ports: Vec<Port>,
    pub(crate) rings_in: Vec<RingConsumer>,
    pub(crate) rings_out: Vec<RingProducer>,
    pub(crate) doorbells: Vec<PeerDoorbell>,
    pub(crate) wakes: WakeSet,
    pub(crate) completions: Completions,
    pub(crate) stats: Shared<LcoreStats>,
}

/// An lcore on its thread.
pub(crate) struct Lcore {
    control: Arc<Control>,
    /// What control said when this lcore last listened; anything else is news.
    heard: Word,
    /// What it said beside the phase, while it is worked off; empty otherwise.
    notices: Vec<Notice>,
    index: usize,
    drain_ns: u64,
    idle: Idle,
    around: Surroundings,
    nodes: Vec<Node>,
    ports: Vec<Port>,
    rings_in: Vec<RingConsumer>,
    rings_out: Vec<RingProducer>,
    doorbells: Vec<PeerDoorbell>,
    wakes: WakeSet,
    completions: Completions,
    /// The node whose stage runs now; left behind by a panic, to say whose it was.
    running: Option<usize>,
    last_busy: bool,
    /// A completion or a ring brought something. Set by who takes it, cleared by who wants to know: other turns do nothing for it.
    came: bool,
    /// When the first of the nodes wants to be polled.
    polling: Polling,
    /// From this node on none wants to be polled ever again; sources, which do, are the first in topological order.
    askers: usize,
    /// The last turn found nothing to do, and left nothing that the next one could do of itself, polls aside.
    settled: bool,
    sampler: Sampler,
    /// Whether the policy is ever asked.
    may_sleep: bool,
    /// Whether it is asked in every idle turn.
    eager: bool,
}

impl Lcore {
    /// Takes its place on the current thread: from now on packets dropped here return to its caches.
    pub(crate) fn settle(parts: LcoreParts, control: Arc<Control>) -> Lcore {
        let around = Surroundings {
            sinks: parts.sinks,
            caches: parts.caches.into_iter().map(PoolCache::bind).collect(),
            time: TurnTime::new(parts.clock, Shared::clone(&parts.stats)),
            stats: parts.stats,
            weights: Weights::default(),
            stage_ended: None,
        };
        let mut ports = parts.ports;
        for port in &mut ports {
            port.inbox = Some(LcoreInbox { control: Arc::clone(&control), lcore: parts.index });
        }
        Lcore {
            control,
            heard: Word::FIRST,
            notices: Control::inbox(),
            index: parts.index,
            drain_ns: u64::try_from(parts.drain.as_nanos()).unwrap_or(u64::MAX),
            idle: Idle::new(parts.budget),
            around,
            ports,
            rings_in: parts.rings_in,
            rings_out: parts.rings_out,
            doorbells: parts.doorbells,
            wakes: parts.wakes,
            completions: parts.completions,
            running: None,
            last_busy: false,
            came: false,
            polling: Polling::EACH_LOOP,
            askers: parts.nodes.len(),
            nodes: parts.nodes,
            settled: false,
            sampler: Sampler::new(parts.index as u64),
            may_sleep: parts.budget.policy != IdlePolicy::Poll,
            eager: parts.budget.policy == IdlePolicy::Event,
        }
    }

    /// Runs until control says to stop, then drains.
    pub(crate) fn run(&mut self) -> io::Result<()> {
        self.around.time.restart();
        loop {
            if self.control.word() != self.heard {
                self.hear()?;
                if Phase::of(self.heard) != Phase::Running {
                    break;
                }
            }
            if self.walk() {
                self.idle.busy();
            } else if self.eager || self.around.weights.polls > 0 {
                self.consider()?;
            }
        }
        self.drain()
    }

    /// Looks into what control says. An error is one that the lcore cannot run on with.
    #[cold]
    fn hear(&mut self) -> io::Result<()> {
        let mut notices = std::mem::take(&mut self.notices);
        self.heard = self.control.hear(self.index, &mut notices);
        let done = notices.drain(..).try_for_each(|notice| self.heed(notice));
        self.notices = notices;
        done
    }

    fn heed(&mut self, notice: Notice) -> io::Result<()> {
        match notice {
            Notice::Failed { port, qpn, event } => {
                // A port that has another queue pair by now is none of it.
                let Some(port) = self.ports.get_mut(port).filter(|port| port.qp.qpn() == qpn) else { return Ok(()) };
                port.failed_by(event);
            }
            Notice::Fell { port } => {
                self.tell_stages(port, PortChange::Down);
                self.service_handover(port);
            }
            Notice::Connection { port } => self.service_handover(port),
            Notice::Link { up } => {
                let change = if up { PortChange::LinkUp } else { PortChange::LinkDown };
                for place in 0..self.ports.len() {
                    let stats = &self.ports[place].stats;
                    // A link that comes up may say so more than once.
                    if stats.link_down.value() != u64::from(!up) {
                        stats.link_down.set((!up).into());
                        self.tell_stages(place, change);
                    }
                }
            }
            Notice::Overrun => {
                self.ports.iter_mut().for_each(|port| port.go_down(Health::Down, DownReason::OVERRUN));
                return Err(io::Error::other(
                    "its completion queue has overrun (IBV_EVENT_CQ_ERR), and completions are lost; set `cq_depth_wc` higher",
                ));
            }
            Notice::Gone(sentence) => {
                self.ports.iter_mut().for_each(|port| port.go_down(Health::Down, DownReason::GONE));
                return Err(io::Error::other(sentence));
            }
        }
        Ok(())
    }

    /// Releases or replaces the queue pair of a port that reconnects. The other ports' turns go on meanwhile.
    fn service_handover(&mut self, place: usize) {
        let Some(port) = self.ports.get_mut(place) else { return };
        match port.service_handover() {
            HandoverStep::Nothing => {}
            HandoverStep::Releasing => {
                let until_ns = self.now_ns().saturating_add(RELEASE_NS);
                while !self.ports[place].is_drained() && self.now_ns() < until_ns {
                    self.walk();
                }
                self.ports[place].finish_release();
            }
            HandoverStep::Replaced => self.tell_stages(place, PortChange::Up),
        }
    }

    fn tell_stages(&mut self, port: usize, change: PortChange) {
        let Some(port) = self.ports.get(port) else { return };
        let event = PortEvent { port: port.index, change };
        for (index, node) in self.nodes.iter_mut().enumerate() {
            self.running = Some(index);
            node.port_event(event, &mut self.around);
            self.polling = self.polling.min(node.polling());
        }
        self.running = None;
        // What they sent goes on in the next turn, whether or not anything else comes.
        self.settled = false;
    }

    /// What to do about there being nothing to do. Asked in turns that are timed anyway, one in some sixteen; under the policy
    /// `event` in every one. Not in the first one after work for its own sake: a busy lcore has many of those.
    #[inline(never)]
    fn consider(&mut self) -> io::Result<()> {
        if self.wakes.is_refused() {
            return self.heed(Notice::Overrun);
        }
        if self.may_sleep
            && let Step::Sleep { .. } = self.idle.after(self.idle_turn())
        {
            self.rest()?;
        }
        Ok(())
    }

    /// What an idle turn left behind.
    fn idle_turn(&self) -> Turn {
        Turn { now_ns: self.around.time.now_ns(), busy: false, came: false, timer_ns: self.next_timer_ns() }
    }

    /// The stage that was running when this lcore panicked.
    pub(crate) fn culprit(&self) -> Option<&str> {
        self.running.map(|index| self.nodes[index].name.as_str())
    }

    /// Lets go of everything, on this thread: what is pending is counted, the stages go, then the queue pairs give back
    /// what the device held, and the caches are emptied.
    pub(crate) fn let_go(self) {
        let Lcore { mut around, nodes, ports, rings_in, rings_out, wakes, .. } = self;
        // What a stage that panicked had not taken yet.
        nodes.iter().for_each(Node::count_stopped);
        for sink in &mut around.sinks {
            sink.stats.drops().add(DropReason::Stopped, sink.batch.len() as u64);
            sink.batch.clear();
        }
        drop(nodes);
        drop((rings_in, rings_out));
        drop(ports);
        drop(wakes);
        drop(around);
    }

    /// Stops the sources and runs on until nothing is in flight anywhere, which only control can see, or the budget is
    /// spent.
    fn drain(&mut self) -> io::Result<()> {
        let until_ns = self.now_ns().saturating_add(self.drain_ns);
        for (index, node) in self.nodes.iter_mut().enumerate() {
            self.running = Some(index);
            if node.stop(&mut self.around) {
                self.control.tell(|progress| progress.sources_done += 1);
            }
        }
        self.running = None;
        self.settled = false;
        self.ports.iter_mut().for_each(Port::drain);
        let control = Arc::clone(&self.control);
        let pulse = &control.pulses[self.index];
        // What this lcore sent before it took notice of the drain, or as its stages stopped, counts as activity of the
        // drain: without it the run could be found quiet with those packets still under way.
        pulse.beat(true);
        while self.around.time.last_ns() < until_ns {
            let hears = self.control.word() != self.heard;
            if hears {
                self.hear()?;
            }
            // Also if it was so before the first turn: a run that fails goes through the drain quickly.
            if Phase::of(self.heard) == Phase::Ending {
                break;
            }
            let busy = self.walk();
            // What it heard may have made it take turns of its own.
            pulse.beat(hears || busy || self.has_undelivered());
        }
        Ok(())
    }

    /// Whether something is on its way out that is not there yet.
    fn has_undelivered(&self) -> bool {
        self.around.sinks.iter().any(|sink| !sink.batch.is_empty()) || self.ports.iter().any(Port::awaits_completion)
    }

    /// Receives completions and hands them to their ports. True if there were any.
    #[inline]
    fn receive(&mut self) -> bool {
        let any = self.wakes.poll(&mut self.completions) > 0;
        if any {
            self.complete();
        }
        any
    }

    // Not inlined, like everything else that a turn without work does without: such a turn is short, and with it what a packet
    // waits for on average.
    #[inline(never)]
    fn complete(&mut self) {
        self.came = true;
        self.around.time.wake();
        match self.completions.as_slice() {
            // Most messages of a quiet port come alone, and somebody waits for each.
            [only] => match self.ports.get_mut(usize::from(only.tag())) {
                Some(port) => port.complete(only, &mut self.around),
                None => self.around.stats.strays.add(1),
            },
            many => complete_runs(many, &mut self.ports, &mut self.around),
        }
        self.completions.clear();
    }

    /// Polls the stages that want it now. True if one sent something, or has more to do.
    #[inline(never)]
    fn poll_nodes(&mut self) -> bool {
        let (mut busy, mut polling, mut askers) = (false, Polling::DONE, 0);
        for (index, node) in self.nodes[..self.askers].iter_mut().enumerate() {
            if node.polling().is_due(&self.around.time) {
                self.running = Some(index);
                let turn = node.poll(&mut self.around);
                busy |= turn.busy;
                if turn.finished {
                    self.control.tell(|progress| progress.sources_done += 1);
                }
            }
            if node.polling() != Polling::DONE {
                askers = index + 1;
            }
            polling = polling.min(node.polling());
        }
        self.running = None;
        (self.polling, self.askers) = (polling, askers);
        busy
    }

    /// Gives the stages what has gathered for them, in topological order. True if there was anything.
    #[inline]
    fn run_nodes(&mut self) -> bool {
        let mut busy = false;
        for (index, node) in self.nodes.iter_mut().enumerate() {
            if node.has_input(&self.around) {
                self.running = Some(index);
                node.process(&mut self.around);
                self.polling = self.polling.min(node.polling());
                busy = true;
            }
        }
        self.running = None;
        busy
    }

    /// What there is to do once something has come, or may have been left: stages, ports, rings, in this order.
    #[inline(never)]
    fn work(&mut self, came: bool) -> bool {
        let mut busy = came | self.run_nodes();
        for port in &mut self.ports {
            busy |= port.work(&mut self.around);
        }
        busy |= self.publish();
        self.settled = !busy && self.ports.iter().all(|port| port.is_settled(&self.around.sinks));
        busy
    }

    /// Publishes to the rings. A ring that stays full keeps the lcore awake: its consumer rings no bell when it empties.
    #[inline]
    fn publish(&mut self) -> bool {
        let mut busy = false;
        for ring in &mut self.rings_out {
            if ring.flush(&mut self.around.sinks) > 0 {
                self.doorbells[ring.doorbell].due = true;
                busy = true;
            }
            busy |= !self.around.sinks[ring.sink].batch.is_empty();
        }
        if busy {
            for doorbell in &mut self.doorbells {
                self.around.stats.bells.add(doorbell.ring_if_due().into());
            }
        }
        busy
    }

    fn next_timer_ns(&self) -> Option<Tick> {
        let nodes = self.nodes.iter().filter_map(Node::due_ns);
        nodes.chain(self.ports.iter().filter_map(Port::retry_ns)).min()
    }

    /// Begins a turn. An lcore that sleeps as soon as there is nothing to do wants the time of every turn; the others read
    /// the clock when there is a reason.
    #[inline]
    fn begin(&mut self) {
        let changed = self.sampler.weigh(self.last_busy);
        // A turn whose polls count is never like the one before.
        let at_once = changed.is_some_and(|weights| weights.polls > 0) || self.eager;
        self.around.time.begin(self.last_busy, at_once);
        if let Some(weights) = changed {
            self.around.weights = weights;
            self.around.stage_ended = None;
            self.around.time.weigh(weights.calls > 0);
        }
    }

    /// Takes what has come, by completions and by rings.
    #[inline]
    fn take_in(&mut self) -> bool {
        let mut came = self.receive();
        for ring in &mut self.rings_in {
            let popped = ring.poll(&mut self.around.sinks);
            if popped > 0 {
                if self.around.time.wake() {
                    ring.gauge(popped);
                }
                (came, self.came) = (true, true);
            }
        }
        came
    }

    /// One turn. True if it found work. After one that left nothing to do, the next ones look only where work can come from.
    // Whoever takes a turn calls this: with a second caller, what it inlines would be calls of their own in every turn.
    #[inline(never)]
    fn walk(&mut self) -> bool {
        self.begin();
        let mut came = self.take_in();
        if self.polling.is_due(&self.around.time) {
            came |= self.poll_nodes();
        }
        self.last_busy = (came || !self.settled) && self.work(came);
        self.last_busy
    }

    /// Sleeps, if arming finds nothing.
    fn rest(&mut self) -> io::Result<()> {
        match sleep(self)? {
            Outcome::Stayed(_) => {
                self.idle.stayed();
                self.around.stats.armed_in_vain.add(1);
            }
            Outcome::Slept { cause, asleep_ns, rescued } => {
                let stats = &self.around.stats;
                stats.sleeps.add(1);
                stats.asleep_ns.add(asleep_ns);
                stats.woke(cause);
                stats.rescues.add(rescued.into());
                if rescued {
                    tracing::error!(lcore = self.index, "a wake-up was lost, and found by the safety time-out: a bug");
                }
                self.idle.woke(self.now_ns());
            }
        }
        Ok(())
    }
}

/// Hands completions to their ports, those in a row for one port together.
#[inline(never)]
pub(crate) fn complete_runs(mut completions: &[Completion], ports: &mut [Port], around: &mut Surroundings) {
    while let Some(first) = completions.first() {
        let taken = match ports.get_mut(usize::from(first.tag())) {
            Some(port) => port.complete_run(completions, around),
            None => {
                around.stats.strays.add(1);
                1
            }
        };
        completions = &completions[taken..];
    }
}

impl Bed for Lcore {
    type Armed = Armed;

    fn arm(&mut self) -> io::Result<Armed> {
        self.wakes.arm()
    }

    fn turn(&mut self) -> Turn {
        self.came = false;
        match self.walk() {
            true => Turn { now_ns: self.around.time.now_ns(), busy: true, came: self.came, timer_ns: None },
            false => self.idle_turn(),
        }
    }

    fn block(&mut self, armed: Armed, timeout_ns: u64) -> io::Result<(Fired, Armed)> {
        self.around.time.before_sleep();
        let woken = self.wakes.block(armed, timeout_ns);
        // The time asleep is neither busy nor idle.
        self.around.time.restart();
        self.last_busy = false;
        woken
    }

    fn release(&mut self, armed: Armed) -> io::Result<()> {
        self.wakes.release(armed)
    }

    fn now_ns(&self) -> Tick {
        self.around.time.clock().now_ns()
    }

    fn control_calls(&self) -> bool {
        self.control.word() != self.heard
    }
}
