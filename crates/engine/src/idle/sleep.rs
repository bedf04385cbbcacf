//! How an lcore goes to sleep and comes back: the order of steps, over whatever wake sources it has.
//!
//! Guarantees, for any [`Bed`] that keeps its word: no work that any source announces is slept through; a sleep ends by
//! its timer at the latest; and what a source failed to announce is still found within the safety time-out, and counted
//! as a rescue, so that a lost wake-up shows as a figure and never as a hang.
//!
//! The real bed is an lcore ([`crate::lcore::poll_loop`]); the tests here put every arrival at every step of a modelled one.

use std::io;

use crate::idle::policy::Turn;
use crate::stats::clock::Tick;
use crate::stats::counters::WakeCause;

/// The longest sleep. Nothing should ever depend on it: it bounds the damage of a lost wake-up.
pub(crate) const SAFETY_TIMEOUT_NS: u64 = 1_000_000_000;

/// How long a source may take to announce work that is already visible, before this counts as a lost wake-up: the other
/// side may have been preempted between publishing and ringing.
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

/// What an lcore sleeps on.
pub(crate) trait Bed {
    /// One token of every wake source: only a full set can block.
    type Armed;

    /// Arms every source.
    fn arm(&mut self) -> io::Result<Self::Armed>;
    /// Takes one turn of the loop: polls every source, does what there is to do.
    fn turn(&mut self) -> Turn;
    /// Blocks on all sources for `timeout_ns` at most. The sources stay armed.
    fn block(&mut self, armed: Self::Armed, timeout_ns: u64) -> io::Result<(Fired, Self::Armed)>;
    /// Takes back the arming, acknowledges what has fired, and leaves no source readable.
    fn release(&mut self, armed: Self::Armed) -> io::Result<()>;
    fn now_ns(&self) -> Tick;
    /// Whether the doorbell was rung by control rather than by a ring.
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

/// Arms everything, looks once more, and blocks if there is nothing.
pub(crate) fn sleep<B: Bed>(bed: &mut B) -> io::Result<Outcome> {
    let armed = bed.arm()?;
    let turn = bed.turn();
    let due_ns = turn.timer_ns.unwrap_or(Tick::MAX);
    if turn.busy || due_ns <= turn.now_ns || bed.control_calls() {
        bed.release(armed)?;
        return Ok(Outcome::Stayed(turn));
    }
    let from_ns = bed.now_ns();
    let timeout_ns = due_ns.saturating_sub(from_ns).min(SAFETY_TIMEOUT_NS);
    let (fired, armed) = bed.block(armed, timeout_ns)?;
    let asleep_ns = bed.now_ns().saturating_sub(from_ns);
    let (cause, rescued, armed) = match fired {
        Fired::Nothing if bed.now_ns() >= due_ns => (WakeCause::Timer, false, armed),
        Fired::Nothing => examine(bed, armed)?,
        fired => {
            let cause = cause_of(bed, fired);
            // What it was woken for comes first; the system calls that take the events back can wait for it.
            bed.turn();
            (cause, false, armed)
        }
    };
    bed.release(armed)?;
    Ok(Outcome::Slept { cause, asleep_ns, rescued })
}

/// After a pure time-out: has something come, and if so, was its announcement merely late? What a stage does of its own accord
/// when it is polled again is not announced by anybody.
#[cold]
fn examine<B: Bed>(bed: &mut B, armed: B::Armed) -> io::Result<(WakeCause, bool, B::Armed)> {
    if !bed.turn().came {
        return Ok((WakeCause::Timeout, false, armed));
    }
    let (fired, armed) = bed.block(armed, GRACE_NS)?;
    Ok((cause_of(bed, fired), fired == Fired::Nothing, armed))
}

fn cause_of<B: Bed>(bed: &B, fired: Fired) -> WakeCause {
    match fired {
        Fired::Completion => WakeCause::Completion,
        Fired::Doorbell if bed.control_calls() => WakeCause::Control,
        Fired::Doorbell => WakeCause::Ring,
        Fired::Nothing => WakeCause::Timeout,
    }
}
