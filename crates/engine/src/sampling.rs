//! Which turns of an lcore are timed stage by stage.
//!
//! Reading the clock costs as much as calling a small stage, so only one turn in [`PERIOD`] is timed, and counts for that many. A
//! turn that follows [`RESTED`] idle ones is always timed, for itself: there was time to spare, and a lightly loaded lcore's
//! figures are exact. Guarantee: over many turns the sum of `time × weight` is the time of all turns, whatever rhythm the
//! load has, since the distance between two timed turns is drawn anew each time.

/// Turns that one timed turn stands for.
pub(crate) const PERIOD: u64 = 16;

/// So many idle turns, a few microseconds, are a rest: more than a round trip of the fastest ping-pong.
pub(crate) const RESTED: u64 = 256;

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

    /// What the time of the turn that begins now counts for; 0 if it isn't to be measured.
    #[inline]
    pub(crate) fn weigh(&mut self, last_busy: bool) -> u64 {
        self.idle = if last_busy { 0 } else { self.idle + 1 };
        if self.idle >= RESTED {
            return 1;
        }
        self.left -= 1;
        if self.left > 0 {
            return 0;
        }
        self.left = self.draw();
        PERIOD
    }

    /// 1 to 2 × `PERIOD` - 1, all as likely: `PERIOD` on average.
    fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        1 + (self.state >> 32) % (2 * PERIOD - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rested_lcore_is_timed_in_every_turn() {
        let mut sampler = Sampler::new(1);
        let weights: Vec<u64> = (0..2 * RESTED).map(|_| sampler.weigh(false)).collect();
        assert!(weights[RESTED as usize - 1..].iter().all(|weight| *weight == 1));
        assert!(weights[..RESTED as usize - 1].iter().all(|weight| [0, PERIOD].contains(weight)));
        assert_ne!(sampler.weigh(true), 1);
    }

    // A load with a rhythm of its own must not be seen only in its expensive turns, or never.
    #[test]
    fn the_weighted_sum_is_the_whole_whatever_the_rhythm() {
        for rhythm in [1, 2, 3, 7, 15, 16, 17, 31, 32, 64] {
            let mut sampler = Sampler::new(rhythm);
            let (mut estimate, mut whole) = (0, 0);
            for turn in 0..2_000_000u64 {
                let cost = if turn % rhythm == 0 { 100 } else { 1 };
                whole += cost;
                // Idle turns between the busy ones, as in a ping-pong, change nothing.
                estimate += cost * sampler.weigh(turn % 3 == 0);
            }
            let ratio = estimate as f64 / whole as f64;
            assert!((0.97..1.03).contains(&ratio), "a rhythm of {rhythm}: {ratio}");
        }
    }
}
