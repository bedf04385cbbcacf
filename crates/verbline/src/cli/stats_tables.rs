//! A run's activity in a time, as tables of at most 80 columns; numbers of long runs may take more.

use std::fmt::Write as _;

use verbline_operate::awake::{Shares, why_awake};
use verbline_operate::change::Change;
use verbline_operate::client_report::{Histogram, Seen};
use verbline_operate::protocol::Hello;

use super::figures::{count, duration, percent, rate};
use super::output::labelled;
use super::stage_text::times_within;
use super::tables::{mean, table};
use super::visible::visible_name;

/// The form of counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Figures {
    /// Rates a second.
    Rates,
    /// Counts over the whole time.
    Counts,
}

struct Shown<'a> {
    change: &'a Change,
    figures: Figures,
}

impl Shown<'_> {
    fn of(&self, counted: u64) -> String {
        match self.figures {
            Figures::Rates => rate(self.change.per_second(counted)),
            Figures::Counts => count(counted),
        }
    }

    /// A column's name, with the unit of its counts.
    fn head(&self, name: &str) -> String {
        match self.figures {
            Figures::Rates => format!("{name}/s"),
            Figures::Counts => name.to_owned(),
        }
    }
}

/// All tables. `elapsed_ns` is the run's time so far, if that is longer than the change.
pub(super) fn text(hello: &Hello, change: &Change, elapsed_ns: Option<u64>, figures: Figures) -> String {
    let (shown, counts) = (Shown { change, figures }, change.counts());
    let over = duration(counts.elapsed_ns);
    let time = match elapsed_ns {
        None => format!("in the {over} since its start"),
        Some(elapsed_ns) => format!("in the last {over} of {}", duration(elapsed_ns)),
    };
    let mut text = format!("{}, process {}: {time}\n\n", visible_name(&hello.plan), hello.pid);
    let tables = [
        Some(lcores(&shown, counts)),
        stages(&shown, counts),
        ports(&shown, counts),
        operations(&shown, counts),
        connections(counts),
        rings(&shown, counts),
        injectors(&shown, counts),
        pools(counts),
    ];
    for table in tables.into_iter().flatten() {
        let _ = writeln!(text, "{table}\n");
    }
    text += &held(counts);
    text += &drops(&shown, counts);
    for failure in &counts.failures {
        let _ = writeln!(text, "{}", labelled("FAILED", &format!("lcore {}: {}", failure.lcore, failure.message)));
    }
    text
}

fn lcores(shown: &Shown<'_>, counts: &Seen) -> String {
    let header = ["lcore", "cpu", "busy", "idle", "asleep", "stolen", &shown.head("sleeps"), &shown.head("turns")];
    let rows = counts.lcores.iter().map(|lcore| {
        let Shares { busy, idle, asleep, stolen } = Shares::of(lcore);
        let [busy, idle, asleep, stolen] = [busy, idle, asleep, stolen].map(percent);
        let (cpu, sleeps, turns) = (lcore.cpu.to_string(), shown.of(lcore.sleeps), shown.of(lcore.loops));
        [lcore.name.clone(), cpu, busy, idle, asleep, stolen, sleeps, turns]
    });
    let mut text = table(header, 1, rows);
    for lcore in &counts.lcores {
        let line = format!("{}: {}", lcore.name, why_awake(shown.change, lcore));
        let _ = write!(text, "\n{}", labelled("awake", &line));
    }
    text
}

fn stages(shown: &Shown<'_>, counts: &Seen) -> Option<String> {
    let header = ["stage", "lcore", &shown.head("in"), &shown.head("out"), "batch", "ns/pkt", "call p99", "of lcore"];
    let rows = counts.stages.iter().map(|stage| {
        let packets = stage.packets_in.max(stage.packets_out);
        let share = counts.elapsed_ns as f64;
        let known = |figure: String| if stage.timed > 0 { figure } else { "-".to_owned() };
        [
            stage.name.clone(),
            stage.lcore.clone(),
            shown.of(stage.packets_in),
            shown.of(stage.packets_out),
            mean(stage.packets_in, stage.calls),
            known(mean(stage.busy_ns, packets)),
            stage.call_times.quantile_ns(0.99).map_or_else(|| "-".to_owned(), duration),
            known(percent(if share == 0.0 { 0.0 } else { stage.busy_ns as f64 / share })),
        ]
    });
    (!counts.stages.is_empty()).then(|| table(header, 2, rows) + &own_times(shown, counts))
}

/// The stages' own measurements, a line each below their table.
fn own_times(shown: &Shown<'_>, counts: &Seen) -> String {
    let mut text = String::new();
    for stage in &counts.stages {
        for Histogram { name, times } in stage.histograms.iter().flatten() {
            let shares = times_within([0.5, 0.99, 0.999].map(|share| times.quantile_ns(share)));
            let line = format!("{}: {name} {}{}, {shares}", stage.name, shown.of(times.count), shown.head(""));
            let _ = write!(text, "\n{}", labelled("times", &line));
        }
    }
    text
}

fn ports(shown: &Shown<'_>, counts: &Seen) -> Option<String> {
    let head = |name: &str| match shown.figures {
        Figures::Rates => format!("{name} bit/s"),
        Figures::Counts => format!("{name} bits"),
    };
    let (rx, tx) = (head("rx"), head("tx"));
    let header = ["port", "lcore", &shown.head("rx"), &shown.head("tx"), &rx, &tx, "batch", "errors"];
    let rows = counts.ports.iter().map(|port| {
        let errors: u64 = port.errors.iter().map(|error| error.count).sum();
        let state = if port.down { "down".to_owned() } else { count(errors) };
        [
            port.name.clone(),
            port.lcore.clone(),
            shown.of(port.rx_packets),
            shown.of(port.tx_packets),
            shown.of(port.rx_bytes * 8),
            shown.of(port.tx_bytes * 8),
            mean(port.tx_packets, port.tx_posts),
            state,
        ]
    });
    (!counts.ports.is_empty()).then(|| table(header, 2, rows))
}

fn operations(shown: &Shown<'_>, counts: &Seen) -> Option<String> {
    let ports = counts.ports.iter().filter_map(|port| Some((port, port.operations.as_ref()?)));
    let rows: Vec<_> = ports
        .flat_map(|(port, operations)| {
            operations.kinds.iter().map(|kind| {
                let (posted, completed) = (shown.of(kind.posted), shown.of(kind.completed));
                [port.name.clone(), kind.kind.clone(), posted, completed, count(kind.failed), shown.of(kind.bytes)]
            })
        })
        .collect();
    let (posted, completed, bytes) = (shown.head("posted"), shown.head("completed"), shown.head("bytes"));
    let header = ["port", "operation", &posted, &completed, "failed", &bytes];
    (!rows.is_empty()).then(|| table(header, 2, rows.into_iter()))
}

/// Ports with many connections, and connections by address.
fn connections(counts: &Seen) -> Option<String> {
    let many = counts.ports.iter().filter_map(|port| {
        let many = port.connections.as_ref()?;
        let state = format!("{} of {} open", count(many.open), count(many.max));
        Some([port.name.clone(), many.role.clone(), state, "-".to_owned(), count(many.closed), count(many.failed)])
    });
    let by_address = counts.connections.iter().map(|one| {
        let lost = one.times_connected.saturating_sub(1);
        let (peer, attempts) = (one.peer_address.clone(), one.attempts.saturating_sub(one.times_connected));
        [one.port.clone(), one.role.clone(), one.state.clone(), peer, count(lost), count(attempts)]
    });
    let rows: Vec<_> = many.chain(by_address).collect();
    let header = ["port", "role", "state", "peer", "left", "failed"];
    (!rows.is_empty()).then(|| table(header, 4, rows.into_iter()))
}

fn rings(shown: &Shown<'_>, counts: &Seen) -> Option<String> {
    let (pushed, popped, full) = (shown.head("in"), shown.head("out"), shown.head("full"));
    let header = ["ring", "from", "to", &pushed, &popped, "queued", "depth", &full];
    let rows = counts.rings.iter().map(|ring| {
        let queued = count(counts.held_by(&format!("ring.{}", ring.name)));
        let [pushed, popped, full] = [ring.pushed, ring.popped, ring.full].map(|counted| shown.of(counted));
        let (from, to) = (ring.producer.clone(), ring.consumer.clone());
        [ring.name.clone(), from, to, pushed, popped, queued, count(ring.depth), full]
    });
    (!counts.rings.is_empty()).then(|| table(header, 3, rows))
}

fn injectors(shown: &Shown<'_>, counts: &Seen) -> Option<String> {
    let (pushed, popped, refused) = (shown.head("in"), shown.head("out"), shown.head("refused"));
    let header = ["injector", "stage", &pushed, &popped, "depth", &refused];
    let rows = counts.injectors.iter().map(|one| {
        let refused = one.refused_full + one.refused_no_packet + one.refused_too_long + one.refused_stopped;
        let [pushed, popped, refused] = [one.pushed, one.popped, refused].map(|counted| shown.of(counted));
        [one.name.clone(), one.stage.clone(), pushed, popped, count(one.depth), refused]
    });
    (!counts.injectors.is_empty()).then(|| table(header, 2, rows))
}

fn pools(counts: &Seen) -> Option<String> {
    let header = ["pool", "packets", "free", "cached", "held"];
    let rows = counts.pools.iter().map(|pool| {
        let [packets, free, cached, held] = [pool.packets, pool.free, pool.cached, pool.held].map(count);
        [pool.name.clone(), packets, free, cached, held]
    });
    (!counts.pools.is_empty()).then(|| table(header, 1, rows))
}

/// The holders of packets, with the most packets first.
fn held(counts: &Seen) -> String {
    let mut holders: Vec<_> = counts.packets.holders.iter().filter(|holder| holder.packets > 0).collect();
    holders.sort_by_key(|holder| std::cmp::Reverse(holder.packets));
    let name = |place: &str| if place == "elsewhere" { "stages or the app".to_owned() } else { place.to_owned() };
    let each = holders.iter().map(|holder| format!("{} by {}", count(holder.packets), name(&holder.place)));
    match &each.collect::<Vec<_>>()[..] {
        [] => format!("{}\n", labelled("held", "no packet")),
        each => format!("{}\n", labelled("held", &each.join(", "))),
    }
}

fn drops(shown: &Shown<'_>, counts: &Seen) -> String {
    let rows: Vec<_> = counts
        .drops
        .iter()
        .filter(|drop| drop.packets > 0)
        .map(|drop| [drop.place.clone(), drop.reason.clone(), shown.of(drop.packets)])
        .collect();
    if rows.is_empty() {
        return format!("{}\n", labelled("drops", "none"));
    }
    format!("\n{}\n", table(["dropped at", "reason", &shown.head("packets")], 2, rows.into_iter()))
}
