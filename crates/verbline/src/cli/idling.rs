//! The lcores' idle time: how long they spun, and what woke them.

use std::fmt::Write as _;

use verbline_engine::LcoreReport;

use super::figures::{count, duration, percent};
use super::output::labelled;

/// The time that lcores spin before they sleep, and the causes that woke those that slept.
pub(super) fn sleepers(lcores: &[LcoreReport]) -> String {
    let mut text = String::new();
    for lcore in lcores.iter().filter(|lcore| lcore.policy == "adaptive") {
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
        let _ = writeln!(text, "{}", labelled("spin", &line));
    }
    for lcore in lcores.iter().filter(|lcore| lcore.sleeps > 0) {
        let causes = lcore.wakes.iter().filter(|wake| wake.count > 0);
        let causes: Vec<_> = causes.map(|wake| format!("{} {}", wake.cause, count(wake.count))).collect();
        let _ = writeln!(text, "{}", labelled("wakes", &format!("lcore {}: {}", lcore.name, causes.join(", "))));
    }
    if !text.is_empty() {
        text.push('\n');
    }
    text
}
