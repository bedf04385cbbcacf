//! The owner's side of a run: reports, waits, and stops in order.
//!
//! To stop, the sources stop first, and every lcore runs on in poll mode (draining). Once nothing
//! is in flight ([`verbline_ring::Quiet`]), or the drain budget is spent, every lcore releases its
//! resources, on its own thread. Then the packets of the pools are counted.
//!
//! Guarantees: a stop takes the drain budget, [`REASON_WAIT`] and its limit at most, whatever a
//! stage or an acceptor does. Threads that have not ended by then are named, and left behind.

use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use verbline_ring::Quiet;

use crate::api::injector::Injectors;
use crate::connection::connections::Connections;
use crate::connection::supervisor::REASON_WAIT;
use crate::control::device_events::Watch;
use crate::control::run_control::{Control, Phase, Progress};
use crate::errors::error::EngineError;
use crate::errors::guarded::{Joined, is_this, join_until};
use crate::errors::stuck::Stuck;
use crate::run::observed::Observed;
use crate::setup::changes::Known;
use crate::stats::calling::Call;
use crate::stats::failures::failure;
use crate::stats::report::{FailureReport, Report};

/// The time that [`Running::stop`](crate::Running::stop) waits after the drain for the threads of a
/// run to end, before it names those that don't.
pub const STOP_LIMIT: Duration = Duration::from_secs(10);

/// The time that a stop waits for the thread that reads the devices' events, which is idle by then.
const EVENTS_LIMIT: Duration = Duration::from_secs(1);

/// The interval at which the owner reads the lcores' pulses. Also the least time for which a run
/// must have been quiet: unsignaled sends of UC and UD cannot be waited for, but are long on the
/// wire by then.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// The reason why [`Running::wait`](crate::Running::wait) returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Every source said [`Next::Done`](crate::Next::Done).
    SourcesDone,
    /// An lcore failed or panicked, or a port is down for good;
    /// [`Running::stop`](crate::Running::stop) says which.
    Failed,
    /// [`Interrupter::interrupt`](crate::Interrupter::interrupt) was called.
    Interrupted,
    /// The time was up.
    TimedOut,
}

/// The thread of an lcore.
#[derive(Debug)]
pub(crate) struct LcoreThread {
    pub(super) name: String,
    /// The names of its stages, in the order in which it calls them.
    pub(super) stages: Vec<String>,
    pub(super) thread: JoinHandle<()>,
}

/// Everything that the owner of a run holds.
#[derive(Debug)]
pub(crate) struct RunningInner {
    pub(crate) control: Arc<Control>,
    pub(crate) injectors: Injectors,
    pub(super) connections: Connections,
    /// Shared with observers.
    pub(super) observed: Arc<Observed>,
    /// The means to change its ports.
    pub(super) known: Mutex<Known>,
    /// In the plan's order; none once the run was stopped.
    pub(super) threads: Vec<LcoreThread>,
    pub(super) stuck: Vec<Stuck>,
    pub(super) watch: Option<Watch>,
    /// The number of stages that are sources.
    pub(super) sources: usize,
    /// The longest drain budget of the plan.
    pub(super) drain: Duration,
}

impl RunningInner {
    pub(crate) fn snapshot(&self) -> Report {
        self.snapshot_drained(true)
    }

    fn snapshot_drained(&self, drained: bool) -> Report {
        let has_ended = self.threads.is_empty() && self.stuck.is_empty();
        let mut report = self.observed.report(has_ended, drained);
        let unsupervised = self.connections.panicked().iter().map(|place| {
            let port = &report.ports[*place];
            failure(port, format!("the thread that supervises the connection of port.{} panicked", port.name))
        });
        report.failures.extend(unsupervised.collect::<Vec<_>>());
        report
    }

    pub(crate) fn wait(&self, timeout: Option<Duration>) -> Ended {
        self.control
            .wait(timeout, |progress| self.reason(progress).is_some(), |progress| self.reason(progress))
            .unwrap_or(Ended::TimedOut)
    }

    fn reason(&self, progress: &Progress) -> Option<Ended> {
        if !progress.failures.is_empty() || !progress.lost_ports.is_empty() {
            Some(Ended::Failed)
        } else if progress.interrupted {
            Some(Ended::Interrupted)
        } else if self.sources > 0 && progress.sources_done >= self.sources {
            Some(Ended::SourcesDone)
        } else {
            None
        }
    }

    /// The name of the run's thread that this code runs on, if it does.
    pub(crate) fn inside(&self) -> Option<String> {
        let lcore =
            self.threads.iter().find(|lcore| is_this(&lcore.thread)).map(|lcore| format!("lcore.{}", lcore.name));
        lcore.or_else(|| self.connections.inside())
    }

    /// Stops, and reports: within the drain budget, [`REASON_WAIT`] and `limit`. A second call
    /// reports again. Not called from within the run.
    pub(crate) fn stop(&mut self, limit: Duration) -> Result<Report, EngineError> {
        let elapsed_ns = self.observed.stats.clock.now_ns().saturating_sub(self.observed.started_ns);
        // Before the lcores hear of the drain: they find all earlier messages in their injectors.
        self.injectors.close();
        self.connections.stop_reconnecting();
        self.control.advance(Phase::Draining);
        self.await_reasons();
        let is_quiet = self.await_quiet();
        let from = Instant::now();
        // A connection that ends from here on ends because the run does. The threads that end here
        // must leave the lcores time to end.
        self.stuck = self.connections.stop_watching(from.checked_add(limit / 2));
        self.control.advance(Phase::Ending);
        self.join_lcores(from.checked_add(limit));
        // With time of its own: the lcores may have used all of the limit.
        self.stuck.extend(self.watch.as_mut().and_then(|watch| watch.end(Instant::now() + EVENTS_LIMIT)));
        self.connections.close();
        self.fail_stuck();
        let drained = self.control.with(|progress| progress.was_drained(is_quiet));
        let mut report = self.snapshot_drained(drained);
        // The time after the request to stop is not part of the run.
        report.elapsed_ns = elapsed_ns;
        if !self.stuck.is_empty() {
            return Err(EngineError::Stuck { limit, stuck: self.stuck.clone(), report: Box::new(report) });
        }
        match report.failures.first().cloned() {
            None => Ok(report),
            Some(FailureReport { lcore, stage, panicked: true, message }) => {
                Err(EngineError::Panicked { lcore, stage, message, report: Box::new(report) })
            }
            Some(FailureReport { lcore, stage, message, .. }) => {
                Err(EngineError::Failed { lcore, stage, message, report: Box::new(report) })
            }
        }
    }

    /// Waits for the lcores, which were told to end (`None`: without a limit).
    fn join_lcores(&mut self, until: Option<Instant>) {
        for (place, LcoreThread { name, stages, thread }) in std::mem::take(&mut self.threads).into_iter().enumerate() {
            match join_until(thread, until) {
                Joined::Gave(()) => {}
                // The thread has counted itself, and its failure.
                Joined::Panicked(said) => tracing::error!(lcore = %name, "its thread panicked: {said}"),
                Joined::Late => self.stuck.push(self.of_lcore(place, name, &stages)),
            }
        }
    }

    /// The current call of an lcore that does not end.
    fn of_lcore(&self, place: usize, name: String, stages: &[String]) -> Stuck {
        let stats = &self.observed.stats.lcores[place].stats;
        let (stage, place) = match stats.calling.now() {
            Some((stage, call)) => (stages.get(stage).cloned(), call.words()),
            None => (None, Call::NONE),
        };
        let who = stage.as_ref().map_or_else(|| format!("lcore.{name}"), |stage| format!("stage.{stage}"));
        let since_ns = self.observed.stats.clock.now_ns().saturating_sub(stats.read_at_ns.value());
        Stuck { lcore: name, stage, who, place, since: Duration::from_nanos(since_ns) }
    }

    /// Records the stuck threads as the run's first failures, before all that follow from them.
    fn fail_stuck(&self) {
        let failure = |stuck: &Stuck| FailureReport {
            lcore: stuck.lcore.clone(),
            stage: stuck.stage.clone(),
            panicked: false,
            message: stuck.sentence(),
        };
        let failures: Vec<_> = self.stuck.iter().map(failure).collect();
        failures.iter().for_each(|failure| tracing::error!(lcore = %failure.lcore, "{}", failure.message));
        if !failures.is_empty() {
            self.control.update(|progress| drop(progress.failures.splice(0..0, failures)));
        }
    }

    /// Abandons a run that one of its own threads drops: it ends at once, and no thread waits for
    /// it.
    fn abandon(&mut self) {
        tracing::error!("a thread of the run dropped the run: it ends without a drain and without a report");
        self.injectors.close();
        self.connections.abandon();
        self.control.advance(Phase::Ending);
        self.threads.clear();
    }

    /// If the run ends with a port whose only known failures are flushed work requests, waits a
    /// little for the event that gives the reason, or for an lcore to fail of the same cause: the
    /// lcores hear of events while they drain.
    fn await_reasons(&self) {
        let deadline = Instant::now() + REASON_WAIT;
        let is_told = |progress: &Progress| {
            progress.lost_ports.is_empty()
                || !progress.failures.is_empty()
                || !self.observed.stats.are_vague(&progress.lost_ports)
        };
        while !self.control.wait(Some(LOOK_EVERY), is_told, is_told) && Instant::now() < deadline {}
    }

    /// Waits until nothing is in flight, within the lcores' drain budgets. False if packets were
    /// still in flight when one ran out, or if an lcore is gone.
    fn await_quiet(&self) -> bool {
        let deadline = Instant::now() + self.drain;
        let read = |lcore: usize| self.control.pulses[lcore].read();
        let mut quiet = Quiet::new(self.control.pulses.len(), read);
        loop {
            let ended = |progress: &Progress| progress.ended > 0;
            if self.control.wait(Some(LOOK_EVERY), ended, ended) {
                // An lcore has failed, or ended by itself because another has.
                return false;
            }
            if quiet.look(read) {
                return self.control.with(|progress| progress.undelivered == 0);
            }
            if Instant::now() >= deadline {
                return false;
            }
        }
    }
}

impl Drop for RunningInner {
    fn drop(&mut self) {
        if self.threads.is_empty() {
            return;
        }
        if self.inside().is_some() {
            return self.abandon();
        }
        if let Err(error) = self.stop(STOP_LIMIT) {
            tracing::error!(%error, "the run did not end in order");
        }
    }
}
