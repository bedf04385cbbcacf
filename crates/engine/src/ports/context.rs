//! [`LcoreContext`]: the sinks, caches, time and counters that the nodes and ports of an lcore
//! share.

use verbline_mem::BoundCache;

use crate::capture::tap::Tap;
use crate::ports::sink::Sink;
use crate::stats::counter::Shared;
use crate::stats::counters::{LcoreStats, StageStats};
use crate::stats::sampling::Weights;
use crate::stats::turn_time::TurnTime;

/// State shared by the nodes and ports of an lcore.
pub(crate) struct LcoreContext {
    pub(crate) sinks: Vec<Sink>,
    pub(crate) caches: Vec<BoundCache>,
    pub(crate) time: TurnTime,
    pub(crate) stats: Shared<LcoreStats>,
    /// The weights of the times that stages take in this turn.
    pub(crate) weights: Weights,
    /// When the last stage of this turn ended, in cycles. The next stage's time begins there, so
    /// that a timed turn of n stages reads the clock n + 1 times.
    pub(crate) stage_ended: Option<u64>,
    /// A capture of the packets that pass its ports.
    pub(crate) tap: Option<Box<Tap>>,
}

impl LcoreContext {
    /// Returns when a stage that is called now began, if its call is timed.
    #[inline]
    pub(crate) fn stage_begins(&self) -> u64 {
        match self.weights.calls {
            0 => 0,
            _ => self.stage_ended.unwrap_or_else(|| self.time.clock().cycles()),
        }
    }

    /// Ends a stage that began at `began`; charges it with its cycles, if they have a weight.
    #[inline]
    pub(crate) fn stage_ends(&mut self, began: u64, weight: u64, stats: &StageStats) {
        if weight > 0 {
            self.charge(began, weight, stats);
        }
    }

    // Not inlined: few turns with work are timed.
    #[cold]
    fn charge(&mut self, began: u64, weight: u64, stats: &StageStats) {
        let now = self.time.clock().cycles();
        self.stage_ended = Some(now);
        let ran = self.time.ran_cycles(now.wrapping_sub(began));
        stats.cycles.add(ran * weight);
        stats.timed.add(1);
        stats.call_times.add(ran, weight);
        // The variance of a sum of calls, each timed once in `weight`, as Horvitz and Thompson
        // estimate it. Both numbers are far below 2^63: a signed integer is converted by one
        // instruction, an unsigned one by six.
        stats.variance.add((ran as i64 as f64).powi(2) * (weight * (weight - 1)) as i64 as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::clock::told::Time;
    use crate::stats::counter::shared;

    /// A turn that stands for sixteen, with two stages, one behind the other; then an untimed turn.
    #[test]
    fn a_timed_stage_is_charged_for_the_turns_that_it_stands_for() {
        let (time, lcore) = (Time::default(), shared::<LcoreStats>());
        let mut ctx = LcoreContext {
            sinks: Vec::new(),
            caches: Vec::new(),
            time: TurnTime::new(time.clock(), Shared::clone(&lcore)),
            stats: lcore,
            weights: Weights { calls: 16, polls: 0 },
            stage_ended: None,
            tap: None,
        };
        let stages = [shared::<StageStats>(), shared::<StageStats>()];
        time.pass(1_000);
        for (stage, ran_ns) in stages.iter().zip([100, 30]) {
            let began = ctx.stage_begins();
            time.pass(ran_ns);
            ctx.stage_ends(began, 16, stage);
            // Time after the stage is the next one's.
            time.pass(7);
        }
        let charged = |stage: &StageStats| (stage.cycles.value(), stage.timed.value(), stage.variance.value());
        assert_eq!(charged(&stages[0]), (1_600, 1, 100.0 * 100.0 * 16.0 * 15.0));
        assert_eq!(charged(&stages[1]), (37 * 16, 1, 37.0 * 37.0 * 16.0 * 15.0));

        ctx.weights = Weights::default();
        assert_eq!(ctx.stage_begins(), 0, "no clock is read for what is not timed");
        time.pass(500);
        ctx.stage_ends(0, 0, &stages[1]);
        assert_eq!(charged(&stages[1]), (37 * 16, 1, 37.0 * 37.0 * 16.0 * 15.0));
    }
}
