//! Our side of every row: one function per measurement, written like a user's code.
//!
//! Each warms up, repeats a short run several times and returns the median, so that one call takes
//! well under two seconds and tolerates a neighbour's burst. Threads are pinned to
//! [`crate::pair::cpus`].

pub mod connections;
pub mod counted;
pub mod curve;
pub mod endpoint;
pub mod feed;
pub mod graph;
pub mod hop;
pub mod idle;
pub mod itch;
pub mod lcores;
pub mod messages;
pub mod nvme;
pub mod observed;
pub mod opening;
pub mod operations;
pub mod pool;
pub mod post_poll;
pub mod rc;
pub mod ring;
pub mod stages;
pub mod store;
pub mod trading;
pub mod wire;

use crate::Figures;
use crate::figures::median;
use crate::floor::LineExchange;

/// Repeats of a run within one measurement.
pub const REPEATS: usize = 9;

/// The median of [`REPEATS`] runs, after one that is not counted.
pub(crate) fn repeated(mut run: impl FnMut() -> f64) -> f64 {
    run();
    median((0..REPEATS).map(|_| run()))
}

/// The time of one cache line, one way between two cores: `ns`.
pub fn cache_line() -> Figures {
    const TRIPS: u32 = 200_000;
    let mut exchange = LineExchange::start();
    let ns = repeated(|| {
        let began = std::time::Instant::now();
        (0..TRIPS).for_each(|_| exchange.round_trip());
        began.elapsed().as_nanos() as f64 / f64::from(2 * TRIPS)
    });
    Figures::of("ns", ns)
}
