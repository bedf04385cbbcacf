//! The conditions on a soaked run, each with the figures by which it was judged.

use std::process::ExitStatus;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use verbline_tests::report_faults;

use crate::fresh::Pair;
use crate::sample::Sample;
use crate::shipped::{Rate, Shipped};
use crate::timetable::Timetable;

/// A run's end and its report.
pub(crate) struct Ending {
    /// `None`: the run did not end.
    pub(crate) status: Option<ExitStatus>,
    /// The time that its stop took.
    pub(crate) stop: Duration,
    pub(crate) report: Result<Value, String>,
    /// It ended before it was told to stop.
    pub(crate) by_itself: bool,
}

/// One condition, and whether it held.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Finding {
    pub(crate) what: &'static str,
    pub(crate) holds: bool,
    /// A few words for the table.
    pub(crate) words: String,
}

impl Finding {
    pub(crate) fn of(what: &'static str, outcome: Result<String, String>) -> Finding {
        let holds = outcome.is_ok();
        let (Ok(words) | Err(words)) = outcome;
        Finding { what, holds, words }
    }
}

/// The share to which a rate may fall. Two stretches of an undisturbed run differ by a fifth on a
/// shared machine. The after-effects of a disturbance cost more: a lost connection, a book that
/// stays untrusted, batches that are never full again.
const RATE_MIN: f64 = 0.6;
/// If the lcores together had less of their CPUs than this share, the rate says more about the
/// machine's other programs than about the run: caches are cold, and each lcore finds the other
/// away.
const SERVED_MIN: f64 = 0.4;
/// The allowed rise of resident memory, for pages that are touched late, once each: of stacks, of
/// histograms and of the allocator's arenas. A leak of a byte an operation exceeds it within
/// seconds.
const GROWTH_MAX_KIB: u64 = 4096;
/// Extra descriptors and threads of connections that are being made at the time of a sample.
const HANDLES_SPARE: u64 = 4;

/// Judges a run by its samples, by those of fresh runs beside it, and by its report.
pub(crate) fn judge(
    plan: &Shipped,
    times: &Timetable,
    samples: &[Sample],
    beside: &[Pair],
    ending: &Ending,
) -> Vec<Finding> {
    let [first, last] = [times.first, times.last].map(|stretch| within(samples, stretch));
    let report = ending.report.as_ref().map_err(|error| format!("no report: {error}"));
    let mut findings = vec![
        Finding::of("exit", exit(plan, ending)),
        Finding::of("report", report.clone().and_then(consistent)),
        Finding::of("values", report.and_then(plan.values)),
    ];
    let rate = rate(plan, first, last).map(|outcome| outcome.or_else(|why| kept_beside(plan.rate, beside, why)));
    findings.extend(rate.map(|outcome| Finding::of("rate", outcome)));
    // A recording may end before the last stretch does: the last samples stand for it.
    let last = if last.is_empty() { &samples[samples.len() - samples.len().min(2)..] } else { last };
    findings.push(Finding::of("memory", level(first, last)));
    findings.push(Finding::of("handles", handles(first, last)));
    findings
}

/// Whether the run's rate is too low in the last stretch.
pub(crate) fn is_slower(plan: &Shipped, times: &Timetable, samples: &[Sample]) -> bool {
    let [first, last] = [times.first, times.last].map(|stretch| within(samples, stretch));
    rate(plan, first, last).is_some_and(|outcome| outcome.is_err())
}

/// Whether a run kept its rate; `None` if the plan's rate varies by itself.
fn rate(plan: &Shipped, first: &[Sample], last: &[Sample]) -> Option<Result<String, String>> {
    (!matches!(plan.rate, Rate::Recorded { .. })).then(|| kept_its_rate(plan.rate, first, last))
}

/// The samples of a stretch.
fn within(samples: &[Sample], (from, to): (Duration, Duration)) -> &[Sample] {
    let begin = samples.partition_point(|sample| sample.at < from);
    let end = samples.partition_point(|sample| sample.at <= to);
    &samples[begin..end.max(begin)]
}

fn exit(plan: &Shipped, ending: &Ending) -> Result<String, String> {
    let Some(status) = ending.status else { return Err(format!("no end {:.0?} after SIGTERM", ending.stop)) };
    if ending.by_itself && !matches!(plan.rate, Rate::Recorded { .. }) {
        return Err(format!("it ended before it was told to: {status}"));
    }
    match status.success() {
        true => Ok(format!("{:.1?}", ending.stop)),
        false => Err(status.to_string()),
    }
}

pub(crate) fn consistent(report: &Value) -> Result<String, String> {
    let failures = report["failures"].as_array().map_or(&[][..], Vec::as_slice);
    let failures = failures.iter().map(|failure| failure["message"].as_str().unwrap_or("a failure").to_owned());
    let faults: Vec<String> = failures.chain(report_faults(report)).collect();
    match faults.is_empty() {
        true => Ok("consistent".to_owned()),
        false => Err(faults.join("; ")),
    }
}

/// The run's pace in a stretch.
pub(crate) fn pace(rate: Rate, stretch: &[Sample]) -> Option<f64> {
    let (begin, end) = (stretch.first()?, stretch.last()?);
    let done = end.done.saturating_sub(begin.done) as f64;
    let of = match rate {
        Rate::OfWork { .. } => end.work.saturating_sub(begin.work) as f64,
        Rate::OfTime { .. } | Rate::Recorded { .. } => served(begin, end),
    };
    (of > 0.0).then_some(done / of)
}

/// The seconds in which all lcores had their CPUs, or wanted none. Each lcore waits for the others,
/// and the neighbours on one CPU are independent of those on the other.
fn served(begin: &Sample, end: &Sample) -> f64 {
    let seconds = end.at.saturating_sub(begin.at).as_secs_f64();
    let waited = begin.lcores.iter().zip(&end.lcores).map(|(begin, end)| end.waited_ns.saturating_sub(begin.waited_ns));
    waited.fold(seconds, |left, waited_ns| left * (1.0 - waited_ns as f64 / 1e9 / seconds).max(0.0))
}

/// The share of a stretch's time that [`served`] leaves.
fn served_share(stretch: &[Sample]) -> f64 {
    let (Some(begin), Some(end)) = (stretch.first(), stretch.last()) else { return 0.0 };
    served(begin, end) / end.at.saturating_sub(begin.at).as_secs_f64().max(f64::MIN_POSITIVE)
}

fn kept_its_rate(rate: Rate, first: &[Sample], last: &[Sample]) -> Result<String, String> {
    let (Some(before), Some(after)) = (pace(rate, first), pace(rate, last)) else {
        return Err("too few samples to say".to_owned());
    };
    if before == 0.0 {
        return Err("nothing to compare it with went on".to_owned());
    }
    let ratio = after / before;
    let is_busy = [first, last].iter().any(|stretch| served_share(stretch) < SERVED_MIN);
    match (rate, ratio >= RATE_MIN) {
        (_, true) => Ok(format!("{ratio:.2}")),
        // A run that makes no progress at all is not excused.
        (Rate::OfTime { .. }, false) if is_busy && after > 0.0 => Ok("busy".to_owned()),
        (_, false) => Err(format!("{ratio:.2} of what it was; {RATE_MIN} is the least")),
    }
}

/// Whether a run that was slower than at first is mostly as fast as fresh runs are; else why not.
fn kept_beside(rate: Rate, beside: &[Pair], slower: String) -> Result<String, String> {
    let outcomes: Vec<_> = beside.iter().map(|pair| kept_its_rate(rate, &pair.fresh, &pair.soaked)).collect();
    let kept: Vec<&String> = outcomes.iter().flatten().collect();
    match kept.get(outcomes.len() / 2) {
        Some(_) => Ok(kept[0].clone()),
        None if outcomes.is_empty() => Err(slower),
        None => Err(format!("{slower}; as fast as a fresh run {} of {} times", kept.len(), outcomes.len())),
    }
}

/// A figure of a sample.
type Figure = fn(&Sample) -> u64;

fn most(stretch: &[Sample], figure: impl Fn(&Sample) -> u64) -> Result<u64, String> {
    stretch.iter().map(figure).max().ok_or_else(|| "no sample".to_owned())
}

pub(crate) fn level(first: &[Sample], last: &[Sample]) -> Result<String, String> {
    let figures: [(&str, Figure); 3] = [
        ("resident", |sample| sample.resident_kib),
        ("anonymous", |sample| sample.anonymous_kib),
        ("locked", |sample| sample.locked_kib),
    ];
    for (name, figure) in figures {
        let (before, after) = (most(first, figure)?, most(last, figure)?);
        if after > before + GROWTH_MAX_KIB {
            return Err(format!("{name} memory rose from {before} to {after} KiB"));
        }
    }
    let (before, after) = (most(first, figures[0].1)?, most(last, figures[0].1)?);
    Ok(format!("{:+} KiB", after.cast_signed() - before.cast_signed()))
}

pub(crate) fn handles(first: &[Sample], last: &[Sample]) -> Result<String, String> {
    let figures: [(&str, Figure); 2] =
        [("descriptors", |sample| sample.descriptors), ("threads", |sample| sample.threads)];
    let mut words = Vec::new();
    for (name, figure) in figures {
        let (before, after) = (most(first, figure)?, most(last, figure)?);
        if after > before + HANDLES_SPARE {
            return Err(format!("{name} rose from {before} to {after}"));
        }
        words.push(after.to_string());
    }
    Ok(words.join("+"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;
    use crate::sample::LcoreTime;
    use crate::shipped::shipped;

    const TIME: Duration = Duration::from_secs(60);

    /// A minute at `rate` a second. In its first half the lcore has its CPU half of the time.
    fn samples(rate: impl Fn(u64) -> u64) -> Vec<Sample> {
        let mut done = 0;
        let sample = |at: u64| {
            done += rate(at);
            let waited_ns = at.min(30) * 500_000_000;
            let lcores = vec![LcoreTime { name: "main".to_owned(), ran_ns: 0, waited_ns }];
            let at = Duration::from_secs(at);
            Sample { at, done, resident_kib: 50_000, descriptors: 9, threads: 5, lcores, ..Sample::default() }
        };
        (0..=60).map(sample).collect()
    }

    fn found(samples: &[Sample], what: &str) -> Result<String, String> {
        let plan = shipped().into_iter().find(|plan| plan.name == "kv").unwrap();
        let report = Err("none".to_owned());
        let ending = Ending { status: Some(ExitStatus::from_raw(0)), stop: Duration::ZERO, report, by_itself: false };
        let findings = judge(&plan, &Timetable::of(TIME), samples, &[], &ending);
        let finding = findings.into_iter().find(|finding| finding.what == what).unwrap();
        if finding.holds { Ok(finding.words) } else { Err(finding.words) }
    }

    #[test]
    fn a_rate_is_that_of_the_time_that_its_lcores_had() {
        // Half the CPU time, half the work: as fast as before.
        assert_eq!(found(&samples(|at| if at < 30 { 500 } else { 1000 }), "rate"), Ok("1.00".to_owned()));
        // As much work in twice the CPU time.
        let slower = Err("0.50 of what it was; 0.6 is the least".to_owned());
        assert_eq!(found(&samples(|_| 500), "rate"), slower);
        assert!(found(&samples(|at| if at < 40 { 500 } else { 0 }), "rate").is_err());
        // Other programs had most of the time, so the fault may be theirs; but some progress must
        // remain.
        let kept_away = |rate: fn(u64) -> u64| {
            let mut samples = samples(rate);
            samples.iter_mut().for_each(|sample| sample.lcores[0].waited_ns = sample.at.as_nanos() as u64 / 10 * 7);
            samples
        };
        assert_eq!(found(&kept_away(|at| if at < 30 { 500 } else { 200 }), "rate"), Ok("busy".to_owned()));
        assert!(found(&kept_away(|at| if at < 40 { 500 } else { 0 }), "rate").is_err());
        assert_eq!(found(&[], "rate"), Err("too few samples to say".to_owned()));
    }

    /// A slow machine slows a fresh run too; the after-effects of a disturbance do not.
    #[test]
    fn a_rate_is_kept_that_fresh_runs_do_not_have_either() {
        let kv = shipped().into_iter().find(|plan| plan.name == "kv").unwrap();
        let times = Timetable::of(TIME);
        let slow = samples(|_| 500);
        assert!(
            is_slower(&kv, &times, &slow) && !is_slower(&kv, &times, &samples(|at| if at < 30 { 500 } else { 1000 }))
        );
        let found = |of_fresh: [u64; 5]| {
            let stretch = |done| vec![Sample::default(), Sample { at: TIME, done, ..Sample::default() }];
            let pairs = of_fresh.map(|fresh| Pair { fresh: stretch(fresh), soaked: stretch(60) });
            let report = Err("none".to_owned());
            let ending = Ending { status: None, stop: Duration::ZERO, report, by_itself: false };
            let findings = judge(&kv, &times, &slow, &pairs, &ending);
            findings.into_iter().find(|finding| finding.what == "rate").map(|finding| (finding.holds, finding.words))
        };
        assert_eq!(found([60, 200, 60, 200, 75]), Some((true, "1.00".to_owned())));
        let slower = "0.50 of what it was; 0.6 is the least; as fast as a fresh run 2 of 5 times";
        assert!(found([60, 200, 0, 0, 60]).is_some_and(|(holds, _)| !holds), "fresh runs that do nothing say nothing");
        assert_eq!(found([60, 200, 60, 200, 120]), Some((false, slower.to_owned())));
    }

    #[test]
    fn what_rises_is_named() {
        let mut grown = samples(|_| 500);
        grown.iter_mut().filter(|sample| sample.at > TIME / 2).for_each(|sample| sample.descriptors += 5);
        assert_eq!(found(&grown, "handles"), Err("descriptors rose from 9 to 14".to_owned()));
        assert_eq!(found(&grown, "memory"), Ok("+0 KiB".to_owned()));
        let mut grown = samples(|_| 500);
        grown.iter_mut().for_each(|sample| sample.resident_kib += sample.at.as_secs() * 200);
        assert_eq!(found(&grown, "memory"), Err("resident memory rose from 53000 to 62000 KiB".to_owned()));
    }

    #[test]
    fn a_run_without_a_report_or_without_an_end_is_not_good() {
        let samples = samples(|_| 500);
        assert_eq!(found(&samples, "report"), Err("no report: none".to_owned()));
        assert_eq!(found(&samples, "values"), Err("no report: none".to_owned()));
        assert_eq!(found(&samples, "exit"), Ok("0.0ns".to_owned()));
    }
}
