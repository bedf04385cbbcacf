//! No text makes the loader panic, and an accepted plan keeps its promises.

use crate::common::{GOOD, loader};
use proptest::prelude::*;
use verbline_plan::{Consumer, Destination, Plan, Port, Target, Transport};

/// The good plan with its connection made by address, both ends of it.
fn by_address() -> String {
    let text = GOOD
        .replace("peer = \"port.orders\"", "listen = \"10.9.9.1:4420\"")
        .replace("peer = \"port.fills\"", "connect = \"10.9.9.1:4420\"\nconnect_timeout = \"5s\"");
    assert_eq!(text.matches("10.9.9.1:4420").count(), 2);
    text
}

/// One of the two plans.
fn plan() -> impl Strategy<Value = String> {
    prop_oneof![Just(GOOD.to_owned()), Just(by_address())]
}

/// The promises of a valid plan, checked without the code that made it.
fn check_promises(plan: &Plan) {
    for lcore in plan.lcores() {
        let depths = lcore.ports.iter().map(|id| u64::from(plan[*id].rx_depth_wr) + u64::from(plan[*id].tx_depth_wr));
        assert!(depths.sum::<u64>() <= u64::from(lcore.cq_depth_wc));
        let place = |id| lcore.stages.iter().position(|stage| *stage == id);
        for stage in &lcore.stages {
            assert_eq!(plan[*stage].lcore, lcore.id);
            for target in &plan[*stage].outputs {
                let places = match target {
                    Target::Spread(id) => &plan[*id].to[..],
                    one => std::slice::from_ref(one),
                };
                for to in places {
                    match to {
                        Target::Stage(to) => assert!(place(*stage) < place(*to), "a stage runs before those it feeds"),
                        Target::Ring(ring) => assert!(plan[*ring].lane_of(lcore.id).is_some(), "a lane of this lcore"),
                        Target::Port(port) => assert_eq!(plan[*port].lcore, lcore.id),
                        Target::Spread(_) => panic!("a spread leads to no other"),
                        Target::Drop => {}
                    }
                }
            }
        }
    }
    for ring in plan.rings() {
        assert!(!ring.lanes.is_empty() && ring.lane_of(ring.to_lcore).is_none());
        for lane in &ring.lanes {
            assert!(plan[lane.lcore].rings_out.contains(&ring.id) && !lane.from.is_empty() && lane.batch_packets > 0);
        }
        let to = match ring.to {
            Consumer::Stage(id) => plan[id].lcore,
            Consumer::Port(id) => plan[id].lcore,
        };
        assert_eq!(to, ring.to_lcore);
    }
    for port in plan.ports() {
        assert_eq!(port.rx_depth_wr > 0, port.pool.is_some() && port.next.is_some());
        assert!(port.signal_every_wr <= port.tx_depth_wr);
        assert_eq!(plan[port.lcore].device, Some(port.device));
        check_ends(plan, port);
    }
    for pool in plan.pools() {
        let posted =
            plan.ports().iter().filter(|port| port.pool == Some(pool.id)).map(|port| u64::from(port.rx_depth_wr));
        let sent = pool.sent_by.iter().map(|id| u64::from(plan[*id].tx_depth_wr));
        let cached = pool.lcores.len() as u64 * u64::from(pool.cache_packets);
        assert!(posted.sum::<u64>() + sent.sum::<u64>() + cached <= u64::from(pool.packets));
    }
    assert!(plan.sums().iter().all(|sum| sum.holds()));
}

/// The address is one that can be listened at or reached, by a connection, of which a port has many
/// only if they are reliable. No two ports of a provider listen at one address.
fn check_ends(plan: &Plan, port: &Port) {
    let (Destination::Listen(address) | Destination::Connect(address)) = port.destination else { return };
    assert!(port.transport == Transport::Rc || port.transport == Transport::Uc && port.connections.is_none());
    assert!(address.port() != 0 && !address.ip().is_multicast());
    assert!(matches!(port.destination, Destination::Listen(_)) || !address.ip().is_unspecified());
    let same = |other: &&Port| {
        other.destination == port.destination && plan[other.device].provider == plan[port.device].provider
    };
    if matches!(port.destination, Destination::Listen(_)) {
        assert_eq!(plan.ports().iter().filter(same).count(), 1, "one listens at {address}");
    }
}

/// Loads a text, and uses all results.
fn exercise(text: &str, flags: &[String]) {
    let inspection = loader().sets(flags.iter().cloned()).inspect_str("fuzz.toml", text);
    assert_eq!(inspection.plan.is_none(), inspection.diagnostics.errors().count() > 0);
    inspection.diagnostics.render(false);
    serde_json::to_string(&inspection.diagnostics).unwrap();
    inspection.explain();
    inspection.drawing.to_dot();
    inspection.drawing.to_mermaid();
    if let Some(plan) = &inspection.plan {
        check_promises(plan);
    }
}

/// Scraps of plans, to be put in the wrong places.
fn scrap() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("[".to_owned()),
        Just("]]".to_owned()),
        Just("\"\"\"".to_owned()),
        Just("= 1".to_owned()),
        Just("\n[ring.orders]\n".to_owned()),
        Just("\n[spread.s]\nby = \"key\"\nto = [\"ring.orders\", \"stage.book\"]\n".to_owned()),
        Just("\n[spread.s]\nby = \"copy\"\nto = [\"ring.orders\"]\n".to_owned()),
        Just("\"spread.s\"".to_owned()),
        Just("\nfull = \"hold\"\n".to_owned()),
        Just("\nfull = \"displace\"\npriority = 3\n".to_owned()),
        Just("\n[[stage]]\n".to_owned()),
        Just("{ a = ".to_owned()),
        Just("\"ring.orders\"".to_owned()),
        Just("stage.book".to_owned()),
        Just("\nlisten = \"0.0.0.0:4420\"\n".to_owned()),
        Just("\nconnect = \"[fe80::1]:1\"\n".to_owned()),
        Just("\npeer = \"port.fills\"\n".to_owned()),
        Just("-1".to_owned()),
        Just("99999999999999999999".to_owned()),
        Just("\u{feff}ä\u{0}".to_owned()),
        "\\PC{0,8}",
    ]
}

/// Any TOML value.
fn value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        any::<i64>().prop_map(|number| number.to_string()),
        (0..2000_u32).prop_map(|number| number.to_string()),
        any::<bool>().prop_map(|truth| truth.to_string()),
        Just("1.5".to_owned()),
        Just("nan".to_owned()),
        Just("1979-05-27T07:32:00Z".to_owned()),
        prop_oneof![
            Just("drop"),
            Just("stage.book"),
            Just("ring.orders"),
            Just("spread.s"),
            Just("port.orders"),
            Just("port.md_a"),
            Just("packets"),
            Just("trader"),
            Just("gateway"),
            Just("nic0"),
            Just("rc"),
            Just("ud"),
            Just("239.1.1.1"),
            Just("1s"),
            Just("10.9.9.1:4420"),
            Just("0.0.0.0:4420"),
            Just("[::]:4420"),
            Just("[fe80::1%3]:4420"),
            Just("10.9.9.1:0"),
            Just("10.9.9.1:65536"),
            Just("239.1.1.1:4420"),
            Just("10.9.9.1"),
            Just("")
        ]
        .prop_map(|word| format!("\"{word}\"")),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(|items| format!("[{}]", items.join(", "))),
            prop::collection::vec(inner, 0..3).prop_map(|items| {
                let items: Vec<String> = items.iter().enumerate().map(|(at, item)| format!("k{at} = {item}")).collect();
                format!("{{ {} }}", items.join(", "))
            }),
        ]
    })
}

/// An address, or nearly one.
fn address() -> impl Strategy<Value = String> {
    let host = prop_oneof![
        Just("10.9.9.1".to_owned()),
        Just("0.0.0.0".to_owned()),
        Just("[::]".to_owned()),
        Just("[fe80::1]".to_owned()),
        Just("[::ffff:10.9.9.1]".to_owned()),
        Just("239.1.1.1".to_owned()),
        Just("[ff02::1]".to_owned()),
        "\\PC{0,6}",
    ];
    let port = prop_oneof![Just("4420".to_owned()), Just("4421".to_owned()), Just("0".to_owned()), "[0-9]{0,6}"];
    (host, port).prop_map(|(host, port)| format!("{host}:{port}").replace(['"', '\\'], ""))
}

/// The places of all lines `key = value`.
fn key_lines(text: &str) -> Vec<usize> {
    let lines = text.lines().enumerate();
    lines.filter(|(_, line)| line.contains(" = ") && !line.starts_with('#')).map(|(at, _)| at).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn mutated_text_never_panics(
        mut text in plan(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0..40_usize, scrap()), 1..4),
    ) {
        for (at, cut, scrap) in edits {
            let start = text.floor_char_boundary(at.index(text.len() + 1));
            let end = text.floor_char_boundary((start + cut).min(text.len()));
            text.replace_range(start..end.max(start), &scrap);
        }
        exercise(&text, &[]);
    }

    #[test]
    fn lines_moved_about_never_panic(
        text in plan(),
        swaps in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 1..6),
    ) {
        let mut lines: Vec<&str> = text.lines().collect();
        for (from, to) in swaps {
            let line = lines.remove(from.index(lines.len()));
            lines.insert(to.index(lines.len() + 1), line);
        }
        exercise(&lines.join("\n"), &[]);
    }

    #[test]
    fn any_value_at_any_key_never_panics(
        text in plan(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), value()), 1..4),
    ) {
        let keys = key_lines(&text);
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        for (at, value) in edits {
            let line = &mut lines[keys[at.index(keys.len())]];
            let key = line.split(" = ").next().unwrap_or_default().to_owned();
            *line = format!("{key} = {value}");
        }
        exercise(&lines.join("\n"), &[]);
    }

    #[test]
    fn sizes_either_add_up_or_are_refused_by_a_sum(
        depths in prop::collection::vec(1..3000_u32, 8),
        (packets, cache, burst) in (1..20_000_u32, 0..600_u32, 1..=1024_u32),
    ) {
        let keys = [
            "port.md_a.rx_depth_wr", "port.md_b.rx_depth_wr", "port.fills.rx_depth_wr", "port.feed_a.tx_depth_wr",
            "port.feed_b.tx_depth_wr", "port.orders.tx_depth_wr", "ring.orders.depth", "lcore.trader.cq_depth_wc",
        ];
        let mut flags: Vec<String> = keys.iter().zip(&depths).map(|(key, depth)| format!("{key}={depth}")).collect();
        flags.extend([
            format!("pool.packets.packets={packets}"),
            format!("pool.packets.cache_packets={cache}"),
            format!("lcore.trader.burst={burst}"),
            "port.orders.signal_every_wr=1".to_owned(),
        ]);
        let pool_fits = packets >= depths[..7].iter().sum::<u32>() + 3 * cache;
        match loader().sets(flags).load_str("good.toml", GOOD) {
            Ok(plan) => {
                check_promises(&plan);
                prop_assert!(pool_fits && depths[7] >= depths[0] + depths[1]);
            }
            Err(faults) => {
                let is_known = |code| matches!(code, "pool-too-small" | "cq-too-small");
                prop_assert!(faults.errors().all(|fault| is_known(fault.code())), "{}", faults);
            }
        }
    }

    // The addresses alone, in all combinations, sensible or not.
    #[test]
    fn addresses_meet_or_are_refused(
        ends in prop::collection::vec((prop_oneof![Just("listen"), Just("connect"), Just("peer")], address()), 2..5),
        transport in prop_oneof![4 => Just("rc"), 1 => Just("uc"), 1 => Just("ud")],
    ) {
        let ports = ["orders", "fills", "orders", "fills"];
        let mut flags: Vec<String> = (ends.iter().zip(ports))
            .map(|((key, address), port)| format!("port.{port}.{key}=\"{address}\""))
            .collect();
        flags.push(format!("port.fills.transport=\"{transport}\""));
        exercise(&by_address(), &flags);
        exercise(GOOD, &flags);
    }

    #[test]
    fn any_flag_never_panics(
        flags in prop::collection::vec(
            prop_oneof![
                "\\PC{0,20}",
                "[a-z\\.\"= \\[\\]#]{0,12}",
                ("(device|pool|lcore|port|ring|stage)\\.(packets|trader|orders|book|nic0)(\\.[a-z_]{1,8})?", value())
                    .prop_map(|(key, value)| format!("{key}={value}")),
            ],
            1..4,
        )
    ) {
        exercise(GOOD, &flags);
    }

    #[test]
    fn any_text_never_panics(text in "\\PC{0,200}") {
        exercise(&text, &[]);
    }
}
