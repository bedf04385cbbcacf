//! The verbs layer on the software RNIC: an empty poll, post and poll on one core, and a message
//! one way between two.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use verbline::mem::Batch;
use verbline_benches::ours::rc::{Spec, pair};
use verbline_benches::pair::Partner;

fn empty_poll(c: &mut Criterion) {
    let [mut near, _far] = pair(&Spec::new(64));
    c.bench_function("empty poll", |bencher| {
        bencher.iter(|| black_box(near.cq.poll(&mut near.completions)));
    });
}

/// On one core: a list posted and received, and its receives posted again.
fn post_and_poll(c: &mut Criterion) {
    let mut group = c.benchmark_group("post and poll, 64 B SEND");
    for burst in [1, 32] {
        let [mut near, mut far] = pair(&Spec { depth_wr: 64, repost: burst, ..Spec::new(64) });
        let near_cache = near.cache.take().expect("bound once").bind();
        let far_cache = far.cache.take().expect("bound once").bind();
        far.fill(&far_cache);
        let mut batch = Batch::with_capacity(burst);
        group.throughput(Throughput::Elements(burst as u64));
        group.bench_function(BenchmarkId::new("list of", burst), |bencher| {
            bencher.iter(|| {
                near_cache.get_bulk(&mut batch, burst);
                for packet in &mut batch {
                    assert!(packet.set_len(64));
                }
                let posted = near.qps[0].post_send(&mut batch).posted;
                let mut came = 0;
                while came < posted {
                    came += far.poll(&far_cache, |_, _| {}).messages;
                }
                near.poll(&near_cache, |_, _| {});
            });
        });
    }
    group.finish();
}

/// Between two cores, one message at a time. One way is half of the shown time.
fn ping_pong(c: &mut Criterion) {
    let mut group = c.benchmark_group("ping-pong over RC, there and back");
    for bytes in [64u32, 4096] {
        let [mut near, mut far] = pair(&Spec { depth_wr: 64, repost: 16, ..Spec::new(bytes) });
        let _partner = Partner::start_with(move || {
            let cache = far.cache.take().expect("bound once").bind();
            far.fill(&cache);
            move || {
                far.poll(&cache, |qp, messages| {
                    let _ = qp.post_send(messages);
                });
            }
        });
        let cache = near.cache.take().expect("bound once").bind();
        near.fill(&cache);
        let mut batch = Batch::with_capacity(1);
        group.bench_function(BenchmarkId::new("SEND", format!("{bytes} B")), |bencher| {
            bencher.iter(|| {
                let mut packet = cache.get().expect("a packet");
                assert!(packet.set_len(bytes as usize));
                batch.push(packet).expect("room for one");
                let _ = near.qps[0].post_send(&mut batch);
                while near.poll(&cache, |_, _| {}).messages == 0 {}
            });
        });
    }
    group.finish();
}

criterion_group!(benches, empty_poll, post_and_poll, ping_pong);
criterion_main!(benches);
