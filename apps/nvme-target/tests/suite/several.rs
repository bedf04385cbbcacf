//! Several initiators on several namespaces, by commands of several lengths, at a target with less
//! room than they ask for: every block read is of its own namespace, and of the last write.

use std::time::{Duration, Instant};

use nvme_target::NvmeTarget;
use serde_json::Value;
use verbline::cli::App;
use verbline::engine::Running;
use verbline_tests::{Finished, Program, assert_report_holds, counted, two_lcores};

use crate::common::{changed, start_app};

/// The shipped plan with two more initiators, each with ports and memory of its own, and less room
/// for operations than all their commands take.
fn plan(folder: &tempfile::TempDir) -> String {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../config/nvme-target.toml")).unwrap();
    let (target, load) = text.split_once("# --- load ---").expect("two parts");
    let file = folder.path().join("blocks");
    let namespaces = format!(
        "[nvme.namespace.2]\nmemory = \"second\"\nblock_bytes = 512\n\n[nvme.namespace.7]\nfile = {file:?}\n\
         create_bytes = 4_194_304\npage_cache = true\n\n[load]"
    );
    let target = target.replacen("[load]", &namespaces, 1);
    let target = target.replace("regions = [\"disk\"]", "regions = [\"disk\", \"second\"]");
    let target = target.replace("ops_shared_wr = 512", "ops_shared_wr = 160");
    let second = "[region.second]\ndevice = \"nic0\"\nbytes = 4_194_304\nrights = [\"local-write\"]\n";
    let mut all = format!("{target}\n{second}\n# --- load ---{load}");
    for (number, nsid, block_bytes) in [(2, 2, 8192), (3, 7, 16_384)] {
        all += &format!(
            r#"
            [region.buffers{number}]
            device = "nic0"
            bytes = 4_194_304
            rights = ["local-write", "remote-read", "remote-write"]
            [port.admin{number}]
            lcore = "load"
            device = "nic0"
            pool = "commands"
            transport = "rc"
            connect = "10.9.9.1:4420"
            connections = 1
            rx_shared_wr = 64
            tx_depth_wr = 32
            next = "stage.load{number}"
            [port.io{number}]
            lcore = "load"
            device = "nic0"
            pool = "commands"
            transport = "rc"
            connect = "10.9.9.1:4420"
            connections = 4
            rx_shared_wr = 256
            tx_depth_wr = 128
            next = "stage.load{number}"
            [stage.load{number}]
            use = "initiator"
            lcore = "load"
            pool = "commands"
            regions = ["buffers{number}"]
            timers_max = 8
            params = {{ buffers = "buffers{number}", nsid = {nsid}, block_bytes = {block_bytes} }}
            out = {{ admin = "port.admin{number}", io = "port.io{number}" }}
            "#
        );
    }
    all
}

fn plan_file(folder: &tempfile::TempDir) -> String {
    let path = folder.path().join("plan.toml");
    std::fs::write(&path, plan(folder)).unwrap();
    path.display().to_string()
}

#[track_caller]
fn assert_verified(shown: &Finished) {
    let json = shown.json();
    assert_report_holds(&json);
    assert_eq!((&json["mismatches"], &json["balance"], &json["counts"]["failed"]), (&0.into(), &0.into(), &0.into()));
    assert_eq!((&json["packets"]["held"], &json["drained"]), (&0.into(), &true.into()), "{shown}");
    assert_eq!(json["counts"]["connected"].as_u64(), Some(3), "each initiator connected once: {shown}");
    assert!(json["verified"].as_u64() > Some(0), "{shown}");
    // Regression: each command counted as long as those of one of the initiators.
    let [mib, iops] = ["mib_per_second", "iops"].map(|key| json[key].as_f64().expect("a rate"));
    let mean_bytes = mib * f64::from(1 << 20) / iops;
    let is_of_one = [4096.0, 8192.0, 16_384.0].iter().any(|bytes| (mean_bytes - bytes).abs() < 1.0);
    assert!(!is_of_one && (4096.0..16_384.0).contains(&mean_bytes), "{mean_bytes} bytes a command: {shown}");
    let stages = json["stages"].as_array().expect("stages");
    let target = stages.iter().find(|stage| stage["name"] == "target").expect("the target");
    let counters = target["counters"].as_array().expect("counters");
    let waited = counters.iter().find(|counter| counter["name"] == "waited").expect("it is counted");
    let waited = waited["value"].as_u64();
    assert!(waited > Some(0), "commands waited: {target}");
}

/// Blocks in two regions and a file, of three lengths; also with reads alone, which wait the most.
#[test]
fn two_lcores_serve_several_namespaces_under_pressure() {
    let Some(placed) = two_lcores(["target", "load"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let app = Program::new(env!("CARGO_BIN_EXE_nvme-target"));
    let run = app.with(["run", &plan_file(&folder), "--json"]).with(placed);
    let has_waited = |report: &Value| {
        let answered = |load| counted(report, load, "answered");
        counted(report, "target", "waited") > 0
            && ["load", "load2", "load3"].into_iter().all(|load| answered(load) >= 2000)
    };
    for sets in ["load.read_share=0.7", "load.read_share=1.0"] {
        let run = run.with(["--set", "load.bytes=1048576", "--set", "pool.commands.packets=16384", "--set", sets]);
        assert_verified(&run.run_until(has_waited).exited(0));
    }
}

/// Waits until each of these initiators has had `more` commands answered.
#[track_caller]
fn go_on(running: &Running, initiators: &[&str], more: u64) {
    let answered = |name: &str| running.snapshot().stage(name).and_then(|stage| stage.counter("answered")).unwrap_or(0);
    let before: Vec<u64> = initiators.iter().map(|name| answered(name)).collect();
    let deadline = Instant::now() + Duration::from_secs(30);
    while initiators.iter().zip(&before).any(|(name, before)| answered(name) < before + more) {
        assert!(Instant::now() < deadline, "{initiators:?} go on");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The second initiator's blocks are removed, added under another number, and moved back, while all
/// wait for room: its commands fail meanwhile, and no initiator ever reads a block other than its
/// own last write.
#[test]
fn two_lcores_serve_several_namespaces_while_one_leaves_moves_and_comes_back() {
    if two_lcores(["target", "load"]).is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let text = plan(&folder).replace("[load]\n", "[load]\nbytes = 1_048_576\n");
    let text = text.replacen("packets = 2048", "packets = 16_384", 1).replace("10.9.9.1:4420", "10.9.9.1:7946");
    let own = "[nvme.namespace.2]\nmemory = \"second\"\nblock_bytes = 512\n";
    assert!(text.contains(own), "{text}");
    let app = NvmeTarget::default();
    let running = start_app(&text, &app);
    let reload = |namespaces: &str| {
        app.reload(&changed(&text.replace(own, namespaces))).unwrap_or_else(|error| panic!("{error}"));
    };
    let (all, others) = (["load", "load2", "load3"], ["load", "load3"]);
    go_on(&running, &all, 2000);
    for _ in 0..3 {
        reload("");
        go_on(&running, &others, 300);
        reload(&own.replace("namespace.2", "namespace.9"));
        go_on(&running, &others, 300);
        reload(own);
        go_on(&running, &all, 2000);
    }
    let report = running.stop().unwrap_or_else(|error| panic!("{error}"));
    let json = app.outcome(&report).json;
    assert_eq!((&json["mismatches"], &json["balance"]), (&0.into(), &0.into()), "{json:?}");
    assert_eq!(json["counts"]["connected"].as_u64(), Some(3), "every connection stays: {json:?}");
    assert!(json["verified"].as_u64() > Some(0) && json["counts"]["failed"].as_u64() > Some(0), "{json:?}");
    let waited = report.stage("target").and_then(|stage| stage.counter("waited"));
    assert!(waited > Some(0), "commands waited: {waited:?}");
    assert_eq!(report.packets.held, 0);
}
