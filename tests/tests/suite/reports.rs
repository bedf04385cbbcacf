//! Checks every report of every shipped plan, live and at the end: it has the published shape, and
//! every sum in it is right.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kv::KeyValue;
use nvme_target::NvmeTarget;
use pingpong::PingPong;
use serde_json::{Value, json};
use tick_to_trade::stages::{self, Tally};
use verbline::plan::{Loader, Machine};
use verbline::prelude::*;
use verbline_tests::{assert_report_holds, recording, report_faults, root, two_lcores};

/// How long each plan runs.
const RUN: Duration = Duration::from_millis(600);

/// The number of live reports in a run.
const LOOKS: u32 = 6;

/// The apps of this repository.
fn registry(app: &'static str) -> Registry {
    let mut registry = Registry::new(app);
    match app {
        "pingpong" => PingPong::default().register(&mut registry),
        "kv" => KeyValue::default().register(&mut registry),
        "nvme-target" => NvmeTarget::default().register(&mut registry),
        _ => stages::register(&mut registry, &Tally::default()),
    }
    registry
}

/// The app of a plan, by the plan's name.
fn app_of(stem: &str) -> &'static str {
    ["pingpong", "kv", "nvme-target"].into_iter().find(|app| stem.starts_with(app)).unwrap_or("tick-to-trade")
}

fn plans() -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join("config")).expect("config/");
    // Folders hold plans for several processes.
    let files = entries.map(|entry| entry.expect("an entry of config/").path()).filter(|path| path.is_file());
    let mut plans: Vec<_> = files.collect();
    plans.sort();
    assert!(plans.len() >= 5, "{plans:?}");
    plans
}

/// Runs a plan with these keys set. Returns the live reports, then the last one.
fn run(path: &Path, app: &'static str, sets: &[String]) -> Vec<Value> {
    let registry = registry(app);
    let loader = Loader::new(registry.catalog(), Machine::detect()).sets(sets);
    let plan = loader.load_path(path).unwrap_or_else(|faults| panic!("{faults}"));
    let runtime = Runtime::build(&plan, &registry).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let running = runtime.start().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut reports = Vec::new();
    for _ in 0..LOOKS {
        running.wait(Some(RUN / LOOKS));
        reports.push(running.snapshot());
    }
    reports.push(running.stop().unwrap_or_else(|error| panic!("{}: {error}", path.display())));
    reports.iter().map(|report| json!(report)).collect()
}

#[test]
fn two_lcores_report_what_can_be_in_every_plan_and_mode() {
    for path in plans() {
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let app = app_of(stem);
        let lcores = match app {
            "pingpong" => ["ping", "pong"],
            "kv" => ["server", "load"],
            "nvme-target" => ["target", "load"],
            _ => ["exchange", "trader"],
        };
        let Some(placed) = two_lcores(lcores) else { return };
        let mut sets: Vec<_> = placed.into_iter().filter(|word| word != "--set").collect();
        if stem == "moex-replay" {
            let Some(dir) = recording() else { continue };
            sets.push(format!("feed.dir={}", dir.display()));
        }
        for idle in ["poll", "event", "adaptive"] {
            let modes = lcores.map(|lcore| format!("lcore.{lcore}.idle={idle}"));
            for report in run(&path, app, &[sets.as_slice(), modes.as_slice()].concat()) {
                assert_report_holds(&report);
            }
        }
        // Saturated: every turn is busy, and turns differ.
        let most = match app {
            "pingpong" => ["pingpong.window=32", "pingpong.size_bytes=1500"].as_slice(),
            "kv" => &["kv.window=4", "kv.close_every_ms=3"],
            "nvme-target" => &["load.depth=60", "load.in_capsule=false"],
            _ if stem == "moex-replay" => &["feed.speed=10000"],
            _ => &["feed.ticks_per_second=2000000"],
        };
        for report in run(&path, app, &[sets, most.iter().map(ToString::to_string).collect()].concat()) {
            assert_report_holds(&report);
        }
    }
}

/// A consistent report, made up.
fn good() -> Value {
    let times = json!({
        "count": 1, "sum_ns": 9, "p50_ns": 9, "p90_ns": 9, "p99_ns": 9, "p999_ns": 9, "max_ns": 9,
        "bins": [{ "below_ns": 16, "count": 1 }],
    });
    let lcore = |name: &str| {
        json!({
            "name": name, "cpu": 0, "plan_cpu": 0, "cpus_allowed": 1, "pinned_beside": [], "policy": "event",
            "loops": 20, "busy_loops": 10, "sleeps": 2, "bells": 0,
            "rescues": 0, "strays": 0, "busy_ns": 100, "idle_ns": 300, "asleep_ns": 400, "stolen_ns": 200,
            "busy_share": 0.1, "idle_share": 0.3, "asleep_share": 0.4, "stolen_share": 0.2, "stalls": 2,
            "stall_max_ns": 150, "queued_ns": 200, "hypervisor_ns": null, "spin_ns": 0, "spin_from": "plan",
            "late_share_max": null, "dwell_ns": 0, "pause": null, "armed_in_vain": 0,
            "wakes": [{ "cause": "ring", "count": 2 }], "wake_late": times.clone(),
        })
    };
    let stage = json!({
        "name": "a", "kind": "k", "lcore": "main", "calls": 5, "polls": 0, "packets_in": 10, "packets_out": 10,
        "operations": 4, "operations_done": 3,
        "busy_ns": 50, "timed": 5, "busy_error": 0.1, "ns_per_packet": 5.0, "busy_share": 0.5, "batch_mean": 2.0,
        "batch_max": 3, "alloc_failed": 0, "timers_armed": 0, "timers_due": 0, "timers_canceled": 0,
        "timers_refused": 0, "fd_events": 0, "fds_closed": 0, "counters": [], "histograms": [],
        "call_times": times,
    });
    let ring = json!({
        "name": "r", "producer": "main", "consumer": "other", "pushed": 10, "push_batches": 5, "popped": 9,
        "pop_batches": 3, "depth": 8, "most": 4, "full": 0,
    });
    let injector = json!({
        "name": "i", "stage": "a", "lcore": "main", "depth": 4, "pushed": 6, "popped": 6, "most": 2, "bells": 0,
        "refused_full": 0, "refused_no_packet": 0, "refused_too_long": 0, "refused_stopped": 1,
    });
    let pool = json!({
        "name": "p", "packets": 8, "free": 8, "cached": 0, "held": 0, "page_bytes": 4096, "node": null,
        "fallback": null, "locked": false,
    });
    json!({
        "version": 1, "plan": "none", "ended": true, "elapsed_ns": 1000, "throttled_ns": null, "drained": true,
        "failures": [], "events": [], "wires": [],
        "lcores": [lcore("main"), lcore("other")], "stages": [stage], "ports": [], "connections": [], "rings": [ring],
        "injectors": [injector],
        "pools": [pool], "drops": [{ "place": "ring.r", "reason": "left_behind", "packets": 1 }],
        "packets": { "taken": 20, "returned": 20, "held": 0, "holders": [] }, "ticks": 5,
    })
}

// Tests the check: each of these faults was once in a report, or would mislead a reader.
#[test]
fn a_report_that_cannot_be_is_seen_through() {
    assert_report_holds(&good());
    let cases: [(&str, Value, &str); 20] = [
        ("/stages/0/operations_done", json!(5), "5 operations done of 4"),
        ("/stages/0/busy_ns", json!(156), "its stages"),
        ("/stages/0/busy_share", json!(1.194), "1.194"),
        ("/stages/0/ns_per_packet", json!(6.0), "6 ns a packet"),
        ("/stages/0/lcore", json!("nobody"), "no lcore nobody"),
        ("/lcores/0/idle_share", json!(0.5), "idle_share is 0.5"),
        ("/lcores/0/stolen_share", json!(0.0), "stolen_share is 0"),
        ("/lcores/0/stall_max_ns", json!(201), "200 ns stolen"),
        ("/lcores/0/sleeps", json!(3), "3 sleeps, 2 wakes"),
        ("/lcores/1/name", json!("main"), "stands twice"),
        ("/rings/0/most", json!(9), "9 were in a ring of 8"),
        ("/rings/0/full", json!(1), "full 1 times"),
        ("/rings/0/popped", json!(8), "1 left behind"),
        ("/injectors/0/stage", json!("b"), "no stage b"),
        ("/injectors/0/most", json!(5), "5 were in one of 4"),
        ("/injectors/0/refused_full", json!(1), "refused 1"),
        ("/injectors/0/popped", json!(5), "0 left behind"),
        ("/packets/taken", json!(21), "21 taken"),
        ("/pools/0/held", json!(1), "out of the pools"),
        ("/drops/0/place", json!("stage.b"), "no stage.b"),
    ];
    for (place, value, says) in cases {
        let mut report = good();
        *report.pointer_mut(place).unwrap_or_else(|| panic!("no {place}")) = value;
        let faults = report_faults(&report);
        assert!(faults.iter().any(|fault| fault.contains(says)), "{place}: {faults:?}");
    }
    // The shape: a surplus key, a missing key, a value of another type.
    for (place, value) in [("/lcores/0", json!({})), ("/drops", json!({ "tx_full": 1 })), ("/version", json!(0))] {
        let mut report = good();
        *report.pointer_mut(place).unwrap_or_else(|| panic!("no {place}")) = value;
        assert_ne!(report_faults(&report), [""; 0], "{place}");
    }
    let mut report = good();
    report["lcores"][0]["idle"] = "poll".into();
    assert_ne!(report_faults(&report), [""; 0], "a key that nobody described");
}

#[test]
fn every_warning_of_a_report_is_in_the_published_shape() {
    let text = fs::read_to_string(root().join("docs/report.schema.json")).expect("the schema");
    let schema: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(schema["$defs"]["warning"]["properties"]["code"]["enum"], json!(verbline::engine::Warning::CODES));
}
