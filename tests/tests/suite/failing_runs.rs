//! Runs that end badly: each prints the reason last, where a terminal shows it, and exits with 1;
//! none hangs.

use std::fs::OpenOptions;
use std::time::{Duration, Instant};

use verbline_tests::{Finished, Program, assert_fits, assert_report_holds, unwrapped};

/// `rig run` of its plan, with these keys set.
fn rig(sets: &[&str]) -> Program {
    let program = Program::new(env!("CARGO_BIN_EXE_rig")).with(["run", "tests/plans/rig.toml", "--for", "1h"]);
    program.with(sets.iter().flat_map(|set| ["--set", set]))
}

/// Insists that standard output ends with this failure alone, and fits.
#[track_caller]
fn ends_with(shown: &Finished, failure: &str) {
    let (_, end) = shown.stdout.rsplit_once("\n\n").unwrap_or_else(|| panic!("{shown}"));
    assert_eq!(unwrapped(end), format!("FAILED {failure}"), "{shown}");
    assert!(shown.stdout.lines().next().is_some_and(|line| line.ends_with(", FAILED")), "{shown}");
    assert_fits(&shown.stdout);
}

#[test]
fn a_run_whose_sources_are_done_ends_before_its_time() {
    let shown = rig(&[]).run().exited(0);
    assert_eq!(shown.stderr, "", "{shown}");
    assert_fits(&shown.stdout);
    let json = rig(&[]).with(["--json"]).run().exited(0).json();
    assert_eq!(json["stages"][1]["counters"][0]["value"], 1000, "{json:#}");
    assert_eq!((json["packets"]["held"].as_u64(), json["drained"].as_bool()), (Some(0), Some(true)), "{json:#}");
}

/// The app's own thread works with the command line's live line, `--set` and signals.
#[test]
fn an_app_feeds_its_run_and_ends_it_before_its_time() {
    let endless = "stage.numbers.params={}";
    let injector = "injector.press={ to = \"stage.sink\", pool = \"packets\", depth = 64 }";
    let shown = rig(&[endless, injector, "press.messages=64"]).with(["--json"]).run().exited(0);
    let json = shown.json();
    assert_report_holds(&json);
    assert_eq!(json["injectors"][0]["pushed"], 64, "{json:#}");
    assert!(json["stages"][1]["counters"][0]["value"].as_u64() >= Some(64), "{json:#}");

    // The thread's failure ends the run in order, with its message.
    let shown = rig(&[endless, "press.messages=1"]).run();
    assert_eq!(shown.status.code(), Some(1), "{shown}");
    ends_with(
        &shown,
        "the plan has no injector `press`; it has none: add a table [injector.NAME] with `to`, `pool` and `depth`",
    );
}

#[test]
fn a_panic_of_a_stage_is_told_with_the_stage() {
    let panics = rig(&["stage.sink.params.habit=panic", "stage.sink.params.after=100"]);
    let failure = "lcore main, stage sink panicked: the sink is full to the brim";
    let shown = panics.run();
    assert_eq!(shown.status.code(), Some(1), "{shown}");
    ends_with(&shown, failure);

    let shown = panics.with(["--json"]).run();
    assert_eq!(shown.status.code(), Some(1), "{shown}");
    let json = shown.json();
    assert_report_holds(&json);
    assert_eq!(json["failures"][0]["message"], "the sink is full to the brim", "{json:#}");
    assert_eq!((&json["failures"][0]["stage"], &json["packets"]["held"]), (&"sink".into(), &0.into()), "{json:#}");
    assert!(shown.stderr.ends_with(&format!("FAILED   {failure}\n")), "{shown}");
}

#[test]
fn a_run_whose_port_is_down_for_good_fails_and_says_so_with_the_time() {
    let plan = std::fs::read_to_string(verbline_tests::root().join("tests/plans/rig.toml")).unwrap();
    // Packets arrive that are longer than the buffers there.
    let plan =
        plan.replace("[lcore.main]", "[pool.short]\ndevice = \"nic\"\npackets = 1024\ndata_bytes = 4\n\n[lcore.main]");
    let plan = plan.replace("pool = \"packets\"\ntransport", "pool = \"short\"\ntransport");
    let path = concat!(env!("CARGO_TARGET_TMPDIR"), "/short-buffers.toml");
    std::fs::write(path, plan).unwrap();
    let program = Program::new(env!("CARGO_BIN_EXE_rig")).with(["run", path, "--for", "1h"]);
    let shown = program.run().exited(1);
    let failed = "FAILED lcore main failed: port.in is down for good (IBV_WC_LOC_LEN_ERR)";
    assert!(unwrapped(&shown.stdout).contains(failed), "{shown}");
    assert_fits(&shown.stdout);
    let logged =
        shown.stderr.lines().find(|line| line.contains("the port is down")).unwrap_or_else(|| panic!("{shown}"));
    let (day, rest) = logged.split_once('T').unwrap_or_else(|| panic!("{shown}"));
    assert!(
        day.len() == "2026-01-31".len() && rest.contains("Z ERROR "),
        "it has its time, as RFC 3339 writes it: {shown}"
    );
    let json = program.with(["--json"]).run().exited(1).json();
    assert_eq!(json["failures"][0]["message"], "port.in is down for good (IBV_WC_LOC_LEN_ERR)", "{json:#}");
}

#[test]
fn packets_that_a_stage_lost_are_counted() {
    let shown = rig(&["stage.sink.params.habit=leak", "stage.sink.params.after=990"]).run().exited(1);
    assert!(shown.stdout.contains("10 held\n         10 held by a stage or the app\n"), "{shown}");
    ends_with(&shown, "10 packets were not given back");
    let leaks = rig(&["stage.sink.params.habit=leak", "stage.sink.params.after=990"]).with(["--json"]);
    assert_report_holds(&leaks.run().exited(1).json());
}

#[test]
fn a_run_that_does_not_come_to_rest_ends_with_its_drain_budget() {
    let sets = ["stage.sink.params.habit=bounce", "stage.sink.out.back=port.out", "lcore.main.drain=50ms"];
    let shown = rig(&sets).run().exited(1);
    ends_with(&shown, "the run ended with packets still on their way; raise `drain` of the lcores");
}

#[test]
fn a_run_with_a_stage_that_never_comes_back_ends_and_names_it() {
    let sets = ["stage.sink.params.habit=hang", "stage.sink.params.after=10", "lcore.main.drain=50ms"];
    let began = Instant::now();
    let hangs = Program::new(env!("CARGO_BIN_EXE_rig")).with(["run", "tests/plans/rig.toml", "--for", "1s"]);
    let shown = hangs.with(sets.iter().flat_map(|set| ["--set", set])).run().exited(1);
    assert!(began.elapsed() < Duration::from_secs(40), "a second, the drain, ten seconds: {shown}");
    let (_, end) = shown.stdout.rsplit_once("\n\n").unwrap_or_else(|| panic!("{shown}"));
    let said = unwrapped(end);
    let (head, tail) =
        ("FAILED lcore main, stage sink failed: stage.sink has been in `process` for ", "s, and did not");
    let since = said.strip_prefix(head).and_then(|rest| rest.split_once(tail)).unwrap_or_else(|| panic!("{shown}"));
    assert!(since.0.parse::<f64>().is_ok_and(|since| since >= 10.0), "{shown}");
    assert_eq!(since.1.trim(), "come back when the run was stopped", "{shown}");
}

/// A device that no machine has.
const ABSENT: [&str; 2] = ["device.nic.provider=kernel", "device.nic.name=nope"];

#[test]
fn what_cannot_start_says_where_the_plan_asks_for_it() {
    let cases = [
        (&ABSENT[..], "device.nic: no kernel device is named \"nope\"; there are"),
        (&["device.nic.port=7"], "device.nic"),
        (&["device.nic.gid_index=200"], "device.nic"),
        (&["stage.sink.params.habit=refuse"], "stage.sink (habit): the plumber is on holiday; ask again in autumn"),
    ];
    for (sets, says) in cases {
        let shown = rig(sets).run().exited(1);
        let said = unwrapped(&shown.stderr);
        assert!(said.starts_with("error: tests/plans/rig.toml:") && said.contains(says), "{shown}");
        assert_eq!(shown.stdout, "", "{shown}");
        assert_fits(&shown.stderr);
    }
}

#[test]
fn what_a_stage_refuses_of_the_plan_is_the_plans_fault() {
    let cases = [
        ("stage.sink.params.after=2000000", "no sink takes more than a million"),
        ("stage.sink.params.after=-1", "`-1` does not fit"),
        ("stage.sink.params.until=5", "`until`"),
        ("stage.sink.params.habit=biting", "biting"),
    ];
    for (set, says) in cases {
        let shown = rig(&[set]).run().exited(2);
        assert!(unwrapped(&shown.stderr).contains(says) && shown.stderr.contains("--set stage.sink"), "{shown}");
        assert_fits(&shown.stderr);
    }
}

#[test]
fn a_check_makes_every_stage_and_opens_no_device() {
    let check = |sets: &[&str]| {
        let program = Program::new(env!("CARGO_BIN_EXE_rig")).with(["check", "tests/plans/rig.toml"]);
        program.with(sets.iter().flat_map(|set| ["--set", set])).run()
    };
    // Only a run can find out that there is no such device.
    let shown = check(&ABSENT).exited(0);
    assert_eq!(shown.stdout, "tests/plans/rig.toml: valid; 1 lcore, 2 stages, 2 ports\n", "{shown}");

    let faults = ["stage.sink.params.habit=refuse", "stage.numbers.params.counts=5"];
    let shown = check(&faults).exited(2);
    assert_eq!(shown.stdout, "", "{shown}");
    assert_fits(&shown.stderr);
    insta::assert_snapshot!(shown.stderr);
    // Faults of the plan itself stand alone: stages are asked only about a sound plan.
    let shown = check(&[&faults[..], &["lcore.main.cpu=9999"]].concat()).exited(2);
    assert!(shown.stderr.contains("cpu-not-allowed") && !shown.stderr.contains("plumber"), "{shown}");
}

#[test]
fn a_set_that_cannot_be_is_shown_as_it_was_typed() {
    let cases =
        ["lcore.main.cpus=0", "lcore.main.cpu=zero", "lcore.main.cpu=9999", "lcore", "=3", "pool.packets.packets=10"];
    for set in cases {
        let shown = rig(&[set]).run().exited(2);
        assert!(shown.stderr.contains(&format!("--set {set}")), "{shown}");
        assert!(shown.stderr.contains("= help: ") || shown.stderr.contains("expected"), "it says what to do: {shown}");
        assert_eq!(shown.stdout, "", "{shown}");
        assert_fits(&shown.stderr);
    }
}

#[test]
fn a_command_line_that_cannot_be_exits_with_2() {
    let program = Program::new(env!("CARGO_BIN_EXE_rig"));
    for wrong in [&["walk"][..], &["run"], &["run", "x.toml", "--for", "soon"], &["check", "x.toml", "--fix"], &[]] {
        let shown = program.with(wrong).run().exited(2);
        assert!(shown.stderr.contains("--help") || shown.stderr.contains("Usage: "), "{shown}");
        assert_eq!(shown.stdout, "", "{shown}");
    }
}

#[test]
fn a_log_level_that_cannot_be_is_said_and_the_usual_one_is_kept() {
    let check = Program::new(env!("CARGO_BIN_EXE_rig")).with(["check", "tests/plans/rig.toml"]);
    for (said, is_understood) in [("verbline=loud=er", false), ("debug", true), ("", true)] {
        let shown = check.run_as(&mut check.behind(["env", &format!("VERBLINE_LOG={said}")])).exited(0);
        let warning = format!("warning: VERBLINE_LOG={said} is ignored: ");
        assert_eq!(shown.stderr.starts_with(&warning), !is_understood, "{shown}");
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    for program in [rig(&[]), Program::new(env!("CARGO_BIN_EXE_rig")).with(["--help"])] {
        let mut started = program.start();
        drop(started.child().stdout.take());
        let shown = started.finish().exited(0);
        assert_eq!(shown.stderr, "", "{shown}");
    }
}

#[test]
fn a_document_that_nobody_reads_to_its_end_is_a_failure() {
    let check = Program::new(env!("CARGO_BIN_EXE_rig")).with(["check", "tests/plans/rig.toml", "--json"]);
    let devices = Program::new(env!("CARGO_BIN_EXE_rig")).with(["devices", "--json"]);
    for program in [rig(&[]).with(["--json"]), check, devices] {
        let mut started = program.start();
        drop(started.child().stdout.take());
        let shown = started.finish().exited(1);
        assert!(shown.stderr.contains("error: standard output cannot be written: Broken pipe"), "{shown}");
    }
}

#[test]
fn what_cannot_be_written_is_a_failure() {
    let bare = Program::new(env!("CARGO_BIN_EXE_rig"));
    let others = [&["--help"][..], &["--version"], &["help", "run"], &["keys"], &["graph", "tests/plans/rig.toml"]];
    for program in others.map(|arguments| bare.with(arguments)).into_iter().chain([rig(&[])]) {
        let full = OpenOptions::new().write(true).open("/dev/full").expect("full(4)");
        let shown = program.run_into(full).exited(1);
        let why = "error: standard output cannot be written: No space left on device (os error 28)\n";
        assert!(shown.stderr.ends_with(why), "{shown}");
    }
}

/// Regression: what a full disk had no room for was missing from the log, and nothing said so.
#[test]
fn a_log_that_cannot_be_written_is_told_by_the_report() {
    let program = rig(&[]).with_env("VERBLINE_LOG", "debug");
    for json in [false, true] {
        let program = if json { program.with(["--json"]) } else { program.clone() };
        let shown = program.run_as(&mut program.behind(["sh", "-c", "exec \"$@\" 2> /dev/full", "sh"])).exited(0);
        let why = "texts were left out, as standard error could not be written: No space left on device";
        let is_told = match json {
            false => unwrapped(&shown.stdout).contains(why),
            true => shown.json()["log_left_out"].as_u64().is_some_and(|texts| texts > 0),
        };
        assert!(is_told, "{shown}");
    }
}

#[test]
fn a_file_that_may_grow_no_more_ends_no_program() {
    let path = concat!(env!("CARGO_TARGET_TMPDIR"), "/limited.txt");
    let program = rig(&[]);
    let mut limited = program.behind(["sh", "-c", "ulimit -f 1; exec \"$@\" > \"$OUT\"", "sh"]);
    let shown = program.run_as(limited.env("OUT", path)).exited(1);
    assert!(shown.stderr.contains("error: standard output cannot be written: File too large"), "{shown}");
}

/// Without an output, hours of results would be lost: the run does not begin.
#[test]
fn a_standard_output_that_is_closed_is_told_at_once() {
    let into = |redirection: &str, set: &str| {
        let shell = format!("exec \"$@\" {redirection}");
        let run = rig(&[set]).with(["--json"]);
        run.run_as(&mut run.behind(["sh", "-c", &shell, "sh"]))
    };
    // It would last an hour.
    let shown = into(">&-", "stage.numbers.params={}").exited(1);
    assert!(shown.stderr.starts_with("error: standard output is closed (`>&-`)"), "{shown}");
    // The user chose these, also in the way in which the standard library opens /dev/null.
    for chosen in [">/dev/null", "1<>/dev/null", ">&- >/dev/null"] {
        let shown = into(chosen, "stage.sink.params.after=100").exited(0);
        assert_eq!(shown.stderr, "", "{chosen}: {shown}");
    }
    let help = Program::new(env!("CARGO_BIN_EXE_rig")).with(["--help"]);
    let shown = help.run_as(&mut help.behind(["sh", "-c", "exec \"$@\" >&-", "sh"])).exited(1);
    assert!(shown.stderr.contains("standard output is closed"), "{shown}");
}
