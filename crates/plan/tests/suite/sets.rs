//! `--set KEY=VALUE`: applied before the checks, and cited for the faults that it causes.

use crate::common::{GOOD, loader};
use verbline_plan::{Diagnostics, IdlePolicy, Plan};

fn load<const N: usize>(flags: [&str; N]) -> Result<Plan, Diagnostics> {
    loader().sets(flags).load_str("good.toml", GOOD)
}

#[test]
fn values_are_toml_or_else_strings() {
    let plan = load([
        "lcore.trader.idle=event",
        "lcore.trader.burst=16",
        "name=\"quoted\"",
        "port.md_a.join=[\"239.9.9.9\", \"239.9.9.8\"]",
        "port.feed_a.send_to=239.9.9.9",
        "port.md_b.timestamps=false",
        "feed.dir=/tmp/a=b",
        "risk.limits.orders=5",
    ])
    .unwrap_or_else(|faults| panic!("{faults}"));
    assert_eq!((plan.lcores()[1].idle, plan.lcores()[1].burst_packets, plan.name()), (IdlePolicy::Event, 16, "quoted"));
    assert_eq!(plan.ports().iter().find(|port| port.name == "md_a").unwrap().join.len(), 2);
    assert!(plan.ports().iter().all(|port| port.timestamps == (port.name != "md_b")));
    let feed: std::collections::HashMap<String, serde_json::Value> = plan.section("feed").unwrap().parse().unwrap();
    assert_eq!(feed["dir"], "/tmp/a=b");
    let risk: serde_json::Value = plan.section("risk").unwrap().parse().unwrap();
    assert_eq!(risk, serde_json::json!({ "limits": { "orders": 5 } }));
}

/// A flag may be copied from a file: a number would be a string else, and a string have its quotes.
#[test]
fn blanks_around_a_value_are_no_part_of_it() {
    let flags = ["lcore.trader.burst = 16", "name = \"quoted\"", "lcore.trader.idle =event ", "feed.dir= \"a b \" "];
    let plan = load(flags).unwrap_or_else(|faults| panic!("{faults}"));
    assert_eq!((plan.lcores()[1].idle, plan.lcores()[1].burst_packets, plan.name()), (IdlePolicy::Event, 16, "quoted"));
    let feed: std::collections::HashMap<String, serde_json::Value> = plan.section("feed").unwrap().parse().unwrap();
    assert_eq!(feed["dir"], "a b ");
    let faults = load(["lcore.trader.burst = 0 "]).expect_err("it is out of range").render(false);
    let marked: Vec<&str> = faults.lines().filter(|line| line.contains("--set") || line.contains('^')).collect();
    assert_eq!(marked[0].find('0'), marked[1].find('^'), "{faults}");
}

#[test]
fn a_run_can_not_be_called_nothing() {
    for flag in ["name=", "name=\" \""] {
        let faults = load([flag]).expect_err("it is empty");
        assert_eq!(faults.errors().map(|fault| fault.code()).collect::<Vec<_>>(), ["bad-value"], "{flag}: {faults}");
    }
}

#[test]
fn the_last_of_two_wins() {
    let plan = load(["lcore.trader.burst=16", "lcore.trader.burst=8"]).unwrap_or_else(|faults| panic!("{faults}"));
    assert_eq!(plan.lcores()[1].burst_packets, 8);
}

#[test]
fn a_whole_resource_can_be_added() {
    let plan = load(["lcore.spare={ cpu = 3 }"]).unwrap_or_else(|faults| panic!("{faults}"));
    assert_eq!(plan.lcores().len(), 4);
    assert_eq!(plan.locate(plan.lcores()[3].span).to_string(), "--set lcore.spare={ cpu = 3 }");
}

#[test]
fn faults_point_at_the_flag() {
    let faults = load([
        "pool.packets.packets=64",
        "lcore.trader.burst=0",
        "lcore.trader.brust=8",
        "port.md_a.next=stage.arbitre",
        "pool.packet.packets=1",
        "name.first=x",
        "nothing",
        "=1",
        "a b=1",
        "port.md_b.rx_depth_wr=many",
    ])
    .expect_err("every flag is wrong");
    insta::assert_snapshot!(faults.render(false));
}

/// The file has a table there, and the flag something else in its place.
#[test]
fn a_flag_that_replaces_a_table_is_the_one_to_blame() {
    for flag in ["lcore.trader=", "lcore.trader=3", "lcore=3", "feed=1", "stage.book.params=1", "lcore.trader={}"] {
        let faults = load([flag]).expect_err("it takes a table").render(false);
        let first = faults.lines().find(|line| line.contains("-->") || line.contains("--set")).unwrap_or_default();
        assert!(first.contains(&format!("--set {flag}")), "{flag}: {faults}");
    }
}

#[test]
fn a_sum_names_the_flag_that_a_term_comes_from() {
    let faults = load(["port.md_a.rx_depth_wr=9000"]).expect_err("more than the pool has");
    insta::assert_snapshot!(faults.render(false));
}

/// A number out of range is no text: the fault is the number's.
#[test]
fn a_number_of_too_many_digits_is_not_a_string() {
    let digits = "9".repeat(60);
    let faults = load([&format!("lcore.trader.burst={digits}")]).expect_err("no key takes it").render(false);
    assert!(faults.contains("the integer has too many digits") && !faults.contains("string"), "{faults}");
    let quoted = load([&format!("name=\"{digits}\"")]).unwrap_or_else(|faults| panic!("{faults}"));
    assert_eq!(quoted.name(), digits);
}
