//! A run that lasts until it is dropped, served at a socket in a folder of its own.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use verbline_engine::{Next, OutId, Outputs, Registry, Running, Runtime, Stage, StageSpec, Tick};
use verbline_mem::Batch;
use verbline_operate::client::ClientError;
use verbline_operate::{MetricsSettings, Operate, Options, SocketChoice, TraceSettings};
use verbline_plan::{Diagnostics, Loader, Machine, Plan};

/// The plan of every test: one lcore that sends numbers to itself, a few at a time.
const PLAN: &str = r#"
name = "rig"

[device.nic]
provider = "soft"
name = "soft0"

[pool.packets]
device = "nic"
packets = 1024
data_bytes = 128
pages = "4KiB"

[lcore.main]
cpu = "allowed:0"
idle = "adaptive"

[port.out]
lcore = "main"
device = "nic"
pool = "packets"
transport = "rc"
peer = "port.in"
rx_depth_wr = 8
tx_depth_wr = 64
next = "drop"

[port.in]
lcore = "main"
device = "nic"
pool = "packets"
transport = "rc"
peer = "port.out"
rx_depth_wr = 64
tx_depth_wr = 0
next = "stage.sink"

[stage.source]
use = "source"
lcore = "main"
pool = "packets"
out = { numbers = "port.out" }

[stage.sink]
use = "sink"
lcore = "main"
"#;

/// Packets sent at once.
const BURST: u64 = 8;

/// Sends a burst of numbers every millisecond.
struct Source {
    due_ns: Tick,
    number: u64,
}

impl Stage for Source {
    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        let now_ns = out.now_ns();
        if now_ns >= self.due_ns {
            self.due_ns = now_ns + 1_000_000;
            for _ in 0..BURST {
                let Some(mut packet) = out.alloc() else { break };
                assert!(packet.fill(&self.number.to_le_bytes()));
                self.number += u64::from(out.send(OutId(0), packet));
            }
        }
        Next::At(self.due_ns)
    }
}

struct Sink;

impl Stage for Sink {
    fn process(&mut self, input: &mut Batch, _: &mut Outputs<'_>) {
        input.clear();
    }
}

/// Whether the gate lets packets pass; only one test has a gate.
pub(crate) static IS_OPEN: AtomicBool = AtomicBool::new(false);
/// Whether a packet waits at the gate.
pub(crate) static IS_AWAITED: AtomicBool = AtomicBool::new(false);

/// Blocks its lcore until the gate is opened.
struct Gate;

impl Stage for Gate {
    fn process(&mut self, input: &mut Batch, _: &mut Outputs<'_>) {
        // Relaxed: the flags carry no data.
        IS_AWAITED.store(true, Ordering::Relaxed);
        while !IS_OPEN.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        input.clear();
    }
}

/// The length of a nap.
pub(crate) const NAP: Duration = Duration::from_millis(30);

/// Sleeps over each batch.
struct Nap;

impl Stage for Nap {
    fn process(&mut self, input: &mut Batch, _: &mut Outputs<'_>) {
        std::thread::sleep(NAP);
        input.clear();
    }
}

pub(crate) fn registry() -> Registry {
    let mut registry = Registry::new("rig");
    let source = StageSpec { outputs: &["numbers"], source: true, summary: "numbers", ..StageSpec::default() };
    registry.stage("source", source, |_| Ok(Box::new(Source { due_ns: 0, number: 0 })));
    registry.stage("sink", StageSpec { summary: "drops", ..StageSpec::default() }, |_| Ok(Box::new(Sink)));
    registry.stage("gate", StageSpec { summary: "waits", ..StageSpec::default() }, |_| Ok(Box::new(Gate)));
    registry.stage("nap", StageSpec { summary: "sleeps", ..StageSpec::default() }, |_| Ok(Box::new(Nap)));
    MetricsSettings::register(&mut registry);
    TraceSettings::register(&mut registry);
    registry
}

/// A time limit for any machine; normally the waits end soon.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The result of `begin` as soon as the run is no longer busy with the stream before.
pub(crate) fn once_free<T>(begin: impl Fn() -> Result<T, ClientError>) -> T {
    let from = Instant::now();
    loop {
        match begin() {
            Ok(begun) => return begun,
            Err(ClientError::Refused(why)) if why.code == "busy" => {}
            Err(error) => panic!("{error}"),
        }
        assert!(from.elapsed() < PATIENCE, "the one before has not ended");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) fn plan(more: &str) -> Plan {
    load(more).unwrap_or_else(|faults| panic!("{faults}"))
}

pub(crate) fn load(more: &str) -> Result<Plan, Diagnostics> {
    Loader::new(registry().catalog(), Machine::detect()).load_str("rig.toml", &format!("{PLAN}{more}"))
}

/// A run and its server.
pub(crate) struct Served {
    pub(crate) operate: Operate,
    pub(crate) running: Option<Running>,
    _folder: TempDir,
}

impl Served {
    /// A run that has not started yet.
    pub(crate) fn starting(more: &str) -> (Served, Runtime) {
        let (plan, folder) = (plan(more), tempfile::tempdir().unwrap());
        let runtime = Runtime::build(&plan, &registry()).unwrap();
        let options = Options {
            socket: SocketChoice::At(folder.path().join("rig.sock")),
            metrics: MetricsSettings::of(&plan).unwrap(),
            trace: TraceSettings::of(&plan).unwrap(),
            log: None,
        };
        (Served { operate: Operate::start(&plan, "rig", options).unwrap(), running: None, _folder: folder }, runtime)
    }

    pub(crate) fn run(&mut self, runtime: Runtime) {
        let running = runtime.start().unwrap();
        self.operate.observe(running.observer());
        self.running = Some(running);
    }

    pub(crate) fn new(more: &str) -> Served {
        let (mut served, runtime) = Served::starting(more);
        served.run(runtime);
        served
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.operate.socket().unwrap().to_owned()
    }

    /// Checks that the end does not wait for a client that reads nothing of `stalled`.
    pub(crate) fn assert_ends_beside<T>(mut self, stalled: T) {
        std::thread::sleep(Duration::from_millis(400));
        self.running.take().unwrap().stop().unwrap();
        let from = Instant::now();
        drop(self);
        assert!(from.elapsed() < Duration::from_secs(10), "{:?}", from.elapsed());
        drop(stalled);
    }

    /// Checks that the run is as good as an unobserved one.
    pub(crate) fn assert_undisturbed(mut self) {
        let running = self.running.take().unwrap();
        // A quick test may end before the first packet.
        let deadline = Instant::now() + PATIENCE;
        while running.snapshot().stages[1].packets_in == 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        let report = running.stop().unwrap();
        assert_eq!((report.packets.held, report.drained, report.failures.len()), (0, true, 0));
        assert!(report.lcores[0].rescues == 0 && report.stages[1].packets_in > 0, "{report:?}");
    }
}
