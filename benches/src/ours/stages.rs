//! The stages of the benchmarks' plans, and a way to run such a plan and read its counters.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;
use rustix::event::{EventfdFlags, eventfd};
use serde::Deserialize;
use verbline::engine::Tick;
use verbline::prelude::*;

use crate::figures::median;

/// The only output of every stage here.
const OUT: OutId = OutId(0);

/// A run at full speed, with two snapshots.
#[derive(Debug)]
pub struct Window {
    /// The report after the warm-up.
    pub before: Report,
    /// The report at the end of the time.
    pub after: Report,
}

impl Window {
    /// Nanoseconds between the two snapshots.
    pub fn elapsed_ns(&self) -> f64 {
        (self.after.elapsed_ns - self.before.elapsed_ns) as f64
    }

    /// Packets that a stage took in between.
    ///
    /// # Panics
    /// If the plan has no such stage.
    pub fn packets_in(&self, stage: &str) -> f64 {
        let at = |report: &Report| report.stage(stage).expect("a stage of the plan").packets_in;
        (at(&self.after) - at(&self.before)) as f64
    }

    /// Calls of a stage in between.
    ///
    /// # Panics
    /// If the plan has no such stage.
    pub fn calls(&self, stage: &str) -> f64 {
        let at = |report: &Report| report.stage(stage).expect("a stage of the plan").calls;
        (at(&self.after) - at(&self.before)) as f64
    }

    /// Turns of an lcore in between.
    ///
    /// # Panics
    /// If the plan has no such lcore.
    pub fn loops(&self, lcore: &str) -> f64 {
        let at = |report: &Report| report.lcore(lcore).expect("an lcore of the plan").loops;
        (at(&self.after) - at(&self.before)) as f64
    }
}

/// Runs a plan of [`registry`]'s stages: warms up, watches it for `time`, stops it, and checks that
/// every packet is back.
///
/// # Panics
/// If the plan is wrong, the run fails, or a packet is lost: a figure of such a run would mean
/// nothing.
pub fn watch(registry: &Registry, plan: &str, warm_up: Duration, time: Duration) -> Window {
    let running = start(registry, plan);
    running.wait(Some(warm_up));
    let before = running.snapshot();
    running.wait(Some(time));
    let after = running.snapshot();
    finish(running);
    Window { before, after }
}

/// Starts a plan of [`registry`]'s stages.
///
/// # Panics
/// If the plan is wrong.
pub fn start(registry: &Registry, plan: &str) -> Running {
    let loaded = Loader::new(registry.catalog(), Machine::detect()).load_str("bench.toml", plan);
    let plan = loaded.unwrap_or_else(|diagnostics| panic!("{diagnostics}"));
    let runtime = Runtime::build(&plan, registry).unwrap_or_else(|error| panic!("{error}"));
    runtime.start().unwrap_or_else(|error| panic!("{error}"))
}

/// Warms a run up, watches it for some windows of `time`, and stops it: the median of their
/// nanoseconds for each of what `count` counts.
pub(super) fn median_ns(running: Running, windows: usize, time: Duration, count: impl Fn(&Report) -> u64) -> f64 {
    running.wait(Some(Duration::from_millis(100)));
    let ns: Vec<f64> = (0..windows)
        .map(|_| {
            let before = running.snapshot();
            running.wait(Some(time));
            let after = running.snapshot();
            (after.elapsed_ns - before.elapsed_ns) as f64 / (count(&after) - count(&before)) as f64
        })
        .collect();
    finish(running);
    median(ns)
}

/// Stops a run and checks that every packet is back.
///
/// # Panics
/// If a packet is not back.
pub fn finish(running: Running) -> Report {
    let report = running.stop().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(report.packets.held, 0, "{:?}", report.packets);
    report
}

/// All kinds of stages; `waits` receives the measurements of `wake` stages.
pub fn registry(waits: &Waits) -> Registry {
    let mut registry = Registry::new("bench");
    let out = StageSpec { outputs: &["out"], ..StageSpec::default() };
    let spec = StageSpec { source: true, summary: "packets as fast as they are taken", ..out };
    registry.stage("source", spec, |stage| {
        let params = stage.params()?;
        Ok(Box::new(Source { params, burst: Batch::with_capacity(stage.burst()), made: 0, polls: 0 }))
    });
    let spec = StageSpec { source: true, summary: "a packet now and then, with the time in it", ..out };
    registry.stage("ticker", spec, |stage| Ok(Box::new(Ticker { params: stage.params()?, next_ns: 0 })));
    let spec = StageSpec { summary: "sends everything on", ..out };
    registry.stage("forward", spec, |_| Ok(Box::new(Forward)));
    let spec = StageSpec { summary: "swaps the Ethernet addresses and sends everything on", ..out };
    registry.stage("macswap", spec, |_| Ok(Box::new(MacSwap)));
    let spec = StageSpec { summary: "frees everything", ..StageSpec::default() };
    registry.stage("sink", spec, |stage| Ok(Box::new(Sink { params: stage.params()?, seen: [0; FRAME_BYTES] })));
    let spec = StageSpec { source: true, summary: "reads an eventfd that is always ready", ..StageSpec::default() };
    registry.opening_stage(
        "watcher",
        spec,
        |stage| Ok(stage.params()?),
        |params, opening| {
            let event = eventfd(1, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK | EventfdFlags::SEMAPHORE)?;
            opening.watch_fd(&event, FdInterest::Read, Some(Duration::ZERO))?;
            Ok(Box::new(Watcher { params, event, looks: 0 }))
        },
    );
    let spec = StageSpec { summary: "gives each packet a time-out", ..StageSpec::default() };
    registry.stage("timed", spec, |stage| Ok(Box::new(Timed { params: stage.params()?, armed: false, last: None })));
    let spec = StageSpec { summary: "measures how long ago a tick was made", ..StageSpec::default() };
    let waits = waits.clone();
    registry.stage("wake", spec, move |_| Ok(Box::new(Wake::new(&waits)?)));
    registry
}

/// The length of net_null's frame.
pub const FRAME_BYTES: usize = 64;

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct SourceParams {
    /// Packets in all; unlimited if absent.
    count: Option<u64>,
    /// Ends the process, with exit code 0, after this many polls; never if absent. A run that
    /// another thread stops takes further turns until that thread wakes: under valgrind, which runs
    /// one thread at a time, those can be billions of instructions.
    turns: Option<u64>,
    /// Length of each packet, bytes.
    len_bytes: usize,
    /// Copies 64 bytes into each packet, like net_null with copy=1.
    copy: bool,
}

/// The receive side of a null device.
struct Source {
    params: SourceParams,
    burst: Batch,
    made: u64,
    polls: u64,
}

static FRAME: [u8; FRAME_BYTES] = [0x45; FRAME_BYTES];

impl Stage for Source {
    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        if self.params.turns == Some(self.polls) {
            std::process::exit(0);
        }
        self.polls += 1;
        let left = usize::try_from(self.params.count.map_or(u64::MAX, |count| count - self.made)).unwrap_or(usize::MAX);
        if left == 0 {
            return Next::Idle;
        }
        let wanted = self.burst.capacity().min(out.room(OUT)).min(left);
        out.alloc_bulk(&mut self.burst, wanted);
        for packet in &mut self.burst {
            // The plan's packets fit; instructions are counted, so there is no check.
            let _fits = packet.set_len(self.params.len_bytes);
            if let Some(data) = packet.data_mut().first_chunk_mut().filter(|_| self.params.copy) {
                *data = FRAME;
            }
        }
        self.made += out.send_batch(OUT, &mut self.burst) as u64;
        Next::Busy
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TickerParams {
    /// The time between ticks.
    gap_us: u64,
}

struct Ticker {
    params: TickerParams,
    next_ns: Tick,
}

impl Stage for Ticker {
    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        let now_ns = out.now_ns();
        // The first tick comes after a gap too, when everything is asleep.
        if self.next_ns == 0 {
            self.next_ns = now_ns + self.params.gap_us * 1_000;
        }
        if now_ns < self.next_ns {
            return Next::At(self.next_ns);
        }
        if let Some(mut packet) = out.alloc() {
            assert!(packet.fill(&out.fresh_ns().to_le_bytes()), "a packet of the plan holds a time");
            out.send(OUT, packet);
        }
        self.next_ns = now_ns + self.params.gap_us * 1_000;
        Next::At(self.next_ns)
    }
}

struct Forward;

impl Stage for Forward {
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        out.send_batch(OUT, input);
    }
}

struct MacSwap;

impl Stage for MacSwap {
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        for packet in input.iter_mut() {
            if let Some(addresses) = packet.data_mut().first_chunk_mut::<12>() {
                addresses.rotate_left(6);
            }
        }
        out.send_batch(OUT, input);
    }
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct SinkParams {
    /// Copies 64 bytes out of each packet, like net_null with copy=1.
    copy: bool,
}

/// The transmit side of a null device.
struct Sink {
    params: SinkParams,
    seen: [u8; FRAME_BYTES],
}

impl Stage for Sink {
    fn process(&mut self, input: &mut Batch, _: &mut Outputs<'_>) {
        if self.params.copy {
            for packet in input.iter() {
                if let Some(frame) = packet.data().first_chunk() {
                    self.seen = *std::hint::black_box(frame);
                }
                std::hint::black_box(&mut self.seen);
            }
        }
        input.clear();
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WatcherParams {
    /// Ends the process after this many events.
    turns: u64,
}

struct Watcher {
    params: WatcherParams,
    event: OwnedFd,
    looks: u64,
}

impl Stage for Watcher {
    fn poll(&mut self, _: &mut Outputs<'_>) -> Next {
        Next::Idle
    }

    fn fd_ready(&mut self, _: FdReady, _: &mut Outputs<'_>) -> FdNext {
        if self.looks == self.params.turns {
            std::process::exit(0);
        }
        self.looks += 1;
        // Reads it and writes it again: ready in the next turn, too.
        let read = rustix::io::read(&self.event, &mut [0; 8]);
        let written = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        assert!(read.is_ok() && written.is_ok());
        FdNext::Watch
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TimedParams {
    /// A timer is due in each turn.
    due: bool,
}

/// A server's stage, reduced to its timers.
struct Timed {
    params: TimedParams,
    armed: bool,
    last: Option<TimerId>,
}

/// A typical time-out.
const TIME_OUT_NS: Tick = 1_000_000_000;

impl Stage for Timed {
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        let timer = out.arm_timer(out.now_ns() + TIME_OUT_NS, 0);
        if let Some(last) = std::mem::replace(&mut self.last, timer) {
            out.cancel_timer(last);
        }
        input.clear();
    }

    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        if !self.armed {
            for n in 1..1000 {
                // These are not due while instructions are counted.
                out.arm_timer(out.now_ns() + 3600 * TIME_OUT_NS + 1_000_000 * n, n);
            }
            if self.params.due {
                out.arm_timer(0, 0);
            }
            self.armed = true;
        }
        Next::Done
    }

    fn timers(&mut self, due: &[DueTimer], out: &mut Outputs<'_>) {
        // In the past, and so due in the next turn.
        for timer in due {
            out.arm_timer(timer.at_ns, timer.tag);
        }
    }
}

/// The place where `wake` stages leave their measurements, when they are dropped.
#[derive(Clone, Debug, Default)]
pub struct Waits(Arc<Mutex<Option<Histogram<u64>>>>);

impl Waits {
    /// Takes the measurements, in ns.
    pub fn take(&self) -> Option<Histogram<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Measures how long ago each packet was made.
pub(super) struct Wake {
    ns: Option<Histogram<u64>>,
    waits: Waits,
}

impl Wake {
    pub(super) fn new(waits: &Waits) -> Result<Wake, StageError> {
        Ok(Wake { ns: Some(Histogram::new_with_bounds(1, 10_000_000_000, 3)?), waits: waits.clone() })
    }
}

impl Stage for Wake {
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        let now_ns = out.fresh_ns();
        for packet in input.iter() {
            if let (Some(made), Some(ns)) = (packet.data().first_chunk(), &mut self.ns) {
                ns.saturating_record(now_ns.saturating_sub(u64::from_le_bytes(*made)));
            }
        }
        input.clear();
    }
}

impl Drop for Wake {
    fn drop(&mut self) {
        *self.waits.0.lock().unwrap_or_else(PoisonError::into_inner) = self.ns.take();
    }
}
