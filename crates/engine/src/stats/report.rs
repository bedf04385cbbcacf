//! What a run did, as plain data: for a person's table, for `--json`, and for tests.
//!
//! Serialised it is the document that `--json` prints, whose shape `docs/report.schema.json` describes. A report is taken live ([`Running::snapshot`](crate::Running::snapshot)) or at the end
//! ([`Running::stop`](crate::Running::stop)). Units are in the names; all counts are since the start.

use serde::Serialize;

/// The version of the report's shape. It rises when a key goes or changes its meaning, and not when one is added.
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
    /// How long the process's control group was kept from running by its quota of CPU time; `None` where the kernel doesn't tell.
    pub throttled_ns: Option<u64>,
    /// Whether everything in flight was delivered before the drain budget ran out; true while running.
    pub drained: bool,
    /// In the plan's order.
    pub lcores: Vec<LcoreReport>,
    /// In the plan's order.
    pub stages: Vec<StageReport>,
    /// In the plan's order.
    pub ports: Vec<PortReport>,
    /// Connections by address, in the order of their ports.
    pub connections: Vec<ConnectionReport>,
    /// In the plan's order.
    pub rings: Vec<RingReport>,
    /// In the plan's order.
    pub pools: Vec<PoolReport>,
    /// Every drop, by place and reason; only what occurred.
    pub drops: Vec<DropReport>,
    /// All packets of all pools.
    pub packets: PacketReport,
    /// Asynchronous events of the devices, by device, kind and source.
    pub events: Vec<EventReport>,
    /// Lcores that did not reach their end, or ports that are down for good or received nothing of what was sent to them.
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

/// A quotient that is 0 where there is nothing to divide by.
pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// One lcore: how it spent its time, and what woke it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LcoreReport {
    /// Its name in the plan.
    pub name: String,
    /// The CPU that it is pinned to.
    pub cpu: usize,
    /// What it does without work: `poll`, `event` or `adaptive`.
    pub policy: String,
    /// The spin budget in force, whether from the plan or measured.
    pub spin_ns: u64,
    /// Where that comes from: the `plan`; what a wake-up of this lcore's CPU was `measured` to cost; or, where other programs
    /// `disturbed` every measurement, the least that was seen.
    pub spin_from: &'static str,
    /// The dwell in force.
    pub dwell_ns: u64,
    /// Turns of its loop.
    pub loops: u64,
    /// Turns that found work.
    pub busy_loops: u64,
    /// Time in turns that found work.
    pub busy_ns: u64,
    /// Time in turns that found none.
    pub idle_ns: u64,
    /// Time blocked.
    pub asleep_ns: u64,
    /// Time in which it wanted to run and was kept from its CPU: by another thread, a quota, or the hypervisor. In none of the other
    /// times. What is stolen in pieces of less than 20 µs counts where it was taken from.
    pub stolen_ns: u64,
    /// How often it was kept from its CPU for 20 µs or longer while it was awake.
    pub stalls: u64,
    /// The longest of these times.
    pub stall_max_ns: u64,
    /// What the kernel says that its thread waited for its CPU, able to run; `None` where it doesn't tell.
    pub queued_ns: Option<u64>,
    /// How long the hypervisor had its CPU, to a hundredth of a second; `None` where the kernel doesn't tell.
    pub hypervisor_ns: Option<u64>,
    /// Share of the busy time in its whole time, 0 to 1. The shares add up to 1, once it has run.
    pub busy_share: f64,
    /// The same of the idle time.
    pub idle_share: f64,
    /// The same of the time blocked.
    pub asleep_share: f64,
    /// The same of the time stolen.
    pub stolen_share: f64,
    /// How often it blocked.
    pub sleeps: u64,
    /// How often the poll after arming found something, so that it did not block.
    pub armed_in_vain: u64,
    /// What ended the sleeps.
    pub wakes: Vec<WakeReport>,
    /// Sleeps of other lcores that this one ended by filling a ring.
    pub bells: u64,
    /// Lost wake-ups that the safety time-out repaired. Anything but zero is a bug.
    pub rescues: u64,
    /// Completions that belonged to no port.
    pub strays: u64,
}

impl LcoreReport {
    /// How many sleeps `cause` ended: `completion`, `ring`, `control`, `timer` or `timeout`.
    pub fn woken_by(&self, cause: &str) -> u64 {
        self.wakes.iter().find(|wake| wake.cause == cause).map_or(0, |wake| wake.count)
    }
}

/// How many sleeps one cause ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct WakeReport {
    /// `completion`, `ring`, `control`, `timer` or `timeout`.
    pub cause: &'static str,
    /// Sleeps that it ended.
    pub count: u64,
}

/// One stage.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StageReport {
    /// Its name in the plan.
    pub name: String,
    /// The kind that the app registered.
    pub kind: String,
    /// The lcore that runs it.
    pub lcore: String,
    /// Calls of `process`.
    pub calls: u64,
    /// Calls of `poll`.
    pub polls: u64,
    /// Packets given to `process`.
    pub packets_in: u64,
    /// Packets that its outputs took.
    pub packets_out: u64,
    /// Time in `process`, and in those calls of `poll` that sent something. Unless the lcore is lightly loaded, it is estimated from one turn in
    /// sixteen: the clock costs as much as a small stage. The stages of an lcore together have no more than its own busy time.
    pub busy_ns: u64,
    /// The calls that it is estimated from; with none, nothing is known of it.
    pub timed: u64,
    /// How well it is known: the standard error of `busy_ns` as a part of it. 0 if every call was timed.
    pub busy_error: f64,
    /// That, spread over what it took or what it gave, whichever is more: a source has little or no input.
    pub ns_per_packet: f64,
    /// Its share in the busy time of its lcore, 0 to 1. The stages of an lcore have 1 at most together.
    pub busy_share: f64,
    /// Packets given to `process` a call: the mean batch.
    pub batch_mean: f64,
    /// The largest batch so far.
    pub batch_max: u64,
    /// Packets asked of the pool and not had.
    pub alloc_failed: u64,
    /// The stage's own counters, in the order of their registration.
    pub counters: Vec<CounterReport>,
}

impl StageReport {
    /// The stage's own counter `name`.
    pub fn counter(&self, name: &str) -> Option<u64> {
        self.counters.iter().find(|counter| counter.name == name).map(|counter| counter.value)
    }
}

/// A counter of a stage's own.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CounterReport {
    /// As the stage named it.
    pub name: String,
    /// Its value.
    pub value: u64,
}

/// One port.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PortReport {
    /// Its name in the plan.
    pub name: String,
    /// The lcore that owns it.
    pub lcore: String,
    /// The device's name.
    pub device: String,
    /// Packets received.
    pub rx_packets: u64,
    /// Their bytes, without the 40-byte GRH of UD.
    pub rx_bytes: u64,
    /// Packets that the send queue took.
    pub tx_packets: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// Calls of `ibv_post_send`; `tx_packets / tx_posts` is the batch.
    pub tx_posts: u64,
    /// Buffers posted to the receive queue.
    pub rx_posted: u64,
    /// Loops that could not refill the receive queue because the pool was empty.
    pub rx_starved: u64,
    /// Completions for work requests no longer outstanding.
    pub stale: u64,
    /// The number of its QP.
    pub qpn: u32,
    /// Whether the QP is in the error state.
    pub down: bool,
    /// What brought it there first, by its name in verbs.h: a completion's status (`IBV_WC_…`) or a device's event
    /// (`IBV_EVENT_…`); or in words.
    pub down_reason: Option<String>,
    /// Whether the device's port under it has no link.
    pub link_down: bool,
    /// Completions with an error, by status; only what occurred.
    pub errors: Vec<StatusReport>,
}

/// Completions with one error status.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StatusReport {
    /// As in verbs.h, without `IBV_WC_`.
    pub status: String,
    /// How many.
    pub count: u64,
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
    /// It was lost, and is being made again. What the port is to send meanwhile is dropped (`port_down`).
    Reconnecting,
    /// The peer went away, and said so; with `reconnect = false` it stays disconnected for the rest of the run.
    Disconnected,
    /// With `reconnect = false`: its queue pair is in the error state, and nobody said why.
    Failed,
}

/// One ring.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RingReport {
    /// Its name in the plan.
    pub name: String,
    /// The lcore that fills it.
    pub producer: String,
    /// The lcore that empties it.
    pub consumer: String,
    /// Packets pushed.
    pub pushed: u64,
    /// Batches pushed.
    pub push_batches: u64,
    /// Packets popped.
    pub popped: u64,
    /// Batches popped.
    pub pop_batches: u64,
    /// Packets that it holds.
    pub depth: u64,
    /// The most packets that were found in it: `depth` if it was ever full; otherwise the consumer looks in the turns that are
    /// timed, one in sixteen and the first after a rest, so a short peak between them goes unseen.
    pub most: u64,
    /// Turns of the producer that found no room in it for all that there was. What had to wait was pushed in a later turn, or is
    /// among the drops (`ring_full`).
    pub full: u64,
}

/// One pool.
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
    /// Why the pages are not the ones wished for, and what to do.
    pub fallback: Option<String>,
    /// It can't be swapped out: locked, or on hugepages. What a kernel device registers is pinned whether or not it is.
    pub locked: bool,
}

/// Packets dropped at one place for one reason.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DropReport {
    /// `stage.x`, `port.x` or `ring.x`.
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
    /// Who holds them, as far as the engine knows. The rest is with stages, or with the app (`elsewhere`).
    pub holders: Vec<HolderReport>,
}

/// Packets that one place holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HolderReport {
    /// `port.x rx`, `port.x tx`, `ring.x`, or `elsewhere`.
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
    /// What it is about: `QP 0x11`, `CQ 3`, `SRQ 1`, `port 1` (the device's, which counts them from 1) or `device`.
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
