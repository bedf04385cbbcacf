//! Builds a run from a plan, on the calling thread, in the order of dependencies: descriptions of
//! stages, devices, pools, opened stages, doorbells, completion queues, queue pairs, lcores,
//! connections.

use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use verbline_mem::KernelNodes;
use verbline_plan::{IdlePolicy, Lack, Note, Plan, StageId};
use verbline_ring::fence::{self, Mechanism};
use verbline_ring::{Sleeper, Waker};

use crate::api::injector::Injectors;
use crate::api::registry::Registry;
use crate::connection::cm_mailbox::CmMailbox;
use crate::connection::connections::Connections;
use crate::connection::connector;
use crate::connection::multi_port::cm_thread::CmThreadSpec;
use crate::connection::spec::ConnectionSpec;
use crate::control::device_events::Watched;
use crate::control::event_fd::{ConnectionStops, StopFlag};
use crate::control::run_control::{Control, LcoreInbox};
use crate::errors::error::{EngineError, Place, place, system};
use crate::idle::policy::Budget;
use crate::idle::wake_cost::budget;
use crate::idle::wake_set::WakeSet;
use crate::lcore::poll_loop::LcoreParts;
use crate::ports::multi_port::ManyReceiving;
use crate::setup::changes::Known;
use crate::setup::devices::{completion_source, open_devices, open_pools};
use crate::setup::lcore_parts::LcoreBuilder;
use crate::setup::memory::Memory;
use crate::setup::multi_ports::{Apart, ManyPorts};
use crate::setup::queue_pairs::{QueuePairs, connect, connection_specs};
use crate::setup::reach::told_ports;
use crate::setup::regions;
use crate::setup::rings::{Between, make_injectors, make_rings};
use crate::setup::stages::{count_sources, describe_stages, make_acceptors, open_stages, refuse_unasked, watched_fds};
use crate::setup::stats::run_stats;
use crate::stats::clock::Clock;
use crate::stats::snapshot::RunStats;

/// A run that has not started.
pub(crate) struct Built {
    pub(crate) notes: Vec<Note>,
    /// Ports yet to be connected.
    pub(crate) to_connect: Vec<ConnectionSpec>,
    /// The cm threads of ports with many connections.
    pub(crate) cm_threads: Vec<CmThreadSpec>,
    /// With [`Extent::Stage`]: the connection makers, in place of the two above.
    pub(crate) apart: Vec<Apart>,
    pub(crate) lcores: Vec<LcoreParts>,
    /// The declaration of each lcore in the plan.
    pub(crate) places: Vec<Place>,
    pub(crate) control: Arc<Control>,
    pub(crate) injectors: Injectors,
    pub(crate) connections: Connections,
    /// Connecting has failed, or has not come to its end.
    pub(crate) is_unconnected: bool,
    pub(crate) stats: RunStats,
    pub(crate) watched: Vec<Watched>,
    pub(crate) known: Known,
    pub(crate) sources: usize,
    pub(crate) drain: Duration,
}

impl std::fmt::Debug for Built {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Built").field("notes", &self.notes).field("stats", &self.stats).finish_non_exhaustive()
    }
}

/// The part of a plan to build.
#[derive(Clone, Debug)]
pub(crate) enum Extent {
    /// The whole plan, to be run.
    Run,
    /// The lcores, with only this stage opened, on this clock. No port reaches a peer or posts a
    /// receive, and nothing is measured.
    Stage(StageId, Clock),
}

pub(crate) fn build(plan: &Plan, registry: &Registry) -> Result<Built, EngineError> {
    build_to(plan, registry, &Extent::Run)
}

pub(crate) fn build_to(plan: &Plan, registry: &Registry, extent: &Extent) -> Result<Built, EngineError> {
    let (clock, only) = match extent {
        Extent::Run => (Clock::new(), None),
        Extent::Stage(stage, clock) => (clock.clone(), Some(*stage)),
    };
    let regions = regions::declared(plan);
    let described = describe_stages(plan, registry, &clock, &regions)?;
    let acceptors = make_acceptors(plan, registry, &clock)?;
    refuse_unasked(plan, registry, |_| false)?;
    raise_descriptor_limit(plan);
    let devices = open_devices(plan)?;
    let mut memory = Memory::new(plan, &devices.names(), &KernelNodes);
    let pools = open_pools(plan, &devices, &mut memory)?;
    regions::make(plan, &regions, &devices, &mut memory)?;
    let opens = |stage| only.is_none_or(|only| only == stage);
    let made = open_stages(plan, described, &pools, opens)?;
    refuse_unasked(plan, registry, opens)?;
    let notes = found_out(plan, memory.notes(plan));
    let (wakers, sleepers) = doorbells(plan)?;
    let control = Arc::new(Control::new(wakers.clone()));
    let mailboxes = mailboxes(plan, &control)?;
    let budget_of = |lcore| only.map_or_else(|| budget(plan, lcore), |_| Budget::none(IdlePolicy::Poll));
    let budgets: Vec<_> = plan.lcores().iter().map(budget_of).collect();
    let pages_remedy = memory.shortage().map(|shortage| shortage.remedy);
    let stats = RunStats { pages_remedy, ..run_stats(plan, &clock, &devices, &pools, &made, &budgets) };
    let (injectors, injected) = make_injectors(plan, &pools, &wakers, &stats, &control);
    let mut between = Between { rings: make_rings(plan), injected };
    let told = told_ports(plan, made.iter().map(|made| &made.ports[..]));
    let mut stages: Vec<_> =
        made.into_iter().zip(told).map(|(made, told)| Some((made.stage, made.fds, told))).collect();
    let mut many = ManyPorts::new(plan, &devices, &mailboxes, &stats);
    let (mut wake_sets, mut cqs) = (Vec::new(), Vec::new());
    let mut qps = QueuePairs::new(plan);
    for (lcore, sleeper) in plan.lcores().iter().zip(sleepers) {
        let source = completion_source(plan, lcore, &devices)?;
        if let Some(source) = &source {
            qps.create(lcore, source, &devices)?;
            many.create(lcore, source)?;
        }
        cqs.push(source.as_ref().map(|source| source.cq.id()));
        let call = "watching its stages' descriptors (epoll)";
        let fds = watched_fds(lcore, &stages).map_err(system(plan, lcore.span, lcore.id, call, FREE_FDS))?;
        wake_sets.push(WakeSet::new(source, sleeper, fds));
    }
    let mut lcores = Vec::new();
    for (lcore, wakes) in plan.lcores().iter().zip(wake_sets) {
        let builder = LcoreBuilder {
            plan,
            registry,
            stats: &stats,
            clock: &clock,
            budgets: &budgets,
            pools: &pools,
            regions: &regions,
            devices: &devices,
            wakers: &wakers,
            mailboxes: &mailboxes,
            control: &control,
        };
        lcores.push(builder.build(lcore, wakes, &mut qps, &mut many, &mut between, &mut stages)?);
    }
    let (mut cm_threads, mut to_connect, mut endpoints, mut apart) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    if only.is_some() {
        apart = many.into_apart();
    } else {
        cm_threads = many.into_cm_threads(registry, acceptors)?;
        // Receives are posted before any peer can send: no message between ports of the plan finds
        // an empty queue at the start.
        for lcore in &mut lcores {
            fill(lcore);
        }
        endpoints = connect(plan, &devices, &mut lcores)?;
        to_connect = connection_specs(plan, &devices, &mut qps, &mailboxes)?;
    }
    Ok(Built {
        apart,
        notes,
        lcores,
        places: plan.lcores().iter().map(|lcore| place(plan, lcore.span)).collect(),
        control,
        injectors,
        connections: Connections::default(),
        is_unconnected: false,
        watched: devices.watched(plan, &stats, &cqs),
        known: Known::new(plan, devices, endpoints, &to_connect, &cm_threads),
        to_connect,
        cm_threads,
        stats,
        sources: count_sources(plan, registry),
        drain: plan.lcores().iter().map(|lcore| lcore.drain).max().unwrap_or_default(),
    })
}

const FREE_FDS: &str = "free file descriptors (ulimit -n)";

/// Facts about the machine that the run has found, and certain ones of the plan's check.
fn found_out(plan: &Plan, of_memory: Vec<Note>) -> Vec<Note> {
    let certain = plan.notes().iter().filter(|note| !note.lack.is_forecast());
    // Asking here makes the choice of fences before any lcore runs.
    let of_fences = (fence::mechanism() == Mechanism::SeqCst).then(|| Note {
        lack: Lack::Membarrier,
        message: "membarrier(2) is refused here: every turn of an lcore pays for a full fence, some 20 cycles"
            .to_owned(),
        remedy:
            "allow it in the seccomp filter of this container (`--security-opt seccomp=PROFILE`), or run Linux 4.14 or \
                 newer"
                .to_owned(),
    });
    of_memory.into_iter().chain(certain.cloned()).chain(of_fences).collect()
}

fn doorbells(plan: &Plan) -> Result<(Vec<Waker>, Vec<Sleeper>), EngineError> {
    let bell = |lcore: &verbline_plan::Lcore| {
        let call = "making its doorbell (eventfd)";
        verbline_ring::doorbell().map_err(system(plan, lcore.span, lcore.id, call, FREE_FDS))
    };
    let pairs = plan.lcores().iter().map(bell).collect::<Result<Vec<_>, _>>()?;
    Ok(pairs.into_iter().unzip())
}

/// The mailboxes of the ports that get connections during the run.
fn mailboxes(plan: &Plan, control: &Arc<Control>) -> Result<Vec<Option<Arc<CmMailbox>>>, EngineError> {
    let mailbox = |port: &verbline_plan::Port| {
        // A port's index on its lcore is its tag.
        let place_on_lcore =
            plan[port.lcore].ports.iter().position(|id| *id == port.id).expect("a port is on its lcore");
        let inbox = LcoreInbox { control: Arc::clone(control), lcore: port.lcore.index() };
        let connections = port.connections.as_ref().map_or(1, |connections| connections.max as usize);
        let call = match port.connections {
            None => "making the eventfd of a port with an address",
            Some(_) => "making the eventfd of a port with many connections",
        };
        let refused = system(plan, port.span, port.lcore, call, FREE_FDS);
        CmMailbox::new(inbox, place_on_lcore, connections).map(Arc::new).map_err(refused)
    };
    let is_given = |port: &&verbline_plan::Port| port.destination.is_by_address() || port.connections.is_some();
    plan.ports().iter().map(|port| Some(port).filter(is_given).map(mailbox).transpose()).collect()
}

impl Built {
    /// Connects the ports that have an address and are not connected yet.
    pub(crate) fn connect(&mut self, mut stop: impl FnMut() -> bool) -> Result<(), EngineError> {
        // An attempt that failed has used up its parts.
        if self.is_unconnected {
            return Err(EngineError::Interrupted);
        }
        let control = &self.control;
        let stop = || stop() || control.with(|progress| progress.interrupted);
        // A plan without addresses starts no threads here, which could fail.
        if self.to_connect.is_empty() && self.cm_threads.is_empty() {
            return Ok(());
        }
        self.is_unconnected = true;
        let refused = |source| EngineError::Process {
            call: "making the eventfds that end the threads of connections",
            source,
            remedy: FREE_FDS,
        };
        let stop_connecting = Arc::new(StopFlag::new().map_err(refused)?);
        let ports = self.lcores.iter_mut().flat_map(|lcore| &mut lcore.ports);
        let qps = ports.map(|port| (usize::from(port.index), &mut *port.qp)).collect();
        let established = connector::connect(std::mem::take(&mut self.to_connect), qps, &stop_connecting, stop)?;
        // Replaces receives that a half-way failed attempt has cost. A quicker peer waits and sends
        // again (RNR).
        for lcore in &mut self.lcores {
            for port in &mut lcore.ports {
                let posted = port.qp.recvs_outstanding();
                if let Some(receiving) = &mut port.receiving {
                    receiving.missing = receiving.depth_wr - posted;
                }
            }
            fill(lcore);
        }
        let stops = ConnectionStops::new(stop_connecting, self.lcores.len()).map_err(refused)?;
        self.control.set_connections(&stops);
        self.connections =
            Connections::supervise(established, std::mem::take(&mut self.cm_threads), stops, &self.stats.clock)?;
        self.is_unconnected = false;
        Ok(())
    }
}

impl Built {
    /// Arms the alternate paths of the ports that have one. All ports are connected.
    pub(crate) fn arm(&mut self) -> Result<(), EngineError> {
        for port in self.lcores.iter_mut().flat_map(|lcore| &mut lcore.ports) {
            port.arm_alternate().map_err(|source| {
                let plan = &self.known.plan;
                let at = place(plan, plan.ports()[usize::from(port.index)].span);
                EngineError::QueuePair { at, port: port.name.clone(), source: source.into() }
            })?;
        }
        Ok(())
    }
}

/// Posts receives through the caches that the lcore will bind on its thread.
fn fill(lcore: &mut LcoreParts) {
    let now_ns = lcore.clock.now_ns();
    let LcoreParts { ports, many, caches, stats, .. } = lcore;
    for port in many {
        if let Some(cache) = port.receiving.as_ref().map(ManyReceiving::cache) {
            port.fill_first(&caches[cache], stats);
        }
    }
    for port in ports {
        if let Some(cache) = port.receiving.as_ref().map(|receiving| receiving.cache) {
            port.refill(&caches[cache], stats, now_ns);
        }
    }
}

/// Raises the process's soft limit of file descriptors to the hard one, if the plan's sum says that
/// the run needs more. The check of the plan proved that the hard limit suffices. The raised limit
/// stays: it is the process's, and another run may count on it.
fn raise_descriptor_limit(plan: &Plan) {
    let limit = getrlimit(Resource::Nofile);
    let Some(current) = limit.current.filter(|current| *current < plan.descriptors_max()) else { return };
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(errno) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%errno, current, needed = plan.descriptors_max(), "the limit of file descriptors stays");
    }
}
