//! A run that was slower at its end than at first, beside fresh ones of the same plan.
//!
//! A machine with others on it is faster at one time than at another, by half and for minutes: the
//! two CPUs of a guest may be neighbours in one minute, and each on its own chip in the next. What
//! a disturbance leaves behind a fresh run has not, and whatever else there is both have.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::plan_run::{sample, started};
use crate::process::Process;
use crate::progress::Progress;
use crate::sample::Sample;
use crate::shipped::Shipped;

/// What a fresh run did, and right behind it the soaked one.
pub(crate) struct Pair {
    pub(crate) fresh: Vec<Sample>,
    pub(crate) soaked: Vec<Sample>,
}

/// An odd number, so that most of them say one thing or the other.
const PAIRS: usize = 5;
/// The longest stretch that is compared: longer ones would lie further apart.
const STRETCH_MAX: Duration = Duration::from_secs(10);
/// What starts a run, or wakes one, is in no stretch.
const SETTLING: Duration = Duration::from_millis(500);

/// Runs a fresh one while the soaked one is stopped, and lets that go on while there is no other,
/// in turn. None is compared any more once the soaked one has ended.
pub(crate) fn beside_fresh_runs(
    plan: &Shipped,
    soaked: &mut Process,
    (program, arguments): (&Path, &[String]),
    (begun, stretch): (Instant, Duration),
    progress: &Progress,
) -> Result<Vec<Pair>, String> {
    let stretch = stretch.min(STRETCH_MAX);
    let mut pairs = Vec::new();
    while pairs.len() < PAIRS && soaked.ended().is_none() {
        progress.shows(begun.elapsed(), Some("beside a fresh run"));
        soaked.signal(Signal::STOP)?;
        let fresh = started(plan, program, arguments).map(|(fresh, _)| settled(plan, &fresh, stretch));
        soaked.signal(Signal::CONT)?;
        pairs.push(Pair { fresh: fresh?, soaked: settled(plan, soaked, stretch) });
    }
    Ok(pairs)
}

/// The first and the last sample of a stretch, from when the run has settled.
fn settled(plan: &Shipped, process: &Process, stretch: Duration) -> Vec<Sample> {
    std::thread::sleep(SETTLING);
    let begun = Instant::now();
    let first = sample(plan, process, Duration::ZERO);
    std::thread::sleep(stretch);
    first.into_iter().chain(sample(plan, process, begun.elapsed())).collect()
}
