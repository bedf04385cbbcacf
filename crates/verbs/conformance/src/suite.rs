//! Rows, each with a rule, its page, and a small test; and the code that runs them.
//!
//! Guarantees: a row runs on a device opened for it alone, on a thread of its own; a panic or a
//! hang fails only that row. A row is lacked only if the device itself reports so (a [`Cap`]), or
//! for a difference that is declared with it. In the latter case the row still runs, and must find
//! exactly that difference.

use crate::check::{Failure, Outcome};
use crate::rig::{Cap, Kind, Rig, Target};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// A row that takes longer hangs. It is above the deadline of all waits in a row.
const HANG: Duration = Duration::from_secs(180);

type Test = dyn Fn(&Rig) -> Outcome + Send + Sync;

/// One rule and its test.
#[derive(Clone)]
pub(crate) struct Row {
    /// The name: `theme/what-it-says`.
    pub(crate) rule: String,
    /// The page of the rule.
    pub(crate) seed: &'static str,
    /// The rule in a sentence.
    pub(crate) says: String,
    needs: Vec<Cap>,
    pub(crate) differences: Vec<Difference>,
    test: Arc<Test>,
}

/// A device's known difference.
#[derive(Clone, Debug)]
pub(crate) struct Difference {
    pub(crate) on: Kind,
    /// Part of the row's failure: only this failure is excused.
    seen: &'static str,
    /// The device's behaviour.
    pub(crate) does: &'static str,
    /// The reason.
    pub(crate) why: &'static str,
    /// Declared for a whole theme, in which some rows may pass.
    is_of_theme: bool,
}

impl Difference {
    /// Whether it is declared for the row itself.
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

    /// Lacked if the device reports that it lacks this capability.
    pub(crate) fn needs(mut self, cap: Cap) -> Row {
        self.needs.push(cap);
        self
    }

    /// Lacked on such a device if the row fails with `seen`.
    pub(crate) fn differs(mut self, on: Kind, seen: &'static str, does: &'static str, why: &'static str) -> Row {
        self.differences.push(Difference { on, seen, does, why, is_of_theme: false });
        self
    }

    /// Like [`Row::differs`], for all rows of a theme: rows that pass do not contradict it.
    pub(crate) fn may_lack(mut self, on: Kind, seen: &'static str, does: &'static str, why: &'static str) -> Row {
        self.differences.push(Difference { on, seen, does, why, is_of_theme: true });
        self
    }

    /// A difference of rdma_rxe: see [`Row::differs`].
    pub(crate) fn rxe(self, seen: &'static str, does: &'static str, why: &'static str) -> Row {
        self.differs(Kind::Rxe, seen, does, why)
    }

    /// Runs only the test, for rows that consist of others.
    pub(crate) fn test(&self, rig: &Rig) -> Outcome {
        (self.test)(rig)
    }

    /// The part of the name before the slash.
    pub(crate) fn theme(&self) -> &str {
        self.rule.split_once('/').map_or(&self.rule, |(theme, _)| theme)
    }
}

/// The verdict on a row.
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
    /// Why the row did not pass; or a declared difference that was not seen.
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
            // The thread has sent its result: only the end of a closure is left.
            let _ = thread.join();
            outcome
        }
        Err(RecvTimeoutError::Timeout) => Err(Failure::new(format!("hangs: no end within {HANG:?}"))),
        Err(RecvTimeoutError::Disconnected) => Err(Failure::new("its thread died")),
    };
    let (verdict, reason) = judge(row, target, outcome);
    Ran { verdict, reason, took: start.elapsed() }
}

fn attempt(test: &Arc<Test>, needs: &[Cap], target: &Target) -> Outcome {
    let rig = Rig::open(target)?;
    if let Some(reason) = rig.lacks(needs) {
        return Err(Failure::Lacks(reason));
    }
    test(&rig)?;
    if !rig.is_about_both() {
        return Err(Failure::Lacks("it is about one device".to_owned()));
    }
    match rig.complaints().as_slice() {
        [] => Ok(()),
        left => Err(Failure::new(format!("left behind after the row: {}", left.join(", ")))),
    }
}

fn judge(row: &Row, target: &Target, outcome: Outcome) -> (Verdict, String) {
    let mut mine = row.differences.iter().filter(|difference| target.kinds().any(|kind| kind == difference.on));
    match outcome {
        Ok(()) => match mine.find(|difference| difference.is_of_row()) {
            // Not a failure: the device is better than its declared difference.
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
