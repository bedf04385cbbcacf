//! Makes a report from the counters of a run.

use std::sync::{OnceLock, PoisonError};

use verbline_mem::{Fallback, NodeOutcome, Pool};
use verbline_verbs::OutOfBuffer;

use crate::stats::clock::{Clock, Tick};
use crate::stats::connection_counters::{CmThreadStats, ConnectionsReport, ConnectionsStats, LastError};
use crate::stats::counter::{Count, Drops, Shared};
use crate::stats::counters::{
    InjectorReport, InjectorStats, LcoreReport, LcoreStats, PortReport, PortStats, RingConsumerStats,
    RingProducerStats, RingReport, StageReport, StageStats,
};
use crate::stats::down_reason::DownReason;
use crate::stats::drop_reason::{DropReason, reason_name};
use crate::stats::failures::{self, Wiring};
use crate::stats::kernel_time::Thieves;
use crate::stats::neighbours::Neighbours;
use crate::stats::operations::OperationStats;
use crate::stats::own_figures::OwnFigures;
use crate::stats::report::{DropReport, FailureReport, HolderReport, PacketReport, PoolReport, REPORT_VERSION, Report};
use crate::stats::status::StatusReport;
use crate::stats::wire::{self, WireReport};

/// All counters of a run, with the names that a reader needs, in the plan's order.
#[derive(Debug)]
pub(crate) struct RunStats {
    pub(crate) plan: String,
    pub(crate) clock: Clock,
    pub(crate) lcores: Vec<LcoreEntry>,
    pub(crate) stages: Vec<StageEntry>,
    pub(crate) ports: Vec<PortEntry>,
    pub(crate) rings: Vec<RingEntry>,
    pub(crate) injectors: Vec<InjectorEntry>,
    pub(crate) pools: Vec<Pool>,
    /// How to get the hugepages that all pools and regions lack.
    pub(crate) pages_remedy: Option<String>,
    /// The kernel's figures at the start.
    pub(crate) kernel: Thieves,
    /// The pinned threads at the start.
    pub(crate) neighbours: Neighbours,
}

/// One lcore: the facts known before the run, and its counters.
#[derive(Debug)]
pub(crate) struct LcoreEntry {
    pub(crate) known: LcoreReport,
    pub(crate) stats: Shared<LcoreStats>,
}

#[derive(Debug)]
pub(crate) struct StageEntry {
    pub(crate) known: StageReport,
    /// The kind's own drop reasons.
    pub(crate) drops: &'static [&'static str],
    pub(crate) outputs: Vec<OutputEntry>,
    pub(crate) own: OwnFigures,
    pub(crate) stats: Shared<StageStats>,
}

/// An output of a stage.
#[derive(Debug)]
pub(crate) struct OutputEntry {
    pub(crate) name: &'static str,
    /// The places that it leads to, each one of a spread; none if it drops.
    pub(crate) leads_to: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct PortEntry {
    pub(crate) known: PortReport,
    pub(crate) wiring: Wiring,
    pub(crate) operations: Option<Shared<OperationStats>>,
    pub(crate) stats: Shared<PortStats>,
    /// Messages that found no receive. Set once its queue pair, or the maker of these, exists.
    pub(crate) out_of_buffer: OnceLock<OutOfBuffer>,
    pub(crate) connections: Option<ConnectionsEntry>,
}

/// The connections of a port that may have many.
#[derive(Debug)]
pub(crate) struct ConnectionsEntry {
    pub(crate) known: ConnectionsReport,
    pub(crate) stats: Shared<ConnectionsStats>,
    pub(crate) cm_thread: Shared<CmThreadStats>,
    pub(crate) last_error: LastError,
}

#[derive(Debug)]
pub(crate) struct RingEntry {
    pub(crate) known: RingReport,
    pub(crate) lanes: Vec<LaneEntry>,
}

/// One lcore's lane of a ring.
#[derive(Debug)]
pub(crate) struct LaneEntry {
    /// The lcore that fills it.
    pub(crate) filled_by: String,
    pub(crate) producer: Shared<RingProducerStats>,
    pub(crate) consumer: Shared<RingConsumerStats>,
}

impl LaneEntry {
    /// Returns the number of packets that were pushed and not popped yet.
    fn queued(&self) -> u64 {
        let gone = self.consumer.popped.value() + self.consumer.displaced.value();
        self.producer.pushed.value().saturating_sub(gone)
    }
}

#[derive(Debug)]
pub(crate) struct InjectorEntry {
    pub(crate) known: InjectorReport,
    pub(crate) producer: Shared<InjectorStats>,
    pub(crate) consumer: Shared<RingConsumerStats>,
}

impl RunStats {
    /// Reads the counters. `ended`: the lcores have released everything. The caller adds the
    /// connections, the events and the failures.
    pub(crate) fn report(&self, started_ns: Tick, ended: bool) -> Report {
        let pools: Vec<PoolReport> = self.pools.iter().map(|one| pool(one, self.pages_remedy.as_deref())).collect();
        let kernel = Thieves::now();
        let mut lcores: Vec<LcoreReport> = self.lcores.iter().map(|entry| self.lcore(entry, &kernel)).collect();
        if ended {
            self.name_neighbours(&mut lcores);
        }
        let busy = self.stage_times(&lcores);
        Report {
            version: REPORT_VERSION,
            plan: self.plan.clone(),
            ended,
            elapsed_ns: self.clock.now_ns().saturating_sub(started_ns),
            drained: true,
            throttled_ns: kernel.throttled_since(&self.kernel),
            stages: self.stages.iter().zip(busy).map(|(entry, busy_ns)| self.stage(entry, busy_ns, &lcores)).collect(),
            lcores,
            ports: self.ports.iter().map(port).collect(),
            connections: Vec::new(),
            wires: self.wires(),
            rings: self.rings.iter().map(ring).collect(),
            injectors: self.injectors.iter().map(injector).collect(),
            drops: self.drops(ended),
            packets: self.packets(&pools, ended),
            pools,
            events: Vec::new(),
            failures: Vec::new(),
        }
    }

    fn wires(&self) -> Vec<WireReport> {
        let devices: Vec<_> = self.ports.iter().map(|entry| entry.known.device.as_str()).collect();
        wire::wires(&devices)
    }

    /// Returns the run's failures, besides its lcores' own. `lost`: the ports that it ended with.
    pub(crate) fn failures(&self, report: &Report, lost: &[usize]) -> Vec<FailureReport> {
        let wiring: Vec<_> = self.ports.iter().map(|entry| entry.wiring.clone()).collect();
        failures::failures(report, &wiring, lost)
    }

    /// Whether the queue pair of the port at this place in the plan is in the error state.
    pub(crate) fn is_down(&self, port: usize) -> bool {
        self.ports[port].stats.down.value() > 0
    }

    /// Whether the ports' reasons only show that something else came before.
    pub(crate) fn are_vague(&self, ports: &[usize]) -> bool {
        ports.iter().all(|place| DownReason::is_vague(self.ports[*place].stats.down_reason.value()))
    }

    /// Returns the estimated working times of the stages: together no longer than their lcore's
    /// time, which is known better.
    fn stage_times(&self, lcores: &[LcoreReport]) -> Vec<u64> {
        let mut times: Vec<u64> =
            self.stages.iter().map(|entry| self.clock.cycles_to_ns(entry.stats.cycles.value())).collect();
        for lcore in lcores {
            let of_lcore = |(entry, time): (&StageEntry, _)| (entry.known.lcore == lcore.name).then_some(time);
            let sum: u64 = self.stages.iter().zip(times.iter().copied()).filter_map(of_lcore).sum();
            if sum > lcore.busy_ns {
                for time in self
                    .stages
                    .iter()
                    .zip(&mut times)
                    .filter_map(|(entry, time)| (entry.known.lcore == lcore.name).then_some(time))
                {
                    *time = (u128::from(*time) * u128::from(lcore.busy_ns) / u128::from(sum)) as u64;
                }
            }
        }
        times
    }

    fn stage(&self, entry: &StageEntry, busy_ns: u64, lcores: &[LcoreReport]) -> StageReport {
        let (stats, mut report) = (&entry.stats, entry.known.clone());
        stats.read(&mut report);
        let lcore_busy_ns = lcores.iter().find(|lcore| lcore.name == report.lcore).map_or(0, |lcore| lcore.busy_ns);
        let cycles = stats.cycles.value();
        StageReport {
            busy_ns,
            busy_error: if cycles == 0 { 0.0 } else { stats.variance.value().sqrt() / cycles as f64 },
            ns_per_packet: ratio(busy_ns, report.packets_in.max(report.packets_out)),
            busy_share: ratio(busy_ns, lcore_busy_ns),
            batch_mean: ratio(report.packets_in, report.calls),
            call_times: stats.call_times.report(busy_ns, |cycles| self.clock.cycles_to_ns(cycles)),
            counters: entry.own.counter_reports(),
            histograms: entry.own.histogram_reports(),
            ..report
        }
    }

    fn drops(&self, ended: bool) -> Vec<DropReport> {
        let mut all: Vec<DropReport> = Vec::new();
        let mut add = |place: String, drops: &Drops, own: &[&'static str]| {
            for (index, packets) in drops.non_zero() {
                let reason = reason_name(index, own);
                // Another lane of the same ring has counted some.
                match all.iter_mut().find(|drop| drop.place == place && drop.reason == reason) {
                    Some(drop) => drop.packets += packets,
                    None => all.push(DropReport { place: place.clone(), reason: reason.to_owned(), packets }),
                }
            }
        };
        for entry in &self.stages {
            add(format!("stage.{}", entry.known.name), &entry.stats.drops, entry.drops);
        }
        for entry in &self.ports {
            add(format!("port.{}", entry.known.name), &entry.stats.drops, &[]);
        }
        for entry in &self.rings {
            for lane in &entry.lanes {
                add(format!("ring.{}", entry.known.name), &lane.producer.drops, &[]);
                // The consumer of a ring counts some drops, and the producer others.
                let by_consumer = Drops::default();
                by_consumer.add(DropReason::Displaced, lane.consumer.displaced.value());
                add(format!("ring.{}", entry.known.name), &by_consumer, &[]);
            }
        }
        if ended {
            all.extend(self.left_behind());
        }
        all
    }

    /// The packets of a run that has ended which were never popped, and went back to their pool
    /// with the ring.
    pub(crate) fn left_behind(&self) -> impl Iterator<Item = DropReport> {
        let ring =
            |entry: &RingEntry| (format!("ring.{}", entry.known.name), entry.lanes.iter().map(LaneEntry::queued).sum());
        let injector = |entry: &InjectorEntry| {
            let packets = entry.producer.pushed.value().saturating_sub(entry.consumer.popped.value());
            (format!("injector.{}", entry.known.name), packets)
        };
        let left = self.rings.iter().map(ring).chain(self.injectors.iter().map(injector));
        let report = |(place, packets)| DropReport { place, reason: "left_behind".to_owned(), packets };
        left.map(report).filter(|left| left.packets > 0)
    }

    fn packets(&self, pools: &[PoolReport], ended: bool) -> PacketReport {
        let by_lcores = self.lcores.iter().map(|entry| entry.stats.taken.value()).sum::<u64>();
        let taken = by_lcores + self.injectors.iter().map(|entry| entry.producer.pushed.value()).sum::<u64>();
        let held = pools.iter().map(|pool| pool.held).sum::<u64>();
        let holders = if ended { Vec::new() } else { self.holders() };
        let known: u64 = holders.iter().map(|holder| holder.packets).sum();
        let elsewhere = held.saturating_sub(known);
        let rest = (elsewhere > 0).then(|| HolderReport { place: "elsewhere".into(), packets: elsewhere });
        PacketReport {
            taken,
            returned: taken.saturating_sub(held),
            held,
            holders: holders.into_iter().chain(rest).collect(),
        }
    }

    fn holders(&self) -> Vec<HolderReport> {
        // Room for all of them, like for the bins of times: all reports have one size.
        let mut holders = Vec::with_capacity(2 * self.ports.len() + self.rings.len() + self.injectors.len() + 1);
        let mut add = |place: String, packets: u64| {
            if packets > 0 {
                holders.push(HolderReport { place, packets });
            }
        };
        for entry in &self.ports {
            add(format!("port.{} rx", entry.known.name), entry.stats.rx_outstanding.value());
            let tx = entry.stats.tx_outstanding.value() + entry.stats.tx_pending.value();
            add(format!("port.{} tx", entry.known.name), tx);
        }
        for entry in &self.rings {
            let held = entry.lanes.iter().map(|lane| lane.queued() + lane.producer.pending.value());
            add(format!("ring.{}", entry.known.name), held.sum());
        }
        for entry in &self.injectors {
            let queued = entry.producer.pushed.value().saturating_sub(entry.consumer.popped.value());
            add(format!("injector.{}", entry.known.name), queued);
        }
        holders
    }
}

fn port(entry: &PortEntry) -> PortReport {
    let (stats, mut report) = (&entry.stats, entry.known.clone());
    stats.read(&mut report);
    let errors = stats.statuses.iter().map(Count::value).enumerate().filter(|(_, count)| *count > 0);
    PortReport {
        rx_out_of_buffer: entry.out_of_buffer.get().and_then(OutOfBuffer::value),
        qpn: stats.qpn.value() as u32,
        down: stats.down.value() > 0,
        down_reason: DownReason::text(stats.down_reason.value()),
        link_down: stats.link_down.value() > 0,
        operations: entry.operations.as_ref().map(|operations| operations.report()),
        errors: errors.map(|(status, count)| StatusReport::new(status as u32, count)).collect(),
        connections: entry.connections.as_ref().map(connections),
        ..report
    }
}

fn connections(entry: &ConnectionsEntry) -> ConnectionsReport {
    let mut report = entry.known.clone();
    entry.stats.read(&mut report);
    entry.cm_thread.read(&mut report);
    // A panic leaves the old text or the new.
    report.last_error = entry.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone();
    report
}

fn ring(entry: &RingEntry) -> RingReport {
    let mut lanes: Vec<RingReport> = entry.lanes.iter().map(|one| lane(one, &entry.known)).collect();
    // A single lane needs no list of lanes.
    if lanes.len() == 1 {
        return lanes.remove(0);
    }
    let sum = |of: fn(&RingReport) -> u64| lanes.iter().map(of).sum();
    RingReport {
        pushed: sum(|lane| lane.pushed),
        push_batches: sum(|lane| lane.push_batches),
        full: sum(|lane| lane.full),
        popped: sum(|lane| lane.popped),
        pop_batches: sum(|lane| lane.pop_batches),
        most: lanes.iter().map(|lane| lane.most).max().unwrap_or(0),
        lanes,
        ..entry.known.clone()
    }
}

fn lane(entry: &LaneEntry, ring: &RingReport) -> RingReport {
    let mut report = RingReport { producer: entry.filled_by.clone(), ..ring.clone() };
    entry.producer.read(&mut report);
    entry.consumer.read(&mut report);
    report.most = most(report.most, report.depth, report.full, report.popped);
    report
}

fn injector(entry: &InjectorEntry) -> InjectorReport {
    let mut report = entry.known.clone();
    entry.producer.read(&mut report);
    let popped = entry.consumer.popped.value();
    let most = most(entry.consumer.most.value(), report.depth, report.refused_full, popped);
    InjectorReport { popped, most, ..report }
}

/// Returns the high-water mark of a ring. Its consumer looks only in timed turns: a push that found
/// no room, or any popped packet, says more.
fn most(found: u64, depth: u64, full: u64, popped: u64) -> u64 {
    if full > 0 { depth } else { found.max(popped.min(1)) }
}

/// Divides, or returns 0 where there is nothing to divide by.
pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

fn pool(pool: &Pool, pages_remedy: Option<&str>) -> PoolReport {
    let account = pool.account();
    // Pages for this pool alone would not do: others lack some too.
    let fallback = |fallback: &Fallback| {
        let Fallback { region, shortage } = fallback;
        let remedy = pages_remedy.unwrap_or(&shortage.remedy);
        format!(
            "region `{region}` is on 4 KiB pages: {}; to have hugepages for all pools and regions: {remedy}",
            shortage.why
        )
    };
    PoolReport {
        name: pool.name().to_owned(),
        packets: account.packets.into(),
        free: account.free.into(),
        cached: account.cached.into(),
        held: account.held.into(),
        locked: pool.region().is_locked(),
        page_bytes: pool.region().page_size().bytes() as u64,
        node: pool.region().node().and_then(NodeOutcome::node),
        fallback: pool.region().fallback().map(fallback),
    }
}
