//! The clients' measurements, and their report.
//!
//! Each client records into a part of its own; the report adds them up.

use std::fmt::Write as _;

use serde_json::json;
use verbline::cli::{Latencies, Parts, count, duration};
use verbline::counts;
use verbline::prelude::*;

/// The ways of an operation, in the order of the report.
const WAYS: [&str; 3] = ["get", "read", "put"];

/// Indices of [`WAYS`].
pub(crate) const GET: usize = 0;
pub(crate) const READ: usize = 1;
pub(crate) const PUT: usize = 2;

/// The latencies of each way.
pub(crate) type Ways = Latencies<{ WAYS.len() }>;

/// The place where the clients leave their measurements.
pub(crate) type Results = Parts<Measured>;

/// One client's measurements and findings.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    /// From the first message of an operation to its result, or to its time-out.
    pub(crate) latencies: Ways,
    pub(crate) counts: Counts,
    /// The length of the server's silence at the end, if it was too long.
    pub(crate) silent_ns: Option<u64>,
    /// `kv.shards`, if some of these shards never said where their tables are.
    pub(crate) unlocated: Option<u8>,
}

counts! {
    /// A client's counts.
    pub(crate) struct Counts {
        /// GETs with a value that was put, and is new enough.
        verified,
        /// GETs with a value of an earlier client, before any PUT of our own was answered.
        earlier,
        /// GETs with a value older than an answered PUT.
        stale,
        /// GETs with a value that no PUT wrote.
        corrupt,
        /// GETs with a value that another client wrote after a PUT of our own was answered.
        foreign,
        /// GETs of absent keys that may be absent.
        missed,
        /// PUTs that the server refused, as its buckets are full.
        refused,
        /// PUTs with a value that is too long for the server's tables.
        too_long,
        /// GETs by READ that found no key where they looked, though the server has it.
        elsewhere,
        /// READs that found a slot being written, and were repeated.
        torn,
        /// GETs by READ that continued as messages.
        fell_back,
        /// Operations that timed out.
        timed_out,
        /// Operations whose connection was lost.
        cut_off,
        /// Replies that no operation waits for.
        unasked,
        /// Messages that are not replies.
        malformed,
    }
}

impl Measured {
    pub(crate) fn new(stage: &StageContext<'_>) -> Result<Measured, StageError> {
        Ok(Measured {
            latencies: Latencies::new(stage, WAYS)?,
            counts: Counts::default(),
            silent_ns: None,
            unlocated: None,
        })
    }

    fn add(&mut self, other: &Measured) {
        self.latencies.add(&other.latencies);
        self.counts.add(&other.counts);
        self.silent_ns = self.silent_ns.max(other.silent_ns);
        self.unlocated = self.unlocated.max(other.unlocated);
    }
}

/// The measurements as JSON and text. A plan without a client has none.
pub(crate) fn outcome(results: &Results, report: &Report) -> Outcome {
    let mut outcome = Outcome::default();
    if let Some(all) = results.total(Measured::add) {
        let answered = report.stages.iter().filter_map(|stage| stage.counter("operations")).sum();
        all.show(answered, opened(report), &mut outcome);
        vanished(report, &mut outcome);
    }
    strange(report, &mut outcome);
    outcome
}

/// Reports what came to the server and is no request: from another app, or another version. It
/// fails no run: anyone can send such messages to a server.
fn strange(report: &Report, outcome: &mut Outcome) {
    let serves =
        |stage: &verbline::engine::StageReport| ["routed", "gets"].iter().any(|name| stage.counter(name).is_some());
    let stages: Vec<String> =
        report.stages.iter().filter(|stage| serves(stage)).map(|stage| format!("stage.{}", stage.name)).collect();
    let drops = report.drops.iter().filter(|drop| drop.reason == "malformed" && stages.contains(&drop.place));
    let strange: u64 = drops.map(|drop| drop.packets).sum();
    if strange > 0 {
        let end = if outcome.text.is_empty() { "" } else { "\n" };
        let _ = write!(
            outcome.text,
            "{end}{} messages were no requests; see whether their senders are kv clients of this version",
            count(strange)
        );
    }
}

/// Reports where messages of operations were dropped: the cause of time-outs.
fn vanished(report: &Report, outcome: &mut Outcome) {
    for drop in report.drops.iter().filter(|drop| drop.packets > 0) {
        let _ = write!(outcome.text, "\n{} messages dropped at {}: {}", count(drop.packets), drop.place, drop.reason);
    }
}

/// Why no operation was measured, though `answered` were answered, over the `opened` connections:
/// the first PUTs of the keys are not measured.
fn unmeasured(answered: u64, opened: u64) -> String {
    match (answered, opened) {
        (0, 0) => "no operation was measured: no connection was made; see why, or run longer".to_owned(),
        (0, opened) => format!(
            "no operation was measured: no request was answered over the {} connections that were made; see whether \
             the peer is a kv server, and what it says",
            count(opened)
        ),
        (answered, _) => format!(
            "no operation was measured: the run was over when {answered} were answered, before every key had been put \
             once; run longer, or lower kv.keys"
        ),
    }
}

/// The connections that the clients of this plan have made.
fn opened(report: &Report) -> u64 {
    let ports = report.ports.iter().filter_map(|port| port.connections.as_ref());
    ports.filter(|many| many.role == "connects").map(|many| many.opened).sum()
}

impl Measured {
    fn show(&self, answered: u64, opened: u64, outcome: &mut Outcome) {
        let (operations, rate) = (self.latencies.len(), self.latencies.per_second());
        outcome.json.insert("operations_per_second".into(), json!(rate));
        let _ = writeln!(outcome.text, "{} operations, {} a second", count(operations), count(rate as u64));
        outcome.text += &self.latencies.lines(WAYS);
        let quantiles = [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)];
        outcome.json.insert("latency_ns".into(), self.latencies.to_json(WAYS, "operations", &quantiles));
        let counts = self.counts.fields();
        outcome.json.insert("counts".into(), counts.iter().copied().collect());
        let said: Vec<_> = counts
            .iter()
            .filter(|(_, value)| *value > 0)
            .map(|(name, value)| format!("{} {}", count(*value), name.replace('_', " ")))
            .collect();
        let _ = write!(outcome.text, "{}", said.join(", "));
        if self.counts.refused > 0 {
            let refused = count(self.counts.refused);
            let _ = write!(outcome.text, "\n{refused} PUTs found tables full: lower kv.keys, or enlarge them");
        }
        self.judge(answered, opened, outcome);
    }

    fn judge(&self, answered: u64, opened: u64, outcome: &mut Outcome) {
        let Counts { stale, corrupt, malformed, .. } = self.counts;
        if self.latencies.is_empty() {
            outcome.failures.push(unmeasured(answered, opened));
        }
        if let Some(silent_ns) = self.silent_ns {
            outcome.json.insert("server_silent_ns".into(), json!(silent_ns));
            outcome.failures.push(format!(
                "no answer at the end: the server had been silent for {}; see whether it runs, and what is between",
                duration(silent_ns)
            ));
        }
        if stale + corrupt > 0 {
            let message = format!(
                "{} values were wrong: {stale} older than a PUT that was answered before, {corrupt} that no PUT wrote",
                stale + corrupt
            );
            outcome.failures.push(message);
        }
        self.judge_settings(outcome);
        if malformed > 0 {
            outcome.failures.push(format!(
                "{malformed} messages came from the server that are no replies; see whether it is a kv server of this \
                 version"
            ));
        }
    }
    /// Failures of a client whose settings are not those of its server, or of other clients.
    fn judge_settings(&self, outcome: &mut Outcome) {
        let Counts { foreign, too_long, elsewhere, verified, .. } = self.counts;
        if foreign > 0 {
            outcome.failures.push(format!(
                "{foreign} values were of another client, though PUTs of our own were answered before; give clients \
                 that run at once different numbers (kv.client)"
            ));
        }
        if too_long > 0 {
            outcome.failures.push(format!(
                "{too_long} PUTs were too long for the server; lower kv.value_bytes, or raise `value_bytes` of its \
                 shards"
            ));
        }
        if let Some(shards) = self.unlocated {
            outcome.failures.push(format!(
                "some of {shards} shards never said where their tables are, so that no GET went by READ; see whether \
                 kv.shards is the server's"
            ));
        }
        // A few keys may move between two READs.
        if elsewhere * 100 > verified {
            outcome.failures.push(format!(
                "{elsewhere} GETs by READ found no key in a table, though the server had it; see whether kv.shards is \
                 the server's"
            ));
        }
    }
}
