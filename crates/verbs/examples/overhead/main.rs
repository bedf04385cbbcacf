//! The cost of the safe API over the bare calls: the same traffic on the software RNIC, once
//! through this crate and once through rdma-sys like a C program, in one run on one thread. Prints
//! nanoseconds per packet and per empty poll.
//!
//! `cargo run --release -p verbline-verbs --example overhead`. Under `valgrind --tool=callgrind`
//! pass `api` or `raw`, and the number of rounds, to count the instructions of one of them.

use std::hint::black_box;
use std::time::Instant;

use verbline_mem::{Batch, PageChoice, Pool, PoolCache, PoolSpec, Region, RegionSpec};
use verbline_verbs::{
    CompletionQueue, Completions, Context, Device, Endpoint, InitSpec, Mtu, Provider, QpSpec, QueuePair, RtrSpec,
    RtsSpec, Transport, WrKind,
};

mod raw;

const BURST: usize = 32;
const DEPTH_WR: u32 = 64;
const SIGNAL_EVERY_WR: u32 = 32;

/// A measured case: message length, and whether it goes inline.
#[derive(Clone, Copy)]
struct Case {
    len_bytes: usize,
    inline_bytes: u32,
}

const CASES: [Case; 3] = [
    Case { len_bytes: 64, inline_bytes: 64 },
    Case { len_bytes: 64, inline_bytes: 0 },
    Case { len_bytes: 1024, inline_bytes: 0 },
];

fn main() {
    let mut args = std::env::args().skip(1);
    let which = args.next();
    let rounds = args.next().map_or(20_000, |rounds| rounds.parse().expect("a number of rounds"));
    match which.as_deref() {
        Some("api") => drop(black_box(api(CASES[0], rounds))),
        Some("raw") => drop(black_box(raw::run(CASES[0], rounds))),
        Some(other) => panic!("{other}: neither api nor raw"),
        None => compare(rounds),
    }
}

fn compare(rounds: usize) {
    println!("bursts of {BURST}, one in {SIGNAL_EVERY_WR} signaled, both ends on one thread; ns a packet (best of 9)");
    for case in CASES {
        let (mut safe, mut bare) = (Vec::new(), Vec::new());
        // Alternating, so that disturbances of the machine affect both.
        for _ in 0..9 {
            safe.push(api(case, rounds));
            bare.push(raw::run(case, rounds));
        }
        let (safe, bare) = (best(&safe), best(&bare));
        let how = if case.inline_bytes > 0 { "inline" } else { "" };
        println!(
            "{:5} B {how:6}  api {:6.1}  bare {:6.1}  difference {:5.1}   empty poll: api {:.2}  bare {:.2}",
            case.len_bytes,
            safe.packet_ns,
            bare.packet_ns,
            safe.packet_ns - bare.packet_ns,
            safe.empty_poll_ns,
            bare.empty_poll_ns
        );
    }
}

/// The figures of one run.
#[derive(Clone, Copy)]
struct Figures {
    packet_ns: f64,
    empty_poll_ns: f64,
}

fn best(runs: &[Figures]) -> Figures {
    let least = |of: fn(&Figures) -> f64| runs.iter().map(of).fold(f64::INFINITY, f64::min);
    Figures { packet_ns: least(|run| run.packet_ns), empty_poll_ns: least(|run| run.empty_poll_ns) }
}

/// Nanoseconds for each of `count`.
fn each_ns(count: usize, mut work: impl FnMut()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_nanos() as f64 / count as f64
}

struct Side {
    qp: QueuePair,
    cq: CompletionQueue,
    cache: PoolCache,
}

impl Side {
    fn new(context: &Context, case: Case) -> Side {
        let pd = context.alloc_pd().unwrap();
        let spec = PoolSpec { name: "overhead".into(), packets: 512, data_bytes: 2048, headroom_bytes: 64 };
        let (name, len_bytes) = (spec.name.clone(), Pool::required_bytes(&spec));
        let region = Region::map(&RegionSpec { name, len_bytes, pages: PageChoice::Auto, lock: false }).unwrap();
        let pool = Pool::new(region, spec).unwrap();
        pd.register_pool(&pool).unwrap();
        let cq = context.create_cq(256, None).unwrap();
        let mut qp = pd
            .create_qp(&QpSpec {
                tx_depth_wr: DEPTH_WR,
                rx_depth_wr: DEPTH_WR,
                max_inline_bytes: case.inline_bytes,
                signal_every_wr: SIGNAL_EVERY_WR,
                ..QpSpec::new(Transport::Rc, &cq)
            })
            .unwrap();
        qp.to_init(&InitSpec::default()).unwrap();
        Side { qp, cq, cache: pool.cache(256) }
    }

    fn connect(&mut self, peer: Endpoint) {
        self.qp.to_rtr(&RtrSpec::connected(peer).mtu(Mtu::B1024)).unwrap();
        self.qp.to_rts(&RtsSpec::default()).unwrap();
    }
}

fn api(case: Case, rounds: usize) -> Figures {
    let open = |name| Device::find(Provider::Soft, name).unwrap().open().unwrap();
    let (mut a, mut b) = (Side::new(&open("soft0"), case), Side::new(&open("soft1"), case));
    let (to_a, to_b) = (a.qp.endpoint(), b.qp.endpoint());
    a.connect(to_b);
    b.connect(to_a);
    let (mut batch, mut freed) = (Batch::with_capacity(2 * BURST), Batch::with_capacity(2 * BURST));
    let mut completions = Completions::with_capacity(2 * BURST);
    // Bound as on an lcore: dropped packets go back to their own cache.
    let (a_cache, b_cache) = (a.cache.bind(), b.cache.bind());
    let mut round = || {
        b_cache.get_bulk(&mut batch, BURST);
        assert_eq!(b.qp.post_recv(&mut batch).posted, BURST);
        a_cache.get_bulk(&mut batch, BURST);
        for packet in batch.iter_mut() {
            assert!(packet.set_len(case.len_bytes));
        }
        assert_eq!(a.qp.post_send(&mut batch).posted, BURST);
        let mut got = 0;
        while got < BURST {
            got += b.cq.poll(&mut completions);
            for completion in &completions {
                let packet = b.qp.recv_done(completion).unwrap();
                assert_eq!(packet.len(), case.len_bytes);
                freed.push(packet).unwrap();
            }
            b_cache.put_bulk(&mut freed);
        }
        let mut done = 0;
        while done == 0 {
            a.cq.poll(&mut completions);
            for completion in &completions {
                assert_eq!(completion.kind(), WrKind::Send);
                done += a.qp.send_done(completion, &mut freed).unwrap();
            }
            a_cache.put_bulk(&mut freed);
        }
    };
    (0..rounds / 10).for_each(|_| round());
    let packet_ns = each_ns(rounds * BURST, || (0..rounds).for_each(|_| round()));
    let empty = &mut a.cq;
    let empty_poll_ns = each_ns(rounds * BURST, || {
        for _ in 0..rounds * BURST {
            black_box(empty.poll(&mut completions));
        }
    });
    Figures { packet_ns, empty_poll_ns }
}
