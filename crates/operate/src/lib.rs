//! A running plan, seen from outside.
//!
//! - [`Operate`] listens on a control socket, and where the plan says so at an HTTP address, and
//!   answers from snapshots of the run ([`verbline_engine::Observer`]).
//! - [`client`] finds the runs of this user and asks them; [`seen`] holds the answers,
//!   [`change`] their differences; [`awake`] says why an lcore is awake.
//! - [`capture`] streams copies of what passes a run's ports, as pcapng.
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
//! Guarantees: no lcore's line is written; one thread serves all clients and waits for none of
//! them; what one client can hold is bounded in bytes, time and number; a client that stalls or
//! lies is dropped. Nothing is served to another user but what the plan publishes by HTTP.
#![forbid(unsafe_code)]

pub mod awake;
pub mod capture;
pub mod change;
pub mod client;
pub mod metrics;
pub mod protocol;
pub mod seen;

mod capture_ask;
mod grant;
mod graph;
mod http;
mod listener;
mod operate;
mod peer;
mod place;
mod server;
mod told;

pub use capture_ask::{CaptureAsk, FilterAsk};
pub use metrics::settings::MetricsSettings;
pub use operate::{Operate, OperateError, Options, SocketChoice};
pub use place::NoPlace;
