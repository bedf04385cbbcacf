//! The page: the table, the ratios with their goals, and a plot of each curve; one file, nothing fetched.

mod plots;

use std::fmt::Write as _;

use serde_json::Value;

use crate::error::RunError;
use crate::row::{RowResult, rounded};

const STYLE: &str = "\
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 1080px; padding: 0 1rem; color: #1b1f24; background: #fff }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2.2rem }
table { border-collapse: collapse; width: 100%; font-size: 13px } th, td { padding: 4px 8px; text-align: left; vertical-align: top }
th { border-bottom: 2px solid #57606a } td { border-bottom: 1px solid #d0d7de } td.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
.met { color: #116329; font-weight: 600 } .missed { color: #b42318; font-weight: 600 }
code { font-size: 12px; background: #f3f4f6; padding: 1px 4px; overflow-wrap: anywhere } svg { max-width: 100%; height: auto }
.curves { display: grid; grid-template-columns: repeat(auto-fit, minmax(480px, 1fr)); gap: 1rem }";

/// The whole page.
pub(crate) fn page(results: &[RowResult], machine: &Value) -> Result<String, RunError> {
    let mut html = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>Verbline beside its peers</title>\
         <meta name=\"viewport\" content=\"width=device-width\"><style>{STYLE}</style></head><body>\
         <h1>Verbline beside its peers</h1><p>{}, {} CPUs, Linux {}, {}; load {} at the end. <code>{}</code></p>\
         <p>Ours and the peer run in turn on the same two CPUs, round after round. A ratio is that of the medians; its bar \
         spans the least and the greatest ratio of one round.</p>",
        text(&machine["cpu"]),
        machine["cpus"],
        text(&machine["kernel"]),
        text(&machine["date"]),
        text(&machine["load_after"]),
        text(&machine["command"]),
    );
    let _ = write!(html, "<h2>Ours ÷ peer</h2>{}", plots::ratios(results)?);
    html.push_str("<h2>Table</h2>");
    html.push_str(&table(results));
    let curves: Vec<&RowResult> = results.iter().filter(|result| result.extra.get("points").is_some()).collect();
    if !curves.is_empty() {
        html.push_str("<h2>Scaling</h2><div class=\"curves\">");
        for result in curves {
            let _ = write!(html, "<div><p>{}</p>{}</div>", escape(result.row.what), plots::curve(result)?);
        }
        html.push_str("</div>");
    }
    html.push_str("<h2>What was run</h2>");
    for result in results {
        let _ = write!(html, "<p><b>{}</b>: {}<br>", result.row.name, escape(result.row.what));
        for command in &result.commands {
            let _ = write!(html, "<code>{}</code><br>", escape(command));
        }
        if result.extra.get("points").is_none() && result.extra.is_object() {
            let _ = write!(html, "{}", escape(&result.extra.to_string()));
        }
        html.push_str("</p>");
    }
    html.push_str("</body></html>\n");
    Ok(html)
}

fn table(results: &[RowResult]) -> String {
    let mut html = String::from(
        "<table><tr><th>row</th><th>unit</th><th>ours</th><th>peer</th><th></th><th>ratio</th><th>least … most</th>\
         <th>goal</th><th></th></tr>",
    );
    for result in results {
        let [least, most] = result.spread();
        let (class, word) = if result.met() { ("met", "met") } else { ("missed", "missed") };
        let _ = write!(
            html,
            "<tr><td title=\"{}\">{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td>\
             <td class=\"n\">{}</td><td class=\"n\">{} … {}</td><td>{}</td><td class=\"{class}\">{word}</td></tr>",
            escape(result.row.what),
            result.row.name,
            escape(result.row.unit),
            rounded(result.ours_median()),
            rounded(result.peer_median()),
            escape(result.row.peer_name),
            rounded(result.ratio()),
            rounded(least),
            rounded(most),
            escape(&result.row.goal.to_string()),
        );
    }
    html + "</table>"
}

fn text(value: &Value) -> String {
    escape(value.as_str().unwrap_or_default())
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
