//! Tick-to-trade as it ships: the plan of `config/tick-to-trade.toml`, at another rate.

use std::path::Path;
use std::time::Duration;

use tick_to_trade::report;
use tick_to_trade::stages::{self, Tally};
use verbline::prelude::*;

use super::stages::finish;
use crate::Figures;

/// What the name of a step's share starts with.
pub const SHARE: &str = "share_";

/// How many lcores the plan has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Lcores {
    /// The exchange's and the trader's, as it ships.
    Two,
    /// One for both halves, on the second CPU: observers have the first.
    One,
}

impl Lcores {
    /// The shipped plan's text, with this number of lcores.
    fn plan(self, path: &Path) -> String {
        let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let trader = "[lcore.trader]\ncpu = \"allowed:1\"\nidle = \"adaptive\"\n";
        match self {
            Lcores::Two => text,
            Lcores::One => {
                assert!(text.contains(trader), "{} has another trader's lcore", path.display());
                let text = text.replace(trader, "").replace("lcore = \"trader\"", "lcore = \"exchange\"");
                text.replace("cpu = \"allowed:0\"", "cpu = \"allowed:1\"")
            }
        }
    }
}

/// Runs the plan for `time` with `ticks_per_second` messages a second (0: as fast as the channels
/// take them): `p50_ns`, `p99_ns`, `p999_ns` from the scheduled publish time to the order's
/// arrival; `share_…` of each step in the mean; `ticks_per_s` as published.
///
/// # Panics
/// If the plan does not load or the run fails.
pub fn tick_to_trade(ticks_per_second: u64, time: Duration) -> Figures {
    watched(Lcores::Two, ticks_per_second, |_, running| _ = running.wait(Some(time))).0
}

/// The same for as long as `watch` takes, with what that gives.
pub(crate) fn watched<T>(
    lcores: Lcores,
    ticks_per_second: u64,
    watch: impl FnOnce(&Plan, &Running) -> T,
) -> (Figures, T) {
    let tally = Tally::default();
    let mut registry = Registry::new("tick-to-trade");
    stages::register(&mut registry, &tally);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/tick-to-trade.toml");
    let set = format!("feed.ticks_per_second={ticks_per_second}");
    let text = lcores.plan(&path);
    let loader = Loader::new(registry.catalog(), Machine::detect()).sets([set]);
    let loaded = loader.load_str(&path.display().to_string(), &text);
    let plan = loaded.unwrap_or_else(|diagnostics| panic!("{diagnostics}"));
    let running = Runtime::build(&plan, &registry).and_then(Runtime::start).unwrap_or_else(|error| panic!("{error}"));
    let watched = watch(&plan, &running);
    let report = finish(running);
    let outcome = report::outcome(&report, &tally.lock()).json;
    let mut figures = Figures::default();
    for (name, key) in [("p50_ns", "p50"), ("p99_ns", "p99"), ("p999_ns", "p999")] {
        figures = figures.and(name, outcome["tick_to_trade_ns"][key].as_f64().unwrap_or(f64::NAN));
    }
    for step in outcome["steps"].as_array().into_iter().flatten() {
        let name = format!("{SHARE}{}", step["step"].as_str().unwrap_or("?").replace(' ', "_"));
        figures = figures.and(&name, step["share"].as_f64().unwrap_or(f64::NAN));
    }
    let ticks = outcome["ticks_published"].as_f64().unwrap_or(0.0);
    (figures.and("ticks_per_s", ticks * 1e9 / report.elapsed_ns as f64), watched)
}

/// How many ticks the exchange has published so far, and at which time of the run, in nanoseconds.
pub(crate) fn published(observer: &Observer) -> (u64, u64) {
    let report = observer.snapshot().expect("the run is not over");
    let exchange = report.stage("exchange").expect("the plan has an exchange");
    let ticks = exchange.counters.iter().find(|counter| counter.name == "ticks").expect("it counts its ticks");
    (ticks.value, report.elapsed_ns)
}
