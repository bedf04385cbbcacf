//! The rounds: every contender of a group in turn, again and again, and the resulting rows.

use serde_json::{Map, Value, json};
use verbline_benches::Figures;
use verbline_benches::figures::median;
use verbline_benches::ours::itch::CHECKSUM;
use verbline_benches::ours::trading::SHARE;

use crate::contender::Contender;
use crate::error::RunError;
use crate::group::{Group, Plot, asked_for};
use crate::row::{Row, RowResult, Source, rounded};

/// Runs a group for this many rounds, or fewer if the group needs no more. Returns its rows with
/// these names, or all.
pub(crate) fn measure(group: &Group, rounds: u32, names: &[String]) -> Result<Vec<RowResult>, RunError> {
    let count = group.rounds.unwrap_or(rounds).min(rounds);
    let mut rounds: Vec<Vec<Figures>> = Vec::new();
    for round in 1..=count {
        let mut figures = Vec::new();
        for contender in &group.contenders {
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
