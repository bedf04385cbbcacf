//! The end of a run, on one thread: a real lcore that drains, and around it the owner, who looks
//! for quiet, a second lcore behind a ring, a cm thread, and a device.
//!
//! Whenever the lcore polls its completion queue, the world takes steps that a tape of bytes
//! chooses: the owner stops the run or looks for quiet, the second lcore takes a turn, a message
//! comes, perhaps before its connection is open, the connection opens, a send or an operation
//! completes, a port with operations fails. So the run is stopped in the middle of a turn as well.
//! When the tape ends, everybody makes progress, and the run must become quiet.
//!
//! Checked: once the owner has found quiet, the ring is empty, no completion is owed, every
//! operation is back, and the lcore drops nothing as it ends.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use proptest::prelude::*;
use verbline_mem::{Batch, ConnectionId, Packet};
use verbline_plan::IdlePolicy;
use verbline_ring::{Consumer, Quiet};
use verbline_verbs::event::AsyncEventKind;
use verbline_verbs::rdma::Remote;
use verbline_verbs::scripted_device::Queues;
use verbline_verbs::{QpSpec, QueuePair, SrqSpec, Status, Transport};

use crate::api::outputs::{OutId, Output, Outputs};
use crate::api::stage::Stage;
use crate::connection::cm_mailbox::{CmMailbox, ToLcore};
use crate::connection::port_qp::PortQp;
use crate::control::notice::Notice;
use crate::control::run_control::{Control, LcoreInbox, Phase};
use crate::errors::guarded::Guarded;
use crate::idle::policy::Budget;
use crate::idle::wake_set::CqSource;
use crate::lcore::node::{Node, NodeSpec};
use crate::lcore::poll_loop::Lcore;
use crate::lcore::rings::{PeerDoorbell, RingProducer};
use crate::lcore::waits::{OperationPort, WaitsFor};
use crate::operations::operation::{Completed, Operation};
use crate::ports::multi_port::{ManyReceiving, MultiPort};
use crate::ports::rx_half::Receiving;
use crate::ports::sink::{Link, Sink, SinkStats};
use crate::ports::tx_half::Sending;
use crate::rig::{Depths, Parts, Rig, many_port, operation_queue, port};
use crate::stats::counter::{Shared, shared};
use crate::stats::counters::RingProducerStats;
use crate::stats::drop_reason::DropReason;

const BURST: usize = 4;
/// The sinks, behind the stage's own.
const PORT: usize = 1;
const RING: usize = 2;
/// The stage's output to the port.
const TO_PORT: OutId = OutId(1);
const PEER: Remote = Remote { addr: 4096, rkey: 7 };
/// The second lcore's place.
const SECOND: usize = 1;
/// The messages from outside and from the second lcore, at most.
const MESSAGES_MAX: usize = 40;
/// Polls after which the run must have become quiet.
const POLLS_MAX: usize = 20_000;

/// Hands packets on to the ring and to the port by turns.
struct Relay {
    handed_on: usize,
    /// Keeps one packet, and sends it when the run stops.
    holds_one: bool,
    /// The port's packets are the memory of operations; `None`: they are sent.
    operations: Option<Arc<AtomicUsize>>,
}

impl Relay {
    fn hand_on(&mut self, packet: Packet, out: &mut Outputs<'_>) {
        let to = OutId((self.handed_on % 2) as u16);
        self.handed_on += 1;
        match &self.operations {
            Some(under_way) if to == TO_PORT => {
                let taken = out.operate(to, Operation::write(packet, PEER)).is_ok();
                under_way.fetch_add(taken.into(), Ordering::Relaxed);
            }
            _ => _ = out.send(to, packet),
        }
    }
}

impl Stage for Relay {
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        for packet in input.drain_front(input.len()) {
            self.hand_on(packet, out);
        }
    }

    fn stop(&mut self, out: &mut Outputs<'_>) {
        if self.holds_one
            && let Some(packet) = out.alloc()
        {
            self.hand_on(packet, out);
        }
    }

    fn operations(&mut self, done: &mut Completed<'_>, _: &mut Outputs<'_>) {
        let back = std::iter::from_fn(|| done.pop()).count();
        self.operations.iter().for_each(|under_way| _ = under_way.fetch_sub(back, Ordering::Relaxed));
    }
}

/// Everything but the lcore.
struct World {
    tape: std::vec::IntoIter<u8>,
    control: Arc<Control>,
    qpn: u32,
    /// The second lcore's end of the ring.
    ring: Consumer<Packet>,
    /// The second lcore has read that the run drains.
    drains: bool,
    messages: usize,
    /// The queue pair of the connection, which the cm thread is about to open.
    door_qpn: u32,
    opens: Option<ToLcore>,
    mailbox: Arc<CmMailbox>,
    /// The port may fail: it carries out operations.
    may_fail: bool,
    /// The owner's look for quiet, from the stop on.
    quiet: Option<Quiet>,
    polls: usize,
    faults: Arc<Mutex<Vec<String>>>,
}

impl World {
    fn poll(&mut self, queues: &mut Queues) {
        self.polls += 1;
        let Some(steps) = self.tape.next() else {
            self.second_takes_a_turn(queues, false);
            while self.end_send(queues) {}
            self.open();
            return self.owner_looks(queues);
        };
        // Often none: a slow thread is slow for several turns of the lcore.
        let steps = if steps < 128 { 0 } else { steps % 16 };
        for _ in 0..steps {
            match self.tape.next().unwrap_or(0) {
                0..72 => self.owner_looks(queues),
                drawn @ 72..164 => self.second_takes_a_turn(queues, drawn % 2 == 0),
                164..200 => _ = self.end_send(queues),
                200..204 => self.open(),
                204 if self.may_fail => {
                    let event = AsyncEventKind::QpFatal;
                    self.control.notify(0, Notice::QpFailed { port: 0, qpn: self.qpn, event });
                }
                // Messages from outside come before the stop.
                205..236 if self.quiet.is_none() => self.message(self.qpn, queues),
                236.. if self.quiet.is_none() => self.message(self.door_qpn, queues),
                _ => {}
            }
        }
    }

    fn message(&mut self, qpn: u32, queues: &mut Queues) {
        let is_flushed = queues.in_error().contains(&qpn);
        if self.messages < MESSAGES_MAX && !is_flushed && queues.receive(qpn, 64) {
            self.messages += 1;
        }
    }

    fn open(&mut self) {
        self.opens.take().into_iter().for_each(|opens| self.mailbox.tell_lcore(opens));
    }

    /// Ends the port's oldest send, if there is one.
    fn end_send(&self, queues: &mut Queues) -> bool {
        let is_flushed = queues.in_error().contains(&self.qpn);
        queues.end_send(self.qpn, if is_flushed { Status::WR_FLUSH_ERR } else { Status::SUCCESS }).is_some()
    }

    /// Takes a burst, and may answer, in an active turn.
    fn second_takes_a_turn(&mut self, queues: &mut Queues, answers: bool) {
        let pulse = &self.control.pulses[SECOND];
        if self.quiet.is_some() && !self.drains {
            self.drains = true;
            pulse.beat(true);
        }
        let taken = self.ring.pop_iter(BURST).count();
        if taken > 0 && answers {
            self.message(self.qpn, queues);
        }
        if self.drains {
            self.control.pulses[SECOND].beat(taken > 0);
        }
    }

    fn owner_looks(&mut self, queues: &Queues) {
        let control = Arc::clone(&self.control);
        let read = |lcore: usize| control.pulses[lcore].read();
        let Some(quiet) = &mut self.quiet else {
            control.advance(Phase::Draining);
            self.quiet = Some(Quiet::new(control.pulses.len(), read));
            return;
        };
        if quiet.look(read) {
            self.expect(self.ring.is_empty(), "a packet is in the ring");
            let owed = queues.sends(self.qpn).iter().any(|send| send.signaled);
            self.expect(!owed, "a completion is owed");
            control.advance(Phase::Ending);
        } else if self.polls > POLLS_MAX {
            self.expect(false, "never quiet");
            control.advance(Phase::Ending);
        }
    }

    fn expect(&self, holds: bool, otherwise: &str) {
        if !holds {
            self.faults.lock().unwrap_or_else(PoisonError::into_inner).push(otherwise.to_owned());
        }
    }
}

/// The shape of a run.
#[derive(Clone, Copy, Debug)]
struct Shape {
    depths: Depths,
    ring_depth: usize,
    holds_one: bool,
    operates: bool,
}

fn run(shape: Shape, tape: Vec<u8>) -> Vec<String> {
    let Shape { depths, ring_depth, holds_one, operates } = shape;
    let under_way = Arc::<AtomicUsize>::default();
    let relay = || Box::new(Relay { handed_on: 0, holds_one, operations: operates.then(|| Arc::clone(&under_way)) });
    let rig = Rig::new(4 * (depths.tx_wr + 2 * depths.rx_wr) + 64);
    let source = rig.source();
    let mut qp = rig.pd.create_qp(&Rig::spec(&source.cq, Transport::Rc, depths, 0)).unwrap();
    rig.bring_up(&mut qp);
    let qpn = qp.qpn();
    let receiving = Receiving::new(0, Link::Sink(0), depths.rx_wr as usize, BURST, false);
    let half = Sending::new(PORT, depths.signal_every_wr, depths.tx_wr as usize);
    let half = if operates { half.with_operations(depths.tx_wr as usize) } else { half };
    let port = port(0, qp, Some(receiving), Some(half), None);
    let port_stats = Shared::clone(&port.stats);
    let to_port = match operates {
        true => SinkStats::Operations(Box::new(operation_queue(Shared::clone(&port_stats), depths.tx_wr as usize))),
        false => SinkStats::Port(Shared::clone(&port_stats)),
    };
    let (producer, ring) = verbline_ring::spsc(ring_depth);
    let ring_stats = shared::<RingProducerStats>();
    let sinks = vec![
        Sink::new(BURST, DropReason::TxFull, to_port),
        Sink::new(BURST, DropReason::RingFull, SinkStats::Ring(Shared::clone(&ring_stats))),
    ];
    let [(waker, doorbell), (second, _second_doorbell)] = [(); 2].map(|()| verbline_ring::doorbell().unwrap());
    let control = Arc::new(Control::new(vec![waker, second.clone()]));
    let (door_qp, door, mailbox) = door(&rig, &source, depths, &control);
    let (door_qpn, door_stats) = (door_qp.qpn(), Shared::clone(&door.stats));
    let opens = Some(ToLcore::Open { connection: connection(), qp: Box::new(PortQp::new(door_qp)), peer: None });
    let budget = Budget::none(IdlePolicy::Poll);
    let (ports, stage) = (vec![port], relay());
    let parts = Parts { budget, ports, sinks, stage, source: Some(source), doorbell, burst: BURST };
    let (mut lcore, stats) = rig.lcore(&control, parts);
    lcore.state.many.push(door);
    lcore.works = Lcore::works(true, false);
    if let Some((queue, _)) = lcore.state.operations_at(PORT) {
        queue.add_user(Shared::clone(&stats));
    }
    let operation_ports = if operates { vec![OperationPort { sink: PORT, user: 0 }] } else { Vec::new() };
    let operations_at_once = depths.tx_wr as usize;
    lcore.nodes = vec![Node::new(NodeSpec {
        name: "relay".into(),
        source: false,
        stats: Shared::clone(&stats),
        stage: Guarded::new("relay", relay()),
        links: Box::new([Output::Sink(RING as u16), Output::Sink(PORT as u16)]),
        input: 0,
        cache: Some(0),
        batch_packets: BURST * 4,
        waits_for: WaitsFor { ports: operation_ports, operations_at_once, ..WaitsFor::default() },
        ports: Box::new([0, 1]),
    })];
    lcore.doorbells.push(PeerDoorbell { waker: second, due: false });
    let filled = Shared::clone(&ring_stats);
    lcore.rings_out.push(RingProducer { producer, sink: RING, doorbell: 0, stats: filled, displacer: None });
    let faults = Arc::<Mutex<Vec<String>>>::default();
    let mut world = World {
        tape: tape.into_iter(),
        control: Arc::clone(&control),
        qpn,
        ring,
        drains: false,
        messages: 0,
        door_qpn,
        opens,
        mailbox,
        may_fail: operates,
        quiet: None,
        polls: 0,
        faults: Arc::clone(&faults),
    };
    rig.script.on_poll(move |queues| world.poll(queues));
    lcore.run().unwrap();
    lcore.tear_down(|stage, said| panic!("{stage}: {said}"));
    let mut faults = std::mem::take(&mut *faults.lock().unwrap_or_else(PoisonError::into_inner));
    let places = [&stats.drops, &port_stats.drops, &ring_stats.drops, &door_stats.drops];
    for (drops, place) in places.into_iter().zip(["stage", "port", "ring", "door"]) {
        if drops.count(DropReason::Stopped) > 0 {
            faults.push(format!("a packet waits for the {place}"));
        }
    }
    if under_way.load(Ordering::Relaxed) > 0 {
        faults.push("an operation is not back".to_owned());
    }
    if control.with(|progress| progress.undelivered) > 0 {
        faults.push("the run says that it was not drained".to_owned());
    }
    faults
}

/// The connection of the door.
fn connection() -> ConnectionId {
    ConnectionId::new(1, 0, 1).unwrap()
}

/// A port with a connection that is being made, its queue pair, and its cm thread's mailbox.
fn door(
    rig: &Rig,
    source: &CqSource,
    depths: Depths,
    control: &Arc<Control>,
) -> (QueuePair, MultiPort, Arc<CmMailbox>) {
    let srq = rig.pd.create_srq(&SrqSpec::new(Transport::Rc, depths.rx_wr)).unwrap();
    let spec = Rig::spec(&source.cq, Transport::Rc, depths, 1);
    let mut qp = rig.pd.create_qp(&QpSpec { srq: Some(&srq), ..spec }).unwrap();
    rig.bring_up(&mut qp);
    rig.script.queues().know(&qp);
    let receiving = Receiving::new(0, Link::Sink(0), depths.rx_wr as usize, BURST, false);
    let inbox = LcoreInbox { control: Arc::clone(control), lcore: 0 };
    let (port, mailbox) = many_port(inbox, 1, Some(ManyReceiving::new(Some(srq), receiving, BURST, 1)));
    mailbox.tell_lcore(ToLcore::Expect { connection: connection(), qpn: qp.qpn() });
    (qp, port, mailbox)
}

proptest! {
    // Half a second. An lcore that forgets its activity from before it read of the stop shows in
    // one run of a few hundred.
    #![proptest_config(ProptestConfig { cases: 5_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_run_ends_once_nothing_is_under_way(
        (tx_wr, signal_every_wr) in (1u32..9).prop_flat_map(|tx_wr| (Just(tx_wr), 1..=tx_wr)),
        rx_wr in 1u32..9,
        ring_depth in 1usize..5,
        holds_one: bool,
        operates: bool,
        tape in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        let depths = Depths { tx_wr, rx_wr, signal_every_wr };
        let faults = run(Shape { depths, ring_depth, holds_one, operates }, tape);
        prop_assert_eq!(faults, Vec::<String>::new());
    }
}
