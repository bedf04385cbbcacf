//! The end of a run, on one thread: a real lcore that drains, and around it the owner, who looks
//! for quiet, a second lcore behind a ring, and a device.
//!
//! Whenever the lcore polls its completion queue, the world takes steps that a tape of bytes
//! chooses: the owner stops the run or looks for quiet, the second lcore takes a turn, a message
//! comes, a send completes. So the run is stopped in the middle of a turn as well. When the tape
//! ends, everybody makes progress, and the run must become quiet.
//!
//! Checked: once the owner has found quiet, the ring is empty, no completion is owed, and the lcore
//! drops nothing as it ends.

use std::sync::{Arc, Mutex, PoisonError};

use proptest::prelude::*;
use verbline_mem::{Batch, Packet};
use verbline_plan::IdlePolicy;
use verbline_ring::{Consumer, Quiet};
use verbline_verbs::scripted_device::Queues;
use verbline_verbs::{Status, Transport};

use crate::api::outputs::{OutId, Output, Outputs};
use crate::api::stage::Stage;
use crate::control::run_control::{Control, Phase};
use crate::errors::guarded::Guarded;
use crate::idle::policy::Budget;
use crate::lcore::node::{Node, NodeSpec};
use crate::lcore::poll_loop::Lcore;
use crate::lcore::rings::{PeerDoorbell, RingProducer};
use crate::lcore::waits::WaitsFor;
use crate::ports::rx_half::Receiving;
use crate::ports::sink::{Link, Sink, SinkStats};
use crate::ports::tx_half::Sending;
use crate::rig::{Depths, Parts, Rig, port};
use crate::stats::counter::{Shared, shared};
use crate::stats::counters::RingProducerStats;
use crate::stats::drop_reason::DropReason;

const BURST: usize = 4;
/// The sinks, behind the stage's own.
const PORT: usize = 1;
const RING: usize = 2;
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
}

impl Relay {
    fn hand_on(&mut self, packet: Packet, out: &mut Outputs<'_>) {
        out.send(OutId((self.handed_on % 2) as u16), packet);
        self.handed_on += 1;
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
            while queues.end_send(self.qpn, Status::SUCCESS).is_some() {}
            return self.owner_looks(queues);
        };
        // Often none: a slow thread is slow for several turns of the lcore.
        let steps = if steps < 128 { 0 } else { steps % 16 };
        for _ in 0..steps {
            match self.tape.next().unwrap_or(0) {
                0..80 => self.owner_looks(queues),
                drawn @ 80..180 => self.second_takes_a_turn(queues, drawn % 2 == 0),
                180..208 => _ = queues.end_send(self.qpn, Status::SUCCESS),
                // Messages from outside come before the stop.
                208.. if self.quiet.is_none() => self.message(queues),
                208.. => {}
            }
        }
    }

    fn message(&mut self, queues: &mut Queues) {
        if self.messages < MESSAGES_MAX && queues.receive(self.qpn, 64) {
            self.messages += 1;
        }
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
            self.message(queues);
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

fn run(depths: Depths, ring_depth: usize, holds_one: bool, tape: Vec<u8>) -> Vec<String> {
    let relay = || Box::new(Relay { handed_on: 0, holds_one });
    let rig = Rig::new(4 * (depths.tx_wr + depths.rx_wr) + 64);
    let source = rig.source();
    let mut qp = rig.pd.create_qp(&Rig::spec(&source.cq, Transport::Rc, depths, 0)).unwrap();
    rig.bring_up(&mut qp);
    let qpn = qp.qpn();
    let receiving = Receiving::new(0, Link::Sink(0), depths.rx_wr as usize, BURST, false);
    let sending = Sending::new(PORT, depths.signal_every_wr, depths.tx_wr as usize);
    let port = port(0, qp, Some(receiving), Some(sending), None);
    let (producer, ring) = verbline_ring::spsc(ring_depth);
    let ring_stats = shared::<RingProducerStats>();
    let sinks = vec![
        Sink::new(BURST, DropReason::TxFull, SinkStats::Port(Shared::clone(&port.stats))),
        Sink::new(BURST, DropReason::RingFull, SinkStats::Ring(Shared::clone(&ring_stats))),
    ];
    let [(waker, doorbell), (second, _second_doorbell)] = [(); 2].map(|()| verbline_ring::doorbell().unwrap());
    let control = Arc::new(Control::new(vec![waker, second.clone()]));
    let budget = Budget::none(IdlePolicy::Poll);
    let (ports, stage) = (vec![port], relay());
    let parts = Parts { budget, ports, sinks, stage, source: Some(source), doorbell, burst: BURST };
    let (mut lcore, stats) = rig.lcore(&control, parts);
    lcore.nodes = vec![Node::new(NodeSpec {
        name: "relay".into(),
        source: false,
        stats,
        stage: Guarded::new("relay", relay()),
        links: Box::new([Output::Sink(RING as u16), Output::Sink(PORT as u16)]),
        input: 0,
        cache: Some(0),
        batch_packets: BURST * 4,
        waits_for: WaitsFor::default(),
        ports: Box::new([0]),
    })];
    lcore.doorbells.push(PeerDoorbell { waker: second, due: false });
    lcore.rings_out.push(RingProducer { producer, sink: RING, doorbell: 0, stats: ring_stats, displacer: None });
    let faults = Arc::<Mutex<Vec<String>>>::default();
    let mut world = World {
        tape: tape.into_iter(),
        control,
        qpn,
        ring,
        drains: false,
        messages: 0,
        quiet: None,
        polls: 0,
        faults: Arc::clone(&faults),
    };
    rig.script.on_poll(move |queues| world.poll(queues));
    lcore.run().unwrap();
    stopped(&lcore, &faults);
    lcore.tear_down(|stage, said| panic!("{stage}: {said}"));
    std::mem::take(&mut *faults.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Records as faults the packets that the lcore would drop as it ends.
fn stopped(lcore: &Lcore, faults: &Mutex<Vec<String>>) {
    for (sink, place) in lcore.state.ctx.sinks.iter().zip(["stage", "port", "ring"]) {
        if !sink.batch.is_empty() {
            faults.lock().unwrap_or_else(PoisonError::into_inner).push(format!("a packet waits for the {place}"));
        }
    }
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
        tape in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        let faults = run(Depths { tx_wr, rx_wr, signal_every_wr }, ring_depth, holds_one, tape);
        prop_assert_eq!(faults, Vec::<String>::new());
    }
}
