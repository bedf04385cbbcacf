//! The rounds: every contender of a group in turn, again and again, and the resulting rows.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Map, Value, json};
use verbline_benches::Figures;
use verbline_benches::figures::median;
use verbline_benches::ours::itch::CHECKSUM;
use verbline_benches::ours::trading::SHARE;

use crate::contender::Contender;
use crate::error::RunError;
use crate::group::{Group, Plot, asked_for};
use crate::row::{Row, RowResult, Source, rounded};

/// The rows of a run, and those that it was to measure and did not.
#[derive(Default)]
pub(crate) struct Measured {
    pub(crate) results: Vec<RowResult>,
    /// The rows' names, each with the reason.
    pub(crate) missed: Vec<(&'static str, String)>,
}

impl Measured {
    /// Fails if a row was not measured.
    pub(crate) fn whole(&self) -> Result<(), RunError> {
        if self.missed.is_empty() {
            return Ok(());
        }
        let rows: Vec<&str> = self.missed.iter().map(|(row, _)| *row).collect();
        Err(RunError::Missed { rows: rows.join(", ") })
    }
}

/// Measures the groups' rows with these names, or all, one group after another. A group that fails
/// costs its own rows; an interruption, those of all groups that have not ended.
pub(crate) fn all(groups: &[&Group], rounds: u32, names: &[String], interrupted: &AtomicBool) -> Measured {
    let is_interrupted = || interrupted.load(Ordering::Relaxed);
    let mut measured = Measured::default();
    for (before, group) in groups.iter().enumerate() {
        let why = if is_interrupted() {
            "interrupted before".to_owned()
        } else {
            eprintln!("peers: {} of {}: {}", before + 1, groups.len(), group.name);
            match measure(group, rounds, names, interrupted) {
                Ok(results) => {
                    measured.results.extend(results);
                    continue;
                }
                // Ctrl-C ends the contender as well, whose failure says nothing.
                Err(_) if is_interrupted() => "interrupted meanwhile".to_owned(),
                Err(error) => {
                    eprintln!("peers: {} was not measured: {error}", group.name);
                    error.to_string().lines().next().unwrap_or_default().to_owned()
                }
            }
        };
        let rows = group.rows.iter().filter(|row| asked_for(row, names));
        measured.missed.extend(rows.map(|row| (row.name, why.clone())));
    }
    measured
}

/// Runs a group for this many rounds, or fewer if the group needs no more. Returns its rows with
/// these names, or all.
fn measure(group: &Group, rounds: u32, names: &[String], interrupted: &AtomicBool) -> Result<Vec<RowResult>, RunError> {
    let count = group.rounds.unwrap_or(rounds).min(rounds);
    let mut rounds: Vec<Vec<Figures>> = Vec::new();
    for round in 1..=count {
        let mut figures = Vec::new();
        for contender in &group.contenders {
            if interrupted.load(Ordering::Relaxed) {
                return Err(RunError::Interrupted);
            }
            eprint!("peers: {} {round}/{count} {:<24}", group.name, contender.name);
            let measured = (contender.run)()?;
            eprintln!(" {}", brief(&measured));
            figures.push(measured);
        }
        check_work(&group.contenders, &figures)?;
        rounds.push(figures);
    }
    let rows = group.rows.iter().filter(|row| asked_for(row, names));
    rows.map(|row| result(row, group, &rounds)).collect()
}

fn brief(figures: &Figures) -> String {
    let some = figures.names().filter(|name| *name != CHECKSUM).take(4);
    some.map(|name| format!("{name} {}", rounded(figures.value(name).unwrap_or(f64::NAN))))
        .collect::<Vec<_>>()
        .join("  ")
}

/// Checks that all contenders with a checksum have read the same data.
fn check_work(contenders: &[Contender], figures: &[Figures]) -> Result<(), RunError> {
    let mut sums = contenders.iter().zip(figures).filter_map(|(who, figures)| Some((who, figures.value(CHECKSUM)?)));
    let Some((_, ours)) = sums.next() else { return Ok(()) };
    match sums.find(|(_, theirs)| *theirs != ours) {
        Some((who, theirs)) => Err(RunError::OtherWork { what: who.name.to_owned(), ours, theirs }),
        None => Ok(()),
    }
}

fn result(row: &Row, group: &Group, rounds: &[Vec<Figures>]) -> Result<RowResult, RunError> {
    let values = |source| -> Result<Vec<f64>, RunError> {
        rounds.iter().map(|figures| value(source, group, figures).map(|value| value / row.scale)).collect()
    };
    let own_ratio = match (row.ratio, row.ours) {
        (Some(name), Source::Figure(index, _)) => Some(Source::Figure(index, name)),
        _ => None,
    };
    let ratios = own_ratio.map(|source| rounds.iter().map(|figures| value(source, group, figures)).collect());
    let mut commands = Vec::new();
    for source in [row.ours, row.peer] {
        if let Source::Figure(index, _) = source {
            commands.extend(group.contenders[index].commands.iter().cloned());
        }
    }
    commands.dedup();
    Ok(RowResult {
        row: *row,
        ours: values(row.ours)?,
        peer: values(row.peer)?,
        ratios: ratios.transpose()?,
        commands,
        extra: extra(row, group, rounds),
    })
}

fn value(source: Source, group: &Group, figures: &[Figures]) -> Result<f64, RunError> {
    match source {
        Source::Known(value) => Ok(value),
        Source::Nobody => Ok(f64::NAN),
        Source::Figure(index, name) => {
            let commands = || group.contenders[index].commands.join("; ");
            let told = figures[index].value(name);
            told.ok_or_else(|| RunError::unreadable(commands(), name, &brief(&figures[index])))
        }
    }
}

/// A row's results other than its ratio: the curve of a scaling row, `points` over `x` and `y`; the
/// `shares` of each step of tick-to-trade, and its rate.
fn extra(row: &Row, group: &Group, rounds: &[Vec<Figures>]) -> Value {
    let Source::Figure(index, name) = row.ours else { return Value::Null };
    let at = |index: usize, name: &str| median(rounds.iter().filter_map(|figures| figures[index].value(name)));
    if let Some(Plot { x_name, x, y_name }) = &group.plot {
        let points = x.iter().enumerate().map(|(index, x)| json!([x, rounded(at(index, name) / row.scale)]));
        return json!({ "x": x_name, "y": y_name, "points": points.collect::<Vec<_>>() });
    }
    let Some(figures) = rounds.first().map(|figures| &figures[index]) else { return Value::Null };
    let steps = figures.names().filter_map(|name| Some((name, name.strip_prefix(SHARE)?)));
    let shares: Map<_, _> = steps.map(|(name, step)| (step.to_owned(), json!(rounded(at(index, name))))).collect();
    if shares.is_empty() {
        return Value::Null;
    }
    json!({ "shares": shares, "ticks_per_s": rounded(at(index, "ticks_per_s")) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Goal;
    use std::sync::Arc;

    /// A group of one contender, whose row is called as the group.
    fn group(name: &'static str, run: impl Fn() -> Result<Figures, RunError> + 'static) -> Group {
        let contender =
            Contender { name: "ours", commands: Vec::new(), needs: &[], hugepages: false, run: Box::new(run) };
        let row = Row::new(name, "ns", Source::Figure(0, "ns"), Source::Nobody, Goal::Reported);
        Group::new(name, vec![contender], vec![row])
    }

    fn names(measured: &Measured) -> Vec<&str> {
        measured.results.iter().map(|result| result.row.name).collect()
    }

    fn five() -> Result<Figures, RunError> {
        Ok(serde_json::from_str(r#"{"ns": 5.0}"#).unwrap())
    }

    #[test]
    fn a_group_that_fails_costs_its_own_rows() {
        let fails = || Err(RunError::unreadable("perf", "figures", "none"));
        let groups = [group("first", five), group("second", fails), group("third", five)];
        let measured = all(&groups.each_ref(), 3, &[], &AtomicBool::new(false));
        assert_eq!(names(&measured), ["first", "third"]);
        assert_eq!(measured.missed, [("second", "`perf` printed no figures:".to_owned())]);
        assert_eq!(measured.whole().unwrap_err().to_string(), "not measured: second");
    }

    #[test]
    fn an_interruption_keeps_the_rows_of_groups_that_have_ended() {
        let flag = Arc::new(AtomicBool::new(false));
        let interrupts = {
            let flag = Arc::clone(&flag);
            move || {
                flag.store(true, Ordering::Relaxed);
                five()
            }
        };
        let groups = [group("first", five), group("second", interrupts), group("third", five)];
        let measured = all(&groups.each_ref(), 3, &[], &flag);
        assert_eq!(names(&measured), ["first"]);
        let why = [("second", "interrupted meanwhile"), ("third", "interrupted before")];
        assert_eq!(measured.missed, why.map(|(row, why)| (row, why.to_owned())));
    }
}
