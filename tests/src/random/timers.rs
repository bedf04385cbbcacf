//! The timers of a stage of a random plan: armed, moved and canceled at random, with an account of
//! the timers that must be due.

use fastrand::Rng;
use verbline::engine::{Counter, DueTimer, Tick, TimerId};
use verbline::prelude::*;

use super::marks::LATE_NS;

/// Timers that a stage arms or moves in all, so that its run ends.
const ARMS_MAX: u32 = 200;
/// The furthest tick.
const AHEAD_MAX_NS: u64 = 2_000_000;

pub(super) struct Timers {
    max: usize,
    armed: Vec<Armed>,
    next_tag: u64,
    arms_left: u32,
    counts: TimerCounters,
}

/// A timer that is armed.
struct Armed {
    id: TimerId,
    tag: u64,
    at_ns: Tick,
    /// Its tick was past when it was armed or moved; such timers need not come in the order of
    /// their ticks.
    was_past: bool,
}

/// The report has the first four of these counters too.
struct TimerCounters {
    armed: Counter,
    due: Counter,
    canceled: Counter,
    refused: Counter,
    /// Timers that were not due, or not as they were armed.
    astray: Counter,
    /// Timers that came as late as a safety time-out.
    late: Counter,
}

impl Timers {
    pub(super) fn new(context: &StageContext<'_>, max: usize) -> Timers {
        let counts = TimerCounters {
            armed: context.counter("timers_armed"),
            due: context.counter("timers_due"),
            canceled: context.counter("timers_canceled"),
            refused: context.counter("timers_refused"),
            astray: context.counter("timers_astray"),
            late: context.counter("late"),
        };
        Timers { max, armed: Vec::with_capacity(max), next_tag: 0, arms_left: ARMS_MAX, counts }
    }

    /// Arms one, moves one, cancels one, or does nothing.
    pub(super) fn step(&mut self, rng: &mut Rng, out: &mut Outputs<'_>) {
        if self.max == 0 || self.arms_left == 0 {
            return;
        }
        // Some are past when they are armed.
        let at_ns = (out.now_ns() + rng.u64(..AHEAD_MAX_NS)).saturating_sub(AHEAD_MAX_NS / 8);
        let was_past = at_ns <= out.now_ns();
        let any = rng.usize(..).checked_rem(self.armed.len());
        match (rng.u32(..8), any) {
            (0, Some(any)) => {
                let Armed { id, .. } = self.armed.swap_remove(any);
                let is_gone = out.cancel_timer(id) && !out.cancel_timer(id) && !out.rearm_timer(id, at_ns);
                self.counts.astray.add((!is_gone).into());
                self.counts.canceled.add(1);
            }
            (1, Some(any)) => {
                let timer = &mut self.armed[any];
                (timer.at_ns, timer.was_past) = (at_ns, was_past);
                self.counts.astray.add((!out.rearm_timer(timer.id, at_ns)).into());
                self.arms_left -= 1;
            }
            (2..4, _) => {
                let id = out.arm_timer(at_ns, self.next_tag);
                self.counts.astray.add((id.is_some() != (self.armed.len() < self.max)).into());
                if id.is_some() { &self.counts.armed } else { &self.counts.refused }.add(1);
                self.armed.extend(id.map(|id| Armed { id, tag: self.next_tag, at_ns, was_past }));
                self.next_tag += 1;
                self.arms_left -= 1;
            }
            _ => {}
        }
    }

    /// Checks that each due timer was armed this way and is due, and that they come in order.
    pub(super) fn due(&mut self, due: &[DueTimer], out: &Outputs<'_>) {
        let now_ns = out.now_ns();
        let mut last_ns = 0;
        for timer in due {
            let is_this = |known: &Armed| (known.id, known.tag, known.at_ns) == (timer.id, timer.tag, timer.at_ns);
            let known = self.armed.iter().position(is_this).map(|at| self.armed.swap_remove(at));
            let is_next = known.is_some_and(|known| {
                let before_ns = last_ns;
                last_ns = before_ns.max(timer.at_ns);
                known.was_past || before_ns <= timer.at_ns
            });
            self.counts.astray.add((!is_next || timer.at_ns > now_ns).into());
            self.counts.late.add((now_ns.saturating_sub(timer.at_ns) > LATE_NS).into());
        }
        self.counts.astray.add(due.is_empty().into());
        self.counts.due.add(due.len() as u64);
    }
}
