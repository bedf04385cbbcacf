//! A thread beside a random run that acts as operators do: it changes attributes of its ports,
//! pauses them, captures, traces and takes snapshots. None of this costs a packet.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use serde::Deserialize;
use verbline::engine::{Capture, CaptureError, CaptureSpec, ChangeOutcome, Running, Trace, TraceError, TraceSpec};
use verbline::prelude::*;

use super::marks::{PATIENT, RELIABLE};
use crate::report_faults;

/// Packets of a capture that may wait: few, so that some are lost.
const DEPTH_PACKETS: usize = 64;
/// The longest that a port pauses.
const PAUSE_MAX_US: u64 = 300;

/// Its settings in the plan.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Meddler {
    seed: u64,
    /// The longest pause between two deeds.
    pause_us: u64,
    does: Vec<Deed>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Deed {
    Change,
    Pause,
    Capture,
    Trace,
    Look,
}

struct Meddling<'a> {
    running: &'a Running,
    loader: &'a Loader,
    /// The plan.
    text: &'a str,
    ports: &'a [String],
    rng: Rng,
    capture: Option<Capture>,
    /// The messages that the capture has handed out.
    captured: u64,
    trace: Option<Trace>,
    /// The sum of all counters of the last snapshot that only grow.
    seen: u64,
    faults: Vec<String>,
}

impl Meddler {
    /// Acts until the run `is_over`, and returns the faults.
    pub(super) fn meddle(
        &self,
        (text, plan, loader): (&str, &Plan, &Loader),
        running: &Running,
        is_over: &AtomicBool,
    ) -> Vec<String> {
        let single = plan.ports().iter().filter(|port| port.connections.is_none() && port.tx_depth_wr > 0);
        let ports: Vec<String> = single.map(|port| port.name.clone()).collect();
        let rng = Rng::with_seed(self.seed);
        let (capture, trace) = (None, None);
        let mut meddling = Meddling {
            running,
            loader,
            text,
            ports: &ports,
            rng,
            capture,
            captured: 0,
            trace,
            seen: 0,
            faults: Vec::new(),
        };
        // Relaxed: it orders nothing.
        while !is_over.load(Ordering::Relaxed) && meddling.faults.is_empty() {
            let deed = self.does[meddling.rng.usize(..self.does.len())];
            meddling.act(deed);
            thread::sleep(Duration::from_micros(meddling.rng.u64(..=self.pause_us)));
        }
        meddling.end_capture();
        meddling.faults
    }
}

impl Meddling<'_> {
    fn act(&mut self, deed: Deed) {
        match deed {
            Deed::Change => self.change(),
            Deed::Pause => self.pause(),
            Deed::Capture => self.capture(),
            Deed::Trace => self.trace(),
            Deed::Look => self.look(),
        }
    }

    /// Changes attributes of all RC ports, some of which drain them, and some of datagrams.
    fn change(&mut self) {
        let (timer, timeout, retries) = (self.rng.u8(1..4), self.rng.u8(14..18), self.rng.u8(4..8));
        let mut rc = format!("{RELIABLE}min_rnr_timer = {timer}\n");
        if self.rng.bool() {
            rc += &format!("retry_cnt = {retries}\n");
            if !self.text.contains(PATIENT) {
                rc += &format!("timeout = {timeout}\n");
            }
        }
        let ud = format!("transport = \"ud\"\ntraffic_class = {}\n", self.rng.u8(..64) * 4);
        let text = self.text.replace(RELIABLE, &rc).replace("transport = \"ud\"\n", &ud);
        match self.loader.load_str("random.toml", &text).and_then(|plan| self.running.change_ports(&plan)) {
            Err(faults) => self.faults.push(format!("the ports don't change: {faults}")),
            Ok(changed) => {
                for port in changed {
                    self.judge(&format!("port.{}: {:?}", port.port, port.keys), &port.outcome);
                }
            }
        }
    }

    fn pause(&mut self) {
        let Some(choice) = self.rng.usize(..).checked_rem(self.ports.len()) else { return };
        let port = &self.ports[choice];
        match self.running.pause_port(port) {
            Ok(paused) => {
                thread::sleep(Duration::from_micros(self.rng.u64(..=PAUSE_MAX_US)));
                let outcome = paused.resume();
                self.judge(&format!("port.{port} goes on"), &outcome);
            }
            Err(outcome) => self.judge(&format!("port.{port} pauses"), &outcome),
        }
    }

    fn judge(&mut self, what: &str, outcome: &ChangeOutcome) {
        match outcome {
            ChangeOutcome::Refused(why) if why != "the run is over" => self.faults.push(format!("{what}: {why}")),
            ChangeOutcome::Draining => self.faults.push(format!("{what}: not drained in time")),
            _ => {}
        }
    }

    /// Begins a capture, takes from it, or ends it.
    fn capture(&mut self) {
        match (&mut self.capture, self.rng.u32(..3)) {
            (None, _) => {
                let spec = CaptureSpec {
                    points: Vec::new(),
                    snap_bytes: self.rng.usize(1..64),
                    filter: None,
                    depth_packets: DEPTH_PACKETS,
                };
                match self.running.observer().capture(&spec) {
                    Ok(capture) => (self.capture, self.captured) = (Some(capture), 0),
                    // A plan without ports; one that is late.
                    Err(
                        CaptureError::Invalid { .. } | CaptureError::LcoreLate { .. } | CaptureError::NoPoint { .. },
                    ) => {}
                    Err(error) => self.faults.push(format!("no capture: {error}")),
                }
            }
            (Some(_), 0) => self.end_capture(),
            (Some(capture), _) => self.captured += capture.take(|_| {}) as u64,
        }
    }

    /// The handed-out and the lost messages of a capture are all that it saw.
    fn end_capture(&mut self) {
        let Some(mut capture) = self.capture.take() else { return };
        capture.end();
        self.captured += capture.take(|_| {}) as u64;
        let counts = (0..capture.points().len()).map(|point| capture.counts(point));
        let (seen, lost) = counts.fold((0, 0), |(seen, lost), (more, less)| (seen + more, lost + less));
        if seen != self.captured + lost {
            let taken = self.captured;
            self.faults.push(format!("a capture saw {seen} packets, handed out {taken} and lost {lost}"));
        }
    }

    fn trace(&mut self) {
        match (&mut self.trace, self.rng.u32(..3)) {
            (None, _) => match self.running.observer().trace(&TraceSpec::default()) {
                Ok(trace) => self.trace = Some(trace),
                Err(TraceError::LcoreLate { .. }) => {}
                Err(error) => self.faults.push(format!("no trace: {error}")),
            },
            (Some(_), 0) => self.trace = None,
            (Some(trace), _) => _ = trace.take(|_, _| {}),
        }
    }

    /// Checks that a snapshot is a report like any other, and that its counts only grow.
    fn look(&mut self) {
        let report = self.running.snapshot();
        self.faults.extend(report_faults(&serde_json::json!(report)));
        let stages = report.stages.iter().map(|stage| stage.packets_in + stage.packets_out + stage.polls);
        let ports = report.ports.iter().map(|port| port.tx_packets + port.rx_packets);
        let rings = report.rings.iter().map(|ring| ring.popped);
        let seen = report.packets.taken + stages.chain(ports).chain(rings).sum::<u64>();
        if seen < self.seen {
            self.faults.push(format!("a snapshot counts {seen}, and an earlier one {}", self.seen));
        }
        self.seen = seen;
    }
}
