//! Connections that come and go, step by step on one thread and without a clock: a real run of one
//! lcore with a port for many connections, its cm thread, the reader of the device's events, and
//! peers on the software RNIC. A seed decides on the steps and their order; an oracle knows the
//! required fate of every message, every connection, and every operation over one. Some runs end
//! with all that under way.
//!
//! `./x random-steps` takes any number of steps. A failing seed is cut down to the steps that it
//! needs.

mod desk;
mod memory;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use self::world::World;

/// The counts of some runs.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    opened: u64,
    closed: u64,
    failed: u64,
    unanswered: u64,
    rejected: u64,
    received: u64,
    /// Messages of peers that no stage has ever heard of.
    lost: u64,
    echoed: u64,
    dropped: u64,
    /// Operations carried out, those that failed, and those declined.
    operated: u64,
    failed_operations: u64,
    declined: u64,
    /// Runs that ended with everything under way.
    abrupt: u64,
}

impl Tally {
    fn add(&mut self, other: Tally) {
        let Tally { opened, closed, failed, unanswered, rejected, received, lost, echoed, dropped, .. } = other;
        (self.opened, self.closed, self.failed) = (self.opened + opened, self.closed + closed, self.failed + failed);
        (self.unanswered, self.rejected) = (self.unanswered + unanswered, self.rejected + rejected);
        (self.received, self.lost) = (self.received + received, self.lost + lost);
        (self.echoed, self.dropped) = (self.echoed + echoed, self.dropped + dropped);
        self.operated += other.operated;
        self.failed_operations += other.failed_operations;
        (self.declined, self.abrupt) = (self.declined + other.declined, self.abrupt + other.abrupt);
    }
}

/// A step. A peer number is taken modulo the number of peers.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A new peer requests a connection.
    Ask,
    /// It finishes the handshake, if the answer has come.
    Finish(u8),
    HangUp(u8),
    /// It sends messages: peer, count, kind.
    Send(u8, u8, Kind),
    /// Whether it posts receives.
    Read(u8, bool),
    /// It polls, like all peers.
    Poll,
    Leave(u8),
    /// Its queue pair breaks.
    Break(u8),
    /// It uses a key that does not exist.
    WrongKey(u8),
    /// All peers leave at once, like those of a client that is stopped.
    Restart,
    /// All other parties take turns until nothing happens.
    Calm,
    CmThread,
    Lcore(u8),
    Events,
}

/// A message's request to the stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    Echo = 0,
    Quiet = 1,
    /// Close the connection.
    Bye = 2,
    /// Send it to the connection that ended last.
    Stray = 3,
    /// READ the peer's name from its memory.
    Fetch = 4,
    /// WRITE the message's number to its memory.
    Store = 5,
}

/// A generator of numbers: splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn step(&mut self) -> Step {
        let peer = self.next() as u8;
        match self.below(1000) {
            0..60 => Step::Ask,
            60..130 => Step::Finish(peer),
            130..140 => Step::HangUp(peer),
            140..270 => Step::Send(peer, 1 + self.below(6) as u8, Kind::Echo),
            270..310 => Step::Send(peer, 1 + self.below(6) as u8, Kind::Fetch),
            310..350 => Step::Send(peer, 1 + self.below(6) as u8, Kind::Store),
            350..430 => Step::Send(peer, 1 + self.below(12) as u8, Kind::Quiet),
            430..434 => Step::Send(peer, 1, Kind::Bye),
            434..440 => Step::Send(peer, 1, Kind::Stray),
            440..450 => Step::Read(peer, self.below(2) == 0),
            450..580 => Step::Poll,
            580..605 => Step::Leave(peer),
            605..612 => Step::Break(peer),
            612..619 => Step::WrongKey(peer),
            619..620 => Step::Restart,
            620..622 => Step::Calm,
            622..730 => Step::CmThread,
            730..960 => Step::Lcore(1 + self.below(3) as u8),
            _ => Step::Events,
        }
    }
}

/// The queues of a run.
#[derive(Clone, Copy, Debug)]
struct Shape {
    connections: u64,
    shared: bool,
    rx_wr: u64,
    tx_wr: u64,
    burst: u64,
    /// The most operations of each connection; 0: a port without operations.
    ops_wr: u64,
    /// The run ends with everything under way.
    is_abrupt: bool,
}

impl Shape {
    fn draw(random: &mut Random) -> Shape {
        Shape {
            connections: 1 + random.below(6),
            shared: random.below(4) > 0,
            rx_wr: 1 + random.below(24),
            tx_wr: 1 + random.below(8),
            burst: 1 + random.below(8),
            ops_wr: if random.below(2) == 0 { 0 } else { 1 + random.below(6) },
            is_abrupt: random.below(4) == 0,
        }
    }
}

/// The steps of one run.
const RUN_STEPS: usize = 2_000;
/// The number of steps in which every countable event happens, with any seed.
const ALL_HAPPENS_STEPS: u64 = 40_000;

/// The counts of a run of these steps, or its fault.
fn outcome(shape: Shape, steps: &[Step]) -> Result<Tally, String> {
    let run = || {
        let mut world = World::new(shape);
        for step in steps {
            world.step(*step);
        }
        world.end()
    };
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.unwrap_or_else(|| (*panic.downcast_ref::<&str>().unwrap_or(&"a panic")).to_owned())
    })
}

/// Removes steps as long as the run still fails. Returns the remaining ones, and the fault.
fn cut_down(shape: Shape, mut steps: Vec<Step>, mut text: String) -> (Vec<Step>, String) {
    let mut chunk = steps.len() / 2;
    while chunk > 0 {
        let mut from = 0;
        while from < steps.len() {
            let fewer = [&steps[..from], &steps[(from + chunk).min(steps.len())..]].concat();
            match outcome(shape, &fewer) {
                Err(fault) => (steps, text) = (fewer, fault),
                Ok(_) => from += chunk,
            }
        }
        chunk /= 2;
    }
    (steps, text)
}

/// Runs listen at one address, so they run one at a time.
static LISTENS: Mutex<()> = Mutex::new(());

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}: a number")))
}

/// Takes `RANDOM_STEPS` steps, from the seed `RANDOM_SEED` on: each run has the next seed.
#[test]
fn random_steps_do_what_the_oracle_says() {
    take(number("RANDOM_STEPS", ALL_HAPPENS_STEPS), number("RANDOM_SEED", 1));
}

/// Reproduces a single fault: a run by itself need not contain every event.
#[test]
fn a_seed_is_run_by_itself() {
    take(1, 1);
}

fn take(steps: u64, first: u64) {
    let _alone = LISTENS.lock().unwrap_or_else(PoisonError::into_inner);
    let mut tally = Tally::default();
    for seed in first..first + steps.div_ceil(RUN_STEPS as u64) {
        let mut random = Random(seed);
        let shape = Shape::draw(&mut random);
        let drawn: Vec<Step> = (0..RUN_STEPS).map(|_| random.step()).collect();
        match outcome(shape, &drawn) {
            Ok(done) => tally.add(done),
            Err(fault) => {
                let (fewest, text) = cut_down(shape, drawn, fault);
                panic!("./x random-steps --seed {seed} --steps 1: {text}\n{shape:?}\n{fewest:?}");
            }
        }
    }
    eprintln!("{steps} steps from seed {first}: {tally:?}");
    if steps < ALL_HAPPENS_STEPS {
        return;
    }
    // Every countable event has happened.
    assert!(tally.opened > 0 && tally.failed > 0 && tally.closed > 0 && tally.unanswered > 0, "{tally:?}");
    assert!(tally.received > 0 && tally.lost > 0 && tally.echoed > 0 && tally.dropped > 0, "{tally:?}");
    assert!(tally.operated > 0 && tally.failed_operations > 0 && tally.declined > 0 && tally.abrupt > 0, "{tally:?}");
}

/// Regression: the report of a run that ended while a connection closed did not count that
/// connection.
#[test]
fn a_connection_that_closes_as_the_run_ends_is_accounted_for() {
    use Step::{Ask, CmThread, Finish, Leave};
    let _alone = LISTENS.lock().unwrap_or_else(PoisonError::into_inner);
    let queues = Shape { connections: 4, shared: true, rx_wr: 21, tx_wr: 4, burst: 7, ops_wr: 0, is_abrupt: true };
    for ops_wr in [0, 4] {
        let steps = [Ask, CmThread, Finish(0), CmThread, Leave(0), CmThread];
        assert_eq!(outcome(Shape { ops_wr, ..queues }, &steps).err(), None);
    }
}
