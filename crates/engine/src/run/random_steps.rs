//! Connections that come and go, step by step on one thread and without a clock: a real run of one
//! lcore with a port that many may connect to, its cm thread, the reader of the device's events,
//! and peers on the software RNIC. A seed says what happens in which order; an oracle knows what
//! must have become of every message, every connection, and every operation over one. Some runs end
//! with all that under way.
//!
//! `./x random-steps` takes as many steps as one likes. A seed that fails is cut down to the steps
//! that it needs.

mod desk;
mod memory;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use self::world::World;

/// What happened in some runs.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    opened: u64,
    closed: u64,
    failed: u64,
    unanswered: u64,
    rejected: u64,
    received: u64,
    /// Messages of peers of which no stage has ever heard.
    lost: u64,
    echoed: u64,
    dropped: u64,
    /// Operations that were carried out, those that were not, and those that were not accepted.
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

/// What happens. A peer is one of those that there are, whatever the number.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A peer asks to be connected.
    Ask,
    /// It finishes, if it has the answer.
    Finish(u8),
    HangUp(u8),
    /// Sends messages of this kind: peer, number.
    Send(u8, u8, Kind),
    /// Whether it posts receives.
    Read(u8, bool),
    /// It polls, as do all.
    Poll,
    Leave(u8),
    /// Its queue pair breaks.
    Break(u8),
    /// It names a key that is not there.
    WrongKey(u8),
    /// Everybody leaves at once, as a client does that is stopped.
    Restart,
    /// Everybody else takes turns until nothing happens.
    Calm,
    CmThread,
    Lcore(u8),
    Events,
}

/// What a stage is to do with a message.
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
    /// Operations of each connection; 0: the port carries out none.
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

/// Steps of one run.
const RUN_STEPS: usize = 2_000;
/// Steps in which everything happens that is there to be found, whatever the seed.
const ALL_HAPPENS_STEPS: u64 = 40_000;

/// What happened in a run of these steps, or what is wrong with it.
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

/// The fewest of the steps that are found which still fail, and how.
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

/// Runs listen at one address, so there is one at a time.
static LISTENS: Mutex<()> = Mutex::new(());

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}: a number")))
}

/// As many steps as `RANDOM_STEPS` says, from the seed `RANDOM_SEED` on: each run has the next one.
#[test]
fn random_steps_do_what_the_oracle_says() {
    take(number("RANDOM_STEPS", ALL_HAPPENS_STEPS), number("RANDOM_SEED", 1));
}

/// So is a fault looked at again: in a run by itself not everything happens.
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
    // None of what is there to be found was left out.
    assert!(tally.opened > 0 && tally.failed > 0 && tally.closed > 0 && tally.unanswered > 0, "{tally:?}");
    assert!(tally.received > 0 && tally.lost > 0 && tally.echoed > 0 && tally.dropped > 0, "{tally:?}");
    assert!(tally.operated > 0 && tally.failed_operations > 0 && tally.declined > 0 && tally.abrupt > 0, "{tally:?}");
}

/// The report of a run that ended while a connection closed had it nowhere.
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
