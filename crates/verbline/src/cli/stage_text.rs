//! The text about stages below their table.

use std::fmt::Write as _;

use verbline_engine::{HistogramReport, StageReport};

use super::figures::{count, duration};
use super::output::labelled;

/// The source of the figures in the stages' table, to be shown below it.
pub(super) fn sampled(stages: &[StageReport]) -> &'static str {
    if stages.is_empty() {
        "\n"
    } else {
        "ns/pkt and of busy are estimates from one call in 16; ± is their standard error\n\n"
    }
}

/// The stages' own counts and measurements.
pub(super) fn own_figures(stages: &[StageReport]) -> String {
    let counted = stages.iter().filter(|stage| !stage.counters.is_empty());
    let mut text = String::new();
    for stage in counted {
        let each = stage.counters.iter().map(|counter| format!("{} {}", counter.name, count(counter.value)));
        let line = format!("stage {}: {}", stage.name, each.collect::<Vec<_>>().join(", "));
        let _ = writeln!(text, "{}", labelled("counters", &line));
    }
    for stage in stages {
        for HistogramReport { name, times } in stage.histograms.iter().filter(|own| own.times.count > 0) {
            let shares = times_within([times.p50_ns, times.p99_ns, times.p999_ns].map(Some));
            let most = duration(times.max_ns);
            let line = format!("stage {}: {name} {}, {shares}, all within {most}", stage.name, count(times.count));
            let _ = writeln!(text, "{}", labelled("times", &line));
        }
    }
    if !text.is_empty() {
        text.push('\n');
    }
    text
}

/// Requests of stages that were refused, with the remedies.
pub(super) fn unmet(stages: &[StageReport]) -> String {
    let mut text = String::new();
    for stage in stages {
        let packets = (stage.alloc_failed, "packets", "give it a `pool`, or that pool more `packets`");
        let timers = (stage.timers_refused, "timers", "raise its `timers_max`; a source that is done gets none");
        for (asked, what, remedy) in [packets, timers].into_iter().filter(|(asked, ..)| *asked > 0) {
            let line = format!("stage {}: {what} {}: {remedy}", stage.name, count(asked));
            let _ = writeln!(text, "{}", labelled("refused", &line));
        }
    }
    if !text.is_empty() {
        text.push('\n');
    }
    text
}

/// The longest times of half, 99 and 99.9 in a hundred; `None` for unknown ones. The figures are
/// ends of bins, so that an app with more exact measurements shows smaller ones.
pub(super) fn times_within(ends_ns: [Option<u64>; 3]) -> String {
    let end = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), duration);
    let [half, p99, p999] = ends_ns.map(end);
    format!("half within {half}, 99 % within {p99}, 99.9 % within {p999}")
}
