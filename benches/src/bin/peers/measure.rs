//! The rounds: every contender of a group in turn, again and again, and the rows that come of it.

use serde_json::{Value, json};
use verbline_benches::Figures;
use verbline_benches::figures::median;
use verbline_benches::ours::itch::CHECKSUM;

use crate::args::Arguments;
use crate::contender::Contender;
use crate::error::RunError;
use crate::groups::{Group, Plot};
use crate::row::{Row, RowResult, Source, rounded};

/// Runs a group for all rounds and gives the rows that were asked for.
pub(crate) fn measure(group: &Group, arguments: &Arguments) -> Result<Vec<RowResult>, RunError> {
    let count = group.rounds.unwrap_or(arguments.rounds).min(arguments.rounds);
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
    let rows = group.rows.iter().filter(|row| asked_for(row, arguments.rows()));
    rows.map(|row| result(row, group, &rounds)).collect()
}

pub(crate) fn asked_for(row: &Row, names: &[String]) -> bool {
    names.is_empty() || names.iter().any(|name| name == row.name)
}

fn brief(figures: &Figures) -> String {
    let some = figures.names().filter(|name| *name != CHECKSUM).take(4);
    some.map(|name| format!("{name} {}", rounded(figures.value(name).unwrap_or(f64::NAN))))
        .collect::<Vec<_>>()
        .join("  ")
}

/// Contenders that say what they read must all have read the same.
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
        commands,
        extra: extra(row, group, rounds),
    })
}

fn value(source: Source, group: &Group, figures: &[Figures]) -> Result<f64, RunError> {
    match source {
        Source::Known(value) => Ok(value),
        Source::Figure(index, name) => figures[index].value(name).ok_or_else(|| RunError::Unreadable {
            command: group.contenders[index].commands.join("; "),
            wanted: name,
            output: brief(&figures[index]),
        }),
    }
}

/// The series behind a scaling row, or all medians of our contender.
fn extra(row: &Row, group: &Group, rounds: &[Vec<Figures>]) -> Value {
    let at = |index: usize, name: &str| {
        rounded(median(rounds.iter().filter_map(|figures| figures[index].value(name))) / row.scale)
    };
    let (Source::Figure(index, name), plot) = (row.ours, &group.plot) else { return Value::Null };
    if let Some(Plot { x_name, x, y_name }) = plot {
        let points: Vec<_> = x.iter().enumerate().map(|(index, x)| json!([x, at(index, name)])).collect();
        return json!({ "x": x_name, "y": y_name, "points": points });
    }
    let names = rounds.first().map(|figures| figures[index].names().map(str::to_owned).collect::<Vec<_>>());
    let shares = names.into_iter().flatten().filter(|name| name.starts_with("share_") || name == "ticks_per_s");
    let shares: serde_json::Map<_, _> = shares
        .map(|name| {
            let value = rounded(median(rounds.iter().filter_map(|figures| figures[index].value(&name))));
            (name, json!(value))
        })
        .collect();
    if shares.is_empty() { Value::Null } else { Value::Object(shares) }
}
