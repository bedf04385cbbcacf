//! The report's tables: names on the left, numbers on the right.
//!
//! Guarantees: no number is broken: its part, read alone, would be another number. A table wider
//! than [`COLUMNS`] has its names broken, down to [`NAME_COLUMNS`]; only numbers that leave no room
//! for that make it wider.

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, TableStyle, Width};
use verbline_engine::{
    ConnectionReport, ConnectionState, ConnectionsReport, DropReport, InjectorReport, LcoreReport, PortReport,
    RingReport, StageReport,
};

use super::figures::{count, duration, percent};
use super::output::COLUMNS;

/// Shown in place of a quotient without a divisor.
const NONE: &str = "-";

/// The shortest part of a broken name.
const NAME_COLUMNS: u16 = 6;

/// A table whose first `names` columns are names.
pub(super) fn table<const N: usize>(
    header: [&str; N],
    names: usize,
    rows: impl Iterator<Item = [String; N]>,
) -> String {
    let mut table = Table::new();
    let arrangement = ContentArrangement::Dynamic;
    table.load_style(TableStyle::new()).set_content_arrangement(arrangement).set_width(COLUMNS as u16);
    table.set_header(header);
    for row in rows {
        table.add_row(row);
    }
    let widths = table.column_max_content_widths();
    for (column, width) in table.column_iter_mut().zip(widths) {
        let (is_name, is_last) = (column.index < names, column.index == N - 1);
        column.set_padding((0, if is_last { 0 } else { 2 }));
        column.set_cell_alignment(if is_name { CellAlignment::Left } else { CellAlignment::Right });
        column.set_constraint(match is_name {
            true => ColumnConstraint::LowerBoundary(Width::Fixed(width.min(NAME_COLUMNS))),
            false => ColumnConstraint::ContentWidth,
        });
    }
    table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

/// The lcores' times. Rescues are failures, and are listed there.
pub(super) fn lcores(lcores: &[LcoreReport]) -> String {
    let header = ["lcore", "policy", "cpu", "busy", "idle", "asleep", "stolen", "sleeps"];
    let rows = lcores.iter().map(|lcore| {
        let shares = [lcore.busy_share, lcore.idle_share, lcore.asleep_share, lcore.stolen_share];
        let [busy, idle, asleep, stolen] = shares.map(percent);
        // Further CPUs that it may use since it was moved.
        let more = if lcore.cpus_allowed > 1 { format!("+{}", lcore.cpus_allowed - 1) } else { String::new() };
        let (cpu, sleeps) = (format!("{}{more}", lcore.cpu), count(lcore.sleeps));
        [lcore.name.clone(), lcore.policy.clone(), cpu, busy, idle, asleep, stolen, sleeps]
    });
    table(header, 2, rows)
}

/// The stages' packets, and their cost.
pub(super) fn stages(stages: &[StageReport]) -> String {
    let header = ["stage", "lcore", "in", "out", "batch", "ns/pkt", "of busy", "±"];
    table(header, 2, stages.iter().map(stage_row))
}

fn stage_row(stage: &StageReport) -> [String; 8] {
    // Without timed calls the figures are unknown.
    let known = |figure: String| if stage.timed > 0 { figure } else { NONE.to_owned() };
    [
        stage.name.clone(),
        stage.lcore.clone(),
        count(stage.packets_in),
        // Operations of its ports count as sent, too.
        count(stage.packets_out + stage.operations),
        mean(stage.packets_in, stage.calls),
        known(format!("{:.0}", stage.ns_per_packet)),
        known(percent(stage.busy_share)),
        known(percent(stage.busy_error)),
    ]
}

/// The ports' packets.
pub(super) fn ports(ports: &[PortReport]) -> String {
    let header = ["port", "lcore", "received", "sent", "sent/post", "errors"];
    let rows = ports.iter().map(|port| {
        let errors: u64 = port.errors.iter().map(|status| status.count).sum();
        // Packets sent by operations have a table of their own.
        let by_operations = port.operations.is_some() && port.tx_packets == 0;
        let sent = || (count(port.tx_packets), mean(port.tx_packets, port.tx_posts));
        let (sent, batch) = if by_operations { (NONE.to_owned(), NONE.to_owned()) } else { sent() };
        let received = count(port.rx_packets);
        [port.name.clone(), port.lcore.clone(), received, sent, batch, count(errors)]
    });
    table(header, 2, rows)
}

/// The outcomes of the ports' operations, by kind; `None` if there were none.
pub(super) fn operations(ports: &[PortReport]) -> Option<String> {
    let rows = ports.iter().flat_map(|port| {
        let kinds = port.operations.iter().flat_map(|operations| &operations.kinds);
        kinds.map(|kind| {
            let [posted, completed, failed, bytes] = [kind.posted, kind.completed, kind.failed, kind.bytes].map(count);
            [port.name.clone(), kind.kind.to_owned(), posted, completed, failed, bytes]
        })
    });
    let rows: Vec<_> = rows.collect();
    let header = ["port", "operation", "posted", "completed", "failed", "bytes"];
    (!rows.is_empty()).then(|| table(header, 2, rows.into_iter()))
}

/// The connections of ports with many; `None` without such ports.
pub(super) fn many_connections(ports: &[PortReport]) -> Option<String> {
    let rows: Vec<_> = ports.iter().filter_map(|port| Some(many_row(port, port.connections.as_ref()?))).collect();
    let header = ["port", "role", "asked", "rejected", "unmade", "opened", "most", "left", "failed"];
    (!rows.is_empty()).then(|| table(header, 2, rows.into_iter()))
}

fn many_row(port: &PortReport, many: &ConnectionsReport) -> [String; 9] {
    let by_this_end = many.rejected_full + many.rejected_acceptor + many.rejected_device + many.rejected_resources;
    // Rejections by the listener are counted among the unanswered attempts.
    let rejected = by_this_end + many.rejected_by_peer;
    let unmade = many.unanswered - many.rejected_by_peer.min(many.unanswered);
    let figures = [many.requests, rejected, unmade, many.opened, many.open_max, many.closed, many.failed].map(count);
    let [asked, rejected, unmade, opened, most, left, failed] = figures;
    [port.name.clone(), many.role.to_owned(), asked, rejected, unmade, opened, most, left, failed]
}

/// The peers of ports connected by address.
pub(super) fn connections(connections: &[ConnectionReport]) -> String {
    let header = ["port", "role", "state", "peer", "over", "attempts", "times", "took"];
    let rows = connections.iter().map(|one| {
        let state = match one.state {
            ConnectionState::Connected => "connected",
            ConnectionState::Reconnecting => "reconnecting",
            ConnectionState::Disconnected => "disconnected",
            ConnectionState::Failed => "failed",
        };
        let (role, state, took) = (one.role.to_owned(), state.to_owned(), duration(one.connect_ns));
        let (attempts, times) = (count(one.attempts), count(one.times_connected));
        [one.port.clone(), role, state, one.peer_address.clone(), one.link.to_owned(), attempts, times, took]
    });
    table(header, 5, rows)
}

/// The rings' packets, batches, and fill levels.
pub(super) fn rings(rings: &[RingReport]) -> String {
    let header = ["ring", "from", "to", "pushed", "/push", "/pop", "depth", "most", "full"];
    // The lanes of a ring follow it.
    let rows = rings.iter().flat_map(|ring| std::iter::once(ring).chain(&ring.lanes)).map(|ring| {
        let (from, to) = (ring.producer.clone(), ring.consumer.clone());
        let (per_push, per_pop) = (mean(ring.pushed, ring.push_batches), mean(ring.popped, ring.pop_batches));
        let [pushed, depth, most, full] = [ring.pushed, ring.depth, ring.most, ring.full].map(count);
        [ring.name.clone(), from, to, pushed, per_push, per_pop, depth, most, full]
    });
    table(header, 3, rows)
}

/// The packets handed in by threads of the embedder.
pub(super) fn injectors(injectors: &[InjectorReport]) -> String {
    let header = ["injector", "stage", "pushed", "popped", "depth", "most", "refused"];
    let rows = injectors.iter().map(|one| {
        let refused = one.refused_full + one.refused_no_packet + one.refused_too_long + one.refused_stopped;
        let [pushed, popped, depth, most, refused] = [one.pushed, one.popped, one.depth, one.most, refused].map(count);
        [one.name.clone(), one.stage.clone(), pushed, popped, depth, most, refused]
    });
    table(header, 2, rows)
}

/// Drops, by place and reason.
pub(super) fn drops(drops: &[DropReport]) -> String {
    let rows = drops.iter().map(|drop| [drop.place.clone(), drop.reason.clone(), count(drop.packets)]);
    table(["dropped at", "reason", "packets"], 2, rows)
}

/// The mean per item, e.g. `31.5`; `-` without items.
pub(super) fn mean(sum: u64, of: u64) -> String {
    if of == 0 { NONE.to_owned() } else { format!("{:.1}", sum as f64 / of as f64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table of two names and four numbers, as wide as they make it.
    fn shown(numbers: [u64; 4]) -> String {
        let [a, b, c, d] = numbers.map(count);
        let row = ["a-long-name".to_owned(), "market-data".to_owned(), a, b, c, d];
        table(["stage", "lcore", "in", "out", "posted", "bytes"], 2, std::iter::once(row))
    }

    #[test]
    fn no_number_is_broken_however_long_the_run_was() {
        for digits in 1..=19 {
            let number = 10_u64.pow(digits);
            let text = shown([number; 4]);
            assert_eq!(text.matches(&count(number)).count(), 4, "{text}");
            let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
            let least = 2 * usize::from(NAME_COLUMNS) + 4 * count(number).len() + 5 * 2;
            assert!(widest <= COLUMNS.max(least), "{text}");
        }
        // Names are broken only for lack of room.
        assert!(shown([1 << 28; 4]).contains("a-long-name"));
    }
}
