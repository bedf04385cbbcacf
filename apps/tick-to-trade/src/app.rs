//! The app, as the command line runs it.

use verbline::prelude::*;

use crate::report;
use crate::stages::{self, Tally};

/// Tick-to-trade: an exchange publishes redundant market data, a trader answers with orders, and
/// the time between the two is measured.
#[derive(Debug, Default)]
pub struct TickToTrade {
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
