//! The command as a user runs it: its measurements, its output, and its refusals of wrong plans.

use insta::assert_snapshot;
use rustix::process::Signal;
use serde_json::{Value, json};
use verbline_tests::{
    Program, assert_fits, assert_report_holds, assert_within_memory_sum, counted, keys_listed, normalised, own_address,
    two_lcores, unwrapped,
};

fn app() -> Program {
    Program::new(env!("CARGO_BIN_EXE_pingpong"))
}

/// The shipped plan, run without an end. `None` where two lcores can't run.
fn shipped(sets: &[&str]) -> Option<Program> {
    let run = app().with(["run", "config/pingpong.toml"]).with(two_lcores(["ping", "pong"])?);
    // A busy machine may leave few turns for either side.
    let all = ["pingpong.warm_up=10"].iter().chain(sets);
    Some(run.with(all.flat_map(|set| ["--set", set])))
}

/// Whether a run is beyond its warm-up.
fn has_measured(report: &Value) -> bool {
    counted(report, "client", "answered") >= 100
}

#[test]
fn a_check_has_no_effects() {
    let shipped = ["config/pingpong", "config/pingpong-by-address", "config/pingpong-two-paths"];
    for plan in shipped.into_iter().chain(["tests/plans/ping", "tests/plans/pong"]) {
        app().with(["check", &format!("{plan}.toml")]).run_without_effects().exited(0);
    }
}

/// A plan whose ports have one connection each waits for its peer before it runs, and says that
/// `--for` does not count that.
#[test]
fn a_server_without_a_client_says_that_its_time_has_not_begun() {
    let address = own_address(1);
    let sets = [
        format!("device.nic0.address={address}"),
        format!("port.pong.listen={address}:4420"),
        "port.pong.connect_timeout=3s".to_owned(),
    ];
    let run = app().with(["run", "config/two-processes/pingpong-server.toml", "--for", "1s"]);
    let shown = run.with(sets.iter().flat_map(|set| ["--set", set.as_str()])).run().exited(1);
    let said = unwrapped(&shown.stderr);
    assert!(said.contains("the 1s of --for begin once all ports are connected"), "{shown}");
}

#[test]
fn two_lcores_measure_half_a_round_trip_in_every_mode() {
    for idle in ["poll", "event", "adaptive"] {
        let sets = [format!("lcore.ping.idle={idle}"), format!("lcore.pong.idle={idle}")];
        let Some(run) = shipped(&sets.each_ref().map(String::as_str)) else { return };
        let shown = run.with(["--json"]).run_until(has_measured).exited(0);
        let json = shown.json();
        assert_report_holds(&json);
        let number = |key: &str| json["half_round_trip_ns"][key].as_u64().unwrap_or_else(|| panic!("{key}: {shown}"));
        let [min, p50, p99, p999, max] = ["min", "p50", "p99", "p999", "max"].map(number);
        assert!(0 < min && min <= p50 && p50 <= p99 && p99 <= p999 && p999 <= max, "{shown}");
        assert!(json["exchanges"].as_u64() > Some(0), "{shown}");
        assert!(json["messages_per_second"].as_f64() > Some(0.0), "{shown}");
        assert_eq!(json["size_bytes"], 64, "{shown}");
        assert_eq!((&json["packets"]["held"], &json["drained"]), (&0.into(), &true.into()), "{shown}");
        assert_eq!(json["drops"], json!([]), "{shown}");
        for lcore in json["lcores"].as_array().expect("a list") {
            assert_eq!((&lcore["policy"], &lcore["rescues"]), (&idle.into(), &0.into()), "{shown}");
        }
    }
}

#[test]
fn two_lcores_have_another_path_to_go_by() {
    let Some(placed) = two_lcores(["ping", "pong"]) else { return };
    let run = app().with(["run", "config/pingpong-two-paths.toml", "--json"]).with(placed);
    let shown = run.with(["--set", "pingpong.warm_up=10"]).run_until(has_measured).exited(0);
    let json = shown.json();
    assert_report_holds(&json);
    assert!(json["exchanges"].as_u64() > Some(0), "{shown}");
    // A device without it is refused before anything is connected.
    let sets = ["--set", "device.nic0={ provider = \"soft\", address = \"127.0.0.1\" }"];
    let listens = ["--set", "port.pong.listen=127.0.0.1:4421", "--set", "port.ping.connect=127.0.0.1:4421"];
    let Some(placed) = two_lcores(["ping", "pong"]) else { return };
    let run = app().with(["run", "config/pingpong-two-paths.toml", "--for", "500ms"]).with(placed);
    let said = unwrapped(&run.with(sets).with(listens).run().exited(1).stderr);
    assert!(said.contains("soft0 has no alternate paths") && said.contains("IBV_DEVICE_AUTO_PATH_MIG"), "{said}");
}

#[test]
fn two_lcores_keep_a_window_in_flight() {
    // A message that finds no room at the echo is lost, and the window shrinks by it.
    let deep = ["port.ping.tx_depth_wr=128", "port.pong.tx_depth_wr=128"];
    let Some(run) = shipped(&[&deep[..], &["pingpong.window=48", "pingpong.size_bytes=1500"]].concat()) else { return };
    let json = run.with(["--json"]).run_until(has_measured).exited(0).json();
    assert_report_holds(&json);
    assert_eq!(json["size_bytes"], 1500, "{json:#}");
    let ping = &json["ports"][0];
    assert!(ping["tx_packets"].as_u64() > ping["tx_posts"].as_u64(), "posts are gathered: {ping:#}");
    assert_eq!((&json["packets"]["held"], &json["drops"]), (&0.into(), &json!([])), "{json:#}");
}

/// A window for which the queues have no room is warned of: its messages would be lost one after
/// another, until none is under way.
#[test]
fn a_window_that_finds_no_room_is_warned_of() {
    let warnings = |window: u32| {
        let set = format!("pingpong.window={window}");
        unwrapped(&app().with(["check", "config/pingpong.toml", "--set", &set]).run().exited(0).stderr)
    };
    let said = warnings(64);
    for port in ["port.ping", "port.pong"] {
        assert!(said.contains(&format!("{port} has room for 33 sends to one peer, which may ask for 64")), "{said}");
    }
    assert!(said.contains("write `tx_depth_wr = 95` or more"), "{said}");
    assert!(!warnings(33).contains("too-few-sends"));
}

#[test]
fn two_lcores_report() {
    let Some(run) = shipped(&[]) else { return };
    let shown = run.run_until(has_measured).exited(0);
    assert_fits(&shown.stdout);
    assert_snapshot!("report", normalised(&shown.stdout));
}

/// The plan is read again when the user asks: ports take attributes that a connected queue pair can
/// change, and the run goes on.
#[test]
fn two_lcores_take_other_attributes_while_they_run() {
    let Some(placed) = two_lcores(["ping", "pong"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("plan.toml");
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../config/pingpong.toml")).unwrap();
    std::fs::write(&plan, &text).unwrap();
    let run = app().with(["run", &plan.display().to_string(), "--json"]).with(placed);
    let run = run.with(["--set", "pingpong.warm_up=10"]).listening_in(folder.path());
    let told = folder.path().join("told");
    let started = run.start_telling(std::fs::File::create(&told).unwrap());
    run.await_live(None, "exchanges", has_measured);
    let told = || unwrapped(&std::fs::read_to_string(&told).unwrap());
    let steps = [
        (
            "timeout = 17\nmin_rnr_timer = 9",
            &["port.ping: timeout = 17 (was left out)", "port.ping: min_rnr_timer = 9 (was 1)"][..],
        ),
        (
            "timeout = 17\nmin_rnr_timer = 9\npath_mtu = 512",
            &[
                "error[not-while-running]: `path_mtu` of port.ping can't change now: it runs with none in its plan",
                "not taken: the run goes on as before",
            ],
        ),
        ("timeout = 18", &["port.ping: timeout = 18 (was 17)", "port.ping: min_rnr_timer = 1 (was 9)"]),
    ];
    for (keys, expected) in steps {
        let text = text.replace("peer = \"port.pong\"", &format!("peer = \"port.pong\"\n{keys}"));
        std::fs::write(&plan, text).unwrap();
        started.signal(Signal::USR1);
        started.wait_for(&format!("{expected:?}"), || expected.iter().all(|line| told().contains(line)));
    }
    let shown = started.end_whole(0);
    assert_eq!(shown.json()["drops"], json!([]), "{shown}");
}

/// A signal to read the plan again does not end a run that is reading it for the first time.
#[test]
fn a_plan_that_is_asked_for_again_while_it_is_read_is_read_once_more() {
    // The signal comes once the program has a handler; the plan comes after it.
    const SCRIPT: &str = "exec 3> >(exec \"$0\" \"$@\"); \
                          until grep -qs pingpong /proc/$!/comm && \
                          grep -qs 'SigCgt:.*[2367abef]..$' /proc/$!/status; do sleep 0.05; done; \
                          kill -USR1 $!; sleep 0.3; echo 'name = 1' >&3; exec 3>&-; wait $!";
    let run = app().with(["run", "-"]);
    let shown = run.run_as(&mut run.behind(["bash", "-c", SCRIPT])).exited(2);
    assert!(shown.stderr.contains("wrong-type"), "{shown}");
}

/// Standard input has a plan only once: the run says so, and goes on.
#[test]
fn two_lcores_whose_plan_came_by_standard_input_keep_it() {
    const SCRIPT: &str = "\"$0\" \"$@\" < config/pingpong.toml & \
                          until grep -qs vl-ping /proc/$!/task/*/comm; do sleep 0.05; done; kill -USR1 $!; wait $!";
    let Some(placed) = two_lcores(["ping", "pong"]) else { return };
    let run = app().with(["run", "-", "--for", "3s", "--json", "--set", "pingpong.warm_up=10"]).with(placed);
    let shown = run.run_as(&mut run.behind(["sh", "-c", SCRIPT])).exited(0);
    let said = unwrapped(&shown.stderr);
    assert!(said.contains("the plan came by standard input, which has it once"), "{shown}");
    assert!(!said.contains("error"), "{shown}");
}

#[test]
fn two_lcores_that_measure_nothing_say_so() {
    let Some(run) = shipped(&["pingpong.warm_up=1000000000000"]) else { return };
    let shown = run.with(["--for", "500ms"]).run().exited(1);
    let said = unwrapped(&shown.stdout);
    assert!(said.ends_with("FAILED no exchange was measured: run longer, or lower pingpong.warm_up"), "{shown}");
}

#[test]
fn two_lcores_settings_that_cannot_be_are_refused_at_their_place() {
    let cases = [
        ("pingpong.size_bytes=7", "from 8 to 67108864"),
        ("pingpong.size_bytes=4097", "4097 bytes do not fit"),
        ("pingpong.window=0", "`window` is 0, which is out of range"),
        ("pingpong.windows=3", "did you mean `window`?"),
    ];
    for (set, says) in cases {
        for command in ["run", "check"] {
            let shown = app().with([command, "config/pingpong.toml", "--set", set]).run().exited(2);
            let said = unwrapped(&shown.stderr);
            assert!(said.contains(says) && said.contains(&format!("--set {set}")), "{shown}");
            assert_eq!(shown.stdout, "", "{shown}");
            assert_fits(&shown.stderr);
        }
    }
}

#[test]
fn every_number_of_the_plan_has_bounds() {
    let numbers = [
        ("size_bytes", 8, 4_096),
        ("window", 1, 1 << 20),
        ("warm_up", 0, 1_000_000_000_000_i64),
        ("resend_after_ms", 1, 3_600_000),
    ];
    let check = |set: &str| app().with(["check", "config/pingpong.toml", "--set", set]).run();
    for (key, least, most) in numbers {
        for value in [least, most] {
            check(&format!("pingpong.{key}={value}")).exited(0);
        }
        for value in [least - 1, most + 1, i64::MIN, i64::MAX] {
            let set = format!("pingpong.{key}={value}");
            let shown = check(&set).exited(2);
            assert!(shown.stderr.contains(&format!("--set {set}")) && shown.stderr.contains("1 error"), "{shown}");
        }
    }
    let shown = check("pingpong.zyx=1").exited(2);
    assert_eq!(keys_listed(&shown.stderr), numbers.map(|(key, ..)| key), "each key is in the table: {shown}");
}

#[test]
fn two_lcores_stay_within_the_sum_of_memory() {
    for plan in ["pingpong", "pingpong-by-address", "pingpong-two-paths"] {
        let Some(placed) = two_lcores(["ping", "pong"]) else { return };
        let run = app().with(["run", &format!("config/{plan}.toml")]).with(placed);
        assert_within_memory_sum(&run.with(["--set", "pingpong.warm_up=10"]), has_measured);
    }
}

#[test]
fn sums_of_the_shipped_plan() {
    let shown = app().with(["check", "--explain", "config/pingpong.toml"]).run().exited(0);
    assert_fits(&shown.stdout);
    // The sum of memory depends on the machine.
    let of_the_plan = |part: &&str| ["config/", "pool.", "lcore."].iter().any(|start| part.starts_with(start));
    let sums: Vec<_> = shown.stdout.split("\n\n").filter(of_the_plan).collect();
    assert_snapshot!("sums", sums.join("\n\n"));
}
