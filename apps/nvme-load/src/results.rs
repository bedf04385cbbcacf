//! What the initiators measured, and how it is shown.
//!
//! Each records into histograms of its own and hands them over when it is dropped, so that no lock
//! is near the measurement. Several initiators' parts are added up.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use hdrhistogram::{CreationError, Histogram};
use serde_json::{Map, json};
use verbline::cli::{count, duration};
use verbline::prelude::*;

/// What is timed, in the order of the report.
const WAYS: [&str; 2] = ["read", "write"];

/// Places in [`WAYS`].
pub(crate) const READ: usize = 0;
pub(crate) const WRITE: usize = 1;

/// Where the initiators leave their measurements.
#[derive(Clone, Debug, Default)]
pub(crate) struct Results(Arc<Mutex<Vec<Measured>>>);

/// What one initiator measured and found.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) latency_ns: [Histogram<u64>; WAYS.len()],
    pub(crate) counts: Counts,
    /// From the first command that counts to the last.
    pub(crate) first_ns: u64,
    pub(crate) last_ns: u64,
    pub(crate) block_bytes: u64,
    /// Why it could not go on.
    pub(crate) failures: Vec<String>,
}

/// What an initiator counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// I/O commands that were sent, that were answered, and that were lost with their connections.
    pub(crate) sent: u64,
    pub(crate) answered: u64,
    pub(crate) cut_off: u64,
    /// Blocks that were read and were right.
    pub(crate) verified: u64,
    /// Those among them whose protection information the initiator checked.
    pub(crate) guarded: u64,
    /// Blocks that were read and were not.
    pub(crate) mismatches: u64,
    /// Writes, and flushes, that were answered well.
    pub(crate) written: u64,
    pub(crate) flushed: u64,
    /// I/O commands that failed.
    pub(crate) failed: u64,
    /// Keys that the target took back, and that it should have.
    pub(crate) invalidated: u64,
    pub(crate) not_invalidated: u64,
    /// Responses to no command, and messages that are none.
    pub(crate) unasked: u64,
    pub(crate) malformed: u64,
    /// How often the controller was connected.
    pub(crate) connected: u64,
    /// Keep-alives that were answered, and asynchronous events.
    pub(crate) kept_alive: u64,
    pub(crate) events: u64,
}

macro_rules! count_fields {
    ($($field:ident),*) => {
        impl Counts {
            /// Every count with its name.
            fn fields(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($field), self.$field)),*]
            }

            fn fields_mut(&mut self) -> Vec<&mut u64> {
                vec![$(&mut self.$field),*]
            }
        }
    };
}

count_fields!(
    sent,
    answered,
    cut_off,
    verified,
    guarded,
    mismatches,
    written,
    flushed,
    failed,
    invalidated,
    not_invalidated,
    unasked,
    malformed,
    connected,
    kept_alive,
    events
);

impl Measured {
    /// Allocates all that recording will need: 1 ns to 60 s at three digits.
    pub(crate) fn new(block_bytes: u64) -> Result<Measured, CreationError> {
        let histogram = || Histogram::new_with_bounds(1, 60_000_000_000, 3);
        Ok(Measured {
            latency_ns: [histogram()?, histogram()?],
            counts: Counts::default(),
            first_ns: 0,
            last_ns: 0,
            block_bytes,
            failures: Vec::with_capacity(4),
        })
    }

    /// Records a command.
    #[inline]
    pub(crate) fn record(&mut self, way: usize, began_ns: Tick, now_ns: Tick) {
        if self.first_ns == 0 {
            self.first_ns = began_ns;
        }
        self.last_ns = now_ns;
        self.latency_ns[way].saturating_record(now_ns.saturating_sub(began_ns));
    }

    fn add(&mut self, other: &Measured) {
        for (mine, theirs) in self.latency_ns.iter_mut().zip(&other.latency_ns) {
            // Alike in their bounds, so that nothing is out of them.
            let _ = mine.add(theirs);
        }
        for (mine, (_, theirs)) in self.counts.fields_mut().into_iter().zip(other.counts.fields()) {
            *mine += theirs;
        }
        if other.first_ns > 0 {
            self.first_ns = if self.first_ns == 0 { other.first_ns } else { self.first_ns.min(other.first_ns) };
        }
        self.last_ns = self.last_ns.max(other.last_ns);
        self.failures.extend(other.failures.iter().cloned());
    }

    fn commands(&self) -> u64 {
        self.latency_ns.iter().map(Histogram::len).sum()
    }
}

/// The live line: how many commands so far.
pub(crate) fn live(report: &Report) -> String {
    let done: u64 = report.stages.iter().filter_map(|stage| stage.counter("answered")).sum();
    format!("{} commands, {} a second", count(done), count(done * 1_000_000_000 / report.elapsed_ns.max(1)))
}

impl Results {
    /// Takes an initiator's part.
    pub(crate) fn leave(&self, measured: Measured) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(measured);
    }

    /// The measurements as JSON and text. A plan without an initiator has none.
    pub(crate) fn outcome(&self) -> Outcome {
        let mut outcome = Outcome::default();
        let parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((first, others)) = parts.split_first() else { return outcome };
        let mut all = first.clone();
        others.iter().for_each(|other| all.add(other));
        all.show(&mut outcome);
        outcome
    }
}

impl Measured {
    fn show(&self, outcome: &mut Outcome) {
        let seconds = self.last_ns.saturating_sub(self.first_ns).max(1) as f64 / 1e9;
        let iops = self.commands() as f64 / seconds;
        let mib = iops * self.block_bytes as f64 / f64::from(1 << 20);
        outcome.json.insert("iops".into(), json!(iops));
        outcome.json.insert("mib_per_second".into(), json!(mib));
        let _ = writeln!(
            outcome.text,
            "{} commands, {} a second, {mib:.0} MiB/s",
            count(self.commands()),
            count(iops as u64)
        );
        let mut latency = Map::new();
        for (way, ns) in WAYS.iter().zip(&self.latency_ns) {
            let quantile = |share| ns.value_at_quantile(share);
            let (p50, p90, p99, p999) = (quantile(0.5), quantile(0.9), quantile(0.99), quantile(0.999));
            let row =
                json!({ "commands": ns.len(), "p50": p50, "p90": p90, "p99": p99, "p999": p999, "max": ns.max() });
            latency.insert((*way).into(), row);
            if !ns.is_empty() {
                let [p50, p99, p999, max] = [p50, p99, p999, ns.max()].map(duration);
                let _ = writeln!(
                    outcome.text,
                    "{way:<5}{:>12}  p50 {p50}  p99 {p99}  p99.9 {p999}  max {max}",
                    count(ns.len())
                );
            }
        }
        outcome.json.insert("latency_ns".into(), latency.into());
        let counts = self.counts.fields();
        let named = counts.iter().map(|(name, value)| ((*name).into(), json!(value)));
        outcome.json.insert("counts".into(), named.collect::<Map<_, _>>().into());
        let Counts { verified, mismatches, failed, cut_off, .. } = self.counts;
        outcome.json.insert("verified".into(), json!(verified));
        outcome.json.insert("mismatches".into(), json!(mismatches));
        outcome.json.insert("balance".into(), json!(self.balance()));
        let _ = write!(
            outcome.text,
            "{} blocks verified, {} mismatches, balance {}, {} failed, {} cut off",
            count(verified),
            count(mismatches),
            self.balance(),
            count(failed),
            count(cut_off),
        );
        self.judge(outcome);
    }

    /// Commands that were sent, and neither answered nor lost with a connection.
    fn balance(&self) -> i64 {
        let Counts { sent, answered, cut_off, .. } = self.counts;
        sent.cast_signed() - answered.cast_signed() - cut_off.cast_signed()
    }

    fn judge(&self, outcome: &mut Outcome) {
        let Counts { mismatches, failed, unasked, malformed, not_invalidated, .. } = self.counts;
        outcome.failures.extend(self.failures.iter().cloned());
        if self.commands() == 0 {
            outcome.failures.push("no command was measured: see why no queue was connected, or run longer".to_owned());
        }
        let wrong = [
            (mismatches, "blocks held another write than the last one that was answered"),
            (failed, "commands failed"),
            (unasked + malformed, "messages came from the target that answer nothing"),
            (not_invalidated, "responses did not take back the key that they were to"),
        ];
        let said = wrong.iter().filter(|(number, _)| *number > 0);
        outcome.failures.extend(said.map(|(number, what)| format!("{number} {what}")));
        if self.balance() != 0 {
            outcome
                .failures
                .push(format!("{} commands were neither answered nor lost with a connection", self.balance()));
        }
    }
}
