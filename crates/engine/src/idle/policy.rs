//! Decides when an lcore spins and when it sleeps. Nothing here touches a device, a thread or a
//! clock.
//!
//! ```text
//! spin ──(idle for the budget)──▶ arm every source ──▶ poll everything once more ──(all empty)──▶ block ──▶ spin
//!                                                           └──(anything)──▶ spin, for the whole budget again
//! ```
//!
//! The budget is the plan's `spin`. Without it the lcore learns from its arrivals when to spin and
//! when to sleep ([`super::forecast`]).
//!
//! Guarantees: the policy `poll` never sleeps; an lcore that was woken by work stays awake for at
//! least the dwell; work renews the budget; an lcore waits awake for a timer that is due sooner
//! than a wake-up costs (except under `event`).

use verbline_plan::IdlePolicy;
use verbline_ring::Pause;

use super::forecast::{Forecast, Objective};
use crate::stats::clock::Tick;
use crate::stats::wakes::WakeCause;

/// The plan's figures, with the measured default filled in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Budget {
    pub(crate) policy: IdlePolicy,
    /// The budget; with an objective, the longest that it spins in one gap.
    pub(crate) spin_ns: u64,
    pub(crate) spin_from: SpinFrom,
    pub(crate) dwell_ns: u64,
    /// The cost of a wake-up on this machine, one way.
    pub(crate) wake_cost_ns: u64,
    /// `None` where the budget is the same in every gap.
    pub(crate) objective: Option<Objective>,
    /// The pause after each turn without work, if there is one.
    pub(crate) pause: Option<Pause>,
}

impl Budget {
    /// All times zero, for tests that set the ones they need.
    pub(crate) fn none(policy: IdlePolicy) -> Budget {
        Budget {
            policy,
            spin_ns: 0,
            spin_from: SpinFrom::Plan,
            dwell_ns: 0,
            wake_cost_ns: 0,
            objective: None,
            pause: None,
        }
    }
}

/// The source of a spin budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpinFrom {
    /// The plan gives it, or its policy leaves no choice.
    Plan,
    /// The measured cost of a wake-up.
    Measured,
    /// The least cost measured: every measurement was disturbed.
    Disturbed,
}

impl SpinFrom {
    /// Returns the report's word for it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            SpinFrom::Plan => "plan",
            SpinFrom::Measured => "measured",
            SpinFrom::Disturbed => "disturbed",
        }
    }
}

/// The result of one turn of the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) now_ns: Tick,
    /// The turn found work, or something must be tried again at once (a busy stage, a full ring).
    pub(crate) busy: bool,
    /// The earliest tick at which a stage or a port wants to be called.
    pub(crate) timer_ns: Option<Tick>,
    /// Turns so far that found work.
    pub(crate) batches: u64,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Spin,
    /// Arm, poll once more, and if that finds nothing, block until this tick at the latest.
    Sleep {
        timer_ns: Option<Tick>,
    },
}

/// The state of the policy of one lcore.
#[derive(Debug)]
pub(crate) struct Idle {
    budget: Budget,
    forecast: Option<Forecast>,
    gap: Gap,
    /// No turn has found work since `gap` began.
    in_gap: bool,
    /// The lcore does not sleep before this tick.
    awake_until_ns: Tick,
    /// The end of the last sleep decided on.
    timer_ns: Option<Tick>,
    /// How long before an expected arrival a sleep ends: the time that a timer's wake-up takes,
    /// which is longer after long sleeps.
    early_ns: u64,
}

/// A wake-up that takes longer than this multiple of the measured time was disturbed, and does not
/// predict the next one.
const LATE_WAKES: u64 = 4;
/// One wake-up forgets this part of a difference.
const FORGET: u64 = 64;

/// The present gap, or the last one.
#[derive(Clone, Copy, Debug, Default)]
struct Gap {
    since_ns: Tick,
    /// The last time at which nothing had arrived yet.
    last_ns: Tick,
    /// The arrival found the lcore asleep.
    late: bool,
    /// Turns that had found work when the gap began.
    batches: u64,
}

impl Idle {
    pub(crate) fn new(budget: Budget) -> Idle {
        let forecast = budget.objective.map(|objective| Forecast::new(objective, budget.wake_cost_ns));
        let early_ns = if forecast.is_some() { budget.wake_cost_ns } else { 0 };
        Idle { budget, forecast, gap: Gap::default(), in_gap: false, awake_until_ns: 0, timer_ns: None, early_ns }
    }

    /// Records a turn that found work.
    #[inline]
    pub(crate) fn busy(&mut self) {
        self.in_gap = false;
    }

    /// Pauses after a turn without work in which nothing is decided.
    #[inline]
    pub(crate) fn pause(&self) {
        if let Some(pause) = self.budget.pause {
            pause.wait();
        }
    }

    /// Decides the next step after a turn of the loop.
    pub(crate) fn after(&mut self, turn: Turn) -> Step {
        if turn.busy {
            self.busy();
            return Step::Spin;
        }
        if self.budget.policy == IdlePolicy::Poll {
            return Step::Spin;
        }
        if !self.in_gap {
            self.begin(turn);
        }
        (self.gap.last_ns, self.gap.late) = (turn.now_ns, false);
        if turn.now_ns < self.awake_until_ns {
            return Step::Spin;
        }
        match (self.sleep_until_ns(turn.now_ns), turn.timer_ns) {
            (None, _) => Step::Spin,
            (_, Some(due_ns)) if due_ns <= turn.now_ns => Step::Spin,
            (_, Some(due_ns)) if self.waits_awake_for(due_ns - turn.now_ns) => Step::Spin,
            (Some(until_ns), due_ns) => {
                let until_ns = due_ns.map_or(Tick::MAX, |due_ns| due_ns - self.early_ns).min(until_ns);
                self.timer_ns = (until_ns != Tick::MAX).then_some(until_ns);
                Step::Sleep { timer_ns: self.timer_ns }
            }
        }
    }

    /// Records the end of a sleep.
    pub(crate) fn woke(&mut self, now_ns: Tick, cause: WakeCause) {
        let late = matches!(cause, WakeCause::Completion | WakeCause::Ring | WakeCause::Fd);
        if self.forecast.is_some() && !late {
            // The gap goes on.
            if cause == WakeCause::Timer {
                self.overslept(now_ns);
            }
            // Unless something arrived while the lcore woke up.
            (self.gap.last_ns, self.gap.late) = (now_ns, true);
            return;
        }
        self.gap.last_ns = self.gap.last_ns.max(now_ns.saturating_sub(self.budget.wake_cost_ns));
        self.gap.late = late;
        self.in_gap = false;
        self.awake_until_ns = now_ns.saturating_add(self.budget.dwell_ns);
    }

    /// Learns how long a wake-up takes: at once if it takes longer, gradually if it takes less.
    fn overslept(&mut self, now_ns: Tick) {
        let Some(timer_ns) = self.timer_ns else { return };
        let least_ns = self.budget.wake_cost_ns;
        let took_ns = now_ns.saturating_sub(timer_ns).clamp(least_ns, LATE_WAKES * least_ns);
        let shorter_ns = self.early_ns.saturating_sub(took_ns);
        self.early_ns = took_ns.max(self.early_ns - shorter_ns / FORGET);
    }

    /// Arming found work: the lcore has not slept and owes no dwell, but its budget starts anew.
    pub(crate) fn stayed(&mut self) {
        self.in_gap = false;
    }

    /// Begins a gap with its first turn without work. Learning from the last gap could wait until
    /// now.
    fn begin(&mut self, turn: Turn) {
        let Gap { since_ns, last_ns, late, batches } = self.gap;
        if let Some(forecast) = &mut self.forecast
            && since_ns > 0
        {
            // The time of the arrival is not known exactly: waking up may have taken longer than it
            // was measured to.
            let late = late.then_some((LATE_WAKES - 1) * self.budget.wake_cost_ns);
            forecast.ended(last_ns.saturating_sub(since_ns), turn.batches.saturating_sub(batches), late);
        }
        self.gap = Gap { since_ns: turn.now_ns, last_ns: turn.now_ns, late: false, batches: turn.batches };
        self.in_gap = true;
    }

    /// Returns until when to sleep, if it is time to; `Tick::MAX`: until something arrives.
    fn sleep_until_ns(&self, now_ns: Tick) -> Option<Tick> {
        let idle_ns = now_ns.saturating_sub(self.gap.since_ns);
        let Some(forecast) = &self.forecast else {
            return (idle_ns >= self.spin_ns()).then_some(Tick::MAX);
        };
        let window = forecast.window(idle_ns).filter(|window| window.from_ns <= idle_ns)?;
        if window.to_ns == u64::MAX {
            return Some(Tick::MAX);
        }
        let until_ns = self.gap.since_ns.saturating_add(window.to_ns).saturating_sub(self.early_ns);
        (until_ns > now_ns.saturating_add(self.budget.wake_cost_ns)).then_some(until_ns)
    }

    fn spin_ns(&self) -> u64 {
        match self.budget.policy {
            IdlePolicy::Event => 0,
            IdlePolicy::Poll | IdlePolicy::Adaptive => self.budget.spin_ns,
        }
    }

    fn waits_awake_for(&self, remaining_ns: u64) -> bool {
        self.budget.policy == IdlePolicy::Adaptive && remaining_ns < self.budget.wake_cost_ns + self.early_ns
    }

    /// Returns the earliest time at which the lcore goes to sleep if nothing arrives; `None`: now.
    #[cfg(feature = "simulation")]
    pub(crate) fn spins_until_ns(&self, now_ns: Tick) -> Option<Tick> {
        let idle_ns = now_ns.saturating_sub(self.gap.since_ns);
        let from_ns = match &self.forecast {
            None => self.spin_ns(),
            Some(forecast) => match forecast.window(idle_ns) {
                // The rest of this window is not worth a sleep.
                Some(window) if window.from_ns <= idle_ns => window.to_ns,
                Some(window) => window.from_ns,
                None => u64::MAX,
            },
        };
        let until_ns = self.gap.since_ns.saturating_add(from_ns).max(self.awake_until_ns);
        (until_ns > now_ns).then_some(until_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn idle(policy: IdlePolicy) -> Idle {
        Idle::new(Budget { spin_ns: 100, dwell_ns: 500, wake_cost_ns: 40, ..Budget::none(policy) })
    }

    fn quiet(now_ns: Tick) -> Turn {
        Turn { now_ns, busy: false, timer_ns: None, batches: 0 }
    }

    #[test]
    fn poll_never_sleeps() {
        let mut idle = idle(IdlePolicy::Poll);
        assert!((0..1_000_000).step_by(1000).all(|now| idle.after(quiet(now)) == Step::Spin));
    }

    #[test]
    fn adaptive_sleeps_once_the_budget_is_spent_and_work_renews_it() {
        let mut idle = idle(IdlePolicy::Adaptive);
        assert_eq!(idle.after(quiet(1000)), Step::Spin);
        assert_eq!(idle.after(quiet(1099)), Step::Spin);
        assert_eq!(idle.after(Turn { busy: true, ..quiet(1100) }), Step::Spin);
        assert_eq!(idle.after(quiet(1150)), Step::Spin, "the budget starts at the first idle turn");
        assert_eq!(idle.after(quiet(1249)), Step::Spin);
        assert_eq!(idle.after(quiet(1250)), Step::Sleep { timer_ns: None });
    }

    #[test]
    fn event_sleeps_at_the_first_idle_turn() {
        assert_eq!(idle(IdlePolicy::Event).after(quiet(0)), Step::Sleep { timer_ns: None });
    }

    // Short polling after a wake-up cut the throughput of others four- to fivefold (seastar#3202).
    #[test]
    fn a_woken_lcore_stays_awake_for_the_dwell_in_event_mode_too() {
        for policy in [IdlePolicy::Event, IdlePolicy::Adaptive] {
            let mut idle = idle(policy);
            idle.woke(10_000, WakeCause::Completion);
            assert_eq!(idle.after(quiet(10_001)), Step::Spin);
            assert_eq!(idle.after(quiet(10_499)), Step::Spin);
            assert_eq!(idle.after(quiet(10_500)), Step::Sleep { timer_ns: None });
        }
    }

    #[test]
    fn a_due_timer_keeps_it_awake_and_a_later_one_bounds_the_sleep() {
        let mut event = idle(IdlePolicy::Event);
        assert_eq!(event.after(Turn { timer_ns: Some(700), ..quiet(700) }), Step::Spin);
        assert_eq!(event.after(Turn { timer_ns: Some(710), ..quiet(700) }), Step::Sleep { timer_ns: Some(710) });

        let mut adaptive = idle(IdlePolicy::Adaptive);
        adaptive.after(quiet(0));
        assert_eq!(
            adaptive.after(Turn { timer_ns: Some(739), ..quiet(700) }),
            Step::Spin,
            "sooner than a wake-up costs"
        );
        assert_eq!(adaptive.after(Turn { timer_ns: Some(740), ..quiet(700) }), Step::Sleep { timer_ns: Some(740) });
    }

    #[test]
    fn arming_in_vain_renews_the_budget() {
        let mut idle = idle(IdlePolicy::Adaptive);
        idle.after(quiet(0));
        assert_eq!(idle.after(quiet(100)), Step::Sleep { timer_ns: None });
        idle.stayed();
        assert_eq!(idle.after(quiet(101)), Step::Spin);
        assert_eq!(idle.after(quiet(201)), Step::Sleep { timer_ns: None });
    }
}
