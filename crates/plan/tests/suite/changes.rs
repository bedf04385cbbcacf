//! Changes of running ports by a plan that is read again: the changed keys, how each is taken, and
//! refusals at their places.

use verbline_plan::{Diagnostic, Plan, Taking};

use crate::common::loader;

/// Two ports of one transport on one lcore. `told`: further keys of the first.
fn text(transport: &str, told: &str, other_end: [&str; 2]) -> String {
    let port = |name: &str, keys: &str, end: &str| {
        format!(
            "[port.{name}]\nlcore = \"a\"\ndevice = \"nic\"\npool = \"packets\"\ntransport = \"{transport}\"\n{end}\n\
             rx_depth_wr = 64\ntx_depth_wr = 64\nnext = \"stage.sink\"\n{keys}\n"
        )
    };
    "[device.nic]\nprovider = \"soft\"\n[pool.packets]\ndevice = \"nic\"\npackets = 4096\ndata_bytes = 256\n\
     [lcore.a]\ncpu = 0\n[stage.sink]\nuse = \"sink\"\nlcore = \"a\"\n"
        .to_owned()
        + &port("told", told, other_end[0])
        + &port("usual", "", other_end[1])
}

fn plan(transport: &str, told: &str, other_end: [&str; 2]) -> Plan {
    loader().load_str("run.toml", &text(transport, told, other_end)).unwrap_or_else(|faults| panic!("{faults}"))
}

const PAIR: [&str; 2] = ["peer = \"port.usual\"", "peer = \"port.told\""];
const BY_ADDRESS: [&str; 2] = ["connect = \"10.9.9.1:1\"", "connect = \"10.9.9.1:2\""];
const FOR_GOOD: [&str; 2] = ["connect = \"10.9.9.1:1\"\nreconnect = false", "connect = \"10.9.9.1:2\""];

/// The changed keys, and how each is taken.
fn taken(transport: &str, end: [&str; 2], from: &str, to: &str) -> Vec<(String, Taking)> {
    let changes = plan(transport, from, end).port_changes(&plan(transport, to, end)).unwrap();
    assert!(changes.iter().all(|change| change.port.index() == 0));
    changes.iter().flat_map(|change| &change.keys).map(|key| (key.to_string(), key.taking)).collect()
}

/// The line and the message of each refusal.
fn refused(transport: &str, end: [&str; 2], from: &str, to: &str) -> Vec<(usize, String)> {
    let faults = plan(transport, from, end).port_changes(&plan(transport, to, end)).unwrap_err();
    assert!(faults.errors().all(|fault| fault.code() == "not-while-running"));
    let told = |fault: &Diagnostic| (fault.location().line, fault.message().to_owned());
    faults.errors().map(told).collect()
}

/// The line of the first occurrence of `what`.
fn line_of(text: &str, what: &str) -> usize {
    text.lines().position(|line| line.contains(what)).unwrap() + 1
}

#[test]
fn each_key_of_a_pair_is_taken_as_the_state_table_has_it() {
    let drained = ["timeout = 16 (was left out)", "retry_cnt = 3 (was 7)", "rnr_retry = 6 (was 7)"];
    let path = ["traffic_class = 104 (was left out)", "hop_limit = 3 (was left out)"];
    let keys = "timeout = 16\nretry_cnt = 3\nrnr_retry = 6\nmin_rnr_timer = 12\ntraffic_class = 104\nhop_limit = 3\n\
                service_level = 2\npkey = 0xffff\nops_depth_wr = 8\nmax_rd_atomic = 4\nrate_limit = 1000";
    let mut expected: Vec<(&str, Taking)> = drained.map(|key| (key, Taking::Drained)).into();
    expected.push(("min_rnr_timer = 12 (was 1)", Taking::Sending));
    expected.extend(path.map(|key| (key, Taking::Drained)));
    let rest = ["service_level = 2", "pkey = 65535", "max_rd_atomic = 4"].map(|key| format!("{key} (was left out)"));
    expected.extend(rest.iter().map(|key| (key.as_str(), Taking::Drained)));
    expected.push(("rate_limit = 1000 (was left out)", Taking::Sending));
    let found = taken("rc", PAIR, "ops_depth_wr = 8", keys);
    assert_eq!(found.iter().map(|(key, taking)| (key.as_str(), *taking)).collect::<Vec<_>>(), expected);
    assert_eq!(taken("rc", PAIR, keys, keys), []);
    let path = "traffic_class = 4\nhop_limit = 3\nservice_level = 2\nqkey = 9";
    assert!(taken("ud", PAIR, "", path).iter().all(|(_, taking)| *taking == Taking::Sending));
    assert_eq!(
        taken("uc", PAIR, "traffic_class = 4", ""),
        [("traffic_class left out (was 4)".into(), Taking::Drained)]
    );
}

#[test]
fn what_the_connection_manager_agrees_on_waits_for_the_next_connection() {
    let keys = "timeout = 16\ntraffic_class = 104\nops_depth_wr = 8\nmax_rd_atomic = 4\nmax_dest_rd_atomic = 6";
    let by = |from, to| taken("rc", BY_ADDRESS, from, to).into_iter().map(|(_, taking)| taking).collect::<Vec<_>>();
    let (drained, next) = (Taking::Drained, Taking::NextConnection);
    assert_eq!(by("ops_depth_wr = 8", keys), [drained, drained, next, next]);
    assert_eq!(by(keys, "ops_depth_wr = 8"), [next; 4]);
    let many = "connections = 4\n";
    assert_eq!(by(many, &format!("{many}retry_cnt = 2\nmin_rnr_timer = 3")), [next; 2]);
    let never = refused("rc", FOR_GOOD, "", "max_dest_rd_atomic = 6");
    assert!(never[0].1.contains("`max_dest_rd_atomic` of port.told can't change now"), "{never:?}");
}

#[test]
fn what_no_connected_queue_pair_takes_is_refused_where_it_stands() {
    let to = "path_mtu = 512\nmax_dest_rd_atomic = 6\ntimeout = 3";
    let shown = refused("rc", PAIR, "path_mtu = 1024", to);
    let says = |key: &str, with: &str| format!("`{key}` of port.told can't change now: it runs with {with}");
    let at = |key: &str| line_of(&text("rc", to, PAIR), key);
    let expected =
        [(at("path_mtu"), says("path_mtu", "1024")), (at("max_dest"), says("max_dest_rd_atomic", "none in its plan"))];
    assert_eq!(shown, expected);
    // A removed key is refused at its table.
    let shown = refused("uc", PAIR, "path_mtu = 1024", "");
    assert_eq!(shown, [(line_of(&text("uc", "", PAIR), "[port.told]"), says("path_mtu", "1024"))]);
    let signs = "ops_depth_wr = 8\nsignature_keys = 4";
    let shown = refused("rc", PAIR, signs, &format!("{signs}\nretry_cnt = 2"));
    assert_eq!(shown[0].1, says("retry_cnt", "7"));
    let way = |gid: &str| format!("alternate_gid = \"{gid}\"");
    let usual = format!("{}\n{}", PAIR[1], way("fe80::3"));
    let shown = refused("rc", [PAIR[0], &usual], &way("fe80::1"), &way("fe80::2"));
    assert_eq!(shown[0].1, "the alternate path of port.told can't change now");
}

#[test]
fn a_plan_says_what_it_runs_with_once_it_has_taken_a_change() {
    let (mut runs, next) = (plan("rc", PAIR_KEYS[0], PAIR), plan("rc", PAIR_KEYS[1], PAIR));
    for change in runs.port_changes(&next).unwrap() {
        change.keys.iter().for_each(|key| runs.take(change.port, key));
    }
    assert_eq!(runs.port_changes(&next).unwrap(), []);
    assert_eq!(runs.ports()[0].retries, next.ports()[0].retries);
    // Ports of other names or transports are ignored.
    assert_eq!(plan("ud", "", PAIR).port_changes(&next).unwrap(), []);
}

const PAIR_KEYS: [&str; 2] = ["timeout = 14", "timeout = 18\nhop_limit = 3"];
