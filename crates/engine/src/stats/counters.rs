//! The counters of a run, each declared once. A block declares both the counters that an lcore
//! writes and the part of the report that shows them. A counter added here is counted, reported,
//! and printed by `--json` under its name.

use serde::Serialize;
use verbline_verbs::Status;

use crate::stats::calling::Calling;
use crate::stats::connection_counters::ConnectionsReport;
use crate::stats::counter::{Count, Drops, Sum, counted};
use crate::stats::operations::OperationsReport;
use crate::stats::own_figures::{CounterReport, HistogramReport};
use crate::stats::status::StatusReport;
use crate::stats::times::{Times, TimesReport};
use crate::stats::wakes::{WAKE_CAUSES, WakeCause, WakeReport};

counted! {
    /// One lcore: how it spent its time, and what woke it.
    LcoreReport {
        /// Its name in the plan.
        name: String,
        /// The CPU that it is pinned to: the plan's, unless somebody has moved it (taskset(1), a
        /// cpuset). Of several that it may use since, the first.
        cpu: usize,
        /// The CPU that the plan has pinned it to.
        plan_cpu: usize,
        /// How many CPUs it may use: 1, unless somebody has moved it.
        cpus_allowed: usize,
        /// Other threads that may run on its CPU alone and did, each with its process, who ran the
        /// longest first: looked for as the run ends, where much of its time was stolen.
        pinned_beside: Vec<String>,
        /// What it does without work: `poll`, `event` or `adaptive`.
        policy: String,
        /// The spin budget in force, whether from the plan or measured: the longest that it spins
        /// without work.
        spin_ns: u64,
        /// Where the spin budget comes from: the `plan`; what a wake-up of this lcore's CPU was
        /// `measured` to cost; or, where other programs `disturbed` every measurement, the least
        /// that was seen.
        spin_from: &'static str,
        /// The share of batches that may find it asleep before it has spun for that long; `None`
        /// where the lcore learns nothing from its arrivals, and spins as long in every gap.
        late_share_max: Option<f64>,
        /// The dwell in force.
        dwell_ns: u64,
        /// By which instruction it waits for a moment after each turn without work, if the plan
        /// says that it does: `pause`; `tpause` where the CPU has that; or `hint` on CPUs other
        /// than x86-64.
        pause: Option<&'static str>,
        /// What the kernel says that its thread waited for its CPU, able to run; `None` where the
        /// kernel doesn't tell.
        queued_ns: Option<u64>,
        /// How long the hypervisor had its CPU, to a hundredth of a second; `None` where the kernel
        /// doesn't tell.
        hypervisor_ns: Option<u64>,
        /// Share of the busy time in its whole time, 0 to 1. The shares add up to 1, once it has
        /// run.
        busy_share: f64,
        /// The same of the idle time.
        idle_share: f64,
        /// The same of the time blocked.
        asleep_share: f64,
        /// The same of the time stolen.
        stolen_share: f64,
        /// What ended the sleeps.
        wakes: Vec<WakeReport>,
        /// How late the lcore awoke when a timer or its own time-out was due.
        wake_late: TimesReport,
    }

    /// The counters of one lcore.
    LcoreStats {
        /// Turns of its loop.
        loops,
        /// Turns that found work.
        busy_loops,
        /// Time in turns that found work.
        busy_ns,
        /// Time in turns that found none.
        idle_ns,
        /// Time blocked.
        asleep_ns,
        /// Time in which it wanted to run and was kept from its CPU: by another thread, a quota, or
        /// the hypervisor. None of the other times has it. What is stolen in pieces of less than 20
        /// µs counts where it was taken from.
        stolen_ns,
        /// How often it was kept from its CPU for 20 µs or longer while it was awake.
        stalls,
        /// The longest of these times.
        stall_max_ns,
        /// How often it blocked.
        sleeps,
        /// How often the poll after arming found something, so that it did not block.
        armed_in_vain,
        /// Sleeps of other lcores that this one ended by filling a ring.
        bells,
        /// Lost wake-ups that the safety time-out repaired. Anything but zero is a bug.
        rescues,
        /// Completions that belonged to no port.
        strays,
    }
    private {
        /// The stage call under way.
        calling: Calling,
        /// When it last read the clock: a tick.
        read_at_ns: Count,
        /// Its thread, for the kernel's view of it; 0 before it runs.
        thread_id: Count,
        /// How long the thread had waited for its CPU when the lcore began, and when it ended (0
        /// until then).
        queued_at_start_ns: Count,
        queued_at_end_ns: Count,
        /// The first CPU that it might use when it ended, and the number of such CPUs; 0 until
        /// then.
        cpu_at_end: Count,
        cpus_at_end: Count,
        wakes: [Count; WAKE_CAUSES.len()],
        /// How late it awoke, in nanoseconds, and the sum.
        wake_late: Times,
        wake_late_ns: Count,
        /// Packets taken from pools by this lcore.
        taken: Count,
    }
}

counted! {
    /// One stage.
    StageReport {
        /// Its name in the plan.
        name: String,
        /// The kind that the app registered.
        kind: String,
        /// The lcore that runs it.
        lcore: String,
        /// Time in `process`, and in those calls of `poll` that sent something. Unless the lcore is
        /// lightly loaded, it is estimated from one turn in sixteen: the clock costs as much as a
        /// small stage. The stages of an lcore together have no more than its busy time.
        busy_ns: u64,
        /// How well `busy_ns` is known: its standard error, as a part of it. 0 if every call was
        /// timed.
        busy_error: f64,
        /// `busy_ns` spread over the packets that the stage took or sent, whichever is more: a
        /// source has little or no input.
        ns_per_packet: f64,
        /// Its share in the busy time of its lcore, 0 to 1; of all stages there 1 at most.
        busy_share: f64,
        /// Packets given to `process` a call: the mean batch.
        batch_mean: f64,
        /// How long single calls took: of `process`, and of those of `poll` that sent something.
        /// Counted as `busy_ns` is, from the turns that are timed.
        call_times: TimesReport,
        /// The stage's own counters, in the order of their registration.
        counters: Vec<CounterReport>,
        /// The stage's own histograms of times, likewise.
        histograms: Vec<HistogramReport>,
    }

    /// The counters of one stage.
    StageStats {
        /// Calls of `process`.
        calls,
        /// Calls of `poll`; of a stage with timers, looks at what is due.
        polls,
        /// Packets given to `process`.
        packets_in,
        /// Packets that its outputs took.
        packets_out,
        /// Operations that ports took of it, to be posted.
        operations,
        /// Operations that came back to it, carried out or failed.
        operations_done,
        /// The calls that `busy_ns` is estimated from; with none, nothing is known of it.
        timed,
        /// The largest batch so far.
        batch_max,
        /// Packets asked of the pool and not had.
        alloc_failed,
        /// Timers armed. Those that were neither due nor canceled by the end were armed then.
        timers_armed,
        /// Timers that were due, and handed to the stage.
        timers_due,
        /// Timers canceled.
        timers_canceled,
        /// Timers that the stage asked for and did not get, as `timers_max` were armed.
        timers_refused,
        /// Times that the stage was told of a descriptor.
        fd_events,
        /// Descriptors that were closed or failed while they were watched.
        fds_closed,
    }
    private {
        /// Time in `process` and in polls that sent packets, in cycles of the clock; estimated from
        /// the timed turns ([`crate::stats::sampling`]).
        cycles: Count,
        /// The variance of `cycles` that comes from timing only some turns.
        variance: Sum,
        /// The times of single calls, in cycles.
        call_times: Times,
        drops: Drops,
    }
}

/// The number of values of `enum ibv_wc_status` (verbs.h); higher statuses share the last counter.
pub(crate) const STATUSES: usize = 24;

counted! {
    /// One port.
    PortReport {
        /// Its name in the plan.
        name: String,
        /// The lcore that owns it.
        lcore: String,
        /// The device's name.
        device: String,
        /// Its transport: `rc`, `uc` or `ud`.
        transport: &'static str,
        /// Messages to its QPs that found no receive posted, where the device counts them: on UC
        /// and UD they are lost, on RC their sender waited. The software RNIC counts by QP; a card
        /// counts those of all QPs on the same port of the device.
        rx_out_of_buffer: Option<u64>,
        /// The number of its QP.
        qpn: u32,
        /// Whether the QP is in the error state.
        down: bool,
        /// What brought the QP there first, by its name in verbs.h: a completion's status
        /// (`IBV_WC_…`) or a device's event (`IBV_EVENT_…`); or in words.
        down_reason: Option<String>,
        /// Whether the device's port under it has no link.
        link_down: bool,
        /// Completions with an error, by status; only what occurred.
        errors: Vec<StatusReport>,
        /// Of a port that may have many connections.
        connections: Option<ConnectionsReport>,
        /// Its operations; `None` where the plan gives it none.
        operations: Option<OperationsReport>,
    }

    /// The counters of one port.
    PortStats {
        /// Packets received.
        rx_packets,
        /// Their bytes, without the 40-byte GRH of UD.
        rx_bytes,
        /// Packets that the send queue took.
        tx_packets,
        /// Their bytes.
        tx_bytes,
        /// Calls of `ibv_post_send`; `tx_packets / tx_posts` is the batch.
        tx_posts,
        /// Buffers posted to the receive queue.
        rx_posted,
        /// Loops that could not refill the receive queue because the pool was empty, or the device
        /// refused what it has room for.
        rx_starved,
        /// Completions for work requests no longer outstanding.
        stale,
    }
    private {
        qpn: Count,
        /// 1 while the QP is in the error state.
        down: Count,
        /// The number of a [`crate::stats::down_reason::DownReason`].
        down_reason: Count,
        /// 1 while the link under it is down.
        link_down: Count,
        /// Gauges, as of the last loop that touched the port.
        rx_outstanding: Count,
        tx_outstanding: Count,
        tx_pending: Count,
        /// Completions by `ibv_wc_status`; index 0 (success) stays zero.
        statuses: [Count; STATUSES],
        drops: Drops,
    }
}

counted! {
    /// One ring.
    RingReport {
        /// Its name in the plan.
        name: String,
        /// The lcore that fills it; if several do, their names with commas between them.
        producer: String,
        /// The lcore that empties it.
        consumer: String,
        /// Packets that it holds from each lcore that fills it.
        depth: u64,
        /// If several lcores fill it: what each of them did. The counters of the whole are their
        /// sums; `most` is the most of one.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        lanes: Vec<RingReport>,
    }

    /// The producer's side of a ring.
    RingProducerStats {
        /// Packets pushed.
        pushed,
        /// Batches pushed.
        push_batches,
        /// Turns of the producer that found no room in the ring for all that there was. What had to
        /// wait was pushed in a later turn, or is among the drops (`ring_full`).
        full,
    }
    private {
        pending: Count,
        drops: Drops,
    }

    /// The consumer's side of a ring.
    RingConsumerStats {
        /// Packets popped.
        popped,
        /// Batches popped.
        pop_batches,
        /// The most packets that were found in the ring: `depth` if it was ever full; otherwise the
        /// consumer looks in the turns that are timed, one in sixteen and the first after a rest,
        /// so a short peak between them goes unseen. 1 at least, if anything was popped.
        most,
    }
    private {
        /// For a ring that drops the oldest: packets dropped after they had been pushed.
        displaced: Count,
    }
}

counted! {
    /// One injector.
    InjectorReport {
        /// Its name in the plan.
        name: String,
        /// The stage that it feeds.
        stage: String,
        /// The lcore of that stage.
        lcore: String,
        /// Messages that it holds.
        depth: u64,
        /// Messages that the lcore took.
        popped: u64,
        /// The most messages that were found in it, as of a ring.
        most: u64,
    }

    /// The side of the embedder's threads, which write one at a time.
    InjectorStats {
        /// Messages taken from the embedder's threads.
        pushed,
        /// Sleeps of the lcore that they ended.
        bells,
        /// Messages refused because it was full.
        refused_full,
        /// Messages refused because the pool had no packet left.
        refused_no_packet,
        /// Messages refused because they were longer than a packet.
        refused_too_long,
        /// Messages refused because the run was stopping or over.
        refused_stopped,
    }
    private {}
}

impl PortStats {
    pub(crate) fn count_status(&self, status: Status) {
        self.statuses[(status.raw() as usize).min(STATUSES - 1)].add(1);
    }
}

impl LcoreStats {
    pub(crate) fn woke(&self, cause: WakeCause) {
        self.wakes[cause as usize].add(1);
    }
}

impl LcoreReport {
    /// The share of batches that found it asleep, 0 to 1, whenever that was.
    pub fn late_share(&self) -> f64 {
        let late = self.woken_by("completion") + self.woken_by("ring") + self.woken_by("fd");
        if self.busy_loops == 0 { 0.0 } else { (late as f64 / self.busy_loops as f64).min(1.0) }
    }

    /// How many sleeps `cause` ended: `completion`, `ring`, `fd`, `control`, `timer` or `timeout`.
    pub fn woken_by(&self, cause: &str) -> u64 {
        self.wakes.iter().find(|wake| wake.cause == cause).map_or(0, |wake| wake.count)
    }
}

impl StageReport {
    /// The stage's own counter `name`.
    pub fn counter(&self, name: &str) -> Option<u64> {
        self.counters.iter().find(|counter| counter.name == name).map(|counter| counter.value)
    }
}
