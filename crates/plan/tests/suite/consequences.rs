//! Consequences of a fault are not reported as faults of their own, faults of `--set` point at the
//! flag, and advice fits the port.

use crate::common::{GOOD, catalog_with, loader, machine};
use verbline_plan::{Diagnostics, Loader, Plan};

/// A server and its client on the software RNIC.
const SERVER: &str = r#"
[device.nic]
provider = "soft"
[pool.p]
device = "nic"
packets = 8192
data_bytes = 64
[lcore.a]
cpu = 0
[lcore.b]
cpu = 1
[port.server]
lcore = "a"
device = "nic"
pool = "p"
transport = "rc"
listen = "10.9.9.1:7000"
connections_max = 64
rx_shared_wr = 64
tx_depth_wr = 4
next = "stage.echo"
[stage.echo]
use = "book"
lcore = "a"
out = { changed = "port.server" }
params = { door = "front", tries = 3 }
[port.clients]
lcore = "b"
device = "nic"
pool = "p"
transport = "rc"
connect = "10.9.9.1:7000"
connections = 64
rx_shared_wr = 64
tx_depth_wr = 4
next = "port.clients"
"#;

fn load_text(text: &str, sets: &[&str]) -> Result<Plan, Diagnostics> {
    Loader::new(catalog_with([]), machine()).sets(sets.iter().copied()).load_str("plan.toml", text)
}

fn load(sets: &[&str]) -> Result<Plan, Diagnostics> {
    load_text(SERVER, sets)
}

/// Each key of the plan in turn gets an invalid value, which is the only fault reported.
#[test]
fn a_value_that_cannot_be_read_is_the_only_fault() {
    let plan = load(&[]).unwrap_or_else(|faults| panic!("{faults}"));
    assert!(plan.warnings().is_empty(), "{}", plan.warnings());
    for (text, whole) in [(SERVER, "a server"), (GOOD, "the good plan")] {
        let mut table = "";
        for line in text.lines() {
            if let Some(head) = line.strip_prefix('[') {
                table = head.trim_end_matches(']');
            }
            let Some((key, _)) = line.split_once(" = ").filter(|_| !table.is_empty() && table.contains('.')) else {
                continue;
            };
            // Nobody knows yet which keys the app reads.
            if key == "params" || table.ends_with(".params") {
                continue;
            }
            let set = format!("{table}.{key}=[[]]");
            let load =
                if whole == "a server" { load(&[&set]) } else { loader().sets([&set]).load_str("good.toml", text) };
            let faults = load.expect_err(&set);
            let codes: Vec<_> = faults.iter().map(|fault| (fault.code(), fault.location().to_string())).collect();
            assert!(matches!(codes[..], [("wrong-type" | "bad-value", _)]), "{whole}: {set}: {faults}");
        }
    }
}

#[test]
fn what_a_kind_refuses_of_a_table_that_a_flag_changed_points_at_the_flag() {
    let params = |sets: &[&str]| {
        let plan = load(sets).unwrap_or_else(|faults| panic!("{faults}"));
        plan.stages()[0].params.clone()
    };
    let set = "stage.echo.params.door=nodoor";
    for key in ["", "door"] {
        let shown = params(&[set]).refuse(key, "there is no such door").render(false);
        assert!(shown.contains(&format!("--set {set}")), "{key}: {shown}");
    }
    // A key that the flag did not touch keeps its place, and so does a table without flags.
    let shown = params(&[set]).refuse("tries", "three are too many").render(false);
    assert!(shown.contains("plan.toml:26") && !shown.contains("--set"), "{shown}");
    let shown = params(&[]).refuse("", "there is no such door").render(false);
    assert!(shown.contains("plan.toml:26") && !shown.contains("--set"), "{shown}");
}

#[test]
fn two_listeners_at_one_address_are_advised_by_what_they_have() {
    let second = "[port.second]\nlcore = \"a\"\ndevice = \"nic\"\npool = \"p\"\ntransport = \"rc\"\nlisten = \
                  \"10.9.9.1:7000\"\nconnections_max = 8\nrx_shared_wr = 8\nnext = \"stage.echo\"\n";
    let help = |text: &str| {
        let faults = load_text(text, &[]).expect_err("two listen there");
        let fault = faults.errors().find(|fault| fault.code() == "address-taken").unwrap_or_else(|| panic!("{faults}"));
        fault.help_texts().join("; ")
    };
    let both = help(&format!("{SERVER}{second}"));
    assert!(both.contains("takes 64: `listen_with = \"port.server\"`") && !both.contains("16"), "{both}");
    let alone = SERVER.replace("connections_max = 64\nrx_shared_wr = 64", "rx_depth_wr = 64");
    let alone = help(&format!("{}{second}", alone.replace("connections = 64\nrx_shared_wr = 64", "rx_depth_wr = 64")));
    assert!(alone.contains("`connections_max = 9`"), "{alone}");
}
