//! What it costs to wake a sleeping thread on this machine, measured once a process.
//!
//! It is the default of a plan's `spin`: whoever spins for as long as a wake-up costs before sleeping never does worse
//! than twice the best (the ski-rental argument).

use std::io;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use verbline_ring::{Sleeper, Waker, doorbell};

const ROUNDS: usize = 48;
/// A measurement on a busy machine may come out as anything; a default outside these bounds helps nobody.
const COST_NS: std::ops::RangeInclusive<u64> = 2_000..=500_000;

/// The median one-way cost of waking a thread by its doorbell.
pub(crate) fn wake_cost_ns() -> u64 {
    static COST: OnceLock<u64> = OnceLock::new();
    // 50 µs: what a bare eventfd wake-up was seen to cost on a small VM, if even a doorbell cannot be had here.
    *COST.get_or_init(|| measure().unwrap_or(50_000).clamp(*COST_NS.start(), *COST_NS.end()))
}

/// Two threads wake each other in turn; a round trip is two wake-ups.
fn measure() -> io::Result<u64> {
    let (wake_here, mut here) = doorbell()?;
    let (wake_there, mut there) = doorbell()?;
    let echo = std::thread::Builder::new().name("vl-wake-cost".into()).spawn(move || {
        for _ in 0..ROUNDS {
            await_ring(&mut there)?;
            wake_when_asleep(&wake_here);
        }
        io::Result::Ok(())
    })?;
    let mut trips = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let began = Instant::now();
        wake_when_asleep(&wake_there);
        await_ring(&mut here)?;
        trips.push(began.elapsed().as_nanos() as u64);
    }
    echo.join().map_err(|_| io::Error::other("the measuring thread panicked"))??;
    trips.sort_unstable();
    Ok(trips[ROUNDS / 2] / 2)
}

fn await_ring(sleeper: &mut Sleeper) -> io::Result<()> {
    let armed = sleeper.arm();
    sleeper.wait(armed, Some(Duration::from_secs(1)))?;
    Ok(())
}

/// Rings until the other side was asleep to hear it; here there is no queue that it would look into instead.
fn wake_when_asleep(waker: &Waker) {
    let give_up = Instant::now() + Duration::from_secs(1);
    while !waker.ring() && Instant::now() < give_up {
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_up_costs_something_and_is_measured_once() {
        let cost_ns = wake_cost_ns();
        assert!(COST_NS.contains(&cost_ns));
        assert_eq!(cost_ns, wake_cost_ns());
    }
}
