//! Times in the form of a command line.

use std::thread;
use std::time::{Duration, Instant};

/// Parses seconds, or a number with a unit. The caller names the other accepted forms.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string()),
        Err(_) => humantime::parse_duration(text).map_err(|error| error.to_string()),
    }
}

/// The end of that time from now on; `None` if it is beyond the clock.
pub(super) fn end_of(length: Duration) -> Option<Instant> {
    Instant::now().checked_add(length)
}

/// Times at a regular interval.
#[derive(Debug)]
pub(super) struct Times {
    every: Duration,
    /// The last time.
    last: Instant,
}

impl Times {
    /// The first time is `every` from now.
    pub(super) fn new(every: Duration) -> Times {
        Times { every, last: Instant::now() }
    }

    /// Waits for the next time. Times missed because of a slow reader are not made up for.
    pub(super) fn wait(&mut self) {
        let left = self.left();
        thread::sleep(left);
        self.last = if left.is_zero() { Instant::now() } else { self.last + self.every };
    }

    fn left(&self) -> Duration {
        self.every.saturating_sub(self.last.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_no_clock_says_does_not_come() {
        assert!(end_of(Duration::ZERO).is_some() && end_of(Duration::MAX).is_none());
        assert!(Times::new(Duration::MAX).left() > Duration::from_secs(1 << 60));
    }

    #[test]
    fn times_that_were_missed_are_not_made_up_for() {
        let mut times = Times::new(Duration::from_millis(300));
        thread::sleep(Duration::from_secs(1));
        times.wait();
        assert!(times.left() > Duration::ZERO, "one of them came at once");
        let from = Instant::now();
        times.wait();
        assert!(from.elapsed() > Duration::from_millis(100), "{:?}", from.elapsed());
    }
}
