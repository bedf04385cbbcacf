//! When a stage's descriptors are looked at.

use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

use super::*;
use crate::api::sink::{Sink, SinkStats};
use crate::lcore::context::LcoreContext;
use crate::lcore::node::{Node, NodeSpec};
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
fn node(rig: &Rig, look_every: Option<Duration>) -> (Node, Shared<StageStats>, LcoreContext) {
    let stats = shared::<StageStats>();
    let ready = eventfd(1, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
    let mut fds = Fds::new().unwrap();
    fds.watch(std::os::fd::AsFd::as_fd(&ready), FdInterest::Read, look_every).unwrap();
    let (stage, until) = Watching::new("stage", Box::new(Awake), false, fds, None);
    let node = Node::new(NodeSpec {
        name: "stage".into(),
        source: false,
        stats: Shared::clone(&stats),
        stage: Box::new(stage),
        operates: false,
        links: Box::new([]),
        input: 0,
        cache: None,
        batch_packets: 1,
        until: Some(until),
        watches: true,
    });
    let sink = Sink::new(1, DropReason::StageFull, SinkStats::Stage(Shared::clone(&stats)));
    (node, stats, rig.lcore_context(vec![sink], 0))
}

#[test]
fn a_descriptor_is_looked_at_after_a_sleep_that_one_has_ended_and_otherwise_as_often_as_was_asked() {
    for (look_every, looks) in [(None, [0; 3]), (Some(Duration::from_nanos(10)), [0, 1, 2])] {
        let rig = Rig::new(1);
        let (mut node, stats, mut ctx) = node(&rig, look_every);
        let mut looks_in_turns = |node: &mut Node, turns: u32, turn_ns: u64| {
            let before = stats.fd_events.value();
            for _ in 0..turns {
                rig.time.pass(turn_ns);
                ctx.time.begin(false, true);
                node.poll(&mut ctx);
            }
            stats.fd_events.value() - before
        };
        assert_eq!(looks_in_turns(&mut node, 1, 0), 1, "at the start");
        assert_eq!([(4, 0), (5, 2), (6, 4)].map(|(turns, ns)| looks_in_turns(&mut node, turns, ns)), looks);
        node.wake();
        assert_eq!([1, 3].map(|turns| looks_in_turns(&mut node, turns, 0)), [1, 0], "once after the sleep");
    }
}
