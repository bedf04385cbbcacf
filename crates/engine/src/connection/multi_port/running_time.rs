//! Time in which a thread could run. While the process is stopped (SIGSTOP, a debugger), or gets no
//! CPU, its lcores do nothing either: their deadlines must not pass meanwhile.

use std::time::{Duration, Instant};

/// A thread that is this late after its time-out did not run; the rest of its lateness is not
/// counted.
const LATE: Duration = Duration::from_millis(100);

/// A clock that stands still while its thread is kept from running.
#[derive(Debug)]
pub(super) struct OwnTime {
    left_out: Duration,
    looked: Instant,
}

impl OwnTime {
    pub(super) fn new() -> OwnTime {
        OwnTime { left_out: Duration::ZERO, looked: Instant::now() }
    }

    pub(super) fn now(&self) -> Instant {
        Instant::now() - self.left_out
    }

    /// Marks the start of a wait.
    pub(super) fn begin_wait(&mut self) {
        self.looked = Instant::now();
    }

    /// Marks the end of a wait of `timeout` at most (`None`: without limit).
    pub(super) fn end_wait(&mut self, timeout: Option<Duration>) {
        let waited = self.looked.elapsed();
        if timeout.is_some_and(|timeout| waited > timeout + LATE) {
            // The thread may have been stopped at any moment: the rest of the time-out must still
            // pass.
            self.left_out += waited - LATE;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_wait_that_ends_far_too_late_is_left_out() {
        let mut time = OwnTime::new();
        let wait = |time: &mut OwnTime, waited: Duration, timeout: Option<Duration>| {
            time.looked = Instant::now() - waited;
            time.end_wait(timeout);
            time.left_out
        };
        let seconds = Duration::from_secs;
        assert_eq!(wait(&mut time, seconds(1), Some(seconds(1))), Duration::ZERO);
        assert_eq!(wait(&mut time, seconds(9), None), Duration::ZERO, "nothing was due");
        let left_out = wait(&mut time, seconds(5), Some(seconds(1)));
        assert!(left_out >= seconds(5) - LATE && left_out < seconds(5), "{left_out:?}");
        let own = time.now();
        assert!(Instant::now() - own >= left_out);
    }
}
