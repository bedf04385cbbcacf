//! A run's activity in a time, as rows to sort and filter: a grid for each kind of thing.

use verbline_operate::change::Change;
use verbline_operate::client_report::{Port, Seen, Times};

use super::super::figures::{count, duration, percent, rate};
use super::super::visible::visible_name;

/// The content of the lower part of the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    Stages,
    Ports,
    Connections,
    Rings,
    Pools,
    Drops,
    Times,
}

impl View {
    pub(crate) const ALL: [View; 7] =
        [View::Stages, View::Ports, View::Connections, View::Rings, View::Pools, View::Drops, View::Times];

    pub(crate) fn word(self) -> &'static str {
        match self {
            View::Stages => "stages",
            View::Ports => "ports",
            View::Connections => "connections",
            View::Rings => "rings",
            View::Pools => "pools",
            View::Drops => "drops",
            View::Times => "times",
        }
    }
}

/// A cell: its text, and its value for sorting; a name is sorted as a text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cell {
    pub(crate) text: String,
    pub(crate) value: Option<f64>,
}

/// Rows of one kind.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Grid {
    pub(crate) header: Vec<&'static str>,
    pub(crate) rows: Vec<Vec<Cell>>,
}

fn name(text: &str) -> Cell {
    Cell { text: visible_name(text), value: None }
}

fn figure(value: f64, text: String) -> Cell {
    Cell { text, value: Some(value) }
}

/// A current amount.
fn now(amount: u64) -> Cell {
    figure(amount as f64, count(amount))
}

/// A count of the change, as a rate.
fn a_second(change: &Change, counted: u64) -> Cell {
    let value = change.per_second(counted);
    figure(value, rate(value))
}

/// An unknown figure.
fn unknown() -> Cell {
    figure(0.0, "-".to_owned())
}

fn mean(sum: u64, of: u64) -> Cell {
    match of {
        0 => unknown(),
        of => figure(sum as f64 / of as f64, format!("{:.1}", sum as f64 / of as f64)),
    }
}

impl Grid {
    /// The rows of a view: of one lcore, if one was chosen. `later` is the report at the end of the
    /// change, with the counts since the start.
    pub(crate) fn of(view: View, change: &Change, later: &Seen, lcore: Option<&str>) -> Grid {
        let is_of = |one: &str| lcore.is_none_or(|lcore| lcore == one);
        match view {
            View::Stages => stages(change, is_of),
            View::Ports => ports(change, later, is_of),
            View::Connections => connections(change, later, is_of),
            View::Rings => rings(change, is_of),
            View::Pools => pools(change),
            View::Drops => drops(change, is_of),
            View::Times => times(change, is_of),
        }
    }

    /// Keeps the rows with these letters in a name.
    pub(crate) fn filter(&mut self, letters: &str) {
        self.rows.retain(|row| row.iter().any(|cell| cell.value.is_none() && cell.text.contains(letters)));
    }

    /// Sorts by a column: figures with the largest first, names by the alphabet.
    pub(crate) fn sort(&mut self, column: usize) {
        self.rows.sort_by(|a, b| match (a[column].value, b[column].value) {
            (Some(a), Some(b)) => b.total_cmp(&a),
            _ => a[column].text.cmp(&b[column].text),
        });
    }

    /// The header and the rows as text of at most `width` columns. Figures stay whole; names are
    /// shortened.
    pub(crate) fn lines(&self, width: usize, sorted_by: Option<usize>) -> (String, Vec<String>) {
        let is_name = |column: usize| self.rows.first().is_some_and(|row| row[column].value.is_none());
        let mark = |column: usize| if sorted_by == Some(column) { "*" } else { "" };
        let header: Vec<String> =
            self.header.iter().enumerate().map(|(column, word)| format!("{word}{}", mark(column))).collect();
        let columns_of = |text: &str| text.chars().count();
        let longest = |column: usize| self.rows.iter().map(|row| columns_of(&row[column].text)).max().unwrap_or(0);
        let mut widths: Vec<usize> =
            header.iter().enumerate().map(|(column, word)| columns_of(word).max(longest(column))).collect();
        while widths.iter().map(|width| width + 2).sum::<usize>() > width + 2 {
            let names = (0..widths.len()).filter(|&column| is_name(column) && widths[column] > 6);
            let Some(widest) = names.max_by_key(|&column| widths[column]) else { break };
            widths[widest] -= 1;
        }
        let line = |cells: Vec<&str>| {
            let cell = |(column, text): (usize, &&str)| {
                let width = widths[column];
                let text = match columns_of(text) > width {
                    true => text.chars().take(width - 1).chain(['…']).collect(),
                    false => (*text).to_owned(),
                };
                if is_name(column) { format!("{text:<width$}") } else { format!("{text:>width$}") }
            };
            let cells: Vec<String> = cells.iter().enumerate().map(cell).collect();
            cells.join("  ").chars().take(width).collect::<String>()
        };
        let rows = self.rows.iter().map(|row| line(row.iter().map(|cell| cell.text.as_str()).collect())).collect();
        (line(header.iter().map(String::as_str).collect()), rows)
    }
}

fn stages(change: &Change, is_of: impl Fn(&str) -> bool) -> Grid {
    let over_ns = change.counts().elapsed_ns.max(1) as f64;
    let rows = change.counts().stages.iter().filter(|stage| is_of(&stage.lcore)).map(|stage| {
        let share = stage.busy_ns as f64 / over_ns;
        // Times are sampled: a stage without samples has none.
        let known = |cell: Cell| if stage.timed > 0 { cell } else { unknown() };
        vec![
            name(&stage.name),
            name(&stage.lcore),
            a_second(change, stage.packets_in),
            a_second(change, stage.packets_out),
            mean(stage.packets_in, stage.calls),
            known(mean(stage.busy_ns, stage.packets_in.max(stage.packets_out))),
            stage.call_times.quantile_ns(0.99).map_or_else(unknown, |ns| figure(ns as f64, duration(ns))),
            known(figure(share, percent(share))),
            a_second(change, stage.alloc_failed),
        ]
    });
    let header = vec!["stage", "lcore", "in/s", "out/s", "batch", "ns/pkt", "call p99", "of lcore", "no pkt/s"];
    Grid { header, rows: rows.collect() }
}

/// The lengths of timers' wake-ups, of calls of stages, and of the stages' own measurements. The
/// longest is since the start.
fn times(change: &Change, is_of: impl Fn(&str) -> bool) -> Grid {
    let row = |of: &str, what: &str, times: &Times| {
        let share = |share| times.quantile_ns(share).map_or_else(unknown, |ns| figure(ns as f64, duration(ns)));
        let [p50, p99, p999] = [0.5, 0.99, 0.999].map(share);
        let most = figure(times.max_ns as f64, duration(times.max_ns));
        vec![name(of), name(what), a_second(change, times.count), p50, p99, p999, most]
    };
    let counts = change.counts();
    let mut rows = Vec::new();
    for stage in counts.stages.iter().filter(|stage| is_of(&stage.lcore)) {
        let of = format!("stage {}", stage.name);
        rows.extend(stage.histograms.iter().flatten().map(|own| row(&of, &own.name, &own.times)));
        rows.push(row(&of, "a call", &stage.call_times));
    }
    for lcore in counts.lcores.iter().filter(|lcore| is_of(&lcore.name)) {
        rows.push(row(&format!("lcore {}", lcore.name), "late to wake", &lcore.wake_late));
    }
    let header = vec!["of", "what", "n/s", "p50", "p99", "p99.9", "max ever"];
    Grid { header, rows }
}

fn ports(change: &Change, later: &Seen, is_of: impl Fn(&str) -> bool) -> Grid {
    let counts = change.counts();
    let ports = counts.ports.iter().zip(&later.ports).filter(|(port, _)| is_of(&port.lcore));
    let rows = ports.map(|(port, in_all)| {
        let errors: u64 = in_all.errors.iter().map(|error| error.count).sum();
        vec![
            name(&port.name),
            name(&port.lcore),
            name(state(port)),
            a_second(change, port.rx_packets),
            a_second(change, port.tx_packets),
            a_second(change, port.rx_bytes * 8),
            a_second(change, port.tx_bytes * 8),
            now(counts.held_by(&format!("port.{} tx", port.name))),
            now(errors),
        ]
    });
    let rows = rows.collect();
    let header = vec!["port", "lcore", "state", "rx/s", "tx/s", "rx bit/s", "tx bit/s", "tx held", "errors"];
    Grid { header, rows }
}

fn state(port: &Port) -> &'static str {
    match (port.down, port.link_down) {
        (true, _) => "down",
        (false, true) => "no link",
        (false, false) => "up",
    }
}

/// A row for each port with many connections, and one for each connection by address. All counts
/// but the rate are since the start, or since the connection was last made.
fn connections(change: &Change, later: &Seen, is_of: impl Fn(&str) -> bool) -> Grid {
    let ports = change.counts().ports.iter().zip(&later.ports).filter(|(port, _)| is_of(&port.lcore));
    let many = ports.filter_map(|(port, in_all)| {
        let (many, in_all) = (port.connections.as_ref()?, in_all.connections.as_ref()?);
        let peers = format!("{} of {} open", count(many.open), count(many.max));
        let figures = [in_all.opened, in_all.closed, in_all.failed].map(now);
        let names = [name(&port.name), name(&peers), name(&many.role)];
        let figures = [a_second(change, many.opened)].into_iter().chain(figures);
        Some(names.into_iter().chain(figures).chain([unknown()]).collect())
    });
    let lcore_of = |port: &str| later.ports.iter().find(|one| one.name == port).map(|port| port.lcore.as_str());
    let by_address = later.connections.iter().filter(|one| lcore_of(&one.port).is_some_and(&is_of));
    let one = by_address.map(|one| {
        let (lost, failed) = (one.times_connected.saturating_sub(1), one.attempts.saturating_sub(one.times_connected));
        let names = [name(&one.port), name(&one.peer_address), name(&one.state)];
        // Known where its packets go over UDP.
        let again = one.wire.as_ref().map_or_else(unknown, |wire| now(wire.retransmitted));
        let figures = [unknown()].into_iter().chain([one.times_connected, lost, failed].map(now));
        names.into_iter().chain(figures).chain([again]).collect()
    });
    let header = vec!["port", "peer", "state", "opened/s", "opened", "ended", "failed", "again"];
    Grid { header, rows: many.chain(one).collect() }
}

fn rings(change: &Change, is_of: impl Fn(&str) -> bool) -> Grid {
    let counts = change.counts();
    let rows = counts.rings.iter().filter(|ring| is_of(&ring.consumer) || ring.producer.split(", ").any(&is_of));
    let rows = rows.map(|ring| {
        let flows = [ring.pushed, ring.popped].map(|counted| a_second(change, counted));
        let levels = [counts.held_by(&format!("ring.{}", ring.name)), ring.depth, ring.most].map(now);
        let names = [name(&ring.name), name(&ring.producer), name(&ring.consumer)];
        names.into_iter().chain(flows).chain(levels).chain([a_second(change, ring.full)]).collect()
    });
    let header = vec!["ring", "from", "to", "in/s", "out/s", "queued", "depth", "most", "full/s"];
    Grid { header, rows: rows.collect() }
}

fn pools(change: &Change) -> Grid {
    let counts = change.counts();
    let pools = counts.pools.iter().map(|pool| {
        let figures = [pool.packets, pool.free, pool.cached, pool.held].map(now);
        [name(&pool.name)].into_iter().chain(figures).collect()
    });
    // Below the pools: the holders of their packets.
    let blank = || Cell { text: String::new(), value: Some(0.0) };
    let holders = counts.packets.holders.iter().map(|holder| {
        let place = if holder.place == "elsewhere" { "stages or the app" } else { &holder.place };
        vec![name(&format!("  {place}")), blank(), blank(), blank(), now(holder.packets)]
    });
    Grid { header: vec!["pool", "packets", "free", "cached", "held"], rows: pools.chain(holders).collect() }
}

fn drops(change: &Change, is_of: impl Fn(&str) -> bool) -> Grid {
    let counts = change.counts();
    // Drops at places between lcores are listed with every lcore.
    let lcore_of = |place: &str| match place.split_once('.')? {
        ("stage", name) => counts.stages.iter().find(|one| one.name == name).map(|stage| stage.lcore.as_str()),
        ("port", name) => counts.ports.iter().find(|one| one.name == name).map(|port| port.lcore.as_str()),
        _ => None,
    };
    let rows = counts.drops.iter().filter(|drop| lcore_of(&drop.place).is_none_or(&is_of));
    let rows = rows.map(|drop| vec![name(&drop.place), name(&drop.reason), a_second(change, drop.packets)]);
    Grid { header: vec!["dropped at", "reason", "packets/s"], rows: rows.collect() }
}
