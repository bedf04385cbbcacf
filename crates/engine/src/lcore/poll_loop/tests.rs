//! An lcore's handling of time and links, to the nanosecond and to the event. Its clock advances
//! only while it sleeps.

use std::sync::{Arc, Mutex, PoisonError};

use proptest::prelude::*;
use rustix::io::Errno;
use verbline_mem::Batch;
use verbline_plan::IdlePolicy;
use verbline_ring::Waker;
use verbline_verbs::Transport;

use super::Lcore;
use super::turn_tests::add_many;
use crate::api::outputs::Outputs;
use crate::api::stage::{Next, PortChange, PortEvent, Stage};
use crate::control::notice::Notice;
use crate::control::run_control::Control;
use crate::idle::policy::Budget;
use crate::idle::sleep::SAFETY_TIMEOUT_NS;
use crate::lcore::rings::{PollOrder, RingConsumer};
use crate::ports::rx_half::Receiving;
use crate::ports::sink::Link;
use crate::rig::{Depths, Parts, Rig, port, sleep_in};
use crate::stats::clock::Tick;
use crate::stats::counter::shared;
use crate::stats::wakes::WakeCause;

/// A list shared between stage and test.
type Seen<T> = Arc<Mutex<Vec<T>>>;

fn take<T>(seen: &Seen<T>) -> Vec<T> {
    std::mem::take(&mut *seen.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Wants to be polled at these ticks in turn, and notes the time of each poll.
struct Alarms {
    ticks: Vec<Tick>,
    polls: Seen<Tick>,
}

impl Stage for Alarms {
    fn process(&mut self, _: &mut Batch, _: &mut Outputs<'_>) {}

    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        let mut polls = self.polls.lock().unwrap_or_else(PoisonError::into_inner);
        polls.push(out.now_ns());
        self.ticks.get(polls.len() - 1).map_or(Next::Done, |tick| Next::At(*tick))
    }
}

/// An lcore without ports that sleeps whenever it can.
fn sleeper(rig: &Rig, stage: Box<dyn Stage>) -> Lcore {
    let (waker, doorbell) = verbline_ring::doorbell().unwrap();
    let budget = Budget::none(IdlePolicy::Event);
    let parts = Parts { budget, ports: Vec::new(), sinks: Vec::new(), stage, source: None, doorbell, burst: 4 };
    rig.lcore(&Arc::new(Control::new(vec![waker])), parts).0
}

#[test]
fn a_stage_is_polled_at_the_tick_that_it_asked_for_and_not_a_nanosecond_later() {
    let rig = Rig::new(1);
    sleep_in(&rig.time);
    let ticks = vec![1, 2, 1_000, 1_001, 999_999_999, 1_000_000_000, 3_000_000_000 + SAFETY_TIMEOUT_NS];
    let polls = Seen::default();
    let mut lcore = sleeper(&rig, Box::new(Alarms { ticks: ticks.clone(), polls: Arc::clone(&polls) }));
    for _ in 0..64 {
        if !lcore.run_turn() {
            lcore.consider_sleep().unwrap();
        }
        if polls.lock().unwrap().len() > ticks.len() {
            break;
        }
    }
    assert_eq!(take(&polls), [vec![0], ticks].concat());
    let woken = |cause: WakeCause| lcore.state.ctx.stats.wakes[cause as usize].value();
    // The last tick is further away than the longest sleep, four times over.
    assert_eq!((woken(WakeCause::Timer), woken(WakeCause::Timeout)), (7, 3));
    assert_eq!(lcore.state.ctx.stats.asleep_ns.value(), rig.time.now_ns());
}

/// A receive queue that could not be filled is tried again though nothing arrives: neither a pool
/// that has packets again, nor a device that takes work requests again, announces itself.
#[test]
fn a_receive_queue_is_filled_as_soon_as_it_can_be_though_nothing_arrives() {
    const DEPTH: usize = 4;
    for the_pool_is_empty in [true, false] {
        let rig = Rig::new(DEPTH as u32);
        let source = rig.source();
        let depths = Depths { tx_wr: 1, rx_wr: DEPTH as u32, signal_every_wr: 1 };
        let mut qp = rig.pd.create_qp(&Rig::spec(&source.cq, Transport::Rc, depths, 0)).unwrap();
        rig.bring_up(&mut qp);
        let qpn = qp.qpn();
        let receiving = Receiving::new(0, Link::Sink(0), DEPTH, DEPTH, true);
        let (waker, doorbell) = verbline_ring::doorbell().unwrap();
        let parts = Parts {
            budget: Budget::none(IdlePolicy::Poll),
            ports: vec![port(0, qp, Some(receiving), None, None)],
            sinks: Vec::new(),
            stage: Box::new(Witness(Seen::default())),
            source: Some(source),
            doorbell,
            burst: DEPTH,
        };
        let (mut lcore, _) = rig.lcore(&Arc::new(Control::new(vec![waker])), parts);
        let elsewhere = rig.pool.cache(0);
        let mut held = Batch::with_capacity(DEPTH);
        if the_pool_is_empty {
            assert_eq!(elsewhere.get_bulk(&mut held, DEPTH), DEPTH);
        } else {
            rig.script.queues().take_only(0, Errno::NOMEM.raw_os_error());
        }
        for _ in 0..4 {
            lcore.run_turn();
        }
        assert_eq!(rig.script.queues().recvs(qpn).len(), 0);
        held.clear();
        rig.script.queues().take_all();
        rig.time.pass(1_000_000);
        for _ in 0..16 {
            lcore.run_turn();
        }
        assert_eq!(rig.script.queues().recvs(qpn).len(), DEPTH, "the pool was empty: {the_pool_is_empty}");
    }
}

/// Drops its packets, and rings its own lcore's doorbell, as an answered peer would.
struct Answered(Waker);

impl Stage for Answered {
    fn process(&mut self, input: &mut Batch, _: &mut Outputs<'_>) {
        input.clear();
        self.0.ring();
    }
}

/// A packet that arrives after the lcore has slept for the safety time-out, without a notification.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Unannounced {
    ByPort,
    ByRing,
}

#[test]
fn a_lost_wake_up_is_a_rescue_though_what_it_sets_off_is_announced() {
    for way in [Unannounced::ByPort, Unannounced::ByRing] {
        let rig = Rig::new(8);
        sleep_in(&rig.time);
        let source = rig.source();
        let depths = Depths { tx_wr: 1, rx_wr: 1, signal_every_wr: 1 };
        let mut qp = rig.pd.create_qp(&Rig::spec(&source.cq, Transport::Rc, depths, 0)).unwrap();
        rig.bring_up(&mut qp);
        let qpn = qp.qpn();
        let ports = vec![port(0, qp, Some(Receiving::new(0, Link::Sink(0), 1, 4, true)), None, None)];
        let (waker, doorbell) = verbline_ring::doorbell().unwrap();
        let control = Arc::new(Control::new(vec![waker.clone()]));
        let (budget, stage) = (Budget::none(IdlePolicy::Event), Box::new(Answered(waker)));
        let parts = Parts { budget, ports, sinks: Vec::new(), stage, source: Some(source), doorbell, burst: 4 };
        let (mut lcore, stage) = rig.lcore(&control, parts);
        let (mut producer, consumer) = verbline_ring::spsc(4);
        lcore.rings_in.push(RingConsumer {
            consumer,
            sink: 0,
            burst: 4,
            stats: shared(),
            displaced: None,
            order: PollOrder::default(),
        });
        let (time, packet) = (rig.time.clone(), lcore.state.ctx.caches[0].get());
        let mut packet = Some(packet.expect("the pool has some"));
        rig.script.on_poll(move |queues| {
            if time.now_ns() >= SAFETY_TIMEOUT_NS
                && let Some(packet) = packet.take()
            {
                match way {
                    Unannounced::ByPort => assert!(queues.receive(qpn, 64)),
                    Unannounced::ByRing => assert!(producer.push(packet).is_ok()),
                }
            }
        });
        for _ in 0..8 {
            if !lcore.run_turn() {
                lcore.consider_sleep().unwrap();
            }
        }
        let stats = &lcore.state.ctx.stats;
        assert_eq!((stage.packets_in.value(), stats.rescues.value()), (1, 1), "{way:?}");
    }
}

/// Notes its port events.
struct Witness(Seen<PortEvent>);

impl Stage for Witness {
    fn process(&mut self, input: &mut Batch, _: &mut Outputs<'_>) {
        input.clear();
    }

    fn port_event(&mut self, event: PortEvent, _: &mut Outputs<'_>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }
}

/// An lcore with two ports; its stage hears of both.
fn of_two_ports(rig: &Rig) -> (Lcore, Arc<Control>, Seen<PortEvent>) {
    let source = rig.source();
    let depths = Depths { tx_wr: 1, rx_wr: 1, signal_every_wr: 1 };
    let pair = |place| rig.pd.create_qp(&Rig::spec(&source.cq, Transport::Rc, depths, place)).unwrap();
    let ports = [0, 1].map(|place| port(place, pair(place), None, None, None)).into();
    let (waker, doorbell) = verbline_ring::doorbell().unwrap();
    let (control, told) = (Arc::new(Control::new(vec![waker])), Seen::default());
    let (budget, stage) = (Budget::none(IdlePolicy::Poll), Box::new(Witness(Arc::clone(&told))));
    let parts = Parts { budget, ports, sinks: Vec::new(), stage, source: Some(source), doorbell, burst: 4 };
    let (lcore, _) = rig.lcore(&control, parts);
    (lcore, control, told)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    /// A device may report a link's state more than once (ibv_get_async_event(3)), and reports
    /// nothing at the start, when its links are up.
    #[test]
    fn stages_are_told_of_a_link_when_it_changes_and_only_then(events in prop::collection::vec(any::<bool>(), 0..20)) {
        let rig = Rig::new(1);
        let (mut lcore, control, told) = of_two_ports(&rig);
        let mut is_up = true;
        for up in events {
            control.notify(0, Notice::LinkChanged { up });
            lcore.read_notices().unwrap();
            let change = if up { PortChange::LinkUp } else { PortChange::LinkDown };
            let expected = [0, 1].map(|port| PortEvent { port, change });
            prop_assert_eq!(take(&told), &expected[..if up == is_up { 0 } else { 2 }]);
            is_up = up;
            let link_down = |port: &crate::ports::single_port::Port| port.stats.link_down.value();
            prop_assert!(lcore.ports.iter().all(|port| link_down(port) == u64::from(!up)));
        }
    }
}

#[test]
fn the_link_under_a_port_with_many_connections_is_known_like_any_other() {
    let rig = Rig::new(1);
    let (mut lcore, control, told) = of_two_ports(&rig);
    // In the place of the second port, of which the stage hears.
    lcore.ports.pop();
    add_many(&rig, &mut lcore, None);
    lcore.state.many[0].index = 1;
    for (up, changes) in [(false, 2), (false, 0), (true, 2)] {
        control.notify(0, Notice::LinkChanged { up });
        lcore.read_notices().unwrap();
        let change = if up { PortChange::LinkUp } else { PortChange::LinkDown };
        assert_eq!(take(&told), &[0, 1].map(|port| PortEvent { port, change })[..changes]);
        assert_eq!(lcore.state.many[0].stats.link_down.value(), u64::from(!up));
    }
}
