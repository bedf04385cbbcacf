//! The common parts of whole runs: a registry of small stages, and plans for them on the software
//! RNIC.
#![allow(dead_code, unused_imports, reason = "every test file uses a part of it")]

pub(crate) mod desk;
pub(crate) mod operates;
pub(crate) mod peers;
mod pinger;
mod plans;
pub(crate) mod porter;
pub(crate) mod scene;

use std::time::{Duration, Instant};

use serde::Deserialize;
use verbline_engine::{
    Clock, Counter, DropReason, EngineError, Next, OutId, Outputs, Registry, Report, Running, Runtime, Stage,
    StageContext, StageSpec, Tick,
};
use verbline_mem::Batch;
use verbline_plan::{Loader, Machine, Plan};
use verbline_verbs::Provider;

pub(crate) use self::plans::{fed, one_lcore, one_lcore_with, region, two_lcores, tx_to_rx, with_pool};

use self::pinger::Pinger;

pub(crate) const OUT: OutId = OutId(0);

/// Long enough for anything that happens at all.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The software RNIC; with `ENGINE_TEST_PROVIDER=kernel` instead the kernel's rxe0 and rxe1, as
/// tests/guest/run makes them.
pub(crate) fn provider() -> Provider {
    match std::env::var("ENGINE_TEST_PROVIDER").as_deref() {
        Err(_) | Ok("soft") => Provider::Soft,
        Ok("kernel") => Provider::Kernel,
        Ok(other) => panic!("ENGINE_TEST_PROVIDER={other}: soft or kernel"),
    }
}

/// The device with 10.9.9.1, or the one with 10.9.9.2.
pub(crate) fn device(index: u8) -> String {
    let family = if provider() == Provider::Soft { "soft" } else { "rxe" };
    format!("{family}{index}")
}

/// Loads the plan in a text, checked for this machine.
pub(crate) fn plan(registry: &Registry, text: &str) -> Plan {
    plan_on(registry, text, Machine::detect())
}

/// Loads the plan in a text, checked for another machine.
pub(crate) fn plan_on(registry: &Registry, text: &str, machine: Machine) -> Plan {
    let loaded = Loader::new(registry.catalog(), machine).load_str("test.toml", text);
    loaded.unwrap_or_else(|diagnostics| panic!("{diagnostics}"))
}

/// Whether this process may run on fewer CPUs than a test has lcores; prints that.
///
/// # Panics
/// If so and the environment has `CI`: there a test that shows nothing is a failure.
pub(crate) fn lacks_cpus(lcores: usize) -> bool {
    let cpus = Machine::detect().cpus.len();
    if cpus < lcores {
        let why = format!("{lcores} lcores need as many CPUs, and this process may run on {cpus}");
        assert!(std::env::var_os("CI").is_none(), "CI must not skip this: {why}");
        eprintln!("skipped: {why}");
    }
    cpus < lcores
}

/// Runs a plan until its sources are done or something fails, and stops it.
pub(crate) fn run(registry: &Registry, text: &str) -> Result<Report, EngineError> {
    let running = Runtime::build(&plan(registry, text), registry)?.start()?;
    running.wait(Some(Duration::from_secs(20)));
    running.stop()
}

/// Runs a plan for this time, and stops it.
pub(crate) fn run_for(registry: &Registry, text: &str, time: Duration) -> Result<Report, EngineError> {
    let running = Runtime::build(&plan(registry, text), registry)?.start()?;
    running.wait(Some(time));
    running.stop()
}

/// Takes snapshots until one is as wanted.
#[track_caller]
pub(crate) fn wait_for(running: &Running, what: &str, wanted: impl Fn(&Report) -> bool) -> Report {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let report = running.snapshot();
        if wanted(&report) {
            return report;
        }
        assert!(Instant::now() < deadline, "{what}: {report:#?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Takes snapshots until one is as wanted; another thread brings that about.
#[track_caller]
pub(crate) fn until(running: &Running, wanted: impl Fn(&Report) -> bool) -> Report {
    wait_for(running, "it does not come about", wanted)
}

/// Asserts that every packet is back, and that nothing went wrong on the way.
#[track_caller]
pub(crate) fn assert_clean(report: &Report) {
    assert_eq!(report.packets.held, 0, "{:?}", report.packets);
    assert_eq!(report.packets.taken, report.packets.returned, "{:?}", report.packets);
    assert!(report.pools.iter().all(|pool| pool.free == pool.packets && pool.cached == 0), "{:?}", report.pools);
    assert!(report.drained, "{report:#?}");
    for lcore in &report.lcores {
        assert_eq!((lcore.rescues, lcore.strays), (0, 0), "{lcore:?}");
    }
    for port in &report.ports {
        assert_eq!((port.stale, port.down, &port.errors[..]), (0, false, &[][..]), "{port:?}");
    }
}

/// The stages used by the tests.
pub(crate) fn registry() -> Registry {
    let mut registry = Registry::new("test");
    let spec = StageSpec { outputs: &["out"], source: true, summary: "numbered packets", ..StageSpec::default() };
    registry.stage("generator", spec, |context| Ok(Box::new(Generator::new(context)?)));
    let spec = StageSpec { outputs: &["out"], summary: "sends everything on", ..StageSpec::default() };
    registry.stage("forward", spec, |context| Ok(Box::new(Forward { stamped: context.counter("stamped") })));
    let spec = StageSpec { drops: &["odd"], summary: "checks the numbers", ..StageSpec::default() };
    registry.stage("sink", spec, |context| Ok(Box::new(Sink::new(context)?)));
    let spec = StageSpec {
        outputs: &["out"],
        source: true,
        summary: "one packet at a time, back and forth",
        ..StageSpec::default()
    };
    registry.stage("pinger", spec, |context| Ok(Box::new(Pinger::new(context)?)));
    let spec = StageSpec { outputs: &["out"], holds_packets: 64, summary: "keeps packets", ..StageSpec::default() };
    registry.stage("holder", spec, |context| Ok(Box::new(Holder { kept: Batch::with_capacity(context.burst()) })));
    registry
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GeneratorParams {
    count: u64,
    #[serde(default = "eight")]
    size_bytes: usize,
    /// The gap between packets; 0 sends as fast as possible.
    #[serde(default)]
    gap_us: u64,
    /// Looks at the room first, and waits; otherwise refused packets are dropped.
    #[serde(default)]
    polite: bool,
    /// Sleeps without room, instead of trying again at once.
    #[serde(default)]
    patient: bool,
}

fn eight() -> usize {
    8
}

struct Generator {
    params: GeneratorParams,
    burst: usize,
    made: Counter,
    refused: Counter,
    next_ns: Tick,
}

impl Generator {
    fn new(context: &StageContext<'_>) -> Result<Generator, verbline_engine::StageError> {
        let params: GeneratorParams = context.params()?;
        let (made, refused) = (context.counter("made"), context.counter("refused"));
        Ok(Generator { params, burst: context.burst(), made, refused, next_ns: 0 })
    }

    fn one(&mut self, out: &mut Outputs<'_>) -> bool {
        let Some(mut packet) = out.alloc() else { return false };
        let number = self.made.value();
        assert!(packet.set_len(self.params.size_bytes));
        packet.data_mut()[..8].copy_from_slice(&number.to_le_bytes());
        packet.set_mark(number);
        self.made.add(1);
        self.refused.add((!out.send(OUT, packet)).into());
        true
    }
}

impl Stage for Generator {
    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        if self.params.gap_us > 0 {
            self.one(out);
            self.next_ns = self.next_ns.max(out.now_ns()) + self.params.gap_us * 1000;
            return if self.made.value() < self.params.count { Next::At(self.next_ns) } else { Next::Done };
        }
        let left = usize::try_from(self.params.count - self.made.value()).unwrap_or(usize::MAX);
        let room = if self.params.polite { out.room(OUT) } else { usize::MAX };
        for _ in 0..left.min(room).min(self.burst) {
            if !self.one(out) {
                break;
            }
        }
        match self.made.value() < self.params.count {
            false => Next::Done,
            true if self.params.patient => Next::Idle,
            true => Next::Busy,
        }
    }
}

struct Forward {
    /// Packets that carried a time.
    stamped: Counter,
}

impl Stage for Forward {
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        self.stamped.add(input.iter().filter(|packet| packet.timestamp() > 0).count() as u64);
        out.send_batch(OUT, input);
    }
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct SinkParams {
    /// Works for this long on each batch.
    work_us: u64,
    /// Drops odd numbers, for its own reason.
    drop_odd: bool,
    /// Leaves its input alone.
    lazy: bool,
    /// Panics at this number.
    panic_at: Option<u64>,
    /// Sends to an output that it does not have.
    astray: bool,
    /// Takes numbers in any order.
    any_order: bool,
}

struct Sink {
    params: SinkParams,
    clock: Clock,
    seen: Counter,
    bytes: Counter,
    gaps: Counter,
    expected: u64,
}

impl Sink {
    fn new(context: &StageContext<'_>) -> Result<Sink, verbline_engine::StageError> {
        Ok(Sink {
            params: context.params()?,
            clock: context.clock(),
            seen: context.counter("seen"),
            bytes: context.counter("bytes"),
            gaps: context.counter("gaps"),
            expected: 0,
        })
    }
}

impl Stage for Sink {
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        if self.params.lazy {
            return;
        }
        for packet in input.drain_front(input.len()) {
            let number = u64::from_le_bytes(packet.data()[..8].try_into().expect("8 bytes"));
            assert_ne!(Some(number), self.params.panic_at, "as asked");
            self.seen.add(1);
            self.bytes.add(packet.len() as u64);
            if !self.params.any_order {
                // Order holds; the missing packets were dropped on the way.
                assert!(number >= self.expected, "{number} after {}", self.expected);
                self.gaps.add(number - self.expected);
                self.expected = number + 1;
            }
            if self.params.drop_odd && number % 2 == 1 {
                out.drop(packet, DropReason::Stage(0));
            } else if self.params.astray {
                out.send(OutId(7), packet);
            }
        }
        if self.params.work_us > 0 {
            let until_ns = self.clock.now_ns() + self.params.work_us * 1000;
            while self.clock.now_ns() < until_ns {
                std::thread::yield_now();
            }
        }
    }
}

/// Keeps its packets until the run stops.
struct Holder {
    kept: Batch,
}

impl Stage for Holder {
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        self.kept.append(input);
        out.send_batch(OUT, input);
    }

    fn stop(&mut self, out: &mut Outputs<'_>) {
        out.send_batch(OUT, &mut self.kept);
    }
}
