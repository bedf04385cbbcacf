//! A key-value server on Verbline, and its load generator.
//!
//! A server has shards, each a stage with a table in a region of its own. A request goes to the
//! shard of its key. A client learns by `Locate` where the tables are, and can then read a value by
//! RDMA READ instead, without the server's CPU.
//!
//! `config/kv.toml` runs both in one process, on the software RNIC.
#![forbid(unsafe_code)]

mod client;
mod protocol;
mod results;
mod server;
mod settings;
mod table;

use verbline::cli::{served, so_far};
use verbline::prelude::*;

use results::Results;

/// The app: its stages, and its report.
#[derive(Debug, Default)]
pub struct KeyValue {
    results: Results,
}

impl App for KeyValue {
    fn name(&self) -> &'static str {
        "kv"
    }

    fn about(&self) -> &'static str {
        "a key-value server whose tables clients can read by RDMA, and its load generator"
    }

    fn register(&self, registry: &mut Registry) {
        server::register(registry);
        client::register(registry, &self.results);
    }

    fn live(&self, report: &Report) -> String {
        match report.stages.iter().any(|stage| stage.counter("operations").is_some()) {
            true => so_far(report, "operations", "operations"),
            false => served(report, "routed", "requests", "connections"),
        }
    }

    fn outcome(&self, report: &Report) -> Outcome {
        results::outcome(&self.results, report)
    }
}
