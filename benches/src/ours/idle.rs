//! The costs and savings of sleeping: wake-ups, the CPU time of an idle process, and throughput
//! without idle time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::time::{ClockId, clock_gettime};
use verbline::engine::Clock;

use super::lcores::preamble;
use super::stages::{Waits, finish, registry, start, watch};
use crate::Figures;
use crate::figures::{in_turn, median};
use crate::pair::{cpus, race};

/// The gap between wake-ups: long enough for the other side to fall asleep again.
const GAP_US: u64 = 500;
const WAKES: u64 = 1_200;

/// A plan of two lcores and an RC connection from the first to the second.
fn two_lcores(near_idle: &str, far_idle: &str, source: &str, sink: &str) -> String {
    let [near, far] = cpus();
    format!(
        "{}\
         lcore.near = {{ cpu = {}, idle = \"{near_idle}\" }}\n\
         lcore.far = {{ cpu = {}, idle = \"{far_idle}\" }}\n\
         stage.source = {{ {source}, lcore = \"near\", pool = \"packets\", out = {{ out = \"port.tx\" }} }}\n\
         port.tx = {{ lcore = \"near\", device = \"nic0\", transport = \"rc\", peer = \"port.rx\", \
         tx_depth_wr = 256 }}\n\
         port.rx = {{ lcore = \"far\", device = \"nic0\", pool = \"packets\", transport = \"rc\", peer = \"port.tx\", \
         rx_depth_wr = 512, next = \"stage.sink\" }}\n\
         stage.sink = {{ use = \"{sink}\", lcore = \"far\" }}\n",
        preamble(8192),
        near.id,
        far.id,
    )
}

/// The time from a stage that sends a tick on one lcore to the stage that receives it on another,
/// which sleeps in event mode: `p50_ns`, `p99_ns`. It spans the post, the CQ's event, epoll, and a
/// turn of the lcore.
pub fn wake_up() -> Figures {
    let waits = Waits::default();
    let source = format!("use = \"ticker\", params = {{ gap_us = {GAP_US} }}");
    let running = start(&registry(&waits), &two_lcores("poll", "event", &source, "wake"));
    running.wait(Some(Duration::from_micros(GAP_US * WAKES)));
    let report = finish(running);
    let slept = report.lcore("far").map_or(0, |lcore| lcore.sleeps);
    let waits = waits.take().expect("the stage leaves its measurements");
    assert!(slept * 2 > waits.len(), "it slept {slept} times for {} ticks", waits.len());
    percentiles(&waits)
}

/// The floor of a wake-up: write(eventfd) on one core, epoll_wait on another: `p50_ns`, `p99_ns`.
///
/// # Panics
/// If the kernel refuses an eventfd or an epoll.
pub fn bare_wake_up() -> Figures {
    let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).expect("an eventfd");
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC).expect("an epoll");
    epoll::add(&poll, &event, epoll::EventData::new_u64(1), epoll::EventFlags::IN).expect("it takes the eventfd");
    let clock = Clock::new();
    let (rung_ns, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let mut waits = Histogram::<u64>::new_with_bounds(1, 10_000_000_000, 3).expect("bounds that are right");
    let near = || {
        let mut next = Instant::now();
        for _ in 0..WAKES {
            next += Duration::from_micros(GAP_US);
            while Instant::now() < next {
                std::hint::spin_loop();
            }
            // Relaxed: the kernel's write and read of the eventfd order it.
            rung_ns.store(clock.now_ns(), Ordering::Relaxed);
            rustix::io::write(&event, &1u64.to_ne_bytes()).expect("an eventfd takes a write");
        }
        std::thread::sleep(Duration::from_millis(20));
        // Relaxed: as above.
        done.store(true, Ordering::Relaxed);
        rustix::io::write(&event, &1u64.to_ne_bytes()).expect("an eventfd takes a write");
    };
    let far = || {
        let mut events = Vec::with_capacity(4);
        loop {
            events.clear();
            match epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), None) {
                Err(rustix::io::Errno::INTR) => continue,
                woken => woken.expect("epoll waits"),
            };
            let now_ns = clock.now_ns();
            let mut count = [0; 8];
            let _ = rustix::io::read(&event, &mut count);
            // Relaxed: see the stores.
            if done.load(Ordering::Relaxed) {
                return;
            }
            waits.saturating_record(now_ns.saturating_sub(rung_ns.load(Ordering::Relaxed)));
        }
    };
    race(near, far);
    percentiles(&waits)
}

fn percentiles(waits: &Histogram<u64>) -> Figures {
    Figures::of("p50_ns", waits.value_at_quantile(0.5) as f64).and("p99_ns", waits.value_at_quantile(0.99) as f64)
}

/// CPU time of the whole process, in event mode on both lcores, as a share of one core: `percent`.
pub fn idle_cpu(ticks_per_s: u64, time: Duration) -> Figures {
    let gap_us = 1_000_000_u64.checked_div(ticks_per_s).unwrap_or(3_600_000_000);
    let source = format!("use = \"ticker\", params = {{ gap_us = {gap_us} }}");
    let running = start(&registry(&Waits::default()), &two_lcores("event", "event", &source, "sink"));
    running.wait(Some(Duration::from_millis(200)));
    let (cpu, began) = (cpu_time(), Instant::now());
    running.wait(Some(time));
    let percent = 100.0 * (cpu_time() - cpu).as_secs_f64() / began.elapsed().as_secs_f64();
    let report = finish(running);
    let ticks = report.stage("sink").map_or(0, |sink| sink.packets_in);
    Figures::of("percent", percent).and("ticks", ticks as f64)
}

/// Like [`idle_cpu`], for a bare process that waits in epoll for an eventfd, written as often:
/// `percent`.
///
/// # Panics
/// If the kernel refuses an eventfd or an epoll.
pub fn bare_idle_cpu(ticks_per_s: u64, time: Duration) -> Figures {
    let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).expect("an eventfd");
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC).expect("an epoll");
    epoll::add(&poll, &event, epoll::EventData::new_u64(1), epoll::EventFlags::IN).expect("it takes the eventfd");
    let gap = 1_000_000_u64.checked_div(ticks_per_s).map_or(time, Duration::from_micros);
    let ticks = (time.as_secs_f64() / gap.as_secs_f64()) as u64;
    let (cpu, began) = (cpu_time(), Instant::now());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut events = Vec::with_capacity(4);
            for _ in 0..ticks {
                events.clear();
                let _ = epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), None);
                let mut count = [0; 8];
                let _ = rustix::io::read(&event, &mut count);
            }
        });
        for _ in 0..ticks {
            std::thread::sleep(gap);
            rustix::io::write(&event, &1u64.to_ne_bytes()).expect("an eventfd takes a write");
        }
    });
    Figures::of("percent", 100.0 * (cpu_time() - cpu).as_secs_f64() / began.elapsed().as_secs_f64())
}

pub(super) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// A source that never stops on one lcore, an RC connection, and a sink on another, both in this
/// idle mode: `packets_per_s`.
pub fn saturated(idle: &str) -> Figures {
    let source = "use = \"source\", params = { len_bytes = 64 }";
    let plan = two_lcores(idle, idle, source, "sink");
    let (warm_up, time) = (Duration::from_millis(30), Duration::from_millis(120));
    let window = watch(&registry(&Waits::default()), &plan, warm_up, time);
    Figures::of("packets_per_s", window.packets_in("sink") * 1e9 / window.elapsed_ns())
}

/// Adaptive mode at full rate beside poll mode, in this many pairs of short runs:
/// `adaptive_packets_per_s` and `poll_packets_per_s`, medians; `ratio`, the median of the pairs'
/// ratios, and `ratio_q1` and `ratio_q3`, between which half of the pairs lie. The order alternates
/// from pair to pair, so that neither a drift nor the order favours one.
pub fn adaptive_beside_poll(pairs: usize) -> Figures {
    let rate = |mode| saturated(mode).value("packets_per_s").unwrap_or(f64::NAN);
    let rates = in_turn(pairs, ["adaptive", "poll"], rate);
    let mut ratios: Vec<f64> = rates.iter().map(|[adaptive, poll]| adaptive / poll).collect();
    ratios.sort_by(f64::total_cmp);
    let [adaptive, poll] = [0, 1].map(|mode| median(rates.iter().map(|pair| pair[mode])));
    Figures::of("adaptive_packets_per_s", adaptive)
        .and("poll_packets_per_s", poll)
        .and("ratio", median(ratios.iter().copied()))
        .and("ratio_q1", ratios.get(pairs / 4).copied().unwrap_or(f64::NAN))
        .and("ratio_q3", ratios.get(pairs - pairs.min(1 + pairs / 4)).copied().unwrap_or(f64::NAN))
}
