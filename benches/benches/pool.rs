//! A pool's get and put through an lcore's cache: one packet, a bulk of 32, and a bulk that reaches
//! the shared list.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use verbline::mem::Batch;
use verbline_benches::ours::pool::{BULK, CACHE_PACKETS, pool};

fn get_put(c: &mut Criterion) {
    let mut group = c.benchmark_group("pool get and put");
    let pool = pool(8192, 2048);

    let cache = pool.cache(CACHE_PACKETS);
    group.throughput(Throughput::Elements(1));
    group.bench_function("one packet, cached", |bencher| {
        bencher.iter(|| {
            let packet = cache.get().expect("a packet");
            cache.put(packet);
        });
    });

    let mut batch = Batch::with_capacity(BULK);
    group.throughput(Throughput::Elements(BULK as u64));
    group.bench_function("bulk 32, cached", |bencher| {
        bencher.iter(|| {
            cache.get_bulk(&mut batch, BULK);
            cache.put_bulk(&mut batch);
        });
    });
    group.bench_function("bulk 32, cached, handles alone", |bencher| {
        bencher.iter(|| {
            cache.get_bulk_unreset(&mut batch, BULK);
            cache.put_bulk(&mut batch);
        });
    });

    let mut large = Batch::with_capacity(2048);
    group.throughput(Throughput::Elements(2048));
    group.bench_function("bulk 2048, through the shared free list", |bencher| {
        bencher.iter(|| {
            cache.get_bulk(&mut large, 2048);
            cache.put_bulk(&mut large);
        });
    });
    group.finish();
}

criterion_group!(benches, get_put);
criterion_main!(benches);
