//! The table as text and as JSON.

use std::fmt::Write as _;

use comfy_table::{Cell, CellAlignment, Table, presets};
use serde_json::{Value, json};

use crate::group::Group;
use crate::row::{Goal, Row, RowResult, Source, round_to, rounded};
use crate::wrap::{command, words};

/// A narrower terminal gets two lines per row.
const WIDE_COLUMNS: usize = 132;

/// Rows of a table that are not measured, with the reasons.
type Omitted<'a> = &'a [(&'a str, &'a str)];

/// The results as one object, one line per row.
pub(crate) fn json(results: &[RowResult], omitted: Omitted<'_>, machine: &Value) -> String {
    let rows: Vec<String> = results.iter().map(|result| format!("  {}", result.json())).collect();
    let rest: Vec<Value> = omitted.iter().map(|(row, why)| json!({ "row": row, "why": why })).collect();
    let rest = if rest.is_empty() { String::new() } else { format!(",\"omitted\":{}", Value::from(rest)) };
    format!("{{\"machine\":{machine},\"rows\":[\n{}\n]{rest}}}", rows.join(",\n"))
}

/// The results for people: the table, then every command line, in this many columns.
pub(crate) fn text(results: &[RowResult], omitted: Omitted<'_>, machine: &Value, columns: usize) -> String {
    let mut text = if columns >= WIDE_COLUMNS { wide(results) } else { narrow(results) };
    let met = results.iter().filter(|result| result.met()).count();
    let _ = writeln!(text, "\n{met} of {} rows met\n", results.len());
    text.push_str(&unmeasured(omitted, columns));
    for key in ["cpu", "cpus", "copies", "kernel", "date", "load_after", "command"] {
        let value = &machine[key];
        let _ = writeln!(text, "{key:<10} {}", value.as_str().map_or_else(|| value.to_string(), str::to_owned));
    }
    let _ = writeln!(text, "\nWhat was run, ours first:");
    for result in results {
        text.push_str(&words(&format!("{}: {}", result.row.name, result.row.what), "", "    ", columns));
        for line in &result.commands {
            text.push_str(&command(line, "    $ ", columns));
        }
        for (name, value) in result.extra.as_object().into_iter().flatten() {
            text.push_str(&words(&format!("{name} {value}"), "    ", "        ", columns));
        }
    }
    text
}

/// One paragraph per row that is not measured.
fn unmeasured(omitted: Omitted<'_>, columns: usize) -> String {
    let about =
        |(row, why): &(&str, &str)| words(&format!("{row}: not measured here: {why}"), "", "    ", columns) + "\n";
    omitted.iter().map(about).collect()
}

fn wide(results: &[RowResult]) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(["row", "unit", "ours", "peer", "", "ratio", "least … most", "goal", ""]);
    for result in results {
        table.add_row([
            Cell::new(result.row.name),
            Cell::new(result.row.unit),
            number(result.ours_median()),
            number(result.peer_median()),
            Cell::new(result.row.peer_name),
            number(result.ratio()),
            Cell::new(spread(result)),
            Cell::new(result.row.goal),
            Cell::new(verdict(result)),
        ]);
    }
    format!("{table}\n")
}

/// Two lines per row: the verdict, and below it the figures.
fn narrow(results: &[RowResult]) -> String {
    let rule = "─".repeat(79);
    let mut text = format!("{:<28} {:>8}  {:<13} {:<7} {}\n", "row", "ratio", "goal", "", "least … most");
    let _ = writeln!(text, "    ours, and what it is held against\n{rule}");
    for result in results {
        let row = &result.row;
        let (ratio, goal) = (told(result.ratio()), row.goal.to_string());
        let _ = writeln!(text, "{:<28} {ratio:>8}  {goal:<13} {:<7} {}", row.name, verdict(result), spread(result));
        let _ = writeln!(text, "    {}", figures(result));
    }
    text + &rule + "\n"
}

fn figures(result: &RowResult) -> String {
    let (row, ours) = (&result.row, rounded(result.ours_median()));
    if row.peer == Source::Nobody {
        return format!("{ours} {}", row.unit);
    }
    format!("{ours} against {} {}: {}", rounded(result.peer_median()), row.unit, row.peer_name)
}

fn verdict(result: &RowResult) -> &'static str {
    match result.row.goal {
        Goal::Reported => "",
        _ if result.met() => "met",
        _ => "MISSED",
    }
}

fn spread(result: &RowResult) -> String {
    let [least, most] = result.spread();
    format!("{} … {}", told(least), told(most))
}

/// Four digits; a dash for an absent value.
fn told(value: f64) -> String {
    if value.is_finite() { format!("{}", round_to(value, 4)) } else { "–".to_owned() }
}

fn number(value: f64) -> Cell {
    let text = if value.is_finite() { rounded(value).to_string() } else { "–".to_owned() };
    Cell::new(text).set_alignment(CellAlignment::Right)
}

/// Every row with its goal, and the commands of each group.
pub(crate) fn list(groups: &[Group], omitted: Omitted<'_>, columns: usize) -> String {
    let mut text = String::new();
    for group in groups {
        for row in &group.rows {
            text.push_str(&about(row, columns));
        }
        for line in group.contenders.iter().flat_map(|contender| &contender.commands) {
            text.push_str(&command(line, "    $ ", columns));
        }
        text.push('\n');
    }
    text + &unmeasured(omitted, columns)
}

fn about(row: &Row, columns: usize) -> String {
    let peer = if row.peer == Source::Nobody { String::new() } else { format!(", beside {}", row.peer_name) };
    let head = format!("{:<28} {}\n", row.name, row.goal);
    head + &words(&format!("{} ({}{peer})", row.what, row.unit), "    ", "    ", columns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::{Table, all_groups};

    fn result(row: Row) -> RowResult {
        let (ours, peer) = (vec![123.456, 120.0], vec![100.0, 101.0]);
        let commands =
            vec!["ucx_perftest -c 1 -d memory -x posix -t am_lat -s 64 -n 1000000 & ucx_perftest -c 0".into()];
        RowResult { row, ours, peer, ratios: None, commands, extra: json!({"shares": {"wire": 0.5}}) }
    }

    #[test]
    fn a_table_for_eighty_columns_has_no_longer_line() {
        let groups = all_groups();
        let rows: Vec<RowResult> = groups.iter().flat_map(|group| &group.rows).map(|row| result(*row)).collect();
        let omitted = Table::Wire.omitted();
        let text = text(&rows, omitted, &json!({"cpu": "a CPU"}), 80) + &list(&groups, omitted, 80);
        let long: Vec<&str> = text.lines().filter(|line| line.chars().count() > 80).collect();
        assert!(long.is_empty(), "{long:#?}");
        assert!(groups.iter().flat_map(|group| &group.rows).all(|row| text.contains(row.name)));
    }
}
