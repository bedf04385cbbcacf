//! ITCH messages read, and read into full-depth books.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use tick_to_trade::book::OrderBooks;
use verbline_benches::ours::{feed, itch};

const MESSAGES: usize = 200_000;

fn itch(c: &mut Criterion) {
    let bytes = feed::generate(MESSAGES);
    let mut group = c.benchmark_group("ITCH");
    group.sample_size(20);
    group.throughput(Throughput::Elements(MESSAGES as u64));
    group.bench_function("parse", |bencher| bencher.iter(|| itch::read_all(black_box(&bytes))));
    group.bench_function("parse and book", |bencher| {
        let books = || OrderBooks::new(itch::BOOKS);
        bencher.iter_batched_ref(books, |books| itch::book_all(books, &bytes), BatchSize::LargeInput);
    });
    group.finish();
}

criterion_group!(benches, itch);
criterion_main!(benches);
