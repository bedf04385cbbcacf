//! A load that goes on while the target's namespaces come and go, a load over a target that ends
//! and is restarted, and a target whose loads end: every block is verified.

use std::path::Path;
use std::time::{Duration, Instant};

use nvme_load::NvmeLoad;
use nvme_target::NvmeTarget;
use serde_json::{Map, Value};
use tempfile::TempDir;
use verbline::cli::App;
use verbline::engine::{Report, Running, Runtime};
use verbline_tests::two_lcores;

use crate::common::{changed, load};

const PLAN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../config/nvme-target.toml");
const LOAD: &str = "# --- load -";

/// The halves of the shipped plan, each as a plan of its own that ends without a drain.
pub(crate) fn halves(port: u16, namespaces: &str, settings: &str) -> (String, String) {
    let text = std::fs::read_to_string(PLAN).unwrap().replace(":4420", &format!(":{port}"));
    let (target, load) = text.split_once(LOAD).expect("two parts");
    let (front, target) = target.split_once("[load]").expect("the load's settings");
    let (of_load, target) = target.split_once("[device.nic0]").expect("a device");
    let (front, _) = front.split_once("[nvme.namespace.1]").expect("a namespace");
    let target = target.replace("idle = \"adaptive\"", "idle = \"adaptive\"\ndrain = \"0s\"");
    let target = format!("{front}{namespaces}\n[device.nic0]{target}");
    let (_, load) = load.split_once('\n').expect("a line");
    let load = load.replace("idle = \"poll\"", "idle = \"poll\"\ndrain = \"0s\"");
    let head = "app = \"nvme-load\"\nname = \"nvme-load\"\n";
    let load = format!("{head}[load]{of_load}{settings}\n[device.nic0]\nprovider = \"soft\"\n{load}");
    (target, load)
}

pub(crate) fn start(app: &dyn App, text: &str) -> Running {
    let (registry, plan) = load(app, text);
    // A file or an address may be released a little after the end of the run before.
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        match Runtime::build(&plan, &registry).and_then(Runtime::start) {
            Ok(running) => return running,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn file(path: &Path) -> String {
    format!("[nvme.namespace.1]\nfile = {path:?}\ncreate_bytes = 8_388_608\npage_cache = true\n")
}

/// Both halves with a namespace in a file, and its folder; `None` on too few CPUs.
fn over_a_file(port: u16) -> Option<(TempDir, String, String)> {
    two_lcores(["target", "load"])?;
    let folder = tempfile::tempdir().unwrap();
    let (target, load) = halves(port, &file(&folder.path().join("disk")), SETTINGS);
    Some((folder, target, load))
}

/// Answered commands of the load so far.
fn answered(running: &Running) -> u64 {
    running.snapshot().stage("load").and_then(|stage| stage.counter("answered")).unwrap_or(0)
}

/// Waits until `more` commands of the load were answered.
#[track_caller]
pub(crate) fn goes_on(running: &Running, more: u64) {
    let (from, deadline) = (answered(running), Instant::now() + Duration::from_secs(30));
    while answered(running) < from + more {
        assert!(Instant::now() < deadline, "{} of {more} more were answered", answered(running) - from);
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Checks the load's findings: every block is of the last write, and every command is accounted
/// for.
#[track_caller]
fn found(load: &NvmeLoad, report: &Report) -> Map<String, Value> {
    let outcome = load.outcome(report);
    let json = outcome.json;
    assert!(json["verified"].as_u64() > Some(0), "{json:?}");
    assert_eq!((&json["mismatches"], &json["counts"]["unasked"]), (&0.into(), &0.into()), "{json:?}");
    json
}

/// With a keep-alive time-out of more than a busy machine keeps a process from its CPUs for.
const SETTINGS: &str = "bytes = 4_194_304\nkeep_alive_ms = 20_000\n";

#[test]
fn two_lcores_verify_over_a_target_that_ends_and_comes_again() {
    let Some((_folder, target_text, load_text)) = over_a_file(7940) else { return };
    let app = NvmeTarget::default();
    let mut target = start(&app, &target_text);
    let load = NvmeLoad::default();
    let running = start(&load, &load_text);
    for _ in 0..3 {
        goes_on(&running, 2000);
        target.stop().unwrap_or_else(|error| panic!("{error}"));
        target = start(&app, &target_text);
    }
    goes_on(&running, 2000);
    let report = running.stop().unwrap_or_else(|error| panic!("{error}"));
    let json = found(&load, &report);
    assert_eq!(json["counts"]["connected"].as_u64(), Some(4), "{json:?}");
    assert_eq!(json["counts"]["failed"], 0, "{json:?}");
    assert!(json["counts"]["cut_off"].as_u64() > Some(0), "{json:?}");
    target.stop().unwrap_or_else(|error| panic!("{error}"));
}

/// A target that is not restarted: the measurements are of the time before, and the run says so.
#[test]
fn two_lcores_say_that_the_target_was_gone_at_the_end() {
    let Some((_folder, target_text, load_text)) = over_a_file(7943) else { return };
    let target = start(&NvmeTarget::default(), &target_text);
    let load = NvmeLoad::default();
    let running = start(&load, &load_text);
    goes_on(&running, 2000);
    target.stop().unwrap_or_else(|error| panic!("{error}"));
    let is_cut_off =
        || running.snapshot().ports.iter().all(|port| port.connections.as_ref().is_some_and(|c| c.open == 0));
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_cut_off() {
        assert!(Instant::now() < deadline, "the connections stay");
        std::thread::sleep(Duration::from_millis(5));
    }
    let report = running.stop().unwrap_or_else(|error| panic!("{error}"));
    let failures = load.outcome(&report).failures;
    assert!(failures.iter().any(|failure| failure.contains("not connected at the end")), "{failures:?}");
}

#[test]
fn two_lcores_serve_over_loads_that_end() {
    let Some((_folder, target_text, load_text)) = over_a_file(7941) else { return };
    let target_text = target_text.replace("drain = \"0s\"", "drain = \"60s\"");
    let target = start(&NvmeTarget::default(), &target_text);
    for _ in 0..4 {
        let load = NvmeLoad::default();
        let running = start(&load, &load_text);
        goes_on(&running, 2000);
        let report = running.stop().unwrap_or_else(|error| panic!("{error}"));
        found(&load, &report);
    }
    let report = target.stop().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((report.packets.held, report.failures.len()), (0, 0), "{:?}", report.failures);
    assert!(report.stage("target").and_then(|stage| stage.counter("controllers")) >= Some(4));
}

/// Other namespaces come and go, and then the load's own: its blocks are there again.
#[test]
fn two_lcores_verify_while_namespaces_come_and_go() {
    if two_lcores(["target", "load"]).is_none() {
        return;
    }
    let own = "[nvme.namespace.1]\nmemory = \"disk\"\n";
    let (target_text, load_text) = halves(7942, own, SETTINGS);
    let app = NvmeTarget::default();
    let target = start(&app, &target_text);
    let load = NvmeLoad::default();
    let running = start(&load, &load_text);
    let reload = |namespaces: &str| {
        app.reload(&changed(&target_text.replace(own, namespaces))).unwrap_or_else(|error| panic!("{error}"));
    };
    goes_on(&running, 2000);
    for bytes in 1..=6 {
        // With another size each time, so that its number waits for the namespace before.
        reload(&format!("{own}[nvme.namespace.7]\nnull_bytes = {}\n", bytes * 4096));
        goes_on(&running, 300);
        reload(own);
        goes_on(&running, 300);
    }
    assert_eq!(failed(&target), Some(0), "nothing of the load's own namespace has changed");
    for _ in 0..3 {
        reload("[nvme.namespace.7]\nnull_bytes = 4096\n");
        // Commands are refused, over and over.
        while !fails(&running, &target) {}
        reload(own);
        while fails(&running, &target) {}
        goes_on(&running, 2000);
    }
    let report = running.stop().unwrap_or_else(|error| panic!("{error}"));
    let json = found(&load, &report);
    assert_eq!(json["counts"]["connected"].as_u64(), Some(1), "the connection stays: {json:?}");
    assert!(json["counts"]["failed"].as_u64() > Some(0), "commands met no namespace: {json:?}");
    target.stop().unwrap_or_else(|error| panic!("{error}"));
}

/// Whether the target refuses one of the load's next commands.
#[track_caller]
fn fails(load: &Running, target: &Running) -> bool {
    let before = failed(target);
    goes_on(load, 300);
    failed(target) > before
}

/// Commands refused by the target.
fn failed(target: &Running) -> Option<u64> {
    target.snapshot().stage("target").and_then(|stage| stage.counter("failed"))
}
