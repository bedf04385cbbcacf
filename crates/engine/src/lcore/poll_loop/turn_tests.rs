//! The work that a turn leaves for the next one, and the time that it is charged with.

use std::sync::Arc;

use verbline_mem::{Batch, ConnectionId};
use verbline_plan::IdlePolicy;
use verbline_verbs::Transport;
use verbline_verbs::expert::AttrMask;

use super::Lcore;
use crate::api::outputs::{OutId, Outputs};
use crate::api::stage::{Next, Stage};
use crate::connection::alternate::{Alternate, PathEnd};
use crate::connection::cm_mailbox::{CmMailbox, ToCm, ToLcore};
use crate::connection::port_qp::PortQp;
use crate::control::notice::Notice;
use crate::control::run_control::{Control, LcoreInbox, Phase};
use crate::idle::policy::Budget;
use crate::lcore::rings::{PeerDoorbell, RingProducer};
use crate::ports::multi_port::ManyReceiving;
use crate::ports::rx_half::Receiving;
use crate::ports::sink::{Link, Sink, SinkStats};
use crate::rig::{Depths, Parts, Rig, many_port, port, sleep_in};
use crate::stats::clock::told::Time;
use crate::stats::counter::{Shared, shared};
use crate::stats::counters::{RingProducerStats, StageStats};
use crate::stats::drop_reason::DropReason;
use crate::stats::sampling::PERIOD;

/// Takes its packets, and sends one packet in one poll of `every`, which takes some time.
struct Sporadic {
    time: Time,
    every: u64,
    polls: u64,
}

const RUNS_NS: u64 = 10;

impl Stage for Sporadic {
    fn process(&mut self, input: &mut Batch, _: &mut Outputs<'_>) {
        input.clear();
    }

    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        self.polls += 1;
        if self.polls.is_multiple_of(self.every) {
            self.time.pass(RUNS_NS);
            let packet = out.alloc().expect("the pool has some");
            assert!(out.send(OutId(0), packet));
        }
        Next::Idle
    }
}

/// An lcore without ports, with a [`Sporadic`] stage.
fn lcore(rig: &Rig, every: u64) -> (Lcore, Shared<StageStats>) {
    let (waker, doorbell) = verbline_ring::doorbell().unwrap();
    let stage = Box::new(Sporadic { time: rig.time.clone(), every, polls: 0 });
    let budget = Budget::none(IdlePolicy::Poll);
    let parts = Parts { budget, ports: Vec::new(), sinks: Vec::new(), stage, source: None, doorbell, burst: 4 };
    rig.lcore(&Arc::new(Control::new(vec![waker])), parts)
}

/// Adds a port with many connections, none of which is open yet. Returns the mailbox of its cm
/// thread, whose notices do not reach the lcore.
pub(super) fn add_many(rig: &Rig, lcore: &mut Lcore, receiving: Option<ManyReceiving>) -> Arc<CmMailbox> {
    let control = Arc::new(Control::new(vec![verbline_ring::doorbell().unwrap().0]));
    let (port, mailbox) = many_port(LcoreInbox { control, lcore: 0 }, 0, receiving);
    lcore.state.many.push(port);
    lcore.state.ctx.caches = vec![rig.pool.cache(0).bind()];
    lcore.works = Lcore::work::<true, false>;
    mailbox
}

#[test]
fn a_poll_is_charged_from_the_beginning_of_its_turn_and_not_from_the_idle_turns_before() {
    let rig = Rig::new(4);
    let (mut lcore, stats) = lcore(&rig, 7);
    for _ in 0..8_000 {
        rig.time.pass(1_000);
        lcore.run_turn();
    }
    // The same turn calls it with the packets it has sent, which takes no time here.
    let timed = stats.timed.value() / 2;
    assert!(timed > 20, "{timed}");
    assert_eq!(stats.cycles.value(), timed * RUNS_NS * PERIOD);
}

/// The ring's consumer rings no doorbell as it empties.
#[test]
fn a_ring_without_room_gets_the_rest_though_nothing_comes() {
    for beside_many in [false, true] {
        let rig = Rig::new(8);
        let (mut lcore, _) = lcore(&rig, u64::MAX);
        if beside_many {
            add_many(&rig, &mut lcore, None);
        }
        let stats = shared::<RingProducerStats>();
        let mut sink = Sink::new(4, DropReason::RingFull, SinkStats::Ring(Shared::clone(&stats)));
        for _ in 0..3 {
            assert!(sink.push(lcore.state.ctx.caches[0].get().unwrap()));
        }
        let at = lcore.state.ctx.sinks.len();
        lcore.state.ctx.sinks.push(sink);
        let (producer, mut consumer) = verbline_ring::spsc(2);
        lcore.rings_out.push(RingProducer { producer, sink: at, doorbell: 0, stats, displacer: None });
        lcore.doorbells.push(PeerDoorbell { waker: verbline_ring::doorbell().unwrap().0, due: false });
        for left in [1, 1, 1] {
            assert!(lcore.run_turn(), "it stays awake");
            assert_eq!(lcore.state.ctx.sinks[at].batch.len(), left);
        }
        assert!(consumer.pop().is_some());
        assert!(lcore.run_turn());
        assert_eq!((lcore.state.ctx.sinks[at].batch.len(), consumer.len()), (0, 2));
        assert!(!lcore.run_turn(), "nothing is left");
    }
}

/// A call of the policy reads the clock, which is a good part of an idle turn.
#[test]
fn an_adaptive_lcore_asks_whether_to_sleep_in_one_idle_turn_of_some_sixteen() {
    const TURNS: u64 = 3_200;
    let rig = Rig::new(4);
    sleep_in(&rig.time);
    let (waker, doorbell) = verbline_ring::doorbell().unwrap();
    let control = Arc::new(Control::new(vec![waker]));
    let (stage, source) = (Box::new(Sporadic { time: rig.time.clone(), every: u64::MAX, polls: 0 }), rig.source());
    let budget = Budget::none(IdlePolicy::Adaptive);
    let parts = Parts { budget, ports: Vec::new(), sinks: Vec::new(), stage, source: Some(source), doorbell, burst: 4 };
    let (mut lcore, _) = rig.lcore(&control, parts);
    let mut polls = 0;
    rig.script.on_poll(move |_| {
        polls += 1;
        if polls == TURNS {
            control.advance(Phase::Ending);
        }
    });
    lcore.run().unwrap();
    // The policy has no budget, so the lcore sleeps whenever it asks.
    let (sleeps, loops) = (lcore.state.ctx.stats.sleeps.value(), lcore.state.ctx.stats.loops.value());
    assert!((loops / 32..loops / 8).contains(&sleeps), "{sleeps} sleeps in {loops} turns");
}

/// One queue pair that gets more than it can take must not stop the others for ever.
#[test]
fn a_stopped_queue_pair_goes_on_though_completions_never_end() {
    const DEPTH: usize = 4;
    let rig = Rig::new(16);
    let source = rig.source();
    let most = u64::from(source.cq.depth_wc());
    let depths = Depths { tx_wr: 1, rx_wr: DEPTH as u32, signal_every_wr: 1 };
    let mut qp = rig.pd.create_qp(&Rig::spec(&source.cq, Transport::Rc, depths, 0)).unwrap();
    rig.bring_up(&mut qp);
    let qpn = qp.qpn();
    let ports = vec![port(0, qp, Some(Receiving::new(0, Link::Sink(0), DEPTH, DEPTH, false)), None, None)];
    let (waker, doorbell) = verbline_ring::doorbell().unwrap();
    let stage = Box::new(Sporadic { time: rig.time.clone(), every: u64::MAX, polls: 0 });
    let budget = Budget::none(IdlePolicy::Poll);
    let parts = Parts { budget, ports, sinks: Vec::new(), stage, source: Some(source), doorbell, burst: DEPTH };
    let (mut lcore, stats) = rig.lcore(&Arc::new(Control::new(vec![waker])), parts);
    while lcore.run_turn() {}
    // More completions than anybody may want to wait for here.
    let mut left = 4 * most;
    rig.script.on_poll(move |queues| {
        while left > 0 && queues.receive(qpn, 8) {
            left -= 1;
        }
    });
    lcore.handle_notice(Notice::SqStopped { port: 0, qpn }).unwrap();
    assert_eq!(stats.packets_in.value(), most, "as many as may have been there");
}

/// The present queue pair has kept its path.
#[test]
fn a_migration_of_the_queue_pair_before_swaps_no_paths() {
    let (rig, depths) = (Rig::new(1), Depths { tx_wr: 1, rx_wr: 1, signal_every_wr: 1 });
    let source = rig.source();
    let mut qp = rig.pd.create_qp(&Rig::spec(&source.cq, Transport::Rc, depths, 0)).unwrap();
    rig.bring_up(&mut qp);
    let (now, qpn) = (qp.query(AttrMask::AV | AttrMask::PORT | AttrMask::TIMEOUT).unwrap(), qp.qpn());
    let other = PathEnd { ah: now.ah, port: now.port, pkey_index: 0, timeout: now.timeout + 1 };
    let mut port = port(0, qp, None, None, None);
    port.alternate = Some(Box::new(Alternate::new(other)));
    port.arm_alternate().unwrap();
    let (mut lcore, _) = lcore(&rig, u64::MAX);
    lcore.ports.push(port);
    for (qpn, timeout) in [(qpn + 1, other.timeout), (qpn, now.timeout)] {
        lcore.handle_notice(Notice::PathMigrated { port: 0, qpn, is_done: true }).unwrap();
        let found = lcore.ports[0].qp.query(AttrMask::ALT_PATH).unwrap().alt_timeout;
        assert_eq!(found, timeout, "of the path that is not in use");
    }
}

/// Regression: an lcore that was kept from its CPU took one burst, and the rest went with the queue
/// pair, counted nowhere.
#[test]
fn all_that_has_come_of_a_connection_is_taken_before_it_is_released_by_force() {
    const DEPTH: usize = 8;
    let rig = Rig::new(16);
    let source = rig.source();
    let depths = Depths { tx_wr: 1, rx_wr: DEPTH as u32, signal_every_wr: 1 };
    let mut qp = rig.pd.create_qp(&Rig::spec(&source.cq, Transport::Rc, depths, 0)).unwrap();
    rig.bring_up(&mut qp);
    let (qpn, connection) = (qp.qpn(), ConnectionId::new(0, 0, 1).unwrap());
    let (waker, doorbell) = verbline_ring::doorbell().unwrap();
    let stage = Box::new(Sporadic { time: rig.time.clone(), every: u64::MAX, polls: 0 });
    let budget = Budget::none(IdlePolicy::Poll);
    let parts = Parts { budget, ports: Vec::new(), sinks: Vec::new(), stage, source: Some(source), doorbell, burst: 2 };
    let (mut lcore, _) = rig.lcore(&Arc::new(Control::new(vec![waker])), parts);
    let receiving = ManyReceiving::new(None, Receiving::new(0, Link::Drop, DEPTH, 2, false), 2, 1);
    let mailbox = add_many(&rig, &mut lcore, Some(receiving));
    let notice = Notice::Connections { port: 0 };
    mailbox.tell_lcore(ToLcore::Expect { connection, qpn });
    mailbox.tell_lcore(ToLcore::Open { connection, qp: Box::new(PortQp::new(qp)), peer: None });
    lcore.handle_notice(notice.clone()).unwrap();
    while lcore.run_turn() {}
    assert!((0..DEPTH).all(|_| rig.script.queues().receive(qpn, 8)));
    mailbox.tell_lcore(ToLcore::Close { connection, reason: "left" });
    mailbox.tell_lcore(ToLcore::Force { connection });
    for _ in 0..2 {
        lcore.handle_notice(notice.clone()).unwrap();
    }
    let mut said = Vec::new();
    mailbox.take_for_cm(&mut said);
    assert!(matches!(said[..], [ToCm::Released { .. }]), "{said:?}");
    while lcore.run_turn() {}
    let stats = &lcore.state.many[0].stats;
    assert_eq!((stats.rx_packets.value(), stats.stale.value()), (DEPTH as u64, 0));
}

/// A clock read is a good part of an idle turn.
#[test]
fn an_idle_lcore_reads_the_clock_in_one_turn_of_some_sixteen() {
    const TURNS: u64 = 3_200;
    let rig = Rig::new(4);
    let (mut lcore, _) = lcore(&rig, u64::MAX);
    let mut reads = 0;
    for _ in 0..TURNS {
        rig.time.pass(1);
        assert!(!lcore.run_turn());
        reads += u64::from(lcore.state.ctx.time.last_ns() == rig.time.now_ns());
    }
    assert!((TURNS * 2 / 3..TURNS * 3 / 2).contains(&(reads * PERIOD)), "{reads} readings in {TURNS} turns");
}
