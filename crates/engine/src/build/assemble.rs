//! From a plan to everything that it names, on the calling thread and in the order in which things need each other:
//! devices, pools, lcores' wake sources and completion queues, rings, queue pairs, stages, connections.

use std::sync::Arc;
use std::time::Duration;

use verbline_mem::PoolCache;
use verbline_plan::{Consumer, Destination, Diagnostics, Idle, Lack, Note, PoolId, PortId, StageId, Target};
use verbline_ring::fence::{self, Mechanism};
use verbline_ring::{Sleeper, Waker};
use verbline_verbs::Completions;

use crate::api::error::{EngineError, Place, place};
use crate::api::outputs::{Link, Sink, SinkStats};
use crate::api::registry::{Registry, StageContext};
use crate::api::stage::Stage;
use crate::build::devices::{Devices, Pools, completion_source, open_devices, open_pools};
use crate::build::queue_pairs::{QueuePairs, connect, connection_specs};
use crate::connection::connections::Connections;
use crate::connection::connector;
use crate::connection::handover::{Handover, Handovers, PortSide};
use crate::connection::spec::ConnectionSpec;
use crate::control::device_events::Watched;
use crate::control::event_fd::StopFlag;
use crate::control::run_control::{Control, LcoreInbox};
use crate::idle::policy::{Budget, Policy, SpinFrom};
use crate::idle::wake_cost::{WakeCost, wake_cost};
use crate::idle::wake_set::WakeSet;
use crate::lcore::node::{Node, NodeSpec};
use crate::lcore::poll_loop::LcoreParts;
use crate::lcore::port::{Health, Port, Receiving, Sending};
use crate::lcore::rings::{Bell, Inlet, Outlet};
use crate::stats::clock::Clock;
use crate::stats::counters::shared;
use crate::stats::drop_reason::DropReason;
use crate::stats::failures::Wiring;
use crate::stats::kernel_time::Thieves;
use crate::stats::snapshot::{LcoreEntry, PortEntry, RingEntry, RunStats, StageEntry};

/// A run that has not started.
pub(crate) struct Built {
    pub(crate) notes: Vec<Note>,
    /// Ports that are still to be connected.
    pub(crate) to_connect: Vec<ConnectionSpec>,
    pub(crate) lcores: Vec<LcoreParts>,
    /// Where the plan declares each lcore.
    pub(crate) places: Vec<Place>,
    pub(crate) control: Arc<Control>,
    pub(crate) connections: Connections,
    pub(crate) stats: RunStats,
    pub(crate) watched: Vec<Watched>,
    pub(crate) sources: usize,
    pub(crate) drain: Duration,
}

impl std::fmt::Debug for Built {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Built").field("notes", &self.notes).field("stats", &self.stats).finish_non_exhaustive()
    }
}

pub(crate) fn build(plan: &verbline_plan::Plan, registry: &Registry) -> Result<Built, EngineError> {
    let clock = Clock::new();
    let made = make_stages(plan, registry, &clock)?;
    let devices = open_devices(plan)?;
    let (pools, notes) = open_pools(plan, &devices)?;
    let notes = found_out(plan, notes);
    let (wakers, sleepers) = doorbells(plan)?;
    let control = Arc::new(Control::new(wakers.clone()));
    let handovers = handovers(plan, &control)?;
    let stats = run_stats(plan, &clock, &devices, &pools, &made);
    let mut rings = make_rings(plan);
    let mut stages: Vec<_> = made.into_iter().map(|made| Some(made.stage)).collect();
    let (mut wake_sets, mut cqs) = (Vec::new(), Vec::new());
    let mut qps = QueuePairs::new(plan);
    for (lcore, sleeper) in plan.lcores().iter().zip(sleepers) {
        let source = completion_source(plan, lcore, &devices)?;
        if let Some(source) = &source {
            qps.create(lcore, source, &devices)?;
        }
        cqs.push(source.as_ref().map(|source| source.cq.id()));
        wake_sets.push(WakeSet::new(source, sleeper));
    }
    let mut lcores = Vec::new();
    for (lcore, wakes) in plan.lcores().iter().zip(wake_sets) {
        let making = Making {
            plan,
            registry,
            stats: &stats,
            clock: &clock,
            pools: &pools,
            wakers: &wakers,
            handovers: &handovers,
        };
        lcores.push(making.lcore(lcore, wakes, &mut qps, &mut rings, &mut stages)?);
    }
    // Receives are posted before any peer can send: no message of the plan's own finds a queue empty at the start.
    for lcore in &mut lcores {
        fill(lcore);
    }
    connect(plan, &devices, &mut lcores)?;
    Ok(Built {
        notes,
        to_connect: connection_specs(plan, &devices, &mut qps, &handovers)?,
        lcores,
        places: plan.lcores().iter().map(|lcore| place(plan, lcore.span)).collect(),
        control,
        connections: Connections::default(),
        watched: devices.watched(plan, &stats, &cqs),
        stats,
        sources: count_sources(plan, registry),
        drain: plan.lcores().iter().map(|lcore| lcore.drain).max().unwrap_or_default(),
    })
}

/// What the run has found out about the machine, and what the plan's check knew for certain.
fn found_out(plan: &verbline_plan::Plan, of_pools: Vec<Note>) -> Vec<Note> {
    let certain = plan.notes().iter().filter(|note| !note.lack.is_forecast());
    // Asked here, the choice of fences is made before any lcore runs.
    let of_fences = (fence::mechanism() == Mechanism::SeqCst).then(|| Note {
        lack: Lack::Membarrier,
        message: "membarrier(2) is refused here: every turn of an lcore pays for a full fence, some 20 cycles"
            .to_owned(),
        remedy:
            "allow it in the seccomp filter of this container (`--security-opt seccomp=PROFILE`), or run Linux 4.14 or \
                 newer"
                .to_owned(),
    });
    of_pools.into_iter().chain(certain.cloned()).chain(of_fences).collect()
}

fn count_sources(plan: &verbline_plan::Plan, registry: &Registry) -> usize {
    let is_source = |stage: &&verbline_plan::Stage| registry.kind(&stage.kind).is_some_and(|kind| kind.spec.source);
    plan.stages().iter().filter(is_source).count()
}

/// A stage as its factory made it.
struct Made {
    stage: Box<dyn Stage>,
    drops: &'static [&'static str],
    counters: Vec<(String, crate::stats::counters::Counter)>,
}

/// The stages, in the plan's order. First of all: an error in a parameter costs nobody a device.
fn make_stages(plan: &verbline_plan::Plan, registry: &Registry, clock: &Clock) -> Result<Vec<Made>, EngineError> {
    plan.stages().iter().map(|stage| make_stage(plan, registry, clock, stage)).collect()
}

fn make_stage(
    plan: &verbline_plan::Plan,
    registry: &Registry,
    clock: &Clock,
    stage: &verbline_plan::Stage,
) -> Result<Made, EngineError> {
    let Some(kind) = registry.kind(&stage.kind) else {
        return Err(EngineError::UnknownKind {
            at: place(plan, stage.span),
            stage: stage.name.clone(),
            kind: stage.kind.clone(),
        });
    };
    let context = StageContext::new(plan, stage, kind.spec, clock);
    let made = (kind.make)(&context).map_err(|source| match source.downcast() {
        Ok(diagnostic) => EngineError::Params(*diagnostic),
        Err(source) => EngineError::Stage {
            at: place(plan, stage.span),
            stage: stage.name.clone(),
            kind: stage.kind.clone(),
            source,
        },
    })?;
    Ok(Made { stage: made, drops: kind.spec.drops, counters: context.into_counters() })
}

/// What every stage's factory has to say against the plan; the stages themselves go again.
pub(crate) fn stage_faults(plan: &verbline_plan::Plan, registry: &Registry) -> Diagnostics {
    let clock = Clock::new();
    let fault = |stage| match make_stage(plan, registry, &clock, stage).err()? {
        EngineError::Params(diagnostic) => Some(diagnostic),
        EngineError::Stage { source, .. } => Some(stage.params.refuse("", source.to_string())),
        error => Some(stage.params.refuse("", error.to_string())),
    };
    let mut faults = Diagnostics::default();
    faults.extend(plan.stages().iter().filter_map(fault));
    faults
}

fn doorbells(plan: &verbline_plan::Plan) -> Result<(Vec<Waker>, Vec<Sleeper>), EngineError> {
    let bell = |lcore: &verbline_plan::Lcore| {
        verbline_ring::doorbell().map_err(|source| EngineError::System {
            at: place(plan, lcore.span),
            lcore: lcore.name.clone(),
            call: "making its doorbell (eventfd)",
            source,
            remedy: "free file descriptors (ulimit -n)",
        })
    };
    let pairs = plan.lcores().iter().map(bell).collect::<Result<Vec<_>, _>>()?;
    Ok(pairs.into_iter().unzip())
}

fn handovers(plan: &verbline_plan::Plan, control: &Arc<Control>) -> Result<Vec<Option<Arc<Handover>>>, EngineError> {
    let handover = |port: &verbline_plan::Port| {
        // A port's place on its lcore is its tag.
        let place_on_lcore =
            plan[port.lcore].ports.iter().position(|id| *id == port.id).expect("a port is on its lcore");
        let inbox = LcoreInbox { control: Arc::clone(control), lcore: port.lcore.index() };
        let handover = Handover::new(inbox, place_on_lcore).map_err(|source| EngineError::System {
            at: place(plan, port.span),
            lcore: plan[port.lcore].name.clone(),
            call: "making the eventfd of a port that reconnects",
            source,
            remedy: "free file descriptors (ulimit -n)",
        })?;
        Ok(Arc::new(handover))
    };
    plan.ports().iter().map(|port| port.reconnect.then(|| handover(port)).transpose()).collect()
}

type RingEnds =
    (Option<verbline_ring::Producer<verbline_mem::Packet>>, Option<verbline_ring::Consumer<verbline_mem::Packet>>);

fn make_rings(plan: &verbline_plan::Plan) -> Vec<RingEnds> {
    let ends = |ring: &verbline_plan::Ring| {
        let (producer, consumer) = verbline_ring::spsc(ring.depth_packets as usize);
        (Some(producer), Some(consumer))
    };
    plan.rings().iter().map(ends).collect()
}

fn run_stats(plan: &verbline_plan::Plan, clock: &Clock, devices: &Devices, pools: &Pools, made: &[Made]) -> RunStats {
    let lcore_name = |id: verbline_plan::LcoreId| plan[id].name.clone();
    RunStats {
        plan: plan.name().to_owned(),
        clock: clock.clone(),
        lcores: (plan.lcores().iter())
            .map(|lcore| LcoreEntry {
                name: lcore.name.clone(),
                cpu: lcore.cpu,
                budget: budget(plan, lcore),
                stats: shared(),
            })
            .collect(),
        stages: (plan.stages().iter().zip(made))
            .map(|(stage, made)| StageEntry {
                name: stage.name.clone(),
                kind: stage.kind.clone(),
                lcore: lcore_name(stage.lcore),
                drops: made.drops,
                counters: made.counters.clone(),
                stats: shared(),
            })
            .collect(),
        ports: (plan.ports().iter())
            .map(|port| PortEntry {
                name: port.name.clone(),
                lcore: lcore_name(port.lcore),
                device: devices[port.device].context.name().to_owned(),
                wiring: Wiring { renews: port.reconnect, senders: senders(plan, port) },
                stats: shared(),
            })
            .collect(),
        rings: (plan.rings().iter())
            .map(|ring| RingEntry {
                name: ring.name.clone(),
                producer: lcore_name(ring.from_lcore),
                consumer: lcore_name(ring.to_lcore),
                depth: ring.depth_packets.into(),
                filled: shared(),
                emptied: shared(),
            })
            .collect(),
        kernel: Thieves::default(),
        pools: pools.all().to_vec(),
    }
}

/// The ports of the plan that send to this one.
fn senders(plan: &verbline_plan::Plan, port: &verbline_plan::Port) -> Vec<usize> {
    let sends = |other: &&verbline_plan::Port| match other.destination {
        Destination::Peer(id) => id == port.id,
        Destination::Group(group) => other.device == port.device && port.join.contains(&group),
        Destination::None | Destination::Listen(_) | Destination::Connect(_) => false,
    };
    plan.ports().iter().filter(sends).map(|other| other.id.index()).collect()
}

/// The plan's figures for idling; what it leaves out is measured, once a process, and only for lcores that spin before they sleep.
fn budget(plan: &verbline_plan::Plan, lcore: &verbline_plan::Lcore) -> Budget {
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let (policy, cost) = match lcore.idle {
        Idle::Poll => (Policy::Poll, WakeCost { ns: 0, clean: true }),
        Idle::Event => (Policy::Event, WakeCost { ns: 0, clean: true }),
        Idle::Adaptive => (Policy::Adaptive, wake_cost(plan, lcore)),
    };
    let (spin_ns, spin_from) = match (policy, lcore.spin) {
        (Policy::Event, _) => (0, SpinFrom::Plan),
        (Policy::Poll | Policy::Adaptive, Some(spin)) => (ns(spin), SpinFrom::Plan),
        (Policy::Poll, None) => (0, SpinFrom::Plan),
        (Policy::Adaptive, None) if cost.clean => (cost.ns, SpinFrom::Measured),
        (Policy::Adaptive, None) => (cost.ns, SpinFrom::Disturbed),
    };
    Budget { policy, spin_ns, spin_from, dwell_ns: lcore.dwell.map_or(spin_ns, ns), wake_cost_ns: cost.ns }
}

impl Built {
    /// Connects the ports that have an address and are not connected yet.
    pub(crate) fn connect(&mut self, mut stop: impl FnMut() -> bool) -> Result<(), EngineError> {
        let control = &self.control;
        let stop = || stop() || control.with(|progress| progress.interrupted);
        // A plan without addresses starts nothing here, so that nothing of it can fail.
        if self.to_connect.is_empty() {
            return Ok(());
        }
        let refused = |source| EngineError::Process {
            call: "starting the threads that supervise the connections",
            source,
            remedy: "free file descriptors or threads (ulimit -n, ulimit -u)",
        };
        let stop_connecting = Arc::new(StopFlag::new().map_err(refused)?);
        let ports = self.lcores.iter_mut().flat_map(|lcore| &mut lcore.ports);
        let qps = ports.map(|port| (usize::from(port.index), &mut port.qp)).collect();
        let established = connector::connect(std::mem::take(&mut self.to_connect), qps, &stop_connecting, stop)?;
        // What an attempt that failed half-way has cost. A peer that is quicker than this waits and sends again (RNR).
        for lcore in &mut self.lcores {
            let posted = |port: &mut Port| port.qp.recvs_outstanding();
            for port in &mut lcore.ports {
                let posted = posted(port);
                if let Some(receiving) = &mut port.receiving {
                    receiving.missing = receiving.depth_wr - posted;
                }
            }
            fill(lcore);
        }
        self.connections = Connections::supervise(established, stop_connecting, &self.stats.clock).map_err(refused)?;
        Ok(())
    }
}

/// Posts receives through the caches that the lcore will bind on its thread.
fn fill(lcore: &mut LcoreParts) {
    let now_ns = lcore.clock.now_ns();
    let LcoreParts { ports, caches, stats, .. } = lcore;
    for port in ports {
        if let Some(cache) = port.receiving.as_ref().map(|receiving| receiving.cache) {
            port.refill(&caches[cache], stats, now_ns);
        }
    }
}

/// What the lcores are made from.
struct Making<'a> {
    plan: &'a verbline_plan::Plan,
    registry: &'a Registry,
    stats: &'a RunStats,
    clock: &'a Clock,
    pools: &'a Pools,
    wakers: &'a [Waker],
    handovers: &'a Handovers,
}

/// The sinks of one lcore, and which target each belongs to.
struct Sinks {
    targets: Vec<Target>,
    sinks: Vec<Sink>,
}

impl Sinks {
    /// Plans have far fewer sinks an lcore than a `u16` counts, and `Making::sinks` checks it.
    fn find(&self, target: Target) -> Option<usize> {
        self.targets.iter().position(|known| *known == target)
    }

    /// The sink of a target that the plan has put on this lcore.
    fn index(&self, target: Target) -> usize {
        self.find(target).expect("a plan links only what is on one lcore, and every such target has a sink")
    }

    fn link(&self, target: Target) -> Link {
        match target {
            Target::Drop => Link::Drop,
            target => Link::Sink(self.index(target) as u16),
        }
    }
}

impl Making<'_> {
    fn lcore(
        &self,
        lcore: &verbline_plan::Lcore,
        wakes: WakeSet,
        qps: &mut QueuePairs<'_>,
        rings: &mut [RingEnds],
        stages: &mut [Option<Box<dyn Stage>>],
    ) -> Result<LcoreParts, EngineError> {
        let entry = &self.stats.lcores[lcore.id.index()];
        let sinks = self.sinks(lcore);
        let burst = lcore.burst_packets as usize;
        let ports = lcore.ports.iter().map(|id| self.port(*id, lcore, &sinks, qps)).collect();
        let nodes = lcore.stages.iter().map(|id| self.node(*id, lcore, &sinks, stages)).collect();
        let (outlets, bells) = self.outlets(lcore, &sinks, rings);
        let inlets = lcore.rings_in.iter().map(|id| {
            let ring = &self.plan[*id];
            Inlet {
                consumer: rings[id.index()].1.take().expect("a ring has one consumer"),
                sink: sinks.index(consumer_target(ring.to)),
                burst,
                stats: self.stats.rings[id.index()].emptied.clone(),
            }
        });
        Ok(LcoreParts {
            index: lcore.id.index(),
            name: lcore.name.clone(),
            cpu: lcore.cpu,
            budget: entry.budget,
            drain: lcore.drain,
            clock: self.clock.clone(),
            nodes,
            caches: self.caches(lcore),
            ports,
            inlets: inlets.collect(),
            outlets,
            bells,
            wakes,
            completions: Completions::with_capacity(burst),
            stats: entry.stats.clone(),
            sinks: sinks.sinks,
        })
    }

    /// One sink for each stage, sending port and outgoing ring of the lcore, as deep as the plan has proved.
    fn sinks(&self, lcore: &verbline_plan::Lcore) -> Sinks {
        let mut sinks = Sinks { targets: Vec::new(), sinks: Vec::new() };
        let mut add = |target, depth: u32, full, stats| {
            sinks.targets.push(target);
            sinks.sinks.push(Sink::new(depth as usize, full, stats));
        };
        for id in &lcore.stages {
            let stats = SinkStats::Stage(self.stats.stages[id.index()].stats.clone());
            add(Target::Stage(*id), self.plan[*id].batch_packets, DropReason::StageFull, stats);
        }
        for id in lcore.ports.iter().filter(|id| self.plan[**id].tx_depth_wr > 0) {
            let stats = SinkStats::Port(self.stats.ports[id.index()].stats.clone());
            add(Target::Port(*id), self.plan[*id].batch_packets, DropReason::TxFull, stats);
        }
        for id in &lcore.rings_out {
            let stats = SinkStats::Ring(self.stats.rings[id.index()].filled.clone());
            add(Target::Ring(*id), self.plan[*id].batch_packets, DropReason::RingFull, stats);
        }
        assert!(sinks.sinks.len() <= usize::from(u16::MAX), "an lcore has at most 65,535 stages, ports and rings");
        sinks
    }

    /// In the order of the lcore's pools.
    fn caches(&self, lcore: &verbline_plan::Lcore) -> Vec<PoolCache> {
        let cache = |id: &PoolId| self.pools[*id].cache(self.plan[*id].cache_packets as usize);
        lcore.pools.iter().map(cache).collect()
    }

    fn cache_of(&self, lcore: &verbline_plan::Lcore, pool: PoolId) -> usize {
        lcore
            .pools
            .iter()
            .position(|known| *known == pool)
            .expect("a plan gives an lcore a cache of every pool it uses")
    }

    fn port(&self, id: PortId, lcore: &verbline_plan::Lcore, sinks: &Sinks, qps: &mut QueuePairs<'_>) -> Port {
        let port = &self.plan[id];
        let burst = lcore.burst_packets as usize;
        let receiving = port.pool.zip(port.next).filter(|_| port.rx_depth_wr > 0).map(|(pool, next)| {
            let cache = self.cache_of(lcore, pool);
            Receiving::new(cache, sinks.link(next), port.rx_depth_wr as usize, burst, port.timestamps)
        });
        let sending = (port.tx_depth_wr > 0)
            .then(|| Sending::new(sinks.index(Target::Port(id)), port.signal_every_wr, port.tx_depth_wr as usize));
        let qp = qps.take(id);
        self.stats.ports[id.index()].stats.qpn.set(qp.qpn().into());
        Port {
            name: port.name.clone(),
            index: id.index() as u16,
            qp,
            receiving,
            sending,
            stats: self.stats.ports[id.index()].stats.clone(),
            health: Health::Up,
            by_address: matches!(port.destination, Destination::Listen(_) | Destination::Connect(_)),
            inbox: None,
            reconnect: self.handovers[id.index()].clone().map(PortSide::new),
        }
    }

    fn node(
        &self,
        id: StageId,
        lcore: &verbline_plan::Lcore,
        sinks: &Sinks,
        stages: &mut [Option<Box<dyn Stage>>],
    ) -> Node {
        let stage = &self.plan[id];
        Node::new(NodeSpec {
            name: stage.name.clone(),
            source: self.registry.kind(&stage.kind).is_some_and(|kind| kind.spec.source),
            stats: self.stats.stages[id.index()].stats.clone(),
            stage: stages[id.index()].take().expect("a stage is on one lcore"),
            links: stage.outputs.iter().map(|target| sinks.link(*target)).collect(),
            input: sinks.index(Target::Stage(id)),
            cache: stage.pool.map(|pool| self.cache_of(lcore, pool)),
            batch_packets: stage.batch_packets as usize,
        })
    }

    /// The rings that the lcore fills, and one doorbell for each lcore that empties some of them.
    fn outlets(&self, lcore: &verbline_plan::Lcore, sinks: &Sinks, rings: &mut [RingEnds]) -> (Vec<Outlet>, Vec<Bell>) {
        let mut consumers = Vec::new();
        let mut outlets = Vec::new();
        for id in &lcore.rings_out {
            let to = self.plan[*id].to_lcore;
            let bell = consumers.iter().position(|known| *known == to).unwrap_or_else(|| {
                consumers.push(to);
                consumers.len() - 1
            });
            outlets.push(Outlet {
                producer: rings[id.index()].0.take().expect("a ring has one producer"),
                sink: sinks.index(Target::Ring(*id)),
                bell,
                stats: self.stats.rings[id.index()].filled.clone(),
            });
        }
        let bell = |to: verbline_plan::LcoreId| Bell { waker: self.wakers[to.index()].clone(), due: false };
        (outlets, consumers.into_iter().map(bell).collect())
    }
}

fn consumer_target(consumer: Consumer) -> Target {
    match consumer {
        Consumer::Stage(id) => Target::Stage(id),
        Consumer::Port(id) => Target::Port(id),
    }
}
