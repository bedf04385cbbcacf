//! The shared state of a run, for snapshots and captures.

use std::sync::Arc;

use crate::connection::connections::Statuses;
use crate::control::device_events::EventCounts;
use crate::control::run_control::Control;
use crate::stats::clock::Tick;
use crate::stats::report::Report;
use crate::stats::snapshot::RunStats;

/// See the top of this file.
#[derive(Debug)]
pub(crate) struct Observed {
    pub(super) control: Arc<Control>,
    pub(super) stats: RunStats,
    pub(super) connections: Statuses,
    pub(super) events: EventCounts,
    pub(super) started_ns: Tick,
}

impl Observed {
    /// A report of the counters. `ended`: the lcores have released all their resources; `drained`:
    /// they had nothing on its way by then.
    pub(super) fn report(&self, ended: bool, drained: bool) -> Report {
        let mut report = self.stats.report(self.started_ns, ended);
        // An lcore that has ended looks into no ring, and another one may fill it until then.
        report.drained = drained && !(ended && self.stats.left_behind().next().is_some());
        report.connections = self.connections.report(self.started_ns, |port| self.stats.is_down(port));
        report.events = self.events.report();
        let (failures, lost) = self.control.with(|progress| (progress.failures.clone(), progress.lost_ports.clone()));
        report.failures = if failures.is_empty() { self.stats.failures(&report, &lost) } else { failures };
        report
    }
}
