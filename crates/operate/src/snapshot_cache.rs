//! The content of answers: the run's identity, and its latest snapshot as text.
//!
//! Guarantees: for any number of clients and requests, at most a hundred snapshots are taken per
//! second.

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use verbline_engine::{Observer, Report};
use verbline_plan::Plan;

use crate::asks::{CaptureAsk, TraceAsk};
use crate::awake::why_awake;
use crate::capture::feed::{self as capture_feed, CaptureFeed};
use crate::change::Change;
use crate::client_report::Seen;
use crate::keeper::Keeper;
use crate::metrics::exposition;
use crate::metrics::settings::MetricsSettings;
use crate::protocol::{self, Ask, Hello, Refusal, State};
use crate::room;
use crate::stream::Streams;
use crate::trace::feed::{self as trace_feed, TraceFeed};
use crate::trace::kept::Kept;

/// The greatest age of a snapshot in an answer.
const FRESH: Duration = Duration::from_millis(10);

/// The least time between the two reports whose difference explains why lcores are awake.
const AWAKE: Duration = Duration::from_secs(1);

/// Returns the filter of the process's log, after setting it to the argument, if any; or the fault
/// of the argument.
#[derive(Clone, Copy, Debug)]
pub struct LogControl(pub fn(Option<&str>) -> Result<String, String>);

/// State shared by the serving thread and the owner of the run.
#[derive(Debug)]
pub(crate) struct Run {
    app: String,
    plan: String,
    graph: String,
    lcores: u64,
    since_unix_ms: u64,
    observer: OnceLock<Observer>,
    log: Option<LogControl>,
    keeper: Option<Keeper>,
}

impl Run {
    pub(crate) fn new(plan: &Plan, app: &str, log: Option<LogControl>, keeper: Option<Keeper>) -> Run {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Run {
            app: app.to_owned(),
            plan: plan.name().to_owned(),
            graph: crate::graph::json(plan).to_string(),
            lcores: plan.lcores().len() as u64,
            since_unix_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
            observer: OnceLock::new(),
            log,
            keeper,
        }
    }

    /// Tells it that the run has started.
    pub(crate) fn observe(&self, observer: Observer) {
        self.keeper.iter().for_each(|keeper| keeper.observe(observer.clone()));
        // A second observer would be of another run, which has sockets of its own.
        let _ = self.observer.set(observer);
    }

    /// The kept packets; `None` if the run keeps none, or none yet.
    pub(crate) fn kept(&self) -> Option<Kept> {
        self.keeper.as_ref().and_then(Keeper::kept)
    }

    pub(crate) fn hello(&self) -> Hello {
        let state = match self.observer.get() {
            None => State::Starting,
            Some(observer) if observer.is_stopping() => State::Stopping,
            Some(_) => State::Running,
        };
        Hello {
            app: self.app.clone(),
            plan: self.plan.clone(),
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            since_unix_ms: self.since_unix_ms,
            state,
        }
    }

    fn observer(&self) -> Result<&Observer, Refusal> {
        self.observer.get().ok_or_else(|| {
            Refusal::new("starting", "the run connects its ports, and has nothing to report yet; ask again")
        })
    }

    fn snapshot(&self) -> Result<Report, Refusal> {
        self.observer()?
            .snapshot()
            .ok_or_else(|| Refusal::new("over", "the run is over; its own output has the report"))
    }
}

/// The answers, with their ages.
#[derive(Debug)]
pub(crate) struct Told<'a> {
    run: &'a Run,
    metrics: Option<&'a MetricsSettings>,
    report: Option<(Instant, Report)>,
    kept: Option<(Instant, String)>,
    /// For the reasons why lcores are awake: the reports that the last answers were computed from.
    awake: Vec<(Instant, Seen)>,
    captures: Streams,
    traces: Streams,
}

impl<'a> Told<'a> {
    pub(crate) fn new(run: &'a Run, metrics: Option<&'a MetricsSettings>) -> Told<'a> {
        let [captures, traces] = ["vl-capture", "vl-trace"].map(Streams::new);
        Told { run, metrics, report: None, kept: None, awake: Vec::with_capacity(2), captures, traces }
    }

    /// The answer to `ask`, as JSON.
    pub(crate) fn json(&mut self, ask: Ask, now: Instant) -> Result<String, Refusal> {
        let text = match ask {
            Ask::Hello => serde_json::to_string(&self.run.hello()),
            Ask::Report => protocol::json(self.report(now)?),
            Ask::Graph => Ok(self.run.graph.clone()),
            Ask::Kept => return self.kept(now),
            Ask::Capture | Ask::Trace | Ask::Log => {
                let message = format!("a {} is asked for at the control socket", ask.word());
                return Err(Refusal::new("invalid", message));
            }
        };
        text.map_err(|error| Refusal::new("over", format!("the answer can't be written: {error}")))
    }

    /// Begins a capture, which takes over `client`.
    pub(crate) fn capture(&mut self, ask: &CaptureAsk, id: Option<u64>, client: UnixStream) -> Result<(), Refusal> {
        let observer = self.run.observer()?;
        let spec = ask.spec().map_err(capture_feed::refusal)?;
        // Each packet has a buffer, and a place in two queues. The thread's output has it with its
        // headers, and may have twice the room.
        let of_packet = (spec.snap_bytes as u64).saturating_add(256).saturating_mul(3);
        let waiting = of_packet.saturating_mul(spec.depth_packets as u64);
        room::is_there_for(waiting.saturating_mul(self.run.lcores))?;
        self.captures.await_end_of_gone();
        let capture = observer.capture(&spec).map_err(capture_feed::refusal)?;
        let points = serde_json::json!({ "points": capture.points() });
        let answer = protocol::line(id, Ask::Capture.word(), points.to_string());
        self.captures.begin(CaptureFeed::new(capture, &self.run.plan, ask.raw), answer, client)
    }

    /// Begins a trace, which takes over `client`.
    pub(crate) fn trace(&mut self, ask: &TraceAsk, id: Option<u64>, client: UnixStream) -> Result<(), Refusal> {
        let observer = self.run.observer()?;
        room::is_there_for(room::TRACE_BYTES * self.run.lcores)?;
        self.traces.await_end_of_gone();
        // Held until the client's trace has begun or failed.
        let _lent = self.run.keeper.as_ref().map(Keeper::lend).transpose()?;
        let trace = ask.spec().and_then(|spec| observer.trace(&spec)).map_err(trace_feed::refusal)?;
        let head = serde_json::json!(trace_feed::head(&trace));
        let answer = protocol::line(id, Ask::Trace.word(), head.to_string());
        self.traces.begin(TraceFeed::new(trace), answer, client)
    }

    /// Whether the run keeps its slowest packets.
    pub(crate) fn keeps(&self) -> bool {
        self.run.keeper.is_some()
    }

    fn kept(&mut self, now: Instant) -> Result<String, Refusal> {
        if !self.keeps() {
            let why = "the run keeps no packets, as its plan has no [trace]; add that table, or trace the run";
            return Err(Refusal::new("invalid", why));
        }
        let text = match self.kept.take().filter(|(at, _)| now.saturating_duration_since(*at) < FRESH) {
            Some(known) => known,
            None => {
                let starting = || Refusal::new("starting", "the run has kept nothing yet; ask again");
                let kept = self.run.kept().ok_or_else(starting)?;
                let unwritten = |error| Refusal::new("over", format!("the answer can't be written: {error}"));
                (now, protocol::json(&kept).map_err(unwritten)?)
            }
        };
        let known = &self.kept.insert(text).1;
        // With the usual room of an answer, since it becomes one.
        let mut answer = String::with_capacity(protocol::ANSWER_BYTES);
        answer.push_str(known);
        Ok(answer)
    }

    /// Returns the filter of the log, as JSON; with `filter`, sets it first.
    pub(crate) fn log(&self, filter: Option<&str>) -> Result<String, Refusal> {
        let none =
            || Refusal::new("invalid", "the log of this run is its own program's: it can't be changed from here");
        let LogControl(control) = self.run.log.as_ref().ok_or_else(none)?;
        control(filter).map(|filter| Value::String(filter).to_string()).map_err(|why| Refusal::new("invalid", why))
    }

    /// Whether `host`, from a request, is this machine.
    pub(crate) fn is_host(&self, host: &str) -> bool {
        self.metrics.is_some_and(|metrics| metrics.is_host(host))
    }

    /// The metrics, in the client's format.
    pub(crate) fn metrics(&mut self, format: exposition::Format, now: Instant) -> Result<String, Refusal> {
        let (hello, metrics) = (self.run.hello(), self.metrics);
        let connections_max = metrics.map_or(0, |metrics| metrics.connections_max);
        Ok(exposition::text(&hello, self.report(now)?, connections_max, format))
    }

    /// The reasons why each lcore was awake in the last one to two seconds: an object of words by
    /// lcore. All clients share the reports that it is the difference of. Before there are two, it
    /// covers the time since the start.
    pub(crate) fn awake(&mut self, now: Instant) -> Result<String, Refusal> {
        let unread = |error| Refusal::new("over", format!("the report can't be read: {error}"));
        // From its text: a tree of values takes ten times the memory.
        let text = protocol::json(self.report(now)?).map_err(unread)?;
        let seen: Seen = serde_json::from_str(&text).map_err(unread)?;
        let is_due =
            |kept: &[(Instant, Seen)]| kept.last().is_none_or(|(at, _)| now.saturating_duration_since(*at) >= AWAKE);
        let change = match self.awake.first() {
            None => Change::since_start(&seen),
            Some((_, before)) => Change::between(before, &seen),
        };
        let words: BTreeMap<&str, String> =
            change.counts().lcores.iter().map(|lcore| (lcore.name.as_str(), why_awake(&change, lcore))).collect();
        let text = serde_json::to_string(&words).map_err(unread)?;
        if is_due(&self.awake) {
            if self.awake.len() == 2 {
                self.awake.remove(0);
            }
            self.awake.push((now, seen));
        }
        Ok(text)
    }

    fn report(&mut self, now: Instant) -> Result<&Report, Refusal> {
        let is_over = self.run.observer.get().is_some_and(Observer::is_over);
        let is_fresh = |(at, _): &(Instant, Report)| !is_over && now.saturating_duration_since(*at) < FRESH;
        let report = match self.report.take().filter(is_fresh) {
            Some(known) => known,
            None => (now, self.run.snapshot()?),
        };
        Ok(&self.report.insert(report).1)
    }
}
