//! When a stage's descriptors are looked at.

use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use verbline_mem::ConnectionId;

use super::*;
use crate::api::connection::ConnectionChange;
use crate::api::sink::{Sink, SinkStats};
use crate::api::stage::PortChange;
use crate::lcore::node::{Node, NodeSpec};
use crate::lcore::state::LcoreState;
use crate::rig::Rig;
use crate::stats::count::{Shared, shared};
use crate::stats::counters::StageStats;
use crate::stats::drop_reason::DropReason;
use crate::waiting::fds::FdInterest;

/// Wants to be polled in each turn, and leaves its descriptors as they are.
struct Awake;

impl Stage for Awake {
    fn process(&mut self, input: &mut Batch, _: &mut Outputs<'_>) {
        input.clear();
    }

    fn poll(&mut self, _: &mut Outputs<'_>) -> Next {
        Next::Idle
    }

    fn fd_ready(&mut self, _: FdReady, _: &mut Outputs<'_>) -> FdNext {
        FdNext::Watch
    }
}

/// A node whose stage has a descriptor that is ready for ever, to be looked at so often.
fn node(rig: &Rig, look_every: Option<Duration>) -> (Node, Shared<StageStats>, LcoreState) {
    let stats = shared::<StageStats>();
    let ready = eventfd(1, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
    let mut fds = Fds::new().unwrap();
    fds.watch(ready.as_fd(), FdInterest::Read, look_every).unwrap();
    let (stage, until) = Watching::new("stage", Guarded::new("stage", Box::new(Awake)), false, fds, None);
    let node = Node::new(NodeSpec {
        name: "stage".into(),
        source: false,
        stats: Shared::clone(&stats),
        stage: Guarded::new("stage", Box::new(stage)),
        operates: false,
        links: Box::new([]),
        input: 0,
        cache: None,
        batch_packets: 1,
        until: Some(until),
        watches: true,
        ports: Box::new([0]),
    });
    let sink = Sink::new(1, DropReason::StageFull, SinkStats::Stage(Shared::clone(&stats)));
    (node, stats, rig.lcore_state(vec![sink], 0))
}

#[test]
fn a_descriptor_is_looked_at_after_a_sleep_that_one_has_ended_and_otherwise_as_often_as_was_asked() {
    for (look_every, looks) in [(None, [0; 3]), (Some(Duration::from_nanos(10)), [0, 1, 2])] {
        let rig = Rig::new(1);
        let (mut node, stats, mut lcore) = node(&rig, look_every);
        let mut looks_in_turns = |node: &mut Node, turns: u32, turn_ns: u64| {
            let before = stats.fd_events.value();
            for _ in 0..turns {
                rig.time.pass(turn_ns);
                lcore.ctx.time.begin(false, true);
                node.poll(&mut lcore);
            }
            stats.fd_events.value() - before
        };
        assert_eq!(looks_in_turns(&mut node, 1, 0), 1, "at the start");
        assert_eq!([(4, 0), (5, 2), (6, 4)].map(|(turns, ns)| looks_in_turns(&mut node, turns, ns)), looks);
        node.wake();
        assert_eq!([1, 3].map(|turns| looks_in_turns(&mut node, turns, 0)), [1, 0], "once after the sleep");
    }
}

/// Notes what it is called for, and wants no polls of its own.
struct Told(Calls);

type Calls = Arc<Mutex<Vec<&'static str>>>;

impl Told {
    fn note(&self, call: &'static str) {
        self.0.lock().unwrap().push(call);
    }
}

impl Stage for Told {
    fn process(&mut self, input: &mut Batch, _: &mut Outputs<'_>) {
        self.note("process");
        input.clear();
    }

    fn poll(&mut self, _: &mut Outputs<'_>) -> Next {
        self.note("poll");
        Next::At(Tick::MAX)
    }

    fn fd_ready(&mut self, _: FdReady, _: &mut Outputs<'_>) -> FdNext {
        self.note("fd");
        FdNext::Watch
    }

    fn stop(&mut self, _: &mut Outputs<'_>) {
        self.note("stop");
    }

    fn port_event(&mut self, _: PortEvent, _: &mut Outputs<'_>) {
        self.note("port");
    }

    fn connection_event(&mut self, _: ConnectionEvent, _: &mut Outputs<'_>) {
        self.note("connection");
    }
}

/// A stage that watches a socket, whose other end is closed or has said something; what it was
/// called for; and that other end.
fn told(source: bool, closed: bool) -> (Watching, Calls, Option<UnixStream>) {
    let (own, mut other) = UnixStream::pair().unwrap();
    other.write_all(&[7]).unwrap();
    let mut fds = Fds::new().unwrap();
    fds.watch(own.as_fd(), FdInterest::Read, Some(Duration::ZERO)).unwrap();
    let calls = Calls::default();
    let stage: Guarded<dyn Stage> = Guarded::new("stage", Box::new(Told(Arc::clone(&calls))));
    (Watching::new("stage", stage, source, fds, None).0, calls, (!closed).then_some(other))
}

#[test]
fn a_stage_with_descriptors_hears_of_all_that_others_hear_of_and_is_polled_after_it() {
    let (rig, stats) = (Rig::new(1), shared::<StageStats>());
    let mut state = rig.lcore_state(Vec::new(), 0);
    let mut out = Outputs { links: &[], stats: &stats, lcore: &mut state, cache: 0, timers: None, sent: 0 };
    let (mut stage, calls, _other) = told(false, false);
    let said = || std::mem::take(&mut *calls.lock().unwrap());
    stage.poll(&mut out);
    assert_eq!(said(), ["fd", "poll"]);
    stage.poll(&mut out);
    assert_eq!(said(), ["fd", "poll"], "what it hears of a descriptor has it polled");
    let connection = ConnectionId::new(0, 0, 1).unwrap();
    stage.port_event(PortEvent { port: 0, change: PortChange::Down }, &mut out);
    stage.connection_event(ConnectionEvent { port: 0, connection, change: ConnectionChange::Opened }, &mut out);
    stage.process(&mut Batch::with_capacity(1), &mut out);
    stage.stop(&mut out);
    assert_eq!(said(), ["port", "connection", "process", "stop"]);
}

/// A source has no more to wait for once the run stops; another stage may have.
#[test]
fn the_descriptors_of_a_source_are_watched_until_it_is_stopped() {
    for source in [false, true] {
        let (rig, stats) = (Rig::new(1), shared::<StageStats>());
        let mut state = rig.lcore_state(Vec::new(), 0);
        let mut out = Outputs { links: &[], stats: &stats, lcore: &mut state, cache: 0, timers: None, sent: 0 };
        let (mut stage, calls, _other) = told(source, false);
        stage.stop(&mut out);
        stage.poll(&mut out);
        assert_eq!(calls.lock().unwrap().contains(&"fd"), !source);
    }
}

#[test]
fn a_descriptor_whose_other_end_is_closed_is_told_of_once_though_the_stage_would_watch_it() {
    let (rig, stats) = (Rig::new(1), shared::<StageStats>());
    let mut state = rig.lcore_state(Vec::new(), 0);
    let mut out = Outputs { links: &[], stats: &stats, lcore: &mut state, cache: 0, timers: None, sent: 0 };
    let (mut stage, _, _) = told(false, true);
    (0..4).for_each(|_| _ = stage.poll(&mut out));
    assert_eq!((stats.fd_events.value(), stats.fds_closed.value()), (1, 1));
}
