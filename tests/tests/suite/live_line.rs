//! The display of a run in a terminal of 80 columns, while it lasts and afterwards.

use std::num::NonZero;

use rustix::process::Signal;
use verbline_tests::{Program, Terminal};

/// A run without an end.
fn endless() -> Program {
    let program = Program::new(env!("CARGO_BIN_EXE_rig")).with(["run", "tests/plans/rig.toml"]);
    program.with(["--set", "stage.numbers.params={}"])
}

#[test]
fn the_line_is_there_while_the_run_lasts_and_gone_at_its_end() {
    let mut terminal = Terminal::start(&endless());
    let shown = terminal.wait_for(|screen| screen.contains(" received"));
    let lines: Vec<_> = shown.lines().collect();
    assert!(matches!(lines.as_slice(), [line] if line.starts_with("rig ")), "one line and nothing else:\n{shown}");
    // The counter moves.
    let earlier = shown;
    terminal.wait_for(|screen| screen.contains(" received") && screen != earlier);

    terminal.signal(Signal::INT);
    let (status, left) = terminal.finish();
    assert!(status.success(), "{status}\n{left}");
    assert!(left.starts_with("rig: ran "), "the report stands alone:\n{left}");
    assert!(!left.contains(" received ["), "{left}");
    assert!(!left.contains("draining"), "{left}");
}

#[test]
fn quiet_is_quiet() {
    let program =
        Program::new(env!("CARGO_BIN_EXE_rig")).with(["run", "tests/plans/rig.toml", "--quiet", "--for", "500ms"]);
    let terminal = Terminal::start(&program.with(["--set", "stage.numbers.params={}"]));
    let (status, left) = terminal.finish();
    assert!(status.success() && left.starts_with("rig: ran "), "{status}\n{left}");
}

#[test]
fn a_terminal_that_moves_no_cursor_gets_plain_lines() {
    for term in ["dumb", ""] {
        let program = endless().with_env("TERM", term).with(["--for", "5s"]);
        let terminal = Terminal::start(&program);
        let (status, left) = terminal.finish();
        let lines: Vec<_> = left.lines().take_while(|line| !line.starts_with("rig: ran ")).collect();
        assert!(status.success() && lines.len() >= 2, "{status}\n{left}");
        assert!(lines.iter().all(|line| line.starts_with("rig ") && line.contains(" received")), "{left}");
    }
}

#[test]
fn in_a_narrow_terminal_a_number_is_whole_or_not_there() {
    let mut terminal = Terminal::start_in(&endless(), NonZero::new(24).unwrap());
    // There is no room even for the word beside the number.
    let shown = terminal.wait_for(|screen| screen.starts_with("rig 00:") && !screen.starts_with("rig 00:00:00"));
    let words: Vec<_> = shown.split_whitespace().collect();
    assert!(matches!(words.as_slice(), ["rig", _, number] if number.len() >= "800".len()), "{shown}");
    terminal.signal(Signal::TERM);
    assert!(terminal.finish().0.success());
}

#[test]
fn a_plans_name_does_nothing_to_a_terminal() {
    let hostile = "name=\"a\\u001b]0;owned\\u0007\\u001b[31mb\\nc\"";
    let mut terminal = Terminal::start(&endless().with(["--set", hostile]));
    let shown = terminal.wait_for(|screen| screen.contains(" received"));
    assert!(shown.starts_with("a\\u{1b}]0;owned"), "{shown}");
    terminal.signal(Signal::TERM);
    assert!(terminal.finish().0.success());
    let shown = endless().with(["--set", hostile, "--for", "200ms"]).run().exited(0);
    assert!(shown.stdout.starts_with("a\\u{1b}]0;owned\\u{7}\\u{1b}[31mb\\u{a}c: ran "), "{shown}");
}

#[test]
fn failures_stand_out_in_a_terminal_and_only_there() {
    let leak = ["run", "tests/plans/rig.toml", "--set", "stage.sink.params.habit=leak"];
    let program = Program::new(env!("CARGO_BIN_EXE_rig")).with(leak);
    let mut terminal = Terminal::start(&program);
    terminal.wait_for(|screen| screen.contains("were not given back"));
    assert!(terminal.is_red("FAILED"), "the verdict is red");
    let (status, _) = terminal.finish();
    assert_eq!(status.code(), Some(1));
    let piped = program.run().exited(1);
    assert!(!piped.stdout.contains('\x1b'), "{piped}");
}

#[test]
fn a_log_gets_no_line() {
    let shown = endless().with(["--json"]).start();
    shown.await_lcores(&["main"]);
    // Time for a few updates of the line, if there were one.
    std::thread::sleep(std::time::Duration::from_millis(500));
    shown.signal(Signal::TERM);
    let shown = shown.finish().exited(0);
    assert_eq!(shown.stderr, "", "{shown}");
    assert_eq!(shown.json()["plan"], "rig", "{shown}");
}

/// A signal may come while the run is still being built. The run ends at once, with the exit code
/// of a run of full length. The user reads what ended it.
#[test]
fn a_signal_that_ends_a_run_before_its_time_is_named() {
    let started = endless().with(["--for", "1h", "--json"]).start();
    started.await_lcores(&["main"]);
    started.signal(Signal::TERM);
    let shown = started.finish().exited(0);
    let told = shown.stderr.lines().find(|line| line.starts_with("SIGTERM has ended the run after "));
    assert!(told.is_some_and(|line| line.ends_with(", before the 1h of --for")), "{shown}");
    // A run that ends by itself, or has no end, prints no such line.
    let shown = endless().with(["--for", "200ms"]).run().exited(0);
    assert!(!shown.stderr.contains("has ended"), "{shown}");
}

// Signal masks are inherited. A run that was started with signals blocked, as by a daemon that
// waits for its own with signalfd(2), ended only by SIGKILL.
#[test]
fn a_signal_that_was_blocked_when_the_run_was_started_ends_it() {
    let program = endless().with(["--json"]);
    let blocking = ["env", "--block-signal=INT", "--block-signal=TERM", "--block-signal=HUP"];
    let started = program.start_as(&mut program.behind(blocking));
    started.await_lcores(&["main"]);
    started.signal(Signal::TERM);
    let shown = started.finish().exited(0);
    assert_eq!(shown.json()["packets"]["held"], 0, "{shown}");
}

/// Only a signal ends such a run. A user whose terminal goes away gets the report where it was
/// sent.
#[test]
fn a_run_without_an_end_is_ended_by_a_hangup_unless_that_is_ignored() {
    for length in [&[][..], &["--for", "forever"]] {
        let started = endless().with(length).with(["--json"]).start();
        started.await_lcores(&["main"]);
        // Twice, as a terminal may send it: the second signal aborts nothing.
        for _ in 0..2 {
            started.signal(Signal::HUP);
            started.await_delivery();
        }
        let shown = started.finish().exited(0);
        assert_eq!(shown.json()["packets"]["held"], 0, "{shown}");
    }
}
