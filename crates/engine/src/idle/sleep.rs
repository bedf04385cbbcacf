//! The sleep protocol of an lcore: the order of steps, for any set of wake sources.
//!
//! Guarantees, for every correct [`Sleepable`]: an lcore does not sleep through work that any
//! source announces; a sleep ends by its timer at the latest; work that a source failed to announce
//! is found within the safety time-out and counted as a rescue, so that a lost wake-up shows as a
//! figure and never as a hang.
//!
//! [`crate::lcore::poll_loop`] is the real lcore; the tests here put every arrival at every step of
//! a modelled one.

use std::io;

use crate::idle::policy::Turn;
use crate::stats::clock::Tick;
use crate::stats::wakes::WakeCause;

/// The longest sleep. Nothing depends on it: it bounds the damage of a lost wake-up.
pub(crate) const SAFETY_TIMEOUT_NS: u64 = 1_000_000_000;

/// How long a source may take to announce visible work before this counts as a lost wake-up: the
/// other side may have been preempted between publishing and ringing.
pub(crate) const GRACE_NS: u64 = 100_000_000;

/// The source that ended a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fired {
    Completion,
    /// The doorbell: a ring was filled, or control has news.
    Doorbell,
    /// A descriptor that a stage watches.
    Fd,
    /// No source: the time was up.
    Nothing,
}

/// The sleep protocol's view of an lcore.
pub(crate) trait Sleepable {
    /// One token for every wake source: only a full set can block.
    type Armed;

    /// Arms every source.
    fn arm(&mut self) -> io::Result<Self::Armed>;
    /// Takes one turn of the loop: polls every source, and does all the work.
    fn turn(&mut self) -> Turn;
    /// Whether a source has something that it announces. Takes in what it must, without acting on
    /// it: the call has no effect visible outside.
    fn look(&mut self) -> bool;
    /// Does the work that the last look took in.
    fn act(&mut self);
    /// Blocks on all sources for `timeout_ns` at most. The sources stay armed.
    fn block(&mut self, armed: Self::Armed, timeout_ns: u64) -> io::Result<(Fired, Self::Armed)>;
    /// Disarms, acknowledges fired events, and leaves no source readable.
    fn release(&mut self, armed: Self::Armed) -> io::Result<()>;
    fn now_ns(&self) -> Tick;
    /// Whether control, and not a ring, rang the doorbell.
    fn control_calls(&self) -> bool;
}

/// The outcome of a sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SleepOutcome {
    /// The turn after arming found work: the lcore did not sleep.
    Stayed(Turn),
    /// Slept.
    Slept {
        cause: WakeCause,
        asleep_ns: u64,
        /// Something had arrived that no source had announced.
        rescued: bool,
    },
}

/// Arms everything, looks once more, and if nothing has arrived blocks until `until_ns` at the
/// latest.
pub(crate) fn sleep<B: Sleepable>(lcore: &mut B, until_ns: Option<Tick>) -> io::Result<SleepOutcome> {
    let armed = lcore.arm()?;
    let turn = lcore.turn();
    let due_ns = turn.timer_ns.unwrap_or(Tick::MAX).min(until_ns.unwrap_or(Tick::MAX));
    if turn.busy || due_ns <= turn.now_ns || lcore.control_calls() {
        lcore.release(armed)?;
        return Ok(SleepOutcome::Stayed(turn));
    }
    let from_ns = lcore.now_ns();
    let timeout_ns = due_ns.saturating_sub(from_ns).min(SAFETY_TIMEOUT_NS);
    let (fired, armed) = lcore.block(armed, timeout_ns)?;
    let asleep_ns = lcore.now_ns().saturating_sub(from_ns);
    // The kernel ends a sleep by its own clock, which may be a little ahead of this one.
    let is_to_a_tick = due_ns.saturating_sub(from_ns) <= SAFETY_TIMEOUT_NS;
    let (cause, rescued, armed) = match fired {
        Fired::Nothing if is_to_a_tick || lcore.now_ns() >= due_ns => (WakeCause::Timer, false, armed),
        Fired::Nothing => examine(lcore, armed)?,
        fired => {
            let cause = cause_of(lcore, fired);
            // The work comes first; the system calls that acknowledge the events can wait.
            lcore.turn();
            (cause, false, armed)
        }
    };
    lcore.release(armed)?;
    Ok(SleepOutcome::Slept { cause, asleep_ns, rescued })
}

/// After a pure time-out: has something arrived, and if so, was its announcement merely late? Work
/// that a stage finds when it is polled does not count: nobody announces it.
///
/// The lcore acts only after the grace. Its sends may be answered, and the announcement of an
/// answer must not pass for the missing one.
#[cold]
fn examine<B: Sleepable>(lcore: &mut B, armed: B::Armed) -> io::Result<(WakeCause, bool, B::Armed)> {
    if !lcore.look() {
        return Ok((WakeCause::Timeout, false, armed));
    }
    let (fired, armed) = lcore.block(armed, GRACE_NS)?;
    let judged = (cause_of(lcore, fired), fired == Fired::Nothing, armed);
    lcore.act();
    Ok(judged)
}

fn cause_of<B: Sleepable>(lcore: &B, fired: Fired) -> WakeCause {
    match fired {
        Fired::Completion => WakeCause::Completion,
        Fired::Doorbell if lcore.control_calls() => WakeCause::Control,
        Fired::Doorbell => WakeCause::Ring,
        Fired::Fd => WakeCause::Fd,
        Fired::Nothing => WakeCause::Timeout,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Something is published while the lcore blocks, and not announced by the end of the safety
    /// time-out. The other side answers at once when the sleeper acts on it.
    struct Unannounced {
        /// The announcement never comes, rather than late.
        lost: bool,
        queued: bool,
        answered: bool,
        blocks: Vec<u64>,
        now_ns: Tick,
        /// How much less this clock has moved at the end of a block than the kernel's.
        behind_ns: u64,
    }

    impl Unannounced {
        fn new(lost: bool, behind_ns: u64) -> Unannounced {
            Unannounced { lost, queued: false, answered: false, blocks: Vec::new(), now_ns: 0, behind_ns }
        }
    }

    impl Sleepable for Unannounced {
        type Armed = ();
        fn arm(&mut self) -> io::Result<()> {
            Ok(())
        }
        fn turn(&mut self) -> Turn {
            let busy = std::mem::take(&mut self.queued);
            self.answered |= busy;
            Turn { now_ns: self.now_ns, busy, timer_ns: None, batches: 0 }
        }
        fn look(&mut self) -> bool {
            self.queued
        }
        fn act(&mut self) {
            self.turn();
        }
        fn block(&mut self, (): (), timeout_ns: u64) -> io::Result<(Fired, ())> {
            self.blocks.push(timeout_ns);
            if self.answered || (self.blocks.len() == 2 && !self.lost) {
                return Ok((Fired::Doorbell, ()));
            }
            self.now_ns += timeout_ns - self.behind_ns;
            self.queued = true;
            Ok((Fired::Nothing, ()))
        }
        fn release(&mut self, (): ()) -> io::Result<()> {
            Ok(())
        }
        fn now_ns(&self) -> Tick {
            self.now_ns
        }
        fn control_calls(&self) -> bool {
            false
        }
    }

    #[test]
    fn a_lost_announcement_is_a_rescue_whoever_answers_and_a_late_one_is_none() {
        for lost in [false, true] {
            let mut lcore = Unannounced::new(lost, 0);
            let outcome = sleep(&mut lcore, None).unwrap();
            assert_eq!(lcore.blocks, [SAFETY_TIMEOUT_NS, GRACE_NS]);
            assert!(
                matches!(outcome, SleepOutcome::Slept { rescued, .. } if rescued == lost),
                "lost: {lost}, {outcome:?}"
            );
            assert!(lcore.answered, "what came is acted on");
        }
    }

    /// Unsolicited messages (`unsolicited_wait`) wait for the end of the sleep. NTP may have the
    /// kernel's clock run faster than the TSC, so that by the TSC the sleep ends too soon.
    #[test]
    fn a_sleep_to_a_tick_that_the_kernel_ends_a_little_early_is_no_rescue() {
        for until_ns in [500_000_000, SAFETY_TIMEOUT_NS] {
            let mut lcore = Unannounced::new(true, 50_000);
            let outcome = sleep(&mut lcore, Some(until_ns)).unwrap();
            let is_timer = matches!(outcome, SleepOutcome::Slept { cause: WakeCause::Timer, rescued: false, .. });
            assert!(is_timer, "{outcome:?}");
            assert_eq!(lcore.blocks, [until_ns], "it waits no longer");
        }
    }
}
