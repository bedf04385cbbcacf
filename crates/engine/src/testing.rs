//! Tests of one stage in a plain `#[test]`: without a run, a thread or waiting.
//!
//! [`StageTest::open`] makes the stage as a run would: from a checked plan, by the app's factory,
//! with its params, pool, outputs, regions and timers. The test stands in for the stage's
//! surroundings. It hands packets in, lets time pass, opens and ends connections, and examines the
//! packets that the stage has sent.
//!
//! ```
//! use std::time::Duration;
//!
//! use verbline_engine::testing::StageTest;
//! use verbline_engine::{DueTimer, OutId, Outputs, Registry, Stage, StageSpec};
//! use verbline_mem::Batch;
//! use verbline_plan::{Loader, Machine};
//!
//! /// Keeps the last packet, and sends it after a millisecond of silence.
//! #[derive(Default)]
//! struct Last(Option<verbline_mem::Packet>);
//!
//! impl Stage for Last {
//!     fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
//!         self.0 = input.pop();
//!         input.clear();
//!         out.arm_timer(out.now_ns() + 1_000_000, 0);
//!     }
//!
//!     fn timers(&mut self, _: &[DueTimer], out: &mut Outputs<'_>) {
//!         if let Some(packet) = self.0.take() {
//!             out.send(OutId(0), packet);
//!         }
//!     }
//! }
//!
//! let mut registry = Registry::new("last");
//! let spec = StageSpec { outputs: &["last"], timers: 1, holds_packets: 1, ..StageSpec::default() };
//! registry.stage("last", spec, |_| Ok(Box::<Last>::default()));
//! # registry.stage("end", StageSpec::default(), |_| Ok(Box::<Last>::default()));
//!
//! let plan = r#"
//!     device.nic = { provider = "soft" }
//!     pool.packets = { device = "nic", packets = 512, data_bytes = 64 }
//!     lcore.main = { cpu = "allowed:0" }
//!     injector.by_hand = { to = "stage.last", pool = "packets", depth = 8 }
//!     stage.last = { use = "last", lcore = "main", pool = "packets", timers_max = 1, out.last = "stage.end" }
//!     stage.end = { use = "end", lcore = "main" }
//! "#;
//! let plan = Loader::new(registry.catalog(), Machine::detect()).load_str("last.toml", plan)?;
//! let mut test = StageTest::open(&plan, &registry, "last")?;
//!
//! let packets = [b"one", b"two"].map(|data| test.packet("injector.by_hand", data));
//! test.process(packets);
//! test.advance(Duration::from_micros(999));
//! assert!(test.sent("last").is_empty());
//! test.advance(Duration::from_micros(1));
//! assert_eq!(test.sent("last")[0].data(), b"two");
//! assert_eq!(test.finish().packets.held, 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What it runs
//!
//! The engine's own code: the node, its outputs and their bounded batches, pools, timing wheel,
//! operation queue and counters, the slots of a port's connections, and the lcore's turn, which
//! decides when the stage is called. The clock is the lcore's too, and stands still between two
//! calls of the test: it begins at a second, and [`StageTest::advance`] alone moves it.
//!
//! # What it does not show
//!
//! - **Devices.** Nothing is posted, received or completed, so that no send fails, e.g. for its
//!   length: [`StageTest::send_ended`] and [`StageTest::complete`] say how sends and operations
//!   end. Every turn takes all that was sent in it: [`room`](crate::Outputs::room) and
//!   [`room_to`](crate::Outputs::room_to) are those of an idle port, but for an output that
//!   [`StageTest::stall`] stops. A window that is bound has no key, and parts of regions are
//!   neither read nor written.
//! - **Other stages, rings and lcores.** They are described, as in a check, and neither opened nor
//!   run. A ring with `full = "hold"` holds nothing back.
//! - **Acceptors and injectors.** Neither runs; [`StageTest::packet`] has packets as an injector
//!   gives them.
//! - **Speed.** Times, and an lcore's figures of the report, mean nothing here.
//!
//! The plan's devices are opened, and its pools and regions mapped. A plan for a card is tested
//! without one by [`Loader::sets`](verbline_plan::Loader::sets):
//! `device.nic={provider="soft"}`; that also leaves out an `address`, which opens a socket.

mod around;
mod seen;

pub use around::{asked, set_immediate};

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use verbline_mem::{ConnectionId, Packet};
use verbline_plan::Plan;
use verbline_ring::{Producer, spsc};

use crate::api::outputs::Output;
use crate::api::registry::Registry;
use crate::connection::multi_port::by_hand::CmByHand;
use crate::errors::error::EngineError;
use crate::lcore::node::Node;
use crate::lcore::poll_loop::Lcore;
use crate::lcore::rings::{PollOrder, RingConsumer};
pub use crate::operations::queue::by_hand::Asked;
use crate::setup::assemble::{Extent, build_to};
use crate::setup::changes::Known;
use crate::setup::multi_ports::Apart;
use crate::stats::clock::{Tick, told::Time};
use crate::stats::counter::shared;
use crate::stats::snapshot::{OutputEntry, RunStats};

/// A test's clock at its beginning: a packet received at 0 would look injected.
const START_NS: Tick = 1_000_000_000;

/// How long an lcore takes from one turn to the next, for a stage that asks for a past tick.
const TURN_NS: u64 = 1_000;

/// One stage, and a test around it: see [the module](self).
///
/// It stays on the thread that opened it. If the test names something that is not in the plan, or
/// asks for something that the engine would never do, a method panics and lists what there is. A
/// panic of the stage is a panic of the method that called it.
pub struct StageTest {
    lcore: Lcore,
    input: Producer<Packet>,
    time: Time,
    stats: RunStats,
    plan: Plan,
    stage: String,
    lcore_name: String,
    /// The turns beside the first that all timers of one tick take.
    bursts_of_timers: u32,
    outputs: Vec<Leads>,
    /// Sent packets that the test has not taken, by sink.
    sent: BTreeMap<usize, Vec<Packet>>,
    /// Sinks whose packets stay.
    stalled: BTreeSet<usize>,
    /// The ports with many connections, by their places in the plan.
    cms: BTreeMap<u16, CmByHand>,
    /// The devices, which stay open.
    _known: Known,
}

/// Where an output of the stage leads: sinks, and their names in the plan.
struct Leads {
    output: &'static str,
    to: Vec<(usize, String)>,
}

impl StageTest {
    /// Makes the stage of this name, as [`Runtime::build`](crate::Runtime::build) would. It has not
    /// been called yet: a source is polled in the first [`StageTest::turn`].
    ///
    /// # Errors
    /// Those of a build. The refusal of a factory names its place in the plan.
    ///
    /// # Panics
    /// The plan has no such stage.
    #[track_caller]
    pub fn open(plan: &Plan, registry: &Registry, stage: &str) -> Result<StageTest, EngineError> {
        let known = plan.stages().iter().find(|known| known.name == stage);
        let Some(known) = known else { no_such("stage", stage, plan.stages().iter().map(|known| &*known.name)) };
        let time = Time::default();
        time.pass(START_NS);
        let mut built = build_to(plan, registry, &Extent::Stage(known.id, time.clock()))?;
        let mut parts = built.lcores.swap_remove(known.lcore.index());
        parts.nodes.retain(|node| node.name == stage);
        let (input, consumer) = spsc(known.batch_packets as usize);
        parts.rings_in = vec![RingConsumer {
            consumer,
            sink: parts.nodes[0].input(),
            burst: plan[known.lcore].burst_packets as usize,
            stats: shared(),
            displaced: None,
            order: PollOrder::default(),
        }];
        parts.rings_out.clear();
        parts.holds.clear();
        let places = &built.stats.stages[known.id.index()].outputs;
        let leads = |(link, entry): (&Output, &OutputEntry)| Leads {
            output: entry.name,
            to: link.sinks().iter().map(|sink| usize::from(*sink)).zip(entry.leads_to.iter().cloned()).collect(),
        };
        let outputs = parts.nodes[0].links().iter().zip(places).map(leads).collect();
        let name = parts.name.clone();
        let mut lcore = Lcore::bind(parts, built.control);
        lcore.keep_sends();
        let cm = |Apart { port, maker, mailbox }| {
            let (place, connections) =
                (port.index() as u16, plan[port].connections.as_ref().map_or(0, |many| many.max));
            (place, CmByHand::new(place, connections, maker, mailbox))
        };
        Ok(StageTest {
            lcore,
            input,
            time,
            stats: built.stats,
            plan: plan.clone(),
            stage: stage.to_owned(),
            lcore_name: name,
            bursts_of_timers: known.timers_max / plan[known.lcore].burst_packets,
            outputs,
            sent: BTreeMap::new(),
            stalled: BTreeSet::new(),
            cms: built.apart.into_iter().map(cm).collect(),
            _known: built.known,
        })
    }

    /// A packet with this data, as it comes from a port, an injector or a pool of the plan:
    /// `"port.feed"`, `"injector.operator"`, `"pool.packets"`. From a port it has the port's number
    /// and, unless the plan leaves them out, the time.
    /// [`Packet::set_mark`](verbline_mem::Packet::set_mark) sets a mark.
    ///
    /// # Panics
    /// There is no such place, its pool has no packet left, or the data are too long for one.
    #[track_caller]
    pub fn packet(&mut self, from: &str, data: &[u8]) -> Packet {
        let plan = &self.plan;
        let (table, name) = from.split_once('.').unwrap_or_default();
        let port = plan.ports().iter().find(|port| table == "port" && port.name == name);
        let injector = plan.injectors().iter().find(|injector| table == "injector" && injector.name == name);
        let pool = plan.pools().iter().find(|pool| table == "pool" && pool.name == name).map(|pool| pool.id);
        let pool = pool.or(injector.map(|injector| injector.pool)).or(port.and_then(|port| port.pool));
        let Some(pool) = pool else {
            let ports =
                plan.ports().iter().filter(|port| port.pool.is_some()).map(|port| format!("port.{}", port.name));
            let injectors = plan.injectors().iter().map(|injector| format!("injector.{}", injector.name));
            let pools = plan.pools().iter().map(|pool| format!("pool.{}", pool.name));
            no_such("port, injector or pool with packets", from, ports.chain(injectors).chain(pools))
        };
        let (_, state) = self.lcore.parts();
        let pool = &self.stats.pools[pool.index()];
        let cache = state.ctx.caches.iter().find(|cache| cache.pool().name() == pool.name());
        let packet = cache.map_or_else(|| pool.cache(0).get(), |cache| cache.get());
        let Some(mut packet) = packet else {
            panic!(
                "pool.{} has none of its {} packets left: the stage or the test holds them",
                pool.name(),
                pool.packets()
            )
        };
        state.ctx.stats.taken.add(1);
        assert!(packet.fill(data), "{} bytes; a packet of pool.{} has {}", data.len(), pool.name(), packet.capacity());
        if let Some(port) = port {
            packet.set_port(port.id.index() as u16);
            packet.set_timestamp(if port.timestamps { self.time.now_ns() } else { 0 });
        }
        packet
    }

    /// Like [`StageTest::packet`], as its port receives it over this connection
    /// ([`StageTest::connect`]).
    ///
    /// # Panics
    /// Like [`StageTest::packet`], and if the connection is not open.
    #[track_caller]
    pub fn packet_over(&mut self, connection: ConnectionId, data: &[u8]) -> Packet {
        self.open_connection(connection);
        let port = &self.plan.ports()[usize::from(connection.port())].name;
        let mut packet = self.packet(&format!("port.{port}"), data);
        packet.set_connection(Some(connection));
        packet
    }

    /// Hands any number of packets to the stage: the lcore's burst in each turn.
    pub fn process(&mut self, packets: impl IntoIterator<Item = Packet>) {
        for packet in packets {
            if let Err(packet) = self.input.push(packet) {
                self.turn();
                assert!(self.input.push(packet).is_ok(), "a turn takes a burst");
            }
        }
        self.turn();
        while !self.input.is_empty() {
            self.turn();
        }
    }

    /// Takes one turn of the lcore, at the present time: tells the stage its news, and polls it if
    /// it wants to be. Returns true if it found work ([`Next::Busy`](crate::Next::Busy), or sent
    /// packets).
    pub fn turn(&mut self) -> bool {
        let is_busy = sound(self.lcore.take_turn());
        self.settle();
        is_busy
    }

    /// Lets time pass: takes a turn now, at each tick for which the stage has a timer or wants to
    /// be polled, and at the end.
    pub fn advance(&mut self, by: Duration) {
        let until_ns = self.now_ns().saturating_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX));
        self.turn();
        while self.now_ns() < until_ns {
            let now_ns = self.now_ns();
            let due_ns = self.due_ns().unwrap_or(until_ns);
            let next_ns = if due_ns > now_ns { due_ns } else { now_ns + TURN_NS };
            self.time.pass(next_ns.min(until_ns) - now_ns);
            self.turn();
        }
        // Timers of one tick come in bursts, one per turn.
        for _ in 0..self.bursts_of_timers {
            if self.due_ns().is_some_and(|due_ns| due_ns <= until_ns) {
                self.turn();
            }
        }
    }

    /// The time that [`Outputs::now_ns`](crate::Outputs::now_ns) returns.
    pub fn now_ns(&self) -> Tick {
        self.time.now_ns()
    }

    fn due_ns(&mut self) -> Option<Tick> {
        let (nodes, _) = self.lcore.parts();
        nodes.iter().find_map(Node::due_ns)
    }
}

/// An lcore without a device has nothing that fails.
#[track_caller]
pub(crate) fn sound<T>(done: std::io::Result<T>) -> T {
    done.unwrap_or_else(|error| panic!("the lcore cannot go on: {error}"))
}

/// Panics about a mistake of the test.
#[track_caller]
pub(crate) fn no_such<T: fmt::Display>(what: &str, asked: &str, known: impl Iterator<Item = T>) -> ! {
    let known: Vec<String> = known.map(|name| format!("`{name}`")).collect();
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    panic!("the plan has no {what} `{asked}`; there is {known}")
}

impl fmt::Debug for StageTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StageTest").field("stage", &self.stage).field("now_ns", &self.now_ns()).finish_non_exhaustive()
    }
}
