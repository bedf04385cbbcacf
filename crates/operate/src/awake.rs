//! Explains in words why an lcore was awake, from its times.

use crate::change::Change;
use crate::client_report::Lcore;

/// Shares of an lcore's time, 0 to 1; they add up to 1 once it has run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[expect(missing_docs, reason = "docs/report.schema.json says what each is")]
pub struct Shares {
    pub busy: f64,
    pub idle: f64,
    pub asleep: f64,
    pub stolen: f64,
}

impl Shares {
    /// The shares of an lcore, in the time of a [`Change`].
    pub fn of(lcore: &Lcore) -> Shares {
        let times = [lcore.busy_ns, lcore.idle_ns, lcore.asleep_ns, lcore.stolen_ns];
        let whole: u64 = times.iter().sum();
        let [busy, idle, asleep, stolen] = times.map(|ns| if whole == 0 { 0.0 } else { ns as f64 / whole as f64 });
        Shares { busy, idle, asleep, stolen }
    }
}

/// A smaller share of awake time gets no reason.
const AWAKE_MIN: f64 = 0.02;

/// A smaller stolen share is normal on every machine.
const STOLEN_MIN: f64 = 0.1;

/// An activity with more than this share of the awake time is its reason.
const MOST: f64 = 0.5;

/// The reason why `lcore` of `change` was awake: a few words that fit into a line of 80 columns.
pub fn why_awake(change: &Change, lcore: &Lcore) -> String {
    let Shares { busy, idle, asleep, stolen } = Shares::of(lcore);
    if busy + idle + asleep + stolen == 0.0 {
        return "it has not run".to_owned();
    }
    let mut why = reason(change, lcore);
    if stolen > STOLEN_MIN {
        why += &format!("; {:.0} % of the time stolen", stolen * 100.0);
    }
    if let Some(late_ns) = lcore.wake_late.quantile_ns(0.99) {
        why += &format!("; timers {:.0?} late (p99)", std::time::Duration::from_nanos(late_ns));
    }
    why
}

fn reason(change: &Change, lcore: &Lcore) -> String {
    let Shares { busy, idle, .. } = Shares::of(lcore);
    let a_second = |count| change.per_second(count).round() as u64;
    if busy + idle < AWAKE_MIN {
        let cause = lcore.wakes.iter().max_by_key(|wake| wake.count).filter(|wake| wake.count > 0);
        let cause = cause.map(|wake| format!(", mostly by {}", words_of(&wake.cause))).unwrap_or_default();
        return format!("asleep; woken {} times/s{cause}", a_second(lcore.sleeps));
    }
    if busy / (busy + idle) > MOST {
        let share = busy / (busy + idle) * 100.0;
        let turns = a_second(lcore.busy_loops);
        return format!("works for {share:.0} % of its waking time, {turns} turns/s");
    }
    if lcore.policy == "poll" {
        return "waits for work: idle = \"poll\", so it never sleeps".to_owned();
    }
    if lcore.sleeps > 0 {
        let wait = std::time::Duration::from_nanos(lcore.spin_ns.max(lcore.dwell_ns));
        return format!("waits up to {wait:.0?} before each of {} sleeps/s", a_second(lcore.sleeps));
    }
    if lcore.armed_in_vain > 0 {
        let times = a_second(lcore.armed_in_vain);
        return format!("work comes just as it would sleep, {times} times/s");
    }
    match lcore.busy_loops {
        0 => "a stage wants to be polled at once, and has nothing to do".to_owned(),
        busy => format!("work comes before it would sleep, {} times/s", a_second(busy)),
    }
}

fn words_of(cause: &str) -> &str {
    match cause {
        "completion" => "completions",
        "ring" => "a ring",
        "fd" => "a descriptor",
        "control" => "control",
        "timer" => "a timer",
        "timeout" => "the time-out",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use verbline_engine::{LcoreReport, Report, TimeBin, TimesReport, WakeReport};

    fn why(lcore: LcoreReport) -> String {
        let report = Report { elapsed_ns: 1_000_000_000, lcores: vec![lcore], ..Report::default() };
        let seen = serde_json::from_value(serde_json::to_value(report).unwrap()).unwrap();
        let change = Change::since_start(&seen);
        why_awake(&change, &change.counts().lcores[0])
    }

    #[test]
    fn every_way_to_be_awake_has_its_reason() {
        let base = |policy: &str, busy_ns, idle_ns, asleep_ns| LcoreReport {
            policy: policy.into(),
            spin_ns: 21_400,
            loops: 1000,
            busy_loops: 830,
            busy_ns,
            idle_ns,
            asleep_ns,
            ..LcoreReport::default()
        };
        assert_eq!(why(LcoreReport::default()), "it has not run");
        assert_eq!(why(base("poll", 9, 1, 0)), "works for 90 % of its waking time, 830 turns/s");
        let robbed = LcoreReport { stolen_ns: 30, ..base("poll", 9, 1, 0) };
        assert!(why(robbed).ends_with("turns/s; 75 % of the time stolen"));
        assert!(why(base("poll", 1, 9, 0)).contains("idle = \"poll\""));
        let wakes = vec![WakeReport { cause: "ring", count: 2 }, WakeReport { cause: "completion", count: 9 }];
        let sleeper = LcoreReport { sleeps: 11, wakes, ..base("adaptive", 1, 0, 999) };
        assert_eq!(why(sleeper.clone()), "asleep; woken 11 times/s, mostly by completions");
        let bins = vec![TimeBin { below_ns: 64_000, count: 5 }];
        let late = TimesReport { count: 5, max_ns: 61_200, bins, ..TimesReport::default() };
        let timed = LcoreReport { wake_late: late, ..sleeper.clone() };
        assert!(why(timed).ends_with("by completions; timers 61µs late (p99)"));
        let waiting = LcoreReport { asleep_ns: 1, idle_ns: 9, ..sleeper };
        assert_eq!(why(waiting.clone()), "waits up to 21µs before each of 11 sleeps/s");
        let in_vain = LcoreReport { sleeps: 0, armed_in_vain: 7, ..waiting };
        assert_eq!(why(in_vain.clone()), "work comes just as it would sleep, 7 times/s");
        let steady = LcoreReport { armed_in_vain: 0, ..in_vain };
        assert_eq!(why(steady.clone()), "work comes before it would sleep, 830 times/s");
        assert!(why(LcoreReport { busy_loops: 0, ..steady }).contains("a stage wants to be polled at once"));
    }

    /// `top` puts four columns in front of the words.
    #[test]
    fn the_words_of_a_busy_second_go_into_a_line() {
        let bins = vec![TimeBin { below_ns: 1_048_576, count: 5 }];
        let wakes = vec![WakeReport { cause: "completion", count: 120_000 }];
        let late = TimesReport { count: 5, max_ns: 999_000, bins, ..TimesReport::default() };
        let base = LcoreReport {
            loops: 9_900_000,
            busy_loops: 9_900_000,
            sleeps: 120_000,
            wakes,
            wake_late: late,
            dwell_ns: 999_400,
            policy: "adaptive".into(),
            ..LcoreReport::default()
        };
        let times = [(0, 1, 999, 0), (999, 1, 0, 900), (1, 999, 1, 0)];
        for (busy_ns, idle_ns, asleep_ns, stolen_ns) in times {
            let said = why(LcoreReport { busy_ns, idle_ns, asleep_ns, stolen_ns, ..base.clone() });
            let without_late = said.split("; timers").next().unwrap_or_default();
            assert!(said.chars().count() <= 76 || (stolen_ns > 0 && without_late.chars().count() <= 76), "{said}");
        }
    }
}
