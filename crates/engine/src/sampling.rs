//! Which turns of an lcore are timed stage by stage.
//!
//! Reading the clock costs as much as calling a small stage, so only one turn in [`PERIOD`] is timed, and counts for that many. What
//! stages are called with after [`RESTED`] idle turns is always timed, for itself: there was time to spare, and a lightly loaded
//! lcore's figures are exact. Polls are not: when one began is only known in a turn that read the clock first, and an idle
//! turn that does is an idle turn longer. Guarantee: over many turns the sum of `time × weight` is the time of all turns,
//! whatever rhythm the load has, since the distance between two timed turns is drawn anew each time.

/// Turns that one timed turn stands for.
pub(crate) const PERIOD: u64 = 16;

/// So many idle turns, some tens of microseconds, are a rest: who is called more often than that is sampled often enough.
pub(crate) const RESTED: u64 = 4096;

/// What the time of a turn's stages counts for; 0 if it isn't measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Weights {
    /// The time of `process`.
    pub(crate) calls: u64,
    /// The time of a `poll` that sends something. Where it isn't 0, the turn reads the clock as it begins.
    pub(crate) polls: u64,
}

/// Draws the turns to time.
#[derive(Clone, Debug)]
pub(crate) struct Sampler {
    /// Turns until the next timed one.
    left: u64,
    /// Idle turns in a row.
    idle: u64,
    /// Of a linear congruential generator (Knuth's MMIX constants): uniform enough, and one multiplication.
    state: u64,
}

impl Sampler {
    pub(crate) fn new(seed: u64) -> Sampler {
        Sampler { left: PERIOD, idle: 0, state: seed }
    }

    /// What the time of the turn that begins now counts for.
    #[inline]
    pub(crate) fn weigh(&mut self, last_busy: bool) -> Weights {
        self.idle = if last_busy { 0 } else { self.idle + 1 };
        self.left -= 1;
        let drawn = if self.left > 0 { 0 } else { self.draw() };
        Weights { calls: if self.idle >= RESTED { 1 } else { drawn }, polls: drawn }
    }

    /// This turn is timed; the next one that is comes 1 to 2 × `PERIOD` - 1 turns later, all as likely: `PERIOD` on average.
    #[cold]
    fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.left = 1 + (self.state >> 32) % (2 * PERIOD - 1);
        PERIOD
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rested_lcore_is_timed_in_every_turn() {
        let mut sampler = Sampler::new(1);
        let weights: Vec<u64> = (0..2 * RESTED).map(|_| sampler.weigh(false).calls).collect();
        assert!(weights[RESTED as usize - 1..].iter().all(|weight| *weight == 1));
        assert!(weights[..RESTED as usize - 1].iter().all(|weight| [0, PERIOD].contains(weight)));
        assert_ne!(sampler.weigh(true).calls, 1);
    }

    // A load with a rhythm of its own must not be seen only in its expensive turns, or never.
    #[test]
    fn the_weighted_sum_is_the_whole_whatever_the_rhythm() {
        for rhythm in [1, 2, 3, 7, 15, 16, 17, 31, 32, 64] {
            let mut sampler = Sampler::new(rhythm);
            let (mut calls, mut polls, mut whole) = (0, 0, 0);
            for turn in 0..2_000_000u64 {
                let cost = if turn % rhythm == 0 { 100 } else { 1 };
                whole += cost;
                // Idle turns between the busy ones, as in a ping-pong, change nothing.
                let weights = sampler.weigh(turn % 3 == 0);
                calls += cost * weights.calls;
                polls += cost * weights.polls;
            }
            for estimate in [calls, polls] {
                let ratio = estimate as f64 / whole as f64;
                assert!((0.97..1.03).contains(&ratio), "a rhythm of {rhythm}: {ratio}");
            }
        }
    }
}
