//! The client's measurements, and their display.
//!
//! The client records into a histogram of its own and hands it over when it is dropped, so that no
//! lock is near the measurement.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use hdrhistogram::{CreationError, Histogram};
use serde_json::json;
use verbline::cli::{Silence, count, duration};
use verbline::prelude::*;

/// The place where the client leaves its measurements.
#[derive(Clone, Debug, Default)]
pub(crate) struct Results(Arc<Mutex<Option<Measured>>>);

#[derive(Debug)]
struct Measured {
    half_trip_ns: Histogram<u64>,
    size_bytes: usize,
    /// When the first message departed, or the warm-up ended.
    began_ns: u64,
    /// When the last answer came, or the run was stopped.
    ended_ns: u64,
    /// How long the peer was silent at the stop, if for too long.
    silent_ns: Option<u64>,
}

/// The measurements of a running client.
#[derive(Debug)]
pub(crate) struct Timings {
    measured: Option<Measured>,
    exchanges: u64,
    silence: Silence,
    results: Results,
}

impl Timings {
    /// Allocates all memory for recording: 1 ns to 60 s at three digits.
    pub(crate) fn new(results: &Results, size_bytes: usize) -> Result<Timings, CreationError> {
        let half_trip_ns = Histogram::new_with_bounds(1, 60_000_000_000, 3)?;
        let measured = Some(Measured { half_trip_ns, size_bytes, began_ns: 0, ended_ns: 0, silent_ns: None });
        Ok(Timings { measured, exchanges: 0, silence: Silence::default(), results: results.clone() })
    }

    /// Notes the departure of a message that follows no answer; the first begins the measurement.
    pub(crate) fn begin(&mut self, now_ns: u64) {
        if let Some(measured) = self.measured.as_mut().filter(|measured| measured.began_ns == 0) {
            measured.began_ns = now_ns;
        }
    }

    /// Ends the measurement: a time without answers before now lowers the rate.
    pub(crate) fn end(&mut self, now_ns: u64) {
        self.silence.stopped(now_ns);
        if let Some(measured) = self.measured.as_mut() {
            measured.ended_ns = measured.ended_ns.max(now_ns);
            measured.silent_ns = self.silence.lasted_ns(0);
        }
    }

    /// Records one exchange, unless it is one of the first `warm_up`.
    pub(crate) fn record(&mut self, departed_ns: u64, now_ns: u64, warm_up: u64) {
        self.exchanges += 1;
        self.silence.heard(now_ns);
        let Some(measured) = self.measured.as_mut() else { return };
        if self.exchanges <= warm_up {
            measured.began_ns = now_ns;
            return;
        }
        measured.half_trip_ns.saturating_record(now_ns.saturating_sub(departed_ns) / 2);
        measured.ended_ns = now_ns;
    }
}

impl Drop for Timings {
    fn drop(&mut self) {
        *self.results.0.lock().unwrap_or_else(PoisonError::into_inner) = self.measured.take();
    }
}

/// Whether the plan has a client, which counts answers.
fn measures(report: &Report) -> bool {
    report.stages.iter().any(|stage| stage.counter("answered").is_some())
}

/// The live line: the number of exchanges so far, or of messages in a plan without a client.
pub(crate) fn live(report: &Report) -> String {
    if !measures(report) {
        let echoed = report.ports.iter().map(|port| port.rx_packets).sum();
        return format!("{} messages answered", count(echoed));
    }
    let answered = answered(report);
    format!("{} exchanges, {} each", count(answered), duration(report.elapsed_ns / answered.max(1)))
}

impl Results {
    /// The measurements as JSON and text.
    pub(crate) fn outcome(&self, report: &Report) -> Outcome {
        let mut outcome = Outcome::default();
        if !measures(report) {
            // The client is in another process.
            outcome.text = "nothing was measured at this end: its plan has no client".to_owned();
            return outcome;
        }
        let results = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(measured) = results.as_ref().filter(|measured| !measured.half_trip_ns.is_empty()) else {
            let why = match answered(report) {
                0 => "no message was answered; see whether the peer runs a stage `echo`",
                _ => "no exchange was measured: run longer, or lower pingpong.warm_up",
            };
            outcome.failures.push(why.to_owned());
            return outcome;
        };
        measured.show(&mut outcome);
        if let Some(silent_ns) = measured.silent_ns {
            let silent = duration(silent_ns);
            outcome
                .failures
                .push(format!("no answer at the end: the peer had been silent for {silent}; see whether it runs"));
        }
        outcome
    }
}

/// The messages that the peer has answered.
fn answered(report: &Report) -> u64 {
    report.stages.iter().filter_map(|stage| stage.counter("answered")).sum()
}

impl Measured {
    fn show(&self, outcome: &mut Outcome) {
        let half = &self.half_trip_ns;
        let (p50, p99, p999) =
            (half.value_at_quantile(0.5), half.value_at_quantile(0.99), half.value_at_quantile(0.999));
        // Each exchange is two messages.
        let rate = 2.0 * half.len() as f64 * 1e9 / self.ended_ns.saturating_sub(self.began_ns).max(1) as f64;
        let latency = json!({ "min": half.min(), "p50": p50, "p99": p99, "p999": p999, "max": half.max() });
        outcome.json.insert("half_round_trip_ns".into(), latency);
        outcome.json.insert("size_bytes".into(), json!(self.size_bytes));
        outcome.json.insert("exchanges".into(), json!(half.len()));
        outcome.json.insert("messages_per_second".into(), json!(rate));
        let _ = write!(
            outcome.text,
            "half round trip  min {}  p50 {}  p99 {}  p99.9 {}  max {}\n\
             {} exchanges of {} bytes, {} messages a second",
            duration(half.min()),
            duration(p50),
            duration(p99),
            duration(p999),
            duration(half.max()),
            count(half.len()),
            self.size_bytes,
            count(rate as u64),
        );
    }
}
