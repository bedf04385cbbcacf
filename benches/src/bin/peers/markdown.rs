//! The results as a page of `docs/performance`: the table, the curves, and the meaning of each row.
//!
//! The page is made from the output of `--json`, measured now or stored in a file, so that no
//! figure is ever copied by hand. A row that misses its goal links to the limit behind it, a
//! heading of `why.md`.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use crate::error::RunError;
use crate::row::{Goal, RowResult, round_to};
use crate::tables::Table;
use crate::wrap::words;

/// The greatest width of a line of prose.
const COLUMNS: usize = 100;

/// The output of `--json`, as far as the page shows it.
#[derive(Debug, Deserialize)]
pub(crate) struct Results {
    machine: Value,
    rows: Vec<Measured>,
    #[serde(default)]
    omitted: Vec<Omitted>,
}

/// A row that is not measured.
#[derive(Debug, Deserialize)]
struct Omitted {
    row: String,
    why: String,
}

#[derive(Debug, Deserialize)]
struct Measured {
    row: String,
    what: String,
    unit: String,
    ours: Option<f64>,
    peer: Option<f64>,
    peer_name: String,
    ratio: Option<f64>,
    spread: [Option<f64>; 2],
    goal: String,
    met: bool,
    /// For a curve: the names of its axes, and its points.
    x: Option<String>,
    y: Option<String>,
    #[serde(default)]
    points: Vec<[Option<f64>; 2]>,
}

impl Results {
    /// The results of this run.
    pub(crate) fn new(results: &[RowResult], omitted: &[(&str, &str)], machine: &Value) -> Result<Results, RunError> {
        let text = crate::table::json(results, omitted, machine);
        serde_json::from_str(&text).map_err(|error| RunError::Stored { path: "this run".into(), error })
    }

    /// The results that `--json` printed into a file.
    pub(crate) fn stored(path: &Path) -> Result<Results, RunError> {
        let text = fs::read_to_string(path).map_err(|source| RunError::File { path: path.to_owned(), source })?;
        serde_json::from_str(&text).map_err(|error| RunError::Stored { path: path.to_owned(), error })
    }

    /// The page.
    pub(crate) fn page(&self, table: Table) -> String {
        let command = table.command();
        let mut page = format!("# Results: {}\n\n", self.fact("cpu"));
        page += &paragraph(&format!(
            "This page is made by `{command} --markdown` from a measurement, and is not edited. A ratio is ours \
             divided by the peer's, each the median of its rounds; beside it stand the least and the greatest ratio of \
             one round. A missed goal links to what bounds it. \
             [How a table is made](../performance.md#how-a-table-is-made) has the rest; `{command} --list` \
             prints the commands of both sides."
        ));
        page += &self.facts();
        page += &self.table();
        page += &self.curves();
        page += "\n## What each row measures\n\n";
        for row in &self.rows {
            page += &words(&format!("- `{}`: {}", row.row, row.what), "", "  ", COLUMNS);
        }
        if !self.omitted.is_empty() {
            page += "\n## Not measured here\n\n";
        }
        for row in &self.omitted {
            page += &words(&format!("- `{}`: {}", row.row, row.why), "", "  ", COLUMNS);
        }
        page
    }

    fn fact(&self, key: &str) -> String {
        let value = &self.machine[key];
        value.as_str().map_or_else(|| value.to_string(), str::to_owned)
    }

    fn facts(&self) -> String {
        let with_goal = || self.rows.iter().filter(|row| row.has_goal());
        let met = with_goal().filter(|row| row.met).count();
        let mut text = format!("\n**{met} of {} goals are met.**\n\n| | |\n| --- | --- |\n", with_goal().count());
        let names = ["CPUs", "copies in the software RNIC", "Linux", "measured", "load at the end", "command"];
        for (name, key) in names.iter().zip(["cpus", "copies", "kernel", "date", "load_after", "command"]) {
            let _ = writeln!(text, "| {name} | {} |", self.fact(key));
        }
        text
    }

    fn table(&self) -> String {
        let mut text = "\n| row | unit | ours | peer's | peer | ratio | least to most | goal | |\n\
                        | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
            .to_owned();
        for row in &self.rows {
            let [ours, peer, ratio] = [row.ours, row.peer, row.ratio].map(figure);
            let spread = row.spread.map(figure).join(" to ");
            let (name, unit, peer_name, goal, verdict) =
                (&row.row, &row.unit, &row.peer_name, &row.goal, row.verdict());
            let _ = writeln!(
                text,
                "| `{name}` | {unit} | {ours} | {peer} | {peer_name} | {ratio} | {spread} | {goal} | {verdict} |"
            );
        }
        text
    }

    fn curves(&self) -> String {
        let mut text = "\n## How it scales\n".to_owned();
        for row in &self.rows {
            let (Some(x), Some(y)) = (&row.x, &row.y) else { continue };
            let line = |name: &str, at: usize| {
                let cells = row.points.iter().map(|point| format!(" {} |", figure(point[at])));
                format!("| {name} |{}\n", cells.collect::<String>())
            };
            let rule = "| --- ".repeat(row.points.len() + 1);
            let _ = write!(text, "\n`{}`:\n\n{}{rule}|\n{}", row.row, line(x, 0), line(y, 1));
        }
        text
    }
}

impl Measured {
    fn has_goal(&self) -> bool {
        self.goal != Goal::Reported.to_string()
    }

    fn verdict(&self) -> String {
        match (self.has_goal(), self.met) {
            (false, _) => String::new(),
            (true, true) => "met".to_owned(),
            (true, false) => format!("[**missed**](why.md#{})", self.row.to_lowercase()),
        }
    }
}

fn paragraph(text: &str) -> String {
    words(text, "", "", COLUMNS)
}

/// Three digits; a dash for an absent value.
fn figure(value: Option<f64>) -> String {
    let Some(value) = value else { return "–".to_owned() };
    // Counts on an axis are whole numbers.
    let digits = if value.fract() == 0.0 { 10 } else { 3 };
    round_to(value, digits).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::all_groups;
    use serde_json::json;

    #[test]
    fn a_page_is_made_of_what_was_printed_as_json() {
        let of = |name: &str, goal: &str, met: bool| {
            json!({ "row": name, "what": "a thing", "unit": "ns", "ours": 1.23456, "peer": 1_234.5, "peer_name": "p",
                    "ratio": 0.0010001, "spread": [0.001, 2.0], "goal": goal, "met": met, "rounds": 7, "commands": [] })
        };
        let mut curve = of("scale-pool", "ratio ≤ 1.2", true);
        curve["x"] = json!("packets");
        curve["y"] = json!("ns");
        curve["points"] = json!([[1024, 0.5], [65536, null]]);
        let mut alone = of("t2t", "reported", true);
        alone["peer"] = Value::Null;
        let rows = [of("send-64KiB", "ratio ≥ 1.2", false), of("one-way", "ratio ≤ 1", true), curve, alone];
        let stored = json!({ "machine": { "cpu": "a CPU", "cpus": 2 }, "rows": rows });
        let folder = std::env::temp_dir().join(format!("peers-{}.json", std::process::id()));
        fs::write(&folder, stored.to_string()).unwrap();
        let page = Results::stored(&folder).unwrap().page(Table::Peers);
        fs::remove_file(&folder).unwrap();
        for part in [
            "# Results: a CPU\n",
            "**2 of 3 goals are met.**",
            "| `send-64KiB` | ns | 1.23 | 1230 | p | 0.001 | 0.001 to 2 | ratio ≥ 1.2 | \
             [**missed**](why.md#send-64kib) |",
            "| `one-way` | ns | 1.23 | 1230 | p | 0.001 | 0.001 to 2 | ratio ≤ 1 | met |",
            "| `t2t` | ns | 1.23 | – | p | 0.001 | 0.001 to 2 | reported |  |",
            "| packets | 1024 | 65536 |\n| --- | --- | --- |\n| ns | 0.5 | – |",
        ] {
            assert!(page.contains(part), "{part}\n--- in\n{page}");
        }
    }

    #[test]
    fn every_goal_has_its_bound_in_why() {
        let why = include_str!("../../../../docs/performance/why.md");
        for row in all_groups().iter().flat_map(|group| &group.rows).filter(|row| row.goal != Goal::Reported) {
            let anchor = format!("<a id=\"{}\"></a>", row.name.to_lowercase());
            assert!(why.contains(&anchor), "docs/performance/why.md has no {anchor}");
        }
    }

    #[test]
    fn a_file_of_something_else_is_named() {
        let error = Results::stored(Path::new("/dev/null")).unwrap_err().to_string();
        assert!(error.starts_with("/dev/null is not what `peers --json` prints"), "{error}");
    }
}
