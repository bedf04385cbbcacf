//! The page: the table, the ratios with their goals, and a plot of each curve; one file that
//! fetches nothing.

mod plots;
mod trading;

use std::fmt::Write as _;

use serde_json::Value;

use crate::error::RunError;
use crate::row::{Goal, RowResult, round_to};

/// Plots are drawn dark on white. On a dark page, rules override the colours of [`plots`]: CSS
/// takes precedence over an attribute. Bars keep their colours, since their labels are white.
const STYLE: &str = include_str!("style.css");

/// The whole page.
pub(crate) fn page(results: &[RowResult], machine: &Value) -> Result<String, RunError> {
    let mut html = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>Verbline beside its peers</title>\
         <meta name=\"viewport\" content=\"width=device-width\"><style>{STYLE}</style></head><body>\
         <h1>Verbline beside its peers</h1><p>{}, {} CPUs, Linux {}, {}; load {} at the end. <code>{}</code></p>\
         <p>Ours and the peer run in turn on the same two CPUs, round after round. \
         A ratio is that of the medians; its bar spans \
         the least and the greatest ratio of one round. <span class=\"met\">Green</span> meets its goal, \
         <span class=\"missed\">red</span> misses it, <span class=\"none\">blue</span> has none. {}</p>",
        text(&machine["cpu"]),
        machine["cpus"],
        text(&machine["kernel"]),
        text(&machine["date"]),
        text(&machine["load_after"]),
        text(&machine["command"]),
        summary(results),
    );
    html.push_str(&ratios(results)?);
    html.push_str("<h2>Table</h2>");
    html.push_str(&table(results));
    html.push_str(&trading(results)?);
    html.push_str(&scaling(results)?);
    html.push_str("<h2>What was run</h2>");
    for result in results {
        let _ = write!(html, "<p class=\"run\"><b>{}</b>: {}", result.row.name, escape(result.row.what));
        for command in &result.commands {
            let _ = write!(html, "<br><code>{}</code>", escape(command));
        }
        html.push_str("</p>");
    }
    html.push_str("</body></html>\n");
    Ok(html)
}

fn summary(results: &[RowResult]) -> String {
    let with_goal = || results.iter().filter(|result| result.row.goal != Goal::Reported);
    let met = with_goal().filter(|result| result.met()).count();
    format!("{met} of {} goals are met.", with_goal().count())
}

/// A plot for the rows that are better when lower, and one for the others.
fn ratios(results: &[RowResult]) -> Result<String, RunError> {
    let (higher, lower): (Vec<_>, Vec<_>) =
        results.iter().filter(plots::has_ratio).partition(|result| matches!(result.row.goal, Goal::RatioAtLeast(_)));
    let mut html = String::new();
    for (title, rows) in [("Times: lower is better", lower), ("Rates: higher is better", higher)] {
        if !rows.is_empty() {
            let _ = write!(html, "<h2>{title}</h2><figure class=\"wide\">{}</figure>", plots::ratios(&rows)?);
        }
    }
    Ok(html)
}

fn trading(results: &[RowResult]) -> Result<String, RunError> {
    let runs: Vec<&RowResult> = results.iter().filter(|result| result.extra.get("shares").is_some()).collect();
    if runs.is_empty() {
        return Ok(String::new());
    }
    Ok(format!(
        "<h2>Tick to trade</h2><figure class=\"wide\"><h3>From the scheduled time of a tick to the arrival of its \
         order</h3>{}</figure><figure class=\"wide\"><h3>Where the mean of that time goes</h3>{}</figure>",
        trading::latencies(&runs)?,
        trading::shares(&runs)?
    ))
}

fn scaling(results: &[RowResult]) -> Result<String, RunError> {
    let curves: Vec<&RowResult> = results.iter().filter(|result| result.extra.get("points").is_some()).collect();
    let mut html = String::new();
    if !curves.is_empty() {
        html.push_str("<h2>Scaling</h2><div class=\"curves\">");
        for result in curves {
            let (name, what) = (result.row.name, escape(result.row.what));
            let _ = write!(html, "<figure><h3>{name}</h3><p>{what}</p>{}</figure>", plots::curve(result)?);
        }
        html.push_str("</div>");
    }
    Ok(html)
}

fn table(results: &[RowResult]) -> String {
    let mut html = String::from(
        "<div class=\"wide\"><table><thead><tr><th>row</th><th>unit</th><th class=\"n\">ours</th>\
         <th class=\"n\">peer</th><th>the peer</th><th class=\"n\">ratio</th>\
         <th class=\"n\">least … most</th><th>goal</th><th></th></tr></thead><tbody>",
    );
    for result in results {
        let [least, most] = result.spread();
        let (class, word) = match result.row.goal {
            Goal::Reported => ("", ""),
            _ if result.met() => ("met", "met"),
            _ => ("missed", "missed"),
        };
        let _ = write!(
            html,
            "<tr><td title=\"{}\">{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td>\
             <td class=\"n\">{}</td><td class=\"n\">{} … {}</td><td>{}</td><td class=\"{class}\">{word}</td></tr>",
            escape(result.row.what),
            result.row.name,
            escape(result.row.unit),
            number(result.ours_median()),
            number(result.peer_median()),
            escape(result.row.peer_name),
            number(result.ratio()),
            number(least),
            number(most),
            escape(&result.row.goal.to_string()),
        );
    }
    html + "</tbody></table></div>"
}

fn number(value: f64) -> String {
    if value.is_finite() { round_to(value, 4).to_string() } else { "–".to_owned() }
}

fn text(value: &Value) -> String {
    escape(value.as_str().unwrap_or_default())
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Source;
    use serde_json::json;

    /// Every row with invented figures.
    fn results() -> Vec<RowResult> {
        let groups = crate::groups::all();
        let rows = groups.iter().flat_map(|group| group.rows.iter().map(move |row| (group, *row)));
        rows.map(|(group, row)| {
            let extra = match &group.plot {
                Some(plot) => {
                    let points: Vec<_> = plot.x.iter().map(|x| json!([x, 1.5])).collect();
                    json!({ "x": plot.x_name, "y": plot.y_name, "points": points })
                }
                None if row.name.starts_with("t2t-") => {
                    json!({ "shares": { "publish": 0.25, "feed": 0.75 }, "ticks_per_s": 5e4 })
                }
                None => Value::Null,
            };
            let commands = vec!["a & b".to_owned()];
            let peer = if row.peer == Source::Nobody { f64::NAN } else { 2.5 };
            RowResult { row, ours: vec![2.0, 3.0], peer: vec![peer; 2], ratios: None, commands, extra }
        })
        .collect()
    }

    #[test]
    fn the_page_holds_every_row_names_its_axes_and_fetches_nothing() {
        let results = results();
        let page = page(&results, &json!({ "cpu": "a CPU", "cpus": 2 })).unwrap();
        for result in &results {
            assert!(page.contains(&format!(">{}</td>", result.row.name)), "{}", result.row.name);
            for axis in ["x", "y"].iter().filter_map(|axis| result.extra.get(axis)?.as_str()) {
                assert!(page.contains(axis), "{axis}");
            }
        }
        for link in ["href", "src=", "url(", "@import", "<script"] {
            assert!(!page.contains(link), "{link}");
        }
        assert!(page.contains("a &amp; b"));
    }
}
