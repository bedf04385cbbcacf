//! Disturbs a process, and takes the disturbance back.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use rustix::process::{Resource, Rlimit, Signal, getrlimit, prlimit};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::process::Process;
use crate::sample::cpu_of_an_lcore;
use crate::timetable::Disturbance;

const CTRL_S: &[u8] = b"\x13";
const CTRL_Q: &[u8] = b"\x11";

/// How to take a disturbance back at its end.
pub(crate) enum Undo {
    Continue,
    Restart,
    Read,
    Restore(Vec<(Resource, Rlimit)>),
    Leave(Neighbour),
    /// Nothing to undo: the process is asked to reload at each look, until the end.
    Ask,
}

/// A thread that wants a CPU.
pub(crate) struct Neighbour {
    leaves: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

/// Begins a disturbance. `turn` is the number of earlier ones.
pub(crate) fn begin(what: Disturbance, turn: usize, process: &mut Process) -> Result<Undo, String> {
    match what {
        Disturbance::Pause => process.signal(Signal::STOP).map(|()| Undo::Continue),
        Disturbance::Neighbour => neighbour(process, turn).map(Undo::Leave),
        Disturbance::CtrlS => process.press(CTRL_S).map(|()| Undo::Restart),
        Disturbance::Unread => process.reads(false).map(|()| Undo::Read),
        Disturbance::Limits => limit(process).map(Undo::Restore),
        Disturbance::Reload => process.signal(Signal::USR1).map(|()| Undo::Ask),
    }
}

impl Undo {
    /// Repeats a disturbance that is done again and again while it lasts.
    pub(crate) fn go_on(&self, process: &Process) -> Result<(), String> {
        match self {
            Undo::Ask => process.signal(Signal::USR1),
            _ => Ok(()),
        }
    }

    /// Ends the disturbance.
    pub(crate) fn end(self, process: &mut Process) -> Result<(), String> {
        match self {
            Undo::Continue => process.signal(Signal::CONT),
            Undo::Restart => process.press(CTRL_Q),
            Undo::Read => process.reads(true),
            Undo::Restore(limits) => set_all(process, &limits).map(drop),
            Undo::Leave(neighbour) => neighbour.end(),
            Undo::Ask => Ok(()),
        }
    }
}

/// Spins on the CPU of one of the process's lcores.
fn neighbour(process: &Process, turn: usize) -> Result<Neighbour, String> {
    let cpu = cpu_of_an_lcore(process.id(), turn).ok_or("none of its lcores is pinned to a CPU")?;
    let leaves = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&leaves);
    let thread = std::thread::spawn(move || {
        let mut there = CpuSet::new();
        there.set(cpu);
        // Without the permission to pin, the thread runs on any CPU, and disturbs less.
        let _ = sched_setaffinity(None, &there);
        // Relaxed: the flag carries no data.
        while !told.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    });
    Ok(Neighbour { leaves, thread })
}

impl Neighbour {
    fn end(self) -> Result<(), String> {
        // Relaxed: as above.
        self.leaves.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| "the neighbour panicked".to_owned())
    }
}

/// Lowers the limits that an operator may lower while a process runs. Returns the earlier ones.
fn limit(process: &Process) -> Result<Vec<(Resource, Rlimit)>, String> {
    let open =
        fs::read_dir(format!("/proc/{}/fd", process.id())).map_err(|error| format!("its descriptors: {error}"))?;
    let highest = open.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u64>().ok()).max();
    let lowered = [(Resource::Nofile, highest.unwrap_or(0) + 1), (Resource::Fsize, 0), (Resource::Memlock, 0)];
    // The hard limit stays, so that anybody may raise the soft one again. A child inherits its
    // parent's limits.
    let lowered = lowered
        .map(|(resource, current)| (resource, Rlimit { current: Some(current), maximum: getrlimit(resource).maximum }));
    set_all(process, &lowered)
}

/// Sets these limits. Returns the earlier ones.
fn set_all(process: &Process, limits: &[(Resource, Rlimit)]) -> Result<Vec<(Resource, Rlimit)>, String> {
    let set = limits.iter().map(|(resource, limit)| {
        let was = prlimit(Some(process.pid()), *resource, *limit);
        was.map(|was| (*resource, was)).map_err(|error| format!("prlimit of {resource:?}: {error}"))
    });
    set.collect()
}
