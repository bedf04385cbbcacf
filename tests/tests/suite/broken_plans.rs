//! The plans of `tests/broken-plans`, given to a real command on this machine: refused with exit
//! code 2, each fault at its place. The wording of each is a snapshot beside `crates/plan`.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;
use verbline_tests::{Program, assert_fits, root};

/// A lower count means that the folder moved.
const PLANS_MIN: usize = 15;

/// Faults that this machine may not have, since it has the memory or the CPUs.
const OF_THE_MACHINE: [&str; 4] = ["too-few-hugepages", "too-much-memory", "locked-memory", "cpu-not-allowed"];

fn rig() -> Program {
    Program::new(env!("CARGO_BIN_EXE_rig"))
}

/// The plans that are broken on any machine.
fn plans() -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join("tests/broken-plans")).expect("tests/broken-plans");
    let mut plans: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    plans.retain(|path| {
        let text = fs::read_to_string(path).unwrap_or_default();
        path.extension().is_some_and(|ending| ending == "toml")
            && !expected(&text).iter().all(|code| OF_THE_MACHINE.contains(code))
    });
    plans.sort();
    assert!(plans.len() >= PLANS_MIN, "only {} broken plans", plans.len());
    plans
}

/// The codes that the plan's first line names.
fn expected(text: &str) -> Vec<&str> {
    let first = text.lines().next().and_then(|line| line.strip_prefix("# expect: ")).expect("a first line with codes");
    first.split(", ").collect()
}

#[test]
fn every_fault_has_its_line_and_column_and_the_exit_code_is_2() {
    for plan in plans() {
        let text = fs::read_to_string(&plan).expect("a plan is text");
        let shown = rig().with(["check", "--json"]).with([plan.display().to_string()]).run().exited(2);
        assert_eq!(shown.stderr, "", "{shown}");
        let json = shown.json();
        assert_eq!(json["valid"], false, "{shown}");
        let faults = json["diagnostics"].as_array().expect("a list");
        let found: Vec<&str> = faults.iter().filter_map(|fault| fault["code"].as_str()).collect();
        for code in expected(&text).into_iter().filter(|code| !OF_THE_MACHINE.contains(code)) {
            assert!(found.contains(&code), "{code} is not among {found:?}: {shown}");
        }
        let lines = text.lines().count() as u64;
        for fault in faults {
            let number = |key: &str| fault[key].as_u64().unwrap_or(0);
            assert!((1..=lines + 1).contains(&number("line")) && number("column") >= 1, "{fault:#}\n{shown}");
        }
    }
}

#[test]
fn faults_are_shown_to_a_person_within_80_columns() {
    for plan in plans() {
        let shown = rig().with(["check", "--explain"]).with([plan.display().to_string()]).run().exited(2);
        assert!(shown.stderr.contains("error["), "{shown}");
        assert!(shown.stderr.contains("\n1 error") || shown.stderr.contains(" errors"), "{shown}");
        assert_fits(&shown.stdout);
        assert_fits(&shown.stderr);
    }
}

#[test]
fn the_sums_of_a_broken_plan_show_what_is_short() {
    let plan = "tests/broken-plans/pool-too-small.toml";
    // The plan uses a third CPU, which this machine may lack; the sums are worked out nevertheless.
    let shown = rig().with(["check", "--explain", plan]).run().exited(2);
    let short: Vec<_> = shown.stdout.lines().filter(|line| line.contains("TOO FEW")).collect();
    assert_eq!(short.len(), 1, "{shown}");
    let json = rig().with(["check", "--explain", "--json", plan]).run().exited(2).json();
    let sums = json["sums"].as_array().expect("a list");
    let short: Vec<&Value> = sums.iter().filter(|sum| sum["holds"] == false).collect();
    assert!(
        matches!(short.as_slice(), [sum] if sum["of"].as_str().is_some_and(|of| of.starts_with("pool."))),
        "{short:#?}"
    );
}

#[test]
fn a_broken_plan_is_drawn_with_what_is_wrong_in_red() {
    let wrong = "#c0392b";
    let plan = "tests/broken-plans/cycle.toml";
    let dot = rig().with(["graph", plan]).run().exited(2);
    assert!(dot.stdout.starts_with("digraph") && dot.stdout.contains(wrong), "{dot}");
    assert!(dot.stderr.contains("error[cycle]"), "{dot}");
    let mermaid = rig().with(["graph", plan, "--format", "mermaid"]).run().exited(2);
    assert!(mermaid.stdout.starts_with("flowchart") && mermaid.stdout.contains(wrong), "{mermaid}");
    assert_eq!(mermaid.stderr, dot.stderr);
}

#[test]
fn a_plan_for_another_app_says_which() {
    let shown = rig().with(["run", "config/pingpong.toml"]).run().exited(2);
    assert!(shown.stderr.contains("error[wrong-app]: this plan is for `pingpong`, and this is `rig`"), "{shown}");
}

#[test]
fn a_plan_that_is_not_there_says_where_it_was_looked_for() {
    for command in ["run", "check", "graph"] {
        let shown = rig().with([command, "config/nowhere.toml"]).run().exited(2);
        assert!(shown.stderr.contains("config/nowhere.toml") && shown.stderr.contains("No such file"), "{shown}");
        assert_eq!(shown.stdout, "", "{shown}");
    }
}
