//! A stage behind what hands operations back to it: when it is called, with what, and what its node
//! is told.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use verbline_verbs::rdma::Remote;

use super::*;
use crate::api::operations::Operation;
use crate::api::sink::{Sink, SinkStats};
use crate::api::stage::PortChange;
use crate::lcore::operation_queue::{OperationQueue, OperationsSpec};
use crate::lcore::state::LcoreState;
use crate::rig::Rig;
use crate::stats::count::{Shared, shared};
use crate::stats::counters::{PortStats, StageStats};
use crate::stats::operations::OperationStats;

/// What the stage was called for, and what it answers to its polls.
#[derive(Debug, Default)]
struct Seen {
    calls: Vec<&'static str>,
    answers: VecDeque<Next>,
    /// Whether it takes what is done.
    takes: bool,
}

struct Told(Arc<Mutex<Seen>>);

impl Told {
    fn note(&self, call: &'static str) {
        self.0.lock().unwrap().calls.push(call);
    }
}

impl Stage for Told {
    fn process(&mut self, input: &mut Batch, _: &mut Outputs<'_>) {
        self.note("process");
        input.clear();
    }

    fn poll(&mut self, _: &mut Outputs<'_>) -> Next {
        self.note("poll");
        self.0.lock().unwrap().answers.pop_front().expect("it is not to be polled")
    }

    fn operations(&mut self, done: &mut Completed<'_>, _: &mut Outputs<'_>) {
        self.note("operations");
        while self.0.lock().unwrap().takes && done.pop().is_some() {}
    }

    fn stop(&mut self, _: &mut Outputs<'_>) {
        self.note("stop");
    }

    fn port_event(&mut self, _: PortEvent, _: &mut Outputs<'_>) {
        self.note("port");
    }
}

/// The stage, and its only port, which is down as soon as it is asked.
struct World {
    stage: OperatingStage,
    seen: Arc<Mutex<Seen>>,
    stats: Shared<StageStats>,
    lcore: LcoreState,
    rig: Rig,
}

/// The only sink of the lcore: the port's.
const PORT: usize = 0;

impl World {
    fn new(source: bool, answers: &[Next]) -> World {
        let (rig, stats) = (Rig::new(8), shared::<StageStats>());
        let mut queue = OperationQueue::new(OperationsSpec {
            port: shared::<PortStats>(),
            stats: shared::<OperationStats>(),
            sends: 4,
            depth: 4,
            many: None,
            regions: Box::new([]),
            windows: Box::new([]),
            keys: Box::new([]),
        });
        let user = queue.add_user(Shared::clone(&stats));
        let lcore = rig.lcore_state(vec![Sink::new(4, DropReason::TxFull, SinkStats::Operations(Box::new(queue)))], 0);
        let seen = Arc::new(Mutex::new(Seen { answers: answers.iter().copied().collect(), ..Seen::default() }));
        let inner: Guarded<dyn Stage> = Guarded::new("inner", Box::new(Told(Arc::clone(&seen))));
        let stage = OperatingStage::new(inner, vec![Use { sink: PORT, user }], 4, source, None);
        World { stage, seen, stats, lcore, rig }
    }

    fn call<R>(&mut self, call: impl FnOnce(&mut OperatingStage, &mut Outputs<'_>) -> R) -> R {
        let World { stage, stats, lcore, .. } = self;
        call(stage, &mut Outputs { links: &[], stats, lcore, cache: 0, timers: None, sent: 0 })
    }

    /// A turn of the lcore, in which the node polls. What it is told, and for what the stage was
    /// called.
    fn poll(&mut self) -> (Next, Vec<&'static str>) {
        self.lcore.ctx.time.begin(false, true);
        let next = self.call(|stage, out| stage.poll(out));
        (next, std::mem::take(&mut self.seen.lock().unwrap().calls))
    }

    /// The stage asks for as many.
    fn ask(&mut self, count: usize) {
        for _ in 0..count {
            let operation = Operation::write(self.lcore.ctx.caches[0].get().unwrap(), Remote { addr: 0, rkey: 1 });
            let stats = Shared::clone(&self.stats);
            let (queue, sends) = self.lcore.operations_at(PORT).unwrap();
            queue.accept(&stats, sends, [operation]).unwrap();
        }
    }

    /// The port looks at what was asked for; and what it has comes back.
    fn look(&mut self) {
        self.lcore.operations_at(PORT).unwrap().0.is_fresh = false;
    }

    fn give_back(&mut self) {
        self.lcore.operations_at(PORT).unwrap().0.fail_waiting();
    }
}

#[test]
fn what_a_stage_leaves_of_its_operations_is_dropped_and_counted() {
    let mut world = World::new(false, &[Next::Idle; 2]);
    for (takes, unclaimed) in [(true, 0), (false, 2)] {
        world.seen.lock().unwrap().takes = takes;
        world.ask(2);
        world.give_back();
        assert_eq!(world.poll(), (Next::Idle, vec!["operations", "poll"]));
        assert_eq!(world.stats.drops.count(DropReason::Unclaimed), unclaimed);
        assert_eq!(world.rig.pool.account().held, 0);
    }
}

#[test]
fn whatever_calls_a_stage_that_waits_has_it_polled_at_once() {
    let later = Next::At(1_000);
    let mut world = World::new(false, &[later; 5]);
    assert_eq!(world.poll(), (later, vec!["poll"]));
    assert_eq!(world.poll(), (later, vec![]), "it is not due");
    world.call(|stage, out| stage.process(&mut Batch::with_capacity(1), out));
    assert_eq!(world.poll(), (later, vec!["process", "poll"]));
    let event = PortEvent { port: 0, change: PortChange::Down };
    world.call(|stage, out| stage.port_event(event, out));
    assert_eq!(world.poll(), (later, vec!["port", "poll"]));
    world.ask(1);
    world.give_back();
    assert_eq!(world.poll(), (later, vec!["operations", "poll"]));
    world.rig.time.pass(1_000);
    assert_eq!(world.poll(), (later, vec!["poll"]), "its tick has come");
}

#[test]
fn a_stage_with_operations_under_way_is_polled_each_turn_and_called_when_it_wants() {
    let mut world = World::new(false, &[Next::Busy, Next::Idle, Next::At(1_000), Next::At(1_000)]);
    assert_eq!(world.poll(), (Next::Busy, vec!["poll"]));
    assert_eq!(world.poll(), (Next::Idle, vec!["poll"]));
    world.ask(1);
    assert_eq!(world.poll(), (Next::Busy, vec!["poll"]), "the port has not looked at it");
    world.look();
    assert_eq!(world.poll(), (Next::Idle, vec![]), "the node polls, and the stage waits for its tick");
    world.give_back();
    assert_eq!(world.poll(), (Next::At(1_000), vec!["operations", "poll"]));
}

#[test]
fn a_source_that_is_done_ends_with_its_operations_and_is_not_polled_again() {
    let mut world = World::new(true, &[Next::Done]);
    world.ask(1);
    world.look();
    assert_eq!(world.poll(), (Next::Idle, vec!["poll"]), "one is under way");
    world.call(|stage, out| stage.process(&mut Batch::with_capacity(1), out));
    assert_eq!(world.poll(), (Next::Idle, vec!["process"]));
    world.give_back();
    assert_eq!(world.poll(), (Next::Done, vec!["operations"]));
    // What is no source has nothing to end.
    let mut world = World::new(false, &[Next::Done]);
    assert_eq!(world.poll(), (Next::At(Tick::MAX), vec!["poll"]));
}

#[test]
fn a_source_is_not_polled_once_it_was_stopped_and_another_stage_is() {
    let mut source = World::new(true, &[Next::Idle]);
    assert_eq!(source.poll(), (Next::Idle, vec!["poll"]));
    source.ask(1);
    source.look();
    source.call(|stage, out| stage.stop(out));
    assert_eq!(source.poll(), (Next::Idle, vec!["stop"]), "one is under way");
    source.give_back();
    assert_eq!(source.poll(), (Next::At(Tick::MAX), vec!["operations"]), "then nothing but what comes wakes it");
    let mut stage = World::new(false, &[Next::Idle; 2]);
    assert_eq!(stage.poll(), (Next::Idle, vec!["poll"]));
    stage.call(|stage, out| stage.stop(out));
    assert_eq!(stage.poll(), (Next::Idle, vec!["stop", "poll"]));
}
