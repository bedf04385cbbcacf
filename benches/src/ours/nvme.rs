//! The storage appliance as it ships: the plan of `config/nvme-target.toml`, its target on one
//! lcore and the initiator, which verifies every block, on another.

use std::path::Path;
use std::time::{Duration, Instant};

use nvme_target::NvmeTarget;
use verbline::engine::Ended;
use verbline::prelude::*;

use super::stages::finish;
use crate::Figures;
use crate::figures::median;

/// How long a run is measured, once it has written every block: a machine that is busy, or a build
/// that is not a release, takes a while to.
const TIME: Duration = Duration::from_millis(1_000);
const FILLED_WITHIN: Duration = Duration::from_secs(60);
/// Blocks of the plan's namespace, 16 MiB of 4 KiB each.
const BLOCKS: u64 = 4096;
/// As many as fit in two seconds or so, with the plan's own start.
const RUNS: usize = 3;
/// Commands under way in all, however many connections share them.
const UNDER_WAY: u32 = 256;

/// Connections beside those of I/O queues: of the discovery controller and of administration.
const OTHER_CONNECTIONS: u32 = 2;

/// What both ends need at the most: a buffer for each command and each connection, and packets for
/// all that can be in the queues of 126 connections, as many as a port of the target serves.
const BUFFER_BYTES: u32 = 4 << 20;
const COMMANDS: u32 = 16_384;

/// Who checks the blocks of the namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checks {
    /// Nobody: there is nothing behind them.
    #[default]
    None,
    /// The target's CPU, before it answers.
    Cpu,
    /// The device, behind a response that is posted already.
    Device,
}

/// The longest command's data, and what lies behind its blocks.
const DATA_BYTES: u32 = (32 << 10) + 512;

/// What is asked of the target.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Connections of I/O queues, at least 1.
    pub connections: u32,
    /// Commands under way in all, at least one a connection.
    pub depth: u32,
    /// The share of reads, 0 to 1; the others are writes.
    pub read_share: f64,
    /// Whether blocks have protection information, which the target makes and takes off.
    pub checks: Checks,
}

impl Load {
    /// Reads over this many connections, at the depth of the rows that count commands.
    #[must_use]
    pub fn reads(connections: u32) -> Self {
        Self { connections, depth: UNDER_WAY, read_share: 1.0, checks: Checks::None }
    }
}

/// 4 KiB commands: `per_s`, `ns` a command, and `p50_ns` and `p99_ns` of reads, medians of a few
/// runs.
///
/// # Panics
/// If the plan does not load, or the run fails: a figure of such a run would mean nothing.
pub fn commands(load: Load) -> Figures {
    let runs: Vec<[f64; 3]> = (0..RUNS).map(|_| run(load)).collect();
    let [per_s, p50_ns, p99_ns] = [0, 1, 2].map(|at| median(runs.iter().map(|figures| figures[at])));
    Figures::of("per_s", per_s).and("ns", 1e9 / per_s).and("p50_ns", p50_ns).and("p99_ns", p99_ns)
}

fn run(load: Load) -> [f64; 3] {
    let app = NvmeTarget::default();
    let mut registry = Registry::new(app.name());
    app.register(&mut registry);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/nvme-target.toml");
    let loaded = Loader::new(registry.catalog(), Machine::detect()).sets(settings(load)).load_path(&path);
    let plan = loaded.unwrap_or_else(|diagnostics| panic!("{diagnostics}"));
    let running = Runtime::build(&plan, &registry).and_then(Runtime::start).unwrap_or_else(|error| panic!("{error}"));
    let began = Instant::now();
    let goes_on = || running.wait(Some(Duration::from_millis(10))) == Ended::TimedOut;
    while !is_filled(&running) && began.elapsed() < FILLED_WITHIN && goes_on() {}
    running.wait(Some(TIME));
    let report = finish(running);
    let outcome = app.outcome(&report);
    assert!(outcome.failures.is_empty(), "{:?}", outcome.failures);
    let figure = |value: &serde_json::Value| value.as_f64().unwrap_or(f64::NAN);
    let reads = &outcome.json["latency_ns"]["read"];
    [figure(&outcome.json["iops"]), figure(&reads["p50"]), figure(&reads["p99"])]
}

/// Whether the initiator has had as many commands answered as the namespace has blocks.
fn is_filled(running: &Running) -> bool {
    running.snapshot().stage("load").and_then(|stage| stage.counter("answered")) >= Some(BLOCKS)
}

/// The plan's keys that differ from those that ship.
fn settings(load: Load) -> Vec<String> {
    let Load { connections, depth, read_share, checks } = load;
    let connections_max = connections + OTHER_CONNECTIONS;
    // A read is two operations; if the device checks it, three. Half of all are the shares that the
    // connections own.
    let operations = if checks == Checks::Device { 3 } else { 2 };
    let mut settings = vec![
        format!("load.read_share={read_share:?}"),
        format!("load.depth={}", (depth / connections).max(1)),
        format!("port.io.connections={connections}"),
        format!("port.io.tx_depth_wr={}", 2 * depth / connections + 32),
        format!("port.hosts.connections_max={connections_max}"),
        format!("port.hosts.tx_shared_wr={}", connections_max.min(8)),
        format!("port.hosts.ops_shared_wr={}", 2 * operations * UNDER_WAY),
        format!("nvme.queues_max={connections_max}"),
        format!("nvme.address_connections_max={connections_max}"),
        format!("nvme.entries_max={}", 2 * UNDER_WAY),
        format!("port.hosts.ops_depth_wr={}", 3 * UNDER_WAY),
        format!("region.buffers.bytes={BUFFER_BYTES}"),
        format!("pool.commands.packets={COMMANDS}"),
        format!("pool.capsules.packets={COMMANDS}"),
        format!("pool.data.packets={}", COMMANDS / 4),
        "lcore.target.idle=poll".to_owned(),
    ];
    if checks != Checks::None {
        settings.extend(["nvme.namespace.1.protection=type1", "load.protection=target"].map(str::to_owned));
        settings.push(format!("pool.data.data_bytes={DATA_BYTES}"));
    }
    if checks == Checks::Device {
        settings.push(format!("port.hosts.signature_keys={UNDER_WAY}"));
        settings.push("nvme.reads_checked_by=device".to_owned());
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a benchmark asks for is a plan, which its stages take: without a run, nobody else
    /// would notice.
    #[test]
    fn every_load_is_a_plan() {
        for connections in [1, 4, 16, 64, 126] {
            for checks in [Checks::None, Checks::Cpu, Checks::Device] {
                let app = NvmeTarget::default();
                let mut registry = Registry::new(app.name());
                app.register(&mut registry);
                let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/nvme-target.toml");
                let loader = Loader::new(registry.catalog(), Machine::detect());
                let loaded = loader.sets(settings(Load { checks, ..Load::reads(connections) })).load_path(&path);
                let plan = loaded.unwrap_or_else(|faults| panic!("{connections}, {checks:?}: {faults}"));
                Runtime::check(&plan, &registry).unwrap_or_else(|faults| panic!("{connections}, {checks:?}: {faults}"));
            }
        }
    }
}
