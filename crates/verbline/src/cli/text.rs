//! The report as a person reads it: tables that fit 80 columns, and the formats of their numbers.

use std::fmt::Write as _;
use std::time::Duration;

use comfy_table::{CellAlignment, ContentArrangement, Table, TableStyle};
use indicatif::HumanCount;
use verbline_engine::{LcoreReport, PortReport, Report, StageReport};

use super::Outcome;
use super::json::{ratio, shares};

const WIDTH_COLUMNS: u16 = 80;

/// A count with thousands separators, e.g. `1,250,000`.
pub fn count(value: u64) -> String {
    HumanCount(value).to_string()
}

/// A time in the unit that suits it, e.g. `1.3µs`.
pub fn duration(value_ns: u64) -> String {
    match value_ns {
        0..1_000 => format!("{value_ns}ns"),
        _ => format!("{:.1?}", Duration::from_nanos(value_ns)),
    }
}

/// A share between 0 and 1 as a percentage, e.g. `12.5 %`.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// The whole report.
pub(super) fn report(report: &Report, outcome: &Outcome) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "{}: ran {:.1?}\n", report.plan, Duration::from_nanos(report.elapsed_ns));
    if !outcome.text.is_empty() {
        let _ = writeln!(text, "{}\n", outcome.text.trim_end());
    }
    let _ = writeln!(text, "{}\n", lcores(&report.lcores));
    let _ = writeln!(text, "{}\n", stages(report));
    let _ = writeln!(text, "{}\n", ports(&report.ports));
    text.push_str(&drops(report));
    text.push_str(&packets(report));
    for failure in &report.failures {
        let stage = failure.stage.as_deref().map(|stage| format!(", stage {stage}")).unwrap_or_default();
        let _ = writeln!(text, "FAILED: lcore {}{stage}: {}", failure.lcore, failure.message);
    }
    for failure in &outcome.failures {
        let _ = writeln!(text, "FAILED: {failure}");
    }
    text
}

fn table<const N: usize>(header: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let mut table = Table::new();
    table.load_style(TableStyle::new()).set_content_arrangement(ContentArrangement::Dynamic).set_width(WIDTH_COLUMNS);
    table.set_header(header.map(str::to_owned));
    for row in rows {
        table.add_row(row);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
        // Names on the left, numbers on the right.
        let alignment = if column.index == 0 { CellAlignment::Left } else { CellAlignment::Right };
        column.set_cell_alignment(alignment);
    }
    table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

fn lcores(lcores: &[LcoreReport]) -> String {
    let header = ["lcore", "cpu", "policy", "busy", "idle", "asleep", "sleeps", "rescues"];
    table(
        header,
        lcores.iter().map(|lcore| {
            let [busy, idle, asleep] = shares(lcore).map(percent);
            let policy = lcore.idle.clone();
            [
                lcore.name.clone(),
                lcore.cpu.to_string(),
                policy,
                busy,
                idle,
                asleep,
                count(lcore.sleeps),
                count(lcore.rescues),
            ]
        }),
    )
}

fn stages(report: &Report) -> String {
    let header = ["stage", "lcore", "packets", "batch", "ns/packet", "share of busy"];
    table(header, report.stages.iter().map(|stage| stage_row(report, stage)))
}

fn stage_row(report: &Report, stage: &StageReport) -> [String; 6] {
    let busy_ns = report.lcore(&stage.lcore).map_or(0, |lcore| lcore.busy_ns);
    // A source has no input: its cost is spread over what it sends.
    let (packets, calls) = if stage.packets_in > 0 { (stage.packets_in, stage.calls) } else { (stage.packets_out, 0) };
    [
        stage.name.clone(),
        stage.lcore.clone(),
        count(packets),
        if calls > 0 { format!("{:.1}", ratio(packets, calls)) } else { "-".to_owned() },
        format!("{:.0}", ratio(stage.busy_ns, packets)),
        percent(ratio(stage.busy_ns, busy_ns)),
    ]
}

fn ports(ports: &[PortReport]) -> String {
    let header = ["port", "lcore", "received", "sent", "sent/post", "errors"];
    table(
        header,
        ports.iter().map(|port| {
            let errors: u64 = port.errors.iter().map(|status| status.count).sum();
            let batch = if port.tx_posts > 0 {
                format!("{:.1}", ratio(port.tx_packets, port.tx_posts))
            } else {
                "-".to_owned()
            };
            [
                port.name.clone(),
                port.lcore.clone(),
                count(port.rx_packets),
                count(port.tx_packets),
                batch,
                count(errors),
            ]
        }),
    )
}

fn drops(report: &Report) -> String {
    if report.drops.is_empty() {
        return "drops    none\n".to_owned();
    }
    let rows = report.drops.iter().map(|drop| [drop.place.clone(), drop.reason.clone(), count(drop.packets)]);
    format!("{}\n\n", table(["dropped at", "reason", "packets"], rows))
}

fn packets(report: &Report) -> String {
    let packets = &report.packets;
    let (taken, returned) = (count(packets.taken), count(packets.returned));
    let mut text = format!("packets  {taken} taken, {returned} returned, {} held\n", count(packets.held));
    for holder in packets.holders.iter().filter(|holder| holder.packets > 0) {
        let _ = writeln!(text, "         {} held by {}", count(holder.packets), holder.place);
    }
    for pool in &report.pools {
        if let Some(fallback) = &pool.fallback {
            let _ = writeln!(text, "note     pool {}: {fallback}", pool.name);
        }
    }
    text
}
