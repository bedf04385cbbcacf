//! A hop between two cores: bulks of small items beside DPDK's ring, and messages of 64 bytes, by
//! value, beside the common choices of a Rust program.

use crate::contender::Contender;
use crate::group::Group;
use crate::peer::{dpdk_test, rivals};
use crate::row::{Goal, Row, Source};

pub(crate) fn ring() -> Group {
    let what = "hand-off between two cores, bulk 32, the doorbell rung after each";
    let against = |name, peer, peer_name, goal| Row {
        name,
        what,
        unit: "ns/item",
        ours: Source::Figure(0, "ns"),
        peer: Source::Figure(peer, "ns"),
        peer_name,
        scale: 1.0,
        goal,
        ratio: None,
    };
    Group {
        name: "ring",
        contenders: vec![
            Contender::ours("ring"),
            Contender { name: "rtrb", ..Contender::ours("rtrb") },
            dpdk_test::ring(),
            rivals::dpdk("rte_ring (long)", "ring"),
        ],
        rows: vec![
            against("ring-rte", 2, "rte_ring SP/SC, ring_perf_autotest", Goal::RatioAtMost(1.0)),
            against("ring-rte-long", 3, "rte_ring SP/SC, 4 M items a run", Goal::RatioAtMost(1.0)),
            against("ring-rtrb", 1, "rtrb, raw chunks", Goal::RatioAtMost(1.05)),
        ],
        rounds: None,
        plot: None,
    }
}

pub(crate) fn latency() -> Group {
    let what = "a message of 64 bytes from one core to another, one at a time: half of a round trip";
    let names = ["hop-latency-crossbeam", "hop-latency-disruptor", "hop-latency-iceoryx2"];
    group("hop-latency", "latency", what, names, Goal::RatioAtMost(0.8))
}

pub(crate) fn rate() -> Group {
    let what = "messages of 64 bytes from one core to another, both at full speed: time a message";
    let names = ["hop-rate-crossbeam", "hop-rate-disruptor", "hop-rate-iceoryx2"];
    // This is 1.2 times the rate.
    group("hop-rate", "rate", what, names, Goal::RatioAtMost(1.0 / 1.2))
}

fn group(name: &'static str, by: &'static str, what: &'static str, names: [&'static str; 3], goal: Goal) -> Group {
    let libraries = ["crossbeam", "disruptor", "iceoryx2"];
    let peers =
        ["crossbeam ArrayQueue", "disruptor, one producer, batches of 32", "iceoryx2 publish-subscribe, in a process"];
    let row = |(place, (name, peer_name))| Row {
        name,
        what,
        unit: "ns",
        ours: Source::Figure(0, "ns"),
        peer: Source::Figure(place + 1, "ns"),
        peer_name,
        scale: 1.0,
        goal,
        ratio: None,
    };
    let rows = names.into_iter().zip(peers).enumerate().map(row).collect();
    let ours = std::iter::once(Contender::ours(&format!("hop-{by}")));
    let contenders = ours.chain(libraries.map(|library| rivals::hop(library, by))).collect();
    Group { name, contenders, rows, rounds: None, plot: None }
}
