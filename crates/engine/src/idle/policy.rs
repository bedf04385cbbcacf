//! Decides when an lcore spins and when it sleeps. Nothing here touches a device, a thread or a
//! clock.
//!
//! ```text
//! spin ──(idle for the budget)──▶ arm every source ──▶ poll everything once more ──(all empty)──▶ block ──▶ spin
//!                                                           └──(anything)──▶ spin, for the whole budget again
//! ```
//!
//! Guarantees: the policy `poll` never sleeps; an lcore that was woken stays awake for at least the
//! dwell; work renews the budget; an lcore waits awake for a timer that is due sooner than a
//! wake-up costs (except under `event`).

use verbline_plan::IdlePolicy;

use crate::stats::clock::Tick;

/// The plan's figures, with the measured default filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Budget {
    pub(crate) policy: IdlePolicy,
    pub(crate) spin_ns: u64,
    pub(crate) spin_from: SpinFrom,
    pub(crate) dwell_ns: u64,
    /// What a wake-up costs on this machine, one way.
    pub(crate) wake_cost_ns: u64,
}

/// Where a spin budget comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpinFrom {
    /// The plan says it, or its policy leaves no choice.
    Plan,
    /// What a wake-up costs, measured.
    Measured,
    /// The best that could be had where every measurement was disturbed.
    Disturbed,
}

impl SpinFrom {
    /// As the report says it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            SpinFrom::Plan => "plan",
            SpinFrom::Measured => "measured",
            SpinFrom::Disturbed => "disturbed",
        }
    }
}

/// What one turn of the loop left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) now_ns: Tick,
    /// It found work, or something must be tried again at once (a stage that says busy, a ring that
    /// was full).
    pub(crate) busy: bool,
    /// Some of that arrived by a wake source, a completion or a ring, and so was announced or will
    /// be. A stage may find work whenever it is polled, and announces nothing.
    pub(crate) arrived: bool,
    /// The earliest tick at which a stage or a port wants to be called.
    pub(crate) timer_ns: Option<Tick>,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Spin,
    /// Arm, poll once more, and if that finds nothing block until this timer at the latest.
    Sleep {
        timer_ns: Option<Tick>,
    },
}

/// The state of the policy of one lcore.
#[derive(Clone, Debug)]
pub(crate) struct Idle {
    budget: Budget,
    /// Since when nothing was found; `None` while busy.
    idle_since_ns: Option<Tick>,
    /// Not to sleep before this tick, whatever happens.
    awake_until_ns: Tick,
}

impl Idle {
    pub(crate) fn new(budget: Budget) -> Idle {
        Idle { budget, idle_since_ns: None, awake_until_ns: 0 }
    }

    /// A turn found work.
    #[inline]
    pub(crate) fn busy(&mut self) {
        self.idle_since_ns = None;
    }

    /// Decides after a turn of the loop.
    pub(crate) fn after(&mut self, turn: Turn) -> Step {
        if turn.busy {
            self.busy();
            return Step::Spin;
        }
        if self.budget.policy == IdlePolicy::Poll {
            return Step::Spin;
        }
        let since_ns = *self.idle_since_ns.get_or_insert(turn.now_ns);
        if turn.now_ns < self.awake_until_ns || turn.now_ns.saturating_sub(since_ns) < self.spin_ns() {
            return Step::Spin;
        }
        match turn.timer_ns {
            Some(due_ns) if due_ns <= turn.now_ns => Step::Spin,
            Some(due_ns) if self.waits_awake_for(due_ns - turn.now_ns) => Step::Spin,
            timer_ns => Step::Sleep { timer_ns },
        }
    }

    /// A sleep has ended, whatever ended it.
    pub(crate) fn woke(&mut self, now_ns: Tick) {
        self.idle_since_ns = None;
        self.awake_until_ns = now_ns.saturating_add(self.budget.dwell_ns);
    }

    /// Arming found work: the lcore has not slept, and owes no dwell, but its budget starts anew.
    pub(crate) fn stayed(&mut self) {
        self.idle_since_ns = None;
    }

    fn spin_ns(&self) -> u64 {
        match self.budget.policy {
            IdlePolicy::Event => 0,
            IdlePolicy::Poll | IdlePolicy::Adaptive => self.budget.spin_ns,
        }
    }

    fn waits_awake_for(&self, remaining_ns: u64) -> bool {
        self.budget.policy == IdlePolicy::Adaptive && remaining_ns < self.budget.wake_cost_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn idle(policy: IdlePolicy) -> Idle {
        Idle::new(Budget { policy, spin_ns: 100, spin_from: SpinFrom::Plan, dwell_ns: 500, wake_cost_ns: 40 })
    }

    fn quiet(now_ns: Tick) -> Turn {
        Turn { now_ns, busy: false, arrived: false, timer_ns: None }
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
            idle.woke(10_000);
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
