//! A host that is stopped while its target, another process, takes its time: every command that it
//! sent is answered before its run ends, and none counts as lost.

use std::time::{Duration, Instant};

use nvme_target::NvmeTarget;
use rustix::process::Signal;
use verbline_store::{Disk, Faults, FaultyStore};
use verbline_tests::{Program, own_address, two_lcores};

use crate::common::{end, start_app};

const BYTES: usize = 1 << 20;
/// Longer than a run without packets in flight goes on after a stop; within the drain's budget.
const STALL: Duration = Duration::from_millis(500);

/// The target and the load of the shipped plan, as plans of two processes.
fn plans() -> [String; 2] {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../config/nvme-target.toml")).unwrap();
    let namespace = format!("[nvme.namespace.3]\nnull_bytes = {BYTES}\nblock_bytes = 4096\n\n[load]\nnsid = 3");
    let text = text.replacen("[load]", &namespace, 1).replace("10.9.9.1:4420", &format!("{}:4420", own_address(1)));
    let (target, load) = text.split_once("# --- load ---").expect("two parts");
    let (front, _) = target.split_once("# --- target ---").expect("two parts");
    let at = |text: &str, number| {
        let device = format!("provider = \"soft\"\naddress = \"{}\"", own_address(number));
        text.replacen("provider = \"soft\"", &device, 1)
    };
    let load = load.replacen("idle = \"poll\"", "idle = \"poll\"\ndrain = \"60s\"", 1);
    // Without the target's namespaces, whose memory is in the other plan.
    let (name, rest) = front.split_once("[nvme]").expect("a section");
    let (_, rest) = rest.split_once("[load]").expect("a section");
    [at(target, 1), at(&format!("{name}[load]{rest}"), 2) + "\n#" + &load]
}

#[test]
fn two_lcores_a_host_waits_for_its_target_in_another_process() {
    if two_lcores(["target", "load"]).is_none() {
        return;
    }
    let disk = Disk::new(BYTES, 4096, Faults::default(), 1).expect("a disk");
    let (of_target, folder, [target, load]) = (disk.clone(), tempfile::tempdir().unwrap(), plans());
    let app = NvmeTarget::default().with_store(3, move |depth| FaultyStore::over(&of_target, depth));
    let running = start_app(&target, &app);
    let plan = folder.path().join("load.toml");
    std::fs::write(&plan, load).unwrap();
    let host = Program::new(env!("CARGO_BIN_EXE_nvme-target")).with(["run", &plan.display().to_string(), "--json"]);
    let host = host.start();
    let commands = || running.snapshot().stage("target").and_then(|stage| stage.counter("commands")).unwrap_or(0);
    let deadline = Instant::now() + Duration::from_secs(60);
    while commands() < 1000 {
        assert!(Instant::now() < deadline, "the host is served");
        std::thread::sleep(Duration::from_millis(5));
    }
    disk.stall(true);
    // Commands that need no disk are answered meanwhile: the rest waits for the disk.
    std::thread::sleep(STALL);
    host.signal(Signal::TERM);
    std::thread::sleep(STALL);
    disk.stall(false);
    let shown = host.finish().exited(0);
    let json = shown.json();
    assert_eq!((&json["balance"], &json["mismatches"], &json["counts"]["cut_off"]), (&0.into(), &0.into(), &0.into()));
    assert!(json["verified"].as_u64() > Some(0), "{shown}");
    end(running);
}
