//! A rate limit: a burst at once, then one grant per interval.

use std::time::{Duration, Instant};

/// Grants that are restored over time.
#[derive(Debug)]
pub(crate) struct Grant {
    /// The most grants at once.
    burst: u32,
    /// The time in which one grant is restored.
    every: Duration,
    /// The time at which the burst is fully restored.
    full_at: Instant,
}

impl Grant {
    pub(crate) fn new(burst: u32, every: Duration, now: Instant) -> Grant {
        Grant { burst, every, full_at: now }
    }

    /// Takes a grant, if one is available.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        let is_there = self.ready_at() <= now;
        if is_there {
            self.full_at = self.full_at.max(now) + self.every;
        }
        is_there
    }

    /// The time of the next available grant.
    pub(crate) fn ready_at(&self) -> Instant {
        // An `Instant` can't go below the start of the machine's clock.
        self.full_at.checked_sub(self.every * (self.burst - 1)).unwrap_or(self.full_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_granted_and_then_one_at_a_time() {
        let start = Instant::now() + Duration::from_secs(60);
        let at = |ms| start + Duration::from_millis(ms);
        let mut grant = Grant::new(3, Duration::from_millis(100), start);
        assert_eq!([0, 0, 0, 0, 99].map(|ms| grant.take(at(ms))), [true, true, true, false, false]);
        assert_eq!(grant.ready_at(), at(100));
        assert_eq!([100, 100, 250, 299, 300].map(|ms| grant.take(at(ms))), [true, false, true, false, true]);
        assert_eq!([9_000; 4].map(|ms| grant.take(at(ms))), [true, true, true, false], "no more than a burst is kept");
    }
}
