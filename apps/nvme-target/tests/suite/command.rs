//! The command as a user runs it: a target, an initiator, and the initiator's findings.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::Signal;
use serde_json::Value;
use verbline_tests::{Finished, Program, assert_fits, assert_report_holds, counted, two_lcores, unwrapped};

fn app() -> Program {
    Program::new(env!("CARGO_BIN_EXE_nvme-target"))
}

/// The shipped plan with few blocks. `None` where two lcores can't run.
pub(crate) fn shipped(sets: &[&str]) -> Option<Program> {
    let placed = two_lcores(["target", "load"])?;
    let run = app().with(["run", "config/nvme-target.toml"]).with(placed);
    let all = ["load.bytes=2097152"].iter().chain(sets);
    Some(run.with(all.flat_map(|set| ["--set", set])))
}

/// A run that lasts until the initiator has read blocks back and flushed.
#[track_caller]
fn until_verified(run: &Program) -> Finished {
    run.with(["--json"]).run_until(has_verified).exited(0)
}

pub(crate) fn has_verified(report: &Value) -> bool {
    counted(report, "target", "reads") >= 200 && counted(report, "target", "writes") >= 200
}

/// Every block read is of the last write that was answered, and no command is unaccounted for.
#[track_caller]
fn assert_verified(shown: &Finished) {
    let json = shown.json();
    assert_report_holds(&json);
    assert!(json["verified"].as_u64() > Some(0) && json["iops"].as_f64() > Some(0.0), "{shown}");
    assert_eq!((&json["mismatches"], &json["balance"]), (&0.into(), &0.into()), "{shown}");
    assert_eq!((&json["packets"]["held"], &json["drained"]), (&0.into(), &true.into()), "{shown}");
}

#[test]
fn two_lcores_serve_and_verify_every_block() {
    let Some(run) = shipped(&[]) else { return };
    let shown = until_verified(&run);
    assert_verified(&shown);
    let json = shown.json();
    for way in ["read", "write"] {
        assert!(json["latency_ns"][way]["commands"].as_u64() > Some(0), "{way}: {shown}");
    }
    assert!(json["counts"]["flushed"].as_u64() > Some(0), "{shown}");
}

/// A check never creates the file that a run would create, whether the plan is good or not.
#[test]
fn a_check_has_no_effects() {
    // A kernel device pins its memory, and an ordinary user may pin little.
    let soft = ["--set", "device.nic0={ provider = \"soft\" }"];
    for plan in ["config/nvme-target.toml", "tests/plans/nvme-target.toml"] {
        app().with(["check", plan]).with(soft).run_without_effects().exited(0);
    }
    let folder = tempfile::tempdir().unwrap();
    let file = format!("nvme.namespace.1.file={}", folder.path().join("disk").display());
    let plan = ["check", "tests/plans/nvme-target-file.toml", "--set", &file];
    for (set, code) in [("nvme.namespace.1.create_bytes=1048576", 0), ("nvme.queues_max=0", 2), ("nvme.serial=S", 2)] {
        let shown = app().with(plan).with(soft).with(["--set", set]).run_without_effects().exited(code);
        assert_eq!(folder.path().read_dir().unwrap().count(), 0, "{shown}");
        // A file that does not exist, and that the plan does not create.
        assert!(set != "nvme.serial=S" || unwrapped(&shown.stderr).contains("write `create_bytes`"), "{shown}");
    }
}

/// A plan that lacks something that the stage needs is refused.
#[test]
fn what_the_target_needs_of_the_plan_is_proved() {
    let cases = [
        ("port.hosts.ops_depth_wr=0", "stage.target asks for RDMA WRITEs, RDMA READs and SENDs"),
        ("stage.target.timers_max=0", "stage.target can arm 1 timer at once, and may arm 0"),
        ("stage.load.timers_max=1", "stage.load can arm 2 timers at once, and may arm 1"),
        ("region.disk.rights=[]", "region.disk lacks \"local-write\", which stage.target needs"),
        ("region.buffers.rights=[\"local-write\"]", "region.buffers lacks \"remote-read\", \"remote-write\""),
    ];
    for (set, says) in cases {
        let shown = app().with(["check", "config/nvme-target.toml", "--set", set]).run().exited(2);
        assert!(unwrapped(&shown.stderr).contains(says), "{set}: {shown}");
    }
}

/// Writes that the target READs, with keys that its responses invalidate, and with keys that stay.
#[test]
fn two_lcores_serve_by_keys_of_every_kind() {
    let windows = [
        "load.keys=window",
        "load.depth=16",
        "port.io.ops_depth_wr=32",
        "port.io.windows=16",
        "port.io.immediates=true",
        r#"region.buffers.rights=["local-write", "remote-read", "remote-write", "bind"]"#,
        "pool.commands.packets=4096",
    ];
    for sets in [&["load.in_capsule=false"][..], &[&windows[..], &["load.in_capsule=false"]].concat()] {
        let Some(run) = shipped(sets) else { return };
        let shown = until_verified(&run);
        assert_verified(&shown);
        let counts = &shown.json()["counts"];
        assert_eq!(counts["invalidated"].as_u64() > Some(0), sets.len() > 1, "{shown}");
    }
}

/// Every block is written once before the load, also where the send queue has room for fewer
/// commands than the load begins at once; and these writes are no part of what is measured.
#[test]
fn two_lcores_fill_the_namespace_before_they_measure() {
    let few = [
        "load.read_share=1.0",
        "load.flush_every=0",
        "load.bytes=4194304",
        "load.in_capsule=false",
        "load.keys=window",
        "load.depth=16",
        "port.io.ops_depth_wr=4",
        "port.io.windows=16",
        "port.io.immediates=true",
        r#"region.buffers.rights=["local-write", "remote-read", "remote-write", "bind"]"#,
        "pool.commands.packets=4096",
    ];
    for sets in [&few[..3], &few] {
        let Some(run) = shipped(sets) else { return };
        let has_read = |report: &Value| counted(report, "target", "reads") > 0;
        let shown = run.with(["--json"]).run_until(has_read).exited(0);
        assert_verified(&shown);
        let json = shown.json();
        assert_eq!(json["counts"]["written"], 1024, "{shown}");
        assert_eq!(json["latency_ns"]["write"]["commands"], 0, "{shown}");
    }
}

/// The shipped plan with its namespace in a file, which the target makes.
#[test]
fn two_lcores_serve_a_file() {
    let Some(placed) = two_lcores(["target", "load"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let (disk, plan) = (folder.path().join("disk"), folder.path().join("plan.toml"));
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../config/nvme-target.toml")).unwrap();
    let file = format!("file = {:?}\ncreate_bytes = 8_388_608", disk.display().to_string());
    let text = text.replace("memory = \"disk\"", &file).replace("[pool.data]", "[pool.data]\nheadroom_bytes = 0");
    std::fs::write(&plan, text).unwrap();
    let run = app().with(["run", &plan.display().to_string(), "--set", "load.bytes=2097152"]).with(placed);
    // Polled in every turn, woken by its descriptor, and both in turn.
    for idle in ["poll", "event", "adaptive"] {
        assert_verified(&until_verified(&run.with(["--set", &format!("lcore.target.idle={idle}")])));
    }
    let blocks = std::fs::read(&disk).unwrap();
    assert!(blocks.len() == 8_388_608 && blocks[..2_097_152].iter().any(|byte| *byte != 0));
}

/// The initiator authenticates on every queue. With another secret, or none, the run fails and
/// names the remedy, but never the secret.
#[test]
fn two_lcores_authenticate() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, secret: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, secret).unwrap();
        path.display().to_string()
    };
    let coded = "AQgPFh0kKzI5QEdOVVxjanF4f4aNlJuiqbC3vsXM09pl1OOC";
    let good = file("good", &format!("DHHC-1:01:{coded}:\n"));
    let other = file("other", "DHHC-1:00:AAcOFRwjKjE4P0ZNVFtiaXB3foWMk5qhqK+2vcTL0tk/PUPo:\n");
    let broken = file("broken", &format!("DHHC-1:01:B{}:\n", &coded[1..]));
    let target = format!("nvme.secrets={{ \"nqn.2026-01.org.verbline:load\" = {good:?} }}");
    let Some(run) = shipped(&[&target]) else { return };
    let of = |secret: &str| run.with(["--set", &format!("load.secret={secret}")]);
    let with = |secret: &str| of(secret).with(["--json"]).run();
    assert_verified(&until_verified(&of(&good)));
    for (shown, said) in [
        (with(&other), "authentication failed: compare the secret in load.secret"),
        (run.clone().with(["--json"]).run(), "write `secret = \"PATH\"` in [load]"),
        (with(&broken), "its checksum is wrong"),
        (with("/nowhere"), "`/nowhere` can't be read"),
    ] {
        let text = shown.to_string();
        assert!(unwrapped(&text).contains(said), "{text}");
        assert!(!text.contains(&coded[1..]), "the secret is told: {text}");
    }
}

/// Long commands, small blocks, and a namespace whose blocks are outside the reach of RDMA.
#[test]
fn two_lcores_serve_blocks_of_every_size() {
    for sets in
        [["load.block_bytes=32768", "load.depth=7"], ["nvme.namespace.1.block_bytes=512", "load.block_bytes=512"]]
    {
        let Some(run) = shipped(&sets) else { return };
        assert_verified(&until_verified(&run));
    }
}

const BY_DEVICE: &str = "nvme.reads_checked_by=device";

/// Protection information of every type, made and checked by the initiator, or by the target.
#[test]
fn two_lcores_serve_protected_blocks() {
    let cases = [
        &["nvme.namespace.1.protection=type1", "load.protection=host"][..],
        &["nvme.namespace.1.protection=type1", "load.protection=target"],
        &["nvme.namespace.1.protection=type2", "load.protection=host", "nvme.namespace.1.block_bytes=512"],
        &["nvme.namespace.1.protection=type3", "load.protection=host", "load.block_bytes=16384", "load.depth=8"],
        &["nvme.namespace.1.protection=type3", "load.protection=target", "load.in_capsule=false"],
        // With one key per read in flight, and with fewer.
        &["nvme.namespace.1.protection=type1", "load.protection=target", "port.hosts.signature_keys=64", BY_DEVICE],
        &["nvme.namespace.1.protection=type2", "load.protection=host", "port.hosts.signature_keys=4", BY_DEVICE],
        &["nvme.namespace.1.protection=type1", "load.protection=target", "port.hosts.signature_keys=64"],
    ];
    for sets in cases {
        let Some(run) = shipped(&[sets, &["pool.data.data_bytes=33280"]].concat()) else { return };
        let shown = until_verified(&run);
        assert_verified(&shown);
        let json = shown.json();
        let target = json["stages"].as_array().into_iter().flatten().find(|stage| stage["name"] == "target");
        let counters = target.and_then(|stage| stage["counters"].as_array()).into_iter().flatten();
        let pipelined = counters.filter(|counter| counter["name"] == "pipelined").map(|counter| &counter["value"]);
        assert!(pipelined.into_iter().all(|count| (count.as_u64() > Some(0)) == sets.contains(&BY_DEVICE)), "{shown}");
        let is_host = sets.contains(&"load.protection=host");
        assert_eq!(json["counts"]["guarded"], if is_host { json["verified"].clone() } else { 0.into() }, "{shown}");
    }
}

/// Bytes of the namespace's file change unnoticed: the target finds them by their guards, and no
/// wrong block reaches the initiator.
#[test]
fn two_lcores_where_blocks_rot() {
    let Some(placed) = two_lcores(["target", "load"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let (disk, plan) = (folder.path().join("disk"), folder.path().join("plan.toml"));
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../config/nvme-target.toml")).unwrap();
    let file = format!("file = {:?}\ncreate_bytes = 4_202_496\nprotection = \"type1\"", disk.display().to_string());
    std::fs::write(&plan, text.replace("memory = \"disk\"", &file)).unwrap();
    for protection in ["host", "target"] {
        let run = app().with(["run", &plan.display().to_string(), "--json"]).with(placed.clone());
        let sets = ["pool.data.data_bytes=33280", "load.bytes=2097152"].map(str::to_owned);
        let sets = sets.into_iter().chain([format!("load.protection={protection}")]);
        let run = run.with(sets.flat_map(|set| ["--set".to_owned(), set]));
        let has_failed =
            |report: &Value| counted(report, "target", "failed") > 0 && counted(report, "target", "reads") > 500;
        let shown = while_rotting(&disk, || run.run_until(has_failed)).exited(1);
        let json = shown.json();
        assert!(json["verified"].as_u64() > Some(0) && json["counts"]["failed"].as_u64() > Some(0), "{shown}");
        assert_eq!((&json["mismatches"], &json["balance"]), (&0.into(), &0.into()), "{shown}");
        assert!(unwrapped(&shown.stderr).contains("End-to-end Guard Check Error (2:82)"), "{shown}");
    }
}

/// Changes a byte of one block after the other while `run` runs, once the file exists.
fn while_rotting<T>(disk: &std::path::Path, run: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    let rot = || {
        let mut block = 0;
        // Relaxed: it publishes no other data.
        while !is_over.load(Ordering::Relaxed) {
            std::thread::sleep(std::time::Duration::from_millis(1));
            let Ok(file) = OpenOptions::new().read(true).write(true).open(disk) else { continue };
            let (at, mut byte) = (block % 512 * 4104 + 1000, [0]);
            if file.read_exact_at(&mut byte, at).is_ok() {
                file.write_all_at(&[byte[0] ^ 0x10], at).expect("the file can be written");
            }
            block += 7;
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(rot);
        let result = run();
        is_over.store(true, Ordering::Relaxed);
        result
    })
}

#[test]
fn two_lcores_report() {
    let Some(run) = shipped(&[]) else { return };
    let shown = run.run_until(has_verified).exited(0);
    assert_fits(&shown.stdout);
    assert!(shown.stdout.contains("0 mismatches, balance 0") && shown.stdout.contains("p99.9"), "{shown}");
}

#[test]
fn two_lcores_where_the_host_is_not_let_in() {
    let cases = [
        (r#"nvme.hosts=["nqn.2026-01.org.example:other"]"#, "Connect Invalid Host"),
        ("load.subsystem=nqn.2026-01.org.example:none", "is not in the discovery log"),
        ("load.nsid=7", "the subsystem has no namespace 7"),
        ("nvme.queues_max=2", "the controller gives 2 I/O queues; the plan has 4"),
        ("load.protection=host", "namespace 1 has no protection information"),
    ];
    for (set, says) in cases {
        let Some(run) = shipped(&[set]) else { return };
        let shown = run.run().exited(1);
        let said = unwrapped(&format!("{}{}", shown.stdout, shown.stderr));
        assert!(said.contains(says), "{set}: {shown}");
    }
}

/// The target can't make the initiator allocate memory: this namespace claims a tebibyte, and
/// stores nothing.
#[test]
fn two_lcores_where_the_namespace_says_that_it_is_huge() {
    let sets = ["nvme.namespace.3={null_bytes=1099511627776}", "load.nsid=3", "load.bytes=0"];
    let Some(run) = shipped(&sets) else { return };
    let shown = run.run().exited(1);
    let says = "says that it has 268435456 blocks of 4096 bytes, and 16777216 can be kept account of: write `bytes`";
    assert!(unwrapped(&format!("{}{}", shown.stdout, shown.stderr)).contains(says), "{shown}");
}

/// The plan is read again when the user asks. The run goes on, whatever is wrong with the plan.
#[test]
fn two_lcores_go_on_while_the_plan_is_read_again() {
    let Some(placed) = two_lcores(["target", "load"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("plan.toml");
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../config/nvme-target.toml")).unwrap();
    std::fs::write(&plan, &text).unwrap();
    let run = app().with(["run", &plan.display().to_string(), "--json"]).with(placed);
    let run = run.with(["--set", "load.bytes=2097152"]).listening_in(folder.path());
    let told = folder.path().join("told");
    let started = run.start_telling(std::fs::File::create(&told).unwrap());
    run.await_live(None, "blocks read back", has_verified);
    for (bytes, says) in [("1_048_576", "namespaces added: [5]; removed: []"), ("\"many\"", "not taken")] {
        std::fs::write(&plan, format!("{text}\n[nvme.namespace.5]\nnull_bytes = {bytes}\n")).unwrap();
        started.signal(Signal::USR1);
        started.wait_for(says, || unwrapped(&std::fs::read_to_string(&told).unwrap()).contains(says));
    }
    assert_verified(&started.end_whole(0));
}

/// The requirements of `load.keys = "window"` are reported one by one, until the plan meets all.
#[test]
fn keys_that_nothing_could_make_are_refused() {
    let steps = [
        ("load.keys=window", "region.buffers lacks \"bind\", which stage.load needs"),
        (
            r#"region.buffers.rights=["local-write", "remote-read", "remote-write", "bind"]"#,
            "port.io carries out no operations",
        ),
        // Operations need packets, too.
        ("pool.commands.packets=4096", "port.io carries out no operations"),
        ("port.io.ops_depth_wr=64", "port.io has no memory windows to bind"),
        ("port.io.windows=1", "needs `windows = 32`"),
        ("port.io.windows=32", "needs `immediates = true`"),
    ];
    for given in 1..=steps.len() {
        let sets = steps[..given].iter().flat_map(|(set, _)| ["--set", set]);
        let shown = app().with(["check", "config/nvme-target.toml"]).with(sets).run().exited(2);
        let says = steps[given - 1].1;
        assert!(unwrapped(&shown.stderr).contains(says), "{says}: {shown}");
    }
    let whole = steps.iter().flat_map(|(set, _)| ["--set", set]).chain(["--set", "port.io.immediates=true"]);
    app().with(["check", "config/nvme-target.toml"]).with(whole).run().exited(0);
}

#[test]
fn two_lcores_settings_that_cannot_be_are_refused_at_their_place() {
    let cases = [
        ("nvme.subsystem=a disk", "a name is of printable ASCII without spaces"),
        ("nvme.addresses=[\"0.0.0.0:4420\"]", "no host can connect to 0.0.0.0:4420"),
        ("nvme.addresses=[\"10.9.9.1:0\"]", "no host can connect to 10.9.9.1:0"),
        ("nvme.addresses=[\"10.9.9.1\"]", "`10.9.9.1` is no address with a port"),
        ("nvme.cntlid_max=0", "from 1 to 65519"),
        ("nvme.cntlid_max=100", "are 100 numbers for controllers"),
        ("nvme.connect_timeout_ms=0", "from 100 to 60000"),
        ("nvme.queues_max=0", "from 1 to 1024"),
        ("nvme.namespace.1.block_bytes=100", "from 512 to 4096"),
        ("nvme.namespace.1.block_bytes=600", "blocks of 600 bytes"),
        ("nvme.namespace.2={null_bytes=4095}", "4095 `null_bytes` are less than a block of 4096"),
        ("nvme.namespace.1.memory=none", "is kept in region.none"),
        ("nvme.namespace.2={memory=\"buffers\"}", "no target stage of the plan owns region.buffers"),
        ("nvme.namespace.0.null_bytes=4096", "`0` numbers no namespace"),
        ("nvme.namespace.2={memory=\"disk\"}", "namespaces 1 and 2 are both kept in region.disk"),
        ("nvme.namespace.01={null_bytes=4096}", "`01` is another way to write 1"),
        ("nvme.namespace.1.uuid=0000", "`0000` is no name: write 32 hexadecimal digits"),
        ("nvme.namespace.1.eui64=\"00000000-00000000\"", "is no name: write 16 hexadecimal digits, not all 0"),
        ("nvme.namespace.1.protection=type4", "`type4` is not a choice for `protection`"),
        ("nvme.namespace.2={null_bytes=4096,protection=\"type1\"}", "`null_bytes` keep nothing, so no `protection`"),
        ("nvme.reads_checked_by=cpu", "`cpu` is not a choice for `reads_checked_by`"),
        ("nvme.transfer_bytes_max=5000", "5000 is no power of two"),
        ("load.depth=0", "`depth` is 0, which is out of range"),
        ("load.block_bytes=1048576", "need 134225920 bytes"),
        ("load.read_share=2.0", "`read_share` is 2, which is out of range"),
    ];
    for (set, says) in cases {
        for command in ["run", "check"] {
            let shown = app().with([command, "config/nvme-target.toml", "--set", set]).run().exited(2);
            let said = unwrapped(&shown.stderr);
            assert!(said.contains(says), "{set}: {shown}");
        }
    }
}
