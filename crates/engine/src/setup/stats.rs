//! Makes the counters of a run, with the known facts of each lcore, stage, port and ring before the
//! run starts.

use std::sync::OnceLock;

use verbline_plan::{Destination, LcoreId, Plan, Target};

use crate::idle::policy::Budget;
use crate::setup::devices::{Devices, Pools};
use crate::setup::stages::MadeStage;
use crate::stats::clock::Clock;
use crate::stats::connection_counters::{ConnectionsReport, LastError};
use crate::stats::counter::shared;
use crate::stats::counters::{InjectorReport, LcoreReport, PortReport, RingReport, StageReport};
use crate::stats::failures::Wiring;
use crate::stats::kernel_time::Thieves;
use crate::stats::neighbours::Neighbours;
use crate::stats::snapshot::{
    ConnectionsEntry, InjectorEntry, LaneEntry, LcoreEntry, OutputEntry, PortEntry, RingEntry, RunStats, StageEntry,
};

pub(crate) fn run_stats(
    plan: &Plan,
    clock: &Clock,
    devices: &Devices,
    pools: &Pools,
    stages: &[MadeStage],
    budgets: &[Budget],
) -> RunStats {
    RunStats {
        plan: plan.name().to_owned(),
        clock: clock.clone(),
        lcores: plan.lcores().iter().zip(budgets).map(|(lcore, budget)| lcore_entry(lcore, budget)).collect(),
        stages: plan.stages().iter().zip(stages).map(|(stage, made)| stage_entry(plan, stage, made)).collect(),
        ports: plan.ports().iter().map(|port| port_entry(plan, port, devices)).collect(),
        rings: plan.rings().iter().map(|ring| ring_entry(plan, ring)).collect(),
        injectors: plan.injectors().iter().map(|injector| injector_entry(plan, injector)).collect(),
        kernel: Thieves::default(),
        neighbours: Neighbours::default(),
        pools: pools.all().to_vec(),
        pages_remedy: None,
    }
}

fn lcore_name(plan: &Plan, id: LcoreId) -> String {
    plan[id].name.clone()
}

fn lcore_entry(lcore: &verbline_plan::Lcore, budget: &Budget) -> LcoreEntry {
    LcoreEntry {
        known: LcoreReport {
            name: lcore.name.clone(),
            cpu: lcore.cpu as usize,
            plan_cpu: lcore.cpu as usize,
            cpus_allowed: 1,
            policy: budget.policy.word().to_owned(),
            spin_ns: budget.spin_ns,
            spin_from: budget.spin_from.word(),
            late_share_max: budget.objective.map(|objective| objective.late_share),
            dwell_ns: budget.dwell_ns,
            pause: budget.pause.map(verbline_ring::Pause::word),
            ..LcoreReport::default()
        },
        stats: shared(),
    }
}

fn stage_entry(plan: &Plan, stage: &verbline_plan::Stage, made: &MadeStage) -> StageEntry {
    StageEntry {
        known: StageReport {
            name: stage.name.clone(),
            kind: stage.kind.clone(),
            lcore: lcore_name(plan, stage.lcore),
            ..StageReport::default()
        },
        drops: made.drops,
        outputs: outputs(plan, stage, made),
        own: made.own.clone(),
        stats: shared(),
    }
}

fn port_entry(plan: &Plan, port: &verbline_plan::Port, devices: &Devices) -> PortEntry {
    PortEntry {
        known: PortReport {
            name: port.name.clone(),
            lcore: lcore_name(plan, port.lcore),
            device: devices[port.device].context.name().to_owned(),
            transport: port.transport.word(),
            ..PortReport::default()
        },
        operations: (port.ops_depth_wr > 0).then(shared),
        wiring: Wiring { reconnects: port.reconnect, senders: senders(plan, port) },
        stats: shared(),
        out_of_buffer: OnceLock::new(),
        connections: port.connections.as_ref().map(|many| ConnectionsEntry {
            known: ConnectionsReport { max: many.max.into(), role: role(port), ..ConnectionsReport::default() },
            stats: shared(),
            cm_thread: shared(),
            last_error: LastError::default(),
        }),
    }
}

fn ring_entry(plan: &Plan, ring: &verbline_plan::Ring) -> RingEntry {
    let producers: Vec<_> = ring.lanes.iter().map(|lane| lcore_name(plan, lane.lcore)).collect();
    RingEntry {
        known: RingReport {
            name: ring.name.clone(),
            producer: producers.join(", "),
            consumer: lcore_name(plan, ring.to_lcore),
            depth: ring.depth_packets.into(),
            ..RingReport::default()
        },
        lanes: (producers.into_iter())
            .map(|filled_by| LaneEntry { filled_by, producer: shared(), consumer: shared() })
            .collect(),
    }
}

fn injector_entry(plan: &Plan, injector: &verbline_plan::Injector) -> InjectorEntry {
    InjectorEntry {
        known: InjectorReport {
            name: injector.name.clone(),
            stage: plan[injector.to].name.clone(),
            lcore: lcore_name(plan, injector.lcore),
            depth: injector.depth_packets.into(),
            ..InjectorReport::default()
        },
        producer: shared(),
        consumer: shared(),
    }
}

/// The outputs of a stage, by name.
fn outputs(plan: &Plan, stage: &verbline_plan::Stage, made: &MadeStage) -> Vec<OutputEntry> {
    let leads_to = |target: &Target| match target {
        Target::Drop => Vec::new(),
        Target::Spread(id) => plan[*id].to.iter().map(|place| plan.target_name(*place)).collect(),
        other => vec![plan.target_name(*other)],
    };
    let outputs = made.outputs.iter().zip(&stage.outputs);
    outputs.map(|(name, target)| OutputEntry { name, leads_to: leads_to(target) }).collect()
}

/// The side of a port with many connections. A port that shares a listener counts as listening.
fn role(port: &verbline_plan::Port) -> &'static str {
    if let Destination::Connect(_) = port.destination { "connects" } else { "listens" }
}

/// The ports of the plan whose packets all come to this one.
fn senders(plan: &Plan, port: &verbline_plan::Port) -> Vec<usize> {
    let sends = |other: &&verbline_plan::Port| match other.destination {
        // All may have been answers, which go to their senders.
        _ if other.senders_max > 0 => false,
        Destination::Peer(id) => id == port.id,
        // If a port sends to several groups, this port may be in none of the groups that got its
        // packets.
        Destination::Group(_) => {
            other.device == port.device && other.send_to.iter().all(|group| port.join.contains(group))
        }
        Destination::None | Destination::Listen(_) | Destination::Connect(_) => false,
    };
    plan.ports().iter().filter(sends).map(|other| other.id.index()).collect()
}
