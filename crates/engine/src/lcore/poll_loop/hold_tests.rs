//! Port and connection events for a stage that a ring holds back, and the fate of the packets that
//! it sends in answer.

use std::sync::{Arc, Mutex};

use verbline_mem::{ConnectionId, Packet};
use verbline_plan::IdlePolicy;
use verbline_ring::Consumer;
use verbline_verbs::Transport;

use super::Lcore;
use super::turn_tests::add_many;
use crate::api::outputs::{OutId, Output, Outputs};
use crate::api::stage::{PortChange, PortEvent, Stage};
use crate::connection::cm_mailbox::ToLcore;
use crate::connection::event::{ConnectionChange, ConnectionEvent};
use crate::connection::port_qp::PortQp;
use crate::control::notice::Notice;
use crate::control::run_control::Control;
use crate::errors::guarded::Guarded;
use crate::idle::policy::Budget;
use crate::lcore::node::{Node, NodeSpec};
use crate::lcore::rings::{Hold, PeerDoorbell, RingProducer};
use crate::lcore::waits::WaitsFor;
use crate::ports::sink::{Sink, SinkStats};
use crate::rig::{Depths, Parts, Rig, port};
use crate::stats::counter::{Shared, shared};
use crate::stats::counters::{RingProducerStats, StageStats};
use crate::stats::drop_reason::DropReason;

/// The packets of one call of the stage, and the room of its sink and of the ring.
const BURST: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    Port(PortChange),
    Connection(ConnectionChange),
}

/// Sends a burst for each event.
struct Answers(Arc<Mutex<Vec<Heard>>>);

impl Answers {
    fn answer(&mut self, heard: Heard, out: &mut Outputs<'_>) {
        self.0.lock().unwrap().push(heard);
        for _ in 0..BURST {
            let packet = out.alloc().expect("the pool has some");
            out.send(OutId(0), packet);
        }
    }
}

impl Stage for Answers {
    fn port_event(&mut self, event: PortEvent, out: &mut Outputs<'_>) {
        self.answer(Heard::Port(event.change), out);
    }

    fn connection_event(&mut self, event: ConnectionEvent, out: &mut Outputs<'_>) {
        self.answer(Heard::Connection(event.change), out);
    }
}

/// A port without queues, whose stage leads to a ring that holds it back.
struct World {
    lcore: Lcore,
    control: Arc<Control>,
    heard: Arc<Mutex<Vec<Heard>>>,
    ring: Consumer<Packet>,
    filled: Shared<RingProducerStats>,
    rig: Rig,
}

impl World {
    fn new() -> World {
        let rig = Rig::new(64);
        let source = rig.source();
        let depths = Depths { tx_wr: 1, rx_wr: 1, signal_every_wr: 1 };
        let qp = rig.pd.create_qp(&Rig::spec(&source.cq, Transport::Rc, depths, 0)).unwrap();
        let ports = vec![port(0, qp, None, None, None)];
        let (waker, doorbell) = verbline_ring::doorbell().unwrap();
        let control = Arc::new(Control::new(vec![waker]));
        let (heard, filled, stats) = (Arc::default(), shared::<RingProducerStats>(), shared::<StageStats>());
        let sinks = vec![Sink::new(BURST, DropReason::RingFull, SinkStats::Ring(Shared::clone(&filled)))];
        let (budget, stage) = (Budget::none(IdlePolicy::Poll), Box::new(Answers(Arc::default())));
        let parts = Parts { budget, ports, sinks, stage, source: Some(source), doorbell, burst: BURST };
        let (mut lcore, _) = rig.lcore(&control, parts);
        lcore.nodes[0] = Node::new(NodeSpec {
            name: "stage".into(),
            source: false,
            stats,
            stage: Guarded::new("stage", Box::new(Answers(Arc::clone(&heard)))),
            links: Box::new([Output::Sink(1)]),
            input: 0,
            cache: Some(0),
            batch_packets: 4 * BURST,
            waits_for: WaitsFor::default(),
            ports: Box::new([0]),
        });
        let (producer, ring) = verbline_ring::spsc(BURST);
        let stats = Shared::clone(&filled);
        lcore.rings_out.push(RingProducer { producer, sink: 1, doorbell: 0, stats, displacer: None });
        lcore.doorbells.push(PeerDoorbell { waker: verbline_ring::doorbell().unwrap().0, due: false });
        lcore.holds.push(Hold::new(1, Box::new([0])));
        World { lcore, control, heard, ring, filled, rig }
    }

    fn link(&self, up: bool) {
        self.control.notify(0, Notice::LinkChanged { up });
    }

    /// Lets the lcore do its work between two turns. Returns the stage's events.
    fn hear(&mut self) -> Vec<Heard> {
        self.lcore.read_notices().unwrap();
        std::mem::take(&mut self.heard.lock().unwrap())
    }

    /// The consumer empties the ring; then a turn. Returns the number taken.
    fn take(&mut self) -> usize {
        let taken = self.ring.pop_iter(BURST).count();
        self.lcore.run_turn();
        taken
    }

    fn dropped(&self) -> u64 {
        self.filled.drops.count(DropReason::RingFull)
    }
}

const DOWN: Heard = Heard::Port(PortChange::LinkDown);
const UP: Heard = Heard::Port(PortChange::LinkUp);

#[test]
fn a_stage_hears_of_a_port_once_it_may_run_and_what_it_sends_finds_room() {
    let mut world = World::new();
    [false, true, false, true].into_iter().for_each(|up| world.link(up));
    assert_eq!(world.hear(), [DOWN, UP], "there is room in the ring, and in front of it");
    for _ in 0..3 {
        world.lcore.run_turn();
        assert_eq!(world.hear(), [], "it is held back");
    }
    assert_eq!((world.take(), world.hear()), (BURST, vec![DOWN]));
    assert_eq!((world.take(), world.hear()), (BURST, vec![UP]));
    // A change undone and repeated while the stage is held back is told once.
    [false, true, false].into_iter().for_each(|up| world.link(up));
    assert_eq!(world.hear(), []);
    assert_eq!((world.take(), world.hear()), (BURST, vec![DOWN]));
    assert_eq!([(); 3].map(|()| (world.take(), world.hear())), [(BURST, vec![]), (BURST, vec![]), (0, vec![])]);
    assert_eq!(world.dropped(), 0);
}

#[test]
fn a_stage_hears_of_a_connection_once_it_may_run_and_what_it_sends_finds_room() {
    let mut world = World::new();
    // The port with many connections takes the port's place.
    world.lcore.ports.clear();
    let mailbox = add_many(&world.rig, &mut world.lcore, None);
    let source = world.rig.source();
    let depths = Depths { tx_wr: 1, rx_wr: 1, signal_every_wr: 1 };
    let mut qp = world.rig.pd.create_qp(&Rig::spec(&source.cq, Transport::Rc, depths, 0)).unwrap();
    world.rig.bring_up(&mut qp);
    let (qpn, connection) = (qp.qpn(), ConnectionId::new(0, 0, 1).unwrap());
    mailbox.tell_lcore(ToLcore::Expect { connection, qpn });
    mailbox.tell_lcore(ToLcore::Open { connection, qp: Box::new(PortQp::new(qp)), peer: None });
    world.link(false);
    world.link(true);
    assert_eq!(world.hear(), [DOWN, UP]);
    let serve = |world: &mut World| {
        world.lcore.handle_notice(Notice::Connections { port: 0 }).unwrap();
        world.hear()
    };
    for _ in 0..3 {
        assert_eq!(serve(&mut world), [], "it is held back");
    }
    assert_eq!((world.take(), serve(&mut world)), (BURST, vec![Heard::Connection(ConnectionChange::Opened)]));
    mailbox.tell_lcore(ToLcore::Close { connection, reason: "left" });
    assert_eq!(serve(&mut world), []);
    let heard = (world.take(), serve(&mut world));
    assert!(heard.0 == BURST && matches!(heard.1[..], [Heard::Connection(_)]), "{heard:?}");
    assert_eq!([world.take(), world.take(), world.take()], [BURST, BURST, 0]);
    assert_eq!(world.dropped(), 0);
}
