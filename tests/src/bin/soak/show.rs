//! The output of a soak at its end: a table, or one JSON document.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::judge::{Finding, pace};
use crate::shipped::shipped;
use crate::soaked::{Outcome, Soaked};

fn words<'a>(findings: &'a [Finding], what: &str) -> &'a str {
    let found = findings.iter().find(|finding| finding.what == what);
    found.map_or("-", |finding| if finding.holds { &finding.words } else { "NO" })
}

/// A row a plan, and below it the failed conditions.
pub(crate) fn table(soaked: &[Soaked], programs: &Path, time: Duration) -> String {
    let time = humantime::format_duration(time);
    let mut text = format!("soak: {time} a plan, programs of {}\n\n", programs.display());
    text +=
        &format!("{:<20}{:>9}{:>6}{:>11}{:>12}  {}\n", "plan", "disturbed", "rate", "memory", "fds+threads", "right");
    for soak in soaked {
        let findings = match &soak.outcome {
            Outcome::Judged(findings) => &findings[..],
            _ => &[],
        };
        let [rate, memory, handles] = ["rate", "memory", "handles"].map(|what| words(findings, what));
        let values = if soak.is_good() { words(findings, "values") } else { soak.verdict() };
        let (name, disturbed) = (soak.name, soak.disturbances.len());
        text += &format!("{name:<20}{disturbed:>9}{rate:>6}{memory:>11}{handles:>12}  {values}\n");
    }
    for soak in soaked {
        text += &faults(soak);
    }
    text
}

/// The failed conditions.
pub(crate) fn reasons(soak: &Soaked) -> Vec<String> {
    match &soak.outcome {
        Outcome::Judged(findings) => {
            let bad = findings.iter().filter(|finding| !finding.holds);
            bad.map(|finding| format!("{}: {}", finding.what, finding.words)).collect()
        }
        Outcome::Skipped(why) => vec![format!("skipped: {why}")],
        Outcome::Broken(why) => vec![why.clone()],
    }
}

/// The failed conditions, and the run's last words.
fn faults(soak: &Soaked) -> String {
    let lines = reasons(soak);
    if lines.is_empty() {
        return String::new();
    }
    let mut text = format!("\n{}: {}\n", soak.name, lines.join("\n  "));
    let said = soak.shown.trim_end().lines().filter(|line| !line.trim().is_empty());
    text.extend(said.map(|line| format!("  | {}\n", line.trim_end())));
    text
}

/// All samples and verdicts.
pub(crate) fn json(soaked: &[Soaked], programs: &Path, time: Duration) -> Value {
    let plans: Vec<Value> = soaked.iter().map(plan).collect();
    let is_good = soaked.iter().all(Soaked::is_good);
    let document = json!({ "held": is_good, "seconds_each": time.as_secs_f64(), "programs": programs, "plans": plans });
    document
}

fn plan(soak: &Soaked) -> Value {
    let (findings, why) = match &soak.outcome {
        Outcome::Judged(findings) => (&findings[..], None),
        Outcome::Skipped(why) | Outcome::Broken(why) => (&[][..], Some(why)),
    };
    let rate = shipped().into_iter().find(|plan| plan.name == soak.name).map(|plan| plan.rate);
    let [first, last] = [soak.times.first, soak.times.last].map(|(from, to)| {
        let stretch: Vec<_> = soak.samples.iter().filter(|one| (from..=to).contains(&one.at)).cloned().collect();
        rate.and_then(|rate| pace(rate, &stretch))
    });
    let beside = soak.beside.iter().map(|pair| {
        let paces = [&pair.fresh, &pair.soaked].map(|stretch| rate.and_then(|rate| pace(rate, stretch)));
        json!({ "rate_fresh": paces[0], "rate_soaked": paces[1] })
    });
    let beside: Vec<Value> = beside.collect();
    json!({
        "plan": soak.name, "unit": soak.unit, "verdict": soak.verdict(), "why": why, "findings": findings,
        "rate_first": first, "rate_last": last, "beside": beside, "disturbances": soak.disturbances,
        "samples": soak.samples, "last_shown": soak.shown,
    })
}
