//! The command as a user runs it: a server, a client, and the client's findings.

use std::time::Duration;

use serde_json::{Value, json};
use verbline_tests::{
    Cgroup, Finished, Program, assert_fits, assert_report_holds, assert_within_memory_sum, counted, skipped,
    two_lcores, unwrapped,
};

fn app() -> Program {
    Program::new(env!("CARGO_BIN_EXE_kv"))
}

/// The shipped plan with few keys, run without an end. `None` where two lcores can't run.
fn shipped(sets: &[&str]) -> Option<Program> {
    let run = app().with(["run", "config/kv.toml"]).with(two_lcores(["server", "load"])?);
    let all = ["kv.keys=500"].iter().chain(sets);
    Some(run.with(all.flat_map(|set| ["--set", set])))
}

/// Whether a run has done this many operations, and has lasted at least this long.
fn has_done(report: &Value, operations: u64, least: Duration) -> bool {
    let lasted = Duration::from_nanos(report["elapsed_ns"].as_u64().unwrap_or(0));
    counted(report, "client", "operations") >= operations && lasted >= least
}

/// Whether a run has put every key, and has measured.
fn has_measured(report: &Value) -> bool {
    has_done(report, 2_000, Duration::ZERO)
}

fn count(shown: &Finished, key: &str) -> u64 {
    shown.json()["counts"][key].as_u64().unwrap_or_else(|| panic!("{key}: {shown}"))
}

#[test]
fn a_check_has_no_effects() {
    for plan in ["config/kv.toml", "tests/plans/kv-client.toml", "tests/plans/kv-server.toml"] {
        app().with(["check", plan]).run_without_effects().exited(0);
    }
}

/// The bytes of a stage's term in the plan's sum of memory.
#[track_caller]
fn memory_term(sets: &[&str], stage: &str, what: &str) -> u64 {
    let check = app().with(["check", "config/kv.toml", "--explain"]).with(sets.iter().flat_map(|set| ["--set", set]));
    let shown = check.run().exited(0);
    let line = shown.stdout.lines().find(|line| line.contains(stage) && line.contains(what));
    let line = line.unwrap_or_else(|| panic!("no {what}: {shown}"));
    let number = line.split_whitespace().next().map(|number| number.replace(',', ""));
    number.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no number in {line}"))
}

/// The client's memory for its keys and for operations in flight is in the plan's sum.
#[test]
fn a_clients_memory_is_in_the_sums() {
    assert_eq!(memory_term(&["kv.keys=1048576"], "stage.client", "keys and their PUTs"), 12 << 20);
    assert!(memory_term(&[], "stage.client", "operations under way") > 256 * 64);
}

/// The shard's memory for its table's slots is in the plan's sum, by the length of the table's
/// region.
#[test]
fn a_shards_memory_is_in_the_sums() {
    // 104 bytes per slot make 2^14 buckets of 4 slots in 8 MiB.
    assert_eq!(memory_term(&[], "stage.shard0", "hash and lengths"), 24 * (4 << 14) + 16);
    let long = ["region.table0.bytes=33554432"];
    assert_eq!(memory_term(&long, "stage.shard0", "hash and lengths"), 24 * (4 << 16) + 16);
}

/// Descriptors for 256 connections: too few are reported before the start, and raised where the
/// hard limit allows it.
#[test]
fn two_lcores_have_the_descriptors_that_they_need() {
    let Some(run) = shipped(&[]) else { return };
    let shown = run.run_as(&mut run.behind(["prlimit", "--nofile=1024"])).exited(2);
    let said = unwrapped(&shown.stderr);
    assert!(said.contains("error[too-few-descriptors]") && said.contains("this process may open 1024"), "{shown}");
    let are_open = |report: &Value| {
        let opened = |port: usize| report["ports"][port]["connections"]["opened"].as_u64();
        opened(0) >= Some(256) && opened(1) >= Some(256)
    };
    let shown = run.with(["--json"]).run_until_behind(["prlimit", "--nofile=64:1100"], are_open).exited(0);
    assert!(are_open(&shown.json()), "{shown}");
}

/// Regression: the sum left out the program, its queues and its 512 queue pairs.
#[test]
fn two_lcores_stay_within_the_sum_of_memory() {
    let Some(run) = shipped(&[]) else { return };
    let are_open = |report: &Value| report["ports"][0]["connections"]["opened"].as_u64() >= Some(256);
    assert_within_memory_sum(&run, |report| are_open(report) && has_measured(report));
}

/// Regression: it passed the check, and the kernel killed it without a word.
#[test]
fn two_lcores_in_a_cgroup_are_refused_or_run_and_never_killed() {
    let Some(run) = shipped(&["pool.packets.pages=4KiB", "region.table0.pages=4KiB", "region.table1.pages=4KiB"])
    else {
        return;
    };
    let are_open = |report: &Value| report["ports"][0]["connections"]["opened"].as_u64() >= Some(256);
    let mut codes = Vec::new();
    for megabytes in (32..=72).step_by(8) {
        let Some(group) = Cgroup::of_memory(megabytes << 20) else {
            skipped("no cgroup with the memory controller can be made here (root, and a writable /sys/fs/cgroup)");
            return;
        };
        let shown = run.run_until_behind(group.entering(), |report| are_open(report) && has_measured(report));
        codes.push(shown.status.code());
        match shown.status.code() {
            Some(2) => assert!(shown.stderr.contains("error[too-much-memory]"), "{megabytes} MiB: {shown}"),
            code => assert_eq!(code, Some(0), "{megabytes} MiB: {shown}"),
        }
    }
    assert!(codes.starts_with(&[Some(2)]) && codes.ends_with(&[Some(0)]), "some are refused, and some run: {codes:?}");
}

/// Every value that comes back was put, and is new enough, while connections come and go.
#[test]
fn two_lcores_serve_and_check_every_value() {
    let Some(run) = shipped(&["kv.close_every_ms=5"]) else { return };
    let long_enough = |report: &Value| has_done(report, 5_000, Duration::from_millis(700));
    let shown = run.with(["--json"]).run_until(long_enough).exited(0);
    let json = shown.json();
    assert_report_holds(&json);
    assert_eq!((count(&shown, "stale"), count(&shown, "corrupt"), count(&shown, "malformed")), (0, 0, 0), "{shown}");
    assert!(count(&shown, "verified") > 0, "{shown}");
    for way in ["get", "read", "put"] {
        assert!(json["latency_ns"][way]["operations"].as_u64() > Some(0), "{way}: {shown}");
    }
    assert!(json["operations_per_second"].as_f64() > Some(0.0), "{shown}");
    assert_drops(&shown);
    assert_eq!((&json["packets"]["held"], &json["drained"]), (&0.into(), &true.into()), "{shown}");
}

/// Asserts that a run in which connections come and go drops only replies to connections that the
/// client has closed. Each is of an operation that was cut off, or of one that timed out before its
/// connection closed and whose reply never came (a reply that came is unasked).
#[track_caller]
fn assert_drops(shown: &Finished) {
    let json = shown.json();
    let drops = json["drops"].as_array().into_iter().flatten();
    let dropped = drops.map(|drop| {
        let (place, reason) = (drop["place"].as_str(), drop["reason"].as_str());
        assert_eq!(place, Some("port.server"), "the client sends to nobody who is gone: {drop}");
        assert!(matches!(reason, Some("no_connection" | "send_error")), "{drop}");
        drop["packets"].as_u64().expect("a count")
    });
    let dropped: u64 = dropped.sum();
    let missing = count(shown, "cut_off") + count(shown, "timed_out") - count(shown, "unasked");
    assert!(dropped <= missing, "{dropped} replies were dropped, {missing} are missing: {shown}");
}

/// The shipped plan with both ends and both shards on one lcore.
#[test]
fn a_server_and_its_client_share_an_lcore() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plan.toml");
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../config/kv.toml")).unwrap();
    let without = [
        "[lcore.load]\ncpu = \"allowed:1\"\nidle = \"poll\"\n",
        "[ring.shard1]\ndepth = 1024\nto = \"stage.shard1\"\n",
        "[ring.replies]\ndepth = 1024\nto = \"port.server\"\n",
    ];
    let text = without.iter().fold(text, |text, part| text.replacen(part, "", 1));
    let text = text.replace("lcore = \"load\"", "lcore = \"server\"").replace("ring.shard1", "stage.shard1");
    std::fs::write(&path, text.replace("ring.replies", "port.server")).unwrap();
    let run = app().with(["run", &path.display().to_string(), "--json"]);
    let run = run.with(["--set", "kv.keys=500", "--set", "kv.close_every_ms=2", "--set", "lcore.server.drain=60s"]);
    let shown = run.run_until(|report| has_done(report, 5_000, Duration::from_millis(1500))).exited(0);
    let json = shown.json();
    assert_report_holds(&json);
    assert_eq!((count(&shown, "stale"), count(&shown, "corrupt"), count(&shown, "malformed")), (0, 0, 0), "{shown}");
    assert!(count(&shown, "verified") > 0, "{shown}");
    assert_eq!((&json["packets"]["held"], &json["drained"]), (&0.into(), &true.into()), "{shown}");
    assert!(count(&shown, "cut_off") > 0, "connections were closed under operations: {shown}");
    assert_drops(&shown);
}

/// The PUTs that fill the table are not measured, nor is the last of them.
#[test]
fn two_lcores_fill_the_table_before_they_measure() {
    let Some(run) = shipped(&["kv.get_share=1.0"]) else { return };
    let shown = run.with(["--json"]).run_until(has_measured).exited(0);
    let json = shown.json();
    let [put, get] = ["put", "get"].map(|way| json["latency_ns"][way]["operations"].as_u64());
    assert!(put == Some(0) && get > Some(0), "{shown}");
}

/// GETs by message only, and with as many READs as allowed, find the same values.
#[test]
fn two_lcores_get_by_message_or_by_read() {
    for (share, reads) in [("0", false), ("1", true)] {
        let Some(run) = shipped(&[&format!("kv.read_share={share}"), "kv.get_share=1.0"]) else { return };
        let shown = run.with(["--json"]).run_until(has_measured).exited(0);
        let json = shown.json();
        assert_eq!(json["latency_ns"]["read"]["operations"].as_u64() > Some(0), reads, "{shown}");
        assert!(count(&shown, "verified") > 0, "{shown}");
        assert_eq!((count(&shown, "stale"), count(&shown, "corrupt")), (0, 0), "{shown}");
        assert_eq!(json["packets"]["held"], json!(0), "{shown}");
    }
}

/// A bucket too long for the client's packets is never read: its GETs are messages, and none keeps
/// other operations from beginning.
#[test]
fn two_lcores_get_by_message_where_no_packet_holds_a_bucket() {
    let longer = ["stage.shard0.params.value_bytes=300", "stage.shard1.params.value_bytes=300"];
    // Longer than an operation takes on a busy machine, and shorter than the drain.
    let patient = "kv.timeout_ms=20000";
    let sets = [&longer[..], &["kv.value_bytes=300", "kv.close_every_ms=0", "kv.read_share=1.0", patient]].concat();
    let Some(run) = shipped(&sets) else { return };
    let long_enough = |report: &Value| has_done(report, 5_000, Duration::from_millis(700));
    let shown = run.with(["--json"]).run_until(long_enough).exited(0);
    let read = &shown.json()["latency_ns"]["read"]["operations"];
    assert!(count(&shown, "fell_back") > 1_000 && read.as_u64().is_none_or(|read| read == 0), "{shown}");
    assert_eq!((count(&shown, "stale"), count(&shown, "corrupt"), count(&shown, "timed_out")), (0, 0, 0), "{shown}");
}

#[test]
fn two_lcores_report() {
    let Some(run) = shipped(&[]) else { return };
    let shown = run.run_until(has_measured).exited(0);
    assert_fits(&shown.stdout);
    assert!(shown.stdout.contains("operations") && shown.stdout.contains("p99.9"), "{shown}");
}

/// A client that ends before it has put every key measured nothing, and reports its answered
/// operations.
#[test]
fn two_lcores_that_measure_nothing_say_what_was_answered() {
    let Some(run) = shipped(&["kv.keys=10000000"]) else { return };
    let shown = run.run_until(|report| has_done(report, 1_000, Duration::ZERO)).exited(1);
    let said = unwrapped(&shown.stdout);
    let (_, said) = said.split_once("FAILED no operation was measured: the run was over when ").expect(&said);
    let (answered, why) = said.split_once(" were answered, ").expect(said);
    assert!(answered.parse::<u64>().is_ok_and(|answered| answered >= 1_000), "{shown}");
    assert!(why.ends_with("before every key had been put once; run longer, or lower kv.keys"), "{shown}");
}

/// The server has less room for replies than its clients may have requests in flight: the plan's
/// check warns of it once, wherever the shards are.
#[test]
fn replies_that_may_find_no_room_are_warned_of() {
    let crowded =
        ["--set", "kv.window=64", "--set", "stage.client.timers_max=16385", "--set", "port.server.tx_depth_wr=1"];
    let shown = app().with(["check", "config/kv.toml"]).with(crowded).run().exited(0);
    let said = unwrapped(&shown.stderr);
    assert_eq!(said.matches("warning[too-few-sends]").count(), 1, "{shown}");
    assert!(said.contains("port.server has room for 1 sends to one peer, which may ask for 64"), "{shown}");
    assert!(said.contains("help: write `tx_depth_wr = 64` or more"), "{shown}");
    let enough = ["--set", "port.server.tx_depth_wr=64", "--set", "port.server.tx_shared_wr=1024"];
    let shown = app().with(["check", "config/kv.toml"]).with(&crowded[..4]).with(enough).run().exited(0);
    assert!(!shown.stderr.contains("too-few-sends"), "{shown}");
}

/// Operations whose messages find no room: the text reports where they were dropped, and every
/// operation is accounted for.
#[test]
fn two_lcores_say_where_operations_vanish() {
    let Some(run) = shipped(&["kv.window=64", "stage.client.timers_max=16385", "port.server.tx_depth_wr=1"]) else {
        return;
    };
    let of_server = |report: &Value| -> u64 {
        let drops = report["drops"].as_array().into_iter().flatten();
        drops.filter(|drop| drop["place"] == "port.server").filter_map(|drop| drop["packets"].as_u64()).sum()
    };
    let has_dropped = |report: &Value| has_measured(report) && of_server(report) > 0;
    let shown = run.run_until(has_dropped).exited(0);
    assert_fits(&shown.stdout);
    assert!(shown.stdout.contains(" messages dropped at port.server: tx_full"), "{shown}");
    let shown = run.with(["--json"]).run_until(has_dropped).exited(0);
    let json = shown.json();
    assert_report_holds(&json);
    assert!(json["stages"].as_array().is_some_and(|stages| stages.iter().all(|stage| stage["timers_refused"] == 0)));
    // The operation of a dropped reply times out, or is in flight at the end.
    let (dropped, timed_out) = (of_server(&json), count(&shown, "timed_out"));
    assert!(dropped > 0 && timed_out <= dropped && dropped - timed_out <= 256 * 64, "{dropped} dropped: {shown}");
}

#[test]
fn two_lcores_settings_that_cannot_be_are_refused_at_their_place() {
    let cases = [
        ("kv.shards=0", "from 1 to 64"),
        ("kv.shards=3", "3 shards, and the output `shards` of stage.route leads to the 2 places of spread.shards"),
        ("kv.value_bytes=15", "`value_bytes` is 15, which is out of range"),
        ("kv.value_bytes=481", "packets of pool.packets hold 512 bytes, stage.client writes 513"),
        ("kv.get_share=1.5", "`get_share` is 1.5, which is out of range"),
        ("kv.windows=3", "did you mean `window`?"),
        ("stage.shard0.params.table=table1", "needs the region `table1`"),
        ("stage.shard0.params.value_bytes=1048577", "from 1 to 1048576"),
        ("stage.shard0.params.value_bytes=0", "from 1 to 1048576"),
        ("stage.shard0.params.key_bytes=4097", "from 1 to 4096"),
        ("region.table0.bytes=256", "keys of 16 bytes and values of 64 make no table in the 256 bytes"),
        // The stages' needs of the plan's other tables.
        ("kv.window=64", "stage.client can arm 16385 timers at once, and may arm 1025"),
        ("stage.client.timers_max=0", "write `timers_max = 257` or more"),
        ("port.clients.ops_depth_wr=0", "stage.client asks for RDMA READs over its output `send`"),
        ("region.table1.rights=[]", "region.table1 lacks \"remote-read\", which stage.shard1 needs"),
    ];
    for (set, says) in cases {
        for command in ["run", "check"] {
            let shown = app().with([command, "config/kv.toml", "--set", set]).run().exited(2);
            let said = unwrapped(&shown.stderr);
            assert!(said.contains(says), "{set}: {shown}");
        }
    }
}
