//! The output for people: help, the report, sums, drawings, devices. Every line fits 80 columns.

use std::process::{Command, Stdio};

use insta::assert_snapshot;
use verbline_tests::{assert_fits, normalised, recording, skipped};

use crate::command::{app, generated};

const PLANS: [&str; 2] = ["tick-to-trade", "moex-replay"];

#[test]
fn help() {
    for command in ["", "run", "check", "graph", "keys", "devices", "ps", "stats", "top", "capture", "trace"] {
        let arguments = [command, "--help"];
        let shown = app().with(arguments.into_iter().filter(|part| !part.is_empty())).run().exited(0);
        assert_eq!(shown.stderr, "", "{shown}");
        assert_fits(&shown.stdout);
        let name = format!("help_{}", if command.is_empty() { "all" } else { command });
        assert_snapshot!(name, shown.stdout);
    }
}

#[test]
fn keys_of_a_plan() {
    let all = app().with(["keys"]).run().exited(0);
    assert_fits(&all.stdout);
    let port = app().with(["keys", "port"]).run().exited(0);
    assert!(port.stdout.starts_with("[port.NAME]: one queue pair\nkey "), "{port}");
    let stands_alone = format!("\n{}\n[ring.NAME]: ", port.stdout);
    assert!(all.stdout.contains(&stands_alone), "{all}");
    let refused = app().with(["keys", "prot"]).run().exited(2);
    assert!(refused.stderr.contains("a similar value exists: 'port'"), "{refused}");
}

#[test]
fn two_lcores_report() {
    let Some(run) = generated("1s", &["feed.drop_a=0.3", "feed.drop_b=0.3", "feed.drop_answers=0.0"]) else { return };
    let shown = run.run().exited(0);
    assert_fits(&shown.stdout);
    // A line that only a busy machine adds.
    let undisturbed = shown.stdout.split_inclusive('\n').filter(|line| !line.contains("the exchange did not run for"));
    let undisturbed: String = undisturbed.collect();
    // The spin time is measured on this machine, and the causes of wake-ups depend on the moment.
    let (sleepers, others): (Vec<_>, Vec<_>) = undisturbed.split("\n\n").partition(|part| part.starts_with("spin "));
    assert!(sleepers.iter().any(|part| part.starts_with("spin     lcore trader: ")), "{shown}");
    assert_snapshot!("report", normalised(&others.join("\n\n")));
}

#[test]
fn sums_of_the_shipped_plans() {
    for (plan, counts) in PLANS.into_iter().zip(["4 stages, 10 ports", "4 stages, 8 ports"]) {
        let recorded = (plan == "moex-replay").then(recording).flatten();
        let dir = recorded.as_ref().map(|dir| format!("feed.dir={}", dir.display()));
        let check = app().with(["check", "--explain", &format!("config/{plan}.toml")]);
        let shown = check.with(dir.iter().flat_map(|dir| ["--set", dir])).run();
        // Without the recording, the error is about its folder, and the sums are the same.
        let shown = shown.exited(if plan == "moex-replay" && recorded.is_none() { 2 } else { 0 });
        assert_fits(&shown.stdout);
        let valid = format!("config/{plan}.toml: valid; 2 lcores, {counts}\n");
        assert_eq!(shown.status.success(), shown.stdout.starts_with(&valid), "{shown}");
        // The memory depends on this machine.
        let of_the_plan = |part: &&str| ["pool.", "lcore."].iter().any(|start| part.starts_with(start));
        let sums: Vec<_> = shown.stdout.split("\n\n").filter(of_the_plan).collect();
        assert_snapshot!(format!("sums_{plan}"), sums.join("\n\n"));
    }
}

#[test]
fn the_shipped_plans_are_drawn_as_graphviz_reads_it() {
    for plan in PLANS {
        let plan = format!("config/{plan}.toml");
        let mermaid = app().with(["graph", &plan, "--format", "mermaid"]).run().exited(0);
        assert!(mermaid.stdout.starts_with("flowchart LR\n"), "{mermaid}");
        let dot = app().with(["graph", &plan]).run().exited(0);
        for name in ["lcore.exchange", "lcore.trader", "port.md_a", "stage.strategy", "239.1.1.2"] {
            assert!(dot.stdout.contains(name) && mermaid.stdout.contains(name), "{name}: {dot}");
        }
        let Some(svg) = drawn(&dot.stdout) else { return };
        assert!(svg.contains("<svg") && svg.contains("stage.strategy"), "{svg}");
    }
}

/// Graphviz's SVG of a drawing; asserts that it reports no syntax error.
fn drawn(dot: &str) -> Option<String> {
    let mut command = Command::new("dot");
    command.arg("-Tsvg").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut child) = command.spawn() else {
        skipped("Graphviz (dot) is not installed");
        return None;
    };
    let mut stdin = child.stdin.take().expect("a pipe");
    std::io::Write::write_all(&mut stdin, dot.as_bytes()).expect("dot reads");
    drop(stdin);
    let output = child.wait_with_output().expect("dot ends");
    let complaints = String::from_utf8_lossy(&output.stderr);
    let of_syntax: Vec<_> = complaints.lines().filter(|line| line.contains("syntax")).collect();
    assert!(output.status.success() && of_syntax.is_empty(), "{complaints}\n{dot}");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn devices() {
    let shown = app().with(["devices"]).run().exited(0);
    assert_fits(&shown.stdout);
    assert!(shown.stdout.contains("soft0  (provider = \"soft\")\n"), "{shown}");
    assert!(shown.stdout.contains("    gid_index 1      ::ffff:10.9.9.1, RoCE v2; a plan's choice\n"), "{shown}");

    let json = app().with(["devices", "--json"]).run().exited(0).json();
    assert_eq!(json["errors"], serde_json::json!([]));
    let devices = json["devices"].as_array().expect("a list");
    for name in ["soft0", "soft1"] {
        let device = devices.iter().find(|device| device["name"] == name && device["provider"] == "soft");
        let device = device.unwrap_or_else(|| panic!("no {name}: {json:#}"));
        for limit in ["max_qp", "max_qp_wr", "max_cqe", "max_sge", "max_mr", "max_mcast_groups", "max_srq", "max_mw"] {
            assert!(device[limit].as_u64() > Some(0), "{limit}: {device:#}");
        }
        let port = &device["ports"][0];
        assert_eq!((&port["port"], &port["state"]), (&1.into(), &"ACTIVE".into()), "{device:#}");
        let gids = port["gids"].as_array().expect("a list");
        let preferred: Vec<_> = gids.iter().filter(|gid| gid["preferred"] == true).collect();
        assert!(
            matches!(*preferred, [gid] if gid["gid"].as_str().unwrap().starts_with("::ffff:10.9.9.")),
            "{device:#}"
        );
        assert!(device["capabilities"].as_array().is_some_and(|names| names.contains(&"MEM_WINDOW_TYPE_2B".into())));
    }
}
