//! The suite's output: a table for people, JSON for programs.

use crate::rig::Target;
use crate::suite::{Ran, Row, Verdict};
use serde::Serialize;
use std::fmt::Write;

const WIDTH: usize = 80;

/// The JSON document.
#[derive(Serialize)]
struct Document<'a> {
    device: &'a str,
    rows: Vec<JsonRow<'a>>,
}

#[derive(Serialize)]
struct JsonRow<'a> {
    rule: &'a str,
    seed: &'a str,
    result: Verdict,
    reason: &'a str,
    says: &'a str,
    took_us: u64,
}

pub(crate) fn json(target: &Target, results: &[(Row, Ran)]) -> String {
    let rows = results.iter().map(|(row, ran)| JsonRow {
        rule: &row.rule,
        seed: row.seed,
        result: ran.verdict,
        reason: &ran.reason,
        says: &row.says,
        took_us: u64::try_from(ran.took.as_micros()).unwrap_or(u64::MAX),
    });
    let document = Document { device: &target.title(), rows: rows.collect() };
    serde_json::to_string_pretty(&document).expect("strings and numbers")
}

/// One line per row, its theme above, its reason below.
pub(crate) fn text(target: &Target, results: &[(Row, Ran)]) -> String {
    let mut out = String::new();
    for theme in themes(results) {
        let of_theme: Vec<&(Row, Ran)> = results.iter().filter(|(row, _)| row.theme() == theme).collect();
        let _ = writeln!(out, "{}", heading(theme, &of_theme));
        for (row, ran) in of_theme {
            let name = row.rule.strip_prefix(theme).unwrap_or(&row.rule).trim_start_matches('/');
            for (at, line) in wrap(name, WIDTH - 8).iter().enumerate() {
                let verdict = if at == 0 { ran.verdict.to_string() } else { String::new() };
                let _ = writeln!(out, "  {verdict:<6}{line}");
            }
            for line in wrap(&ran.reason, WIDTH - 10).iter().filter(|line| !line.is_empty()) {
                let _ = writeln!(out, "          {line}");
            }
        }
        out.push('\n');
    }
    out.push_str(&summary(target, results));
    out
}

fn heading(theme: &str, rows: &[&(Row, Ran)]) -> String {
    let counts = counts(rows.iter().map(|(_, ran)| ran.verdict));
    format!("{theme:-<width$} {counts}", theme = format!("{theme} "), width = WIDTH - 1 - counts.len())
}

fn summary(target: &Target, results: &[(Row, Ran)]) -> String {
    let counts = counts(results.iter().map(|(_, ran)| ran.verdict));
    let mut out = format!("{}: {} rows: {counts}\n", target.title(), results.len());
    if let Some((row, ran)) = results.iter().max_by_key(|(_, ran)| ran.took) {
        let total_ms: u128 = results.iter().map(|(_, ran)| ran.took.as_millis()).sum();
        let _ = writeln!(out, "{total_ms} ms; the slowest: {} ms, {}", ran.took.as_millis(), row.rule);
    }
    out
}

fn counts(verdicts: impl Iterator<Item = Verdict> + Clone) -> String {
    let count = |which| verdicts.clone().filter(|&verdict| verdict == which).count();
    format!("{} pass, {} fail, {} lack", count(Verdict::Pass), count(Verdict::Fail), count(Verdict::Lacks))
}

/// The themes, in the order of their first rows.
fn themes(results: &[(Row, Ran)]) -> Vec<&str> {
    let mut themes: Vec<&str> = Vec::new();
    for (row, _) in results {
        if !themes.contains(&row.theme()) {
            themes.push(row.theme());
        }
    }
    themes
}

/// The rows and their rules, without running them.
pub(crate) fn list(rows: &[Row]) -> String {
    let mut out = String::new();
    for row in rows {
        let _ = writeln!(out, "{}  [{}]", row.rule, row.seed);
        for line in wrap(&row.says, WIDTH - 4) {
            let _ = writeln!(out, "    {line}");
        }
    }
    let _ = writeln!(out, "{} rows", rows.len());
    out
}

/// The declared differences, as the table of DIFFERENCES.md.
pub(crate) fn differences(rows: &[Row]) -> String {
    use crate::rig::Kind;
    let mut out = String::from("| rule | what the page says | rdma_rxe | the software RNIC | by its wire | why |\n");
    out.push_str("| --- | --- | --- | --- | --- | --- |\n");
    for row in rows {
        for difference in row.differences.iter().filter(|difference| difference.is_of_row()) {
            let here = |kind| if difference.on == kind { difference.does } else { "as the page says" };
            let page = format!("{} ({})", row.says, row.seed);
            let [rxe, soft, wire] = [Kind::Rxe, Kind::Soft, Kind::SoftUdp].map(here);
            let _ = writeln!(out, "| `{}` | {page} | {rxe} | {soft} | {wire} | {} |", row.rule, difference.why);
        }
    }
    out
}

/// Breaks at spaces, and within words longer than a line.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let mut word = word;
        loop {
            let line = lines.last_mut().expect("one line");
            let gap = usize::from(!line.is_empty());
            if line.chars().count() + gap + word.chars().count() <= width {
                line.push_str(&" ".repeat(gap));
                line.push_str(word);
                break;
            }
            if line.is_empty() {
                let cut = word.char_indices().nth(width).map_or(word.len(), |(at, _)| at);
                line.push_str(&word[..cut]);
                word = &word[cut..];
            }
            lines.push(String::new());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_not_wider_than_told() {
        let text = "a word, and aWordThatIsLongerThanALineOfTwentyCharactersIs, and more";
        let lines = wrap(text, 20);
        assert!(lines.iter().all(|line| line.chars().count() <= 20), "{lines:?}");
        assert_eq!(lines.concat().replace(' ', ""), text.replace(' ', ""));
    }
}
