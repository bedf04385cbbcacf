//! The cost to a running connection of others that open on its lcore.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use verbline::engine::{Acceptor, Answer, ConnectionChange, ConnectionEvent, ConnectionId, ConnectionRequest, Tick};
use verbline::prelude::*;

use super::connections::PATIENCE;
use super::stages::{self, Waits};
use crate::Figures;
use crate::figures::median;
use crate::pair::cpus;

const OUT: OutId = OutId(0);

/// The measurements of a `ping` stage.
#[derive(Debug)]
struct Pings {
    /// Round trips while connections opened, and as many after that.
    opening: Histogram<u64>,
    undisturbed: Histogram<u64>,
    /// The time between the first and the last opened connection.
    took_ns: Tick,
    /// The end of each round trip, from the first opened connection on, and its time, up to the
    /// capacity.
    each: Vec<(Tick, u64)>,
}

/// Round trips that a course can note individually.
const TRIPS_MAX: usize = 1 << 22;

impl Pings {
    /// The additional round trips that take over 1.5 times the undisturbed 99th percentile while
    /// connections open, per connection.
    fn disturbed(&self) -> f64 {
        let limit_ns = self.undisturbed.value_at_quantile(0.99) * 3 / 2;
        let over = |of: &Histogram<u64>| (of.len() - of.count_between(0, limit_ns)) as f64 / of.len() as f64;
        (over(&self.opening) - over(&self.undisturbed)) * self.opening.len() as f64 / f64::from(OPENED)
    }
}

/// Sends a message to and fro over one connection, one at a time, while others open.
struct Ping {
    port: u16,
    /// The number of others to open, and of those that have opened. The stage leads to their port,
    /// too, so that it gets their events.
    others: u64,
    opened: u64,
    first_ns: Tick,
    to: Option<ConnectionId>,
    pings: Option<Pings>,
    leave: Arc<Mutex<Option<Pings>>>,
}

impl Ping {
    fn send(&mut self, mut packet: Packet, out: &mut Outputs<'_>) {
        packet.set_connection(self.to);
        assert!(packet.fill(&out.fresh_ns().to_le_bytes()));
        out.send(OUT, packet);
    }
}

impl Stage for Ping {
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        for packet in input.drain_front(input.len()) {
            let sent_ns = u64::from_le_bytes(packet.data().try_into().expect("its own message"));
            let took_ns = out.fresh_ns() - sent_ns;
            if let Some(pings) = self.pings.as_mut().filter(|_| self.opened > 0) {
                if pings.each.len() < pings.each.capacity() {
                    pings.each.push((sent_ns + took_ns - self.first_ns, took_ns));
                }
                match self.opened < self.others {
                    true => pings.opening.saturating_record(took_ns),
                    false => pings.undisturbed.saturating_record(took_ns),
                }
            }
            self.send(packet, out);
        }
    }

    fn poll(&mut self, _: &mut Outputs<'_>) -> Next {
        let done = |pings: &Pings| !pings.opening.is_empty() && pings.undisturbed.len() >= pings.opening.len();
        if self.pings.as_ref().is_some_and(done) {
            *self.leave.lock().unwrap_or_else(PoisonError::into_inner) = self.pings.take();
        }
        if self.pings.is_none() { Next::Done } else { Next::Idle }
    }

    fn connection_event(&mut self, event: ConnectionEvent, out: &mut Outputs<'_>) {
        if event.change != ConnectionChange::Opened {
            return;
        }
        if event.port != self.port {
            if self.opened == 0 {
                self.first_ns = out.fresh_ns();
            }
            self.opened += 1;
            if let Some(pings) = self.pings.as_mut().filter(|_| self.opened == self.others) {
                pings.took_ns = out.fresh_ns() - self.first_ns;
            }
        } else {
            self.to = Some(event.connection);
            let packet = out.alloc().expect("a packet of the plan");
            self.send(packet, out);
        }
    }
}

fn registry(leave: &Arc<Mutex<Option<Pings>>>, trips_max: usize) -> Registry {
    let mut registry = stages::registry(&Waits::default());
    let spec = StageSpec { outputs: &["out", "others"], source: true, ..StageSpec::default() };
    let leave = leave.clone();
    registry.stage("ping", StageSpec { summary: "to and fro over one connection", ..spec }, move |stage| {
        let port = stage.port("pinger").expect("the plan has it");
        let empty = || Histogram::new_with_bounds(1, 10_000_000_000, 3);
        let each = Vec::with_capacity(trips_max);
        let pings = Some(Pings { opening: empty()?, undisturbed: empty()?, took_ns: 0, each });
        let others = u64::from(OPENED);
        Ok(Box::new(Ping { port, others, opened: 0, first_ns: 0, to: None, pings, leave: leave.clone() }))
    });
    registry
}

/// Connections that open beside the running one.
const OPENED: u32 = 1024;

/// Accepts all connections, one at a time, with a pause before each if there is a pace. It runs on
/// the port's cm thread, and no lcore waits for it.
struct Paced {
    gap: Option<Duration>,
    next: Instant,
}

impl Acceptor for Paced {
    fn decide(&mut self, _: &ConnectionRequest<'_>) -> Answer {
        if let Some(gap) = self.gap {
            std::thread::sleep(self.next.saturating_duration_since(Instant::now()));
            // A pause that was too long shortens the next ones, within bounds.
            self.next = (self.next + gap).max(Instant::now().checked_sub(8 * gap).unwrap_or(self.next));
        }
        Answer::accept()
    }
}

/// `OPENED` connections open while one goes to and fro on the same lcore, `pace_per_s` per second,
/// or as fast as they can: `per_s`; `opening_p99_ns` of its round trips meanwhile;
/// `undisturbed_p99_ns` of as many afterwards; and `disturbed`, the number of slow round trips per
/// connection.
///
/// # Panics
/// If they do not open.
pub fn opening(pace_per_s: Option<u32>) -> Figures {
    let runs: Vec<Pings> = (0..3).map(|_| open_once(pace_per_s, 0)).collect();
    let per_s = median(runs.iter().map(|pings| f64::from(OPENED) * 1e9 / pings.took_ns as f64));
    let p99 = |of: fn(&Pings) -> &Histogram<u64>| median(runs.iter().map(|run| of(run).value_at_quantile(0.99) as f64));
    Figures::of("per_s", per_s)
        .and("opening_p99_ns", p99(|run| &run.opening))
        .and("undisturbed_p99_ns", p99(|run| &run.undisturbed))
        .and("disturbed", median(runs.iter().map(Pings::disturbed)))
}

/// The running connection's round trips in a slot of [`Course::SLOT`].
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Slot {
    /// The slot's start, after the first connection opened.
    pub from_ns: u64,
    /// Round trips that ended in it.
    pub trips: u64,
    /// Their median.
    pub p50_ns: u64,
    /// Their 99th percentile.
    pub p99_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

/// One run, from the first connection that opened beside the running one.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Course {
    /// Connections that opened.
    pub opened: u32,
    /// When the last of them had opened.
    pub took_ns: u64,
    /// The slots, in order.
    pub slots: Vec<Slot>,
}

impl Course {
    /// The length of a slot.
    pub const SLOT: Duration = Duration::from_millis(10);
}

/// Like [`opening`], for one run, slot by slot.
///
/// # Panics
/// If they do not open.
#[must_use]
pub fn course(pace_per_s: Option<u32>) -> Course {
    let Pings { took_ns, each, .. } = open_once(pace_per_s, TRIPS_MAX);
    let slot_of = |trip: &(Tick, u64)| trip.0 / Course::SLOT.as_nanos() as u64;
    let slots = each.chunk_by(|a, b| slot_of(a) == slot_of(b)).map(|trips| {
        let mut took_ns: Vec<u64> = trips.iter().map(|trip| trip.1).collect();
        took_ns.sort_unstable();
        let at = |share: f64| took_ns[((took_ns.len() - 1) as f64 * share) as usize];
        let from_ns = slot_of(&trips[0]) * Course::SLOT.as_nanos() as u64;
        Slot { from_ns, trips: took_ns.len() as u64, p50_ns: at(0.5), p99_ns: at(0.99), max_ns: at(1.0) }
    });
    Course { opened: OPENED, took_ns, slots: slots.collect() }
}

fn open_once(pace_per_s: Option<u32>, trips_max: usize) -> Pings {
    let mut plan = super::lcores::preamble(16_384);
    let _ = writeln!(
        plan,
        "lcore.a = {{ cpu = {}, idle = \"poll\" }}\n\
         port.pinger = {{ lcore = \"a\", device = \"nic0\", pool = \"packets\", transport = \"rc\", \
         connect = \"10.9.9.1:4802\", connections = 1, rx_depth_wr = 16, tx_depth_wr = 16, next = \"stage.ping\" }}\n\
         port.others = {{ lcore = \"a\", device = \"nic0\", transport = \"rc\", connect = \"10.9.9.1:4802\", \
         connections = {OPENED}, tx_depth_wr = 1 }}\n\
         port.server = {{ lcore = \"a\", device = \"nic0\", pool = \"packets\", transport = \"rc\", \
         listen = \"10.9.9.1:4802\", acceptor = \"paced\", connections_max = {}, rx_shared_wr = 512, \
         tx_depth_wr = 4, \
         next = \"stage.echo\" }}\n\
         stage.ping = {{ use = \"ping\", lcore = \"a\", pool = \"packets\", \
         out = {{ out = \"port.pinger\", others = \"port.others\" }} }}\n\
         stage.echo = {{ use = \"forward\", lcore = \"a\", out = {{ out = \"port.server\" }} }}",
        cpus()[0].id,
        OPENED + 1,
    );
    let left = Arc::default();
    let mut registry = registry(&left, trips_max);
    let gap = pace_per_s.map(|per_s| Duration::from_secs(1) / per_s);
    registry.acceptor("paced", move |_| Ok(Box::new(Paced { gap, next: Instant::now() })));
    let running = stages::start(&registry, &plan);
    let deadline = Instant::now() + PATIENCE;
    loop {
        running.wait(Some(Duration::from_millis(5)));
        if let Some(pings) = left.lock().unwrap_or_else(PoisonError::into_inner).take() {
            stages::finish(running);
            return pings;
        }
        assert!(Instant::now() < deadline, "the connections do not open: {:?}", running.snapshot().ports);
    }
}
