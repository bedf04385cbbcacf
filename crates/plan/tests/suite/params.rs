//! `Params::parse`: a stage's or a section's own type, with faults located in the file.

use crate::common::loader;
use serde::Deserialize;
use verbline_plan::{Diagnostic, Plan};

#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct Feed {
    dir: String,
    #[serde(default = "one")]
    speed: f64,
    #[serde(default)]
    mode: Mode,
    limit: Option<u32>,
    #[serde(default)]
    channels: Vec<Channel>,
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct Channel {
    group: std::net::Ipv4Addr,
    lossy: bool,
}

#[derive(Debug, Deserialize, PartialEq, Default)]
#[serde(rename_all = "lowercase")]
enum Mode {
    #[default]
    Live,
    Replay {
        seed: u64,
    },
}

fn one() -> f64 {
    1.0
}

/// A plan with one section only.
fn plan(section: &str) -> Plan {
    let text = format!("{section}\n[lcore.only]\ncpu = 0\n");
    loader().load_str("params.toml", &text).unwrap_or_else(|faults| panic!("{faults}"))
}

fn fault(section: &str) -> Diagnostic {
    plan(section).section("feed").unwrap().parse::<Feed>().expect_err(section)
}

#[test]
fn parses_what_serde_can() {
    let text = "[feed]\ndir = 'x'\nspeed = 2\nmode = { replay = { seed = 18_446_744_073_709_551_615 } }\n\
                limit = 0x10\n[[feed.channels]]\ngroup = '239.1.1.1'\nlossy = true";
    let feed: Feed = plan(text).section("feed").unwrap().parse().unwrap();
    let channels = vec![Channel { group: [239, 1, 1, 1].into(), lossy: true }];
    assert_eq!(
        feed,
        Feed { dir: "x".into(), speed: 2.0, mode: Mode::Replay { seed: u64::MAX }, limit: Some(16), channels }
    );
    let plain: Feed = plan("[feed]\ndir = 'x'\nmode = 'live'").section("feed").unwrap().parse().unwrap();
    assert_eq!(plain, Feed { dir: "x".into(), speed: 1.0, mode: Mode::Live, limit: None, channels: Vec::new() });
}

#[test]
fn an_absent_section_is_an_empty_one() {
    let plan = plan("");
    let section = plan.section("feed").unwrap();
    assert!(plan.section("fed").is_none(), "nobody registered it");
    section.parse::<std::collections::HashMap<String, i32>>().unwrap();
    insta::assert_snapshot!(section.parse::<Feed>().unwrap_err().render(false));
}

#[test]
fn faults_are_located() {
    let mut shown = String::new();
    for section in [
        "[feed]\ndir = 'x'\nsped = 2",
        "[feed]\nspeed = 2",
        "[feed]\ndir = 7",
        "[feed]\ndir = 'x'\nlimit = -3",
        "[feed]\ndir = 'x'\nmode = 'replai'",
        "[feed]\ndir = 'x'\nmode = { live = 3 }",
        "[feed]\ndir = 'x'\nmode = { replay = { sede = 3 } }",
        "[feed]\ndir = 'x'\nmode = 3",
        "[feed]\ndir = 'x'\n[[feed.channels]]\ngroup = '239.1.1'\nlossy = true",
        "[feed]\ndir = 'x'\n[[feed.channels]]\ngroup = '239.1.1.1'",
        "[feed]\ndir = 'x'\nchannels = [{ group = '239.1.1.1', lossy = 1 }]",
    ] {
        shown += &fault(section).render(false);
        shown += "\n\n";
    }
    insta::assert_snapshot!(shown);
}

#[test]
fn a_caller_can_refuse_a_value() {
    let plan = plan("[feed]\ndir = 'x'\nmode = { replay = { seed = 3 } }");
    let section = plan.section("feed").unwrap();
    assert_eq!(section.refuse("mode.replay.seed", "no").location().to_string(), "params.toml:3:28");
    assert_eq!(section.refuse("absent", "no").location().to_string(), "params.toml:1:2");
    assert_eq!(section.refuse("dir", "no such folder").to_string(), "error[bad-value] params.toml:2:7: no such folder");
}

#[test]
fn a_flag_is_blamed_for_its_value() {
    let loaded = loader().sets(["feed.dir=7"]).load_str("params.toml", "[lcore.only]\ncpu = 0\n");
    let plan = loaded.unwrap_or_else(|faults| panic!("{faults}"));
    let fault = plan.section("feed").unwrap().parse::<Feed>().unwrap_err();
    assert_eq!(fault.location().to_string(), "--set feed.dir=7");
}

#[test]
fn durations_are_written_as_the_plan_writes_them() {
    #[derive(Debug, Deserialize)]
    struct Timed {
        #[serde(deserialize_with = "verbline_plan::duration::deserialize")]
        every: std::time::Duration,
    }
    let timed: Timed = plan("[feed]\nevery = '50us'").section("feed").unwrap().parse().unwrap();
    assert_eq!(timed.every, std::time::Duration::from_micros(50));
    let fault = plan("[feed]\nevery = '50'").section("feed").unwrap().parse::<Timed>().unwrap_err();
    assert_eq!((fault.code(), fault.location().line, fault.location().column), ("bad-value", 2, 9));
}
