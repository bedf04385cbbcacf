//! From the counters of a run to its report.

use verbline_mem::Pool;
use verbline_verbs::Status;

use crate::idle::policy::{Budget, Policy, SpinFrom};
use crate::stats::clock::{Clock, Tick};
use crate::stats::counters::{
    Counter, Drops, LcoreStats, PortStats, RingInStats, RingOutStats, Shared, StageStats, WAKE_CAUSES,
};
use crate::stats::down_reason::DownReason;
use crate::stats::drop_reason::reason_name;
use crate::stats::failures::{self, Wiring};
use crate::stats::kernel_time::{self, Thieves};
use crate::stats::report::{
    CounterReport, DropReport, FailureReport, HolderReport, LcoreReport, PacketReport, PoolReport, PortReport,
    REPORT_VERSION, Report, RingReport, StageReport, StatusReport, WakeReport, ratio,
};

/// All counters of a run, with the names that a reader needs, in the plan's order.
#[derive(Debug)]
pub(crate) struct RunStats {
    pub(crate) plan: String,
    pub(crate) clock: Clock,
    pub(crate) lcores: Vec<LcoreEntry>,
    pub(crate) stages: Vec<StageEntry>,
    pub(crate) ports: Vec<PortEntry>,
    pub(crate) rings: Vec<RingEntry>,
    pub(crate) pools: Vec<Pool>,
    /// As it was at the start.
    pub(crate) kernel: Thieves,
}

#[derive(Debug)]
pub(crate) struct LcoreEntry {
    pub(crate) name: String,
    pub(crate) cpu: u32,
    pub(crate) budget: Budget,
    pub(crate) stats: Shared<LcoreStats>,
}

#[derive(Debug)]
pub(crate) struct StageEntry {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) lcore: String,
    pub(crate) drops: &'static [&'static str],
    pub(crate) counters: Vec<(String, Counter)>,
    pub(crate) stats: Shared<StageStats>,
}

#[derive(Debug)]
pub(crate) struct PortEntry {
    pub(crate) name: String,
    pub(crate) lcore: String,
    pub(crate) device: String,
    pub(crate) wiring: Wiring,
    pub(crate) stats: Shared<PortStats>,
}

#[derive(Debug)]
pub(crate) struct RingEntry {
    pub(crate) name: String,
    pub(crate) producer: String,
    pub(crate) consumer: String,
    pub(crate) depth: u64,
    pub(crate) filled: Shared<RingInStats>,
    pub(crate) emptied: Shared<RingOutStats>,
}

impl RunStats {
    /// What the counters say now. `ended`: the lcores have let go of everything. Connections,
    /// events and failures are not among the counters: the caller adds them.
    pub(crate) fn report(&self, started_ns: Tick, ended: bool) -> Report {
        let pools: Vec<PoolReport> = self.pools.iter().map(pool).collect();
        let kernel = Thieves::now();
        let lcores: Vec<LcoreReport> = self.lcores.iter().map(|entry| self.lcore(entry, &kernel)).collect();
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
            rings: self.rings.iter().map(ring).collect(),
            drops: self.drops(ended),
            packets: self.packets(&pools, ended),
            pools,
            events: Vec::new(),
            failures: Vec::new(),
        }
    }

    /// What the run fails for, besides what its lcores met. `lost`: the ports that it ended with.
    pub(crate) fn failures(&self, report: &Report, lost: &[usize]) -> Vec<FailureReport> {
        let wiring: Vec<_> = self.ports.iter().map(|entry| entry.wiring.clone()).collect();
        failures::failures(report, &wiring, lost)
    }

    /// Whether the queue pair of the port at this place in the plan is in the error state.
    pub(crate) fn is_down(&self, port: usize) -> bool {
        self.ports[port].stats.down.value() > 0
    }

    /// Whether nothing is known of the ports but that something came before.
    pub(crate) fn are_vague(&self, ports: &[usize]) -> bool {
        ports.iter().all(|place| DownReason::is_vague(self.ports[*place].stats.down_reason.value()))
    }

    /// What the stages are estimated to have worked: together no longer than their lcore, which is known better.
    fn stage_times(&self, lcores: &[LcoreReport]) -> Vec<u64> {
        let mut times: Vec<u64> =
            self.stages.iter().map(|entry| self.clock.cycles_to_ns(entry.stats.cycles.value())).collect();
        for lcore in lcores {
            let of_lcore = |(entry, time): (&StageEntry, _)| (entry.lcore == lcore.name).then_some(time);
            let sum: u64 = self.stages.iter().zip(times.iter().copied()).filter_map(of_lcore).sum();
            if sum > lcore.busy_ns {
                for time in self
                    .stages
                    .iter()
                    .zip(&mut times)
                    .filter_map(|(entry, time)| (entry.lcore == lcore.name).then_some(time))
                {
                    *time = (u128::from(*time) * u128::from(lcore.busy_ns) / u128::from(sum)) as u64;
                }
            }
        }
        times
    }

    fn stage(&self, entry: &StageEntry, busy_ns: u64, lcores: &[LcoreReport]) -> StageReport {
        let stats = &entry.stats;
        let lcore_busy_ns = lcores.iter().find(|lcore| lcore.name == entry.lcore).map_or(0, |lcore| lcore.busy_ns);
        let cycles = stats.cycles.value();
        let busy_error = if cycles == 0 { 0.0 } else { stats.variance.value().sqrt() / cycles as f64 };
        let (packets_in, packets_out) = (stats.packets_in.value(), stats.packets_out.value());
        let calls = stats.calls.value();
        let counter =
            |(name, counter): &(String, Counter)| CounterReport { name: name.clone(), value: counter.value() };
        StageReport {
            name: entry.name.clone(),
            kind: entry.kind.clone(),
            lcore: entry.lcore.clone(),
            calls,
            polls: stats.polls.value(),
            packets_in,
            packets_out,
            busy_ns,
            timed: stats.timed.value(),
            busy_error,
            ns_per_packet: ratio(busy_ns, packets_in.max(packets_out)),
            busy_share: ratio(busy_ns, lcore_busy_ns),
            batch_mean: ratio(packets_in, calls),
            batch_max: stats.batch_max.value(),
            alloc_failed: stats.alloc_failed.value(),
            counters: entry.counters.iter().map(counter).collect(),
        }
    }

    fn lcore(&self, entry: &LcoreEntry, kernel: &Thieves) -> LcoreReport {
        let stats = &entry.stats;
        let wake =
            |(cause, name): &(_, &'static str)| WakeReport { cause: name, count: stats.wakes[*cause as usize].value() };
        let queued_ns = queued_ns(stats);
        let [busy_ns, idle_ns, blocked_ns, found_ns] =
            [&stats.busy_ns, &stats.idle_ns, &stats.asleep_ns, &stats.stolen_ns]
                .map(crate::stats::counters::Count::value);
        // The lcore has found what was stolen while it was awake. The rest of its waiting was for its CPU after a sleep.
        let undisturbed_ns = stats.sleeps.value() * WAKE_NS;
        let late_ns = queued_ns.unwrap_or(0).saturating_sub(found_ns + undisturbed_ns).min(blocked_ns);
        let (asleep_ns, stolen_ns) = (blocked_ns - late_ns, found_ns + late_ns);
        let whole_ns = busy_ns + idle_ns + asleep_ns + stolen_ns;
        LcoreReport {
            name: entry.name.clone(),
            cpu: entry.cpu as usize,
            policy: policy_name(entry.budget.policy).to_owned(),
            spin_ns: entry.budget.spin_ns,
            spin_from: spin_from(entry.budget.spin_from),
            dwell_ns: entry.budget.dwell_ns,
            loops: stats.loops.value(),
            busy_loops: stats.busy_loops.value(),
            busy_ns,
            idle_ns,
            asleep_ns,
            stolen_ns,
            stalls: stats.stalls.value(),
            stall_max_ns: stats.stall_max_ns.value(),
            queued_ns,
            hypervisor_ns: kernel.hypervisor_since(&self.kernel, entry.cpu),
            busy_share: ratio(busy_ns, whole_ns),
            idle_share: ratio(idle_ns, whole_ns),
            asleep_share: ratio(asleep_ns, whole_ns),
            stolen_share: ratio(stolen_ns, whole_ns),
            sleeps: stats.sleeps.value(),
            armed_in_vain: stats.armed_in_vain.value(),
            wakes: WAKE_CAUSES.iter().map(wake).collect(),
            bells: stats.bells.value(),
            rescues: stats.rescues.value(),
            strays: stats.strays.value(),
        }
    }

    fn drops(&self, ended: bool) -> Vec<DropReport> {
        let mut all = Vec::new();
        let mut add = |place: String, drops: &Drops, own: &[&'static str]| {
            all.extend(drops.non_zero().map(|(index, packets)| DropReport {
                place: place.clone(),
                reason: reason_name(index, own).to_owned(),
                packets,
            }));
        };
        for entry in &self.stages {
            add(format!("stage.{}", entry.name), &entry.stats.drops, entry.drops);
        }
        for entry in &self.ports {
            add(format!("port.{}", entry.name), &entry.stats.drops, &[]);
        }
        for entry in &self.rings {
            add(format!("ring.{}", entry.name), &entry.filled.drops, &[]);
        }
        if ended {
            all.extend(self.rings.iter().filter_map(left_in_ring));
        }
        all
    }

    fn packets(&self, pools: &[PoolReport], ended: bool) -> PacketReport {
        let taken = self.lcores.iter().map(|entry| entry.stats.taken.value()).sum::<u64>();
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
        let mut holders = Vec::new();
        let mut add = |place: String, packets: u64| {
            if packets > 0 {
                holders.push(HolderReport { place, packets });
            }
        };
        for entry in &self.ports {
            add(format!("port.{} rx", entry.name), entry.stats.rx_outstanding.value());
            let tx = entry.stats.tx_outstanding.value() + entry.stats.tx_pending.value();
            add(format!("port.{} tx", entry.name), tx);
        }
        for entry in &self.rings {
            let queued = entry.filled.pushed.value().saturating_sub(entry.emptied.popped.value());
            add(format!("ring.{}", entry.name), queued + entry.filled.pending.value());
        }
        holders
    }
}

/// How long a thread waits for a CPU that is free when it is woken, at most: waiting for longer is somebody's doing.
const WAKE_NS: u64 = 5_000;

/// How long the lcore's thread has waited for its CPU since it began.
fn queued_ns(stats: &LcoreStats) -> Option<u64> {
    let live = || kernel_time::queued_ns(Some(stats.thread_id.value()));
    let until_ns = match stats.queued_at_end_ns.value() {
        0 => live(),
        ended_ns => Some(ended_ns),
    };
    Some(until_ns?.saturating_sub(stats.queued_at_start_ns.value()))
}

fn spin_from(from: SpinFrom) -> &'static str {
    match from {
        SpinFrom::Plan => "plan",
        SpinFrom::Measured => "measured",
        SpinFrom::Disturbed => "disturbed",
    }
}

fn policy_name(policy: Policy) -> &'static str {
    match policy {
        Policy::Poll => "poll",
        Policy::Event => "event",
        Policy::Adaptive => "adaptive",
    }
}

fn port(entry: &PortEntry) -> PortReport {
    let stats = &entry.stats;
    let status =
        |(index, count): (usize, u64)| StatusReport { status: Status::from_raw(index as u32).name().to_owned(), count };
    let counts = stats.statuses.iter().map(crate::stats::counters::Count::value);
    PortReport {
        name: entry.name.clone(),
        lcore: entry.lcore.clone(),
        device: entry.device.clone(),
        rx_packets: stats.rx_packets.value(),
        rx_bytes: stats.rx_bytes.value(),
        tx_packets: stats.tx_packets.value(),
        tx_bytes: stats.tx_bytes.value(),
        tx_posts: stats.tx_posts.value(),
        rx_posted: stats.rx_posted.value(),
        rx_starved: stats.rx_starved.value(),
        stale: stats.stale.value(),
        qpn: stats.qpn.value() as u32,
        down: stats.down.value() > 0,
        down_reason: DownReason::text(stats.down_reason.value()),
        link_down: stats.link_down.value() > 0,
        errors: counts.enumerate().filter(|(_, count)| *count > 0).map(status).collect(),
    }
}

fn ring(entry: &RingEntry) -> RingReport {
    let full = entry.filled.full.value();
    let most = if full > 0 { entry.depth } else { entry.emptied.most.value() };
    RingReport {
        name: entry.name.clone(),
        producer: entry.producer.clone(),
        consumer: entry.consumer.clone(),
        pushed: entry.filled.pushed.value(),
        push_batches: entry.filled.batches.value(),
        popped: entry.emptied.popped.value(),
        pop_batches: entry.emptied.batches.value(),
        depth: entry.depth,
        most,
        full,
    }
}

/// What nobody popped went back to its pool with the ring.
fn left_in_ring(entry: &RingEntry) -> Option<DropReport> {
    let packets = entry.filled.pushed.value() - entry.emptied.popped.value();
    (packets > 0).then(|| DropReport {
        place: format!("ring.{}", entry.name),
        reason: "left_behind".to_owned(),
        packets,
    })
}

fn pool(pool: &Pool) -> PoolReport {
    let account = pool.account();
    PoolReport {
        name: pool.name().to_owned(),
        packets: account.packets.into(),
        free: account.free.into(),
        cached: account.cached.into(),
        held: account.held.into(),
        locked: pool.region().is_locked(),
        page_bytes: pool.region().page_size().bytes() as u64,
        fallback: pool.region().fallback().map(ToString::to_string),
    }
}
