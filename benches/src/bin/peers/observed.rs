//! The cost of observing a run, beside not observing it.

use crate::contender::Contender;
use crate::group::Group;
use crate::row::{Goal, Row, Source};

use Goal::{RatioAtLeast, RatioAtMost};
use Source::Figure;

/// Pairs of moments in a round: a tenth of a second each at full rate, a second at the plan's rate.
const PAIRS_AT_FULL_RATE: usize = 200;
const PAIRS_AT_PLANS_RATE: usize = 14;

/// The observers besides `top`, a scraper and the page: their flag, and a description.
const ALONE: (&str, &str) = ("", "looked at by `top`, a scraper and the live page");
const KEPT: (&str, &str) =
    (" --one-in 128", "looked at likewise, while the run itself keeps its slowest packets, of one millisecond in 128");
const TRACED: (&str, &str) =
    (" --traced", "looked at likewise, and by `trace --last 1m`, which keeps the slowest packets");

/// The names of the two rows, the observers, and whether a CPU is left for them.
const KINDS: [(&str, &str, (&str, &str), bool); 6] = [
    ("observed-rate", "observed-p99", ALONE, true),
    ("kept-rate", "kept-p99", KEPT, true),
    ("traced-rate", "traced-p99", TRACED, true),
    ("observed-crowded-rate", "observed-crowded-p99", ALONE, false),
    ("kept-crowded-rate", "kept-crowded-p99", KEPT, false),
    ("traced-crowded-rate", "traced-crowded-p99", TRACED, false),
];

pub(crate) fn group() -> Group {
    let (mut contenders, mut rows) = (Vec::new(), Vec::new());
    for (rate, p99, (flag, by), has_spare) in KINDS {
        let at = contenders.len();
        let flags = [flag, if has_spare { " --spare" } else { "" }].concat();
        for (name, ticks_per_s, pairs) in
            [("full rate", 0, PAIRS_AT_FULL_RATE), ("plan's rate", 50_000, PAIRS_AT_PLANS_RATE)]
        {
            contenders.push(Contender { name, ..Contender::ours(&format!("observed {ticks_per_s} {pairs}{flags}")) });
        }
        let whose = match has_spare {
            true => format!("{by}, on a CPU that no lcore has"),
            false => format!("{by}, on the lcores' own two CPUs"),
        };
        let row = |name, what: String, peer_name, unit, figures: [Source; 2], scale, goal, ratio| Row {
            name,
            // Rows live as long as the program.
            what: what.leak(),
            unit,
            ours: figures[0],
            peer: figures[1],
            peer_name,
            scale,
            goal,
            ratio: Some(ratio),
        };
        rows.push(row(
            rate,
            format!("tick to trade, ticks as fast as the channels take them, ten times a second {whose}"),
            "moments of the same run that nobody looks at",
            "M ticks/s",
            [Figure(at, "observed_ticks_per_s"), Figure(at, "alone_ticks_per_s")],
            1e6,
            RatioAtLeast(0.99),
            "ticks_per_s_ratio",
        ));
        rows.push(row(
            p99,
            format!("tick to trade at 50,000 ticks a second, 99th percentile, each second {whose}"),
            "moments of the same run that nobody looks at",
            "µs",
            [Figure(at + 1, "observed_p99_ns"), Figure(at + 1, "alone_p99_ns")],
            1e3,
            RatioAtMost(1.02),
            "p99_ns_ratio",
        ));
    }
    Group { name: "observed", contenders, rows, rounds: None, plot: None }
}
