//! When a node is polled, whatever calls or holds it back meanwhile.

use super::*;
use crate::api::stage::PortChange;
use crate::errors::guarded::Guarded;
use crate::ports::sink::SinkStats;
use crate::rig::Rig;
use crate::stats::counter::shared;

/// A stage that answers its polls with this.
struct Answers(Next);

impl Stage for Answers {
    fn process(&mut self, input: &mut Batch, _: &mut Outputs<'_>) {
        input.clear();
    }

    fn poll(&mut self, _: &mut Outputs<'_>) -> Next {
        self.0
    }
}

fn node(next: Next) -> (Node, LcoreState) {
    let (rig, stats) = (Rig::new(1), shared::<StageStats>());
    let sink = || Sink::new(1, DropReason::StageFull, SinkStats::Stage(Shared::clone(&stats)));
    let state = rig.lcore_state(vec![sink(), sink()], 0);
    let node = Node::new(NodeSpec {
        name: "stage".into(),
        source: false,
        stats,
        stage: Guarded::new("stage", Box::new(Answers(next))),
        links: Box::new([]),
        input: 1,
        cache: None,
        batch_packets: 1,
        waits_for: WaitsFor::default(),
        ports: Box::new([0]),
    });
    (node, state)
}

const EVENT: PortEvent = PortEvent { port: 0, change: PortChange::Down };

#[test]
fn a_node_that_several_rings_hold_back_runs_again_after_the_last_of_them() {
    let (mut node, _) = node(Next::Idle);
    for rings in 1..5 {
        assert!((0..rings).all(|_| !node.hold(true)));
        let released: Vec<_> = (0..rings).map(|_| node.hold(false)).collect();
        assert_eq!(released.iter().position(|may_run| *may_run), Some(rings - 1), "{released:?}");
    }
}

#[test]
fn an_event_has_a_stage_polled_soon_unless_it_is_done_or_held_back() {
    let later = Polling::after(Next::At(1_000));
    for (next, before, behind) in
        [(Next::At(1_000), later, Polling::EACH_LOOP), (Next::Done, Polling::DONE, Polling::DONE)]
    {
        let (mut node, mut lcore) = node(next);
        node.poll::<false>(&mut lcore);
        assert_eq!(node.polling(), before);
        node.port_event(EVENT, &mut lcore);
        assert_eq!(node.polling(), behind);
    }
    let (mut node, mut lcore) = node(Next::At(1_000));
    node.poll::<false>(&mut lcore);
    node.hold(true);
    node.port_event(EVENT, &mut lcore);
    assert!(!node.polling().is_due(&lcore.ctx.time), "it is held back");
    assert!(node.hold(false));
    assert_eq!(node.polling(), Polling::EACH_LOOP, "what it heard meanwhile counts");
}
