//! The parts of a server, beside runs without them: many connections, opening connections,
//! operations from stages, and work spread over rings and merged.

use crate::contender::Contender;
use crate::group::{Group, Plot};
use crate::row::{Goal, Row, Source};

use Goal::{RatioAtLeast, RatioAtMost};
use Source::{Figure, Known};

pub(crate) fn connections() -> Group {
    let x = vec![1, 4, 16, 64, 256, 1024];
    let contenders: Vec<Contender> = x.iter().map(|count| Contender::ours(&format!("connections {count}"))).collect();
    let last = contenders.len() - 1;
    let rows = vec![Row {
        what: "a 64-byte message through the engine, sent and received on one lcore, 32 over each connection in \
               turn, from one SRQ: 1024 connections beside 1",
        peer_name: "ours at the least",
        ..Row::new("scale-connections", "ns/message", Figure(last, "ns"), Figure(0, "ns"), RatioAtMost(1.2))
    }];
    let plot = Plot { x_name: "connections of a port in turn", x, y_name: "ns a message" };
    Group { plot: Some(plot), ..Group::new("scale-connections", contenders, rows) }
}

/// The number of connections that open per second beside one whose round trips are measured: the
/// goal's number, and a quarter more.
const OPENING_PER_S: u32 = 2500;

pub(crate) fn opening() -> Group {
    let p99 = [Figure(1, "opening_p99_ns"), Figure(1, "undisturbed_p99_ns")];
    let paced = Contender::ours(&format!("opening --pace-per-s {OPENING_PER_S}"));
    Group::new(
        "opening",
        vec![Contender::ours("opening"), Contender { name: "opening, paced", ..paced }],
        vec![
            Row {
                what: "connections that a port opens to another of its process, both on one lcore: 1024 of them",
                peer_name: "what a gateway needs",
                ..Row::new("open-rate", "connections/s", Figure(0, "per_s"), Known(2000.0), RatioAtLeast(1.0))
            },
            Row {
                what: "round trips over a connection of that server on that lcore while the others open, 2,500 a \
                       second, 99th percentile",
                peer_name: "the same, undisturbed",
                ..Row::new("open-p99", "ns", p99[0], p99[1], RatioAtMost(1.5))
            },
        ],
    )
}

pub(crate) fn operations() -> Group {
    let against = |name, what, at: usize| Row {
        what,
        peer_name: "our verbs layer alone, lists of 32",
        scale: 1e9 / 4096.0,
        ..Row::new(name, "GB/s", Figure(at, "messages_per_s"), Figure(at + 1, "messages_per_s"), RatioAtLeast(0.95))
    };
    let pair = |verb: &str| {
        let from_stage = Contender::ours(&format!("stage-one-sided {verb} 4096"));
        [from_stage, Contender { name: "verbs alone", ..Contender::ours(&format!("one-sided {verb} 4096")) }]
    };
    Group::new(
        "stage-operations",
        [pair("write"), pair("read")].into_iter().flatten().collect(),
        vec![
            against("stage-write-4KiB", "RDMA WRITEs of 4 KiB from a stage, bytes a second", 0),
            against("stage-read-4KiB", "RDMA READs of 4 KiB from a stage, bytes a second", 2),
        ],
    )
}

pub(crate) fn graph() -> Group {
    let against = |name, what, peer_name, at| Row {
        what,
        peer_name,
        scale: 1e6,
        ratio: Some("ratio"),
        ..Row::new(name, "M packets/s", Figure(at, "with_per_s"), Figure(at, "without_per_s"), RatioAtLeast(0.9))
    };
    Group::new(
        "graph",
        vec![
            Contender { name: "fan-out", ..Contender::ours("fan-out") },
            Contender { name: "fan-in", ..Contender::ours("fan-in") },
        ],
        vec![
            against(
                "fan-out",
                "packets of two sources spread by key over two rings to another lcore, in turn with the peer, 9 \
                 pairs a round",
                "a ring for each source",
                0,
            ),
            against("fan-in", "two rings from another lcore into one stage, likewise", "one ring", 1),
        ],
    )
}
