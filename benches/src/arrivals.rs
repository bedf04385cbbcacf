//! Patterns of arrivals on lcores, as gaps in nanoseconds, by seed: the test cases of the idle
//! policy.

use fastrand::Rng;

/// A named pattern.
#[derive(Clone, Copy, Debug)]
pub struct Pattern {
    /// A description.
    pub name: &'static str,
    make: fn(&mut Rng, &mut Vec<u64>),
}

impl Pattern {
    /// The gaps between its arrivals.
    #[must_use]
    pub fn gaps_ns(&self, seed: u64) -> Vec<u64> {
        let mut gaps_ns = Vec::new();
        (self.make)(&mut Rng::with_seed(seed), &mut gaps_ns);
        gaps_ns
    }
}

/// All patterns.
pub const PATTERNS: [Pattern; 16] = [
    Pattern { name: "even, 10/s", make: |rng, gaps| even(rng, gaps, 10, 4_000) },
    Pattern { name: "even, 200/s", make: |rng, gaps| even(rng, gaps, 200, 40_000) },
    Pattern { name: "even, 2,000/s", make: |rng, gaps| even(rng, gaps, 2_000, 100_000) },
    Pattern { name: "even, 1,000/s, interrupted", make: |rng, gaps| interrupted(rng, gaps, 1_000, 100_000) },
    Pattern { name: "even, 200/s, interrupted", make: |rng, gaps| interrupted(rng, gaps, 200, 40_000) },
    Pattern { name: "even, 10,000/s", make: |rng, gaps| even(rng, gaps, 10_000, 100_000) },
    Pattern { name: "even, 25,000/s", make: |rng, gaps| even(rng, gaps, 25_000, 100_000) },
    Pattern { name: "random, 200/s", make: |rng, gaps| random(rng, gaps, 200, 40_000) },
    Pattern { name: "random, 2,000/s", make: |rng, gaps| random(rng, gaps, 2_000, 100_000) },
    Pattern { name: "random, 10,000/s", make: |rng, gaps| random(rng, gaps, 10_000, 100_000) },
    Pattern { name: "random, 50,000/s", make: |rng, gaps| random(rng, gaps, 50_000, 100_000) },
    Pattern { name: "heavy-tailed, 1,000/s", make: |rng, gaps| heavy_tailed(rng, gaps, 1_000) },
    Pattern { name: "heavy-tailed, 10,000/s", make: |rng, gaps| heavy_tailed(rng, gaps, 10_000) },
    Pattern { name: "bursts of 500, pauses of 15 ms", make: bursts },
    Pattern { name: "two feeds, 10,000/s and 3,000/s", make: two_feeds },
    Pattern { name: "10/s, then 100,000/s, in turn", make: steps },
];

/// A few seconds of evenly spaced arrivals.
#[must_use]
pub fn even_gaps(per_s: u32, seed: u64) -> Vec<u64> {
    gaps(|rng, gaps_ns| even(rng, gaps_ns, per_s, count(per_s)), seed)
}

/// A few seconds of random arrivals.
#[must_use]
pub fn random_gaps(per_s: u32, seed: u64) -> Vec<u64> {
    gaps(|rng, gaps_ns| random(rng, gaps_ns, per_s, count(per_s)), seed)
}

fn gaps(make: impl FnOnce(&mut Rng, &mut Vec<u64>), seed: u64) -> Vec<u64> {
    let mut gaps_ns = Vec::new();
    make(&mut Rng::with_seed(seed), &mut gaps_ns);
    gaps_ns
}

fn count(per_s: u32) -> usize {
    (4 * per_s as usize).clamp(64, 1_000_000)
}

const SECOND_NS: f64 = 1e9;

fn exponential(rng: &mut Rng, mean_ns: f64) -> f64 {
    -(1.0 - rng.f64()).ln() * mean_ns
}

/// The sum of twelve, less six: nearly normal, and never far out.
fn normal(rng: &mut Rng) -> f64 {
    (0..12).map(|_| rng.f64()).sum::<f64>() - 6.0
}

/// Evenly spaced, with 3 µs of jitter of the sender and its clock.
fn even(rng: &mut Rng, gaps_ns: &mut Vec<u64>, per_s: u32, count: usize) {
    gaps_ns.extend((0..count).map(|_| (SECOND_NS / f64::from(per_s) + 3_000.0 * normal(rng)) as u64));
}

/// Evenly spaced, by a sender that loses its CPU now and then: the messages due meanwhile come
/// together, as soon as it has the CPU back.
fn interrupted(rng: &mut Rng, gaps_ns: &mut Vec<u64>, per_s: u32, count: usize) {
    let (mut due_ns, mut sent_ns) = (0.0, 0.0);
    let (mut lost_ns, mut back_ns) = (exponential(rng, LOST_EVERY_NS), 0.0);
    for _ in 0..count {
        due_ns += SECOND_NS / f64::from(per_s) + 3_000.0 * normal(rng);
        while lost_ns < due_ns {
            back_ns = lost_ns + LOST_NS_MAX * rng.f64();
            lost_ns = back_ns + exponential(rng, LOST_EVERY_NS);
        }
        let now_ns = due_ns.max(back_ns).max(sent_ns);
        gaps_ns.push((now_ns - sent_ns) as u64);
        sent_ns = now_ns;
    }
}

/// How often a sender loses its CPU, and for how long: as beside two compilers on two CPUs.
const LOST_EVERY_NS: f64 = 20e6;
const LOST_NS_MAX: f64 = 4e6;

/// Independent arrivals (a Poisson process).
fn random(rng: &mut Rng, gaps_ns: &mut Vec<u64>, per_s: u32, count: usize) {
    gaps_ns.extend((0..count).map(|_| exponential(rng, SECOND_NS / f64::from(per_s)) as u64));
}

/// Mostly short gaps, with some very long ones (log-normal).
fn heavy_tailed(rng: &mut Rng, gaps_ns: &mut Vec<u64>, per_s: u32) {
    const SIGMA: f64 = 1.5;
    let median_ns = SECOND_NS / f64::from(per_s) / (SIGMA * SIGMA / 2.0).exp();
    gaps_ns.extend((0..100_000).map(|_| (median_ns * (SIGMA * normal(rng)).exp()) as u64));
}

fn bursts(rng: &mut Rng, gaps_ns: &mut Vec<u64>) {
    for _ in 0..400 {
        gaps_ns.extend((0..500).map(|_| exponential(rng, 2_000.0) as u64));
        gaps_ns.push((10e6 + exponential(rng, 5e6)) as u64);
    }
}

fn two_feeds(rng: &mut Rng, gaps_ns: &mut Vec<u64>) {
    let (mut next_ns, mut last_ns) = ([0.0_f64, 0.0], 0.0_f64);
    for _ in 0..100_000 {
        let feed = usize::from(next_ns[1] < next_ns[0]);
        gaps_ns.push((next_ns[feed] - last_ns).max(0.0) as u64);
        last_ns = next_ns[feed];
        next_ns[feed] += [100_000.0, 333_333.0][feed] + 1_000.0 * normal(rng);
    }
}

fn steps(rng: &mut Rng, gaps_ns: &mut Vec<u64>) {
    for _ in 0..20 {
        gaps_ns.extend((0..50).map(|_| (100e6 + exponential(rng, 1e6)) as u64));
        gaps_ns.extend((0..20_000).map(|_| exponential(rng, 10_000.0) as u64));
    }
}
