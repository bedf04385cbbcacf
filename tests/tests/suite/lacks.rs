//! Things that a machine may lack (docs/machines.md). Each test takes one away from a run, which
//! says so in one note and goes on, or says why it can't. A test that can't take it away here says
//! so with `skipped:`.

mod refused;

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use serde_json::Value;
use verbline::plan::{Lack, Machine};
use verbline_tests::{Cgroup, Finished, Program, root, skipped, unwrapped};

/// A run of one lcore that ends by itself. It uses ordinary pages, so that the machine's hugepages
/// do not matter.
fn rig() -> Program {
    of_rig("run").with(["--json", "--set", "pool.packets.pages=4KiB"])
}

fn of_rig(verb: &str) -> Program {
    Program::new(env!("CARGO_BIN_EXE_rig")).with([verb, "tests/plans/rig.toml"])
}

/// Insists on a good run, and that it prints only this beyond its output with nothing taken away.
#[track_caller]
fn goes_on(program: &Program, shown: Finished, lack: Option<Lack>) -> Finished {
    let shown = shown.exited(0);
    assert_eq!(shown.stderr, "", "{shown}");
    let lacks = |shown: &Finished| shown.notes.iter().map(|note| note.lack).collect::<BTreeSet<_>>();
    let whole = program.run().exited(0);
    assert_eq!(lacks(&shown), lacks(&whole).into_iter().chain(lack).collect(), "{shown}");
    // Only for a run's report, not for a check's line.
    if shown.stdout.starts_with('{') {
        let json = shown.json();
        assert_eq!(
            (json["packets"]["held"].as_u64(), json["failures"].as_array().map(Vec::len)),
            (Some(0), Some(0)),
            "{shown}"
        );
    }
    shown
}

/// A shell that mounts these in its own namespace, and then becomes the program.
pub(crate) fn mounting(mounts: &str) -> Option<Vec<String>> {
    let is_root = rustix::process::geteuid().is_root();
    let mut wrapper = vec!["unshare".to_owned(), "--mount".to_owned()];
    wrapper.extend((!is_root).then(|| "--map-root-user".to_owned()));
    let probe = Command::new("unshare").args(&wrapper[1..]).arg("true").output();
    if !probe.is_ok_and(|output| output.status.success()) {
        skipped("unshare(1) may make no mount namespace here");
        return None;
    }
    wrapper.extend(["sh", "-c", &format!("{mounts} && exec \"$@\""), "sh"].map(str::to_owned));
    Some(wrapper)
}

/// Root without these capabilities; other users have none.
fn without_capabilities(names: &str) -> Vec<String> {
    match rustix::process::geteuid().is_root() {
        true => vec!["setpriv".to_owned(), format!("--bounding-set={names}")],
        false => vec!["env".to_owned()],
    }
}

fn without(what: &str) -> [&str; 3] {
    [env!("CARGO_BIN_EXE_without"), what, "--"]
}

#[test]
fn without_hugepages_pools_are_on_ordinary_pages() {
    let auto = of_rig("run").with(["--json"]).lacking([Lack::Hugepages]);
    let shown = auto.run_as(&mut auto.behind(without("hugepages"))).exited(0);
    assert_eq!(shown.stderr, "", "{shown}");
    let note = shown.note(Lack::Hugepages).unwrap_or_else(|| panic!("{shown}"));
    assert!(note.contains("pool.packets is on 4 KiB pages: 1 hugepage"), "{shown}");
    assert!(note.contains("`sysctl -w vm.nr_hugepages="), "{shown}");
    assert_eq!(shown.json()["pools"][0]["page_bytes"], 4096, "{shown}");
    // Pools that each lack some get the advice that serves all of them.
    let (one, path) = (root().join("tests/plans/rig.toml"), concat!(env!("CARGO_TARGET_TMPDIR"), "/two-pools.toml"));
    let more = "\n[pool.more]\ndevice = \"nic\"\npackets = 4096\ndata_bytes = 2048\n";
    fs::write(path, fs::read_to_string(one).unwrap() + more).unwrap();
    let auto = Program::new(env!("CARGO_BIN_EXE_rig")).with(["run", path, "--json"]).lacking([Lack::Hugepages]);
    let serves_all = |_| {
        let shown = auto.run_as(&mut auto.behind(without("hugepages"))).exited(0);
        let advice = shown.note(Lack::Hugepages).and_then(|note| note.split_once("= help: ")).expect("advice").1;
        let gives = |pool: &Value| pool["fallback"].as_str().is_some_and(|why| why.ends_with(advice));
        shown.json()["pools"].as_array().unwrap().iter().all(gives)
    };
    // The advice adds to the hugepages in use, of which another process may take one meanwhile.
    assert!((0..5).any(serves_all), "the note and each pool give the same advice");
    // Ordinary pages that the plan asks for are no lack.
    let shown = goes_on(&rig(), rig().run_as(&mut rig().behind(without("hugepages"))), None);
    assert_eq!(shown.note(Lack::Hugepages), None, "{shown}");
}

#[test]
fn without_the_right_to_lock_memory_it_may_be_swapped_out() {
    let program = rig().lacking([Lack::LockedMemory]);
    let mut wrapper = vec!["prlimit".to_owned(), "--memlock=65536:65536".to_owned()];
    wrapper.extend(without_capabilities("-ipc_lock,-sys_resource"));
    let shown = goes_on(&program, program.run_as(&mut program.behind(&wrapper)), Some(Lack::LockedMemory));
    let note = shown.note(Lack::LockedMemory).unwrap_or_default();
    assert!(note.contains("the limit is 65536 bytes") && note.contains("`ulimit -l unlimited`"), "{shown}");
    assert_eq!(shown.json()["pools"][0]["locked"], false, "{shown}");
    // A check foretells it.
    let check = of_rig("check").with(["--set", "pool.packets.pages=4KiB"]).lacking([Lack::LockedMemory]);
    let shown = check.run_as(&mut check.behind(&wrapper)).exited(0);
    assert!(shown.note(Lack::LockedMemory).is_some_and(|note| note.contains("may lock 65536")), "{shown}");
}

// `prlimit --nproc=1`, which binds everybody but root: a panic, and exit 101.
#[test]
fn without_threads_the_first_that_a_run_needs_is_named() {
    let plan = fs::read_to_string(root().join("tests/plans/rig.toml")).unwrap();
    let by_address = plan
        .replace("peer = \"port.in\"", "connect = \"10.9.9.1:7571\"")
        .replace("peer = \"port.out\"", "listen = \"10.9.9.1:7571\"");
    let path = concat!(env!("CARGO_TARGET_TMPDIR"), "/rig-by-address.toml");
    fs::write(path, by_address).unwrap();
    let many = ["--set", "port.out.connections=1", "--set", "port.in.connections_max=1"];
    for (plan, sets, named) in [
        ("tests/plans/rig.toml", &[][..], "lcore.main: starting its thread: "),
        (path, &[], "port.out: the thread that connects it can't be made: "),
        (path, &many, "port.out: the thread that makes the connections of it can't be made: "),
    ] {
        let program = Program::new(env!("CARGO_BIN_EXE_rig")).with(["run", plan, "--set", "pool.packets.pages=4KiB"]);
        let program = program.with(sets);
        let shown = program.run_as(&mut program.behind(without("threads"))).exited(1);
        let said = unwrapped(&shown.stderr);
        assert!(said.contains(&format!("error: {plan}:")) && said.contains(named), "{shown}");
        assert!(said.contains("raise the limit of threads (ulimit -u"), "{shown}");
    }
}

#[test]
fn with_the_loopback_down_the_command_is_told_that_brings_it_up() {
    let is_root = rustix::process::geteuid().is_root();
    let apart = ["unshare", "--net"].into_iter().chain((!is_root).then_some("--map-root-user"));
    let apart: Vec<_> = apart.collect();
    if !Command::new(apart[0]).args(&apart[1..]).arg("true").output().is_ok_and(|output| output.status.success()) {
        skipped("unshare(1) may make no network namespace here");
        return;
    }
    let program = rig().with(["--set", "device.nic.address=127.0.0.1"]);
    let said = unwrapped(&program.run_as(&mut program.behind(apart)).exited(1).stderr);
    assert!(said.contains("the loopback is down: run `ip link set lo up` as root"), "{said}");
}

#[test]
fn without_cap_sys_nice_nothing_is_missed() {
    let program = rig();
    goes_on(&program, program.run_as(&mut program.behind(without_capabilities("-sys_nice"))), None);
}

// Each wait with a time-out used epoll_pwait2(2): device events went unheard, and connections
// failed.
#[test]
fn without_epoll_pwait2_nothing_is_missed() {
    let program = rig();
    goes_on(&program, program.run_as(&mut program.behind(without("epoll_pwait2"))), None);
}

// The error named no call, and the control socket's thread kept the run from ending.
#[test]
fn without_ppoll_a_run_that_would_sleep_fails_and_ends() {
    let program = rig().with(["--set", "stage.numbers.params={}", "--for", "5s"]);
    let said = unwrapped(&program.run_as(&mut program.behind(without("ppoll"))).exited(1).stderr);
    assert!(said.contains("ppoll(2), by which the lcore sleeps, failed: "), "{said}");
    assert!(said.contains("a seccomp filter of the container or service"), "{said}");
}

// The error said that CPU 0 is none of `CPU 0, 1`, and to choose one of them.
#[test]
fn without_the_right_to_pin_threads_it_is_the_filter_that_is_blamed() {
    let program = rig();
    let shown = program.run_as(&mut program.behind(without("pinning"))).exited(1);
    let said = unwrapped(&shown.stderr);
    assert!(said.contains("lcore.main: pinning its thread (sched_setaffinity): Operation not permitted"), "{shown}");
    assert!(said.contains("allow sched_setaffinity(2) in the seccomp filter"), "{shown}");
}

#[test]
fn with_one_cpu_a_plan_of_one_lcore_runs_there_and_one_of_two_says_both_numbers() {
    let second = ["--set", "lcore.second={ cpu = \"allowed:1\" }"];
    let cpus = Machine::detect().cpus;
    for cpu in [cpus.first(), cpus.last()].into_iter().flatten() {
        let wrapper = ["taskset".to_owned(), "-c".to_owned(), cpu.to_string()];
        let program = rig();
        let shown = goes_on(&program, program.run_as(&mut program.behind(&wrapper)), None);
        assert_eq!(shown.json()["lcores"][0]["cpu"], *cpu, "{shown}");
        let two = rig().with(second);
        let shown = two.run_as(&mut two.behind(&wrapper)).exited(2);
        let said = unwrapped(&shown.stderr);
        let few = "error[too-few-cpus]: the plan has 2 lcores, and this process may run on 1 CPU";
        assert!(said.contains(few), "{shown}");
        assert!(said.contains(&format!("it may run on CPU {cpu}")) && said.contains("taskset -c"), "{shown}");
    }
}

#[test]
fn with_a_quota_of_cpu_time_the_share_is_told() {
    let Some(group) = Cgroup::of_half_a_cpu() else {
        skipped("no cgroup with the cpu controller can be made here (root, and a writable /sys/fs/cgroup)");
        return;
    };
    let program = rig().lacking([Lack::CpuTime]);
    let shown = program.run_as(&mut program.behind(group.entering()));
    let shown = goes_on(&program, shown, Some(Lack::CpuTime));
    let note = shown.note(Lack::CpuTime).unwrap_or_default();
    assert!(note.contains("grants this process 0.50 CPUs, and the plan has 1 lcore:"), "{shown}");
    assert!(note.contains(&format!("> {}/cpu.", group.folder().display())), "the command that lifts it: {shown}");
}

/// 96 MB of packets.
const MUCH: [&str; 2] = ["--set", "pool.packets.packets=300000"];

#[test]
fn in_a_cgroup_with_little_memory_a_plan_is_refused_and_the_cgroup_is_named() {
    let Some(group) = Cgroup::of_memory(64 << 20) else {
        skipped("no cgroup with the memory controller can be made here (root, and a writable /sys/fs/cgroup)");
        return;
    };
    let program = rig();
    goes_on(&program, program.run_as(&mut program.behind(group.entering())), None);
    for verb in ["run", "check"] {
        let much = of_rig(verb).with(["--set", "pool.packets.pages=4KiB"]).with(MUCH);
        let shown = much.run_as(&mut much.behind(group.entering())).exited(2);
        let said = unwrapped(&shown.stderr);
        assert!(said.contains("error[too-much-memory]"), "{shown}");
        assert!(said.contains("bytes are available, of 67108864 that a cgroup grants"), "{shown}");
        assert!(said.contains("or lift the limit: `echo "), "the command that lifts it: {shown}");
    }
}

#[test]
fn with_little_address_space_a_plan_is_refused_before_anything_is_mapped() {
    let program = rig();
    goes_on(&program, program.run_as(&mut program.behind(limited_mappings(400 << 20))), None);
    let much = rig().with(MUCH);
    let shown = much.run_as(&mut much.behind(limited_mappings(200 << 20))).exited(2);
    let said = unwrapped(&shown.stderr);
    assert!(said.contains("error[too-much-memory]: the run maps ") && said.contains("RLIMIT_AS bounds it"), "{shown}");
    assert!(said.contains("`ulimit -v unlimited`"), "{shown}");
}

/// The rig's sum of address space, with what the program has mapped before.
pub(crate) fn address_space_sum() -> u64 {
    let most = 1_u64 << 40;
    let check = of_rig("check").with(["--json", "--explain", "--set", "pool.packets.pages=4KiB"]);
    let sums = check.run_as(&mut check.behind(limited_mappings(most))).exited(0).json();
    let sum = sums["sums"].as_array().into_iter().flatten().find(|sum| sum["of"] == "address space");
    let sum = sum.unwrap_or_else(|| panic!("no sum of address space: {sums:#}"));
    let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("no number: {sum:#}"));
    let mapped = most - number(&sum["limit"]["value"]);
    // The program may have mapped a page more before it looks.
    mapped + number(&sum["needed"]) + (1 << 20)
}

pub(crate) fn limited_mappings(bytes: u64) -> [String; 2] {
    ["prlimit".to_owned(), format!("--as={bytes}")]
}

/// Threads would map 64 MiB each for an arena of the allocator, and the next allocation abort.
#[test]
fn with_the_address_space_of_its_sum_a_plan_runs() {
    let (bytes, program) = (address_space_sum(), rig());
    for _ in 0..3 {
        goes_on(&program, program.run_as(&mut program.behind(limited_mappings(bytes))), None);
    }
}

#[test]
fn with_little_room_for_data_a_plan_is_refused_before_anything_is_mapped() {
    let program = rig();
    let limited = |bytes: u64| ["prlimit".to_owned(), format!("--data={bytes}")];
    goes_on(&program, program.run_as(&mut program.behind(limited(64 << 20))), None);
    let much = rig().with(MUCH);
    let shown = much.run_as(&mut much.behind(limited(64 << 20))).exited(2);
    let said = unwrapped(&shown.stderr);
    assert!(said.contains("error[too-much-memory]: the run maps "), "{shown}");
    assert!(said.contains("RLIMIT_DATA bounds it"), "{shown}");
    assert!(said.contains("`ulimit -d unlimited`"), "{shown}");
}

#[test]
fn with_too_few_descriptors_a_plan_says_both_numbers_and_with_enough_it_raises_its_own_limit() {
    let sums = of_rig("check").with(["--json", "--explain"]).run().exited(0).json();
    let sums = sums["sums"].as_array().expect("a list");
    let sum = sums.iter().find(|sum| sum["of"] == "file descriptors").expect("a sum of descriptors");
    let needed = sum["needed"].as_u64().expect("a number");
    let limited = |soft: u64, hard: u64| ["prlimit".to_owned(), format!("--nofile={soft}:{hard}")];
    let program = rig();
    // The sum's number suffices, however low the limit at the start of the process.
    goes_on(&program, program.run_as(&mut program.behind(limited(8, needed))), None);
    let few = needed - 1;
    let shown = program.run_as(&mut program.behind(limited(few, few))).exited(2);
    let both = format!("the run needs {needed} file descriptors, and this process may open {few}");
    assert!(unwrapped(&shown.stderr).contains(&both), "{shown}");
    assert!(shown.stderr.contains("LimitNOFILE="), "{shown}");
    // The sum includes clients of the control socket, and a run may have none.
    let fewer = needed - 16;
    let alone = program.with(["--no-socket"]);
    alone.run_as(&mut alone.behind(limited(fewer, fewer))).exited(0);
}

#[test]
fn without_sys_hugepages_are_what_they_are() {
    let Some(wrapper) = mounting("mount -t tmpfs none /sys") else { return };
    let check = of_rig("check");
    goes_on(&check, check.run_as(&mut check.behind(&wrapper)), None);
    let program = of_rig("run").with(["--json"]);
    let shown = goes_on(&program, program.run_as(&mut program.behind(&wrapper)), None);
    let is_small = shown.json()["pools"][0]["page_bytes"] == 4096;
    assert_eq!(shown.note(Lack::Hugepages).is_some(), is_small, "{shown}");
}

#[test]
fn without_proc_the_cpus_and_the_limits_are_known() {
    let Some(wrapper) = mounting("mount -t tmpfs none /proc") else { return };
    let program = rig();
    goes_on(&program, program.run_as(&mut program.behind(&wrapper)), None);
}

#[test]
fn without_sys_and_proc_a_check_says_what_it_cannot_know_and_a_run_finds_out() {
    let Some(wrapper) = mounting("mount -t tmpfs none /sys && mount -t tmpfs none /proc") else { return };
    let program = rig();
    goes_on(&program, program.run_as(&mut program.behind(&wrapper)), None);
    let check = of_rig("check").lacking([Lack::HugepageCounts]);
    let shown = check.run_as(&mut check.behind(&wrapper)).exited(0);
    assert!(shown.note(Lack::HugepageCounts).is_some_and(|note| note.contains("`mount -t sysfs")), "{shown}");
}

#[test]
fn without_rdma_devices_the_software_one_serves_and_a_plan_for_a_card_says_what_is_missing() {
    let Some(wrapper) = mounting("mount -t tmpfs none /sys") else { return };
    let program = rig();
    goes_on(&program, program.run_as(&mut program.behind(&wrapper)), None);
    let card = program.with(["--set", "device.nic={ provider = \"kernel\" }"]);
    let shown = card.run_as(&mut card.behind(&wrapper)).exited(1);
    let said = unwrapped(&shown.stderr);
    assert!(said.contains("device.nic") && said.contains("modprobe"), "{shown}");
}

#[test]
fn in_a_read_only_folder_nothing_is_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let here = folder.path().display();
    let Some(wrapper) = mounting(&format!("mount -t tmpfs -o ro none {here} && cd {here}")) else { return };
    let plan = root().join("tests/plans/rig.toml").display().to_string();
    let program =
        Program::new(env!("CARGO_BIN_EXE_rig")).with(["run", &plan, "--json", "--set", "pool.packets.pages=4KiB"]);
    goes_on(&program, program.run_as(&mut program.behind(&wrapper)), None);
}

#[test]
fn with_a_small_dev_shm_pools_are_as_large_as_they_like() {
    let Some(wrapper) = mounting("mount -t tmpfs -o size=64m none /dev/shm") else { return };
    let program = rig().with(MUCH);
    goes_on(&program, program.run_as(&mut program.behind(&wrapper)), None);
}

#[test]
fn without_membarrier_the_fences_are_full_ones() {
    let program = rig().lacking([Lack::Membarrier]);
    let shown = program.run_as(&mut program.behind(without("membarrier")));
    let shown = goes_on(&program, shown, Some(Lack::Membarrier));
    assert!(shown.note(Lack::Membarrier).is_some_and(|note| note.contains("`--security-opt seccomp=")), "{shown}");
    assert_eq!(shown.json()["lcores"][0]["rescues"], 0, "no wake-up is missed: {shown}");
}

#[test]
fn without_mlock_it_is_the_filter_that_is_blamed() {
    let program = rig().lacking([Lack::LockedMemory]);
    let shown = program.run_as(&mut program.behind(without("mlock")));
    let shown = goes_on(&program, shown, Some(Lack::LockedMemory));
    let note = shown.note(Lack::LockedMemory).unwrap_or_default();
    assert!(note.contains("allow mlock(2) in the seccomp filter") && !note.contains("ulimit"), "{shown}");
}

/// Every lack is in the table of the documentation, and every test named there exists.
#[test]
fn the_table_of_what_a_machine_may_lack_is_whole() {
    let page = fs::read_to_string(root().join("docs/machines.md")).expect("docs/machines.md");
    for lack in Lack::ALL {
        assert!(page.contains(&format!("`{}`", lack.code())), "{} is not in docs/machines.md", lack.code());
    }
    let read = |file| fs::read_to_string(root().join(file)).expect("these tests");
    let tests = ["tests/tests/suite/lacks.rs", "tests/tests/suite/lacks/refused.rs"].map(read).concat();
    let own = tests.split("#[test]\nfn ").skip(1).filter_map(|after| after.split_once('(')).map(|(name, _)| name);
    for name in own.filter(|name| !name.starts_with("the_table")) {
        assert!(page.contains(&format!("`{name}`")), "{name} is not in docs/machines.md");
    }
    let is_test = |word: &&str| ["with", "in_a", "two_lcores"].iter().any(|begins| word.starts_with(begins));
    for name in page.split('`').filter(is_test) {
        assert!(tests.contains(&format!("fn {name}()")), "docs/machines.md names {name}, which is not here");
    }
}
