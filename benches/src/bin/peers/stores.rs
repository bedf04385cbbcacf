//! Block storage: a file through a store beside fio's engine for io_uring, both with registered
//! files and buffers, on the same file and CPU.

use crate::group::Group;
use crate::peer::fio::{self, Place};
use crate::row::{Goal, Row, Source};

/// On a disk, which bounds both, and in memory (tmpfs), where what remains is what each costs.
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
    ]
}

fn random(names: [&'static str; 2], place: Place, writes: bool, what: &'static str) -> Group {
    let [name, p99] = names;
    let row = |name, unit, figure, scale, goal| Row {
        name,
        what,
        unit,
        ours: Source::Figure(0, figure),
        peer: Source::Figure(1, figure),
        peer_name: "fio, io_uring, fixedbufs, registerfiles",
        scale,
        goal,
        ratio: None,
    };
    let rows =
        vec![row(name, "K/s", "per_s", 1e3, Goal::RatioAtLeast(0.95)), row(p99, "µs", "p99_ns", 1e3, Goal::Reported)];
    let contenders = vec![fio::ours(place, writes), fio::contender(place, writes)];
    Group { name, contenders, rows, rounds: None, plot: None }
}
