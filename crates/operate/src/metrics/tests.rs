//! The metrics of a run with every feature: they are well-formed, and cover dashboard and alerts.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use verbline_engine::{
    ConnectionReport, ConnectionsReport, CounterReport, DatagramsReport, DropReport, EventReport, HistogramReport,
    HolderReport, IncidentsReport, InjectorReport, LcoreReport, OperationReport, OperationsReport, PacketReport,
    PoolReport, PortReport, Report, RingReport, StageReport, StatusReport, TimeBin, TimesReport, WakeReport,
    WireReport,
};

use crate::metrics::exposition::{Format, text};
use crate::protocol::{Hello, State};

fn hello() -> Hello {
    Hello {
        app: "rig".into(),
        plan: "a \"plan\"".into(),
        pid: 7,
        version: "0.1.0".into(),
        since_unix_ms: 1_764_000_000_500,
        state: State::Running,
    }
}

/// One time of 20 ns, two of 300 ns, and one of an hour.
fn times() -> TimesReport {
    let bin = |below_ns, count| TimeBin { below_ns, count };
    let bins = vec![bin(24, 1), bin(320, 2), bin(u64::MAX, 1)];
    TimesReport { count: 4, sum_ns: 3_600_000_000_620, bins, ..TimesReport::default() }
}

fn everything() -> Report {
    let port = PortReport {
        name: "door".into(),
        lcore: "main".into(),
        rx_packets: 12,
        rx_out_of_buffer: Some(1),
        errors: vec![StatusReport { status: "WR_FLUSH_ERR".into(), count: 2 }],
        connections: Some(ConnectionsReport { max: 8, open: 3, ..ConnectionsReport::default() }),
        operations: Some(OperationsReport {
            kinds: vec![OperationReport { kind: "write", posted: 4, bytes: 4096, ..OperationReport::default() }],
            ..OperationsReport::default()
        }),
        ..PortReport::default()
    };
    let connection = |peer: &str| ConnectionReport {
        port: "door".into(),
        peer_address: peer.into(),
        times_connected: 1,
        ..ConnectionReport::default()
    };
    Report {
        throttled_ns: Some(5),
        lcores: vec![LcoreReport {
            name: "main".into(),
            busy_ns: 1_500_000_000,
            wakes: vec![WakeReport { cause: "ring", count: 9 }],
            wake_late: times(),
            ..LcoreReport::default()
        }],
        stages: vec![StageReport {
            name: "book".into(),
            lcore: "main".into(),
            packets_in: u64::MAX,
            call_times: times(),
            counters: vec![CounterReport { name: "gaps".into(), value: 3 }],
            histograms: vec![HistogramReport { name: "answer".into(), times: times() }],
            ..StageReport::default()
        }],
        ports: vec![port],
        connections: vec![connection("10.0.0.1:1"), connection("10.0.0.2:1")],
        rings: vec![RingReport { name: "trades".into(), depth: 64, ..RingReport::default() }],
        injectors: vec![InjectorReport { name: "orders".into(), ..InjectorReport::default() }],
        pools: vec![PoolReport { name: "packets".into(), free: 4, ..PoolReport::default() }],
        drops: vec![DropReport { place: "stage.book".into(), reason: "late".into(), packets: 5 }],
        packets: PacketReport {
            holders: vec![HolderReport { place: "ring.trades".into(), packets: 6 }],
            ..PacketReport::default()
        },
        wires: vec![WireReport {
            datagrams_passed_on: 3,
            datagrams_taken_over: 2,
            device: "soft0".into(),
            datagrams_sent: 8,
            incidents: IncidentsReport { rnr_naks_received: 2, ..IncidentsReport::default() },
            discarded: vec![DatagramsReport { reason: "icrc", datagrams: 1 }],
            ..WireReport::default()
        }],
        events: vec![EventReport { device: "mlx5_0".into(), count: 1, ..EventReport::default() }],
        ..Report::default()
    }
}

/// The labels of each metric, by its name in queries.
fn labels_of(text: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap();
        let labels = line.split_once('{').map_or("", |(_, rest)| rest.rsplit_once('}').unwrap().0);
        let names = labels.split("\",").filter_map(|label| Some(label.split_once('=')?.0.to_owned()));
        all.entry(name.to_owned()).or_default().extend(names);
    }
    all
}

#[test]
fn the_formats_have_the_same_series_and_every_value_is_exact() {
    let in_format = |format| text(&hello(), &everything(), 1, format);
    let (open, older) = (in_format(Format::OpenMetrics), in_format(Format::Prometheus));
    let series = |text: &str| text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(series(&open), series(&older));
    assert!(open.ends_with("# EOF\n") && !older.contains("# EOF") && !older.contains("# UNIT"));
    for line in [
        "verbline_lcore_time_seconds_total{lcore=\"main\",state=\"busy\"} 1.5",
        "verbline_stage_packets_total{stage=\"book\",lcore=\"main\",direction=\"in\"} 18446744073709551615",
        "verbline_port_bytes_total{port=\"door\",lcore=\"main\",direction=\"receive\"} 0",
        "verbline_build_info{app=\"rig\",plan=\"a \\\"plan\\\"\",version=\"0.1.0\"} 1",
        "verbline_start_time_seconds 1764000000.5",
        "verbline_port_operation_bytes_total{port=\"door\",kind=\"write\"} 4096",
        "verbline_wire_datagrams_total{device=\"soft0\",direction=\"transmit\"} 8",
        "verbline_wire_shared_datagrams_total{device=\"soft0\",way=\"passed_on\"} 3",
        "verbline_wire_shared_datagrams_total{device=\"soft0\",way=\"taken_over\"} 2",
        "verbline_wire_naks_total{device=\"soft0\",kind=\"rnr\",direction=\"receive\"} 2",
        "verbline_wire_discarded_datagrams_total{device=\"soft0\",reason=\"icrc\"} 1",
        "verbline_stage_own_seconds_count{stage=\"book\",lcore=\"main\",name=\"answer\"} 4",
        "verbline_stage_call_seconds_sum{stage=\"book\",lcore=\"main\"} 3600.00000062",
        "verbline_stage_call_seconds_count{stage=\"book\",lcore=\"main\"} 4",
        "verbline_stage_call_seconds_bucket{le=\"3.2e-8\",stage=\"book\",lcore=\"main\"} 1",
        "verbline_stage_call_seconds_bucket{le=\"5.12e-7\",stage=\"book\",lcore=\"main\"} 3",
        "verbline_stage_call_seconds_bucket{le=\"+Inf\",stage=\"book\",lcore=\"main\"} 4",
    ] {
        assert!(open.lines().any(|one| one == line), "no {line} in\n{open}");
    }
    assert_eq!(open.matches("verbline_connection_up{").count(), 1, "as many connections as were asked for");
    assert!(!text(&hello(), &everything(), 0, Format::OpenMetrics).contains("connection_up"));
}

#[test]
fn promtool_finds_nothing_to_say_about_them() {
    let Ok(mut promtool) =
        Command::new("promtool").args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn()
    else {
        return println!("skipped: promtool is not installed (Debian: prometheus)");
    };
    let older = text(&hello(), &everything(), 9, Format::Prometheus);
    promtool.stdin.take().unwrap().write_all(older.as_bytes()).unwrap();
    let said = promtool.wait_with_output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let alerts = config("alerts.yml");
    let said = Command::new("promtool").args(["check", "rules"]).arg(alerts).output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
}

fn config(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/prometheus").join(name)
}

/// The queries of the dashboard and of the alerts.
fn queries() -> Vec<String> {
    let dashboard = std::fs::read_to_string(config("dashboard.json")).unwrap();
    let dashboard: serde_json::Value = serde_json::from_str(&dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let mut queries: Vec<String> = targets.map(|target| target["expr"].as_str().unwrap().to_owned()).collect();
    assert!(queries.len() >= 15);
    let alerts = std::fs::read_to_string(config("alerts.yml")).unwrap();
    let rules: Vec<&str> = alerts.split("expr:").skip(1).collect();
    // An expression ends where the next key begins.
    let end = |rule: &str| rule.find("\n        for:").or(rule.find("\n        labels:")).unwrap();
    queries.extend(rules.iter().map(|rule| rule[..end(rule)].to_owned()));
    assert!(rules.len() >= 8);
    queries
}

#[test]
fn dashboard_and_alerts_ask_for_metrics_that_there_are_by_labels_that_they_have() {
    let known = labels_of(&text(&hello(), &everything(), 9, Format::OpenMetrics));
    // Prometheus adds this one.
    let has = |name: &str, label: &str| label == "instance" || known[name].contains(label);
    for query in queries() {
        let mut metrics = Vec::new();
        for part in query.split("verbline_").skip(1) {
            let name: String = part.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
            let (name, rest) = (format!("verbline_{name}"), &part[name.len()..]);
            assert!(known.contains_key(&name), "{name} of {query} is not there; there are {:?}", known.keys());
            let selectors = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
            let selectors = selectors.map_or("", |(inside, _)| inside);
            for selector in selectors.split(',').filter(|selector| !selector.is_empty()) {
                let label = selector.trim().split(['=', '!']).next().unwrap();
                assert!(has(&name, label), "{name} has no label {label}: {query}");
            }
            metrics.push(name);
        }
        assert!(!metrics.is_empty(), "{query}");
        for by in query.split("by (").skip(1) {
            for label in by.split_once(')').unwrap().0.split(',') {
                assert!(metrics.iter().all(|name| has(name, label.trim())), "no label {label}: {query}");
            }
        }
    }
}
