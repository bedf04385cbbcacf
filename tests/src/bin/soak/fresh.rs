//! Compares a run that was slower at its end than at first with fresh runs of the same plan.
//!
//! A machine with other guests is faster at one time than at another, by half and for minutes: the
//! two CPUs of a guest may be neighbours in one minute, and each on its own chip in the next. The
//! after-effects of a disturbance slow only the soaked run; everything else slows both.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::plan_run::{sample, started};
use crate::process::Process;
use crate::progress::Progress;
use crate::sample::Sample;
use crate::shipped::Shipped;

/// Samples of a fresh run, and right after it of the soaked one.
pub(crate) struct Pair {
    pub(crate) fresh: Vec<Sample>,
    pub(crate) soaked: Vec<Sample>,
}

/// The number of pairs: odd, so that a majority decides.
const PAIRS: usize = 5;
/// The longest compared stretch: longer ones would lie further apart.
const STRETCH_MAX: Duration = Duration::from_secs(10);
/// Time to settle after a start or a wake-up; it belongs to no stretch.
const SETTLING: Duration = Duration::from_millis(500);

/// Runs a fresh run while the soaked one is stopped, then lets the soaked one continue alone, in
/// turn. No more pairs are taken once the soaked run has ended.
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
