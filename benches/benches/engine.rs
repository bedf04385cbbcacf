//! The engine: a stage's call at batch 1 and 256, throughput of adaptive mode beside poll mode, and
//! the CPU time of event mode. The last two print a ratio and a share: their runs take a second,
//! too long to repeat a million times.

use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use verbline_benches::figures::median;
use verbline_benches::ours::{idle, lcores};

/// The time that one more forwarding stage adds to a turn, from two runs of half a second.
fn stage_call(c: &mut Criterion) {
    let mut group = c.benchmark_group("stage call");
    group.sample_size(10).measurement_time(Duration::from_millis(10)).warm_up_time(Duration::from_millis(1));
    for batch in [1, 32, 256] {
        group.bench_function(BenchmarkId::new("batch", batch), |bencher| {
            // A sample is one pair of runs, for any number of calls that criterion requests.
            bencher.iter_custom(|calls| {
                let call_ns = lcores::stage_call(batch).value("call_ns").expect("of every pair of runs");
                // A difference of two runs: on a busy machine the longer one may be the quicker.
                Duration::from_secs_f64(call_ns.max(0.0) * calls as f64 / 1e9)
            });
        });
    }
    group.finish();
}

const ROUNDS: usize = 5;
const PAIRS: usize = 160;

/// Criterion's `--test`: runs everything once, as a check.
fn is_test() -> bool {
    std::env::args().any(|argument| argument == "--test")
}

/// Adaptive mode at full rate beside poll mode, in pairs; the ratio is the median of the pairs'
/// ratios.
fn adaptive_beside_poll(_: &mut Criterion) {
    let pairs = if is_test() { 1 } else { PAIRS };
    let figures = idle::adaptive_beside_poll(pairs);
    let value = |name| figures.value(name).unwrap_or(f64::NAN);
    println!(
        "full rate, {pairs} pairs: adaptive {:.2} M packets/s, poll {:.2} M packets/s, \
         ratio {:.3} (half of the pairs from {:.3} to {:.3}; goal ≥ 0.98)\n",
        value("adaptive_packets_per_s") / 1e6,
        value("poll_packets_per_s") / 1e6,
        value("ratio"),
        value("ratio_q1"),
        value("ratio_q3"),
    );
}

/// The CPU time of event mode at ten ticks per second, and without any.
fn event_mode(_: &mut Criterion) {
    let rounds = if is_test() { 1 } else { ROUNDS };
    for ticks_per_s in [10, 0] {
        let percent = median(
            (0..rounds)
                .map(|_| idle::idle_cpu(ticks_per_s, Duration::from_secs(2)).value("percent").unwrap_or(f64::NAN)),
        );
        println!("event mode, two lcores, {ticks_per_s} ticks/s: {percent:.3} % of a core (goal < 2)");
    }
}

criterion_group!(benches, stage_call, adaptive_beside_poll, event_mode);
criterion_main!(benches);
