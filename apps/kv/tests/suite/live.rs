//! The live line of a server without a client beside it.

use kv::KeyValue;
use verbline::engine::{ConnectionsReport, CounterReport, PortReport, StageReport};
use verbline::prelude::*;

/// Regression: it said that there were no operations, since clients alone count those.
#[test]
fn a_server_without_a_client_shows_what_it_served() {
    let stage = |name: &str, value| {
        let counters = vec![CounterReport { name: name.into(), value }];
        StageReport { counters, ..StageReport::default() }
    };
    let connections = Some(ConnectionsReport { open: 16, ..ConnectionsReport::default() });
    let port = PortReport { connections, ..PortReport::default() };
    let stages = vec![stage("routed", 520_991)];
    let mut report = Report { elapsed_ns: 10_000_000_000, stages, ports: vec![port], ..Report::default() };
    let app = KeyValue::default();
    assert_eq!(app.live(&report), "520,991 requests, 52,099 a second, 16 connections open");
    report.stages.push(stage("operations", 947_323));
    assert_eq!(app.live(&report), "947,323 operations, 94,732 a second");
}
