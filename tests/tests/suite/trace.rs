//! `trace` of a running plan: its packets' paths, why some are slow, and the file for Perfetto.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use verbline_tests::{assert_fits, unwrapped};

use crate::operate::{await_run, end, endless, look, received, rig, said};

fn traced(folder: &Path, words: &[&str]) -> Value {
    let done = look(folder, &[&["trace", "--json"][..], words].concat());
    assert!(done.status.success(), "{}", said(&done).1);
    serde_json::from_slice(&done.stdout).unwrap()
}

fn names(path: &Value) -> Vec<&str> {
    path.as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect()
}

#[test]
fn the_ways_of_packets_are_counted_and_shown() {
    let folder = tempfile::tempdir().unwrap();
    let run = endless(folder.path(), &[]).start();
    await_run(folder.path());
    let shown = look(folder.path(), &["trace", "rig", "--packets", "40"]);
    let (text, told) = said(&shown);
    assert!(shown.status.success(), "{told}");
    assert_fits(&text);
    assert!(told.starts_with("rig: tracing for 10s at most; Ctrl-C ends it\n"), "{told}");
    for part in [
        "  stage.numbers > port.out (posted)\n",
        "  port.in > stage.sink (ends there)\n",
        "stage.sink",
        "slow 1   took ",
    ] {
        assert!(text.contains(part), "no {part} in\n{text}");
    }
    let found = traced(folder.path(), &["--packets", "30", "--at", "port.in"]);
    let [way] = &found["paths"].as_array().unwrap()[..] else { panic!("{found:#}") };
    assert_eq!((names(&way["path"]), &way["ended"]), (vec!["port.in", "stage.sink"], &Value::from("ends there")));
    assert!(found["packets"] == 30 && found["first"].as_array().unwrap().len() == 30, "{found:#}");
    assert_eq!(found["lost_turns"]["main"], 0);

    let refused = look(folder.path(), &["trace", "--at", "stage.off"]);
    let told = unwrapped(&said(&refused).1);
    assert!(
        refused.status.code() == Some(1) && told.contains("has stage.numbers, stage.sink, port.out, port.in"),
        "{told}"
    );
    end(run);
}

/// If a run stops before the end of a trace, the packets traced so far are not lost.
#[test]
fn a_run_that_stands_still_keeps_nobody_from_what_came_before() {
    let folder = tempfile::tempdir().unwrap();
    let run = endless(folder.path(), &[]).start();
    await_run(folder.path());
    let told = folder.path().join("told");
    let program = rig(folder.path(), &["trace", "--for", "3s"]);
    let tracing = program.start_telling(fs::File::create(&told).unwrap());
    let told = || fs::read_to_string(&told).unwrap();
    tracing.wait_for("its trace to begin", || !told().is_empty());
    // Until packets have been traced.
    let before = received(folder.path());
    tracing.wait_for("packets", || received(folder.path()) > before + 100);
    run.signal(Signal::STOP);
    let shown = tracing.finish().exited(0);
    run.signal(Signal::CONT);
    assert!(told().contains("the run stands still: it does not end the trace"), "{}", told());
    assert!(shown.stdout.contains("  port.in > stage.sink (ends there)\n"), "{shown}");
    end(run);
}

/// Every tenth packet takes the sink three milliseconds, and the others wait.
#[test]
fn a_slow_stage_is_found_by_its_trace_alone() {
    let folder = tempfile::tempdir().unwrap();
    let run = endless(folder.path(), &["--set", "stage.sink.params={habit=\"dawdle\"}"]).start();
    await_run(folder.path());
    let found = traced(folder.path(), &["--at", "stage.sink", "--packets", "60", "--for", "60s", "--slowest", "20"]);
    let is_long = |step: &Value, key: &str| step["step"] == "stage.sink" && step[key].as_u64() >= Some(2_900_000);
    let steps = found["steps"].as_array().unwrap();
    assert!(steps.iter().any(|step| is_long(step, "max_ns")), "{steps:#?}");
    // A neighbour on the CPU makes others slow too.
    let mut slowest = found["slowest"].as_array().unwrap().iter();
    let has_long = |packet: &Value| packet["steps"].as_array().unwrap().iter().any(|step| is_long(step, "took_ns"));
    assert!(slowest.any(has_long), "{:#}", found["slowest"]);
    // Other programs may take the CPU, which makes turns longer still.
    let did = found["turns"].as_array().unwrap().iter().flat_map(|turn| turn["did"].as_array().unwrap());
    let is_sink = |did: &Value| did["did"] == "stage.sink" && did["ns"].as_u64().unwrap() >= 2_900_000;
    assert!(did.clone().any(is_sink), "{:#}", found["turns"]);
    let quick = traced(folder.path(), &["--at", "stage.sink", "--above", "2ms", "--packets", "10", "--for", "60s"]);
    let all = quick["first"].as_array().unwrap();
    assert!(all.len() >= 10 && all.iter().all(|packet| at_most(packet) >= 2_000_000), "{quick:#}");
    let (text, _) = said(&look(folder.path(), &["trace", "--at", "stage.sink", "--packets", "30"]));
    assert!(text.contains("in stage.sink"), "{text}");
    end(run);
}

#[test]
fn the_slowest_of_the_last_time_are_kept_and_shown_again_and_again() {
    let folder = tempfile::tempdir().unwrap();
    let run = endless(folder.path(), &["--set", "stage.sink.params={habit=\"dawdle\"}"]).start();
    await_run(folder.path());
    let words = ["trace", "--last", "1m", "--every", "50ms", "--for", "3s", "--at", "stage.sink", "--slowest", "2"];
    let shown = look(folder.path(), &words);
    let (text, told) = said(&shown);
    assert!(shown.status.success() && told.starts_with("rig: tracing for 3s at most; Ctrl-C ends it\n"), "{told}");
    assert_fits(&text);
    let times = text.lines().filter(|line| line.starts_with("rig: ")).count();
    assert!(times >= 2, "shown {times} times:\n{text}");
    let last = &text[text.rfind("rig: ").unwrap()..];
    assert!(last.contains("slow 1 ") && last.contains("slow 2 ") && !last.contains("slow 3 "), "{last}");
    for words in [&["trace", "--every", "1s"][..], &["trace", "--last", "1m", "--packets", "9"]] {
        assert_eq!(look(folder.path(), words).status.code(), Some(2), "{words:?}");
    }
    end(run);
}

/// The run keeps the slowest packets itself, as its plan says, and returns them at once.
#[test]
fn the_slowest_that_the_run_keeps_are_shown_at_once_and_in_its_report() {
    let folder = tempfile::tempdir().unwrap();
    let sets = ["stage.sink.params={habit=\"dawdle\"}", "trace={slowest=7,one_in=1}"];
    let words: Vec<&str> = sets.iter().flat_map(|set| ["--set", *set]).chain(["--json"]).collect();
    let mut run = endless(folder.path(), &words).start();
    await_run(folder.path());
    let from = Instant::now();
    let kept = loop {
        let kept = traced(folder.path(), &["--kept"]);
        let mut slowest = kept["slowest"].as_array().unwrap().iter();
        if slowest.len() == 7 && slowest.any(|packet| at_most(packet) >= 2_900_000) {
            break kept;
        }
        assert!(from.elapsed() < Duration::from_secs(60), "{kept:#}");
    };
    assert!(kept["last_ns"] == 60_000_000_000_u64 && kept["pauses"] == serde_json::json!([]), "{kept:#}");
    let (text, told) = said(&look(folder.path(), &["trace", "rig", "--kept", "--slowest", "2"]));
    assert_fits(&text);
    assert!(told.is_empty() && text.contains("slow 2 ") && !text.contains("slow 3 "), "{told}{text}");
    assert!(text.contains(" ago: took ") && text.contains("stage.sink"), "{text}");
    assert_eq!(threads(run.child().id()).iter().filter(|name| *name == "vl-keeper").count(), 1);
    run.signal(Signal::INT);
    let report: Value = serde_json::from_str(&run.finish().exited(0).stdout).unwrap();
    assert_eq!(report["kept"]["slowest"].as_array().unwrap().len(), 7);

    let run = endless(folder.path(), &["--set", "trace.one_in=1"]).start();
    await_run(folder.path());
    while traced(folder.path(), &["--kept"])["slowest"].as_array().unwrap().len() < 10 {
        assert!(from.elapsed() < Duration::from_secs(120), "no packets are kept");
    }
    run.signal(Signal::INT);
    let text = run.finish().exited(0).stdout;
    assert_fits(&text);
    assert!(text.contains("slow 3 ") && !text.contains("slow 4 "), "{text}");
}

#[test]
fn a_run_whose_plan_keeps_nothing_says_what_would() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = endless(folder.path(), &[]).start();
    await_run(folder.path());
    let refused = look(folder.path(), &["trace", "--kept"]);
    let told = unwrapped(&said(&refused).1);
    assert!(refused.status.code() == Some(1) && told.contains("its plan has no [trace]; add that table"), "{told}");
    let threads = threads(run.child().id());
    assert!(threads.iter().all(|name| name != "vl-keeper"), "{threads:?}");
    assert_eq!(look(folder.path(), &["trace", "--kept", "--one-in", "32"]).status.code(), Some(2));
    end(run);
    let checked = rig(folder.path(), &["check", "tests/plans/rig.toml", "--set", "trace.slowest=0"]).run();
    let told = checked.exited(2).stderr;
    assert!(told.contains("`slowest` is 0, which is out of range") && told.contains("from 1 to 100"), "{told}");
}

fn at_most(packet: &Value) -> u64 {
    packet["took_ns"].as_u64().unwrap() + packet["waited_ns"].as_u64().unwrap()
}

/// The names of a process's threads.
fn threads(pid: u32) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok()).map(|name| name.trim().into()).collect()
}

#[test]
fn a_file_for_perfetto_has_lcores_as_tracks() {
    let folder = tempfile::tempdir().unwrap();
    let run = endless(folder.path(), &[]).start();
    await_run(folder.path());
    let file = folder.path().join("trace.json");
    let path = file.to_str().unwrap();
    let done = look(folder.path(), &["trace", "--chrome", path, "--for", "300ms"]);
    assert!(done.status.success(), "{}", said(&done).1);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let value: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let events = value["traceEvents"].as_array().unwrap();
    let tracks: Vec<&Value> = events.iter().filter(|event| event["name"] == "thread_name").collect();
    let of_lcore = tracks.iter().find(|track| track["args"]["name"] == "lcore main").expect("the lcore's track");
    let slices = |name: &str| {
        let named = events.iter().filter(|event| event["ph"] == "X" && event["name"] == name);
        named.filter(|event| event["tid"] == of_lcore["tid"]).collect::<Vec<_>>()
    };
    let (turns, calls) = (slices("turn"), slices("stage.sink"));
    assert!(turns.len() > 20 && calls.len() > 20 && slices("asleep").len() > 20, "{} turns", turns.len());
    // They nest: each call is within a turn.
    let span = |event: &Value| {
        let from = event["ts"].as_f64().unwrap();
        (from, from + event["dur"].as_f64().unwrap())
    };
    for (from, to) in calls.iter().map(|call| span(call)) {
        let is_in = |turn: (f64, f64)| turn.0 <= from + 0.01 && to <= turn.1 + 0.01;
        assert!(turns.iter().any(|turn| is_in(span(turn))), "a call from {from} to {to} is in no turn");
    }
    let again = look(folder.path(), &["trace", "--chrome", path, "--for", "10ms"]);
    assert!(again.status.code() == Some(1) && unwrapped(&said(&again).1).contains("is there already"));
    assert!(look(folder.path(), &["trace", "--chrome", path, "--for", "10ms", "--force"]).status.success());
    let full = look(folder.path(), &["trace", "--chrome", "/dev/full", "--for", "100ms", "--force"]);
    let told = unwrapped(&said(&full).1);
    assert!(full.status.code() == Some(1) && told.contains("/dev/full can't be written: No space left"), "{told}");
    end(run);
}
