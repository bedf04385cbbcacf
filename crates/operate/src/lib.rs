//! Observing a running plan from outside.
//!
//! - [`Operate`] listens on a control socket, and at an HTTP address if the plan has one, and
//!   answers from snapshots of the run ([`verbline_engine::Observer`]).
//! - [`client`] finds and queries the runs of this user; [`client_report`] holds the answers,
//!   [`change`] their differences; [`awake`] explains why an lcore is awake.
//! - [`capture`] streams copies of the packets at a run's ports, as pcapng; [`trace`] streams the
//!   activity of its lcores, and finds each packet's way in that; a run keeps its slowest packets
//!   itself if its plan says so ([`TraceSettings`]).
//! - [`metrics`] writes a snapshot in Prometheus' formats.
//!
//! ```no_run
//! use verbline_operate::client::{Client, find};
//!
//! // Every run of this user, whatever its app.
//! for run in find()? {
//!     let report = Client::connect(&run.path)?.report()?;
//!     println!("{}: {}", run.hello?.plan, report["packets"]);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `docs/operate.md` describes the protocol.
//!
//! Guarantees: no cache line of an lcore is written; one thread serves all clients and waits for
//! none of them; the resources of one client are bounded in bytes, time and number; a client that
//! stalls or lies is dropped. Other users are served only what the plan publishes by HTTP.
#![forbid(unsafe_code)]

mod asks;
pub mod awake;
pub mod capture;
pub mod change;
pub mod client;
pub mod client_report;
pub mod metrics;
pub mod protocol;
pub mod trace;

mod client_session;
mod grant;
mod graph;
mod heap;
mod http;
mod incoming;
mod keeper;
mod listener;
mod operate;
mod page;
mod place;
mod room;
mod server;
mod snapshot_cache;
mod stream;

pub use asks::{CaptureAsk, FilterAsk, TraceAsk};
pub use heap::write_heap_room;
pub use metrics::settings::MetricsSettings;
pub use operate::{Operate, OperateError, Options, SocketChoice, opens_beside};
pub use place::NoPlace;
pub use snapshot_cache::LogControl;
pub use trace::settings::TraceSettings;
