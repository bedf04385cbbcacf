//! The causes that end an lcore's sleeps.

use serde::Serialize;

/// How many sleeps one cause ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct WakeReport {
    /// `completion`, `ring`, `fd`, `control`, `timer` or `timeout`.
    pub cause: &'static str,
    /// Sleeps that it ended.
    pub count: u64,
}

/// The cause that ended a sleep, or how the engine found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WakeCause {
    Completion,
    Ring,
    /// A descriptor that a stage watches.
    Fd,
    Control,
    Timer,
    /// The safety time-out: nothing has arrived, though a stage that is polled then may find
    /// something to do.
    Timeout,
}

pub(crate) const WAKE_CAUSES: [(WakeCause, &str); 6] = [
    (WakeCause::Completion, "completion"),
    (WakeCause::Ring, "ring"),
    (WakeCause::Fd, "fd"),
    (WakeCause::Control, "control"),
    (WakeCause::Timer, "timer"),
    (WakeCause::Timeout, "timeout"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wake_causes_are_listed_in_the_order_of_their_counters() {
        for (position, (cause, _)) in WAKE_CAUSES.iter().enumerate() {
            assert_eq!(*cause as usize, position);
        }
    }
}
