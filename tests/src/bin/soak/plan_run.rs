//! Starts a run of a plan, and takes samples of it.

use std::path::Path;
use std::time::{Duration, Instant};

use verbline_tests::Program;

use crate::live::number;
use crate::process::Process;
use crate::sample::Sample;
use crate::shipped::{Rate, Shipped};

/// A run that has counted nothing by then does not work.
const START_MAX: Duration = Duration::from_secs(30);
/// How often to look whether it has.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Starts a run, and waits until it has counted its first unit. Also returns that moment.
pub(crate) fn started(plan: &Shipped, program: &Path, arguments: &[String]) -> Result<(Process, Instant), String> {
    let mut process = Process::start(&Program::new(program).with(arguments))?;
    let begun = Instant::now();
    while number(&process.shown(), plan.rate.unit()).is_none_or(|done| done == 0) {
        if process.ended().is_some() || begun.elapsed() > START_MAX {
            let (_, shown) = process.said();
            return Err(format!("it has counted nothing after {:.0?}; it said:\n{shown}", begun.elapsed()));
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok((process, Instant::now()))
}

/// A sample of the run; `None` once it has ended.
pub(crate) fn sample(plan: &Shipped, process: &Process, at: Duration) -> Option<Sample> {
    let sample = Sample::of(process.id())?;
    let shown = process.shown();
    let work = match plan.rate {
        Rate::OfWork { work, .. } => number(&shown, work)?,
        Rate::OfTime { .. } | Rate::Recorded { .. } => 0,
    };
    Some(Sample { at, done: number(&shown, plan.rate.unit())?, work, ..sample })
}
