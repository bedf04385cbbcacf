//! Connections by address: diagnostics and results of plans with both ends, or with one.

use crate::common::{GOOD, catalog, catalog_with, good, loader, machine};
use verbline_plan::{Destination, Loader, Plan};

/// The good plan with its connection made by address instead of by name.
fn by_address(listens: bool, connects: bool) -> String {
    let mut text = GOOD.to_owned();
    let group = |group: &str, depth: &str| format!("transport = \"ud\"\nsend_to = \"{group}\"\n{depth}");
    if listens {
        text = text.replace("peer = \"port.orders\"", "listen = \"10.9.9.1:4420\"");
    } else {
        text = text.replace("transport = \"rc\"\npeer = \"port.orders\"", "transport = \"ud\"\njoin = [\"239.1.1.9\"]");
    }
    if connects {
        text = text.replace("peer = \"port.fills\"", "connect = \"10.9.9.1:4420\"\nconnect_timeout = \"5s\"");
    } else {
        text = text.replace("transport = \"rc\"\npeer = \"port.fills\"", &group("239.1.1.9", ""));
    }
    text
}

#[test]
fn a_connection_by_address_has_one_end_here_or_both() {
    for (listens, connects) in [(true, true), (true, false), (false, true)] {
        let text = by_address(listens, connects);
        let plan = loader().load_str("good.toml", &text).unwrap_or_else(|faults| panic!("{faults}"));
        // GOOD is on the software RNIC, which no other process reaches.
        let codes: Vec<_> = plan.warnings().iter().map(|warning| warning.code()).collect();
        assert_eq!(codes == ["this-process-only"], !(listens && connects), "{}", plan.warnings());
        if listens != connects {
            let shown = plan.warnings().render(false);
            insta::assert_snapshot!(format!("by_address_{listens}_{connects}_warning"), shown);
            let kernel = loader().sets(["device.nic0.provider=kernel", "device.nic0.name=rxe0"]);
            let kernel = kernel.load_str("good.toml", &text).unwrap_or_else(|faults| panic!("{faults}"));
            assert!(kernel.warnings().is_empty(), "{}", kernel.warnings());
        }
        let port = |name: &str| plan.ports().iter().find(|port| port.name == name).unwrap();
        let address = "10.9.9.1:4420".parse().unwrap();
        let (fills, orders) = (port("fills"), port("orders"));
        assert_eq!(fills.destination == Destination::Listen(address), listens);
        assert_eq!(orders.destination == Destination::Connect(address), connects);
        assert_eq!(fills.connect_timeout.as_secs(), 30);
        assert_eq!(orders.connect_timeout.as_secs(), if connects { 5 } else { 30 });
        assert_eq!((fills.reconnect, orders.reconnect), (listens, connects), "unless the plan says otherwise");
        let drawn: String = plan
            .to_mermaid()
            .lines()
            .filter(|line| line.contains("10.9.9.1"))
            .map(|line| format!("{line}\n"))
            .collect();
        insta::assert_snapshot!(format!("by_address_{listens}_{connects}"), drawn);
        if listens && connects {
            // A queue's depth does not depend on the peer; but a queue pair that a reconnect
            // replaces ends with a work request of its own.
            let sums = |plan: &Plan| {
                let is_of_queues = |of: &str| of != "file descriptors" && !of.starts_with("memory on pages");
                let of_queues = plan.sums().iter().filter(|sum| is_of_queues(&sum.of));
                of_queues.map(|sum| (sum.of.clone(), sum.needed)).collect::<Vec<_>>()
            };
            let mut expected = sums(&good());
            for (of, needed) in &mut expected {
                *needed +=
                    u64::from(["lcore.exchange completion queue", "lcore.gateway completion queue"].contains(&&**of));
            }
            assert_eq!(sums(&plan), expected);
        }
    }
}

/// The device has an address, and the listener another: the warning suggests one that other
/// processes reach. An IPv4 address is the same in either notation.
#[test]
fn a_listener_that_no_other_process_reaches_is_told_of_with_one_that_is_reached() {
    for (own, listen, better) in [
        ("127.0.0.1", "10.9.9.1:4420", Some(["127.0.0.1:4420", "0.0.0.0:4420"])),
        ("fd00::7", "10.9.9.1:4420", Some(["[fd00::7]:4420", "[::]:4420"])),
        ("fd00::7", "[fd00::7]:4420", None),
        ("::ffff:10.9.9.1", "10.9.9.1:4420", None),
        ("10.9.9.1", "[::ffff:10.9.9.1]:4420", None),
        ("10.9.9.1", "0.0.0.0:4420", None),
    ] {
        let text = by_address(true, false).replace("10.9.9.1:4420", listen);
        let set = format!("device.nic0.address={own}");
        let plan = loader().sets([&*set]).load_str("good.toml", &text).unwrap_or_else(|faults| panic!("{faults}"));
        let shown = plan.warnings().render(false).to_string();
        assert_eq!(shown.contains("this-process-only"), better.is_some(), "{shown}");
        let told = better.map(|[one, every]| format!("write `listen = \"{one}\"`, or `listen = \"{every}\"`"));
        let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(told.is_none_or(|told| shown.contains(&told)), "{shown}");
    }
}

#[test]
fn both_ends_of_an_address_are_held_against_each_other_as_peers_are() {
    let small = "[pool.small]\ndevice = \"nic0\"\npackets = 8192\ndata_bytes = 512\n\n[lcore.exchange]";
    let text = by_address(true, true)
        .replace("[lcore.exchange]", small)
        .replace("pool = \"packets\"\ntransport = \"rc\"", "pool = \"small\"\ntransport = \"rc\"")
        .replace("lcore = \"gateway\"\nout", "lcore = \"gateway\"\npool = \"packets\"\nout");
    let plan = loader().load_str("small.toml", &text).unwrap_or_else(|faults| panic!("{faults}"));
    assert_eq!(
        plan.warnings().iter().map(|one| one.code()).collect::<Vec<_>>(),
        ["short-buffers"],
        "{}",
        plan.warnings()
    );

    let mut catalog = catalog();
    catalog.kinds.iter_mut().for_each(|kind| kind.spec.message_bytes_max = 512);
    let plan = Loader::new(catalog, machine()).load_str("small.toml", &text);
    let plan = plan.unwrap_or_else(|faults| panic!("{faults}"));
    assert!(plan.warnings().is_empty(), "every stage keeps to 512 bytes: {}", plan.warnings());

    let text = text
        .replace("rx_depth_wr = 512\nnext = \"drop\"", "tx_depth_wr = 1")
        .replace("connect_timeout", "rx_depth_wr = 1\nnext=\"drop\"\npool = \"packets\"\nconnect_timeout");
    let deaf = loader().load_str("deaf.toml", &text).unwrap_or_else(|faults| panic!("{faults}"));
    assert!(deaf.warnings().iter().any(|one| one.code() == "peer-deaf"), "{}", deaf.warnings());
}

#[test]
fn a_time_out_without_an_address_has_no_effect() {
    let text = GOOD.replace("peer = \"port.fills\"", "peer = \"port.fills\"\nconnect_timeout = \"5s\"");
    let plan = loader().load_str("good.toml", &text).unwrap_or_else(|faults| panic!("{faults}"));
    insta::assert_snapshot!(plan.warnings().render(false));
}

#[test]
fn a_connection_may_be_made_once_only() {
    let text = by_address(true, true).replace("connect_timeout", "reconnect = false\nconnect_timeout");
    let plan = loader().load_str("good.toml", &text).unwrap_or_else(|faults| panic!("{faults}"));
    assert!(plan.warnings().is_empty(), "{}", plan.warnings());
    let reconnect = |name: &str| plan.ports().iter().find(|port| port.name == name).unwrap().reconnect;
    assert_eq!((reconnect("fills"), reconnect("orders")), (true, false));

    let text = GOOD.replace("peer = \"port.fills\"", "peer = \"port.fills\"\nreconnect = true");
    let plan = loader().load_str("good.toml", &text).unwrap_or_else(|faults| panic!("{faults}"));
    insta::assert_snapshot!(plan.warnings().render(false));
}

/// A server reconnects nobody, whether it listens or shares the listener of another port. The
/// reason names it.
#[test]
fn reconnect_has_no_effect_at_a_server() {
    let port = |name: &str, lcore: &str, listens: &str| {
        format!(
            "[lcore.{lcore}]\ncpu = \"allowed:{name}\"\n[port.p{name}]\nlcore = \"{lcore}\"\ndevice = \"nic\"\n\
             pool = \"p\"\ntransport = \"rc\"\n{listens}\nconnections_max = 4\nrx_shared_wr = 16\nnext = \"drop\"\n\
             reconnect = false\n"
        )
    };
    let text = "[device.nic]\nprovider = \"soft\"\n[pool.p]\ndevice = \"nic\"\npackets = 4096\ndata_bytes = 64\n";
    let text = text.to_owned()
        + &port("0", "one", "listen = \"10.9.9.1:7000\"")
        + &port("1", "two", "listen_with = \"port.p0\"");
    let plan = Loader::new(catalog_with([]), machine()).load_str("plan.toml", &text);
    let warnings = plan.unwrap_or_else(|faults| panic!("{faults}")).warnings().render(false);
    let warnings = warnings.split_whitespace().collect::<Vec<_>>().join(" ");
    for port in ["p0", "p1"] {
        let says = format!("`reconnect` has no effect: port.{port} connects to nobody");
        assert!(warnings.contains(&says), "{port}: {warnings}");
    }
}

/// Without another path of its peer's a connection never switches: the plan is refused, whether
/// the ends name each other or meet at an address.
#[test]
fn an_alternate_path_of_one_end_is_refused() {
    let key = "alternate_gid = \"fe80::2\"";
    for text in [GOOD.to_owned(), by_address(true, true)] {
        let at = ["orders", "fills"].map(|name| format!("[port.{name}]\n"));
        let both = at.iter().fold(text.clone(), |text, at| text.replace(at.as_str(), &format!("{at}{key}\n")));
        loader().load_str("both.toml", &both).unwrap_or_else(|faults| panic!("{faults}"));
        for (at, [has, lacks]) in at.iter().zip([["orders", "fills"], ["fills", "orders"]]) {
            let one = text.replace(at.as_str(), &format!("{at}{key}\n"));
            let faults = loader().load_str("one.toml", &one).expect_err("the other end has none");
            let said = faults.errors().map(|fault| fault.message().to_owned()).collect::<Vec<_>>();
            assert_eq!(said, [format!("port.{has} has an alternate path, port.{lacks} none")]);
        }
    }
}
