//! Runs jobs in turn, one in each lane, and collects a program's results once all of its jobs are
//! done.

use std::collections::BTreeMap;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::build::{Built, Error};
use crate::program::{self, Ended, Limits, Turns};

/// Some tests of a program, which run in one process.
#[derive(Debug)]
pub(crate) struct Job {
    pub program: Built,
    pub tests: Vec<String>,
}

/// Where jobs run side by side: on any CPU, or in lanes with a CPU each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lanes {
    /// One job at a time, which may use all CPUs.
    One,
    /// A job for each CPU, on any of them.
    Shared,
    /// One job a CPU, which it has to itself.
    Pinned,
    /// A job for each CPU, on any of them, beside the jobs of other lanes: it mostly waits.
    Waiting,
}

/// The results of a program so far.
#[derive(Default)]
struct Progress {
    jobs_left: usize,
    ended: Option<Ended>,
}

/// Runs all jobs, those of each kind of lanes beside those of the others, and hands each program to
/// `ended` as its last job ends.
pub(crate) fn run(jobs: Vec<(Vec<Job>, Lanes)>, limits: &Limits, mut ended: impl FnMut(Ended)) -> Result<(), Error> {
    let mut programs: BTreeMap<String, Progress> = BTreeMap::new();
    for job in jobs.iter().flat_map(|(jobs, _)| jobs) {
        programs.entry(job.program.title()).or_default().jobs_left += 1;
    }
    let jobs: Vec<_> = jobs.into_iter().map(|(jobs, lanes)| (Mutex::new(jobs.into_iter()), lanes)).collect();
    let cpus = &limits.cpus;
    std::thread::scope(|scope| {
        let (sender, receiver) = channel();
        for (left, lanes) in &jobs {
            for cpu in cpus.iter().take(if *lanes == Lanes::One { 1 } else { cpus.len() }) {
                let sender = sender.clone();
                let may_use = if *lanes == Lanes::Pinned { std::slice::from_ref(cpu) } else { cpus };
                scope.spawn(move || follow(may_use, left, *lanes, limits, &sender));
            }
        }
        drop(sender);
        for part in receiver {
            let part = part?;
            let Some(program) = programs.get_mut(&part.program.title()) else { continue };
            program.ended = Some(match program.ended.take() {
                Some(before) => before.joined(part),
                None => part,
            });
            program.jobs_left -= 1;
            if program.jobs_left == 0 {
                program.ended.take().into_iter().for_each(&mut ended);
            }
        }
        Ok(())
    })
}

/// Runs jobs one after another, until none is left or the receiver is gone.
fn follow(
    cpus: &[usize],
    left: &Mutex<impl Iterator<Item = Job>>,
    lanes: Lanes,
    limits: &Limits,
    sender: &Sender<Result<Ended, Error>>,
) {
    // Children of a thread inherit its CPUs.
    if let Err(error) = pin(cpus) {
        return drop(sender.send(Err(error)));
    }
    let turns = if lanes == Lanes::Waiting { Turns::None } else { Turns::Taken };
    loop {
        let next = left.lock().unwrap_or_else(PoisonError::into_inner).next();
        let Some(Job { program, tests }) = next else { break };
        if sender.send(program::run(program, tests, turns, limits)).is_err() {
            break;
        }
    }
}

/// The CPUs that this process may use.
pub(crate) fn cpus() -> Result<Vec<usize>, Error> {
    let set = sched_getaffinity(None).map_err(|error| Error::Cpus(error.into()))?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect())
}

fn pin(cpus: &[usize]) -> Result<(), Error> {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu));
    sched_setaffinity(None, &set).map_err(|error| Error::Cpus(error.into()))
}
