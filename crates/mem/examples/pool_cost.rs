//! What a packet costs to take and return, in ns, beside a plain copy of as many words in the same
//! run.
//!
//! `cargo run --release -p verbline-mem --example pool_cost`
//!
//! Each figure is the least of many short runs, so a noisy neighbour spoils few. One operation is
//! 32 packets got and 32 put.

use std::hint::black_box;
use std::time::Instant;

use verbline_mem::{Batch, PageChoice, Pool, PoolCache, PoolSpec, Region, RegionSpec};

const BULK: usize = 32;
const ROUNDS: usize = 20_000;
const RUNS: usize = 60;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pool = pool()?;
    let cache = pool.cache(512).bind();
    let bare = pool.cache(0);
    let mut burst = Batch::with_capacity(BULK);

    println!("ns a packet, got and put, bulk {BULK} (least of {RUNS} runs)");
    report("a plain Vec<u64>, copied out and back", copy_out_and_back());
    report("cache: get_bulk_unreset, put_bulk", || {
        cache.get_bulk_unreset(&mut burst, BULK);
        cache.put_bulk(black_box(&mut burst));
    });
    report("cache: get_bulk, put_bulk", || {
        cache.get_bulk(&mut burst, BULK);
        cache.put_bulk(black_box(&mut burst));
    });
    report("cache: get_bulk_unreset, batch cleared (bound)", || {
        cache.get_bulk_unreset(&mut burst, BULK);
        black_box(&mut burst).clear();
    });
    report("cache: get, packet dropped (bound), 32 times", || {
        for _ in 0..BULK {
            drop(black_box(cache.get()));
        }
    });
    report("free list alone: get_bulk_unreset, put_bulk", || {
        bare.get_bulk_unreset(&mut burst, BULK);
        bare.put_bulk(black_box(&mut burst));
    });
    let mut bursts: Vec<Batch> = (0..64).map(|_| Batch::with_capacity(BULK)).collect();
    report_for(64 * BULK, "cache of 512: 64 bursts out, then 64 back", || out_then_back(&cache, &mut bursts));
    assert_eq!(pool.account().held, 0);
    Ok(())
}

fn pool() -> Result<Pool, Box<dyn std::error::Error>> {
    let spec = PoolSpec { name: "cost".into(), packets: 8192, data_bytes: 2048, headroom_bytes: 64 };
    let region = Region::map(&RegionSpec {
        name: "cost".into(),
        len_bytes: Pool::required_bytes(&spec),
        pages: PageChoice::Auto,
        lock: false,
    })?;
    if let Some(fallback) = region.fallback() {
        eprintln!("note: {fallback}");
    }
    Ok(Pool::new(region, spec)?)
}

/// The floor: as many words copied from one array to another and back.
fn copy_out_and_back() -> impl FnMut() {
    let mut store: Vec<u64> = (0..512).collect();
    let mut out: Vec<u64> = Vec::with_capacity(BULK);
    move || {
        let rest = store.len() - BULK;
        out.extend_from_slice(&store[rest..]);
        store.truncate(rest);
        black_box(&mut out);
        store.append(&mut out);
        black_box(&mut store);
    }
}

/// More than the cache holds, so that it refills and spills.
fn out_then_back(cache: &PoolCache, bursts: &mut [Batch]) {
    for burst in bursts.iter_mut() {
        cache.get_bulk_unreset(burst, BULK);
    }
    for burst in bursts {
        cache.put_bulk(black_box(burst));
    }
}

fn report(what: &str, operation: impl FnMut()) {
    report_for(BULK, what, operation);
}

fn report_for(packets: usize, what: &str, mut operation: impl FnMut()) {
    let rounds = ROUNDS * BULK / packets;
    let run = |_| {
        let start = Instant::now();
        for _ in 0..rounds {
            operation();
        }
        start.elapsed().as_nanos() as f64 / (rounds * packets) as f64
    };
    let least_ns = (0..RUNS).map(run).fold(f64::INFINITY, f64::min);
    println!("{least_ns:8.3}  {what}");
}
