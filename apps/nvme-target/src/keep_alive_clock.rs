//! The time that a stage was there: it stands still while the lcore does not run.

use verbline::prelude::*;

/// How often the stage looks after its hosts.
pub(crate) const LOOK_EVERY_NS: u64 = 100_000_000;

/// How long the stage was there to hear its hosts: it grows by each look, by no more than the time
/// from one look to the next.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Attended {
    ns: Tick,
    looked_ns: Tick,
}

impl Attended {
    pub(crate) fn ns(self) -> Tick {
        self.ns
    }

    /// The stage looks after its hosts from now on.
    pub(crate) fn begin(&mut self, now_ns: Tick) {
        self.looked_ns = now_ns;
    }

    /// The stage looks.
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
