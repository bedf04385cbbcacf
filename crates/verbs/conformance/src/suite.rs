//! Rows: a rule, where it stands, and a small test of it. And how they are run.
//!
//! What it guarantees: a row runs on a device that was opened for it alone, on a thread of its own;
//! one that panics or hangs is a failure of that row. A row is lacked only for the device's own
//! word (a [`Cap`]) or for a difference that is declared with it, and then the row still runs: what
//! it finds must be that very difference.

use crate::check::{Failure, Outcome};
use crate::rig::{Cap, Kind, Rig, Target};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// A row that takes longer hangs. Above the deadline for anything that a row waits for.
const HANG: Duration = Duration::from_secs(180);

type Test = dyn Fn(&Rig) -> Outcome + Send + Sync;

/// One rule and its test.
#[derive(Clone)]
pub(crate) struct Row {
    /// Its name: `theme/what-it-says`.
    pub(crate) rule: String,
    /// The page that says so.
    pub(crate) seed: &'static str,
    /// The rule in a sentence.
    pub(crate) says: String,
    needs: Vec<Cap>,
    pub(crate) differences: Vec<Difference>,
    test: Arc<Test>,
}

/// What a device is known to do instead.
#[derive(Clone, Debug)]
pub(crate) struct Difference {
    pub(crate) on: Kind,
    /// Part of what the row's failure says: only this failure is excused.
    seen: &'static str,
    /// What the device does.
    pub(crate) does: &'static str,
    /// Why.
    pub(crate) why: &'static str,
    /// Declared of a whole theme, of which some rows pass.
    is_of_theme: bool,
}

impl Difference {
    /// Whether it is declared of the row itself.
    pub(crate) fn is_of_row(&self) -> bool {
        !self.is_of_theme
    }
}

impl Row {
    pub(crate) fn new(
        rule: impl Into<String>,
        seed: &'static str,
        says: impl Into<String>,
        test: impl Fn(&Rig) -> Outcome + Send + Sync + 'static,
    ) -> Row {
        Row {
            rule: rule.into(),
            seed,
            says: says.into(),
            needs: Vec::new(),
            differences: Vec::new(),
            test: Arc::new(test),
        }
    }

    /// Lacked where the device says that it hasn't this.
    pub(crate) fn needs(mut self, cap: Cap) -> Row {
        self.needs.push(cap);
        self
    }

    /// Lacked on such a device when the row fails with `seen`.
    pub(crate) fn differs(mut self, on: Kind, seen: &'static str, does: &'static str, why: &'static str) -> Row {
        self.differences.push(Difference { on, seen, does, why, is_of_theme: false });
        self
    }

    /// Like [`Row::differs`], of all rows of a theme: those that pass say nothing of it.
    pub(crate) fn may_lack(mut self, on: Kind, seen: &'static str, does: &'static str, why: &'static str) -> Row {
        self.differences.push(Difference { on, seen, does, why, is_of_theme: true });
        self
    }

    /// Rdma_rxe's difference: see [`Row::differs`].
    pub(crate) fn rxe(self, seen: &'static str, does: &'static str, why: &'static str) -> Row {
        self.differs(Kind::Rxe, seen, does, why)
    }

    /// Only the test, for rows that are made of others.
    pub(crate) fn test(&self, rig: &Rig) -> Outcome {
        (self.test)(rig)
    }

    /// What is in front of the slash.
    pub(crate) fn theme(&self) -> &str {
        self.rule.split_once('/').map_or(&self.rule, |(theme, _)| theme)
    }
}

/// How a row came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    Pass,
    Fail,
    Lacks,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Verdict::Pass => "pass",
            Verdict::Fail => "FAIL",
            Verdict::Lacks => "lacks",
        })
    }
}

/// A row that was run.
#[derive(Clone, Debug)]
pub(crate) struct Ran {
    pub(crate) verdict: Verdict,
    /// Why it did not pass; or what was declared and not seen.
    pub(crate) reason: String,
    pub(crate) took: Duration,
}

/// Runs one row.
pub(crate) fn run(row: &Row, target: &Target) -> Ran {
    let start = Instant::now();
    let (done, finished) = channel();
    let (test, needs, on) = (row.test.clone(), row.needs.clone(), target.clone());
    let thread = std::thread::spawn(move || {
        let outcome = catch_unwind(AssertUnwindSafe(|| attempt(&test, &needs, &on)));
        // The receiver is gone if this row was given up for hanging.
        let _ = done.send(outcome.unwrap_or_else(|panic| Err(Failure::new(format!("panic: {}", message(&*panic))))));
    });
    let outcome = match finished.recv_timeout(HANG) {
        Ok(outcome) => {
            // It sent its last word: what is left of it is the end of a closure.
            let _ = thread.join();
            outcome
        }
        Err(RecvTimeoutError::Timeout) => Err(Failure::new(format!("hangs: no end within {HANG:?}"))),
        Err(RecvTimeoutError::Disconnected) => Err(Failure::new("its thread died")),
    };
    let (verdict, reason) = judge(row, target.kind, outcome);
    Ran { verdict, reason, took: start.elapsed() }
}

fn attempt(test: &Arc<Test>, needs: &[Cap], target: &Target) -> Outcome {
    let rig = Rig::open(target)?;
    if let Some(reason) = needs.iter().find_map(|need| need.lacking(rig.context())) {
        return Err(Failure::Lacks(reason));
    }
    test(&rig)?;
    match rig.complaints().as_slice() {
        [] => Ok(()),
        left => Err(Failure::new(format!("left behind after the row: {}", left.join(", ")))),
    }
}

fn judge(row: &Row, kind: Kind, outcome: Outcome) -> (Verdict, String) {
    let mut mine = row.differences.iter().filter(|difference| difference.on == kind);
    match outcome {
        Ok(()) => match mine.find(|difference| difference.is_of_row()) {
            // Not a failure: the device got better than what is written of it.
            Some(known) => (Verdict::Pass, format!("not seen on this device: {}", known.does)),
            None => (Verdict::Pass, String::new()),
        },
        Err(Failure::Lacks(reason)) => (Verdict::Lacks, reason),
        Err(Failure::Broken(seen)) => match mine.find(|difference| seen.contains(difference.seen)) {
            Some(known) => (Verdict::Lacks, format!("{}: {} (seen: {seen})", known.does, known.why)),
            None => (Verdict::Fail, seen),
        },
    }
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a message".to_owned())
}
