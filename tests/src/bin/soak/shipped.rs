//! The plans of `config/`, with the particulars of each: its unit of progress, and the figures of
//! its report that show whether everything came out right.

use std::path::Path;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use serde_json::Value;
use verbline_tests::recording;

/// The length of the recorded day at the market's own pace.
const RECORDING: Duration = Duration::from_secs(390);

/// A plan of `config/`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shipped {
    /// Its file's stem.
    pub(crate) name: &'static str,
    /// The program that runs it.
    pub(crate) app: &'static str,
    pub(crate) rate: Rate,
    /// The fault of the values in a report, or the number of right ones.
    pub(crate) values: fn(&Value) -> Result<String, String>,
}

/// How the live line gives a run's speed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rate {
    /// The lcores set the pace: counts of `unit` per second in which they had their CPUs.
    OfTime { unit: &'static str },
    /// A clock gives the run its work: counts of `unit` per `work`.
    OfWork { unit: &'static str, work: &'static str },
    /// A recording gives the run more to do at one time than at another.
    Recorded { unit: &'static str },
}

impl Rate {
    /// The word of the live line behind the number.
    pub(crate) fn unit(self) -> &'static str {
        let (Rate::OfTime { unit } | Rate::OfWork { unit, .. } | Rate::Recorded { unit }) = self;
        unit
    }
}

impl Shipped {
    /// Whether the user chose this plan; without a choice every plan is run.
    pub(crate) fn is_among(&self, chosen: &[String]) -> bool {
        chosen.is_empty() || chosen.iter().any(|one| one == self.name)
    }

    /// The arguments from `run` on, or why the plan can't be run here.
    pub(crate) fn arguments(&self, time: Duration) -> Result<Vec<String>, String> {
        let mut arguments = vec!["run".to_owned(), format!("config/{}.toml", self.name), "--json".to_owned()];
        if let Rate::Recorded { .. } = self.rate {
            let dir = recording().ok_or("the recorded feed is not here; VERBLINE_MOEX_DIR says where it is")?;
            let dir = dir.canonicalize().map_err(|error| format!("{}: {error}", dir.display()))?;
            // The recording lasts as long as the soak, within the bounds of the plan's key.
            let speed = (RECORDING.as_secs_f64() / time.as_secs_f64()).clamp(SPEEDS.0, SPEEDS.1);
            let dir = format!("feed.dir={}", Path::new(&dir).display());
            arguments.extend(["--set".to_owned(), dir, "--set".to_owned(), format!("feed.speed={speed:.4}")]);
        }
        Ok(arguments)
    }
}

/// The bounds of `feed.speed`.
const SPEEDS: (f64, f64) = (0.01, 10_000.0);

/// All shipped plans.
pub(crate) fn shipped() -> Vec<Shipped> {
    let of_time = |name, app, unit, values| Shipped { name, app, rate: Rate::OfTime { unit }, values };
    vec![
        Shipped {
            name: "tick-to-trade",
            app: "tick-to-trade",
            rate: Rate::OfWork { unit: "orders", work: "ticks" },
            values: books,
        },
        of_time("kv", "kv", "operations", stored),
        of_time("nvme-target", "nvme-target", "commands", blocks),
        of_time("pingpong", "pingpong", "exchanges", exchanges),
        of_time("pingpong-by-address", "pingpong", "exchanges", exchanges),
        of_time("pingpong-two-paths", "pingpong", "exchanges", exchanges),
        Shipped { name: "moex-replay", app: "tick-to-trade", rate: Rate::Recorded { unit: "ticks" }, values: recorded },
    ]
}

/// The names that `--plan` takes.
pub(crate) fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(shipped().iter().map(|plan| plan.name))
}

fn number(report: &Value, pointer: &str) -> Result<u64, String> {
    let value = report.pointer(pointer).ok_or_else(|| format!("the report has no {pointer}"))?;
    value.as_u64().ok_or_else(|| format!("{pointer} is {value}"))
}

/// Insists that each of these figures is 0.
pub(crate) fn none(report: &Value, pointers: &[&str]) -> Result<(), String> {
    for pointer in pointers {
        let number = number(report, pointer)?;
        if number > 0 {
            return Err(format!("{pointer} is {number}"));
        }
    }
    Ok(())
}

/// Insists that this figure is not 0.
pub(crate) fn some(report: &Value, pointer: &str) -> Result<u64, String> {
    match number(report, pointer)? {
        0 => Err(format!("{pointer} is 0")),
        number => Ok(number),
    }
}

/// Insists that no tick is missing or surplus, and that there were orders.
fn fed(report: &Value) -> Result<(), String> {
    none(report, &["/ticks_unaccounted", "/ticks_surplus"])?;
    some(report, "/orders").map(drop)
}

fn books(report: &Value) -> Result<String, String> {
    fed(report)?;
    let [all, compared, equal, stale] =
        ["of_exchange", "compared", "equal", "stale"].map(|key| number(report, &format!("/books/{key}")));
    let (all, compared, equal, stale) = (all?, compared?, equal?, stale?);
    if all == 0 || compared != all || equal != all || stale != 0 {
        return Err(format!("of {all} books {compared} were compared, {equal} are equal, {stale} not known"));
    }
    let untold = number(report, "/itch/untold")?;
    if untold > 0 {
        return Err(format!("{untold} changes of books were not told"));
    }
    Ok(format!("{equal} books equal"))
}

fn recorded(report: &Value) -> Result<String, String> {
    none(report, &["/ticks_unaccounted", "/ticks_surplus", "/forts/malformed"])?;
    Ok(format!("{} increments applied", some(report, "/forts/increments")?))
}

fn stored(report: &Value) -> Result<String, String> {
    none(report, &["/counts/stale", "/counts/corrupt", "/counts/malformed"])?;
    // A reply that comes after its operation was given up (a pause is longer) finds no operation.
    let [unasked, timed_out] = ["unasked", "timed_out"].map(|key| number(report, &format!("/counts/{key}")));
    let (unasked, timed_out) = (unasked?, timed_out?);
    if unasked > timed_out {
        return Err(format!("{unasked} replies to nothing, where {timed_out} operations were given up"));
    }
    Ok(format!("{} values right", some(report, "/counts/verified")?))
}

pub(crate) fn blocks(report: &Value) -> Result<String, String> {
    none(report, &["/mismatches", "/balance", "/counts/failed", "/counts/unasked", "/counts/malformed"])?;
    Ok(format!("{} blocks right", some(report, "/verified")?))
}

fn exchanges(report: &Value) -> Result<String, String> {
    Ok(format!("{} exchanges", some(report, "/exchanges")?))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use serde_json::json;

    use super::*;

    #[test]
    fn every_plan_of_config_is_soaked() {
        let entries = fs::read_dir(verbline_tests::root().join("config")).unwrap();
        let stem = |path: std::path::PathBuf| path.file_stem().unwrap().to_string_lossy().into_owned();
        // Folders hold plans for several processes.
        let files = entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
        let there: BTreeSet<String> = files.map(stem).collect();
        let here: BTreeSet<String> = shipped().iter().map(|plan| plan.name.to_owned()).collect();
        assert_eq!(here, there);
    }

    /// An app is named after its first plan, and may have others.
    #[test]
    fn a_name_chooses_one_plan() {
        let chosen = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            shipped().iter().filter(|plan| plan.is_among(&names)).map(|plan| plan.name).collect::<Vec<_>>()
        };
        assert_eq!(chosen(&["tick-to-trade"]), ["tick-to-trade"]);
        assert_eq!(chosen(&["moex-replay", "kv"]), ["kv", "moex-replay"]);
        assert_eq!(chosen(&[]).len(), shipped().len());
    }

    #[test]
    fn a_report_without_a_figure_or_with_a_wrong_value_is_not_right() {
        let good = json!({ "counts": { "stale": 0, "corrupt": 0, "malformed": 0, "unasked": 3, "timed_out": 3,
                                      "verified": 5 } });
        assert_eq!(stored(&good), Ok("5 values right".to_owned()));
        for (pointer, value) in [("/counts/stale", json!(1)), ("/counts/verified", json!(0))] {
            let mut bad = good.clone();
            *bad.pointer_mut(pointer).unwrap() = value.clone();
            assert_eq!(stored(&bad), Err(format!("{pointer} is {value}")));
        }
        assert_eq!(stored(&json!({})), Err("the report has no /counts/stale".to_owned()));
        let mut bad = good;
        bad["counts"]["unasked"] = json!(4);
        assert_eq!(stored(&bad), Err("4 replies to nothing, where 3 operations were given up".to_owned()));
    }
}
