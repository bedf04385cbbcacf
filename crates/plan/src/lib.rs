//! A TOML file to a validated plan.
#![forbid(unsafe_code)]

mod build;
mod catalog;
mod de;
mod diag;
mod draw;
mod flow;
mod graph;
mod groups;
mod ids;
mod lcores;
mod load;
mod machine;
mod memory;
mod names;
mod order;
mod params;
mod plan;
mod ports;
mod raw;
mod read;
mod refs;
mod render;
mod rings;
mod set;
mod source;
mod sums;
mod syntax;
mod tree;
mod unused;

pub use catalog::{Catalog, StageKind};
pub use diag::{Diagnostic, Diagnostics, Severity};
pub use graph::Drawing;
pub use ids::{Consumer, DeviceId, LcoreId, PoolId, PortId, Producer, RingId, StageId, Target};
pub use load::{Inspection, Loader};
pub use machine::Machine;
pub use params::Params;
pub use plan::{
    Destination, Device, Group, Idle, Lcore, Pages, Plan, Pool, Port, Provider, Ring, Section, Stage, Transport,
};
pub use source::{Location, Span};
pub use sums::{Limit, Sum, Term};
