//! The table as text and as JSON.

use std::fmt::Write as _;

use comfy_table::{Cell, CellAlignment, Table, presets};
use serde_json::{Value, json};

use crate::groups::Group;
use crate::row::{RowResult, rounded};

/// One object, one line a row.
pub(crate) fn json(results: &[RowResult], machine: &Value) -> String {
    let rows: Vec<String> = results.iter().map(|result| format!("  {}", result.json())).collect();
    format!("{{\"machine\":{machine},\"rows\":[\n{}\n]}}", rows.join(",\n"))
}

/// For a person: the table, then every command line.
pub(crate) fn text(results: &[RowResult], machine: &Value) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(["row", "unit", "ours", "peer", "", "ratio", "least … most", "goal", ""]);
    for result in results {
        let [least, most] = result.spread();
        table.add_row([
            Cell::new(result.row.name),
            Cell::new(result.row.unit),
            number(result.ours_median()),
            number(result.peer_median()),
            Cell::new(result.row.peer_name),
            number(result.ratio()),
            Cell::new(format!("{} … {}", rounded(least), rounded(most))),
            Cell::new(result.row.goal),
            Cell::new(if result.met() { "met" } else { "MISSED" }),
        ]);
    }
    let mut text = format!("{table}\n\n");
    for key in ["cpu", "cpus", "kernel", "date", "load_after", "command"] {
        let value = &machine[key];
        let _ = writeln!(text, "{key:<10} {}", value.as_str().map_or_else(|| value.to_string(), str::to_owned));
    }
    let _ = writeln!(text, "\nWhat was run, ours first:");
    for result in results {
        let _ = writeln!(text, "{}: {}", result.row.name, result.row.what);
        for command in &result.commands {
            let _ = writeln!(text, "    {command}");
        }
        if let Value::Object(extra) = &result.extra {
            let _ = writeln!(text, "    {}", json!(extra));
        }
    }
    text
}

fn number(value: f64) -> Cell {
    Cell::new(rounded(value)).set_alignment(CellAlignment::Right)
}

/// Every row with its goal and its commands.
pub(crate) fn list(groups: &[Group]) -> String {
    let mut text = String::new();
    for group in groups {
        for row in &group.rows {
            let _ =
                writeln!(text, "{:<26} {} [{}; beside {}; {}]", row.name, row.what, row.unit, row.peer_name, row.goal);
        }
        let commands: Vec<&str> =
            group.contenders.iter().flat_map(|contender| &contender.commands).map(String::as_str).collect();
        let _ = writeln!(text, "    {}", commands.join("\n    "));
    }
    text
}
