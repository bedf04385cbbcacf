//! The costs and savings of an idle policy on real arrivals: a source on one lcore sends by a
//! pattern, another lcore receives under the policy.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use verbline::engine::Tick;
use verbline::prelude::*;

use super::lcores::preamble;
use super::stages::{Waits, Wake, finish, start};
use crate::pair::cpus;

const OUT: OutId = OutId(0);

/// One policy at one pattern of arrivals.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Point {
    /// Messages that arrived, per second.
    pub arrivals_per_s: f64,
    /// CPU time of the lcore's thread, as a share of its CPU.
    pub cpu_share: f64,
    /// The share of batches that found it asleep.
    pub late_share: f64,
    /// From the send to the stage, median.
    pub p50_ns: u64,
    /// From the send to the stage, 99th percentile.
    pub p99_ns: u64,
    /// The number of batches in `late_share`.
    pub batches: u64,
}

/// One policy over all rates of a spacing.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Curve {
    /// The spacing of arrivals.
    pub spacing: &'static str,
    /// The policy.
    pub policy: &'static str,
    /// One point per rate, in their order.
    pub points: Vec<Point>,
}

/// Sends by the pattern: gap after gap, starting over at the end.
struct Arrivals {
    gaps_ns: Arc<Vec<u64>>,
    at: usize,
    next_ns: Tick,
}

impl Stage for Arrivals {
    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        let now_ns = out.fresh_ns();
        if self.next_ns == 0 {
            self.next_ns = now_ns + 1_000_000;
        }
        while self.next_ns <= now_ns && out.room(OUT) > 0 {
            let Some(mut packet) = out.alloc() else { break };
            assert!(packet.fill(&out.fresh_ns().to_le_bytes()), "a packet of the plan holds a time");
            out.send(OUT, packet);
            self.next_ns += self.gaps_ns[self.at].max(1);
            self.at = (self.at + 1) % self.gaps_ns.len();
        }
        // Never asleep, under any policy: the other lcore is measured.
        Next::Busy
    }
}

/// Records the age of each packet while `measures` is set.
struct Meter {
    measures: Arc<AtomicBool>,
    wake: Wake,
}

impl Stage for Meter {
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        // Relaxed, as everywhere here: it orders nothing.
        match self.measures.load(Ordering::Relaxed) {
            true => self.wake.process(input, out),
            false => input.clear(),
        }
    }
}

/// Runs the policy (the keys of its lcore) on the arrivals: `warm_up` for it to learn, then `time`.
///
/// # Panics
/// If the plan is wrong or the run fails.
pub fn point(policy: &str, gaps_ns: Vec<u64>, warm_up: Duration, time: Duration) -> Point {
    let ways = way("arrivals", "tx", "rx", "", "stage.meter");
    measure(&plan(policy, &ways), &[("arrivals", gaps_ns)], warm_up, time)
}

/// Runs the policy on an unsolicited stream, beside solicited requests: measures the latency
/// of requests, and the lcore's time.
///
/// # Panics
/// Like [`point`].
pub fn beside_stream(
    policy: &str,
    stream_gaps_ns: Vec<u64>,
    request_gaps_ns: Vec<u64>,
    warm_up: Duration,
    time: Duration,
) -> Point {
    let ways =
        way("stream", "bulk", "taken", "", "drop") + &way("requests", "tx", "rx", ", solicited = true", "stage.meter");
    measure(&plan(policy, &ways), &[("stream", stream_gaps_ns), ("requests", request_gaps_ns)], warm_up, time)
}

/// A source on lcore `near`, and its connection to `far`; `keys` are further keys of its sending
/// port.
fn way(source: &str, tx: &str, rx: &str, keys: &str, next: &str) -> String {
    format!(
        "stage.{source} = {{ use = \"{source}\", lcore = \"near\", pool = \"packets\", \
         out = {{ out = \"port.{tx}\" }} }}\n\
         port.{tx} = {{ lcore = \"near\", device = \"nic0\", transport = \"rc\", peer = \"port.{rx}\", \
         tx_depth_wr = 256{keys} }}\n\
         port.{rx} = {{ lcore = \"far\", device = \"nic0\", pool = \"packets\", transport = \"rc\", \
         peer = \"port.{tx}\", rx_depth_wr = 512, next = \"{next}\" }}\n"
    )
}

/// A plan with these ways, whose lcore `far` has the policy and the meter.
fn plan(policy: &str, ways: &str) -> String {
    let [near, far] = cpus();
    format!(
        "{}\
         lcore.near = {{ cpu = {}, idle = \"poll\" }}\n\
         lcore.far = {{ cpu = {}, {policy} }}\n\
         {ways}\
         stage.meter = {{ use = \"meter\", lcore = \"far\" }}\n",
        preamble(8192),
        near.id,
        far.id,
    )
}

/// Runs a plan with these sources. Returns the counts of lcore `far` and the measurements of its
/// meter.
fn measure(plan: &str, sources: &[(&'static str, Vec<u64>)], warm_up: Duration, time: Duration) -> Point {
    let (waits, measures) = (Waits::default(), Arc::new(AtomicBool::new(false)));
    let running = start(&registry(sources, &measures, &waits), plan);
    running.wait(Some(warm_up));
    let before = running.snapshot();
    let (cpu_before, began) = (cpu_time("vl-far"), Instant::now());
    measures.store(true, Ordering::Relaxed);
    running.wait(Some(time));
    measures.store(false, Ordering::Relaxed);
    let (cpu, elapsed) = (cpu_time("vl-far") - cpu_before, began.elapsed());
    let after = running.snapshot();
    finish(running);
    let ns = waits.take().expect("the stage leaves its measurements");
    let far = |report: &Report| report.lcore("far").expect("an lcore of the plan").clone();
    let (before_far, after_far) = (far(&before), far(&after));
    let late = |lcore: &verbline::engine::LcoreReport| lcore.woken_by("completion") + lcore.woken_by("ring");
    let batches = after_far.busy_loops - before_far.busy_loops;
    let arrived =
        after.port("rx").map_or(0, |port| port.rx_packets) - before.port("rx").map_or(0, |port| port.rx_packets);
    Point {
        arrivals_per_s: arrived as f64 / elapsed.as_secs_f64(),
        cpu_share: cpu.as_secs_f64() / elapsed.as_secs_f64(),
        late_share: (late(&after_far) - late(&before_far)) as f64 / batches.max(1) as f64,
        p50_ns: ns.value_at_quantile(0.5),
        p99_ns: ns.value_at_quantile(0.99),
        batches,
    }
}

fn registry(sources: &[(&'static str, Vec<u64>)], measures: &Arc<AtomicBool>, waits: &Waits) -> Registry {
    let mut registry = Registry::new("bench");
    for (kind, gaps_ns) in sources {
        let spec =
            StageSpec { outputs: &["out"], source: true, summary: "sends as a pattern says", ..StageSpec::default() };
        let gaps_ns = Arc::new(gaps_ns.clone());
        registry
            .stage(kind, spec, move |_| Ok(Box::new(Arrivals { gaps_ns: Arc::clone(&gaps_ns), at: 0, next_ns: 0 })));
    }
    let spec = StageSpec { summary: "measures how long ago a packet was sent", ..StageSpec::default() };
    let (measures, waits) = (Arc::clone(measures), waits.clone());
    registry.stage("meter", spec, move |_| {
        Ok(Box::new(Meter { measures: Arc::clone(&measures), wake: Wake::new(&waits)? }))
    });
    registry
}

/// The CPU time of the thread with this name: the first field of its schedstat (proc(5)).
fn cpu_time(thread: &str) -> Duration {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let mut of_thread =
        tasks.filter(|task| fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim_end() == thread));
    let schedstat = of_thread.next().and_then(|task| fs::read_to_string(task.path().join("schedstat")).ok());
    let ran_ns = schedstat.as_ref().and_then(|text| text.split(' ').next()?.parse().ok());
    Duration::from_nanos(ran_ns.expect("a running thread has its schedstat"))
}
