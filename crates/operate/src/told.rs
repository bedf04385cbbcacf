//! What clients are told: who runs here, and the latest snapshot as text.
//!
//! Guarantees: however many clients ask however often, a snapshot is taken at most a hundred times
//! a second.

use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use verbline_engine::{Observer, Report};
use verbline_plan::Plan;

use crate::capture::stream::Captures;
use crate::capture_ask::CaptureAsk;
use crate::metrics::exposition;
use crate::metrics::settings::MetricsSettings;
use crate::protocol::{Ask, Hello, Refusal, State};

/// How old a snapshot may be that is told.
const FRESH: Duration = Duration::from_millis(10);

/// What the thread that serves shares with the owner of the run.
#[derive(Debug)]
pub(crate) struct Run {
    app: String,
    plan: String,
    graph: String,
    since_unix_ms: u64,
    observer: OnceLock<Observer>,
}

impl Run {
    pub(crate) fn new(plan: &Plan, app: &str) -> Run {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Run {
            app: app.to_owned(),
            plan: plan.name().to_owned(),
            graph: crate::graph::json(plan).to_string(),
            since_unix_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
            observer: OnceLock::new(),
        }
    }

    /// The run has started.
    pub(crate) fn observe(&self, observer: Observer) {
        // A second one would be of another run, which has sockets of its own.
        let _ = self.observer.set(observer);
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

/// The answers, and how old they are.
#[derive(Debug)]
pub(crate) struct Told<'a> {
    run: &'a Run,
    metrics: Option<&'a MetricsSettings>,
    report: Option<(Instant, Report)>,
    captures: Captures,
}

impl<'a> Told<'a> {
    pub(crate) fn new(run: &'a Run, metrics: Option<&'a MetricsSettings>) -> Told<'a> {
        Told { run, metrics, report: None, captures: Captures::default() }
    }

    /// The JSON that answers `ask`.
    pub(crate) fn json(&mut self, ask: Ask, now: Instant) -> Result<String, Refusal> {
        let text = match ask {
            Ask::Hello => serde_json::to_string(&self.run.hello()),
            Ask::Report => serde_json::to_string(self.report(now)?),
            Ask::Graph => Ok(self.run.graph.clone()),
            Ask::Capture => return Err(Refusal::new("invalid", "a capture is asked for at the control socket")),
        };
        text.map_err(|error| Refusal::new("over", format!("the answer can't be written: {error}")))
    }

    /// Begins a capture, which `client` has from here on.
    pub(crate) fn capture(&mut self, ask: &CaptureAsk, id: Option<u64>, client: UnixStream) -> Result<(), Refusal> {
        let observer = self.run.observer()?;
        self.captures.begin(observer, &self.run.plan, ask, id, client)
    }

    /// Whether a request that names this host means this machine.
    pub(crate) fn is_host(&self, host: &str) -> bool {
        self.metrics.is_some_and(|metrics| metrics.is_host(host))
    }

    /// The metrics, in the format that the client takes.
    pub(crate) fn metrics(&mut self, format: exposition::Format, now: Instant) -> Result<String, Refusal> {
        let (hello, metrics) = (self.run.hello(), self.metrics);
        let connections_max = metrics.map_or(0, |metrics| metrics.connections_max);
        Ok(exposition::text(&hello, self.report(now)?, connections_max, format))
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
