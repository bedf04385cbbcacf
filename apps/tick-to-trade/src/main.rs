//! Tick-to-trade: an exchange publishes redundant market data, a trader answers with orders, and
//! the time between the two is measured.
//!
//! `config/tick-to-trade.toml` generates NASDAQ TotalView-ITCH; `config/moex-replay.toml` plays a
//! recorded FAST feed.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use tick_to_trade::report;
use tick_to_trade::stages::{self, Tally};
use verbline::prelude::*;

#[derive(Default)]
struct TickToTrade {
    tally: Tally,
}

impl App for TickToTrade {
    fn name(&self) -> &'static str {
        "tick-to-trade"
    }

    fn about(&self) -> &'static str {
        "market data in, orders out, and the latency of every step between"
    }

    fn register(&self, registry: &mut Registry) {
        stages::register(registry, &self.tally);
    }

    fn live(&self, report: &Report) -> String {
        report::live(report)
    }

    fn outcome(&self, report: &Report) -> Outcome {
        report::outcome(report, &self.tally.lock())
    }
}

fn main() -> ExitCode {
    verbline::cli::main(&TickToTrade::default())
}
