//! Verbline: a kernel-bypass, poll-mode data plane on RDMA verbs.
//!
//! An embedder depends on this crate. It re-exports the items that a stage and a program with a
//! plan need ([`prelude`]), and holds the command line that every app shares ([`cli`]).
//!
//! A plan (TOML) declares pinned lcores, the queue pairs that each owns, and the stages that
//! packets pass through. The app registers the kinds of its stages; [`Runtime`](engine::Runtime)
//! proves the plan, lays out memory, and runs it. A test calls one stage without a run
//! ([`testing`]).
//!
//! # Example
//!
//! A plan in a string, two kinds of stages, a run, a report
//! (`cargo run -p verbline --example echo`):
//!
//! ```
#![doc = include_str!("../examples/echo.rs")]
//! ```
#![forbid(unsafe_code)]

pub mod cli;

pub use verbline_engine as engine;
pub use verbline_engine::testing;
pub use verbline_mem as mem;
pub use verbline_plan as plan;
pub use verbline_verbs as verbs;

/// The imports at the top of an app's source.
pub mod prelude {
    pub use crate::cli::{App, Outcome};
    pub use verbline_engine::{
        ConnectionChange, ConnectionEvent, ConnectionId, Counter, DropReason, DueTimer, Ended, FdId, FdInterest,
        FdNext, FdReady, Histogram, Injector, Interrupter, Next, Observer, OutId, Outputs, PortChange, PortEvent,
        Registry, Report, Running, Runtime, Stage, StageContext, StageError, StageSpec, Tick, TimerId,
    };
    pub use verbline_mem::{Batch, Packet};
    pub use verbline_plan::{AppKey, Keys, Loader, Machine, Plan};
}
