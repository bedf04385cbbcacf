//! A TOML file to a validated plan.
#![forbid(unsafe_code)]

mod catalog;
mod de;
mod diag;
mod ids;
mod machine;
mod names;
mod params;
mod plan;
mod render;
mod source;
mod tree;

pub use catalog::{Catalog, StageKind};
pub use diag::{Diagnostic, Diagnostics, Severity};
pub use ids::{Consumer, DeviceId, LcoreId, PoolId, PortId, Producer, RingId, StageId, Target};
pub use machine::Machine;
pub use params::Params;
pub use plan::{
    Destination, Device, Group, Idle, Lcore, Pages, Plan, Pool, Port, Provider, Ring, Section, Stage, Transport,
};
pub use source::{Location, Span};
