//! Hand-off between two lcores in batches of 32, ours beside raw rtrb, and their common floor, the
//! cache line.

use std::hint::{black_box, spin_loop};
use std::time::Instant;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use verbline_benches::floor::LineExchange;
use verbline_benches::ours::ring::{BULK, DEPTH};
use verbline_benches::pair::Partner;
use verbline_ring::{doorbell, spsc};

fn cache_line(c: &mut Criterion) {
    let mut group = c.benchmark_group("floor");
    group.bench_function("cache line, round trip", |bencher| {
        let mut exchange = LineExchange::start();
        bencher.iter(|| exchange.round_trip());
    });
    group.finish();
}

/// The cost of one batch, with both cores at full speed.
fn hand_off(c: &mut Criterion) {
    let mut group = c.benchmark_group("ring hand-off, bulk 32");
    group.throughput(Throughput::Elements(BULK as u64));

    group.bench_function("verbline, with doorbell", |bencher| {
        let (mut producer, mut consumer) = spsc::<u64>(DEPTH);
        let (waker, _sleeper) = doorbell().expect("an eventfd");
        let _partner = Partner::start(move || {
            consumer.pop_into(BULK, |item| {
                black_box(item);
            });
        });
        bencher.iter_custom(|batches| {
            let start = Instant::now();
            for _ in 0..batches {
                while producer.room_for(BULK) < BULK {
                    spin_loop();
                }
                producer.push_iter(BULK, 0..BULK as u64);
                waker.ring();
            }
            start.elapsed()
        });
    });

    group.bench_function("rtrb, raw", |bencher| {
        let (mut producer, mut consumer) = rtrb::RingBuffer::<u64>::new(DEPTH);
        let _partner = Partner::start(move || {
            let ready = consumer.slots().min(BULK);
            if let Ok(chunk) = consumer.read_chunk(ready) {
                for item in chunk {
                    black_box(item);
                }
            }
        });
        bencher.iter_custom(|batches| {
            let start = Instant::now();
            for _ in 0..batches {
                loop {
                    if let Ok(chunk) = producer.write_chunk_uninit(BULK) {
                        chunk.fill_from_iter(0..BULK as u64);
                        break;
                    }
                    spin_loop();
                }
            }
            start.elapsed()
        });
    });
    group.finish();
}

/// One batch there and one back: the latency of a batch.
fn hop(c: &mut Criterion) {
    let mut group = c.benchmark_group("ring hop, 32 there and back");
    group.bench_function("verbline, with doorbell", |bencher| {
        let (mut to, mut from_near) = spsc::<u64>(DEPTH);
        let (mut to_near, mut from) = spsc::<u64>(DEPTH);
        let (waker, _sleeper) = doorbell().expect("an eventfd");
        let far_waker = waker.clone();
        let _partner = Partner::start(move || {
            let items = from_near.pop_iter(BULK);
            let count = items.len();
            if count > 0 {
                to_near.push_iter(count, items);
                far_waker.ring();
            }
        });
        bencher.iter(|| {
            to.push_iter(BULK, 0..BULK as u64);
            waker.ring();
            let mut back = 0;
            while back < BULK {
                back += from.pop_into(BULK, |item| {
                    black_box(item);
                });
            }
        });
    });
    group.finish();
}

criterion_group!(benches, cache_line, hand_off, hop);
criterion_main!(benches);
