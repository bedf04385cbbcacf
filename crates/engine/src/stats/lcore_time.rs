//! The report's part about lcores: how each spent its time, on which CPU, and beside whom.

use crate::stats::counters::{LcoreReport, LcoreStats};
use crate::stats::kernel_time::{self, Thieves};
use crate::stats::snapshot::{LcoreEntry, RunStats, ratio};
use crate::stats::wakes::{WAKE_CAUSES, WakeReport};

impl RunStats {
    pub(crate) fn lcore(&self, entry: &LcoreEntry, kernel: &Thieves) -> LcoreReport {
        let (stats, mut report) = (&entry.stats, entry.known.clone());
        stats.read(&mut report);
        (report.cpu, report.cpus_allowed) = cpus(stats).unwrap_or((report.cpu, 1));
        let wake =
            |(cause, name): &(_, &'static str)| WakeReport { cause: name, count: stats.wakes[*cause as usize].value() };
        let queued_ns = queued_ns(stats);
        // The lcore has found the time stolen while it was awake. The rest of its waiting was for
        // its CPU after a sleep.
        let undisturbed_ns = report.sleeps * WAKE_NS;
        let found_ns = report.stolen_ns + undisturbed_ns;
        let late_ns = queued_ns.unwrap_or(0).saturating_sub(found_ns).min(report.asleep_ns);
        let (asleep_ns, stolen_ns) = (report.asleep_ns - late_ns, report.stolen_ns + late_ns);
        let whole_ns = report.busy_ns + report.idle_ns + asleep_ns + stolen_ns;
        LcoreReport {
            asleep_ns,
            stolen_ns,
            queued_ns,
            hypervisor_ns: kernel.hypervisor_since(&self.kernel, report.cpu as u32),
            busy_share: ratio(report.busy_ns, whole_ns),
            idle_share: ratio(report.idle_ns, whole_ns),
            asleep_share: ratio(asleep_ns, whole_ns),
            stolen_share: ratio(stolen_ns, whole_ns),
            wakes: WAKE_CAUSES.iter().map(wake).collect(),
            wake_late: stats.wake_late.report(stats.wake_late_ns.value(), |ns| ns),
            ..report
        }
    }

    /// Names the other threads pinned to the CPUs of lcores from which much time was stolen, if
    /// they took a hundredth of that or more.
    pub(crate) fn name_neighbours(&self, lcores: &mut [LcoreReport]) {
        let robbed = self.lcores.iter().zip(lcores).filter(|(_, lcore)| lcore.is_robbed() && lcore.cpus_allowed == 1);
        for (entry, lcore) in robbed {
            let (own, least_ns) = (entry.stats.thread_id.value(), lcore.stolen_ns / 100);
            lcore.pinned_beside = self.neighbours.who_ran_on(lcore.cpu, own, least_ns);
        }
    }
}

/// The longest that a woken thread waits for a free CPU: a longer wait has another cause.
const WAKE_NS: u64 = 5_000;

/// Returns how long the lcore's thread has waited for its CPU since it began.
fn queued_ns(stats: &LcoreStats) -> Option<u64> {
    let live = || kernel_time::queued_ns(Some(stats.thread_id.value()));
    let until_ns = match stats.queued_at_end_ns.value() {
        0 => live(),
        ended_ns => Some(ended_ns),
    };
    Some(until_ns?.saturating_sub(stats.queued_at_start_ns.value()))
}

/// Returns the CPUs that the lcore's thread may use, or could use as it ended; `None` before it
/// runs.
fn cpus(stats: &LcoreStats) -> Option<(usize, usize)> {
    match (stats.thread_id.value(), stats.cpus_at_end.value() as usize) {
        (0, _) => None,
        (id, 0) => kernel_time::allowed_cpus(Some(id)),
        (_, cpus) => Some((stats.cpu_at_end.value() as usize, cpus)),
    }
}
