//! DPDK's own performance tests: `dpdk-test`, which reads the names of tests from its standard
//! input.

use std::time::Duration;

use verbline::engine::Clock;
use verbline_benches::Figures;
use verbline_benches::figures::median;
use verbline_benches::pair::cpus;

use super::{LIMIT, wait_for};
use crate::contender::{Contender, Needs};
use crate::error::RunError;
use crate::process::Line;

pub(crate) const NEEDS: &[Needs] = &[Needs { program: "dpdk-test", package: "dpdk-dev" }];
/// The common arguments of DPDK programs: both CPUs, no device, hugepages of its own that leave no
/// file behind.
pub(crate) fn eal() -> String {
    let [near, far] = cpus();
    format!("-l {},{} --no-pci -m 256 --in-memory", near.id, far.id)
}

/// `ring_perf_autotest`: `ns` per item in bulks of 32 between two cores, SP/SC.
pub(crate) fn ring() -> Contender {
    contender(
        "rte_ring (dpdk-test)",
        "ring_perf_autotest",
        "cycles of `SP/SC: bulk (size: 32)` on two cores",
        |output| {
            // The test prints the sum of both sides' times per item, while both ran: the mean is
            // comparable with ours.
            Some(Figures::of("ns", cycles_to_ns(ring_cycles(output)? / 2.0)))
        },
    )
}

/// `graph_perf_autotest`: `call_256_ns` and `call_1_ns` for a call of a forwarding node;
/// `walk_256_ns` and `walk_1_ns` for a walk over source, four such nodes and sink; `node_256_ns`
/// and `node_1_ns` for a sixth of it.
pub(crate) fn graph() -> Contender {
    contender("rte_graph (dpdk-test)", "graph_perf_autotest", "tables of nodes", |output| {
        let full = chain(output, "graph_hr_4s_1n_1src_1snk succeeded")?;
        let single = chain(output, "graph_hr_4s_1n_1src_1snk_brst_one succeeded")?;
        Some(
            Figures::of("call_256_ns", cycles_to_ns(full.call_cycles))
                .and("walk_256_ns", full.walk_ns)
                .and("node_256_ns", full.walk_ns / 6.0)
                .and("call_1_ns", cycles_to_ns(single.call_cycles))
                .and("walk_1_ns", single.walk_ns)
                .and("node_1_ns", single.walk_ns / 6.0),
        )
    })
}

fn contender(
    name: &'static str,
    test: &'static str,
    wanted: &'static str,
    parse: fn(&str) -> Option<Figures>,
) -> Contender {
    let line = Line::new(&format!("dpdk-test {}", eal()));
    let commands = vec![format!("echo {test} | {line}")];
    let run = move || {
        let mut running = line.start()?;
        // Input before its prompt is lost.
        wait_for(&mut running, "RTE>>", Duration::from_secs(20));
        running.write(&format!("{test}\nquit\n"));
        let output = running.finish(LIMIT)?;
        parse(&output).ok_or_else(|| RunError::unreadable(format!("echo {test} | {line}"), wanted, &output))
    };
    Contender { name, commands, needs: NEEDS, hugepages: true, run: Box::new(run) }
}

/// Converts cycles of the TSC, DPDK's unit.
fn cycles_to_ns(cycles: f64) -> f64 {
    // For a million cycles, as the conversion yields whole nanoseconds.
    cycles * Clock::new().cycles_to_ns(1_000_000) as f64 / 1e6
}

/// The figure of the first section on two cores, with items of 8 bytes.
fn ring_cycles(output: &str) -> Option<f64> {
    let mut lines = output.lines().skip_while(|line| !line.contains("Testing using two physical cores"));
    lines.find_map(|line| line.strip_prefix("legacy APIs: SP/SC: bulk (size: 32): ")?.trim().parse().ok())
}

/// A chain of nodes in DPDK's test: source, four workers, sink.
struct Chain {
    /// The median of the workers' column `cycles/call`.
    call_cycles: f64,
    /// The time of a walk over all six.
    walk_ns: f64,
}

/// Reads the table above the line `end`. The source makes 256 objects or one per walk, so that its
/// rate is the rate of walks.
fn chain(output: &str, end: &str) -> Option<Chain> {
    let lines: Vec<&str> = output.lines().collect();
    let end = lines.iter().position(|line| line.trim_end().ends_with(end))?;
    // The table's head is the nearest one above.
    let start = lines[..end].iter().rposition(|line| line.starts_with("|Node"))?;
    let cell = |line: &str, column: usize| line.split('|').nth(column).map(|cell| cell.trim().to_owned());
    let (mut calls, mut walk_ns) = (Vec::new(), None);
    for line in lines[start + 1..end].iter().filter(|line| line.starts_with('|')) {
        let (name, per_call) = (cell(line, 1)?, cell(line, 5)?.parse::<f64>().ok()?);
        let (rate_e6, cycles) = (cell(line, 6)?.parse::<f64>().ok()?, cell(line, 7)?.parse::<f64>().ok()?);
        if name.contains("worker") {
            calls.push(cycles);
        } else if name.contains("source") {
            walk_ns = Some(1e3 * per_call / rate_e6);
        }
    }
    Some(Chain { call_cycles: median(calls), walk_ns: walk_ns? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_test_is_read_at_its_two_core_section() {
        assert_eq!(ring_cycles(include_str!("samples/ring_perf.txt")), Some(6.21));
        assert_eq!(ring_cycles("RTE>>ring_perf_autotest\nTest Failed"), None);
    }

    #[test]
    fn the_graph_test_is_read_chain_by_chain() {
        let output = include_str!("samples/graph_perf.txt");
        let full = chain(output, "graph_hr_4s_1n_1src_1snk succeeded").unwrap();
        assert_eq!(full.call_cycles, 55.0);
        assert!((full.walk_ns - 256e3 / 1073.084160).abs() < 1e-9, "{}", full.walk_ns);
        let single = chain(output, "graph_hr_4s_1n_1src_1snk_brst_one succeeded").unwrap();
        assert_eq!(single.call_cycles, 26.0);
        assert!((single.walk_ns - 1e3 / 8.068813).abs() < 1e-9, "{}", single.walk_ns);
        assert!(chain(output, "graph_of_nothing succeeded").is_none());
    }
}
