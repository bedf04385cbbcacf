//! Samples the turns of an lcore in which stages are timed.
//!
//! Reading the clock costs as much as calling a small stage. Therefore one turn in [`PERIOD`] is
//! timed, and counts for that many turns. After [`RESTED`] idle turns every call of a stage is
//! timed and counts for itself: there is time to spare, and the figures of a lightly loaded lcore
//! are exact. Polls are not timed then: their begin is known only in a turn that read the clock
//! first, and that would make an idle turn longer.
//!
//! Guarantees: over many turns the sum of `time × weight` is the time of all turns, for any rhythm
//! of the load, since the distance between two timed turns is drawn anew each time; at most two
//! [`PERIOD`]s lie between them; a turn in which nothing changes costs one count.

/// The number of turns that one timed turn stands for.
pub(crate) const PERIOD: u64 = 16;

/// The number of idle turns, some tens of microseconds, that make a rest. A stage that is called
/// more often is sampled often enough.
const RESTED: u64 = 4096;

/// A rest, in timed turns.
const RESTED_DRAWS: u64 = RESTED / PERIOD;

/// The weights of the times of a turn's stages; 0 if a time isn't measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Weights {
    /// The weight of `process`.
    pub(crate) calls: u64,
    /// The weight of a `poll` that sends packets. Where it isn't 0, the turn reads the clock as it
    /// begins.
    pub(crate) polls: u64,
}

/// Draws the turns to time.
#[derive(Clone, Debug)]
pub(crate) struct Sampler {
    /// Turns until the next one whose weights differ from those of the turn before it: a timed one,
    /// or the one after.
    left: u64,
    /// Whether the last turn at which `left` ended was a timed one.
    timed: bool,
    /// Timed turns since a busy one.
    idle_draws: u64,
    /// The state of a linear congruential generator (Knuth's MMIX constants): uniform enough, and
    /// one multiplication.
    state: u64,
}

impl Sampler {
    pub(crate) fn new(seed: u64) -> Sampler {
        Sampler { left: PERIOD, timed: false, idle_draws: 0, state: seed }
    }

    /// Returns the weights of the turn that begins now, if they may differ from the last turn's.
    #[inline]
    pub(crate) fn weigh(&mut self, last_busy: bool) -> Option<Weights> {
        self.left -= 1;
        (last_busy || self.left == 0).then(|| self.change(last_busy))
    }

    #[inline]
    fn change(&mut self, last_busy: bool) -> Weights {
        if last_busy {
            self.idle_draws = 0;
        }
        let drawn = if self.left == 0 { self.draw() } else { 0 };
        Weights { calls: if self.idle_draws >= RESTED_DRAWS { 1 } else { drawn }, polls: drawn }
    }

    /// Draws the next distance. After a timed turn comes an untimed one, then the next timed one 1
    /// to 2 × `PERIOD` - 3 turns later, all equally likely: `PERIOD` on average from one to the
    /// other.
    #[cold]
    fn draw(&mut self) -> u64 {
        self.timed = !self.timed;
        if self.timed {
            self.left = 1;
            self.idle_draws += 1;
            return PERIOD;
        }
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.left = 1 + (self.state >> 32) % (2 * PERIOD - 3);
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Yields the weights of turn after turn.
    struct Turns {
        sampler: Sampler,
        weights: Weights,
    }

    impl Turns {
        fn new(seed: u64) -> Turns {
            Turns { sampler: Sampler::new(seed), weights: Weights::default() }
        }

        fn next(&mut self, last_busy: bool) -> Weights {
            self.weights = self.sampler.weigh(last_busy).unwrap_or(self.weights);
            self.weights
        }
    }

    #[test]
    fn a_rested_lcore_is_timed_in_every_turn() {
        let mut turns = Turns::new(1);
        let weights: Vec<u64> = (0..3 * RESTED).map(|_| turns.next(false).calls).collect();
        let rested = weights.iter().position(|weight| *weight == 1).expect("a rest") as u64;
        assert!((RESTED * 3 / 4..RESTED * 5 / 4).contains(&rested), "rested after {rested} turns");
        assert!(weights[rested as usize..].iter().all(|weight| *weight == 1));
        assert!(weights[..rested as usize].iter().all(|weight| [0, PERIOD].contains(weight)));
        assert_ne!(turns.next(true).calls, 1);
        assert_ne!(turns.next(false).calls, 1, "a new rest has to be earned");
    }

    #[test]
    fn timed_turns_are_a_period_apart_on_average_and_two_at_most() {
        let mut turns = Turns::new(7);
        let timed: Vec<u64> = (0..1_000_000).filter(|turn| turns.next(turn % 5 == 0).polls > 0).collect();
        assert!((60_000..65_000).contains(&timed.len()), "{} of a million", timed.len());
        let gaps = timed.windows(2).map(|pair| pair[1] - pair[0]);
        assert!(gaps.clone().all(|gap| (2..2 * PERIOD).contains(&gap)), "{:?}", gaps.max());
    }

    // A load with a rhythm of its own must not be timed only in its expensive turns, or never.
    #[test]
    fn the_weighted_sum_is_the_whole_whatever_the_rhythm() {
        for rhythm in [1, 2, 3, 7, 15, 16, 17, 31, 32, 64] {
            let mut turns = Turns::new(rhythm);
            let (mut calls, mut polls, mut whole) = (0, 0, 0);
            for turn in 0..2_000_000u64 {
                let cost = if turn % rhythm == 0 { 100 } else { 1 };
                whole += cost;
                // Idle turns between the busy ones, as in a ping-pong, change nothing.
                let weights = turns.next(turn % 3 == 0);
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
