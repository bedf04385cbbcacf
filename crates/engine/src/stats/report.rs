//! The report of a run, as plain data: for the tables, for `--json`, and for tests.
//!
//! Serialised, it is the document that `--json` prints, whose shape `docs/report.schema.json`
//! describes. A report is taken live ([`Running::snapshot`](crate::Running::snapshot)) or at the
//! end ([`Running::stop`](crate::Running::stop)). Names carry their units; all counts are since the
//! start.

use serde::Serialize;

use crate::stats::counters::{InjectorReport, LcoreReport, PortReport, RingReport, StageReport};
use crate::stats::wire::{IncidentsReport, WireReport};

/// The version of the report's shape. It rises when a key goes or changes its meaning, and not when
/// one is added.
pub const REPORT_VERSION: u32 = 1;

/// What a run did, or has done so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// [`REPORT_VERSION`].
    pub version: u32,
    /// The plan's name.
    pub plan: String,
    /// Whether the run has ended.
    pub ended: bool,
    /// Since the lcores started.
    pub elapsed_ns: u64,
    /// How long the process's control group was kept from running by its quota of CPU time; `None`
    /// where the kernel doesn't tell.
    pub throttled_ns: Option<u64>,
    /// Whether everything in flight was delivered before the run ended: no lcore's drain budget ran
    /// out before, nothing of this run came after its last turn, and no stage awaited packets. True
    /// while running.
    pub drained: bool,
    /// In the plan's order.
    pub lcores: Vec<LcoreReport>,
    /// In the plan's order.
    pub stages: Vec<StageReport>,
    /// In the plan's order.
    pub ports: Vec<PortReport>,
    /// Connections by address, in the order of their ports.
    pub connections: Vec<ConnectionReport>,
    /// The network of the software devices of its ports that have an address.
    pub wires: Vec<WireReport>,
    /// In the plan's order.
    pub rings: Vec<RingReport>,
    /// In the plan's order.
    pub injectors: Vec<InjectorReport>,
    /// In the plan's order.
    pub pools: Vec<PoolReport>,
    /// Every drop, by place and reason; only what occurred.
    pub drops: Vec<DropReport>,
    /// All packets of all pools.
    pub packets: PacketReport,
    /// Asynchronous events of the devices, by device, kind and source.
    pub events: Vec<EventReport>,
    /// Lcores that did not reach their end, or ports that are down for good or received nothing of
    /// what was sent to them.
    pub failures: Vec<FailureReport>,
}

impl Report {
    /// Packets dropped for `reason`, at any place.
    pub fn dropped(&self, reason: &str) -> u64 {
        self.drops.iter().filter(|drop| drop.reason == reason).map(|drop| drop.packets).sum()
    }

    /// The stage `name`, if the plan has it.
    pub fn stage(&self, name: &str) -> Option<&StageReport> {
        self.stages.iter().find(|stage| stage.name == name)
    }

    /// The injector `name`, if the plan has it.
    pub fn injector(&self, name: &str) -> Option<&InjectorReport> {
        self.injectors.iter().find(|injector| injector.name == name)
    }

    /// The port `name`, if the plan has it.
    pub fn port(&self, name: &str) -> Option<&PortReport> {
        self.ports.iter().find(|port| port.name == name)
    }

    /// The connection of the port `name`, if it has an address.
    pub fn connection(&self, name: &str) -> Option<&ConnectionReport> {
        self.connections.iter().find(|connection| connection.port == name)
    }

    /// The lcore `name`, if the plan has it.
    pub fn lcore(&self, name: &str) -> Option<&LcoreReport> {
        self.lcores.iter().find(|lcore| lcore.name == name)
    }

    /// The ring `name`, if the plan has it.
    pub fn ring(&self, name: &str) -> Option<&RingReport> {
        self.rings.iter().find(|ring| ring.name == name)
    }
}

/// One connection that a port made by address.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ConnectionReport {
    /// The port's name in the plan.
    pub port: String,
    /// `listens` or `connects`.
    pub role: &'static str,
    /// Where it listens or connects to, as the plan has it.
    pub address: String,
    /// Who is at the other end, or was last.
    pub peer_address: String,
    /// By what its packets go, or went last: the `network` of a kernel device, this `process`, or
    /// `udp`.
    pub link: &'static str,
    /// What went wrong on that way since it was connected the last time; of one over `udp`.
    pub wire: Option<IncidentsReport>,
    /// How it is, or was when the run was stopped.
    pub state: ConnectionState,
    /// Why it was lost, the last time.
    pub reason: Option<String>,
    /// How often it was tried, in all, the attempts that succeeded included.
    pub attempts: u64,
    /// How many of them succeeded: 1 if it was never lost.
    pub times_connected: u64,
    /// From the first attempt until it was connected, the last time.
    pub connect_ns: u64,
    /// When it was lost, the last time, since the lcores started.
    pub ended_ns: Option<u64>,
    /// Why the last attempt to connect again failed, while it is not connected.
    pub last_error: Option<String>,
}

/// How a connection is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ConnectionState {
    /// As far as the connection manager knows.
    #[default]
    Connected,
    /// It was lost, and is being made again. What the port is to send meanwhile is dropped
    /// (`port_down`).
    Reconnecting,
    /// The peer went away, and said so; with `reconnect = false` it stays disconnected for the rest
    /// of the run.
    Disconnected,
    /// With `reconnect = false`: its queue pair has failed.
    Failed,
}

/// Where the packets of one pool are: free, cached or held.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PoolReport {
    /// Its name in the plan.
    pub name: String,
    /// Packets in all.
    pub packets: u64,
    /// In the shared free list.
    pub free: u64,
    /// In the lcores' caches.
    pub cached: u64,
    /// Out: posted, queued, or with a stage.
    pub held: u64,
    /// The page size in force, bytes.
    pub page_bytes: u64,
    /// The NUMA node that it lies on; of a pool on several the first that it should not be on.
    /// `None` on a machine of one node, and where the kernel does not tell.
    pub node: Option<u32>,
    /// Why the pages are not the ones wished for, and what to do.
    pub fallback: Option<String>,
    /// It can't be swapped out: locked, or on hugepages. What a kernel device registers is pinned
    /// whether or not it is.
    pub locked: bool,
}

/// Packets dropped at one place for one reason.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DropReport {
    /// `stage.x`, `port.x`, `ring.x` or `injector.x`.
    pub place: String,
    /// The reason's name.
    pub reason: String,
    /// How many.
    pub packets: u64,
}

/// The accounts of all pools together.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PacketReport {
    /// Taken from the pools since the start, for receive queues and by stages.
    pub taken: u64,
    /// Given back.
    pub returned: u64,
    /// Still out; zero after an orderly stop.
    pub held: u64,
    /// Who holds them, as far as the engine knows. The rest is with stages, or with the app
    /// (`elsewhere`).
    pub holders: Vec<HolderReport>,
}

/// Packets that one place holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HolderReport {
    /// `port.x rx`, `port.x tx`, `ring.x`, `injector.x`, or `elsewhere`.
    pub place: String,
    /// How many.
    pub packets: u64,
}

/// Asynchronous events of one kind from one source.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct EventReport {
    /// The device's name.
    pub device: String,
    /// Its name in verbs.h, e.g. `IBV_EVENT_PORT_ERR`.
    pub event: String,
    /// What it is about: `QP 0x11`, `CQ 3`, `SRQ 1`, `device` or `port 1` (the device's, of which
    /// the first is 1); `a connection of many`; or `other QPs`, where too many queue pairs came
    /// and went to count by each.
    pub source: String,
    /// The plan's ports that this is; in the plan's order.
    pub ports: Vec<String>,
    /// The lcores that own them.
    pub lcores: Vec<String>,
    /// How many.
    pub count: u64,
}

/// An lcore that did not reach its end.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FailureReport {
    /// Its name in the plan.
    pub lcore: String,
    /// The stage that ran, if one did.
    pub stage: Option<String>,
    /// Whether it panicked; otherwise it met an error.
    pub panicked: bool,
    /// What it said.
    pub message: String,
}
