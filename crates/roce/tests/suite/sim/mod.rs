//! Several engines over a network that loses, doubles, reorders, changes and delays datagrams,
//! controlled by a seed, without a clock or a thread.

pub(crate) mod memory;
pub(crate) mod network;
pub(crate) mod side;
pub(crate) mod world;

/// A number from the environment, or `otherwise`.
pub(crate) fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}: a number")))
}

/// Runs a test for many seeds: `ROCE_SEEDS` of them, from `ROCE_SEED` on.
pub(crate) fn for_seeds(count: u64, test: impl Fn(u64)) {
    let first = number("ROCE_SEED", 1);
    for seed in first..first + number("ROCE_SEEDS", count) {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(seed)));
        if let Err(panic) = result {
            eprintln!("seed {seed} fails: run it alone with ROCE_SEEDS=1 ROCE_SEED={seed}");
            std::panic::resume_unwind(panic);
        }
    }
}
