//! Snapshots of a run from another thread, for as long as the run lasts.
//!
//! Guarantees: an observer never keeps a run, its memory or its devices alive, but for the time in
//! which it takes a snapshot; it writes to nothing that an lcore writes.

use std::sync::{Arc, Weak};

use crate::connection::connections::Statuses;
use crate::control::device_events::EventCounts;
use crate::control::run_control::{Control, Phase};
use crate::stats::clock::Tick;
use crate::stats::report::Report;
use crate::stats::snapshot::RunStats;

/// What a snapshot is taken of.
#[derive(Debug)]
pub(crate) struct Observed {
    pub(super) control: Arc<Control>,
    pub(super) stats: RunStats,
    pub(super) connections: Statuses,
    pub(super) events: EventCounts,
    pub(super) started_ns: Tick,
}

impl Observed {
    /// What the counters say now; `ended`: the lcores have released everything.
    pub(super) fn report(&self, ended: bool) -> Report {
        let mut report = self.stats.report(self.started_ns, ended);
        report.connections = self.connections.report(self.started_ns, |port| self.stats.is_down(port));
        report.events = self.events.report();
        let (failures, lost) = self.control.with(|progress| (progress.failures.clone(), progress.lost_ports.clone()));
        report.failures = if failures.is_empty() { self.stats.failures(&report, &lost) } else { failures };
        report
    }
}

/// Takes snapshots of a run from any thread, while its owner waits for it or stops it
/// ([`Running::observer`](crate::Running::observer)).
#[derive(Clone, Debug)]
pub struct Observer {
    observed: Weak<Observed>,
}

impl Observer {
    pub(super) fn new(observed: &Arc<Observed>) -> Observer {
        Observer { observed: Arc::downgrade(observed) }
    }

    /// The same as [`Running::snapshot`](crate::Running::snapshot), also while the run is being
    /// stopped; `None`: the run is over. Reads the lcores' counters without stopping or slowing
    /// them.
    pub fn snapshot(&self) -> Option<Report> {
        Some(self.observed.upgrade()?.report(false))
    }

    /// Whether the run is over: there will be no snapshot any more.
    pub fn is_over(&self) -> bool {
        self.observed.strong_count() == 0
    }

    /// Whether the run is being stopped, or is over.
    pub fn is_stopping(&self) -> bool {
        self.observed.upgrade().is_none_or(|observed| Phase::of(observed.control.word()) != Phase::Running)
    }
}
