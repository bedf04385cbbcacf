//! Random pauses of the processes that tests start, and of the tests' own: the effect of a machine
//! whose CPUs are another's for a while. A test that fails by them may fail on any busy machine.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

use rustix::process::{Pid, Signal, getpid, kill_process};

/// The longest time from the end of one pause to the next.
const APART_MAX_MS: u64 = 500;

/// A series of pauses that lasts until it is ended or dropped. Nothing stays paused.
pub(crate) struct Pauses {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
}

impl Pauses {
    /// Pauses programs in these folders that this process or its children started: one at a time,
    /// for up to `longest_ms`.
    pub(crate) fn begin(longest_ms: u64, folders: Vec<PathBuf>) -> Pauses {
        let ends = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&ends);
        let thread = spawn(move || {
            let mut count = 0;
            // Relaxed: the flag carries no data.
            while !seen.load(Ordering::Relaxed) {
                count += u64::from(pause_one(longest_ms, &folders));
                sleep(Duration::from_millis(fastrand::u64(..APART_MAX_MS)));
            }
            count
        });
        Pauses { ends, thread: Some(thread) }
    }

    /// Ends the pauses and returns how many there were.
    pub(crate) fn end(mut self) -> u64 {
        self.joined()
    }

    fn joined(&mut self) -> u64 {
        // Relaxed: as above.
        self.ends.store(true, Ordering::Relaxed);
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or(0)
    }
}

impl Drop for Pauses {
    fn drop(&mut self) {
        self.joined();
    }
}

/// Pauses one process. Returns false if there is none.
fn pause_one(longest_ms: u64, folders: &[PathBuf]) -> bool {
    let processes = descendants();
    let ours = processes.iter().filter(|pid| executable(**pid).is_some_and(|path| is_in(&path, folders)));
    // A process that a test has stopped stays stopped.
    let running: Vec<Pid> = ours.copied().filter(|pid| is_running(*pid)).collect();
    let Some(&pid) = fastrand::choice(&running) else { return false };
    if kill_process(pid, Signal::STOP).is_err() {
        return false;
    }
    sleep(Duration::from_millis(fastrand::u64(1..=longest_ms)));
    // A test that has stopped it meanwhile lets it go on: the test's SIGSTOP waits behind ours.
    if !is_to_stop(pid) {
        // Fails if the process was killed meanwhile, which does no harm.
        let _ = kill_process(pid, Signal::CONT);
    }
    true
}

fn is_in(path: &Path, folders: &[PathBuf]) -> bool {
    folders.iter().any(|folder| path.starts_with(folder))
}

/// The descendants of this process.
fn descendants() -> Vec<Pid> {
    let mut children: HashMap<Pid, Vec<Pid>> = HashMap::new();
    let names = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.file_name());
    for pid in names.filter_map(|name| Pid::from_raw(name.to_str()?.parse().ok()?)) {
        let parent = status(pid, "PPid:").and_then(|text| Pid::from_raw(text.parse().ok()?));
        children.entry(parent.unwrap_or(pid)).or_default().push(pid);
    }
    let mut found = children.remove(&getpid()).unwrap_or_default();
    let mut looked = 0;
    while let Some(pid) = found.get(looked) {
        looked += 1;
        let more = children.remove(pid);
        found.extend(more.into_iter().flatten());
    }
    found
}

fn executable(pid: Pid) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/exe")).ok()
}

/// Whether the process exists, is not stopped and not traced to a stop.
fn is_running(pid: Pid) -> bool {
    status(pid, "State:").is_some_and(|state| !state.starts_with(['T', 't', 'Z']))
}

/// Whether a SIGSTOP is pending, which for a stopped process only another SIGSTOP can be.
fn is_to_stop(pid: Pid) -> bool {
    let waiting = status(pid, "ShdPnd:").and_then(|mask| u64::from_str_radix(&mask, 16).ok());
    waiting.unwrap_or(0) >> (Signal::STOP.as_raw() - 1) & 1 == 1
}

/// A field of the process's status file (proc(5)).
fn status(pid: Pid, field: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    Some(text.lines().find_map(|line| line.strip_prefix(field))?.trim().to_owned())
}
