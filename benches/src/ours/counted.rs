//! Work for callgrind to count: each subject does its work a given number of times, single-threaded
//! and without a clock where possible. The cost of one operation is the difference between two such
//! runs, divided by the difference of their counts.

use std::hint::black_box;

use tick_to_trade::book::OrderBooks;
use verbline::mem::Batch;
use verbline_ring::{doorbell, spsc};

use super::{feed, graph, itch, lcores, operations, pool, post_poll, ring};

/// One operation of the hot path.
#[derive(Clone, Copy, Debug)]
pub struct Subject {
    /// The row's name.
    pub name: &'static str,
    /// The operation, in words.
    pub what: &'static str,
    /// The numbers of operations of the two runs, fewer and more.
    pub counts: [u64; 2],
    /// The functions whose instructions are counted, and those to exclude
    /// ([`crate::callgrind::instructions`]). A program with threads must name one: the clock's
    /// calibration alone takes more than a run, and more on a busy machine.
    pub within: &'static [&'static str],
    /// Does this many operations.
    pub run: fn(u64),
}

/// An lcore's turn, without its handling of lateness: under callgrind a turn takes fifty times as
/// long, so the number of late turns depends on the machine, not on the code (`fd-turn` had 838 to
/// 878 instructions).
const TURN: &[&str] = &["*poll_loop::Lcore*::run_turn*", "*TurnTime*::after_late*"];

/// All subjects, in the order of the table.
pub const SUBJECTS: &[Subject] = &[
    Subject {
        name: "ring-hop",
        what: "32 items into a ring, the doorbell rung, and out of it",
        counts: [10_000, 110_000],
        within: &[],
        run: ring_hops,
    },
    Subject {
        name: "pool-bulk",
        what: "32 packets got fresh from a pool's cache, and put back",
        counts: [10_000, 110_000],
        within: &[],
        run: pool_bulks,
    },
    Subject {
        name: "pool-shared",
        what: "32 packets got and put past the cache, by the shared free list",
        counts: [1_000, 21_000],
        within: &[],
        run: shared_bulks,
    },
    Subject {
        name: "post-poll-32",
        what: "a list of 32 SENDs of 64 bytes posted, received, and 32 receives posted again",
        counts: [1_000, 11_000],
        within: &[],
        run: |lists| post_poll::post_and_poll(lists, 32),
    },
    Subject {
        name: "post-poll-1",
        what: "one SEND of 64 bytes posted, received, and a receive posted again",
        counts: [10_000, 110_000],
        within: &[],
        run: |lists| post_poll::post_and_poll(lists, 1),
    },
    Subject {
        name: "stage-call-32",
        what: "a turn of an lcore: 32 packets from a source through four stages to a sink",
        counts: [5_000, 55_000],
        within: TURN,
        run: |turns| lcores::stage_turns(turns, 32),
    },
    Subject {
        name: "stage-call-1",
        what: "a turn of an lcore with one packet",
        counts: [10_000, 110_000],
        within: TURN,
        run: |turns| lcores::stage_turns(turns, 1),
    },
    Subject {
        name: "timer-arm",
        what: "a turn of an lcore with one packet, of which a timer is armed and the one before canceled",
        counts: [10_000, 110_000],
        within: TURN,
        run: |turns| lcores::timer_turns(turns, 1),
    },
    Subject {
        name: "timer-due",
        what: "a turn of an lcore without packets in which one of 1,000 timers is due, and armed again",
        counts: [10_000, 110_000],
        within: TURN,
        run: |turns| lcores::timer_turns(turns, 0),
    },
    Subject {
        name: "fd-turn",
        what: "a turn of an lcore whose stage looks at an eventfd, finds it ready and reads it",
        counts: [1_000, 21_000],
        within: TURN,
        run: lcores::fd_turns,
    },
    Subject {
        name: "port-turn",
        what: "a turn of an lcore with two ports: a message received, through a stage, and sent back",
        counts: [10_000, 110_000],
        within: TURN,
        run: |turns| lcores::port_turns(turns, 1),
    },
    Subject {
        name: "idle-turn",
        what: "a turn of a polling lcore with two ports and a source, and nothing to do",
        counts: [10_000, 110_000],
        within: TURN,
        run: |turns| lcores::port_turns(turns, 0),
    },
    Subject {
        name: "operation",
        what: "a WRITE of 8 bytes that a stage asks for: posted, carried out and handed back, 64 under way",
        counts: [64_000, 640_000],
        within: TURN,
        run: |count| operations::operations(count, 64),
    },
    Subject {
        name: "spread-key",
        what: "a turn of an lcore: 32 packets of a source spread by key over two stages",
        counts: [5_000, 55_000],
        within: TURN,
        run: |turns| graph::spread_turns(turns),
    },
    Subject {
        name: "itch-parse",
        what: "an ITCH message read",
        counts: [20_000, 120_000],
        within: &[],
        run: |messages| {
            black_box(itch::read_all(&feed::generate(feed::SMALL, messages as usize)));
        },
    },
    Subject {
        name: "itch-views",
        what: "an ITCH message read through the view of its type",
        counts: [20_000, 120_000],
        within: &[],
        run: |messages| {
            black_box(itch::read_by_view(&feed::generate(feed::SMALL, messages as usize)));
        },
    },
    Subject {
        name: "itch-book",
        what: "an ITCH message read into a full-depth book",
        counts: [20_000, 120_000],
        within: &[],
        run: |messages| {
            let mut books = OrderBooks::new(feed::books(feed::SMALL));
            black_box(itch::book_all(&mut books, &feed::generate(feed::SMALL, messages as usize)));
        },
    },
    Subject {
        name: FEED,
        what: "an ITCH message generated: part of the three rows above, and taken off them",
        counts: [20_000, 120_000],
        within: &[],
        run: |messages| {
            black_box(feed::generate(feed::SMALL, messages as usize));
        },
    },
];

/// The part of `itch-parse`, `itch-views` and `itch-book` that is not their work.
pub const FEED: &str = "itch-feed";

fn ring_hops(count: u64) {
    let (mut producer, mut consumer) = spsc::<u64>(ring::DEPTH);
    let (waker, _awake) = doorbell().expect("an eventfd");
    let burst = black_box([7; ring::BULK]);
    let mut taken = [0; ring::BULK];
    for _ in 0..count {
        assert_eq!(producer.push_iter(ring::BULK, burst), ring::BULK);
        waker.ring();
        let mut slots = taken.iter_mut();
        consumer.pop_into(ring::BULK, |item| {
            if let Some(slot) = slots.next() {
                *slot = item;
            }
        });
        black_box(&mut taken);
    }
}

fn pool_bulks(count: u64) {
    bulks(count, pool::CACHE_PACKETS);
}

fn shared_bulks(count: u64) {
    bulks(count, 0);
}

fn bulks(count: u64, cache_packets: usize) {
    let pool = pool::pool(2048, 2048);
    let cache = pool.cache(cache_packets);
    let mut batch = Batch::with_capacity(pool::BULK);
    for _ in 0..count {
        assert_eq!(cache.get_bulk(&mut batch, pool::BULK), pool::BULK);
        cache.put_bulk(black_box(&mut batch));
    }
}
