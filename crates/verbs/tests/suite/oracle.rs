//! Any sequence of posts, polls, drops and errors, against a model that only counts: every packet
//! is accounted for at every step, messages arrive in order and once, and at the end all packets
//! are back.

use std::collections::VecDeque;

use proptest::prelude::*;
use verbline_mem::{Batch, Packet};
use verbline_verbs::{Completion, PostStop, QpState, SendOptions, Transport, WrKind};

use crate::common::{Options, Side, message, pair};

#[derive(Clone, Debug)]
enum Step {
    /// Post this many receives at b.
    Recv(usize),
    /// Post this many messages of this length at a, signaled explicitly or at the QP's own
    /// interval.
    Send(usize, usize, bool),
    PollA,
    PollB,
    /// Drop the oldest received packets.
    Forget(usize),
    /// Bring a to ERR.
    Fail,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (1usize..20).prop_map(Step::Recv),
        4 => (1usize..20, prop_oneof![Just(0usize), 1usize..65, 65usize..512], any::<bool>())
            .prop_map(|(count, len, signaled)| Step::Send(count, len, signaled)),
        4 => Just(Step::PollA),
        4 => Just(Step::PollB),
        2 => (1usize..20).prop_map(Step::Forget),
        1 => Just(Step::Fail),
    ]
}

struct Model {
    transport: Transport,
    /// Messages sent and not yet received, by number.
    under_way: VecDeque<(u32, usize)>,
    next: u32,
    received: Vec<Packet>,
}

impl Model {
    /// Checks that a received packet is the oldest one in flight; UC and UD may have lost some
    /// before it.
    fn arrived(&mut self, packet: Packet) {
        loop {
            let (number, len) = self.under_way.pop_front().expect("it was sent");
            if packet.data() == message(number, len) {
                break;
            }
            assert_ne!(self.transport, Transport::Rc, "RC loses nothing and keeps the order");
        }
        self.received.push(packet);
    }
}

fn take(qp: &mut verbline_verbs::QueuePair, freed: &mut Batch, completion: &Completion) -> Option<Packet> {
    match completion.kind() {
        WrKind::Recv => Some(qp.recv_done(completion).unwrap()).filter(|_| completion.is_ok()),
        _ => {
            qp.send_done(completion, freed).unwrap();
            None
        }
    }
}

fn check(a: &Side, b: &Side, model: &Model) {
    a.cache.flush();
    b.cache.flush();
    // Inline sends hold a slot and no packet.
    assert!(a.pool.account().held as usize <= a.qp.sends_outstanding());
    assert_eq!(b.pool.account().held as usize, b.qp.recvs_outstanding() + model.received.len());
}

fn run(transport: Transport, signal_every_wr: u32, tx_depth_wr: u32, steps: &[Step]) {
    let options = Options { tx_depth_wr, rx_depth_wr: 16, signal_every_wr, packets: 96, ..Options::new(transport) };
    let (mut a, mut b) = pair(&options);
    let mut model = Model { transport, under_way: VecDeque::new(), next: 0, received: Vec::new() };
    for step in steps {
        match *step {
            Step::Recv(count) => {
                let mut batch = Batch::with_capacity(count);
                let got = b.cache.get_bulk(&mut batch, count);
                let room = b.qp.recv_room();
                let outcome = b.qp.post_recv(&mut batch);
                assert_eq!(outcome.posted, got.min(room));
                assert_eq!(batch.len(), got - outcome.posted);
            }
            Step::Send(count, len, signaled) => {
                let mut batch = Batch::with_capacity(count);
                for number in (model.next..).take(count) {
                    let Some(mut packet) = a.cache.get() else { break };
                    assert!(packet.fill(&message(number, len)));
                    batch.push(packet).unwrap();
                }
                let (made, room) = (batch.len(), a.qp.send_room());
                let options = SendOptions { signaled, ..SendOptions::default() };
                let outcome = a.qp.post_send_with(&mut batch, |_, _| options);
                assert_eq!(outcome.posted, made.min(room), "{outcome:?}");
                assert_eq!(outcome.stop, (made > room).then_some(PostStop::Full));
                assert_eq!(batch.len(), made - outcome.posted);
                if a.qp.state() == QpState::Rts {
                    model.under_way.extend((model.next..).take(outcome.posted).map(|number| (number, len)));
                }
                model.next += outcome.posted as u32;
            }
            Step::PollA => {
                a.poll(|qp, freed, completion| assert!(take(qp, freed, completion).is_none()));
            }
            Step::PollB => {
                b.poll(|qp, freed, completion| {
                    if let Some(packet) = take(qp, freed, completion) {
                        model.arrived(packet);
                    }
                });
            }
            Step::Forget(count) => drop(model.received.drain(..count.min(model.received.len()))),
            Step::Fail => a.qp.to_err().unwrap(),
        }
        check(&a, &b, &model);
    }
    for side in [&mut a, &mut b] {
        side.qp.start_drain().unwrap();
    }
    while !(a.qp.is_drained() && b.qp.is_drained()) {
        a.poll(|qp, freed, completion| drop(take(qp, freed, completion)));
        b.poll(|qp, freed, completion| {
            if let Some(packet) = take(qp, freed, completion) {
                model.arrived(packet);
            }
        });
        check(&a, &b, &model);
    }
    drop(model);
    a.assert_all_free();
    b.assert_all_free();
    assert_eq!((a.qp.counters().stale, b.qp.counters().stale), (0, 0));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn every_packet_is_accounted_for(
        transport in prop_oneof![Just(Transport::Rc), Just(Transport::Uc), Just(Transport::Ud)],
        signal_every_wr in 1u32..20,
        tx_depth_wr in 1u32..20,
        steps in prop::collection::vec(step(), 1..60),
    ) {
        run(transport, signal_every_wr, tx_depth_wr, &steps);
    }
}
