//! ITCH messages read, and read into full-depth books.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use tick_to_trade::book::OrderBooks;
use verbline_benches::ours::feed::Packets;
use verbline_benches::ours::{feed, itch};

const MESSAGES: usize = 200_000;

fn itch(c: &mut Criterion) {
    let bytes = feed::generate(feed::SMALL, MESSAGES);
    let mut group = c.benchmark_group("ITCH");
    group.sample_size(20);
    group.throughput(Throughput::Elements(MESSAGES as u64));
    group.bench_function("parse", |bencher| bencher.iter(|| itch::read_all(black_box(&bytes))));
    group.bench_function("parse by view", |bencher| bencher.iter(|| itch::read_by_view(black_box(&bytes))));
    group.bench_function("parse and book", |bencher| {
        let books = || OrderBooks::new(feed::books(feed::SMALL));
        bencher.iter_batched_ref(books, |books| itch::book_all(books, &bytes), BatchSize::LargeInput);
    });
    group.finish();
}

/// The full-size book: its cost depends on where its orders lie.
fn large_book(c: &mut Criterion) {
    let packets = Packets::of(&feed::generate(feed::LARGE, feed::MESSAGES));
    let mut group = c.benchmark_group("ITCH");
    group.sample_size(10);
    group.throughput(Throughput::Elements(feed::MESSAGES as u64));
    group.bench_function("Mold, parse and large book", |bencher| {
        let books = || OrderBooks::new(feed::books(feed::LARGE));
        bencher.iter_batched_ref(books, |books| itch::book_packets(books, &packets), BatchSize::PerIteration);
    });
    group.finish();
}

criterion_group!(benches, itch, large_book);
criterion_main!(benches);
