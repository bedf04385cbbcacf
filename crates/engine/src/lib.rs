//! The engine runs a plan: pinned lcores poll, hand batches from stage to stage, and sleep when
//! there is nothing to do.
//!
//! - An app registers its kinds of [`Stage`] in a [`Registry`]. The plan is checked against the
//!   registry's [`Registry::catalog`].
//! - [`Runtime::build`] makes everything that the plan names, and [`Runtime::start`] runs it.
//!   [`Running::stop`] drains the run and returns a [`Report`] that accounts for every packet.
//! - A stage reaches its lcore through [`Outputs`]: its outputs, its pool, the time, its timers. It
//!   hears of changes of ports ([`Stage::port_event`]) and of due timers ([`Stage::timers`]).
//!
//! One lcore whose source hands a thousand packets to a sink:
//!
//! ```
//! use std::time::Duration;
//!
//! use verbline_engine::{Next, OutId, Outputs, Registry, Runtime, Stage, StageSpec};
//! use verbline_mem::Batch;
//! use verbline_plan::{Loader, Machine};
//!
//! struct Source(u32);
//!
//! impl Stage for Source {
//!     fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
//!         for _ in 0..out.room(OutId(0)).min(self.0 as usize) {
//!             let Some(packet) = out.alloc() else { break };
//!             out.send(OutId(0), packet);
//!             self.0 -= 1;
//!         }
//!         if self.0 == 0 { Next::Done } else { Next::Busy }
//!     }
//! }
//!
//! struct Sink;
//!
//! impl Stage for Sink {
//!     fn process(&mut self, input: &mut Batch, _: &mut Outputs<'_>) {
//!         input.clear(); // back to their pool
//!     }
//! }
//!
//! let mut registry = Registry::new("count");
//! let source = StageSpec { outputs: &["packets"], source: true, ..StageSpec::default() };
//! registry.stage("source", source, |_| Ok(Box::new(Source(1_000))));
//! registry.stage("sink", StageSpec::default(), |_| Ok(Box::new(Sink)));
//!
//! let plan = r#"
//!     name = "count"
//!     [device.nic]
//!     provider = "soft"
//!     name = "soft0"
//!     [pool.packets]
//!     device = "nic"
//!     packets = 512
//!     data_bytes = 256
//!     [lcore.main]
//!     cpu = "allowed:0"
//!     [stage.source]
//!     use = "source"
//!     lcore = "main"
//!     pool = "packets"
//!     out = { packets = "stage.sink" }
//!     [stage.sink]
//!     use = "sink"
//!     lcore = "main"
//! "#;
//! let plan = Loader::new(registry.catalog(), Machine::detect()).load_str("count.toml", plan)?;
//! let running = Runtime::build(&plan, &registry)?.start()?;
//! running.wait(Some(Duration::from_secs(10))); // or until the source is done
//! let report = running.stop()?;
//! assert_eq!(report.stage("sink").map(|sink| sink.packets_in), Some(1_000));
//! assert_eq!(report.packets.held, 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! After [`Runtime::start`] nothing is allocated, and no lcore waits for another: a packet without
//! room is dropped, and counted by place and [`DropReason`].

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
pub mod testing;
mod trace;
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
pub use control::change::ChangeOutcome;
pub use control::panic_hook::panic_hook_is_prompt;
pub use errors::error::{Cause, EngineError, Place, StageError};
pub use errors::stuck::Stuck;
#[cfg(feature = "simulation")]
pub use idle::simulation;
pub use operations::declined::{Accepted, DeclineReason, Declined};
pub use operations::operation::{Completed, Done, Operation, OperationError, immediate, invalidated_key};
pub use operations::region::{Region, RegionAccessError};
pub use operations::send_with::{SendFailure, SendWith, send_result};
pub use operations::signature;
pub use run::capture::Capture;
pub use run::change::ChangedPort;
pub use run::observer::Observer;
pub use run::pause::PausedPort;
pub use run::runtime::{Interrupter, Running, Runtime};
pub use run::stop::{Ended, STOP_LIMIT};
pub use run::trace::{Trace, TracePlace};
pub use setup::select_device::gid as preferred_gid;
pub use stats::clock::{Clock, Tick};
pub use stats::connection_counters::ConnectionsReport;
pub use stats::counter::Counter;
pub use stats::counters::{InjectorReport, LcoreReport, PortReport, RingReport, StageReport};
pub use stats::drop_reason::{DropReason, STAGE_REASONS_MAX};
pub use stats::operations::{OperationReport, OperationsReport};
pub use stats::own_figures::{CounterReport, HistogramReport};
pub use stats::report::{
    ConnectionReport, ConnectionState, DropReport, EventReport, FailureReport, HolderReport, PacketReport, PoolReport,
    REPORT_VERSION, Report,
};
pub use stats::status::StatusReport;
pub use stats::times::{Histogram, TimeBin, TimesReport};
pub use stats::wakes::WakeReport;
pub use stats::warnings::Warning;
pub use stats::wire::{DatagramsReport, IncidentsReport, WireReport};
pub use trace::event::{TraceEvent, TraceKind};
pub use trace::spec::{TraceError, TraceSpec};
pub use verbline_plan::{OperationKind, OutputOperations, OutputPrepends, OutputSends, Rights, SendOption, StageSpec};
pub use verbline_verbs::connection::ConnParam;
pub use verbline_verbs::expert::{SgEntry, SgList, SgListFull};
pub use verbline_verbs::rdma::{KeptRegion, KeptWindow, Local, Part, Remote, Span, Word, WorkMemory};
pub use verbline_verbs::{Endpoint, Gid, PostStop, Status, Transport};
pub use waiting::fds::{FdId, FdInterest, FdNext, FdReady};
pub use waiting::wheel::{DueTimer, TimerId};
