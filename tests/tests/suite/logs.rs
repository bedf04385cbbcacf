//! The log of a run: its format, and the number of its lines.

use serde_json::Value;
use verbline_tests::{Program, unwrapped};

use crate::operate::{await_run, endless, look, rig, said};

#[test]
fn a_log_has_another_filter_while_the_run_lasts() {
    let folder = tempfile::tempdir().unwrap();
    let run = endless(folder.path(), &[]).start();
    await_run(folder.path());
    let log = |words: &[&str]| look(folder.path(), &[&["log"], words].concat());
    assert_eq!(said(&log(&[])), ("warn\n".to_owned(), String::new()));
    let refused = log(&["rig", "--set", "verbline=loud=er"]);
    let told = unwrapped(&said(&refused).1);
    assert!(refused.status.code() == Some(1) && told.contains("\"verbline=loud=er\" is no filter of a log"), "{told}");
    let misplaced = log(&["rig", "debug"]);
    let told = unwrapped(&said(&misplaced).1);
    assert!(misplaced.status.code() == Some(2) && told.contains("changed by --set: --set debug"), "{told}");
    assert_eq!(said(&log(&["rig", "--set", "info"])).0, "info\n");
    assert_eq!(said(&log(&["--set", "error"])).0, "error\n");
    run.signal(rustix::process::Signal::INT);
    let shown = run.finish().exited(0);
    let told = |filter: &str| shown.stderr.contains(&format!("the log has another filter filter=\"{filter}\""));
    assert!(told("info") && !told("error"), "{shown}");
}

#[test]
fn a_program_that_collects_logs_reads_json_alone() {
    let folder = tempfile::tempdir().unwrap();
    let json = |program: Program| program.with_env("VERBLINE_LOG_FORMAT", "json").with_env("VERBLINE_LOG", "debug");
    let shown = json(rig(folder.path(), &["run", "tests/plans/rig.toml"])).run().exited(0);
    let refused = rig(folder.path(), &["run", "tests/plans/none.toml"]);
    for (shown, level) in [(shown, "DEBUG"), (json(refused).run().exited(2), "ERROR")] {
        let records: Vec<Value> = shown
            .stderr
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}\n{shown}")))
            .collect();
        for record in &records {
            assert!(["timestamp", "level", "message"].iter().all(|key| record[key].is_string()), "{record}");
        }
        assert!(records.iter().any(|record| record["level"] == level), "{shown}");
    }
}

#[test]
fn a_form_that_cannot_be_is_said_and_the_log_is_text() {
    let folder = tempfile::tempdir().unwrap();
    let check = rig(folder.path(), &["check", "tests/plans/rig.toml"]);
    let shown = check.with_env("VERBLINE_LOG_FORMAT", "xml").run().exited(0);
    let warning = "warning: VERBLINE_LOG_FORMAT=xml is ignored; write text, json or journald\n";
    assert!(shown.stderr.starts_with(warning), "{shown}");
    // The variable of a service, inherited by a child whose standard error is another file.
    let shown = check.with_env("JOURNAL_STREAM", "8:1").run().exited(0);
    assert_eq!(shown.stderr, "", "{shown}");
}

/// A user who starts one of two ends reads which port waits, and for whom. A program that collects
/// logs gets whole sentences, about the wait and about its end. A device with an address gets no
/// advice to set one.
#[test]
fn a_port_that_waits_for_its_connection_is_named_while_it_waits() {
    let folder = tempfile::tempdir().unwrap();
    let plan = std::fs::read_to_string(verbline_tests::root().join("tests/plans/rig.toml")).unwrap();
    let (ports, stage) = (plan.split("[port.in]").next().unwrap(), plan.split("[stage.numbers]").nth(1).unwrap());
    let stage = stage.split("[stage.sink]").next().unwrap();
    let waits = "connect = \"127.77.3.2:7021\"\nconnect_timeout = \"3s\"";
    let ports = ports.replace("peer = \"port.in\"", waits);
    let file = folder.path().join("waits.toml");
    std::fs::write(&file, format!("{ports}[stage.numbers]{stage}")).unwrap();
    let run = rig(folder.path(), &["run", file.to_str().unwrap(), "--no-socket"]);
    let text = run.with(["--set", "device.nic.address=127.77.3.1"]).start();
    let json = run.with_env("VERBLINE_LOG_FORMAT", "json").start();

    let shown = text.finish().exited(1);
    let named: Vec<_> = shown.stderr.lines().filter(|line| line.contains("no connection yet: ")).collect();
    let [line] = named[..] else { panic!("once in three seconds:\n{shown}") };
    assert!(line.contains("WARN") && line.contains("it connects to 127.77.3.2:7021 port=out waited=2s"), "{shown}");
    let told = unwrapped(&shown.stderr);
    assert!(
        told.contains("; start the other end, or raise `connect_timeout`") && !told.contains("`address`"),
        "{shown}"
    );

    let shown = json.finish().exited(1);
    let records: Vec<Value> = shown.stderr.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |words: &str| {
        let mut found = records.iter().filter(|record| record["message"].as_str().unwrap().contains(words));
        found.next().unwrap_or_else(|| panic!("no {words:?} in {shown}"))
    };
    let waits = of("no connection yet: it connects to 127.77.3.2:7021");
    assert_eq!((&waits["port"], &waits["level"]), (&"out".into(), &"WARN".into()), "{waits}");
    let error = of("and has no connection after 3s and")["message"].as_str().unwrap();
    assert!(error.len() > 80 && !error.contains('\n'), "{error}");
}
