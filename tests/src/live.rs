//! Looks at a run while it lasts, as a person does: by `stats --json` of the same program.
//!
//! A test that wants a run to have done something waits for that, and then ends the run: on a busy
//! machine a run of a fixed few seconds may have done nothing.

use std::ffi::OsStr;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::program::{Finished, PATIENCE, Program, Started};
use crate::report::assert_report_holds;

/// The interval between questions to a run; each question starts a process.
const ASK_EVERY: Duration = Duration::from_millis(20);

impl Program {
    /// Like this program, but its runs listen in this folder, where no other test's runs do.
    pub fn listening_in(&self, folder: &std::path::Path) -> Program {
        self.with_env("XDG_RUNTIME_DIR", folder.to_str().expect("the path is UTF-8"))
    }

    /// The report so far of a run in the folder where this program's runs listen: the run of this
    /// name, or the only run.
    pub fn live(&self, name: Option<&str>) -> Option<Value> {
        let words = ["stats", "--json"].into_iter().chain(name);
        let output = self.instead(words).command().output().expect("the program starts");
        serde_json::from_slice(&output.stdout).ok()
    }

    /// Waits until the report of that run satisfies `is_so`.
    ///
    /// # Panics
    /// If it never does.
    #[track_caller]
    pub fn await_live(&self, name: Option<&str>, what: &str, is_so: impl Fn(&Value) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let report = self.live(name);
            if report.as_ref().is_some_and(&is_so) {
                return;
            }
            assert!(Instant::now() < deadline, "waited in vain for {what}: {report:#?}");
            std::thread::sleep(ASK_EVERY);
        }
    }

    /// Runs until the report satisfies `is_so`, then ends the run as a user does. A run that ends
    /// earlier says why.
    pub fn run_until(&self, is_so: impl Fn(&Value) -> bool) -> Finished {
        self.run_until_behind(&[] as &[&str], is_so)
    }

    /// Like [`run_until`](Program::run_until), behind another program, e.g. `prlimit`.
    pub fn run_until_behind<T: AsRef<OsStr>>(
        &self,
        wrapper: impl IntoIterator<Item = T>,
        is_so: impl Fn(&Value) -> bool,
    ) -> Finished {
        let folder = tempfile::tempdir().expect("a folder for the socket");
        let run = self.listening_in(folder.path());
        let mut started = run.start_behind(wrapper);
        let deadline = Instant::now() + PATIENCE;
        let mut has_ended = || matches!(started.child().try_wait(), Ok(Some(_)));
        while !has_ended() && Instant::now() < deadline && !run.live(None).as_ref().is_some_and(&is_so) {
            std::thread::sleep(ASK_EVERY);
        }
        if !has_ended() {
            started.signal(Signal::INT);
        }
        started.finish()
    }
}

/// Insists that a run's memory stays within the plan's sum, of which it takes half at least, and
/// ends the run once its report is so.
#[track_caller]
pub fn assert_within_memory_sum(run: &Program, is_so: impl Fn(&Value) -> bool) {
    let folder = tempfile::tempdir().expect("a folder for the socket");
    let run = run.listening_in(folder.path());
    let mut started = run.start();
    let (deadline, mut peak_bytes) = (Instant::now() + PATIENCE, 0);
    loop {
        peak_bytes = peak_bytes.max(started.resident_bytes());
        let has_ended = matches!(started.child().try_wait(), Ok(Some(_)));
        if has_ended || Instant::now() >= deadline || run.live(None).as_ref().is_some_and(&is_so) {
            break;
        }
        std::thread::sleep(ASK_EVERY);
    }
    peak_bytes = peak_bytes.max(started.resident_bytes());
    started.signal(Signal::INT);
    drop(started.finish().exited(0));
    assert_is_within_memory_sum(&run, peak_bytes);
}

/// Insists that this many bytes are within the sum of memory of the plan that `run` runs, and half
/// of it at least.
#[track_caller]
pub fn assert_is_within_memory_sum(run: &Program, peak_bytes: u64) {
    let sums = run.check_instead().with(["--json", "--explain"]).run().exited(0).json();
    let is_memory = |of: &str| of.starts_with("memory on pages of") || of.starts_with("hugepages of");
    let of_memory = |sum: &&Value| sum["of"].as_str().is_some_and(is_memory);
    let sums: Vec<_> = sums["sums"].as_array().into_iter().flatten().filter(of_memory).collect();
    let needed: u64 = sums.iter().map(|sum| sum["needed"].as_u64().expect("a number")).sum();
    assert!((needed / 2..=needed).contains(&peak_bytes), "{peak_bytes} bytes are resident, of {needed}: {sums:#?}");
}

impl Started {
    /// The process's resident memory that no file is behind, hugepages included. 0: it is gone.
    pub fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(self.proc("status")).unwrap_or_default();
        let of = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok()).unwrap_or(0) << 10
        };
        of("RssAnon:") + of("HugetlbPages:")
    }

    /// Ends the run as a user does: its report holds, no packet is held, and it exits with this
    /// code.
    #[track_caller]
    pub fn end_whole(self, code: i32) -> Finished {
        self.signal(Signal::INT);
        let shown = self.finish().exited(code);
        let json = shown.json();
        assert_report_holds(&json);
        assert_eq!((&json["packets"]["held"], &json["drained"]), (&0.into(), &true.into()), "{shown}");
        shown
    }
}

/// A stage's counter, from a report.
pub fn counted(report: &Value, stage: &str, counter: &str) -> u64 {
    let stages = report["stages"].as_array().into_iter().flatten();
    let counters = stages.filter(|row| row["name"] == stage).filter_map(|row| row["counters"].as_array());
    let known = counters.flatten().find(|row| row["name"] == counter);
    known.and_then(|row| row["value"].as_u64()).unwrap_or(0)
}
