//! A plan, running: pinned lcores that poll, hand batches from stage to stage, and sleep when there is nothing to do.
//!
//! - An app registers its kinds of [`Stage`] in a [`Registry`], whose [`Registry::catalog`] the plan is checked
//!   against.
//! - [`Runtime::build`] makes all that the plan names; [`Runtime::start`] runs it; [`Running::stop`] drains it and
//!   gives a [`Report`] in which every packet is accounted for.
//! - A stage sees its lcore through [`Outputs`]: its outputs, its pool, the time; what happens to ports, it is told
//!   ([`Stage::port_event`]).
//!
//! After [`Runtime::start`] nothing is allocated, and no lcore waits for another: what does not fit is dropped and
//! counted by place and [`DropReason`].

#![forbid(unsafe_code)]

mod api;
mod build;
mod connection;
mod control;
mod idle;
mod lcore;
#[cfg(test)]
mod rig;
mod run;
mod stats;

pub use api::error::{Cause, EngineError, Place};
pub use api::outputs::{OutId, Outputs};
pub use api::registry::{Registry, StageContext, StageError};
pub use api::stage::{Next, PortChange, PortEvent, Stage};
pub use build::select_device::gid as preferred_gid;
pub use run::runtime::{Interrupter, Running, Runtime};
pub use run::stop::Ended;
pub use stats::clock::{Clock, Tick};
pub use stats::count::Counter;
pub use stats::counters::{CounterReport, LcoreReport, PortReport, RingReport, StageReport, StatusReport, WakeReport};
pub use stats::drop_reason::{DropReason, STAGE_REASONS_MAX};
pub use stats::report::{
    ConnectionReport, ConnectionState, DropReport, EventReport, FailureReport, HolderReport, PacketReport, PoolReport,
    REPORT_VERSION, Report,
};
pub use stats::warnings::Warning;
pub use verbline_plan::StageSpec;
