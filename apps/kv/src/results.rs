//! What the clients measured, and how it is shown.
//!
//! Each client records into histograms of its own and hands them over when it is dropped, so that
//! no lock is near the measurement. Several clients' parts are added up.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use hdrhistogram::{CreationError, Histogram};
use serde_json::{Map, json};
use verbline::cli::{count, duration};
use verbline::prelude::*;

/// The ways of an operation, in the order of the report.
const WAYS: [&str; 3] = ["get", "read", "put"];

/// Places in [`WAYS`].
pub(crate) const GET: usize = 0;
pub(crate) const READ: usize = 1;
pub(crate) const PUT: usize = 2;

/// Where the clients leave their measurements.
#[derive(Clone, Debug, Default)]
pub(crate) struct Results(Arc<Mutex<Vec<Measured>>>);

/// What one client measured and found.
#[derive(Debug)]
pub(crate) struct Measured {
    /// From the first message of an operation to its result; one histogram a way.
    pub(crate) latency_ns: [Histogram<u64>; WAYS.len()],
    pub(crate) counts: Counts,
    /// From the first operation that counts to the last.
    pub(crate) first_ns: u64,
    pub(crate) last_ns: u64,
}

/// What a client counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// GETs whose value was one that was put, and new enough.
    pub(crate) verified: u64,
    /// GETs of what a client before this one had put, before any PUT of our own was answered.
    pub(crate) earlier: u64,
    /// GETs of what was older than an answered PUT.
    pub(crate) stale: u64,
    /// GETs of what no PUT wrote.
    pub(crate) corrupt: u64,
    /// GETs of keys that were not there, and need not be.
    pub(crate) missed: u64,
    /// PUTs that the server refused.
    pub(crate) refused: u64,
    /// READs that met a slot while it was being written, and were made again.
    pub(crate) torn: u64,
    /// GETs by READ that went on as messages.
    pub(crate) fell_back: u64,
    /// Operations given up after their time.
    pub(crate) timed_out: u64,
    /// Operations whose connection was lost under them.
    pub(crate) cut_off: u64,
    /// Replies that no operation waits for.
    pub(crate) unasked: u64,
    /// Messages that are no replies.
    pub(crate) malformed: u64,
}

impl Measured {
    /// Allocates all that recording will need: 1 ns to 60 s at three digits.
    pub(crate) fn new() -> Result<Measured, CreationError> {
        let histogram = || Histogram::new_with_bounds(1, 60_000_000_000, 3);
        let latency_ns = [histogram()?, histogram()?, histogram()?];
        Ok(Measured { latency_ns, counts: Counts::default(), first_ns: 0, last_ns: 0 })
    }

    /// Records an operation.
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
        for ((_, mine), (_, theirs)) in self.counts.fields_mut().into_iter().zip(other.counts.fields()) {
            *mine += theirs;
        }
        self.first_ns = self.first_ns.min(other.first_ns);
        self.last_ns = self.last_ns.max(other.last_ns);
    }

    fn operations(&self) -> u64 {
        self.latency_ns.iter().map(Histogram::len).sum()
    }
}

macro_rules! count_fields {
    ($($field:ident),*) => {
        impl Counts {
            /// Every count with its name.
            fn fields(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($field), self.$field)),*]
            }

            fn fields_mut(&mut self) -> Vec<(&'static str, &mut u64)> {
                vec![$((stringify!($field), &mut self.$field)),*]
            }
        }
    };
}

count_fields!(
    verified, earlier, stale, corrupt, missed, refused, torn, fell_back, timed_out, cut_off, unasked, malformed
);

/// The live line: how many operations so far.
pub(crate) fn live(report: &Report) -> String {
    let done: u64 = report.stages.iter().filter_map(|stage| stage.counter("operations")).sum();
    format!("{} operations, {} a second", count(done), count(done * 1_000_000_000 / report.elapsed_ns.max(1)))
}

impl Results {
    /// Takes a client's part.
    pub(crate) fn leave(&self, measured: Measured) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(measured);
    }

    /// The measurements as JSON and text. A plan without a client has none.
    pub(crate) fn outcome(&self) -> Outcome {
        let mut outcome = Outcome::default();
        let parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((first, others)) = parts.split_first() else { return outcome };
        let mut all = Measured {
            latency_ns: first.latency_ns.clone(),
            counts: first.counts,
            first_ns: first.first_ns,
            last_ns: first.last_ns,
        };
        others.iter().for_each(|other| all.add(other));
        all.show(&mut outcome);
        outcome
    }
}

impl Measured {
    fn show(&self, outcome: &mut Outcome) {
        let rate = self.operations() as f64 * 1e9 / self.last_ns.saturating_sub(self.first_ns).max(1) as f64;
        outcome.json.insert("operations_per_second".into(), json!(rate));
        let mut latency = Map::new();
        let _ = writeln!(outcome.text, "{} operations, {} a second", count(self.operations()), count(rate as u64));
        for (way, ns) in WAYS.iter().zip(&self.latency_ns) {
            let quantile = |share| ns.value_at_quantile(share);
            let (p50, p99, p999) = (quantile(0.5), quantile(0.99), quantile(0.999));
            let row = json!({ "operations": ns.len(), "p50": p50, "p99": p99, "p999": p999, "max": ns.max() });
            latency.insert((*way).into(), row);
            if !ns.is_empty() {
                let shown = [p50, p99, p999, ns.max()].map(duration);
                let _ = writeln!(
                    outcome.text,
                    "{way:<5}{:>12}  p50 {}  p99 {}  p99.9 {}  max {}",
                    count(ns.len()),
                    shown[0],
                    shown[1],
                    shown[2],
                    shown[3],
                );
            }
        }
        outcome.json.insert("latency_ns".into(), latency.into());
        let counts = self.counts.fields();
        outcome.json.insert(
            "counts".into(),
            counts.iter().map(|(name, value)| ((*name).into(), json!(value))).collect::<Map<_, _>>().into(),
        );
        let said: Vec<_> = counts
            .iter()
            .filter(|(_, value)| *value > 0)
            .map(|(name, value)| format!("{} {}", count(*value), name.replace('_', " ")))
            .collect();
        let _ = write!(outcome.text, "{}", said.join(", "));
        self.judge(outcome);
    }

    fn judge(&self, outcome: &mut Outcome) {
        let Counts { stale, corrupt, malformed, .. } = self.counts;
        if self.operations() == 0 {
            outcome.failures.push("no operation was measured: run longer, or lower kv.keys".to_owned());
        }
        if stale + corrupt > 0 {
            let message = format!(
                "{} values were wrong: {stale} older than a PUT that was answered before, {corrupt} that no PUT wrote",
                stale + corrupt
            );
            outcome.failures.push(message);
        }
        if malformed > 0 {
            outcome.failures.push(format!("{malformed} messages came from the server that are no replies"));
        }
    }
}
