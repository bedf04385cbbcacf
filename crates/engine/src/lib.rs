//! The engine runs a plan: pinned lcores poll, hand batches from stage to stage, and sleep when
//! there is nothing to do.
//!
//! - An app registers its kinds of [`Stage`] in a [`Registry`]. The plan is checked against the
//!   registry's [`Registry::catalog`].
//! - [`Runtime::build`] makes everything that the plan names, and [`Runtime::start`] runs it.
//!   [`Running::stop`] drains the run and returns a [`Report`] that accounts for every packet.
//! - A stage reaches its lcore through [`Outputs`]: its outputs, its pool, the time, its timers. It
//!   is told what happens to ports ([`Stage::port_event`]) and which timers are due
//!   ([`Stage::timers`]).
//!
//! After [`Runtime::start`] nothing is allocated, and no lcore waits for another: a packet that
//! does not fit is dropped, and counted by place and [`DropReason`].

#![forbid(unsafe_code)]

mod api;
mod capture;
mod connection;
mod control;
mod errors;
mod idle;
mod lcore;
mod operations;
mod ports;
#[cfg(test)]
mod rig;
mod run;
mod setup;
mod stats;
mod waiting;

pub use api::context::StageContext;
pub use api::injector::{Injector, Refused};
pub use api::opening::Opening;
pub use api::outputs::{OutId, Outputs};
pub use api::registry::{Registry, RequestData};
pub use api::spread::place_of_key;
pub use api::stage::{Next, PortChange, PortEvent, Stage};
pub use capture::spec::{CaptureError, CaptureFilter, CaptureSpec};
pub use capture::tap::{CaptureDirection, CapturePath, Captured};
pub use connection::acceptor::{
    Acceptor, AcceptorContext, AcceptorPlace, Answer, AnswerError, ConnectionPeer, ConnectionRequest,
};
pub use connection::event::{ConnectionChange, ConnectionEvent, ConnectionId};
pub use control::panic_hook::panic_hook_is_prompt;
pub use errors::error::{Cause, EngineError, Place, StageError};
pub use errors::stuck::Stuck;
#[cfg(feature = "simulation")]
pub use idle::simulation;
pub use operations::operation::{
    Accepted, Completed, DeclineReason, Declined, Done, Memory, Operation, OperationError, OperationKind, Window, Word,
    immediate, invalidated_key,
};
pub use operations::region::{Range, Region, RegionAccessError};
pub use operations::signature;
pub use run::capture::Capture;
pub use run::observer::Observer;
pub use run::runtime::{Interrupter, Running, Runtime};
pub use run::stop::{Ended, STOP_LIMIT};
pub use setup::select_device::gid as preferred_gid;
pub use stats::clock::{Clock, Tick};
pub use stats::connection_counters::ConnectionsReport;
pub use stats::count::Counter;
pub use stats::counters::{
    CounterReport, InjectorReport, LcoreReport, PortReport, RingReport, StageReport, StatusReport,
};
pub use stats::drop_reason::{DropReason, STAGE_REASONS_MAX};
pub use stats::operations::{OperationReport, OperationsReport};
pub use stats::report::{
    ConnectionReport, ConnectionState, DropReport, EventReport, FailureReport, HolderReport, PacketReport, PoolReport,
    REPORT_VERSION, Report,
};
pub use stats::wakes::WakeReport;
pub use stats::warnings::Warning;
pub use stats::wire::{DatagramsReport, WireReport};
pub use verbline_plan::{OutputOperations, Rights, StageSpec};
pub use verbline_verbs::connection::ConnParam;
pub use verbline_verbs::rdma::Remote;
pub use verbline_verbs::{Endpoint, Gid, PostStop, Status, Transport};
pub use waiting::fds::{FdId, FdInterest, FdNext, FdReady};
pub use waiting::wheel::{DueTimer, TimerId};
