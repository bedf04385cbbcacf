//! Tick-to-trade as shipped: the plan of `config/tick-to-trade.toml`, at another rate.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use tick_to_trade::report;
use tick_to_trade::stages::{self, Tally};
use verbline::engine::{TimeBin, TimesReport};
use verbline::prelude::*;

use super::stages::finish;
use crate::Figures;

/// The prefix of a step's share.
pub const SHARE: &str = "share_";

/// The number of the plan's lcores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Lcores {
    /// The exchange's and the trader's, as shipped.
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

/// Runs the plan for `time` with `ticks_per_second` messages per second (0: as fast as the channels
/// take them): `p50_ns`, `p99_ns`, `p999_ns` from the scheduled publish time to the order's
/// arrival; `share_…` of each step in the mean; `ticks_per_s` as published.
///
/// # Panics
/// If the plan does not load or the run fails.
pub fn tick_to_trade(ticks_per_second: u64, time: Duration) -> Figures {
    watched(Lcores::Two, ticks_per_second, |_, running| _ = running.wait(Some(time))).0
}

/// Like [`tick_to_trade`], for as long as `watch` takes; also returns its result.
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

/// The exchange's counts so far.
pub(crate) struct ExchangeSeen {
    /// The time of the run, in nanoseconds.
    pub(crate) at_ns: u64,
    /// The ticks published.
    pub(crate) ticks: u64,
    /// The times from ticks to their orders.
    pub(crate) tick_to_trade: TimesReport,
}

pub(crate) fn seen(observer: &Observer) -> ExchangeSeen {
    let report = observer.snapshot().expect("the run is not over");
    let exchange = report.stage("exchange").expect("the plan has an exchange");
    let ticks = exchange.counter("ticks").expect("it counts its ticks");
    let own = exchange.histograms.first().expect("it measures its orders");
    ExchangeSeen { at_ns: report.elapsed_ns, ticks, tick_to_trade: own.times.clone() }
}

/// Times of orders of several moments, by the upper ends of their bins.
#[derive(Debug, Default)]
pub(crate) struct OrderTimes(BTreeMap<u64, u64>);

impl OrderTimes {
    /// Adds the orders between two snapshots.
    pub(crate) fn add_between(&mut self, before: &TimesReport, after: &TimesReport) {
        for TimeBin { below_ns, count } in &after.bins {
            let had = before.bins.iter().find(|bin| bin.below_ns == *below_ns).map_or(0, |bin| bin.count);
            *self.0.entry(*below_ns).or_default() += count - had;
        }
    }

    /// The time within which this share of the orders arrived, assuming an even spread within a
    /// bin. A bin is a quarter of its octave.
    pub(crate) fn quantile_ns(&self, share: f64) -> f64 {
        let mut left = self.0.values().sum::<u64>() as f64 * share;
        for (below_ns, count) in self.0.iter().map(|(below_ns, count)| (*below_ns, *count as f64)) {
            if left <= count {
                let width_ns = (1_u64 << below_ns.saturating_sub(1).max(4).ilog2()) as f64 / 4.0;
                return below_ns as f64 - width_ns * (1.0 - left / count);
            }
            left -= count;
        }
        f64::NAN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_of_moments_lies_within_its_bin() {
        let bins = |counts: [u64; 2]| {
            let bins = counts.into_iter().zip([1_024, 1_280]).map(|(count, below_ns)| TimeBin { below_ns, count });
            TimesReport { bins: bins.collect(), ..TimesReport::default() }
        };
        let mut times = OrderTimes::default();
        assert!(times.quantile_ns(0.5).is_nan());
        times.add_between(&bins([5, 1]), &bins([55, 1]));
        times.add_between(&TimesReport::default(), &bins([0, 50]));
        // The first bin begins at 896, the second at 1,024.
        assert_eq!([0.25, 0.5, 0.75].map(|share| times.quantile_ns(share)), [960.0, 1_024.0, 1_152.0]);
    }
}
