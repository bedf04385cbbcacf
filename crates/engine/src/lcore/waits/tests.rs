//! A stage that waits for timers, operations and descriptors: when it is called, with which
//! arguments, and when its node wants a turn.

mod finished;

use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use verbline_mem::{Batch, ConnectionId};
use verbline_verbs::rdma::Remote;

use super::*;
use crate::api::outputs::Output;
use crate::api::stage::{PortChange, PortEvent};
use crate::connection::event::{ConnectionChange, ConnectionEvent};
use crate::errors::guarded::{self, Guarded};
use crate::lcore::node::{Node, NodeSpec};
use crate::operations::operation::Operation;
use crate::ports::sink::{Sink, SinkStats};
use crate::ports::state::LcoreState;
use crate::rig::{Rig, operation_queue};
use crate::stats::counter::{Shared, shared};
use crate::waiting::fds::{FdInterest, FdNext, FdReady};

/// The calls of the stage, and its answers to them.
#[derive(Default)]
struct Seen {
    calls: Vec<&'static str>,
    /// Its answers to its polls.
    answers: std::collections::VecDeque<Next>,
    /// Whether it takes its completed operations.
    takes: bool,
    /// Panics with its first completed operation in hand.
    panics: bool,
    /// Arms a timer for this tick in its next call.
    arms_ns: Option<Tick>,
    refused: u32,
}

struct Told(Arc<Mutex<Seen>>);

impl Told {
    fn note(&self, call: &'static str, out: &mut Outputs<'_>) {
        let mut seen = self.0.lock().unwrap();
        seen.calls.push(call);
        if let Some(at_ns) = seen.arms_ns.take() {
            seen.refused += u32::from(out.arm_timer(at_ns, 7).is_none());
        }
    }
}

impl Stage for Told {
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        self.note("process", out);
        input.clear();
    }

    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        self.note("poll", out);
        let mut seen = self.0.lock().unwrap();
        seen.answers.pop_front().expect("it is not to be polled")
    }

    fn timers(&mut self, due: &[DueTimer], out: &mut Outputs<'_>) {
        assert!(due.iter().all(|due| due.tag == 7));
        self.note("timers", out);
    }

    fn fd_ready(&mut self, _: FdReady, out: &mut Outputs<'_>) -> FdNext {
        self.note("fd", out);
        FdNext::Watch
    }

    fn operations(&mut self, done: &mut Completed<'_>, out: &mut Outputs<'_>) {
        self.note("operations", out);
        if self.0.lock().unwrap().panics {
            let _first = done.pop();
            panic!("on purpose");
        }
        while self.0.lock().unwrap().takes && done.pop().is_some() {}
    }

    fn stop(&mut self, out: &mut Outputs<'_>) {
        self.note("stop", out);
    }

    fn port_event(&mut self, _: PortEvent, out: &mut Outputs<'_>) {
        self.note("port", out);
    }

    fn connection_event(&mut self, _: ConnectionEvent, out: &mut Outputs<'_>) {
        self.note("connection", out);
    }
}

/// The wait sources of the stage, beside its only port.
#[derive(Default)]
struct Has {
    source: bool,
    timers: u32,
    operations: bool,
    /// A socket that is always ready, and the interval of the looks at it.
    fd: Option<Option<Duration>>,
}

struct World {
    node: Node,
    lcore: LcoreState,
    seen: Arc<Mutex<Seen>>,
    stats: Shared<StageStats>,
    other: UnixStream,
    rig: Rig,
}

/// The stage's input, and the sink of the port.
const INPUT: usize = 0;
const PORT: usize = 1;

/// What the node wants after a turn.
const BUSY: (bool, Polling) = (true, Polling::EACH_LOOP);
const IDLE: (bool, Polling) = (false, Polling::EACH_LOOP);
const NEVER: (bool, Polling) = (false, Polling::FED);
const DONE: (bool, Polling) = (false, Polling::DONE);

fn at(tick: Tick) -> (bool, Polling) {
    (false, Polling::after(Next::At(tick)))
}

impl World {
    fn new(has: Has, answers: &[Next]) -> World {
        let (rig, stats) = (Rig::new(8), shared::<StageStats>());
        let mut queue = operation_queue(shared(), 4);
        let user = queue.add_user(Shared::clone(&stats));
        let sinks = vec![
            Sink::new(4, DropReason::StageFull, SinkStats::Stage(Shared::clone(&stats))),
            Sink::new(4, DropReason::TxFull, SinkStats::Operations(Box::new(queue))),
        ];
        let answers = answers.iter().copied().collect();
        let seen = Arc::new(Mutex::new(Seen { answers, ..Seen::default() }));
        let (own, mut other) = UnixStream::pair().unwrap();
        other.write_all(&[7]).unwrap();
        let fds = has.fd.map(|look_every| {
            let mut fds = Fds::new().unwrap();
            fds.watch(own.as_fd(), FdInterest::Read, look_every).unwrap();
            fds
        });
        let node = Node::new(NodeSpec {
            name: "stage".into(),
            source: has.source,
            stats: Shared::clone(&stats),
            stage: Guarded::new("stage", Box::new(Told(Arc::clone(&seen)))),
            links: Box::new([Output::Sink(PORT as u16)]),
            input: INPUT,
            cache: None,
            batch_packets: 4,
            waits_for: WaitsFor {
                timers: has.timers,
                timers_at_once: 4,
                ports: if has.operations { vec![OperationPort { sink: PORT, user }] } else { Vec::new() },
                operations_at_once: 4,
                fds,
            },
            ports: Box::new([0]),
        });
        World { node, lcore: rig.lcore_state(sinks, 0), seen, stats, other, rig }
    }

    fn operating(source: bool, answers: &[Next]) -> World {
        World::new(Has { source, operations: true, ..Has::default() }, answers)
    }

    /// Takes a turn. Returns what the node reports and wants, and the stage's calls.
    fn turn(&mut self) -> ((bool, Polling), Vec<&'static str>) {
        self.lcore.ctx.time.begin(false, true);
        let mut busy = false;
        if self.node.polling().is_due(&self.lcore.ctx.time) {
            busy = self.node.poll::<false>(&mut self.lcore);
        }
        ((busy, self.node.polling()), std::mem::take(&mut self.seen.lock().unwrap().calls))
    }

    fn process(&mut self) {
        assert!(self.lcore.ctx.sinks[INPUT].push(self.lcore.ctx.caches[0].get().unwrap()));
        self.node.process(&mut self.lcore);
    }

    fn hear(&mut self) {
        self.node.port_event(PortEvent { port: 0, change: PortChange::Down }, &mut self.lcore);
    }

    /// The stage asks for `count` operations.
    fn ask(&mut self, count: usize) {
        for _ in 0..count {
            let operation = Operation::write(self.lcore.ctx.caches[0].get().unwrap(), Remote { addr: 0, rkey: 1 });
            let stats = Shared::clone(&self.stats);
            let (queue, sends) = self.lcore.operations_at(PORT).unwrap();
            queue.accept(&stats, sends, [operation]).unwrap();
        }
    }

    /// The port looks at the new operations.
    fn look(&mut self) {
        self.lcore.operations_at(PORT).unwrap().0.is_fresh = false;
    }

    /// The port returns its operations.
    fn give_back(&mut self) {
        self.lcore.operations_at(PORT).unwrap().0.fail_waiting();
    }

    fn arm(&self, at_ns: Tick) {
        self.seen.lock().unwrap().arms_ns = Some(at_ns);
    }
}

/// Every stage with wait sources hears all that other stages hear, and is polled after each call.
#[test]
fn whatever_calls_a_stage_that_waits_has_it_polled_at_once() {
    let timed = || Has { timers: 4, ..Has::default() };
    let with_fd = || Has { fd: Some(None), ..Has::default() };
    let all = || Has { timers: 4, operations: true, fd: Some(None), source: false };
    let operating = || Has { operations: true, ..Has::default() };
    for has in [timed(), operating(), with_fd(), all()] {
        let (operates, watches) = (has.operations, has.fd.is_some());
        let mut world = World::new(has, &[Next::At(1_000); 9]);
        let calls: &[_] = if watches { &["stop", "fd", "poll"] } else { &["stop", "poll"] };
        assert_eq!(world.turn().1, calls[1..]);
        world.turn();
        assert_eq!(world.turn(), (at(1_000), vec![]), "it is not due");
        assert_eq!(world.node.due_ns(), Some(1_000));
        world.process();
        assert_eq!(world.turn().1, ["process", "poll"]);
        world.hear();
        assert_eq!(world.turn().1, ["port", "poll"]);
        let connection = ConnectionId::new(0, 0, 1).unwrap();
        let opened = ConnectionEvent { port: 0, connection, change: ConnectionChange::Opened };
        world.node.connection_event(opened, &mut world.lcore);
        assert_eq!(world.turn(), (at(1_000), vec!["connection", "poll"]));
        if operates {
            world.ask(1);
            world.give_back();
            world.node.connection_event(opened, &mut world.lcore);
            world.look();
            assert_eq!(world.turn(), (at(1_000), vec!["connection", "operations", "poll"]));
        }
        world.rig.time.pass(1_000);
        assert_eq!(world.turn().1, ["poll"], "its tick has come");
        world.node.stop(&mut world.lcore);
        assert_eq!(world.turn().1, calls);
        world.rig.time.pass(200_000);
        assert_eq!(world.turn().1, calls[1..], "an lcore that drains does not sleep, and looks by itself");
    }
}

#[test]
fn what_a_stage_leaves_of_its_operations_is_dropped_and_counted() {
    let mut world = World::operating(false, &[Next::Idle; 2]);
    for (takes, unclaimed) in [(true, 0), (false, 2)] {
        world.seen.lock().unwrap().takes = takes;
        world.ask(2);
        world.give_back();
        assert_eq!(world.turn(), (IDLE, vec!["operations", "poll"]));
        assert_eq!(world.stats.drops.count(DropReason::Unclaimed), unclaimed);
        assert_eq!(world.rig.pool.account().held, 0);
    }
    // Regression: those that a stage had not taken as it panicked were counted nowhere.
    world.seen.lock().unwrap().panics = true;
    world.ask(3);
    world.give_back();
    assert!(guarded::call(|| world.turn()).is_err());
    assert_eq!(world.stats.drops.count(DropReason::Stopped), 2);
    assert_eq!(world.rig.pool.account().held, 0);
}

#[test]
fn a_stage_with_operations_under_way_is_polled_each_turn_and_called_when_it_wants() {
    let mut world = World::operating(false, &[Next::Busy, Next::Idle, Next::At(1_000), Next::At(1_000)]);
    assert_eq!(world.turn(), (BUSY, vec!["poll"]));
    assert_eq!(world.turn(), (IDLE, vec!["poll"]));
    world.ask(1);
    assert_eq!(world.turn(), (BUSY, vec!["poll"]), "the port has not looked at it");
    world.look();
    assert_eq!(world.turn(), (IDLE, vec![]), "the node polls, and the stage waits for its tick");
    assert_eq!(world.node.due_ns(), Some(1_000), "the lcore may sleep until then");
    world.give_back();
    assert_eq!(world.turn(), (at(1_000), vec!["operations", "poll"]));
}

#[test]
fn a_source_is_not_polled_once_it_was_stopped_and_another_stage_is() {
    let mut source = World::operating(true, &[Next::Idle]);
    assert_eq!(source.turn(), (IDLE, vec!["poll"]));
    source.ask(1);
    source.look();
    source.node.stop(&mut source.lcore);
    assert_eq!(source.turn(), (IDLE, vec!["stop"]), "one is under way");
    source.give_back();
    assert_eq!(source.turn(), (NEVER, vec!["operations"]), "then nothing but what comes wakes it");
    let mut stage = World::operating(false, &[Next::Idle; 2]);
    assert_eq!(stage.turn(), (IDLE, vec!["poll"]));
    stage.node.stop(&mut stage.lcore);
    assert_eq!(stage.turn(), (IDLE, vec!["stop", "poll"]));
}

/// Any call may arm it, with or without operations to wait for.
#[test]
fn a_timer_that_any_call_arms_is_due_in_time_and_ends_a_sleep() {
    for operations in [false, true] {
        let has = Has { timers: 1, operations, ..Has::default() };
        let mut world = World::new(has, &[Next::At(Tick::MAX); 8]);
        assert_eq!(world.turn(), (NEVER, vec!["poll"]));
        assert_eq!(world.node.due_ns(), None);
        let (mut now_ns, calls): (_, [fn(&mut World); 2]) = (0, [World::process, World::hear]);
        for call in calls {
            world.arm(now_ns + 500);
            call(&mut world);
            assert_eq!(world.turn().0, at(now_ns + 500));
            assert_eq!(world.node.due_ns(), Some(now_ns + 500));
            world.rig.time.pass(499);
            assert_eq!(world.turn().1, Vec::<&str>::new());
            world.rig.time.pass(1);
            assert_eq!(world.turn(), (BUSY, vec!["timers", "poll"]));
            assert_eq!(world.turn(), (NEVER, vec![]));
            now_ns += 500;
        }
    }
}

#[test]
fn a_source_that_is_done_has_finished_once_no_timer_is_armed_and_gets_none_from_then_on() {
    let mut world = World::new(Has { source: true, timers: 2, ..Has::default() }, &[Next::Done]);
    world.arm(500);
    assert_eq!(world.turn(), (at(500), vec!["poll"]));
    world.rig.time.pass(500);
    assert_eq!(world.turn(), (BUSY, vec!["timers"]));
    assert_eq!((world.turn(), world.node.due_ns()), ((DONE, vec![]), None), "the lcore may sleep");
    world.arm(900);
    world.hear();
    assert_eq!(world.seen.lock().unwrap().refused, 1);
    assert_eq!(world.turn(), (DONE, vec!["port"]));
}

#[test]
fn a_descriptor_is_looked_at_after_a_sleep_that_one_has_ended_and_otherwise_as_often_as_was_asked() {
    for (look_every, looks) in [(None, [0; 3]), (Some(Duration::from_nanos(10)), [0, 1, 2])] {
        let mut world = World::new(Has { fd: Some(look_every), ..Has::default() }, &[Next::Idle; 40]);
        let looks_in_turns = |world: &mut World, turns: u32, turn_ns: u64| {
            let before = world.stats.fd_events.value();
            for _ in 0..turns {
                world.rig.time.pass(turn_ns);
                world.turn();
            }
            world.stats.fd_events.value() - before
        };
        assert_eq!(looks_in_turns(&mut world, 1, 0), 1, "at the start");
        assert_eq!([(4, 0), (5, 2), (6, 4)].map(|(turns, ns)| looks_in_turns(&mut world, turns, ns)), looks);
        world.node.wake();
        assert_eq!([1, 3].map(|turns| looks_in_turns(&mut world, turns, 0)), [1, 0], "once after the sleep");
    }
}

/// A ring that holds its producers back has no room for the stage's packets.
#[test]
fn a_sleep_that_a_descriptor_ends_has_no_stage_polled_that_a_ring_holds_back() {
    let mut world = World::new(Has { fd: Some(None), ..Has::default() }, &[Next::At(Tick::MAX); 3]);
    world.turn();
    world.turn();
    world.node.hold(true);
    world.node.wake();
    assert_eq!(world.turn(), (NEVER, vec![]));
    assert!(world.node.hold(false));
    assert_eq!(world.turn().1, ["fd", "poll"], "it has not forgotten");
}

/// A source has nothing to wait for once the run stops; another stage may.
#[test]
fn the_descriptors_of_a_source_are_watched_until_it_is_stopped() {
    for source in [false, true] {
        let has = Has { source, operations: true, fd: Some(Some(Duration::ZERO)), ..Has::default() };
        let mut world = World::new(has, &[Next::At(Tick::MAX); 3]);
        world.node.stop(&mut world.lcore);
        assert_eq!(world.turn().1.contains(&"fd"), !source);
    }
}

#[test]
fn a_descriptor_whose_other_end_is_closed_is_told_of_once_though_the_stage_would_watch_it() {
    let mut world = World::new(Has { fd: Some(Some(Duration::ZERO)), ..Has::default() }, &[Next::Idle; 4]);
    world.other = UnixStream::pair().unwrap().0;
    (0..4).for_each(|_| _ = world.turn());
    assert_eq!((world.stats.fd_events.value(), world.stats.fds_closed.value()), (1, 1));
}

#[test]
fn a_node_whose_stage_waits_for_nothing_has_none_of_this() {
    assert!(Waits::new("stage", false, WaitsFor::default()).is_none());
}
