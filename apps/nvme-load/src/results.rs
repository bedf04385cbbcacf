//! The measurements of the initiators, and their display.
//!
//! Each records into a part of its own; the parts are added up.

use std::fmt::Write as _;

use serde_json::json;
use verbline::cli::{Latencies, Parts, count};
use verbline::counts;
use verbline::prelude::*;

/// The timed kinds of commands, in the order of the report.
const WAYS: [&str; 2] = ["read", "write"];

/// Places in [`WAYS`].
pub(crate) const READ: usize = 0;
pub(crate) const WRITE: usize = 1;

/// The measurements of all initiators.
pub(crate) type Results = Parts<Measured>;

/// The measurements and findings of one initiator.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) latencies: Latencies<{ WAYS.len() }>,
    pub(crate) counts: Counts,
    /// Bytes of a command's data.
    block_bytes: u64,
    /// Bytes of all commands with a latency. Initiators may have commands of several lengths.
    bytes: u64,
    /// The reasons why it could not go on.
    pub(crate) failures: Vec<String>,
}

counts! {
    /// The counters of an initiator.
    pub(crate) struct Counts {
        /// I/O commands that were sent, that were answered, and that were lost with their
        /// connections.
        sent,
        answered,
        cut_off,
        /// Blocks that were read and found right.
        verified,
        /// The verified blocks whose protection information the initiator checked.
        guarded,
        /// Blocks that were read and found wrong.
        mismatches,
        /// Writes, and flushes, that succeeded.
        written,
        flushed,
        /// I/O commands that failed.
        failed,
        /// Keys that the target invalidated, and keys that it should have invalidated but did not.
        invalidated,
        not_invalidated,
        /// Responses that belong to no command, and messages that are not responses.
        unasked,
        malformed,
        /// The number of times that the controller was connected.
        connected,
        /// Keep-alives that were answered well, those that failed, those without an answer within
        /// the time-out, and asynchronous events.
        kept_alive,
        not_kept_alive,
        keep_alive_expired,
        events,
    }
}

impl Measured {
    pub(crate) fn new(stage: &StageContext<'_>, block_bytes: u64) -> Result<Measured, StageError> {
        let (latencies, failures) = (Latencies::new(stage, WAYS)?, Vec::with_capacity(4));
        Ok(Measured { latencies, counts: Counts::default(), block_bytes, bytes: 0, failures })
    }

    /// Records a read or write that was answered well.
    pub(crate) fn record(&mut self, way: usize, began_ns: Tick, now_ns: Tick) {
        self.latencies.record(way, began_ns, now_ns);
        self.bytes += self.block_bytes;
    }

    fn add(&mut self, other: &Measured) {
        self.latencies.add(&other.latencies);
        self.bytes += other.bytes;
        self.counts.add(&other.counts);
        self.failures.extend(other.failures.iter().cloned());
    }
}

/// The measurements as JSON and text; none in a plan without an initiator.
pub(crate) fn outcome(results: &Results) -> Outcome {
    let mut outcome = Outcome::default();
    if let Some(all) = results.total(Measured::add) {
        all.show(&mut outcome);
    }
    outcome
}

/// The reason why no command was measured, though `answered` were answered: the first fill of the
/// namespace is not measured.
fn unmeasured(answered: u64) -> String {
    match answered {
        0 => "no command was measured: see why no queue was connected, or run longer".to_owned(),
        answered => format!(
            "no command was measured: the run was over when {answered} were answered, before every block had been \
             written once; run longer, or have fewer `bytes` in [load]"
        ),
    }
}

impl Measured {
    fn show(&self, outcome: &mut Outcome) {
        let (commands, iops) = (self.latencies.len(), self.latencies.per_second());
        let mib = iops * self.bytes as f64 / commands.max(1) as f64 / f64::from(1 << 20);
        outcome.json.insert("iops".into(), json!(iops));
        outcome.json.insert("mib_per_second".into(), json!(mib));
        let (number, rate) = (count(commands), count(iops as u64));
        let _ = writeln!(outcome.text, "{number} commands, {rate} a second, {mib:.0} MiB/s");
        outcome.text += &self.latencies.lines(WAYS);
        let quantiles = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999)];
        outcome.json.insert("latency_ns".into(), self.latencies.to_json(WAYS, "commands", &quantiles));
        outcome.json.insert("counts".into(), self.counts.fields().into_iter().collect());
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

    /// Commands that were sent, but neither answered nor lost with a connection.
    fn balance(&self) -> i64 {
        let Counts { sent, answered, cut_off, .. } = self.counts;
        sent.cast_signed() - answered.cast_signed() - cut_off.cast_signed()
    }

    fn judge(&self, outcome: &mut Outcome) {
        let Counts {
            mismatches, failed, unasked, malformed, not_invalidated, not_kept_alive, keep_alive_expired, ..
        } = self.counts;
        outcome.failures.extend(self.failures.iter().cloned());
        // An earlier failure has said why nothing was measured.
        if self.latencies.is_empty() && self.failures.is_empty() {
            outcome.failures.push(unmeasured(self.counts.answered));
        }
        let wrong = [
            (mismatches, "blocks held another write than the last one that was answered"),
            (failed, "commands failed"),
            (not_kept_alive, "keep-alives failed"),
            (keep_alive_expired, "keep-alives got no answer within load.keep_alive_ms, which ended their connections"),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The remark on a run that was too short for its first writes does not blame the connection.
    #[test]
    fn who_measured_nothing_is_told_how_far_it_came() {
        assert!(unmeasured(0).contains("why no queue was connected"));
        assert!(unmeasured(173).contains("when 173 were answered") && !unmeasured(173).contains("queue"));
    }
}
