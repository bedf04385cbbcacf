//! Packets from a pool and back, through an lcore's cache.

use std::hint::black_box;
use std::time::Instant;

use verbline::mem::{Batch, PageChoice, Pool, PoolSpec, Region, RegionSpec};

use super::repeated;
use crate::Figures;

/// Packets got or put at once.
pub const BULK: usize = 32;
/// The cache size of DPDK's test: RTE_MEMPOOL_CACHE_MAX_SIZE.
pub const CACHE_PACKETS: usize = 512;
const ROUNDS: usize = 100_000;

/// Bulks of 32, got and put: `ns` per packet as handles only (the work of `rte_mempool_get_bulk`),
/// `fresh_ns` per packet made ready for data (the work of `rte_pktmbuf_alloc_bulk`).
///
/// Runs on the first of the CPUs, like the rival: two CPUs of one machine may differ by half, and
/// change places within minutes.
pub fn get_and_put() -> Figures {
    let _pinned = crate::pair::pin(crate::pair::cpus()[0]);
    let pool = pool(8192, 2048);
    let cache = pool.cache(CACHE_PACKETS);
    let mut batch = Batch::with_capacity(BULK);
    let handles = repeated(|| {
        a_packet(ROUNDS, || {
            cache.get_bulk_unreset(&mut batch, BULK);
            cache.put_bulk(black_box(&mut batch));
        })
    });
    let fresh = repeated(|| {
        a_packet(ROUNDS, || {
            cache.get_bulk(&mut batch, BULK);
            cache.put_bulk(black_box(&mut batch));
        })
    });
    Figures::of("ns", handles).and("fresh_ns", fresh)
}

/// `packets` packets, half of them out at all times, in batches that are taken in turn. `ns`: the
/// time per packet to put and get one in bulks of 32, within the cache. `shared_ns`: the same with
/// enough bulks put, and then got, that the cache spills to the shared free list and refills from
/// it each time.
pub fn of_size(packets: u32) -> Figures {
    const SWING: usize = 16;
    let pool = pool(packets, 64);
    let cache = pool.cache(SWING * BULK / 2);
    let bulks = packets as usize / 2 / BULK;
    let mut out: Vec<Batch> = (0..bulks).map(|_| Batch::with_capacity(BULK)).collect();
    for batch in &mut out {
        cache.get_bulk_unreset(batch, BULK);
    }
    let mut exchange = |swing: usize| {
        let mut next = 0;
        repeated(|| {
            let began = Instant::now();
            for _ in 0..ROUNDS / swing {
                let batches = &mut out[next..next + swing];
                batches.iter_mut().for_each(|batch| cache.put_bulk(batch));
                batches.iter_mut().for_each(|batch| _ = cache.get_bulk_unreset(batch, BULK));
                black_box(batches);
                next = (next + swing) % bulks;
            }
            began.elapsed().as_nanos() as f64 / (ROUNDS * BULK) as f64
        })
    };
    Figures::of("ns", exchange(1)).and("shared_ns", exchange(SWING))
}

/// A pool on the available pages.
///
/// # Panics
/// If there is no memory for it.
pub fn pool(packets: u32, data_bytes: u32) -> Pool {
    let spec = PoolSpec { name: "bench".to_owned(), packets, data_bytes, headroom_bytes: 64 };
    let len_bytes = Pool::required_bytes(&spec);
    let region = RegionSpec { name: "bench".to_owned(), len_bytes, pages: PageChoice::Auto, lock: false };
    Pool::new(Region::map(&region).expect("memory for the pool"), spec).expect("a pool over it")
}

fn a_packet(rounds: usize, mut bulk: impl FnMut()) -> f64 {
    let began = Instant::now();
    (0..rounds).for_each(|_| bulk());
    began.elapsed().as_nanos() as f64 / (rounds * BULK) as f64
}
