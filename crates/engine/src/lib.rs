//! A plan, running: pinned lcores that poll, hand batches from stage to stage, and sleep when there is nothing to do.
//!
//! - An app registers its kinds of [`Stage`] in a [`Registry`], whose [`Registry::catalog`] the plan is checked against.
//! - [`Runtime::build`] makes all that the plan names; [`Runtime::start`] runs it; [`Running::stop`] drains it and
//!   gives a [`Report`] in which every packet is accounted for.
//! - A stage sees its lcore through [`Outputs`]: its outputs, its pool, the time; what happens to ports, it is told
//!   ([`Stage::port_event`]).
//!
//! After [`Runtime::start`] nothing is allocated, and no lcore waits for another: what does not fit is dropped and
//! counted by place and [`DropReason`].

#![forbid(unsafe_code)]

mod bells;
mod build;
mod clock;
mod connect;
mod control;
mod devices;
mod dial;
mod drops;
mod error;
mod events;
mod handover;
mod health;
mod idle;
mod keeper;
mod kernel;
mod lcore;
mod links;
mod node;
mod outputs;
mod pick;
mod port;
mod registry;
mod report;
mod rings;
mod runtime;
mod sampling;
mod sleep;
#[cfg(test)]
mod sleep_model;
mod snapshot;
mod stage;
mod start;
mod stats;
mod stop;
mod turn_time;
mod verdict;
mod wake;
mod wake_cost;
mod warnings;

pub use clock::{Clock, Tick};
pub use drops::{DropReason, STAGE_REASONS_MAX};
pub use error::{Cause, EngineError, Place};
pub use outputs::{OutId, Outputs};
pub use pick::gid as preferred_gid;
pub use registry::{Registry, StageContext, StageError};
pub use report::{
    ConnectionReport, ConnectionState, CounterReport, DropReport, EventReport, FailureReport, HolderReport,
    LcoreReport, PacketReport, PoolReport, PortReport, REPORT_VERSION, Report, RingReport, StageReport, StatusReport,
    WakeReport,
};
pub use runtime::{Interrupter, Running, Runtime};
pub use stage::{Next, PortChange, PortEvent, Stage, StageSpec};
pub use stats::Counter;
pub use stop::Ended;
pub use warnings::Warning;
