//! All comparisons: their contenders, and the rows read from them. Contenders of a group take
//! turns.

use crate::contender::Contender;
use crate::group::{Group, Plot};
use crate::hops;
use crate::ours::Books;
use crate::peer::ucx::{self, Test};
use crate::peer::{counted, dpdk_test, fabric, rivals, testpmd};
use crate::row::{Goal, Row, Source};
use crate::{observed, servers, stores};

use Goal::{OursBelow, RatioAtLeast, RatioAtMost, Reported};
use Source::{Figure, Known, Nobody};

/// All groups, in the order of the table.
pub(crate) fn all() -> Vec<Group> {
    let mut all = vec![
        one_way(),
        send_rate(),
        sends("send-4KiB", 4096, UCX_SEND_4K),
        sends("send-64KiB", 65_536, UCX_SEND_64K),
        sends_that_fit(),
        one_sided("write-4KiB", "write", 4096, UCX_PUT_4K),
        one_sided("write-64KiB", "write", 65_536, UCX_PUT_64K),
        one_sided("read-4KiB", "read", 4096, UCX_GET_4K),
        one_sided("read-64KiB", "read", 65_536, UCX_GET_64K),
        hops::ring(),
        hops::latency(),
        hops::rate(),
        stage_call(),
        pool(),
        null_ports("null-io", false),
        null_ports("null-macswap", true),
        wake_up(),
        idle_cpu(),
        saturated(),
        post_and_poll(),
        itch_parse(),
        itch_book(),
        itch_book_large(),
        tick_to_trade(),
        observed::group(),
        servers::operations(),
        servers::opening(),
        servers::graph(),
        servers::connections(),
        scaling_stages(),
        scaling_queue_pairs(),
        scaling_queue_pairs_shared(),
        scaling_lcores(),
        scaling_pool(),
    ];
    all.extend(stores::all());
    all
}

fn one_way() -> Group {
    const UCX: &[Test] = &[Test { env: "", args: "-d memory -x posix -t am_lat -s 64 -n 1000000" }];
    let what = "a 64-byte RC SEND one way between two lcores, software RNIC";
    let against = |name, peer, peer_name, goal| Row {
        what,
        peer_name,
        ..Row::new(name, "ns", Figure(0, "ns"), Figure(peer, "ns"), goal)
    };
    Group::new(
        "one-way",
        vec![
            Contender::ours("one-way 64"),
            ucx::contender("UCX am_lat", UCX),
            fabric::contender(64, 1_000_000),
            Contender { name: "cache line", ..Contender::ours("cache-line") },
        ],
        vec![
            against("one-way-ucx", 1, "UCX posix am_lat", RatioAtMost(0.8)),
            against("one-way-libfabric", 2, "libfabric shm", RatioAtMost(0.8)),
            against("one-way-floor", 3, "bare cache line", RatioAtMost(1.6)),
        ],
    )
}

fn send_rate() -> Group {
    const UCX: &[Test] = &[Test { env: "", args: "-d memory -x posix -t am_bw -s 64 -n 4000000" }];
    Group::new(
        "rate",
        vec![Contender::ours("send-rate 64"), ucx::contender("UCX am_bw", UCX)],
        vec![Row {
            what: "64-byte RC SENDs a second between two lcores",
            peer_name: "UCX posix am_bw",
            scale: 1e6,
            ..Row::new(
                "rate-64B",
                "M messages/s",
                Figure(0, "messages_per_s"),
                Figure(1, "messages_per_s"),
                RatioAtLeast(2.0),
            )
        }],
    )
}

// UCX's posix transport takes messages of up to 8 KiB; longer ones need a longer segment, or the
// kernel's copy (cma).
const UCX_SEND_4K: &[Test] = &[Test { env: "", args: "-d memory -x posix -t am_bw -D bcopy -s 4096 -n 400000" }];
const UCX_SEND_64K: &[Test] = &[
    Test { env: "UCX_POSIX_SEG_SIZE=128k", args: "-d memory -x posix -t am_bw -D bcopy -s 65536 -n 40000" },
    Test { env: "UCX_TLS=posix,cma,self", args: "-t tag_bw -s 65536 -n 40000" },
];
const UCX_PUT_4K: &[Test] = &[Test { env: "", args: "-d memory -x posix -t put_bw -D bcopy -s 4096 -n 1000000" }];
const UCX_PUT_64K: &[Test] = &[Test { env: "", args: "-d memory -x posix -t put_bw -D short -s 65536 -n 100000" }];
const UCX_GET_4K: &[Test] = &[Test { env: "", args: "-d memory -x posix -t get -D bcopy -s 4096 -n 1000000" }];
const UCX_GET_64K: &[Test] = &[Test { env: "", args: "-d memory -x posix -t get -D bcopy -s 65536 -n 100000" }];

fn sends(name: &'static str, bytes: u32, tests: &'static [Test]) -> Group {
    transfers(name, format!("send-rate {bytes}"), bytes, tests, "RC SENDs between two lcores, bytes a second")
}

/// Lists of four into eight receives: the buffers of both ends are 768 KiB, and stay in an L2 cache
/// of a megabyte.
fn sends_that_fit() -> Group {
    let bytes = 65_536;
    let (ours, write) = (Figure(0, "messages_per_s"), Figure(1, "messages_per_s"));
    let write_rate = Contender { name: "ours, WRITE", ..Contender::ours(&format!("one-sided write {bytes}")) };
    Group::new(
        "send-64KiB-fits",
        vec![Contender::ours(&format!("send-rate-one-core {bytes}")), write_rate],
        vec![Row {
            what: "RC SENDs of 64 KiB whose buffers fit the second cache, both ends on one core, bytes a second",
            peer_name: "our own WRITE",
            scale: 1e9 / f64::from(bytes),
            ..Row::new("send-64KiB-fits", "GB/s", ours, write, RatioAtLeast(0.9))
        }],
    )
}

fn one_sided(name: &'static str, verb: &str, bytes: u32, tests: &'static [Test]) -> Group {
    let what = if verb == "write" { "RDMA WRITEs, bytes a second" } else { "RDMA READs, bytes a second" };
    transfers(name, format!("one-sided {verb} {bytes}"), bytes, tests, what)
}

fn transfers(name: &'static str, subject: String, bytes: u32, tests: &'static [Test], what: &'static str) -> Group {
    // Both sides count messages; the row shows bytes.
    let scale = 1e9 / f64::from(bytes);
    let (ours, peer) = (Figure(0, "messages_per_s"), Figure(1, "messages_per_s"));
    Group::new(
        name,
        vec![Contender::ours(&subject), ucx::contender("UCX", tests)],
        vec![Row { what, peer_name: "UCX posix", scale, ..Row::new(name, "GB/s", ours, peer, RatioAtLeast(1.2)) }],
    )
}

fn stage_call() -> Group {
    let against = |name, what, ours, peer| Row {
        what,
        peer_name: "rte_graph, graph_perf_autotest",
        ..Row::new(name, "ns", ours, peer, RatioAtMost(1.0))
    };
    let call = "what one more stage that sends its batch on adds to a turn; a sixth of a walk over six such nodes";
    let inside = "the same beside cycles/call of such a node, which leaves out the walk's own work between the calls";
    let turn = "a turn of an lcore over source, four such stages and sink; a walk over source, four nodes and sink";
    Group::new(
        "stage",
        vec![
            Contender { name: "ours, batch 256", ..Contender::ours("stage-call 256") },
            Contender { name: "ours, batch 1", ..Contender::ours("stage-call 1") },
            dpdk_test::graph(),
        ],
        vec![
            against("stage-call-256", call, Figure(0, "call_ns"), Figure(2, "node_256_ns")),
            against("stage-call-1", call, Figure(1, "call_ns"), Figure(2, "node_1_ns")),
            Row {
                goal: Reported,
                ..against("stage-inside-256", inside, Figure(0, "call_ns"), Figure(2, "call_256_ns"))
            },
            Row { goal: Reported, ..against("stage-inside-1", inside, Figure(1, "call_ns"), Figure(2, "call_1_ns")) },
            // Our turn takes packets from a pool and back, polls, and keeps the time; the walk
            // passes no real packets.
            Row { goal: Reported, ..against("stage-turn-256", turn, Figure(0, "turn_ns"), Figure(2, "walk_256_ns")) },
            Row { goal: Reported, ..against("stage-turn-1", turn, Figure(1, "turn_ns"), Figure(2, "walk_1_ns")) },
        ],
    )
}

fn pool() -> Group {
    let against = |name, what, figure, peer_name, goal| Row {
        what,
        peer_name,
        ..Row::new(name, "ns/packet", Figure(0, figure), Figure(1, figure), goal)
    };
    Group::new(
        "pool",
        vec![Contender::ours("pool"), rivals::dpdk("rte_mempool", "mempool")],
        vec![
            against("pool", "get and put, bulk 32, cached", "ns", "rte_mempool with cache", RatioAtMost(0.9)),
            against(
                "pool-packets",
                "get and put, bulk 32, cached, packets made ready for data",
                "fresh_ns",
                "rte_pktmbuf_alloc_bulk, _free_bulk",
                RatioAtMost(0.9),
            ),
        ],
    )
}

fn null_ports(name: &'static str, macswap: bool) -> Group {
    let (subject, mode, what, peer_name, goal) = if macswap {
        let what =
            "two null ports on one core, 64 bytes copied in and out, addresses swapped: packets a second and port";
        ("null-ports --macswap", "macswap", what, "testpmd macswap, net_null copy=1", 1.2)
    } else {
        let what = "two null ports on one core, forwarding to each other: packets a second and port";
        ("null-ports", "io", what, "testpmd io, net_null", 1.5)
    };
    let (ours, peer) = (Figure(0, "packets_per_s"), Figure(1, "packets_per_s"));
    Group::new(
        name,
        vec![Contender::ours(subject), testpmd::contender("testpmd", mode, macswap)],
        vec![Row { what, peer_name, scale: 1e6, ..Row::new(name, "M packets/s", ours, peer, RatioAtLeast(goal)) }],
    )
}

fn wake_up() -> Group {
    Group::new(
        "wake",
        vec![Contender::ours("wake-up"), Contender { name: "eventfd, epoll", ..Contender::ours("bare-wake-up") }],
        vec![Row {
            what: "from a stage on one lcore to a stage on another that is asleep, median",
            peer_name: "bare eventfd and epoll",
            scale: 1e3,
            ..Row::new("wake-p50", "µs", Figure(0, "p50_ns"), Figure(1, "p50_ns"), RatioAtMost(1.15))
        }],
    )
}

fn idle_cpu() -> Group {
    let against = |name, what, ours, peer, goal| Row {
        what,
        peer_name: "a thread in epoll_wait",
        ..Row::new(name, "% of a core", Figure(ours, "percent"), Figure(peer, "percent"), goal)
    };
    Group::new(
        "idle",
        vec![
            Contender { name: "ours, no traffic", ..Contender::ours("idle-cpu 0") },
            Contender { name: "ours, 10 ticks/s", ..Contender::ours("idle-cpu 10") },
            Contender { name: "epoll, 10 ticks/s", ..Contender::ours("bare-idle-cpu 10") },
        ],
        vec![
            against("idle-cpu", "CPU time of two lcores in event mode without traffic", 0, 2, OursBelow(0.5)),
            against(
                "ten-ticks-cpu",
                "CPU time of two lcores in event mode at ten ticks a second",
                1,
                2,
                OursBelow(2.0),
            ),
        ],
    )
}

/// Single pairs scatter by a tenth: a round is many short pairs in turn, in one process.
fn saturated() -> Group {
    let adaptive = Figure(0, "adaptive_packets_per_s");
    let poll = Figure(0, "poll_packets_per_s");
    let row = Row::new("saturated-adaptive", "M packets/s", adaptive, poll, RatioAtLeast(0.99));
    Group::new(
        "saturated",
        vec![Contender::ours("saturated 12")],
        vec![Row {
            what: "packets a second from lcore to lcore over RC, adaptive beside poll mode in turn, 12 pairs a round",
            peer_name: "our own poll mode",
            scale: 1e6,
            ratio: Some("ratio"),
            ..row
        }],
    )
}

fn post_and_poll() -> Group {
    let what =
        "SENDs of 64 bytes posted, polled, receives posted again: instructions of all that runs, the device's included";
    let against = |name, what, ours, peer| Row {
        what,
        peer_name: "the same in C, same provider",
        ..Row::new(name, "instructions", Figure(ours, "instructions"), Figure(peer, "instructions"), RatioAtMost(1.05))
    };
    let single = "the same, one at a time";
    let contenders = vec![
        counted::ours("ours, lists of 32", 32),
        counted::in_c("C, lists of 32", 32),
        counted::ours("ours, one by one", 1),
        counted::in_c("C, one by one", 1),
    ];
    let rows = vec![against("post-poll-32", what, 0, 1), against("post-poll-1", single, 2, 3)];
    // Counts do not vary from run to run.
    Group { rounds: Some(1), ..Group::new("post-poll", contenders, rows) }
}

fn itch_parse() -> Group {
    let against = |name, peer, peer_name| Row {
        what: "ITCH 5.0: every field that changes a book read out of every message",
        peer_name,
        ..Row::new(name, "ns/message", Figure(0, "ns"), Figure(peer, "ns"), RatioAtMost(1.0))
    };
    let views = Row {
        what: "the same, ours through the view of each type",
        ours: Figure(0, "views_ns"),
        goal: Reported,
        ..against("itch-parse-views", 2, "itch5 0.1")
    };
    let small = Books::Small;
    Group::new(
        "itch-parse",
        vec![
            ours_on_feed("itch-parse", small, "itch-parse"),
            rivals::itch("itchy", "itchy", small),
            rivals::itch("itch5", "itch5", small),
        ],
        vec![against("itch-parse-itchy", 1, "itchy 0.3"), against("itch-parse-itch5", 2, "itch5 0.1"), views],
    )
}

fn itch_book() -> Group {
    let what = "ITCH 5.0 read into full-depth books of 8 instruments, 10,700 live orders";
    let mold = "MoldUDP64 and ITCH 5.0 read into full-depth books of 8 instruments, 10,700 live orders";
    itch_books(Books::Small, "itch-book", [("itch-book-hftbacktest", what), ("itch-book-58ns", mold)])
}

fn itch_book_large() -> Group {
    let what = "ITCH 5.0 read into full-depth books of 64 instruments, 221,000 live orders";
    let mold = "MoldUDP64 and ITCH 5.0 read into full-depth books of 64 instruments, 221,000 live orders";
    let rows = [("itch-book-large-hftbacktest", what), ("itch-book-large-58ns", mold)];
    itch_books(Books::Large, "itch-book-large", rows)
}

fn itch_books(books: Books, name: &'static str, rows: [(&'static str, &'static str); 2]) -> Group {
    let size = books.name();
    let [(hftbacktest, what), (known, mold)] = rows;
    Group::new(
        name,
        vec![
            ours_on_feed("itch-book", books, &format!("itch-book {size}")),
            ours_on_feed("mold-book", books, &format!("mold-book {size}")),
            rivals::itch("itch5, hftbacktest", "hftbacktest", books),
        ],
        vec![
            Row {
                what,
                peer_name: "itch5 0.1 into hftbacktest 0.9",
                ..Row::new(hftbacktest, "ns/message", Figure(0, "ns"), Figure(2, "ns"), RatioAtMost(1.0))
            },
            Row {
                what: mold,
                peer_name: "itch-book (C++), its authors' figure",
                ..Row::new(known, "ns/message", Figure(1, "ns"), Known(58.0), RatioAtMost(1.0))
            },
        ],
    )
}

/// A subject of ours that reads a feed's file, which is written at the start of the first round.
fn ours_on_feed(name: &'static str, books: Books, subject: &str) -> Contender {
    let commands = vec![format!("peers ours {subject} FEED-{}", books.name())];
    let subject = subject.to_owned();
    let run = move || {
        let path = crate::ours::feed_file(books)?.display().to_string();
        (Contender::ours(&format!("{subject} {path}")).run)()
    };
    Contender { name, commands, run: Box::new(run), ..Contender::ours(name) }
}

fn tick_to_trade() -> Group {
    let names = [
        ["t2t-1x-p50", "t2t-1x-p99", "t2t-1x-p999"],
        ["t2t-8x-p50", "t2t-8x-p99", "t2t-8x-p999"],
        ["t2t-full-p50", "t2t-full-p99", "t2t-full-p999"],
    ];
    let what = [
        "tick to trade at 50,000 ticks a second, the plan's own rate",
        "tick to trade at 400,000 ticks a second",
        "tick to trade, ticks as fast as the channels take them",
    ];
    let mut rows = Vec::new();
    for (index, (names, what)) in names.iter().zip(what).enumerate() {
        for (name, figure) in names.iter().zip(["p50_ns", "p99_ns", "p999_ns"]) {
            let figure = Figure(index, figure);
            rows.push(Row { what, peer_name: "none", scale: 1e3, ..Row::new(name, "µs", figure, Nobody, Reported) });
        }
    }
    let contenders = vec![
        Contender { name: "ours, 1x", ..Contender::ours("tick-to-trade 50000") },
        Contender { name: "ours, 8x", ..Contender::ours("tick-to-trade 400000") },
        Contender { name: "ours, full rate", ..Contender::ours("tick-to-trade 0") },
    ];
    Group::new("tick-to-trade", contenders, rows)
}

fn scaling(
    name: &'static str,
    what: &'static str,
    unit: &'static str,
    figure: &'static str,
    plot: Plot,
    subject: impl Fn(u32) -> String,
) -> Group {
    let contenders: Vec<Contender> = plot.x.iter().map(|x| Contender::ours(&subject(*x))).collect();
    let last = contenders.len() - 1;
    let row = Row::new(name, unit, Figure(last, figure), Figure(0, figure), RatioAtMost(1.2));
    let rows = vec![Row { what, peer_name: "ours at the least", ..row }];
    Group { plot: Some(plot), ..Group::new(name, contenders, rows) }
}

fn scaling_stages() -> Group {
    let x = vec![1, 2, 4, 8, 16, 32, 64];
    let plot = Plot { x_name: "stages in an lcore", x, y_name: "ns a packet and stage" };
    let what = "what a stage adds to a packet, batches of 32: 64 stages beside 1";
    scaling("scale-stages", what, "ns/packet", "ns", plot, |count| format!("stages {count}"))
}

const QUEUE_PAIRS: [u32; 6] = [1, 4, 16, 64, 256, 1024];

fn scaling_queue_pairs() -> Group {
    let plot = Plot { x_name: "queue pairs in turn", x: QUEUE_PAIRS.to_vec(), y_name: "ns a message" };
    let what = "a 64-byte SEND, received, on one core, a list of 32 a queue pair, each with 64 receives of its own: \
                1024 queue pairs beside 1";
    scaling("scale-queue-pairs", what, "ns/message", "ns", plot, |count| format!("queue-pairs {count}"))
}

fn scaling_queue_pairs_shared() -> Group {
    let plot = Plot { x_name: "queue pairs in turn, one SRQ", x: QUEUE_PAIRS.to_vec(), y_name: "ns a message" };
    let what = "the same with 512 receives that all queue pairs share, an SRQ: 1024 queue pairs beside 1";
    let name = "scale-queue-pairs-srq";
    scaling(name, what, "ns/message", "ns", plot, |count| format!("queue-pairs-shared {count}"))
}

fn scaling_pool() -> Group {
    let x = (10..=20).step_by(2).map(|bits| 1 << bits).collect();
    let plot = Plot { x_name: "packets in the pool", x, y_name: "ns a packet" };
    let what = "get and put, bulk 32, half of the packets out: a pool of 1 Mi beside one of 1 Ki";
    scaling("scale-pool", what, "ns/packet", "ns", plot, |count| format!("pool-of {count}"))
}

fn scaling_lcores() -> Group {
    let plot = Plot { x_name: "lcores", x: vec![1, 2], y_name: "M packets/s" };
    let what = "packets a second of lcores with a source, a stage and a sink each: 2 beside 1";
    let mut group =
        scaling("scale-lcores", what, "M packets/s", "packets_per_s", plot, |count| format!("lcores {count}"));
    for row in &mut group.rows {
        row.scale = 1e6;
        row.goal = RatioAtLeast(1.8);
    }
    group
}
