//! The plan's sums, and the NUMA nodes of its memory: within 80 columns for a person, as JSON for a
//! script.

use std::fmt::Write as _;

use serde_json::{Value, json};
use verbline_plan::{Home, Limit, Location, Plan, Sum, Term};

use super::figures::count;
use super::output::alarming;

/// Columns for a term's description; with its value before and its line behind, 80 in all.
const TERM_COLUMNS: usize = 54;

/// All sums as text, one paragraph each.
pub(super) fn text(sums: &[Sum], coloured: bool) -> String {
    if sums.is_empty() {
        return "no sum can be worked out before the errors are mended\n".to_owned();
    }
    sums.iter().map(|sum| paragraph(sum, coloured)).collect::<Vec<_>>().join("\n")
}

fn paragraph(sum: &Sum, coloured: bool) -> String {
    let mut out = format!("{}: {}\n", sum.of, sum.unit);
    for term in &sum.terms {
        out += &line(term);
    }
    let verdict = |limit: u64| match limit.checked_sub(sum.needed) {
        Some(spare) => format!("{} to spare", count(spare)),
        None => alarming(&format!("{} TOO FEW", count(sum.needed - limit)), coloured),
    };
    let limit = match &sum.limit {
        Limit::Plan(limit, at) => format!(" of {} ({}): {}", count(*limit), place(at), verdict(*limit)),
        Limit::Machine(limit) => format!(" of the machine's {}: {}", count(*limit), verdict(*limit)),
        Limit::None => ", and nothing limits it".to_owned(),
        Limit::Derived => ", and made so".to_owned(),
    };
    let _ = writeln!(out, "{:>14}  needed{limit}", count(sum.needed));
    out
}

fn line(term: &Term) -> String {
    let Term { what, how, value, at } = term;
    let (value, at) = (count(*value), place(at));
    let whole = if how.is_empty() { what.clone() } else { format!("{what} ({how})") };
    if whole.chars().count() <= TERM_COLUMNS {
        return format!("{value:>14}  {whole:<TERM_COLUMNS$}{at:>10}\n");
    }
    format!("{value:>14}  {what:<TERM_COLUMNS$}{at:>10}\n{:>16}({how})\n", "")
}

/// The place in the plan's file: its line, or the flag that overrode it.
fn place(at: &Location) -> String {
    if at.line == 0 { "--set".to_owned() } else { format!("line {}", at.line) }
}

/// All sums as JSON.
pub(super) fn json(sums: &[Sum]) -> Value {
    sums.iter().map(sum_json).collect()
}

fn sum_json(sum: &Sum) -> Value {
    let limit = match &sum.limit {
        Limit::Plan(limit, at) => json!({ "by": "plan", "value": limit, "at": at.to_string() }),
        Limit::Machine(limit) => json!({ "by": "machine", "value": limit }),
        Limit::None => Value::Null,
        Limit::Derived => json!({ "by": "sum", "value": sum.needed }),
    };
    let terms: Vec<Value> = sum.terms.iter().map(term_json).collect();
    let holds = sum.holds();
    json!({ "of": sum.of, "unit": sum.unit, "needed": sum.needed, "limit": limit, "holds": holds, "terms": terms })
}

fn term_json(term: &Term) -> Value {
    json!({ "what": term.what, "how": term.how, "value": term.value, "at": term.at.to_string() })
}

/// The NUMA node of each memory; empty on a machine where that makes no difference.
pub(super) fn nodes_text(plan: &Plan) -> String {
    let nodes = plan.nodes(&[]);
    let line = |(name, home): (String, &Home)| {
        let (node, why) = (format!("node {}", home.node), &home.why);
        match name.chars().count() + why.chars().count() <= TERM_COLUMNS {
            true => format!("{node:>14}  {name} ({why})\n"),
            false => format!("{node:>14}  {name}\n{:>16}({why})\n", ""),
        }
    };
    let lines: String = nodes.homes(plan).map(line).collect();
    if lines.is_empty() { lines } else { format!("\nmemory by NUMA node\n{lines}") }
}

/// Like [`nodes_text`], as JSON.
pub(super) fn nodes_json(plan: &Plan) -> Value {
    let nodes = plan.nodes(&[]);
    nodes.homes(plan).map(|(name, home)| json!({ "of": name, "node": home.node, "why": home.why })).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use verbline_plan::{Catalog, Loader, Machine, Numa};

    use super::*;

    /// A pool that belongs on the second of two nodes, for a reason that fits its line or not.
    fn plan(lcore: &str) -> Plan {
        let mut machine = Machine::detect();
        let cpu = *machine.cpus.first().expect("a CPU");
        let nodes = BTreeMap::from([(0, [cpu + 1].into()), (1, [cpu].into())]);
        machine.numa = Numa { nodes, ..Numa::default() };
        let text = format!(
            "[device.nic]\nprovider = \"soft\"\n[pool.packets]\ndevice = \"nic\"\npackets = 1024\ndata_bytes = 64\n\
             [lcore.{lcore}]\ncpu = {cpu}\n[port.feed]\nlcore = \"{lcore}\"\ndevice = \"nic\"\npool = \"packets\"\n\
             transport = \"ud\"\njoin = [\"239.1.1.1\"]\nrx_depth_wr = 64\nnext = \"drop\"\n"
        );
        Loader::new(Catalog::default(), machine)
            .load_str("plan.toml", &text)
            .unwrap_or_else(|faults| panic!("{faults}"))
    }

    #[test]
    fn nodes_are_listed_with_their_reasons() {
        let cpu = plan("a").lcores()[0].cpu;
        let short = format!("\nmemory by NUMA node\n        node 1  pool.packets (CPU {cpu} of lcore.a is there)\n");
        assert_eq!(nodes_text(&plan("a")), short);
        let long = nodes_text(&plan(&"a".repeat(50)));
        assert!(long.contains("node 1  pool.packets\n                (CPU "), "{long}");
        let listed = nodes_json(&plan("a"));
        assert_eq!((&listed[0]["of"], &listed[0]["node"]), (&"pool.packets".into(), &1.into()), "{listed}");
    }
}
