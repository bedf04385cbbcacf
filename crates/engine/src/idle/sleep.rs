//! How an lcore goes to sleep and wakes: the order of steps, for any set of wake sources.
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
use crate::stats::counters::WakeCause;

/// The longest sleep. Nothing depends on it: it bounds the damage of a lost wake-up.
pub(crate) const SAFETY_TIMEOUT_NS: u64 = 1_000_000_000;

/// How long a source may take to announce work that is already visible, before this counts as a
/// lost wake-up: the other side may have been preempted between publishing and ringing.
pub(crate) const GRACE_NS: u64 = 100_000_000;

/// What ended a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fired {
    Completion,
    /// The doorbell: a ring was filled, or control wants something.
    Doorbell,
    /// Nothing: the time was up.
    Nothing,
}

/// An lcore, as far as sleeping concerns it.
pub(crate) trait Sleepable {
    /// One token of every wake source: only a full set can block.
    type Armed;

    /// Arms every source.
    fn arm(&mut self) -> io::Result<Self::Armed>;
    /// Takes one turn of the loop: polls every source, and does all the work.
    fn turn(&mut self) -> Turn;
    /// Blocks on all sources for `timeout_ns` at most. The sources stay armed.
    fn block(&mut self, armed: Self::Armed, timeout_ns: u64) -> io::Result<(Fired, Self::Armed)>;
    /// Takes back the arming, acknowledges what has fired, and leaves no source readable.
    fn release(&mut self, armed: Self::Armed) -> io::Result<()>;
    fn now_ns(&self) -> Tick;
    /// Whether control, and not a ring, rang the doorbell.
    fn control_calls(&self) -> bool;
}

/// How a sleep went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The turn after arming found work: not slept at all.
    Stayed(Turn),
    /// Slept.
    Slept {
        cause: WakeCause,
        asleep_ns: u64,
        /// Something had come that no source had announced.
        rescued: bool,
    },
}

/// Arms everything, looks once more, and blocks if there is nothing: until `until_ns` at the
/// latest.
pub(crate) fn sleep<B: Sleepable>(lcore: &mut B, until_ns: Option<Tick>) -> io::Result<Outcome> {
    let armed = lcore.arm()?;
    let turn = lcore.turn();
    let due_ns = turn.timer_ns.unwrap_or(Tick::MAX).min(until_ns.unwrap_or(Tick::MAX));
    if turn.busy || due_ns <= turn.now_ns || lcore.control_calls() {
        lcore.release(armed)?;
        return Ok(Outcome::Stayed(turn));
    }
    let from_ns = lcore.now_ns();
    let timeout_ns = due_ns.saturating_sub(from_ns).min(SAFETY_TIMEOUT_NS);
    let (fired, armed) = lcore.block(armed, timeout_ns)?;
    let asleep_ns = lcore.now_ns().saturating_sub(from_ns);
    let (cause, rescued, armed) = match fired {
        Fired::Nothing if lcore.now_ns() >= due_ns => (WakeCause::Timer, false, armed),
        Fired::Nothing => examine(lcore, armed)?,
        fired => {
            let cause = cause_of(lcore, fired);
            // The work comes first; the system calls that take the events back can wait.
            lcore.turn();
            (cause, false, armed)
        }
    };
    lcore.release(armed)?;
    Ok(Outcome::Slept { cause, asleep_ns, rescued })
}

/// After a pure time-out: has something arrived, and if so, was its announcement merely late? Work
/// that a stage finds when it is polled does not count: nobody announces it.
#[cold]
fn examine<B: Sleepable>(lcore: &mut B, armed: B::Armed) -> io::Result<(WakeCause, bool, B::Armed)> {
    if !lcore.turn().arrived {
        return Ok((WakeCause::Timeout, false, armed));
    }
    let (fired, armed) = lcore.block(armed, GRACE_NS)?;
    Ok((cause_of(lcore, fired), fired == Fired::Nothing, armed))
}

fn cause_of<B: Sleepable>(lcore: &B, fired: Fired) -> WakeCause {
    match fired {
        Fired::Completion => WakeCause::Completion,
        Fired::Doorbell if lcore.control_calls() => WakeCause::Control,
        Fired::Doorbell => WakeCause::Ring,
        Fired::Nothing => WakeCause::Timeout,
    }
}
