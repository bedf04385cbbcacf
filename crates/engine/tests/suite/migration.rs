//! Ports with an alternate path: when a path fails, the connection migrates to the other one, which
//! the report shows, and the failed path is armed again.

use verbline_engine::{Report, Running, Runtime};
use verbline_verbs::Provider;
use verbline_verbs::expert::fault;

use crate::common::{assert_clean, one_lcore, plan, provider, registry, until};

/// soft0's link-local GID; the first path uses that of 10.9.9.1.
const OTHER_WAY: &str = "alternate_gid = \"fe80::200:ff:fe00:1\"\nalternate_gid_index = 0\nalternate_timeout = 9";

/// A pair of ports of which `out` sends without end, each with its own keys and 2 ms for an ACK,
/// twice.
fn text(ends: [&str; 2], other_way: &str) -> String {
    let stages = format!(
        r#"
        [port.out]
        lcore = "only"
        device = "nic0"
        transport = "rc"
        {}
        tx_depth_wr = 128
        timeout = 9
        retry_cnt = 1
        {other_way}
        [port.in]
        lcore = "only"
        device = "nic0"
        pool = "p"
        transport = "rc"
        {}
        rx_depth_wr = 256
        timeout = 9
        retry_cnt = 1
        {other_way}
        next = "stage.sink"
        [stage.gen]
        use = "generator"
        lcore = "only"
        pool = "p"
        out = {{ out = "port.out" }}
        params = {{ count = 1_000_000_000, gap_us = 50 }}
        [stage.sink]
        use = "sink"
        lcore = "only"
        "#,
        ends[0], ends[1]
    );
    one_lcore("event", &stages)
}

const PAIR: [&str; 2] = ["peer = \"port.in\"", "peer = \"port.out\""];

fn start(text: &str) -> Running {
    let registry = registry();
    Runtime::build(&plan(&registry, text), &registry).unwrap().start().unwrap()
}

fn migrations(report: &Report, port: &str) -> u64 {
    let is_it = |name: &String| name == port;
    let events = report.events.iter().filter(|event| event.event == "IBV_EVENT_PATH_MIG");
    events.filter(|event| event.ports.iter().any(is_it)).map(|event| event.count).sum()
}

/// Returns the report's warnings of migrations.
fn migrated(report: &Report) -> Vec<String> {
    let warnings = report.warnings().into_iter().filter(|warning| warning.code == "path-migrated");
    warnings.map(|warning| warning.message).collect()
}

fn seen(report: &Report) -> u64 {
    report.stage("sink").unwrap().packets_in
}

/// Breaks the present path, and waits until both ends use the other one and packets arrive by it.
fn lose_path(running: &Running) {
    let before = running.snapshot();
    assert!(fault::lose_path(before.port("out").unwrap().qpn));
    let ports = ["in", "out"];
    let migrated = ports.map(|port| migrations(&before, port) + 1);
    until(running, |report| ports.map(|port| migrations(report, port)) == migrated);
    let before = seen(&running.snapshot());
    until(running, |report| seen(report) > before + 256);
}

#[test]
fn a_pair_goes_over_to_its_other_path_and_back_and_loses_nothing() {
    if provider() != Provider::Soft {
        eprintln!("skipped: on kernel devices: a path is lost to order on the software RNIC only");
        return;
    }
    let running = start(&text(PAIR, OTHER_WAY));
    until(&running, |report| seen(report) > 100);
    assert!(migrated(&running.snapshot()).is_empty());
    (0..4).for_each(|_| lose_path(&running));
    let report = running.stop().unwrap();
    assert_clean(&report);
    assert_eq!(report.stage("sink").unwrap().counter("gaps"), Some(0), "{report:#?}");
    let mut warnings = migrated(&report);
    warnings.sort();
    assert_eq!(warnings, ["in", "out"].map(|port| format!("port {port} went over to its other path 4 times")));
}

#[test]
fn a_connection_by_address_is_armed_again_when_it_is_made_again() {
    if provider() != Provider::Soft {
        eprintln!("skipped: on kernel devices: a path is lost to order on the software RNIC only");
        return;
    }
    let ends = ["connect = \"10.9.9.1:7131\"", "listen = \"10.9.9.1:7131\""];
    let running = start(&text(ends, OTHER_WAY));
    until(&running, |report| seen(report) > 100);
    lose_path(&running);
    let broken = running.snapshot().port("out").unwrap().qpn;
    assert!(fault::break_queue_pair(broken));
    let before = seen(&running.snapshot());
    until(&running, |report| {
        let out = report.port("out").unwrap();
        out.qpn != broken && !out.down && !report.port("in").unwrap().down && seen(report) > before + 100
    });
    lose_path(&running);
    let report = running.stop().unwrap();
    assert_eq!(report.packets.held, 0, "{:?}", report.packets);
}

/// A path that fails takes a port without another one down.
#[test]
fn a_pair_without_an_alternate_path_is_down() {
    if provider() != Provider::Soft {
        eprintln!("skipped: on kernel devices: a path is lost to order on the software RNIC only");
        return;
    }
    let running = start(&text(PAIR, ""));
    until(&running, |report| seen(report) > 100);
    assert!(fault::lose_path(running.snapshot().port("out").unwrap().qpn));
    until(&running, |report| report.port("out").unwrap().down);
    assert!(running.stop().is_err());
}
