//! Ping-pong: SENDs of N bytes back and forth between two lcores over one connected pair of queue
//! pairs, and the time of half a round trip.
//!
//! `config/pingpong.toml` is the plan. `--set lcore.ping.idle=event --set lcore.pong.idle=event`
//! measures wake-ups; `--set pingpong.window=32` measures the message rate.
#![forbid(unsafe_code)]

mod results;
mod stages;

use verbline::prelude::*;

use results::Results;

/// The app: its stages, and its report.
#[derive(Debug, Default)]
pub struct PingPong {
    results: Results,
}

impl App for PingPong {
    fn name(&self) -> &'static str {
        "pingpong"
    }

    fn about(&self) -> &'static str {
        "SEND back and forth between two lcores: half the round trip, and the message rate"
    }

    fn register(&self, registry: &mut Registry) {
        stages::register(registry, &self.results);
    }

    fn live(&self, report: &Report) -> String {
        results::live(report)
    }

    fn outcome(&self, report: &Report) -> Outcome {
        self.results.outcome(report)
    }
}
