//! Lack of memory: pools that are too small, hugepages that no machine has, memory that may not be
//! locked.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use verbline::plan::Lack;
use verbline_tests::{Finished, Program, assert_within_memory_sum, config, skipped, two_lcores, unwrapped};

use crate::command::{app, generated};

#[test]
fn a_pool_that_is_too_small_says_how_many_packets_it_takes() {
    let shown = app().with(["run", "config/tick-to-trade.toml", "--set", "pool.packets.packets=1000"]).run().exited(2);
    let said = unwrapped(&shown.stderr);
    assert!(said.contains("error[pool-too-small]: pool.packets has 1000 packets, but 2"), "{shown}");
    assert!(said.contains("receive queue of port.md_a line ") && said.contains("help: write `packets = 2"), "{shown}");
    assert!(shown.stderr.contains("--set pool.packets.packets=1000"), "{shown}");
}

#[test]
fn two_lcores_stay_within_the_sum_of_memory() {
    let Some(run) = generated("60s", &[]) else { return };
    assert_within_memory_sum(&run, |report| report["elapsed_ns"].as_u64() >= Some(700_000_000));
}

#[test]
fn hugepages_that_no_machine_has_are_asked_for_in_vain() {
    // Seventeen terabytes.
    let huge = ["packets=268435456", "data_bytes=65536", "pages=2MiB"].map(|set| format!("pool.packets.{set}"));
    let run = app().with(["run", "config/tick-to-trade.toml"]);
    let shown = run.with(huge.iter().flat_map(|set| ["--set", set])).run().exited(2);
    assert!(shown.stderr.contains("error[too-few-hugepages]"), "{shown}");
    assert!(shown.stderr.contains("hugepages"), "it says how to get some: {shown}");
}

#[test]
fn two_lcores_do_without_hugepages_and_say_so() {
    let Some(run) = generated("500ms", &[]) else { return };
    let shown = run.with(["--json"]).run().exited(0);
    let pool = &shown.json()["pools"][0];
    // Which of the two applies depends on the machine and on other users of its pages; the note
    // must match.
    let fell_back = pool["page_bytes"] == 4096;
    assert_eq!(pool["fallback"].is_string(), fell_back, "{pool:#}");
    let note = shown.note(Lack::Hugepages);
    assert_eq!(note.is_some(), fell_back, "{shown}");
    assert!(note.is_none_or(|note| note.contains("pool.packets is on 4 KiB pages")), "{shown}");
    assert!(note.is_none_or(|note| note.contains("`sysctl -w vm.nr_hugepages=")), "{shown}");
    let Some(run) = generated("500ms", &["pool.packets.pages=4KiB"]) else { return };
    let shown = run.with(["--json"]).run().exited(0);
    let pool = &shown.json()["pools"][0];
    assert!(pool["page_bytes"] == 4096 && pool["fallback"].is_null(), "what was asked for is no fallback: {pool:#}");
}

#[test]
fn two_lcores_need_no_right_to_lock_memory_with_the_software_rnic_and_say_that_it_is_not_locked() {
    let Some(mut settings) = two_lcores(["exchange", "trader"]) else { return };
    settings.extend(["--set".to_owned(), "pool.packets.pages=4KiB".to_owned()]);
    let Some(shown) = unprivileged(&["run", "--for", "500ms", "--json"], &settings) else { return };
    let shown = shown.exited(0);
    assert_eq!(shown.stderr, "", "{shown}");
    assert_eq!(shown.json()["packets"]["held"], 0, "{shown}");
    assert_eq!(shown.json()["pools"][0]["locked"], false, "{shown}");
    let said = shown.note(Lack::LockedMemory).unwrap_or_default();
    assert!(said.contains("may be swapped out") && said.contains("`ulimit -l unlimited`"), "{shown}");
}

#[test]
fn a_kernel_device_needs_the_right_to_lock_memory() {
    let kernel = ["--set".to_owned(), "device.nic0.provider=kernel".to_owned()];
    let Some(shown) = unprivileged(&["run"], &kernel) else { return };
    let shown = shown.exited(2);
    let said = unwrapped(&shown.stderr);
    assert!(said.contains("error[locked-memory]") && said.contains("this process may lock 65536"), "{shown}");
    assert!(said.contains("ulimit -l"), "{shown}");
}

/// Runs the command on a copy of the shipped plan as an unprivileged user, who may lock 64 KiB.
fn unprivileged(arguments: &[&str], more: &[String]) -> Option<Finished> {
    const NOBODY: u32 = 65_534;
    if Command::new("prlimit").arg("--version").output().is_err() {
        skipped("prlimit(1) of util-linux is not there to limit a program");
        return None;
    }
    let folder = tempfile::tempdir().expect("a folder for the program");
    let open_to_all = |path: &Path| fs::set_permissions(path, Permissions::from_mode(0o755)).expect("permissions");
    let (binary, plan) = (folder.path().join("tick-to-trade"), folder.path().join("plan.toml"));
    fs::copy(env!("CARGO_BIN_EXE_tick-to-trade"), &binary).expect("a copy of the program");
    fs::copy(config("tick-to-trade"), &plan).expect("a copy of the plan");
    for path in [folder.path(), &binary, &plan] {
        open_to_all(path);
    }

    let program: Program =
        app().lacking([Lack::LockedMemory]).with(arguments).with([plan.display().to_string()]).with(more);
    let mut command = Command::new("prlimit");
    command.args(["--memlock=65536:65536", "--", "env"]).args(program.command_under(&binary).get_args());
    // The folder of sockets there is another user's.
    command.current_dir(folder.path()).env_remove("XDG_RUNTIME_DIR");
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    Some(program.run_as(&mut command))
}
