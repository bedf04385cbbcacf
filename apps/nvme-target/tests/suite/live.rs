//! The live line of a target without a load beside it.

use nvme_target::NvmeTarget;
use verbline::engine::{ConnectionsReport, CounterReport, PortReport, StageReport};
use verbline::prelude::*;

#[test]
fn a_target_without_a_load_shows_what_it_served() {
    let counter = |name: &str, value| CounterReport { name: name.into(), value };
    let target = StageReport { counters: vec![counter("commands", 1_300_000)], ..StageReport::default() };
    let connections = Some(ConnectionsReport { open: 5, ..ConnectionsReport::default() });
    let port = PortReport { connections, ..PortReport::default() };
    let mut report = Report { elapsed_ns: 2_000_000_000, stages: vec![target], ports: vec![port], ..Report::default() };
    let app = NvmeTarget::default();
    assert_eq!(app.live(&report), "1,300,000 commands, 650,000 a second, 5 queues open");
    // With a load the line is the load's.
    report.stages.push(StageReport { counters: vec![counter("answered", 8)], ..StageReport::default() });
    assert_eq!(app.live(&report), "8 commands, 4 a second");
}
