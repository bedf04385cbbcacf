//! Block storage: a file through a store beside fio's engine for io_uring, both with registered
//! files and buffers, on the same file and CPU; and the NVMe over Fabrics target.

use crate::contender::Contender;
use crate::group::{Group, Plot};
use crate::peer::fio::{self, Place};
use crate::row::{Goal, Row, Source};

/// On a disk, which limits both, and in memory (tmpfs), where the costs of each remain.
pub(crate) fn all() -> Vec<Group> {
    let [disk, memory] = [Place::Disk, Place::Memory];
    vec![
        random(["store-read", "store-read-p99"], disk, false, "random reads of 4 KiB at depth 32 of a file on a disk"),
        random(
            ["store-write", "store-write-p99"],
            disk,
            true,
            "random writes of 4 KiB at depth 32 to a file on a disk",
        ),
        random(
            ["store-memory-read", "store-memory-read-p99"],
            memory,
            false,
            "random reads of 4 KiB at depth 32 of a file on tmpfs",
        ),
        random(
            ["store-memory-write", "store-memory-write-p99"],
            memory,
            true,
            "random writes of 4 KiB at depth 32 to a file on tmpfs",
        ),
        nvme(),
        nvme_protected(),
        nvme_connections(),
    ]
}

/// Commands of 4 KiB to a namespace in memory. The target has one lcore; the initiator, which
/// verifies every block, has the other.
fn nvme() -> Group {
    let contenders = vec![
        Contender::ours("nvme 4"),
        Contender { name: "nvme, writes", ..Contender::ours("nvme 4 --writes") },
        Contender { name: "nvme, one by one", ..Contender::ours("nvme 1 --depth 1") },
    ];
    let per_s = |name, what, at, goal| Row {
        what,
        peer_name: "a million, the goal",
        scale: 1e3,
        ..Row::new(name, "K/s", Source::Figure(at, "per_s"), Source::Known(1e6), goal)
    };
    let rows = vec![
        per_s("nvme-read", "reads of 4 KiB from the NVMe-oF target, 256 under way", 0, Goal::RatioAtLeast(1.0)),
        per_s("nvme-write", "writes of 4 KiB to it, likewise", 1, Goal::Reported),
        Row {
            what: "a read of 4 KiB from it, one at a time, median",
            peer_name: "none",
            scale: 1e3,
            ..Row::new("nvme-latency", "µs", Source::Figure(2, "p50_ns"), Source::Nobody, Goal::Reported)
        },
    ];
    Group::new("nvme", contenders, rows)
}

/// Reads of protected blocks: checked by the device, behind a response that is already posted, and
/// by the CPU before the response; each beside unchecked reads.
fn nvme_protected() -> Group {
    let contenders = vec![
        Contender { name: "nvme, unprotected", ..Contender::ours("nvme 1 --depth 1") },
        Contender { name: "nvme, pipelined", ..Contender::ours("nvme 1 --depth 1 --checks device") },
        Contender { name: "nvme, CPU", ..Contender::ours("nvme 1 --depth 1 --checks cpu") },
        Contender { name: "nvme, unprotected, 256", ..Contender::ours("nvme 4") },
        Contender { name: "nvme, pipelined, 256", ..Contender::ours("nvme 4 --checks device") },
        Contender { name: "nvme, CPU, 256", ..Contender::ours("nvme 4 --checks cpu") },
    ];
    let row = |name, what, [ours, peer]: [usize; 2], goal| Row {
        what,
        peer_name: "unprotected",
        scale: 1e3,
        ..Row::new(name, "µs", Source::Figure(ours, "p50_ns"), Source::Figure(peer, "p50_ns"), goal)
    };
    let [one, many] = ["a protected read of 4 KiB, one at a time, median", "the same, 256 under way, median"];
    let goal = || Goal::RatioAtMost(1.05);
    let rows = vec![
        row("nvme-pipelined", one, [1, 0], goal()),
        row("nvme-checked", "the same, checked by the CPU", [2, 0], Goal::Reported),
        row("nvme-pipelined-many", many, [4, 3], goal()),
        row("nvme-checked-many", "the same, checked by the CPU", [5, 3], Goal::Reported),
    ];
    Group::new("nvme-protected", contenders, rows)
}

fn nvme_connections() -> Group {
    // The last is the most that a port of the target serves.
    let x = vec![1, 4, 16, 64, 126];
    let contenders: Vec<Contender> = x.iter().map(|count| Contender::ours(&format!("nvme {count}"))).collect();
    let [last, first] = [contenders.len() - 1, 0].map(|at| Source::Figure(at, "ns"));
    let rows = vec![Row {
        what: "a read of 4 KiB from the NVMe-oF target, 256 under way: over 126 connections beside 1",
        peer_name: "ours over one connection",
        ..Row::new("nvme-connections", "ns", last, first, Goal::RatioAtMost(1.2))
    }];
    let plot = Plot { x_name: "connections, 256 reads under way in all", x, y_name: "ns a read of 4 KiB" };
    Group { plot: Some(plot), ..Group::new("nvme-connections", contenders, rows) }
}

fn random(names: [&'static str; 2], place: Place, writes: bool, what: &'static str) -> Group {
    let [name, p99] = names;
    let row = |name, unit, figure, goal| Row {
        what,
        peer_name: "fio, io_uring, fixedbufs, registerfiles",
        scale: 1e3,
        ..Row::new(name, unit, Source::Figure(0, figure), Source::Figure(1, figure), goal)
    };
    let rows = vec![row(name, "K/s", "per_s", Goal::RatioAtLeast(0.95)), row(p99, "µs", "p99_ns", Goal::Reported)];
    let contenders = vec![fio::ours(place, writes), fio::contender(place, writes)];
    Group::new(name, contenders, rows)
}
