//! The plan's attributes of queue pairs reach the queue pairs.

use verbline_verbs::Mtu;
use verbline_verbs::datagram::DEFAULT_QKEY;
use verbline_verbs::expert::{AttrMask, QpAttr};

use super::lcores;
use super::retries::{built, loaded, port, refusal};
use crate::connection::spec::SharedOptions;
use crate::setup::assemble::Built;

const PATH: &str = "traffic_class = 104\nhop_limit = 3\nservice_level = 2";

/// Both ports' attributes, in the order of the plan.
fn seen(built: &mut Built, mask: AttrMask) -> [QpAttr; 2] {
    let ports = &mut built.lcores[0].ports;
    assert_eq!(ports.len(), 2);
    [0, 1].map(|index: usize| ports[index].qp.query(mask).unwrap())
}

fn pair_text(transport: &str, told: &str, usual: &str) -> String {
    let one = |name, peer, keys: &str| port(name, &format!("peer = \"port.{peer}\"\n{keys}"));
    let text = one("told", "usual", told) + &one("usual", "told", usual);
    lcores(&["a"], "event") + &text.replace("\"rc\"", &format!("\"{transport}\""))
}

fn pair(transport: &str, told: &str) -> Built {
    built(&pair_text(transport, told, ""))
}

#[test]
fn paths_of_peers_are_those_of_their_own_ports() {
    for transport in ["rc", "uc"] {
        let seen = seen(&mut pair(transport, PATH), AttrMask::AV);
        let path = |attr: &QpAttr| (attr.ah.traffic_class, attr.ah.hop_limit, attr.ah.service_level);
        assert_eq!(seen.each_ref().map(path), [(104, 3, 2), (0, 64, 0)], "{transport}");
    }
}

#[test]
fn both_ends_of_a_pair_have_the_mtu_that_one_says_and_at_most_the_active_one() {
    for (told, expected) in [("", Mtu::B4096), ("path_mtu = 512", Mtu::B512)] {
        let seen = seen(&mut pair("rc", told), AttrMask::PATH_MTU);
        assert_eq!(seen.map(|attr| attr.path_mtu), [expected; 2], "{told}");
    }
}

#[test]
fn a_port_has_as_many_reads_under_way_as_it_says_and_no_more_than_its_peer_serves() {
    let mask = AttrMask::MAX_QP_RD_ATOMIC | AttrMask::MAX_DEST_RD_ATOMIC;
    let depths = |told: &str, usual: &str| {
        let seen = seen(&mut built(&pair_text("rc", told, usual)), mask);
        seen.map(|attr| (attr.max_rd_atomic, attr.max_dest_rd_atomic))
    };
    let reads = |depth: u32| format!("ops_depth_wr = 16\nmax_rd_atomic = {depth}");
    assert_eq!(depths("", ""), [(1, 1), (1, 1)]);
    assert_eq!(depths(&reads(4), ""), [(1, 1), (1, 1)], "the peer serves one");
    assert_eq!(depths(&reads(4), "max_dest_rd_atomic = 6"), [(4, 1), (1, 6)]);
    assert_eq!(depths(&reads(9), "max_dest_rd_atomic = 6"), [(6, 1), (1, 6)]);
}

#[test]
fn datagram_ports_have_the_qkey_that_they_say_and_send_with_their_peers() {
    let seen = seen(&mut pair("ud", "qkey = 77"), AttrMask::QKEY);
    assert_eq!(seen.map(|attr| attr.qkey), [77, DEFAULT_QKEY]);
}

#[test]
fn the_partition_is_found_in_the_devices_table_or_refused_with_what_is_there() {
    for transport in ["rc", "uc", "ud"] {
        let seen = seen(&mut pair(transport, "pkey = 0xffff"), AttrMask::PKEY_INDEX);
        assert_eq!(seen.map(|attr| attr.pkey_index), [0, 0]);
    }
    let refused = refusal(&pair_text("ud", "pkey = 0x8001", ""));
    assert!(refused.ends_with("soft0 has no P_Key 0x8001 at port 1; those that it has: 0xffff"), "{refused}");
}

#[test]
fn a_depth_that_the_device_has_not_is_refused() {
    let refused = refusal(&pair_text("rc", "ops_depth_wr = 8\nmax_rd_atomic = 129", ""));
    assert!(refused.contains("port.told: max_rd_atomic") && refused.contains("128"), "{refused}");
}

#[test]
fn a_rate_limit_is_refused_by_a_device_that_paces_nothing() {
    let refused = refusal(&pair_text("rc", "rate_limit = 1_000_000", ""));
    assert!(refused.contains("soft0 has no rate limit for RC QPs (IBV_QP_RATE_LIMIT)"), "{refused}");
    let connects = port("told", "connect = \"10.9.9.1:4711\"\nrate_limit = 1_000_000");
    let refused = refusal(&(lcores(&["a"], "event") + &connects));
    assert!(refused.contains("soft0 has no rate limit for RC QPs (IBV_QP_RATE_LIMIT)"), "{refused}");
}

#[test]
fn connections_by_address_ask_for_the_traffic_class_and_the_depths_of_their_ports() {
    let connects = |name, keys: &str| port(name, &format!("connect = \"10.9.9.1:4711\"\n{keys}"));
    let told = "traffic_class = 104\nops_depth_wr = 8\nmax_rd_atomic = 4\nmax_dest_rd_atomic = 6";
    let text = connects("told", told) + &connects("usual", "");
    let built = built(&(lcores(&["a"], "event") + &text));
    let asked = built.to_connect.iter().map(|spec| spec.port.options.now());
    let asked: Vec<_> =
        asked.map(|options| (options.traffic_class, options.initiator_depth, options.responder_resources)).collect();
    assert_eq!(asked, [(Some(104), 4, 6), (None, 1, 1)]);
}

#[test]
fn connections_that_are_made_from_now_on_have_what_the_plan_has_said_since() {
    let text = |keys: &str| lcores(&["a"], "event") + &port("told", &format!("connect = \"10.9.9.1:4711\"\n{keys}"));
    let mut built = built(&text("timeout = 11"));
    let changes = built.known.plan.port_changes(&loaded(&text("traffic_class = 8\nmin_rnr_timer = 3"))).unwrap();
    let options = built.to_connect[0].port.options.clone();
    let now = |options: &SharedOptions| {
        let now = options.now();
        (now.timeout, now.traffic_class, now.min_rnr_timer)
    };
    assert_eq!(now(&options), (Some(11), None, 1));
    built.known.take(changes[0].port, &changes[0].keys);
    assert_eq!(now(&options), (None, Some(8), 3));
}
