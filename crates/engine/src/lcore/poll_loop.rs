//! The poll loop of one lcore. A turn of the loop polls completions, then rings, then the stages
//! that want to be polled; it runs the stages in topological order; it posts to the ports,
//! publishes to the rings and rings their doorbells.
//!
//! Guarantees: nothing is allocated after [`Lcore::bind`]; a stage is called once per batch; every
//! packet that arrives in a turn is handed on, sent, or counted in that turn, except for packets
//! that wait in the bounded pending batches of ports and rings.

mod by_hand;
#[cfg(test)]
mod hold_tests;
#[cfg(test)]
mod input_tests;
#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod turn_tests;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use verbline_mem::PoolCache;
use verbline_plan::IdlePolicy;
use verbline_verbs::Completions;

use crate::control::notice::Notice;
use crate::control::run_control::{Control, Failing, LcoreInbox, Phase, Word};
use crate::idle::policy::{Budget, Idle};
use crate::idle::wake_set::WakeSet;
use crate::lcore::drain::Drain;
use crate::lcore::late::LateEvents;
use crate::lcore::node::Node;
use crate::lcore::rings::{Hold, PeerDoorbell, PollOrder, RingConsumer, RingProducer, update_holds};
use crate::lcore::steps::{self, Trace};
use crate::lcore::waits::Polling;
use crate::ports::context::LcoreContext;
use crate::ports::multi_port::MultiPort;
use crate::ports::single_port::Port;
use crate::ports::sink::Sink;
use crate::ports::state::LcoreState;
use crate::stats::calling::Call;
use crate::stats::clock::Clock;
use crate::stats::counter::Shared;
use crate::stats::counters::LcoreStats;
use crate::stats::sampling::{Sampler, Weights};
use crate::stats::turn_time::TurnTime;

/// The parts of an lcore, before it moves to its thread.
pub(crate) struct LcoreParts {
    /// Its place among the lcores of the plan.
    pub(crate) index: usize,
    pub(crate) name: String,
    pub(crate) cpu: u32,
    pub(crate) budget: Budget,
    pub(crate) drain: Drain,
    pub(crate) unsolicited_wait: Option<Duration>,
    pub(crate) clock: Clock,
    /// In topological order.
    pub(crate) nodes: Vec<Node>,
    pub(crate) sinks: Vec<Sink>,
    pub(crate) caches: Vec<PoolCache>,
    /// In the order of their tags.
    pub(crate) ports: Vec<Port>,
    /// The ports with many connections. Their tags follow those of the other ports.
    pub(crate) many: Vec<MultiPort>,
    pub(crate) rings_in: Vec<RingConsumer>,
    pub(crate) rings_out: Vec<RingProducer>,
    pub(crate) holds: Vec<Hold>,
    pub(crate) doorbells: Vec<PeerDoorbell>,
    pub(crate) wakes: WakeSet,
    pub(crate) completions: Completions,
    pub(crate) stats: Shared<LcoreStats>,
}

/// An lcore on its thread.
pub(crate) struct Lcore {
    pub(super) control: Arc<Control>,
    /// The last control word that this lcore has acted on; another word means news.
    pub(crate) seen: Word,
    /// The notices that are being handled; empty otherwise.
    pub(super) notices: Vec<Notice>,
    pub(super) index: usize,
    pub(super) drain: Drain,
    pub(super) idle: Idle,
    pub(super) state: LcoreState,
    pub(super) nodes: Vec<Node>,
    pub(super) ports: Vec<Port>,
    pub(super) rings_in: Vec<RingConsumer>,
    /// Some rings share a consumer: [`Lcore::poll_in_order`] polls them.
    pub(super) ordered: bool,
    pub(super) rings_out: Vec<RingProducer>,
    pub(super) holds: Vec<Hold>,
    pub(super) late: LateEvents,
    pub(super) doorbells: Vec<PeerDoorbell>,
    pub(super) wakes: WakeSet,
    pub(super) completions: Completions,
    pub(super) last_busy: bool,
    /// The earliest time at which a node wants to be polled.
    pub(super) polling: Polling,
    /// Nodes from this index on have returned `Next::Done`. Sources, which are polled, come first
    /// in topological order.
    pub(super) pollers: usize,
    /// The last turn found no work and left none: only an arrival or a poll can bring more.
    pub(super) settled: bool,
    pub(super) sampler: Sampler,
    /// [`Lcore::run_turn_as`], chosen by whether the lcore is watched.
    pub(super) turns: fn(&mut Lcore) -> bool,
    /// [`Lcore::work`], chosen by whether the lcore has ports with many connections, and by whether
    /// it is watched. Neither kind pays for the other.
    pub(super) works: fn(&mut Lcore, bool) -> bool,
    /// [`Lcore::complete`], likewise.
    pub(super) completes: fn(&mut Lcore),
    pub(super) trace: Trace,
    /// The trace, while it records nothing.
    pub(super) resting: Trace,
    /// The idle policy may sleep.
    pub(super) may_sleep: bool,
    /// How long unsolicited completions may wait, if they do not wake the lcore.
    pub(super) unsolicited_wait_ns: Option<u64>,
    /// The idle policy is asked in every idle turn.
    pub(super) eager: bool,
}

impl Lcore {
    /// Binds an lcore to the current thread: packets dropped on this thread return to the lcore's
    /// caches.
    pub(crate) fn bind(parts: LcoreParts, control: Arc<Control>) -> Lcore {
        let ctx = LcoreContext {
            sinks: parts.sinks,
            caches: parts.caches.into_iter().map(PoolCache::bind).collect(),
            time: TurnTime::new(parts.clock, Shared::clone(&parts.stats)),
            stats: parts.stats,
            weights: Weights::default(),
            stage_ended: None,
            tap: None,
        };
        let stages = parts.nodes.iter().map(|node| node.name.clone()).collect();
        let failing = Failing::new(Arc::clone(&control), parts.name, stages);
        let mut ports = parts.ports;
        for port in &mut ports {
            port.inbox = Some(LcoreInbox { control: Arc::clone(&control), lcore: parts.index });
        }
        Lcore {
            turns: Lcore::run_turn_as::<false>,
            works: Lcore::works(!parts.many.is_empty(), false),
            completes: Lcore::complete::<false>,
            trace: None,
            resting: None,
            control,
            seen: Word::FIRST,
            notices: Control::inbox(),
            index: parts.index,
            drain: parts.drain,
            idle: Idle::new(parts.budget),
            state: LcoreState { ctx, many: parts.many, failing },
            ports,
            ordered: parts.rings_in.iter().any(|ring| ring.order != PollOrder::default()),
            rings_in: parts.rings_in,
            rings_out: parts.rings_out,
            holds: parts.holds,
            late: LateEvents::new(&parts.nodes),
            doorbells: parts.doorbells,
            wakes: parts.wakes,
            completions: parts.completions,
            last_busy: false,
            polling: Polling::EACH_LOOP,
            pollers: parts.nodes.len(),
            nodes: parts.nodes,
            settled: false,
            sampler: Sampler::new(parts.index as u64),
            unsolicited_wait_ns: parts.unsolicited_wait.map(|wait| u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX)),
            may_sleep: parts.budget.policy != IdlePolicy::Poll,
            eager: parts.budget.policy == IdlePolicy::Event,
        }
    }

    /// The loop: runs until the run drains, then drains.
    pub(crate) fn run(&mut self) -> io::Result<()> {
        self.state.ctx.time.restart();
        loop {
            if self.control.word() != self.seen {
                self.read_notices()?;
                if Phase::of(self.seen) != Phase::Running {
                    break;
                }
            }
            if self.run_turn() {
                self.idle.busy();
            } else if self.eager || self.state.ctx.weights.polls > 0 {
                self.consider_sleep()?;
            } else {
                self.idle.pause();
            }
        }
        self.drain()
    }

    /// Returns the stage that was running when this lcore panicked.
    pub(crate) fn running_stage(&self) -> Option<&str> {
        let (place, _) = self.state.ctx.stats.calling.now()?;
        self.nodes.get(place).map(|node| node.name.as_str())
    }

    /// Receives completions and hands them to their ports. Returns true if there were any.
    #[inline]
    fn poll_completions<const WATCHED: bool>(&mut self) -> bool {
        let any = self.wakes.poll(&mut self.completions) > 0;
        if any {
            (self.completes)(self);
            if WATCHED {
                self.trace_received();
            }
        }
        any
    }

    /// Polls the stages that are due. Returns true if one sent packets or has more to do.
    #[inline]
    fn poll_nodes<const WATCHED: bool>(&mut self) -> bool {
        let (mut busy, mut polling, mut pollers) = (false, Polling::DONE, 0);
        for (index, node) in self.nodes[..self.pollers].iter_mut().enumerate() {
            if node.polling().is_due(&self.state.ctx.time) {
                self.state.ctx.stats.calling.set(Call::Poll.of(index));
                busy |= match WATCHED {
                    false => node.poll::<false>(&mut self.state),
                    true => steps::poll(&mut self.trace, node, &mut self.state),
                };
                if node.has_finished() {
                    self.control.update(|progress| progress.sources_done += 1);
                }
            }
            if node.polling() != Polling::DONE {
                pollers = index + 1;
            }
            polling = polling.min(node.polling());
        }
        self.state.ctx.stats.calling.clear();
        (self.polling, self.pollers) = (polling, pollers);
        busy
    }

    /// Runs the stages that have input, in topological order. Returns true if one had.
    #[inline(always)] // Like `publish`.
    fn run_nodes<const WATCHED: bool>(&mut self) -> bool {
        let (mut busy, mut polling, mut called) = (false, self.polling, Call::Process.of(0));
        for node in &mut self.nodes {
            if node.has_input(&self.state) {
                self.state.ctx.stats.calling.set(called);
                if WATCHED {
                    steps::enters(&mut self.trace, node, &mut self.state);
                }
                node.process(&mut self.state);
                if WATCHED {
                    steps::returned(&mut self.trace, node, &mut self.state);
                }
                polling = polling.min(node.polling());
                busy = true;
            }
            called = called.next();
        }
        self.state.ctx.stats.calling.clear();
        self.polling = polling;
        busy
    }

    /// Does the work of a turn in which packets arrived or were left: stages, then ports, then
    /// rings.
    #[inline(never)]
    pub(super) fn work<const MANY: bool, const WATCHED: bool>(&mut self, arrived: bool) -> bool {
        if WATCHED {
            self.trace_received();
        }
        let mut busy = arrived | self.run_nodes::<WATCHED>();
        for port in &mut self.ports {
            busy |= match WATCHED {
                false => port.work::<false>(&mut self.state.ctx),
                true => steps::work(&mut self.trace, port, &mut self.state.ctx),
            };
        }
        if MANY {
            for port in &mut self.state.many {
                busy |= match WATCHED {
                    false => port.work(&mut self.state.ctx),
                    true => steps::work_many(&mut self.trace, port, &mut self.state.ctx),
                };
            }
        }
        busy |= self.publish::<WATCHED>();
        // One test per turn with work: whether any ring of the plan holds back.
        busy |= !self.holds.is_empty() && self.hold_back();
        self.settled = !busy && self.ports.iter().all(|port| port.is_settled(&self.state.ctx.sinks));
        if MANY {
            self.settled &= self.state.many.iter().all(|port| port.is_settled(&self.state.ctx));
        }
        busy
    }

    /// Holds nodes back or lets them run again. Returns true if one may run again.
    pub(super) fn hold_back(&mut self) -> bool {
        let let_go = update_holds(&mut self.holds, &self.state.ctx.sinks, &mut self.nodes);
        if let_go {
            (self.polling, self.pollers) = (Polling::EACH_LOOP, self.nodes.len());
            if !self.late.is_empty() {
                self.control.notify(self.index, Notice::LetGo);
            }
        }
        let_go
    }

    /// Publishes packets to the rings. A ring that stays full keeps the lcore awake: its consumer
    /// rings no doorbell when it empties.
    // Always inlined into its callers, the kinds of `work`: an lcore runs one of them.
    #[inline(always)]
    pub(super) fn publish<const WATCHED: bool>(&mut self) -> bool {
        let mut busy = false;
        for ring in &mut self.rings_out {
            let pushed = match WATCHED {
                false => ring.flush(&mut self.state.ctx.sinks),
                true => steps::flush(&mut self.trace, ring, &mut self.state.ctx.sinks),
            };
            if pushed > 0 {
                self.doorbells[ring.doorbell].due = true;
                busy = true;
            }
            busy |= !self.state.ctx.sinks[ring.sink].batch.is_empty();
        }
        if busy {
            for doorbell in &mut self.doorbells {
                self.state.ctx.stats.bells.add(doorbell.ring_if_due().into());
            }
        }
        busy
    }

    /// Begins a turn. Under the policy `event` every turn reads the clock; otherwise only a turn
    /// with a reason does.
    #[inline]
    fn begin<const WATCHED: bool>(&mut self) {
        let changed = self.sampler.weigh(self.last_busy);
        // A turn whose polls count must have its own time.
        let at_once = changed.is_some_and(|weights| weights.polls > 0) || self.eager;
        self.state.ctx.time.begin(self.last_busy, at_once);
        if let Some(weights) = changed {
            self.state.ctx.weights = weights;
            self.state.ctx.stage_ended = None;
            self.state.ctx.time.weigh(weights.calls > 0);
        }
        if WATCHED {
            self.trace_begins();
        }
    }

    /// Takes arrivals from completions and rings. Returns true if there were any.
    #[inline]
    fn poll_inputs<const WATCHED: bool>(&mut self) -> bool {
        let mut arrived = self.poll_completions::<WATCHED>();
        if self.ordered {
            return self.poll_in_order::<WATCHED>() | arrived;
        }
        for ring in &mut self.rings_in {
            let popped = ring.poll(&mut self.state.ctx.sinks);
            if popped > 0 {
                if WATCHED {
                    steps::popped(&mut self.trace, ring, popped, &mut self.state.ctx);
                }
                if self.state.ctx.time.wake() {
                    ring.gauge(popped);
                }
                arrived = true;
            }
        }
        arrived
    }

    /// Runs one turn. Returns true if it found work. After a turn that left none, the next ones
    /// only poll.
    #[inline]
    pub(crate) fn run_turn(&mut self) -> bool {
        (self.turns)(self)
    }

    // The parts have no other caller: a second one would keep them from being inlined here.
    #[inline(never)]
    pub(super) fn run_turn_as<const WATCHED: bool>(&mut self) -> bool {
        self.begin::<WATCHED>();
        let mut arrived = self.poll_inputs::<WATCHED>();
        if self.polling.is_due(&self.state.ctx.time) {
            arrived |= self.poll_nodes::<WATCHED>();
        }
        self.last_busy = (arrived || !self.settled) && (self.works)(self, arrived);
        if WATCHED {
            self.trace_ends(self.last_busy);
        }
        self.last_busy
    }
}
