//! The text about lcores and stages below their tables.

use verbline_engine::{HistogramReport, LcoreReport, StageReport};

use super::figures::{count, duration, percent};
use super::output::section;

/// The time that lcores spin before they sleep, and the causes that woke those that slept.
pub(super) fn sleepers(lcores: &[LcoreReport]) -> String {
    let spins = lcores.iter().filter(|lcore| lcore.policy == "adaptive").map(|lcore| {
        let from = match lcore.spin_from {
            "measured" => ", by what waking it was measured to cost",
            "disturbed" => ", by the least of what waking it cost, as other programs disturbed every measurement",
            _ => ", as the plan has it",
        };
        let spin = duration(lcore.spin_ns);
        let line = match lcore.late_share_max {
            None => format!("lcore {}: {spin}{from}", lcore.name),
            Some(most) => format!(
                "lcore {}: up to {spin}{from}; {} of batches found it asleep (within that, {} may)",
                lcore.name,
                percent(lcore.late_share()),
                percent(most)
            ),
        };
        ("spin", line)
    });
    let wakes = lcores.iter().filter(|lcore| lcore.sleeps > 0).map(|lcore| {
        let causes = lcore.wakes.iter().filter(|wake| wake.count > 0);
        let causes: Vec<_> = causes.map(|wake| format!("{} {}", wake.cause, count(wake.count))).collect();
        ("wakes", format!("lcore {}: {}", lcore.name, causes.join(", ")))
    });
    section(spins.chain(wakes))
}

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
    let counted = stages.iter().filter(|stage| !stage.counters.is_empty()).map(|stage| {
        let each = stage.counters.iter().map(|counter| format!("{} {}", counter.name, count(counter.value)));
        ("counters", format!("stage {}: {}", stage.name, each.collect::<Vec<_>>().join(", ")))
    });
    let timed = stages.iter().flat_map(|stage| {
        let own = stage.histograms.iter().filter(|own| own.times.count > 0);
        own.map(|HistogramReport { name, times }| {
            let shares = times_within([times.p50_ns, times.p99_ns, times.p999_ns].map(Some));
            let (times, most) = (count(times.count), duration(times.max_ns));
            ("times", format!("stage {}: {name} {times}, {shares}, all within {most}", stage.name))
        })
    });
    section(counted.chain(timed))
}

/// Requests of stages that were refused, with the remedies.
pub(super) fn unmet(stages: &[StageReport]) -> String {
    section(stages.iter().flat_map(|stage| {
        let packets = (stage.alloc_failed, "packets", "give it a `pool`, or that pool more `packets`");
        let timers = (stage.timers_refused, "timers", "raise its `timers_max`; a source that is done gets none");
        let unmet = [packets, timers].into_iter().filter(|(asked, ..)| *asked > 0);
        unmet.map(|(asked, what, remedy)| {
            ("refused", format!("stage {}: {what} {}: {remedy}", stage.name, count(asked)))
        })
    }))
}

/// The longest times of half, 99 and 99.9 in a hundred; `None` for unknown ones. The figures are
/// ends of bins, so that an app with more exact measurements shows smaller ones.
pub(super) fn times_within(ends_ns: [Option<u64>; 3]) -> String {
    let end = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), duration);
    let [half, p99, p999] = ends_ns.map(end);
    format!("half within {half}, 99 % within {p99}, 99.9 % within {p999}")
}
