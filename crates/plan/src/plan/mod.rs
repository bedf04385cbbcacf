//! The validated plan. Holding one proves that every check of this crate passed.
//!
//! Every reference is an id that indexes into the same plan. Every queue's packets fit their pool,
//! and every completion fits its queue. Packets move between lcores over rings only, and never in a
//! circle.

pub(crate) mod build;
pub(crate) mod changes;
pub(crate) mod links;
pub(crate) mod nodes;
pub(crate) mod port;

use std::net::IpAddr;
use std::ops::Index;
use std::time::Duration;

use crate::choices::{IdlePolicy, Pages, Provider, Rights};
use crate::diag::diagnostics::Diagnostics;
use crate::diag::source::{Location, Sources, Span};
use crate::draw::graph::Drawing;
use crate::ids::{DeviceId, InjectorId, LcoreId, PoolId, PortId, RegionId, RingId, SpreadId, StageId, Target};
use crate::machine::Machine;
use crate::machine::note::Note;
use crate::plan::links::{Injector, Ring, Spread};
use crate::plan::port::Port;
use crate::sums::sum::{Sum, explain};
use crate::text::params::Params;

/// A plan that passed every check. Only [`Loader`](crate::Loader) makes one.
#[derive(Debug, Clone)]
pub struct Plan {
    pub(crate) sources: Sources,
    pub(crate) name: String,
    pub(crate) app: Option<String>,
    pub(crate) devices: Vec<Device>,
    pub(crate) pools: Vec<Pool>,
    pub(crate) regions: Vec<Region>,
    pub(crate) lcores: Vec<Lcore>,
    pub(crate) ports: Vec<Port>,
    pub(crate) rings: Vec<Ring>,
    pub(crate) injectors: Vec<Injector>,
    pub(crate) spreads: Vec<Spread>,
    pub(crate) stages: Vec<Stage>,
    /// One entry for each section of the catalog.
    pub(crate) sections: Vec<Params>,
    pub(crate) sums: Vec<Sum>,
    pub(crate) descriptors: u64,
    pub(crate) drawing: Drawing,
    pub(crate) warnings: Diagnostics,
    pub(crate) notes: Vec<Note>,
    /// The machine that it was checked against.
    pub(crate) machine: Machine,
}

impl Plan {
    /// The plan's own name; the stem of the file's name if the plan has none.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The application that the plan names, if any.
    pub fn app(&self) -> Option<&str> {
        self.app.as_deref()
    }

    /// The section of this name; `None` only if the catalog lacks it. A section that the file
    /// leaves out is empty.
    pub fn section(&self, name: &str) -> Option<&Params> {
        self.sections.iter().find(|section| section.path() == name)
    }

    /// The warnings: faults that do not keep the plan from running.
    pub fn warnings(&self) -> &Diagnostics {
        &self.warnings
    }

    /// Shortcomings of the machine that the plan runs with, one note of each kind. A run reports
    /// what it meets itself.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// The sums that were proved, each with its terms.
    pub fn sums(&self) -> &[Sum] {
        &self.sums
    }

    /// The sums as text, each term with the line that it comes from.
    pub fn explain(&self) -> String {
        explain(&self.sums)
    }

    /// The most file descriptors that a run has open at once, including those open when the plan
    /// was checked.
    pub fn descriptors_max(&self) -> u64 {
        self.descriptors
    }

    /// The text of `graph`: lcores as clusters, for Graphviz.
    pub fn to_dot(&self) -> String {
        self.drawing.to_dot()
    }

    /// The text of `graph --format mermaid`.
    pub fn to_mermaid(&self) -> String {
        self.drawing.to_mermaid()
    }

    /// Converts a span of this plan to a line and a column.
    pub fn locate(&self, span: Span) -> Location {
        self.sources.locate(span)
    }

    /// A target's name in the file's notation, e.g. `stage.book`.
    pub fn target_name(&self, target: Target) -> String {
        match target {
            Target::Stage(id) => format!("stage.{}", self[id].name),
            Target::Port(id) => format!("port.{}", self[id].name),
            Target::Ring(id) => format!("ring.{}", self[id].name),
            Target::Spread(id) => format!("spread.{}", self[id].name),
            Target::Drop => "drop".to_owned(),
        }
    }
}

/// Declares the lists of a plan, and their items by id.
macro_rules! lists {
    ($($(#[$more:meta])* $list:ident: $item:ident by $id:ident;)*) => {
        impl Plan {$(
            #[doc = concat!("The ", stringify!($list), ", in the order of the file.")]
            $(#[$more])*
            pub fn $list(&self) -> &[$item] {
                &self.$list
            }
        )*}

        $(impl Index<$id> for Plan {
            type Output = $item;

            fn index(&self, id: $id) -> &$item {
                &self.$list[id.index()]
            }
        })*
    };
}

lists! {
    devices: Device by DeviceId;
    pools: Pool by PoolId;
    regions: Region by RegionId;
    lcores: Lcore by LcoreId;
    ports: Port by PortId;
    rings: Ring by RingId;
    injectors: Injector by InjectorId;
    spreads: Spread by SpreadId;
    /// Run them in [`Lcore::stages`]' order instead.
    stages: Stage by StageId;
}

/// `[device.NAME]`: a port of an RDMA device.
#[derive(Debug, Clone)]
pub struct Device {
    /// Its own id.
    pub id: DeviceId,
    /// The name in the plan.
    pub name: String,
    /// Where it is declared.
    pub span: Span,
    /// The stack that it belongs to.
    pub provider: Provider,
    /// The device's own name, e.g. `mlx5_0` or `soft0`. `None`: the only device of the provider
    /// whose port is active; `soft0` of the software devices, which are alike.
    pub device_name: Option<String>,
    /// The device's port, from 1.
    pub port_num: u8,
    /// Index into the port's GID table. `None`: the GID that reaches furthest, RoCE v2 by an IPv4
    /// address if there is one.
    pub gid_index: Option<u8>,
    /// The address of this host at which other processes and hosts reach a software device, by RoCE
    /// v2. `None`: the device reaches this process only.
    pub address: Option<IpAddr>,
}

/// `[pool.NAME]`: one region of memory, registered with one device and cut into packets.
#[derive(Debug, Clone)]
pub struct Pool {
    /// Its own id.
    pub id: PoolId,
    /// The name in the plan.
    pub name: String,
    /// Where it is declared.
    pub span: Span,
    /// The device that the pool is registered with.
    pub device: DeviceId,
    /// The number of packets.
    pub packets: u32,
    /// Room for data in each, behind the headroom.
    pub data_bytes: u32,
    /// Room in front of the data for headers to be prepended.
    pub headroom_bytes: u32,
    /// The pages that the pool is on.
    pub pages: Pages,
    /// The NUMA node that the pool is on, if the plan names one.
    pub node: Option<u32>,
    /// The most packets in each lcore's cache.
    pub cache_packets: u32,
    /// The lcores that packets of this pool can reach; each needs a cache of it.
    pub lcores: Vec<LcoreId>,
    /// The ports that can send packets of this pool.
    pub sent_by: Vec<PortId>,
}

/// `[region.NAME]`: memory that one stage owns, registered with one device, which work requests of
/// this end and of its peers reach by a key.
#[derive(Debug, Clone)]
pub struct Region {
    /// Its own id.
    pub id: RegionId,
    /// The name in the plan.
    pub name: String,
    /// Where it is declared.
    pub span: Span,
    /// The device that the region is registered with.
    pub device: DeviceId,
    /// Its length.
    pub len_bytes: u64,
    /// The pages that the region is on.
    pub pages: Pages,
    /// The NUMA node that the region is on, if the plan names one.
    pub node: Option<u32>,
    /// The rights that work requests have in it.
    pub rights: Rights,
    /// The owning stage; `None`: the region has no owner, and is not made.
    pub owner: Option<StageId>,
}

/// `[lcore.NAME]`: one thread, pinned to one CPU, with at most one completion queue.
#[derive(Debug, Clone)]
pub struct Lcore {
    /// Its own id.
    pub id: LcoreId,
    /// The name in the plan.
    pub name: String,
    /// Where it is declared.
    pub span: Span,
    /// The CPU, by the kernel's number. No other lcore has it, and this process may run on it.
    pub cpu: u32,
    /// The lcore's behaviour without work.
    pub idle: IdlePolicy,
    /// The most packets that are taken from a queue at once.
    pub burst_packets: u32,
    /// How long the lcore spins without work before it arms; `None`: it learns that from its
    /// arrivals.
    pub spin: Option<Duration>,
    /// The tolerated share of batches that find the lcore asleep, 0 to 1; `None`: the engine's
    /// default.
    pub late_share: Option<f64>,
    /// The longest time that the lcore spins without work, whatever it has learned; `None`: the
    /// engine's default.
    pub spin_max: Option<Duration>,
    /// How long the lcore stays in poll mode after a wake-up; `None`: as long as `spin`, or as a
    /// wake-up costs.
    pub dwell: Option<Duration>,
    /// Whether the lcore pauses for a moment after each turn without work in which it stays awake.
    pub pause: bool,
    /// The longest wait of received messages that are not solicited, and so do not wake a sleeping
    /// lcore; `None`: each message wakes it.
    pub unsolicited_wait: Option<Duration>,
    /// The longest time that the lcore drains at the stop.
    pub drain: Duration,
    /// The device of all its ports, and so of its completion queue; `None` without ports.
    pub device: Option<DeviceId>,
    /// The completion queue's depth: at least every work request that can complete into it; 0
    /// without ports.
    pub cq_depth_wc: u32,
    /// Its ports: ports of one queue pair first, then ports with many connections; otherwise in the
    /// order of the file.
    pub ports: Vec<PortId>,
    /// Its stages in topological order: each before the stages that it sends to.
    pub stages: Vec<StageId>,
    /// The rings that it takes packets from.
    pub rings_in: Vec<RingId>,
    /// The rings that it puts packets into.
    pub rings_out: Vec<RingId>,
    /// The pools that it needs a cache of.
    pub pools: Vec<PoolId>,
}

/// `[stage.NAME]`: an instance of a registered kind.
#[derive(Debug, Clone)]
pub struct Stage {
    /// Its own id.
    pub id: StageId,
    /// The name in the plan.
    pub name: String,
    /// Where it is declared.
    pub span: Span,
    /// The kind's name (`use = "…"`), which the catalog has.
    pub kind: String,
    /// The lcore that runs it.
    pub lcore: LcoreId,
    /// The pool of its fresh packets.
    pub pool: Option<PoolId>,
    /// The most timers that the stage has armed at once.
    pub timers_max: u32,
    /// The regions that the stage owns.
    pub regions: Vec<RegionId>,
    /// One target an output, in the order of the kind's `outputs`.
    pub outputs: Vec<Target>,
    /// Whether the stage asks for operations, by output.
    pub operates: Vec<bool>,
    /// The parameters for its factory.
    pub params: Params,
    /// The capacity of its input batch: large enough that nothing upstream on this lcore overflows
    /// it, even when stages release the packets that they hold.
    pub batch_packets: u32,
}
