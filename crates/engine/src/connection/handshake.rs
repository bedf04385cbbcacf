//! The handshake of every connection, whether its port has one or many: the time limits of its
//! steps, the pauses between attempts, and the rejection of a request.

use std::time::Duration;

use verbline_verbs::connection::{ConnectionError, REJECT_PRIVATE_BYTES, Request};

/// The longest that one attempt resolves an address and its route.
pub(crate) const RESOLVE: Duration = Duration::from_secs(1);
/// The longest wait for the other end to finish a handshake.
pub(crate) const ANSWER: Duration = Duration::from_secs(5);
/// The longest wait for an lcore's completions when a queue pair is released. A working device
/// delivers them at once.
pub(crate) const RELEASE: Duration = Duration::from_secs(1);
/// The pause after the first failed attempt, and the longest pause.
pub(crate) const PAUSE_MIN: Duration = Duration::from_millis(10);
pub(crate) const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The pauses between attempts, each twice as long as the one before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pauses {
    next: Duration,
}

impl Pauses {
    pub(crate) const START: Pauses = Pauses { next: PAUSE_MIN };

    /// The pause before the next attempt.
    pub(crate) fn take(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(PAUSE_MAX);
        pause
    }
}

/// The rejection of a request that came by another device than the port's.
pub(crate) fn wrong_device(port: &str, device: &str, came_by: &str) -> String {
    format!("port.{port} is on {device}, this came by {came_by}")
}

/// Rejects a request. A reason that exceeds the message's room is cut.
pub(crate) fn reject(request: Request, reason: &[u8]) -> Result<(), ConnectionError> {
    request.reject(&reason[..reason.len().min(REJECT_PRIVATE_BYTES)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let mut pauses = Pauses::START;
        let taken: Vec<_> = (0..9).map(|_| pauses.take()).collect();
        assert!(taken.windows(2).all(|pair| pair[1] == (pair[0] * 2).min(PAUSE_MAX)));
        assert_eq!((taken[0], taken[8]), (PAUSE_MIN, PAUSE_MAX));
    }
}
