//! `ps`, `stats` and `top` of a running plan: the display in 80 columns, and the output for
//! programs.

use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::process::Output;

use rustix::process::Signal;
use serde_json::Value;
use verbline_tests::{Program, Started, Terminal, assert_fits, skipped, terminal_pair, unwrapped};

use crate::lacks::mounting;

/// A verb of the app, with `folder` as the place of the runs' sockets.
pub(crate) fn rig(folder: &Path, words: &[&str]) -> Program {
    Program::new(env!("CARGO_BIN_EXE_rig")).with(words).listening_in(folder)
}

pub(crate) fn endless(folder: &Path, words: &[&str]) -> Program {
    rig(folder, &["run", "tests/plans/rig.toml", "--quiet", "--set", "stage.numbers.params={}"]).with(words)
}

/// Settings for an endless run that polls, and has packets at all times.
pub(crate) const BUSY: [&str; 4] =
    ["--set", "lcore.main.idle=poll", "--set", "stage.numbers.params={count=1_000_000_000_000}"];

/// The entry of that name in a list of a report.
pub(crate) fn entry<'a>(report: &'a Value, list: &str, name: &str) -> &'a Value {
    let mut entries = report[list].as_array().unwrap().iter();
    entries.find(|entry| entry["name"] == name).unwrap_or_else(|| panic!("no {name} among the {list}"))
}

/// Looks at the run that holds the CPUs meanwhile.
pub(crate) fn look(folder: &Path, words: &[&str]) -> Output {
    rig(folder, words).command().output().unwrap()
}

pub(crate) fn said(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stdout), text(&output.stderr))
}

/// Waits until the run's lcore is running.
pub(crate) fn await_run(folder: &Path) {
    for _ in 0..2000 {
        if said(&look(folder, &["ps"])).0.contains("running") {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("no run: {:?}", look(folder, &["ps"]));
}

/// The number of packets that the run's port `in` has received so far.
pub(crate) fn received(folder: &Path) -> u64 {
    let shown = look(folder, &["stats", "--json"]);
    assert!(shown.status.success(), "{}", said(&shown).1);
    let report: Value = serde_json::from_slice(&shown.stdout).unwrap();
    entry(&report, "ports", "in")["rx_packets"].as_u64().unwrap()
}

pub(crate) fn end(started: Started) {
    started.signal(Signal::INT);
    started.finish().exited(0);
}

#[test]
fn a_run_is_listed_and_shown_while_it_lasts_and_gone_behind_it() {
    let folder = tempfile::tempdir().unwrap();
    let none = look(folder.path(), &["ps"]);
    assert_eq!((none.status.code(), said(&none).0.as_str()), (Some(0), "no run of this user listens\n"));
    let alone = look(folder.path(), &["stats"]);
    // Regression: it asked which run.
    // Regression: it named an option that `stats` does not have.
    let path = "error: no run of this user listens; start one, or write the path of its socket as its name";
    assert!(alone.status.code() == Some(1) && unwrapped(&said(&alone).1).starts_with(path), "{alone:?}");

    let run = endless(folder.path(), &[]).start();
    await_run(folder.path());
    let (listed, _) = said(&look(folder.path(), &["ps"]));
    assert_fits(&listed);
    let row: Vec<&str> = listed.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[..3], ["rig", "rig", "running"], "{listed}");
    let as_json: Value = serde_json::from_slice(&look(folder.path(), &["ps", "--json"]).stdout).unwrap();
    assert_eq!((&as_json[0]["name"], &as_json[0]["state"]), (&"rig".into(), &"running".into()));
    let pid = as_json[0]["pid"].to_string();
    assert_eq!(row[3], pid);

    for words in [&["stats"][..], &["stats", "rig"], &["stats", &pid], &["stats", "--every", "100ms", "--count", "1"]] {
        let shown = look(folder.path(), words);
        let (text, error) = said(&shown);
        assert!(shown.status.success() && error.is_empty(), "{words:?}: {error}");
        assert_fits(&text);
        for word in ["lcore", "awake    main: ", "numbers", "sink", "out", "in ", "packets", "held", "drops    none"] {
            assert!(text.contains(word), "{words:?}: no {word} in\n{text}");
        }
    }
    let unknown = look(folder.path(), &["stats", "nobody"]);
    assert!(unknown.status.code() == Some(1) && said(&unknown).1.contains("these run: rig (process"));

    let lines = said(&look(folder.path(), &["stats", "--every", "50ms", "--count", "2", "--deltas", "--json"])).0;
    let deltas: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let over_ms = deltas[1]["elapsed_ns"].as_u64().unwrap() / 1_000_000;
    assert!(deltas.len() == 2 && (1..10_000).contains(&over_ms), "{lines}");
    let report: Value = serde_json::from_slice(&look(folder.path(), &["stats", "--json"]).stdout).unwrap();
    assert!(report["version"] == 1 && report["lcores"][0]["name"] == "main", "{report}");

    end(run);
    assert_eq!(said(&look(folder.path(), &["ps"])).0, "no run of this user listens\n");
    assert_eq!(std::fs::read_dir(folder.path().join("verbline")).unwrap().count(), 0, "its socket is gone");
}

/// Regression: only a log at `info` said so, and `ps` that nothing runs.
#[test]
fn a_run_without_a_writable_folder_for_its_socket_says_that_ps_wont_see_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(wrapper) = mounting(&format!("mount -t tmpfs -o ro none {}", folder.path().display())) else { return };
    let program = rig(folder.path(), &["run", "tests/plans/rig.toml", "--set", "pool.packets.pages=4KiB"]);
    let shown = program.run_as(&mut program.behind(&wrapper)).exited(0);
    let said = unwrapped(&shown.stderr);
    assert!(said.contains("WARN `ps` and `stats` won't see this run") && said.contains("Read-only"), "{shown}");
    // Declined, or never given, as in many containers.
    for declined in [program.with(["--no-socket"]), program.with_env("XDG_RUNTIME_DIR", "")] {
        let shown = declined.run_as(&mut declined.behind(&wrapper)).exited(0);
        assert_eq!(shown.stderr, "", "{shown}");
    }
}

#[test]
fn a_killed_run_leaves_nothing_that_is_listed_and_one_without_a_socket_is_not_seen() {
    let folder = tempfile::tempdir().unwrap();
    let mut killed = endless(folder.path(), &[]).start();
    await_run(folder.path());
    killed.child().kill().unwrap();
    killed.child().wait().unwrap();
    drop(killed);
    assert_eq!(std::fs::read_dir(folder.path().join("verbline")).unwrap().count(), 1, "it could not clear up");
    assert_eq!(said(&look(folder.path(), &["ps"])).0, "no run of this user listens\n");
    assert_eq!(std::fs::read_dir(folder.path().join("verbline")).unwrap().count(), 0, "`ps` has cleared it");

    rig(folder.path(), &["run", "tests/plans/rig.toml", "--no-socket"]).run().exited(0);
    assert_eq!(std::fs::read_dir(folder.path().join("verbline")).unwrap().count(), 0);
    let own = folder.path().join("own.sock");
    let run = endless(folder.path(), &["--socket", own.to_str().unwrap()]).start();
    for _ in 0..2000 {
        let is_there = std::fs::symlink_metadata(&own).is_ok_and(|file| file.file_type().is_socket());
        if is_there && look(folder.path(), &["stats", own.to_str().unwrap()]).status.success() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(said(&look(folder.path(), &["ps"])).0, "no run of this user listens\n");
    assert!(look(folder.path(), &["stats", own.to_str().unwrap()]).status.success());
    end(run);
    std::fs::write(&own, "precious").unwrap();
    let refused = endless(folder.path(), &["--socket", own.to_str().unwrap()]).run().exited(1);
    assert!(unwrapped(&refused.stderr).contains("own.sock: there is a file that is no socket"), "{refused}");
    assert_eq!(std::fs::read(&own).unwrap(), b"precious");
}

#[test]
fn a_plan_whose_metrics_are_wrong_is_refused_by_check_and_by_run() {
    let folder = tempfile::tempdir().unwrap();
    for verb in ["check", "run"] {
        let words = [verb, "tests/plans/rig.toml", "--set", "metrics.listen=\"0.0.0.0:9500\""];
        let refused = rig(folder.path(), &words).run().exited(2);
        assert!(unwrapped(&refused.stderr).contains("others reach 0.0.0.0:9500"), "{refused}");
    }
}

#[test]
fn two_lcores_top_shows_a_run_and_gives_the_terminal_back_however_it_ends() {
    let folder = tempfile::tempdir().unwrap();
    let run = endless(folder.path(), &[]).start();
    await_run(folder.path());
    let top = || {
        let mut terminal = Terminal::start(&rig(folder.path(), &["top"]).with_env("TERM", "xterm"));
        terminal.wait_for(|screen| screen.contains("rx+tx/s") && screen.contains("numbers"));
        terminal
    };
    // Nothing is left of the alternate screen.
    let is_given_back = |terminal: Terminal, left: &str| {
        let (status, screen) = terminal.finish();
        assert!(status.success() && screen.trim() == left, "{status}: {screen}");
    };
    let mut quit = top();
    quit.press("2");
    let ports = quit.wait_for(|screen| screen.contains("tx held"));
    assert!(ports.starts_with("rig, process ") && !ports.contains("numbers"), "{ports}");
    quit.press("q");
    is_given_back(quit, "");
    let mut interrupted = top();
    interrupted.press("\x03");
    is_given_back(interrupted, "");
    for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
        let signalled = top();
        signalled.signal(signal);
        is_given_back(signalled, "");
    }
    let left = top();
    end(run);
    is_given_back(left, "rig: the run is over");
}

#[test]
fn two_lcores_top_ends_when_its_terminal_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let _run = endless(folder.path(), &[]).start();
    await_run(folder.path());
    let (mut master, slave) = terminal_pair(80.try_into().unwrap()).unwrap();
    let mut top = rig(folder.path(), &["top"]).with_env("TERM", "xterm").command();
    let end = || slave.try_clone().unwrap();
    top.stdin(end()).stdout(end()).stderr(end());
    let mut top = top.spawn().unwrap();
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains("rig, process") {
        let mut bytes = [0; 4096];
        let len = master.read(&mut bytes).unwrap();
        seen.extend_from_slice(&bytes[..len]);
    }
    drop(master);
    let end = (0..2000).find_map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        top.try_wait().unwrap()
    });
    let _ = top.kill();
    assert!(end.expect("it stays").success(), "{end:?}");
}

#[test]
fn top_says_what_to_use_where_there_is_no_screen() {
    let folder = tempfile::tempdir().unwrap();
    let piped = rig(folder.path(), &["top"]).run().exited(1);
    assert!(unwrapped(&piped.stderr).contains("`stats --every 1s` prints the same"), "{piped}");
    let (status, dumb) = Terminal::start(&rig(folder.path(), &["top"]).with_env("TERM", "dumb")).finish();
    assert!(status.code() == Some(1) && unwrapped(&dumb).contains("`stats --every 1s` prints the same"), "{dumb}");
}

// A user who became root by `su` made a folder there, and that kept the folder's owner from having
// sockets.
#[test]
fn root_makes_nothing_in_another_users_runtime_folder() {
    if !rustix::process::geteuid().is_root() {
        skipped("root alone can do it");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(folder.path(), Some(1_000_000), None).unwrap();
    rig(folder.path(), &["run", "tests/plans/rig.toml"]).run().exited(0);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

// The advice was to see who listens there, even for an address that this host does not have.
#[test]
fn metrics_that_cannot_be_served_come_with_what_to_do_about_it() {
    let folder = tempfile::tempdir().unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = listener.local_addr().unwrap().to_string();
    for (listen, advice) in [(&*taken, "see who listens there"), ("192.0.2.1:9500", "`ip addr` shows which addresses")]
    {
        let set = format!("metrics={{ listen = \"{listen}\", hosts = [\"here\"] }}");
        let shown = rig(folder.path(), &["run", "tests/plans/rig.toml", "--set", &set]).run().exited(1);
        let said = unwrapped(&shown.stderr);
        assert!(said.contains(&format!("can't be served at {listen}: ")) && said.contains(advice), "{shown}");
        assert_eq!(said.contains("who listens there"), listen == taken, "{shown}");
    }
}
