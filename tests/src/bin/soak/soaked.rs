//! One soak of one plan, from its start to its samples and its end.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::disturb::{self, Undo};
use crate::fresh::{Pair, beside_fresh_runs};
use crate::judge::{self, Ending, Finding, judge};
use crate::plan_run::{sample, started};
use crate::process::{Process, STOP_MAX};
use crate::progress::Progress;
use crate::sample::Sample;
use crate::shipped::Shipped;
use crate::timetable::Timetable;

/// A soak that has ended.
pub(crate) struct Soaked {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) samples: Vec<Sample>,
    /// Samples of fresh runs beside it, if it was slower at its end.
    pub(crate) beside: Vec<Pair>,
    pub(crate) times: Timetable,
    pub(crate) disturbances: Vec<&'static str>,
    pub(crate) outcome: Outcome,
    /// The last contents of its terminal.
    pub(crate) shown: String,
}

/// The outcome of a soak.
pub(crate) enum Outcome {
    Judged(Vec<Finding>),
    /// This machine lacks something that the plan needs.
    Skipped(String),
    /// The plan could not be run to its end.
    Broken(String),
}

impl Soaked {
    /// A soak without samples yet.
    pub(crate) fn new(name: &'static str, unit: &'static str, time: Duration) -> Soaked {
        let outcome = Outcome::Broken(String::new());
        let (samples, times, disturbances) = (Vec::new(), Timetable::of(time), Vec::new());
        Soaked { name, unit, samples, beside: Vec::new(), times, disturbances, outcome, shown: String::new() }
    }

    pub(crate) fn verdict(&self) -> &'static str {
        match &self.outcome {
            Outcome::Skipped(_) => "skipped",
            _ if self.is_good() => "held",
            _ => "DID NOT HOLD",
        }
    }

    pub(crate) fn is_good(&self) -> bool {
        match &self.outcome {
            Outcome::Judged(findings) => findings.iter().all(|finding| finding.holds),
            // In CI a check that shows nothing is a failure.
            Outcome::Skipped(_) => std::env::var_os("CI").is_none(),
            Outcome::Broken(_) => false,
        }
    }
}

/// The interval at which disturbances and samples may be due.
const TICK: Duration = Duration::from_millis(50);
/// The least interval between two samples; a long soak has four hundred.
const SAMPLE_EVERY: Duration = Duration::from_millis(250);
const SAMPLES: u32 = 400;

/// Runs a plan for `time` under the timetable's disturbances, and judges it.
pub(crate) fn soak(plan: &Shipped, programs: &Path, time: Duration, progress: &Progress) -> Soaked {
    let mut soaked = Soaked::new(plan.name, plan.rate.unit(), time);
    soaked.outcome = match plan.arguments(time) {
        Err(why) => Outcome::Skipped(why),
        Ok(arguments) => match run(plan, &programs.join(plan.app), &arguments, time, progress, &mut soaked) {
            Err(why) => Outcome::Broken(why),
            Ok(ending) => Outcome::Judged(judge(plan, &soaked.times, &soaked.samples, &soaked.beside, &ending)),
        },
    };
    soaked
}

fn run(
    plan: &Shipped,
    program: &Path,
    arguments: &[String],
    time: Duration,
    progress: &Progress,
    soaked: &mut Soaked,
) -> Result<Ending, String> {
    let program = program.canonicalize().map_err(|error| missing(program, &error))?;
    let (mut process, begun) = started(plan, &program, arguments)?;
    disturbed(plan, &mut process, begun, time, progress, soaked)?;
    if judge::is_slower(plan, &soaked.times, &soaked.samples) {
        let (from, to) = soaked.times.last;
        soaked.beside = beside_fresh_runs(plan, &mut process, (&program, arguments), (begun, to - from), progress)?;
    }
    let by_itself = process.ended().is_some();
    let asked = Instant::now();
    if !by_itself {
        process.signal(Signal::TERM)?;
    }
    let status = process.finish(STOP_MAX);
    let stop = asked.elapsed();
    let (report, shown) = process.said();
    soaked.shown = shown;
    Ok(Ending { status, stop, report: serde_json::from_str(&report).map_err(|error| error.to_string()), by_itself })
}

fn missing(program: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}; build it, or say where it is with --programs", program.display())
}

/// Follows the timetable until the time is up, or the run has ended.
fn disturbed(
    plan: &Shipped,
    process: &mut Process,
    begun: Instant,
    time: Duration,
    progress: &Progress,
    soaked: &mut Soaked,
) -> Result<(), String> {
    let every = (time / SAMPLES).max(SAMPLE_EVERY);
    let mut entries = soaked.times.entries.clone().into_iter().peekable();
    let mut under_way: Option<(Duration, Undo)> = None;
    let mut sample_due = Duration::ZERO;
    while begun.elapsed() < time && process.ended().is_none() {
        let now = begun.elapsed();
        if let Some((_, undo)) = under_way.take_if(|(until, _)| *until <= now) {
            undo.end(process)?;
        }
        if let Some((_, undo)) = &under_way {
            undo.go_on(process)?;
        }
        if let Some(entry) = entries.next_if(|entry| entry.at <= now && under_way.is_none()) {
            let undo = disturb::begin(entry.what, soaked.disturbances.len(), process)?;
            under_way = Some((now + entry.lasts, undo));
            soaked.disturbances.push(entry.what.name());
        }
        if sample_due <= now {
            sample_due = now + every;
            soaked.samples.extend(sample(plan, process, now));
        }
        progress.shows(now, under_way.is_some().then(|| soaked.disturbances.last()).flatten().copied());
        std::thread::sleep(TICK);
    }
    // The soak may end during a disturbance, if this thread was kept from its CPU.
    under_way.map_or(Ok(()), |(_, undo)| undo.end(process))
}
