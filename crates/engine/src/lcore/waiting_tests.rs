//! Things that wait on an lcore between two turns: the lcore neither sleeps through them, nor stays
//! awake for them, nor ends before them.

use std::sync::{Arc, Mutex, PoisonError};

use verbline_mem::ConnectionId;
use verbline_plan::IdlePolicy;
use verbline_ring::Quiet;
use verbline_verbs::{QpSpec, SharedReceiveQueue, SrqSpec, Transport};

use crate::api::outputs::Outputs;
use crate::api::stage::{Next, Stage};
use crate::connection::cm_mailbox::{CmMailbox, ToCm, ToLcore};
use crate::connection::port_qp::PortQp;
use crate::control::run_control::{Control, LcoreInbox, Phase};
use crate::idle::policy::Budget;
use crate::lcore::poll_loop::Lcore;
use crate::ports::multi_port::ManyReceiving;
use crate::ports::posting::STARVED_RETRY_NS;
use crate::ports::rx_half::Receiving;
use crate::ports::sink::Link;
use crate::rig::figures::WRONG;
use crate::rig::{Depths, Parts, Rig, many_port, sleep_in};
use crate::stats::clock::Tick;
use crate::stats::counter::Shared;
use crate::stats::counters::StageStats;
use crate::stats::drop_reason::DropReason;

const DEPTHS: Depths = Depths { tx_wr: 4, rx_wr: 4, signal_every_wr: 1 };

struct Silent;

impl Stage for Silent {}

/// Closes its connection in the poll at this tick, and sends nothing.
struct Closer {
    connection: ConnectionId,
    at_ns: Tick,
}

impl Stage for Closer {
    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        match out.now_ns() < self.at_ns {
            true => Next::At(self.at_ns),
            false => {
                assert!(out.close(self.connection));
                Next::At(Tick::MAX)
            }
        }
    }
}

/// An lcore with a port that may have one connection, which is about to be made.
struct Server {
    lcore: Lcore,
    control: Arc<Control>,
    mailbox: Arc<CmMailbox>,
    stage: Shared<StageStats>,
    connection: ConnectionId,
    qp: Option<Box<PortQp>>,
    qpn: u32,
}

impl Server {
    fn new(rig: &Rig, policy: IdlePolicy, stage: Box<dyn Stage>) -> Server {
        let source = rig.source();
        let srq = rig.pd.create_srq(&SrqSpec::new(Transport::Rc, DEPTHS.rx_wr)).unwrap();
        let spec = Rig::spec(&source.cq, Transport::Rc, DEPTHS, 0);
        let mut qp = rig.pd.create_qp(&QpSpec { srq: Some(&srq), ..spec }).unwrap();
        rig.bring_up(&mut qp);
        rig.script.queues().know(&qp);
        let (waker, doorbell) = verbline_ring::doorbell().unwrap();
        let control = Arc::new(Control::new(vec![waker]));
        let (budget, ports, sinks) = (Budget::none(policy), Vec::new(), Vec::new());
        let parts = Parts { budget, ports, sinks, stage, source: Some(source), doorbell, burst: 4 };
        let (mut lcore, stage) = rig.lcore(&control, parts);
        let inbox = LcoreInbox { control: Arc::clone(&control), lcore: 0 };
        let (port, mailbox) = many_port(inbox, 0, Some(receiving(srq)));
        lcore.state.many.push(port);
        lcore.works = Lcore::works(true, false);
        let (connection, qpn) = (ConnectionId::new(0, 0, 1).unwrap(), qp.qpn());
        mailbox.tell_lcore(ToLcore::Expect { connection, qpn });
        Server { lcore, control, mailbox, stage, connection, qp: Some(Box::new(PortQp::new(qp))), qpn }
    }

    fn opens(&mut self) -> ToLcore {
        ToLcore::Open { connection: self.connection, qp: self.qp.take().unwrap(), peer: None }
    }
}

fn receiving(srq: SharedReceiveQueue) -> ManyReceiving {
    let depth = DEPTHS.rx_wr as usize;
    ManyReceiving::new(Some(srq), Receiving::new(0, Link::Sink(0), depth, depth, false), depth, 1)
}

/// Regression: a turn without packets did not look for connections to close, and the lcore slept.
#[test]
fn a_connection_that_a_stage_closes_in_a_poll_is_closed_in_no_time() {
    const AT_NS: Tick = 1_000;
    const POLLS: usize = 100;
    let rig = Rig::new(8);
    sleep_in(&rig.time);
    let connection = ConnectionId::new(0, 0, 1).unwrap();
    let mut server = Server::new(&rig, IdlePolicy::Event, Box::new(Closer { connection, at_ns: AT_NS }));
    let opened = server.opens();
    server.mailbox.tell_lcore(opened);
    let Server { mut lcore, control, mailbox, .. } = server;
    let closed_ns = Arc::<Mutex<Vec<Tick>>>::default();
    let (noted, time, mut polls) = (Arc::clone(&closed_ns), rig.time.clone(), 0);
    rig.script.on_poll(move |_| {
        let mut said = Vec::with_capacity(4);
        mailbox.take_for_cm(&mut said);
        let over = said.iter().filter(|message| matches!(message, ToCm::Over { .. }));
        noted.lock().unwrap_or_else(PoisonError::into_inner).extend(over.map(|_| time.now_ns()));
        polls += 1;
        if polls == POLLS {
            control.advance(Phase::Ending);
        }
    });
    lcore.run().unwrap();
    assert_eq!(*closed_ns.lock().unwrap_or_else(PoisonError::into_inner), [AT_NS]);
}

/// Regression: the lcore stayed awake. Packets that return to a pool ring no doorbell.
#[test]
fn a_port_with_many_connections_looks_into_its_empty_pool_now_and_then_and_its_lcore_sleeps() {
    const LOOKS: u64 = 10;
    const POLLS_MAX: usize = 200;
    let rig = Rig::new(8);
    sleep_in(&rig.time);
    let Server { mut lcore, control, .. } = Server::new(&rig, IdlePolicy::Event, Box::new(Silent));
    let mut held: Vec<_> = std::iter::from_fn(|| lcore.state.ctx.caches[0].get()).collect();
    let (time, mut polls) = (rig.time.clone(), 0);
    rig.script.on_poll(move |_| {
        let looks = time.now_ns() / STARVED_RETRY_NS;
        if looks == LOOKS {
            held.clear();
        }
        polls += 1;
        if looks > LOOKS || polls == POLLS_MAX {
            control.advance(Phase::Ending);
        }
    });
    lcore.run().unwrap();
    let stats = &lcore.state.many[0].stats;
    let figures = [stats.rx_starved.value(), stats.rx_posted.value(), lcore.state.ctx.stats.sleeps.value()];
    // The last sleep begins with all receives posted.
    assert_eq!(figures, [LOOKS, DEPTHS.rx_wr.into(), LOOKS + 1]);
}

/// Regression: the drain lasted as long as it may, and had failed.
#[test]
fn receives_that_a_device_refuses_for_good_do_not_hold_up_a_drain() {
    let rig = Rig::new(8);
    let Server { mut lcore, control, .. } = Server::new(&rig, IdlePolicy::Poll, Box::new(Silent));
    rig.script.queues().take_only(0, WRONG);
    control.advance(Phase::Draining);
    let (time, ends) = (rig.time.clone(), Arc::clone(&control));
    let mut owner = Owner::new(&control);
    rig.script.on_poll(move |_| {
        time.pass(STARVED_RETRY_NS / 8);
        if owner.is_quiet() {
            ends.advance(Phase::Ending);
        }
    });
    lcore.run().unwrap();
    let drained_ns = rig.time.now_ns();
    assert!(drained_ns < 10 * STARVED_RETRY_NS, "{drained_ns} ns");
    assert_eq!(control.with(|progress| progress.undelivered), 0);
}

/// The owner of a run, who looks for quiet.
struct Owner {
    control: Arc<Control>,
    quiet: Quiet,
}

impl Owner {
    fn new(control: &Arc<Control>) -> Owner {
        let control = Arc::clone(control);
        Owner { quiet: Quiet::new(1, |lcore| control.pulses[lcore].read()), control }
    }

    fn is_quiet(&mut self) -> bool {
        let Owner { control, quiet } = self;
        quiet.look(|lcore| control.pulses[lcore].read())
    }
}

/// Regression: they were dropped as the run ended, which said that it was drained.
#[test]
fn a_drain_waits_for_the_connection_of_packets_that_came_before_it() {
    const OPENED_AFTER: usize = 50;
    const POLLS_MAX: usize = 1_000;
    for opens in [true, false] {
        let rig = Rig::new(8);
        let mut server = Server::new(&rig, IdlePolicy::Poll, Box::new(Silent));
        let mut opened = opens.then(|| server.opens());
        let Server { mut lcore, control, mailbox, stage, qpn, .. } = server;
        let (ends, mut owner, mut polls) = (Arc::clone(&control), None, 0);
        let time = rig.time.clone();
        rig.script.on_poll(move |queues| {
            polls += 1;
            match polls {
                3 => _ = queues.receive(qpn, 8),
                4 => {
                    ends.advance(Phase::Draining);
                    owner = Some(Owner::new(&ends));
                }
                OPENED_AFTER => opened.take().into_iter().for_each(|message| mailbox.tell_lcore(message)),
                _ => {}
            }
            time.pass(1_000_000);
            if owner.as_mut().is_some_and(Owner::is_quiet) || polls > 2 * POLLS_MAX {
                ends.advance(Phase::Ending);
            }
        });
        lcore.run().unwrap();
        let drops = Shared::clone(&lcore.state.many[0].stats);
        let undelivered = control.with(|progress| progress.undelivered);
        lcore.tear_down(|stage, said| panic!("{stage}: {said}"));
        let figures = [stage.packets_in.value(), drops.drops.count(DropReason::Stopped), undelivered as u64];
        assert_eq!(figures, if opens { [1, 0, 0] } else { [0, 1, 1] }, "opens: {opens}");
    }
}
