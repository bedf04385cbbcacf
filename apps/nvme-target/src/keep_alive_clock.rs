//! A clock of the time that a stage was running: it stands still while the lcore does not run.

use verbline::prelude::*;

/// The time between looks.
pub(crate) const LOOK_EVERY_NS: u64 = 100_000_000;

/// The time that the stage was there to hear its hosts. Each look adds the time since the last one,
/// but no more than the planned interval.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Attended {
    ns: Tick,
    looked_ns: Tick,
}

impl Attended {
    pub(crate) fn ns(self) -> Tick {
        self.ns
    }

    /// Starts the clock at `now_ns`.
    pub(crate) fn begin(&mut self, now_ns: Tick) {
        self.looked_ns = now_ns;
    }

    /// Adds the time since the last look.
    pub(crate) fn look(&mut self, now_ns: Tick) {
        self.ns += now_ns.saturating_sub(self.looked_ns).min(LOOK_EVERY_NS);
        self.looked_ns = now_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_that_the_stage_was_not_there_does_not_count() {
        let mut attended = Attended::default();
        attended.begin(1_000);
        attended.look(1_000 + LOOK_EVERY_NS / 2);
        assert_eq!(attended.ns(), LOOK_EVERY_NS / 2);
        attended.look(60_000_000_000);
        assert_eq!(attended.ns(), LOOK_EVERY_NS / 2 + LOOK_EVERY_NS, "a minute's pause is a look");
    }
}
