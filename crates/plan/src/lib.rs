//! Loads a TOML file into a validated plan.
//!
//! A plan declares the pinned lcores, the queue pairs that each owns, the stages that run there,
//! and the edges along which packets move. [`Loader`] reads one against a [`Catalog`] (the
//! application's stage kinds and sections) and a [`Machine`] (its CPUs, memory and limits), and
//! returns a [`Plan`] or *all* its faults as [`Diagnostics`], each with its place, the line and a
//! suggestion.
//!
//! A [`Plan`] proves:
//! - every name is known, every reference resolved, every value in its range; no key was ignored;
//! - packets move between lcores over rings only, each ring with one consumer and a queue of its
//!   own for each lcore that fills it, and never in a circle;
//! - each pool has a packet for every place that can own one at once, each completion queue room
//!   for every work request that can complete into it, each stage as many timers as it can arm, and
//!   the memory is there ([`Plan::explain`] prints these sums with the lines that they come from);
//! - the plan's tables offer each stage the operations, send options and rights that its kind needs
//!   of outputs and regions.
//!
//! A connected port's other end is another port of the plan (`peer = "port.NAME"`), or a peer with
//! an address. With `connect = "10.9.9.1:4420"` the port connects to the peer that listens there;
//! with `listen = "10.9.9.1:4420"` it accepts the first peer that connects. RC only;
//! `connect_timeout = "30s"` bounds the wait at the start of a run. A connection that is lost later
//! is reconnected unless `reconnect = false`. A plan may have one end or both.
//!
//! A device needs `provider` ("soft" or "kernel") only. Without a `name` it is the provider's only
//! device whose port is active; if several are, the run is refused and lists their names. (Software
//! devices are alike: the first is taken.) `port` is 1 by default. Without a `gid_index` queue
//! pairs use the GID that reaches furthest: RoCE v2 by an IPv4 address, by an IPv6 address, by a
//! link-local one, InfiniBand, RoCE v1. The plan doesn't look at devices: the engine chooses as it
//! opens them, and logs its choice.
//!
//! A software device reaches this process only, unless it has an `address` of this host. At that
//! address it speaks RoCE v2 with other processes and hosts, by UDP port 4791.
//!
//! The text is parsed into private raw shapes. `--set KEY=VALUE` overrides apply before any check,
//! and faults that they cause point at them. No text makes the loader panic: it is fuzzed.
//!
//! ```
//! use verbline_plan::{Catalog, Loader, Machine, StageKind, StageSpec};
//!
//! let spec = StageSpec { summary: "counts packets", ..StageSpec::default() };
//! let count = StageKind { name: "count", spec, needs: None };
//! let catalog = Catalog { kinds: vec![count], ..Catalog::default() };
//! let machine = Machine { cpus: [0].into(), ..Machine::detect() };
//! let text = r#"
//!     [device.nic]
//!     provider = "soft"
//!     name = "soft0"
//!
//!     [pool.packets]
//!     device = "nic"
//!     packets = 1024
//!     data_bytes = 2048
//!
//!     [lcore.worker]
//!     cpu = 0
//!
//!     [port.feed]
//!     lcore = "worker"
//!     device = "nic"
//!     pool = "packets"
//!     transport = "ud"
//!     join = ["239.1.1.1"]
//!     rx_depth_wr = 512
//!     next = "stage.count"
//!
//!     [stage.count]
//!     use = "count"
//!     lcore = "worker"
//! "#;
//! let plan = Loader::new(catalog.clone(), machine.clone()).load_str("feed.toml", text)?;
//! assert_eq!(plan.lcores()[0].cq_depth_wc, 512);
//!
//! let faults = Loader::new(catalog, machine).sets(["stage.count.use=cuont"]).load_str("feed.toml", text).unwrap_err();
//! let fault = faults.iter().next().unwrap();
//! assert_eq!((fault.code(), fault.help_texts()[0].as_str()), ("unknown-kind", "did you mean `count`?"));
//! # Ok::<(), verbline_plan::Diagnostics>(())
//! ```
#![forbid(unsafe_code)]

mod catalog;
mod check;
mod choices;
mod diag;
mod draw;
mod ids;
mod limits;
mod load;
mod machine;
mod plan;
mod read;
mod sums;
mod text;

pub use catalog::outputs::OutputPrepends;
pub use catalog::outputs::{OperationKind, OutputOperations};
pub use catalog::outputs::{OutputSends, SendOption};
pub use catalog::stage_needs::{Asked, Needs, NeedsFn, RegionNeed, SendsNeed};
pub use catalog::{AppTable, Catalog, StageKind, StageSpec};
pub use choices::{Destination, Group, IdlePolicy, Pages, Placement, Provider, Rights, SpreadBy, Transport, WhenFull};
pub use diag::diagnostics::{Diagnostic, Diagnostics, Severity};
pub use diag::source::{Location, Span};
pub use draw::graph::Drawing;
pub use ids::{
    Consumer, DeviceId, InjectorId, LcoreId, PoolId, PortId, Producer, RegionId, RingId, SpreadId, StageId, Target,
};
pub use limits::{TIMER_BYTES, TIMERS_MAX};
pub use load::{Inspection, Loader, app_of};
pub use machine::note::{Lack, Note};
pub use machine::{CpuQuota, Hugepages, Machine, MemoryGrant, Numa};
pub use plan::changes::{KeyChange, PortChange, Taking};
pub use plan::links::{Injector, Lane, Ring, Spread};
pub use plan::nodes::{Home, Nodes};
pub use plan::port::{Acceptor, AlternatePath, Attributes, Connections, Port, Retries};
pub use plan::{Device, Lcore, Plan, Pool, Region, Stage};
pub use read::reference::{KeyReference, TableReference, app_reference, reference};
pub use read::schema::schema;
pub use sums::descriptors::OpensBeside;
pub use sums::sum::{Limit, Sum, Term};
pub use text::duration;
pub use text::file::is_stdin;
pub use text::keys::{AppKey, Keys, undeclared};
pub use text::params::Params;
