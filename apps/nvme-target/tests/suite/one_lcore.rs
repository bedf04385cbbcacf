//! Targets and loads that share lcores: each hears of its own connections only, and every block is
//! verified.

use serde_json::Value;
use verbline_tests::{Finished, Program, assert_report_holds, two_lcores};

const PLAN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../config/nvme-target.toml");
const LOAD: &str = "# --- load -";

/// The shipped plan in three parts: up to its pools, its target, and its load.
fn shipped() -> (String, String, String) {
    let text = std::fs::read_to_string(PLAN).unwrap();
    let (target, load) = text.split_once(LOAD).expect("two parts");
    let (_, load) = load.split_once('\n').expect("a line");
    let (front, target) = target.split_once("# Capsules:").expect("pools");
    let (of_lcore, load) = load.split_once("[pool.commands]").expect("pools");
    (format!("{front}{of_lcore}\n"), format!("# {target}"), format!("[pool.commands]{load}"))
}

/// The shipped plan with a second target, whose blocks are namespace 2, and a load for it.
fn doubled() -> String {
    let (front, target, load) = shipped();
    let second = |text: &str, names: &[(&str, &str)]| {
        names.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
    };
    let target2 = second(
        &target,
        &[
            ("capsules\"", "capsules2\""),
            ("[pool.capsules]", "[pool.capsules2]"),
            ("[pool.data]", "[pool.data2]"),
            ("pool = \"data\"", "pool = \"data2\""),
            ("disk", "disk2"),
            ("hosts", "hosts2"),
            ("[stage.target]", "[stage.target2]"),
            ("\"stage.target\"", "\"stage.target2\""),
            (":4420", ":4421"),
        ],
    );
    let load2 = second(
        &load,
        &[
            ("commands", "commands2"),
            ("buffers", "buffers2"),
            ("port.admin", "port.admin2"),
            ("port.io", "port.io2"),
            ("stage.load", "stage.load2"),
            (":4420", ":4421"),
            ("params = { buffers2 = ", "params = { nsid = 2, buffers = "),
        ],
    );
    let front = front.replacen("[load]", "[nvme.namespace.2]\nmemory = \"disk2\"\nblock_bytes = 4096\n\n[load]", 1);
    [front, target, target2, load, load2].concat()
}

/// Moves everything to the target's lcore.
fn on_one_lcore(text: &str) -> String {
    text.replace("lcore = \"load\"", "lcore = \"target\"")
        .replace("[lcore.load]\ncpu = \"allowed:1\"\nidle = \"poll\"\n", "")
}

#[track_caller]
fn assert_verified(shown: &Finished, loads: u64) {
    let json = shown.json();
    assert_report_holds(&json);
    assert!(json["verified"].as_u64() > Some(0), "{shown}");
    assert_eq!((&json["mismatches"], &json["balance"], &json["counts"]["failed"]), (&0.into(), &0.into(), &0.into()));
    assert_eq!((&json["packets"]["held"], &json["drained"]), (&0.into(), &true.into()), "{shown}");
    assert_eq!(json["counts"]["connected"].as_u64(), Some(loads), "each load connected once: {shown}");
    let answered = answered(&json);
    assert!(answered.len() as u64 == loads && answered.iter().all(|count| *count > 1000), "{answered:?}");
}

/// The answered commands of each load.
fn answered(report: &Value) -> Vec<u64> {
    let stages = report["stages"].as_array().expect("stages");
    let answered = |stage: &Value| {
        let counter = stage["counters"].as_array()?.iter().find(|counter| counter["name"] == "answered")?;
        counter["value"].as_u64()
    };
    stages.iter().filter_map(answered).collect()
}

fn run(text: &str, lcores: &[String]) -> Finished {
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("plan.toml");
    std::fs::write(&plan, text).unwrap();
    let run = Program::new(env!("CARGO_BIN_EXE_nvme-target")).with(["run", &plan.display().to_string(), "--json"]);
    let run = run.with(["--set", "load.bytes=2097152"]).with(lcores);
    run.run_until(|report| answered(report).iter().all(|count| *count > 1000)).exited(0)
}

#[test]
fn a_target_and_its_load_share_an_lcore() {
    let (front, target, load) = shipped();
    let text = on_one_lcore(&[front, target, load].concat());
    assert_verified(&run(&text, &["--set".into(), "lcore.target.drain=60s".into()]), 1);
}

#[test]
fn two_targets_and_two_loads_share_an_lcore() {
    assert_verified(&run(&on_one_lcore(&doubled()), &["--set".into(), "lcore.target.drain=60s".into()]), 2);
}

#[test]
fn two_lcores_have_two_targets_and_two_loads() {
    let Some(placed) = two_lcores(["target", "load"]) else { return };
    assert_verified(&run(&doubled(), &placed), 2);
}
