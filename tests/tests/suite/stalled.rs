//! A reader that stops reading must not hold up a run's lcores or its end: neither a stopped
//! terminal nor a pipe that nobody empties.

use std::fs::File;
use std::io::{PipeReader, PipeWriter, Write};
use std::time::{Duration, Instant};

use rustix::pipe::fcntl_setpipe_size;
use rustix::process::Signal;
use serde_json::Value;
use verbline_tests::{Finished, Program, Terminal};

/// The longest time of a run's end: a longer one waits for something.
const SOON: Duration = Duration::from_secs(12);

const CTRL_S: &str = "\x13";
const CTRL_Q: &str = "\x11";

/// A run without an end, whose sink has this habit.
fn endless(habit: &str) -> Program {
    let program = Program::new(env!("CARGO_BIN_EXE_rig")).with(["run", "tests/plans/rig.toml"]);
    let habit = format!("stage.sink.params.habit={habit}");
    program.with(["--set", "stage.numbers.params={}", "--set", &habit, "--set", "lcore.main.drain=1s"])
}

#[test]
fn a_terminal_that_is_stopped_stops_no_stop() {
    for is_told in [false, true] {
        let program = if is_told { endless("shout") } else { endless("shout").with(["--for", "2s"]) };
        let mut terminal = Terminal::start(&program);
        terminal.wait_for(|screen| screen.contains(" received"));
        terminal.press(CTRL_S);
        let stopped = Instant::now();
        if is_told {
            // Time until the terminal takes nothing more.
            std::thread::sleep(Duration::from_millis(500));
            terminal.signal(Signal::TERM);
        }
        let (status, left) = terminal.finish();
        let took = stopped.elapsed();
        assert!(took < SOON, "it took {took:?}");
        assert_eq!(status.code(), Some(1), "the report is lost, which is a failure:\n{left}");
    }
}

#[test]
fn a_terminal_that_goes_on_in_time_shows_the_report() {
    let mut terminal = Terminal::start(&endless("none"));
    terminal.wait_for(|screen| screen.contains(" received"));
    terminal.press(CTRL_S);
    std::thread::sleep(Duration::from_millis(500));
    terminal.signal(Signal::TERM);
    std::thread::sleep(Duration::from_millis(500));
    terminal.press(CTRL_Q);
    let (status, left) = terminal.finish();
    assert!(status.success() && left.starts_with("rig: ran "), "{status}\n{left}");
}

/// A pipe of the smallest size, full. Nobody reads.
fn full_pipe() -> (PipeReader, PipeWriter) {
    const BYTES: usize = 4096;
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    assert_eq!(fcntl_setpipe_size(&writer, BYTES), Ok(BYTES));
    writer.write_all(&[b' '; BYTES]).expect("room for as much");
    (reader, writer)
}

/// The report of a run whose standard error is a full pipe.
#[track_caller]
fn beside_a_full_pipe(program: &Program, signal: Option<Signal>) -> Finished {
    let (reader, writer) = full_pipe();
    let folder = tempfile::tempdir().unwrap();
    let program = program.listening_in(folder.path());
    let mut begun = Instant::now();
    let started = program.start_telling(File::from(std::os::fd::OwnedFd::from(writer)));
    if let Some(signal) = signal {
        let goes_on = |report: &Value| report["stages"][1]["counters"][0]["value"].as_u64() >= Some(100);
        program.await_live(None, "packets at the sink", goes_on);
        begun = Instant::now();
        started.signal(signal);
    }
    let shown = started.finish();
    assert!(begun.elapsed() < SOON, "it took {:?}: {shown}", begun.elapsed());
    drop(reader);
    shown
}

#[test]
fn a_pipe_that_nobody_reads_stops_neither_an_lcore_nor_a_stop() {
    let shouts = endless("shout").with(["--json"]);
    for (program, signal) in [(shouts.with(["--for", "2s"]), None), (shouts, Some(Signal::TERM))] {
        let json = beside_a_full_pipe(&program, signal).exited(0).json();
        let received = json["stages"][1]["counters"][0]["value"].as_u64();
        assert!(received.is_some_and(|received| received >= 100), "the lcore went on: {json:#}");
        assert_eq!(json["packets"]["held"], 0, "{json:#}");
    }
}

#[test]
fn a_panic_is_no_reason_to_wait_for_a_pipe() {
    let shown = beside_a_full_pipe(&endless("panic").with(["--json"]), None).exited(1);
    assert_eq!(shown.json()["failures"][0]["message"], "the sink is full to the brim", "{shown}");
}

#[test]
fn warnings_of_one_place_are_limited_and_what_is_left_out_is_counted() {
    let shown = endless("shout").with(["--for", "2500ms", "--json"]).run().exited(0);
    let (mut said, mut left_out, mut told) = (0, 0, 0);
    for line in shown.stderr.lines() {
        assert!(line.contains(" WARN ") && line.contains("the sink has a packet"), "{shown}");
        match line.split_once(" more were left out: ") {
            Some((head, _)) => {
                let number = head.rsplit(' ').next().unwrap_or_default().replace(',', "");
                told += 1;
                left_out += number.parse::<u64>().unwrap_or_else(|error| panic!("{error}: {line}"));
            }
            None => said += 1,
        }
    }
    assert!(told >= 2, "while it goes on, too: {shown}");
    // Ten lines in each second that the run touches.
    assert!((10..=60).contains(&said), "{said} in {shown}");
    let received = shown.json()["stages"][1]["counters"][0]["value"].as_u64();
    assert_eq!(received, Some(said + left_out), "each is said or counted: {shown}");
}
