//! The software RNIC over UDP beside bare sockets, between two processes of this host: the groups
//! of `./x bench wire`, and its omitted rows.

use crate::contender::Contender;
use crate::group::{Group, Plot};
use crate::peer::rivals;
use crate::row::{Goal, Row, Source};

use Goal::{OursBelow, RatioAtLeast, RatioAtMost, Reported};
use Source::{Figure, Nobody};

/// All groups, in the order of the table.
pub(crate) fn all() -> Vec<Group> {
    vec![one_way(), write(), connections(), idle()]
}

/// Rows that need root and the kernel's software RDMA, and so the guest; and how to measure them.
pub(crate) const OMITTED: [(&str, &str); 2] = [
    (
        "wire-perftest",
        "latency and bandwidth from 64 B to 64 KiB over a cable, beside rxe with perftest: needs root and rdma_rxe. \
         `tests/guest/wire-rate` measures both in turn, in the guest",
    ),
    (
        "wire-loss",
        "goodput at 0.1 % and 1 % loss, beside rxe over the same cable: needs rdma_rxe too. `tests/guest/wire-rate \
         --loss` measures it in the guest",
    ),
];

fn one_way() -> Group {
    let against = |name, figure, peer_name, goal| Row {
        what: "a 64-byte RC SEND one way over UDP between two processes that poll",
        peer_name,
        scale: 1e3,
        ..Row::new(name, "µs", Figure(0, "ns"), Figure(1, figure), goal)
    };
    Group::new(
        "wire-one-way",
        vec![Contender::ours("wire-one-way 64"), rivals::udp("UDP ping-pong", "ping-pong 64")],
        vec![
            against("wire-one-way", "ns", "sendto, recvfrom", RatioAtMost(1.25)),
            // As ours sends, which has to learn first how the kernel numbers what leaves by a
            // connected socket: the ICRC covers that.
            against("wire-one-way-connected", "connected_ns", "send, recv, connected", Reported),
        ],
    )
}

/// The payload of the largest MTU with the headers of a packet in the middle of a message.
const SEGMENT_BYTES: u32 = 4096 + 16;

fn write() -> Group {
    let against = |name, figure, peer_name, goal| Row {
        what: "RDMA WRITEs of 64 KiB over UDP between two processes that poll, bytes a second",
        peer_name,
        scale: 1e9,
        ..Row::new(name, "GB/s", Figure(0, "bytes_per_s"), Figure(1, figure), goal)
    };
    let bare = rivals::udp("sendmmsg, GSO", &format!("stream {SEGMENT_BYTES}"));
    Group::new(
        "wire-write",
        vec![Contender::ours("wire-write 65536"), bare],
        vec![
            against("wire-write-64KiB", "bytes_per_s", "sendmmsg with GSO, recvmmsg", RatioAtLeast(0.8)),
            against("wire-write-64KiB-gro", "gro_bytes_per_s", "the same, GRO on arrival", Reported),
        ],
    )
}

fn connections() -> Group {
    let x = vec![1, 16, 256, 1024];
    let contenders: Vec<Contender> =
        x.iter().map(|count| Contender::ours(&format!("wire-connections {count}"))).collect();
    let last = contenders.len() - 1;
    let rows = vec![Row {
        what: "a 64-byte SEND over UDP to another process, 32 over each connection in turn until they are \
               acknowledged, into one SRQ: 1024 connections beside 1",
        peer_name: "ours over one",
        ..Row::new("wire-connections", "ns/message", Figure(last, "ns"), Figure(0, "ns"), RatioAtMost(1.2))
    }];
    let plot = Plot { x_name: "connections in turn", x, y_name: "ns a message" };
    Group { plot: Some(plot), ..Group::new("wire-connections", contenders, rows) }
}

fn idle() -> Group {
    let alone = |name, what, unit, figure, limit| Row {
        what,
        peer_name: "none",
        ..Row::new(name, unit, Figure(0, figure), Nobody, OursBelow(limit))
    };
    let rows = vec![
        alone(
            "wire-idle-cpu",
            "CPU time of the busier of two processes in event mode with 1024 connections open between them and no \
             traffic, 22 s",
            "% of a core",
            "percent",
            0.5,
        ),
        alone(
            "wire-idle-datagrams",
            "datagrams that go either way meanwhile, for each connection: keep-alives",
            "datagrams/s",
            "datagrams",
            0.5,
        ),
    ];
    Group { rounds: Some(3), ..Group::new("wire-idle", vec![Contender::ours("wire-idle 1024")], rows) }
}
