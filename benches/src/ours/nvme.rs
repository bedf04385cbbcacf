//! The storage appliance as shipped: the plan of `config/nvme-target.toml`, its target on one lcore
//! and the initiator, which verifies every block, on another.

use std::path::Path;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use nvme_target::NvmeTarget;
use verbline::engine::Ended;
use verbline::prelude::*;

use super::stages::finish;
use crate::Figures;
use crate::figures::median;

/// The measured time of a run, after every block was written; a busy machine, or a build that is
/// not a release, takes a while for that.
const TIME: Duration = Duration::from_millis(1_000);
const FILLED_WITHIN: Duration = Duration::from_secs(60);
/// Blocks of the plan's namespace, 16 MiB of 4 KiB each.
const BLOCKS: u64 = 4096;
/// Runs that fit into some two seconds, with the plan's own start.
const RUNS: usize = 3;
/// Commands in flight in all, for any number of connections.
const UNDER_WAY: u32 = 256;

/// Connections besides those of I/O queues: of the discovery controller and of administration.
const OTHER_CONNECTIONS: u32 = 2;

/// The greatest needs of both ends: a buffer for each command and each connection, and packets for
/// all queues of 126 connections, the most that a port of the target serves.
const BUFFER_BYTES: u32 = 4 << 20;
const COMMANDS: u32 = 16_384;

/// The checker of the namespace's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Checks {
    /// None: the blocks have no protection information.
    #[value(skip)]
    None,
    /// The target's CPU, before it answers.
    Cpu,
    /// The device, behind a response that is already posted.
    Device,
}

/// The longest command's data, with the protection information of its blocks.
const DATA_BYTES: u32 = (32 << 10) + 512;

/// The load on the target.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Connections of I/O queues, at least 1.
    pub connections: u32,
    /// Commands in flight in all, at least one per connection.
    pub depth: u32,
    /// The share of reads, 0 to 1; the others are writes.
    pub read_share: f64,
    /// The check of protection information, which the target generates and strips.
    pub checks: Checks,
}

impl Load {
    /// Reads over this many connections, at the depth of the rows that count commands.
    #[must_use]
    pub fn reads(connections: u32) -> Self {
        Self { connections, depth: UNDER_WAY, read_share: 1.0, checks: Checks::None }
    }
}

/// Commands of 4 KiB: `per_s`, `ns` per command, and `p50_ns` and `p99_ns` of reads, medians of a
/// few runs.
///
/// # Panics
/// If the plan does not load, or the run fails: its figures would mean nothing.
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

/// The settings that differ from the shipped plan.
fn settings(load: Load) -> Vec<String> {
    let Load { connections, depth, read_share, checks } = load;
    let connections_max = connections + OTHER_CONNECTIONS;
    // A read is two operations, or three if the device checks it. Half of all operations are the
    // connections' own shares.
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

    /// Checks that each load gives a valid plan that its stages accept: without a run, nobody else
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
