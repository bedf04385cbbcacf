//! The log of a run: its form, and how much of it there is while the run lasts.

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
    // A service's variable that its child has inherited, whose standard error is another file.
    let shown = check.with_env("JOURNAL_STREAM", "8:1").run().exited(0);
    assert_eq!(shown.stderr, "", "{shown}");
}
