//! Tests of the sleep protocol and the idle policy against a modelled lcore. They put every arrival
//! at every step, and a polled stage gives every possible answer.
//!
//! A step is one access to one source (arm it, poll it, block on it). An arrival is published
//! before some step, and announced at that step or some steps later, as a producer fills a ring
//! first and rings the doorbell after. The model wakes by announcements only: a lost one shows.

use std::io;

use verbline_plan::IdlePolicy;

use crate::api::stage::Next;
use crate::idle::policy::{Budget, Idle, Step, Turn};
use crate::idle::sleep::{Fired, SAFETY_TIMEOUT_NS, SleepOutcome, Sleepable, sleep};
use crate::lcore::waits::Polling;
use crate::stats::clock::Tick;

/// Work that arrives from outside.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    source: usize,
    items: usize,
    /// The step before which it is published.
    step: usize,
    /// The number of steps until it is announced.
    delay: usize,
}

/// A fault of the model, to prove that the tests see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// Blocks without the poll after arming (libfabric#796, l3fwd-power).
    NoSecondLook,
    /// Arms all sources except this one.
    Unarmed(usize),
    /// The look after arming leaves this source out (brpc#3415, #3425).
    Unpolled(usize),
    /// Leaves this source readable when it wakes (SPDK #3350, #3552, #3771).
    Undrained(usize),
}

#[derive(Clone, Copy, Debug, Default)]
struct Source {
    queued: usize,
    armed: bool,
    readable: bool,
}

/// A stage's answer to a poll: its next poll time, from the present one, and the number of packets
/// it sends.
#[derive(Clone, Copy)]
struct Answer {
    next: fn(Tick) -> Next,
    sends: usize,
}

/// A stage that answers its polls in order.
struct Script {
    answers: Vec<Answer>,
    polling: Polling,
    /// The times of its polls, and its answers.
    polls: Vec<(Tick, Next)>,
}

impl Script {
    fn new(answers: &[Answer]) -> Script {
        Script { answers: answers.to_vec(), polling: Polling::EACH_LOOP, polls: Vec::new() }
    }

    /// Polls the stage. Returns whether the lcore counts that as busy.
    fn poll(&mut self, now_ns: Tick) -> bool {
        if self.polling != Polling::EACH_LOOP && self.polling.at().is_none_or(|due_ns| due_ns > now_ns) {
            return false;
        }
        let Answer { next, sends } =
            self.answers.get(self.polls.len()).copied().unwrap_or(Answer { next: |_| Next::Done, sends: 0 });
        let next = next(now_ns);
        self.polls.push((now_ns, next));
        self.polling = Polling::after(next);
        sends > 0 || next == Next::Busy
    }
}

const SOURCES: usize = 3;

struct Model {
    sources: [Source; SOURCES],
    stage: Script,
    coming: Vec<Arrival>,
    fault: Fault,
    /// Items that one turn takes from one source.
    burst: usize,
    now_ns: Tick,
    step: usize,
    /// Between arm and release of a sleep.
    in_sleep: bool,
    taken: usize,
    blocks: usize,
}

/// The token for the whole set, like the real one.
struct Token;

impl Model {
    fn new(coming: &[Arrival], fault: Fault, burst: usize) -> Model {
        Model {
            sources: [Source::default(); SOURCES],
            stage: Script::new(&[]),
            coming: coming.to_vec(),
            fault,
            burst,
            now_ns: 0,
            step: 0,
            in_sleep: false,
            taken: 0,
            blocks: 0,
        }
    }

    /// Lets the outside act, then time pass.
    fn tick(&mut self) {
        for arrival in &self.coming {
            let source = &mut self.sources[arrival.source];
            if arrival.step == self.step {
                source.queued += arrival.items;
            }
            if arrival.step + arrival.delay == self.step && source.armed {
                source.armed = false;
                source.readable = true;
            }
        }
        self.step += 1;
        self.now_ns += 10;
    }

    /// Whether anything is still to happen outside.
    fn pending(&self) -> bool {
        self.coming.iter().any(|arrival| arrival.step + arrival.delay >= self.step)
    }
}

impl Sleepable for Model {
    type Armed = Token;

    fn arm(&mut self) -> io::Result<Token> {
        self.in_sleep = true;
        for index in 0..SOURCES {
            self.tick();
            if self.fault != Fault::Unarmed(index) {
                self.sources[index].armed = true;
            }
        }
        Ok(Token)
    }

    fn turn(&mut self) -> Turn {
        let mut arrived = false;
        for index in 0..SOURCES {
            self.tick();
            let skipped = match self.fault {
                Fault::NoSecondLook => self.in_sleep && self.blocks == 0,
                Fault::Unpolled(unpolled) => self.in_sleep && self.blocks == 0 && unpolled == index,
                Fault::None | Fault::Unarmed(_) | Fault::Undrained(_) => false,
            };
            if !skipped {
                let taken = self.sources[index].queued.min(self.burst);
                self.sources[index].queued -= taken;
                self.taken += taken;
                arrived |= taken > 0;
            }
        }
        let busy = arrived | self.stage.poll(self.now_ns);
        Turn { now_ns: self.now_ns, busy, timer_ns: self.stage.polling.at(), batches: self.taken as u64 }
    }

    fn look(&mut self) -> bool {
        self.sources.iter().any(|source| source.queued > 0)
    }

    fn act(&mut self) {
        self.turn();
    }

    fn block(&mut self, _: Token, timeout_ns: u64) -> io::Result<(Fired, Token)> {
        let until_ns = self.now_ns + timeout_ns;
        self.blocks += 1;
        loop {
            self.tick();
            if self.sources.iter().any(|source| source.readable) {
                return Ok((Fired::Doorbell, Token));
            }
            if !self.pending() {
                self.now_ns = until_ns;
                return Ok((Fired::Nothing, Token));
            }
        }
    }

    fn release(&mut self, _: Token) -> io::Result<()> {
        self.in_sleep = false;
        self.blocks = 0;
        for (index, source) in self.sources.iter_mut().enumerate() {
            source.armed = false;
            source.readable &= self.fault == Fault::Undrained(index);
        }
        Ok(())
    }

    fn now_ns(&self) -> Tick {
        self.now_ns
    }

    fn control_calls(&self) -> bool {
        false
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Run {
    sleeps: usize,
    rescues: usize,
    /// Sleeps that ended without work, before the safety time-out.
    empty_wakes: usize,
    taken: usize,
}

/// Runs the loop of an lcore, until nothing has arrived for two safety time-outs.
fn drive(model: &mut Model, policy: IdlePolicy) -> Run {
    let mut idle = Idle::new(Budget { spin_ns: 60, dwell_ns: 90, ..Budget::none(policy) });
    let mut run = Run::default();
    let mut quiet_timeouts = 0;
    for _ in 0..10_000 {
        let turn = model.turn();
        if let Step::Sleep { timer_ns } = idle.after(turn) {
            let before = model.taken;
            match sleep(model, timer_ns).expect("the model never fails") {
                SleepOutcome::Stayed(_) => idle.stayed(),
                SleepOutcome::Slept { cause, rescued, asleep_ns } => {
                    idle.woke(model.now_ns, cause);
                    run.sleeps += 1;
                    run.rescues += usize::from(rescued);
                    let found = model.taken > before || model.sources.iter().any(|source| source.queued > 0);
                    run.empty_wakes += usize::from(!found && asleep_ns < SAFETY_TIMEOUT_NS);
                    quiet_timeouts += usize::from(!found && asleep_ns >= SAFETY_TIMEOUT_NS);
                }
            }
        }
        if quiet_timeouts >= 2 && model.stage.polling == Polling::DONE {
            break;
        }
    }
    run.taken = model.taken;
    run
}

/// Returns every schedule of one and of two arrivals whose steps cover a first sleep, from before
/// its arming to after its block.
fn schedules() -> Vec<Vec<Arrival>> {
    let mut singles = Vec::new();
    for source in 0..SOURCES {
        for step in 0..24 {
            for delay in [0, 1, 4] {
                singles.push(Arrival { source, items: 3, step, delay });
            }
        }
    }
    let mut all: Vec<Vec<Arrival>> = singles.iter().map(|&arrival| vec![arrival]).collect();
    for first in singles.iter().filter(|arrival| arrival.delay == 0) {
        all.extend(singles.iter().map(|&second| vec![*first, second]));
    }
    all
}

/// Whether some schedule reveals the fault.
fn shows(fault: Fault, seen: impl Fn(&Run) -> bool) -> bool {
    schedules().iter().any(|coming| seen(&drive(&mut Model::new(coming, fault, 2), IdlePolicy::Event)))
}

#[test]
fn nothing_is_slept_through_wherever_it_arrives() {
    for policy in [IdlePolicy::Event, IdlePolicy::Adaptive] {
        for coming in schedules() {
            // A burst smaller than an arrival: a queue that is drained only partly is found again
            // (ydb nbs#449).
            for burst in [1, 2, 8] {
                let run = drive(&mut Model::new(&coming, Fault::None, burst), policy);
                let items: usize = coming.iter().map(|arrival| arrival.items).sum();
                assert_eq!((run.taken, run.rescues), (items, 0), "{policy:?}, burst {burst}, {coming:?}: {run:?}");
                // An announcement that comes after its work was found ends at most one sleep early.
                assert!(run.empty_wakes <= coming.len(), "{policy:?}, burst {burst}, {coming:?}: {run:?}");
            }
        }
    }
}

#[test]
fn the_model_sees_a_missing_second_look() {
    assert!(shows(Fault::NoSecondLook, |run| run.rescues > 0));
}

#[test]
fn the_model_sees_each_source_that_is_armed_but_not_polled_again() {
    for source in 0..SOURCES {
        assert!(shows(Fault::Unpolled(source), |run| run.rescues > 0), "source {source}");
    }
}

#[test]
fn the_model_sees_each_source_that_is_not_armed() {
    for source in 0..SOURCES {
        assert!(shows(Fault::Unarmed(source), |run| run.rescues > 0), "source {source}");
    }
}

#[test]
fn the_model_sees_a_source_that_stays_readable() {
    for source in 0..SOURCES {
        assert!(shows(Fault::Undrained(source), |run| run.empty_wakes > 100), "source {source}");
    }
}

#[test]
fn a_stage_is_polled_when_it_asks_for_it_and_what_it_sends_then_is_no_rescue() {
    const NEXT: [fn(Tick) -> Next; 8] = [
        |_| Next::Idle,
        |_| Next::Busy,
        |_| Next::At(0),
        |_| Next::At(1),
        |now_ns| Next::At(now_ns),
        |now_ns| Next::At(now_ns + 500),
        |now_ns| Next::At(now_ns + SAFETY_TIMEOUT_NS / 2),
        |now_ns| Next::At(now_ns + 3 * SAFETY_TIMEOUT_NS),
    ];
    // An arming, a look, a wake-up and the turns of a budget.
    const SLACK_NS: u64 = 500;
    let answers: Vec<_> = NEXT.iter().flat_map(|&next| [0, 1].map(|sends| Answer { next, sends })).collect();
    for policy in [IdlePolicy::Event, IdlePolicy::Adaptive] {
        for (first, second) in answers.iter().flat_map(|first| answers.iter().map(move |second| (*first, *second))) {
            let mut model = Model::new(&[], Fault::None, 2);
            // The last answer sends as well, so that every answer is followed by another.
            let last = Answer { next: |_| Next::Done, sends: 1 };
            model.stage = Script::new(&[first, second, last]);
            let run = drive(&mut model, policy);
            let polls = &model.stage.polls;
            assert_eq!((polls.len(), run.rescues), (3, 0), "{policy:?}: {polls:?}, {run:?}");
            for pair in polls.windows(2) {
                let [(asked_ns, next), (polled_ns, _)] = *pair else { continue };
                let (earliest_ns, latest_ns) = match next {
                    Next::At(due_ns) => (due_ns, due_ns.max(asked_ns)),
                    Next::Idle => (asked_ns, asked_ns + SAFETY_TIMEOUT_NS),
                    Next::Busy | Next::Done => (asked_ns, asked_ns),
                };
                assert!(
                    (earliest_ns..=latest_ns + SLACK_NS).contains(&polled_ns),
                    "{policy:?}: asked for {next:?} at {asked_ns}, polled at {polled_ns}: {polls:?}"
                );
            }
        }
    }
}
