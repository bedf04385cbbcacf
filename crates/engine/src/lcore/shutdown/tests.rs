//! An lcore that reads of its end late, or drains while something waits.

mod others;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use verbline_mem::Batch;
use verbline_plan::IdlePolicy;
use verbline_ring::Quiet;
use verbline_verbs::event::AsyncEventKind;
use verbline_verbs::rdma::Remote;
use verbline_verbs::scripted_device::Queues;
use verbline_verbs::{Status, Transport};

use crate::api::outputs::{OutId, Output, Outputs};
use crate::api::stage::Stage;
use crate::control::notice::Notice;
use crate::control::run_control::{Control, Phase};
use crate::errors::guarded::Guarded;
use crate::idle::policy::Budget;
use crate::lcore::node::{Node, NodeSpec};
use crate::lcore::poll_loop::Lcore;
use crate::lcore::rings::{PeerDoorbell, RingProducer};
use crate::lcore::waits::{OperationPort, WaitsFor};
use crate::operations::operation::{Completed, Operation};
use crate::ports::rx_half::Receiving;
use crate::ports::sink::{Link, Sink, SinkStats};
use crate::ports::tx_half::Sending;
use crate::rig::{Depths, Parts, Rig, operation_queue, port};
use crate::stats::counter::{Shared, shared};
use crate::stats::counters::{PortStats, RingProducerStats, StageStats};
use crate::stats::drop_reason::DropReason;

struct Silent;

impl Stage for Silent {}

/// The owner has gone from the drain to the end before the lcore looked. Without time for a drain,
/// the lcore tells its stages nothing more.
#[test]
fn an_lcore_without_a_drain_that_hears_of_the_end_first_ends() {
    const POLLS_MAX: usize = 1_000;
    let rig = Rig::new(64);
    let (waker, doorbell) = verbline_ring::doorbell().unwrap();
    let control = Arc::new(Control::new(vec![waker]));
    let budget = Budget::none(IdlePolicy::Poll);
    let (source, stage) = (Some(rig.source()), Box::new(Silent));
    let parts = Parts { budget, ports: vec![], sinks: vec![], stage, source, doorbell, burst: 4 };
    let (mut lcore, _) = rig.lcore(&control, parts);
    lcore.drain.budget_ns = 0;
    control.advance(Phase::Draining);
    control.advance(Phase::Ending);
    let polls = Arc::new(AtomicUsize::new(0));
    let (counted, ends) = (Arc::clone(&polls), Arc::clone(&control));
    rig.script.on_poll(move |_| {
        // Relaxed: this thread alone counts. An lcore that would go on for ever is sent a notice.
        if counted.fetch_add(1, Ordering::Relaxed) == POLLS_MAX {
            ends.notify(0, Notice::LetGo);
        }
    });
    lcore.run().unwrap();
    assert!(polls.load(Ordering::Relaxed) < POLLS_MAX, "it went on");
    lcore.tear_down(|stage, said| panic!("{stage}: {said}"));
}

/// Counts the operations that come back to it.
struct Operates(Arc<AtomicUsize>);

impl Stage for Operates {
    fn operations(&mut self, done: &mut Completed<'_>, _: &mut Outputs<'_>) {
        self.0.fetch_add(std::iter::from_fn(|| done.pop()).count(), Ordering::Relaxed);
    }
}

/// The node of a stage that may send to this sink; `operates`: it may ask for operations there.
fn node(stage: Box<dyn Stage>, stats: Shared<StageStats>, sink: usize, operates: bool) -> Node {
    let ports = if operates { vec![OperationPort { sink, user: 0 }] } else { Vec::new() };
    Node::new(NodeSpec {
        name: "stage".into(),
        source: false,
        stats,
        stage: Guarded::new("stage", stage),
        links: Box::new([Output::Sink(sink as u16)]),
        input: 0,
        cache: Some(0),
        batch_packets: 16,
        waits_for: WaitsFor { ports, operations_at_once: 4, ..WaitsFor::default() },
        ports: Box::new([0]),
    })
}

/// An lcore with one port, over RC and without an address, and what a test looks at.
struct OnePort {
    lcore: Lcore,
    control: Arc<Control>,
    qpn: u32,
    port: Shared<PortStats>,
    stage: Shared<StageStats>,
}

/// The kind of a send half.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Sends {
    Plain,
    /// With operations.
    AndOperates,
}

/// `[depth, every_wr]`: of the send half, whose sink is 1.
fn one_port(rig: &Rig, receives: bool, [depth, every_wr]: [u32; 2], sends: Sends) -> OnePort {
    let operates = sends == Sends::AndOperates;
    let source = rig.source();
    let depths = Depths { tx_wr: 8, rx_wr: 4, signal_every_wr: every_wr };
    let mut qp = rig.pd.create_qp(&Rig::spec(&source.cq, Transport::Rc, depths, 0)).unwrap();
    rig.bring_up(&mut qp);
    let qpn = qp.qpn();
    let sending = Sending::new(1, every_wr, depth as usize);
    let mut sending = if operates { sending.with_operations(4) } else { sending };
    sending.know_peers(None);
    let receiving = receives.then(|| Receiving::new(0, Link::Sink(0), 4, 4, false));
    let port = port(0, qp, receiving, Some(sending), None);
    let port_stats = Shared::clone(&port.stats);
    let sink_stats = match operates {
        true => SinkStats::Operations(Box::new(operation_queue(Shared::clone(&port_stats), 4))),
        false => SinkStats::Port(Shared::clone(&port_stats)),
    };
    let sinks = vec![Sink::new(4, DropReason::TxFull, sink_stats)];
    let (waker, doorbell) = verbline_ring::doorbell().unwrap();
    let control = Arc::new(Control::new(vec![waker]));
    let (budget, stage) = (Budget::none(IdlePolicy::Poll), Box::new(Silent));
    let parts = Parts { budget, ports: vec![port], sinks, stage, source: Some(source), doorbell, burst: 4 };
    let (lcore, stage) = rig.lcore(&control, parts);
    OnePort { lcore, control, qpn, port: port_stats, stage }
}

impl OnePort {
    /// Puts packets into the port's batch.
    fn offer(&mut self, packets: usize) {
        for _ in 0..packets {
            let mut packet = self.lcore.state.ctx.caches[0].get().unwrap();
            assert!(packet.set_len(8) && self.lcore.state.ctx.sinks[1].push(packet));
        }
    }
}

/// A port without an address has failed in the drain, with an operation or a packet posted.
/// Regression: the run was over before its queue pair had flushed it, and again where the send was
/// not signaled.
#[test]
fn a_drain_waits_for_the_work_of_a_port_that_is_down() {
    for (operates, is_flushed, every_wr) in
        [(true, true, 1), (true, false, 1), (false, true, 1), (false, false, 1), (false, true, 8), (false, false, 8)]
    {
        let rig = Rig::new(8);
        let sends = if operates { Sends::AndOperates } else { Sends::Plain };
        let mut one = one_port(&rig, false, [4, every_wr], sends);
        let back = Arc::<AtomicUsize>::default();
        let stage = Box::new(Operates(Arc::clone(&back)));
        one.lcore.nodes = vec![node(stage, Shared::clone(&one.stage), 1, operates)];
        if operates {
            let mut packet = one.lcore.state.ctx.caches[0].get().unwrap();
            assert!(packet.set_len(8));
            let (queue, _) = one.lcore.state.operations_at(1).unwrap();
            queue.add_user(Shared::clone(&one.stage));
            queue.accept(&one.stage, 0, [Operation::write(packet, Remote { addr: 4096, rkey: 7 })]).unwrap();
        } else {
            one.offer(1);
        }

        let OnePort { mut lcore, control, qpn, port, .. } = one;
        let ends = Arc::clone(&control);
        drain_in_polls(&rig, &control, move |poll, queues| match poll {
            Poll::Drains => ends.notify(0, Notice::QpFailed { port: 0, qpn, event: AsyncEventKind::QpFatal }),
            Poll::Later if is_flushed => while queues.end_send(qpn, Status::WR_FLUSH_ERR).is_some() {},
            Poll::Later => {}
        });
        lcore.run().unwrap();
        let undelivered = control.with(|progress| progress.undelivered);
        lcore.tear_down(|stage, said| panic!("{stage}: {said}"));
        let [stopped, failed] = [DropReason::Stopped, DropReason::SendError].map(|why| port.drops.count(why));
        let figures = (back.load(Ordering::Relaxed), undelivered, stopped, failed);
        let expected = match (operates, is_flushed) {
            (true, true) => (1, 0, 0, 0),
            (true, false) => (0, 1, 1, 0),
            (false, true) => (0, 0, 0, 1),
            (false, false) => (0, 1, 1, 0),
        };
        assert_eq!(figures, expected, "operates: {operates}, is_flushed: {is_flushed}, {every_wr}");
    }
}

/// The polls of a drain in which a device does something.
#[derive(Clone, Copy, PartialEq)]
enum Poll {
    /// The drain begins.
    Drains,
    /// The lcore has been draining for a while.
    Later,
}

/// Makes a run drain after some polls of the device, and end once it is quiet, or after more than
/// any drain takes.
fn drain_in_polls(rig: &Rig, control: &Arc<Control>, mut at: impl FnMut(Poll, &mut Queues) + Send + 'static) {
    const POLLS_MAX: usize = 5_000;
    let (ends, time, mut quiet, mut polls) = (Arc::clone(control), rig.time.clone(), None, 0);
    rig.script.on_poll(move |queues| {
        polls += 1;
        let read = |lcore: usize| ends.pulses[lcore].read();
        match polls {
            3 => {
                ends.advance(Phase::Draining);
                at(Poll::Drains, queues);
            }
            4 => quiet = Some(Quiet::new(1, read)),
            50 => at(Poll::Later, queues),
            _ => {}
        }
        time.pass(1_000_000);
        if quiet.as_mut().is_some_and(|quiet| quiet.look(read)) || polls > POLLS_MAX {
            ends.advance(Phase::Ending);
        }
    });
}

/// Three sends are out as the drain begins, none of them signaled, and their peer has them late or
/// never. Regression: the run said that it was drained; on a port with operations, which signals
/// the last send of each list, they were not among the drops.
#[test]
fn a_drain_waits_for_sends_that_are_not_signaled() {
    let kinds = [Sends::Plain, Sends::AndOperates];
    for (sends, arrives) in kinds.map(|kind| [(kind, true), (kind, false)]).into_iter().flatten() {
        let rig = Rig::new(8);
        let mut one = one_port(&rig, false, [8, 8], sends);
        one.offer(3);
        let OnePort { mut lcore, control, qpn, port, .. } = one;
        drain_in_polls(&rig, &control, move |poll, queues| {
            while poll == Poll::Later && arrives && queues.end_send(qpn, Status::SUCCESS).is_some() {}
        });
        lcore.run().unwrap();
        let undelivered = control.with(|progress| progress.undelivered);
        let sent = (port.tx_packets.value(), lcore.ports[0].qp.sends_outstanding());
        lcore.tear_down(|stage, said| panic!("{stage}: {said}"));
        let markers = usize::from(sends == Sends::Plain);
        let expected = if arrives { ((3, 0), 0, 0) } else { ((3, 3 + markers), 1, 3) };
        let figures = (sent, undelivered, port.drops.count(DropReason::Stopped));
        assert_eq!(figures, expected, "{sends:?}, arrives: {arrives}");
    }
}

/// Regression: a drain lasted for its whole budget while captures came and went.
#[test]
fn captures_that_come_and_go_keep_no_drain_from_being_quiet() {
    let rig = Rig::new(8);
    let OnePort { mut lcore, control, .. } = one_port(&rig, true, [8, 8], Sends::Plain);
    let (mut quiet, mut polls) = (Quiet::new(1, |_| control.pulses[0].read()), 0);
    control.advance(Phase::Draining);
    rig.script.on_poll(move |_| {
        (polls, _) = (polls + 1, control.notify(0, Notice::Watch));
        assert!(polls < 100, "it is never quiet");
        quiet.look(|_| control.pulses[0].read()).then(|| control.advance(Phase::Ending));
    });
    lcore.run().unwrap();
    lcore.tear_down(|stage, said| panic!("{stage}: {said}"));
}

/// Hands everything on.
struct HandsOn;

impl Stage for HandsOn {
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        out.send_batch(OutId(0), input);
    }
}

/// An lcore whose drain is over gets a packet from one that has longer, and a full ring is in its
/// way. Regression: the run said that it was drained.
#[test]
fn what_comes_after_an_lcore_has_drained_and_is_left_shows() {
    let rig = Rig::new(8);
    let source = rig.source();
    let depths = Depths { tx_wr: 1, rx_wr: 4, signal_every_wr: 1 };
    let mut qp = rig.pd.create_qp(&Rig::spec(&source.cq, Transport::Rc, depths, 0)).unwrap();
    rig.bring_up(&mut qp);
    let qpn = qp.qpn();
    let port = port(0, qp, Some(Receiving::new(0, Link::Sink(0), 4, 4, false)), None, None);
    let ring_stats = shared::<RingProducerStats>();
    let sinks = vec![Sink::new(4, DropReason::RingFull, SinkStats::Ring(Shared::clone(&ring_stats)))];
    let (waker, doorbell) = verbline_ring::doorbell().unwrap();
    let control = Arc::new(Control::new(vec![waker]));
    let (budget, stage) = (Budget::none(IdlePolicy::Poll), Box::new(Silent));
    let parts = Parts { budget, ports: vec![port], sinks, stage, source: Some(source), doorbell, burst: 4 };
    let (mut lcore, stats): (Lcore, _) = rig.lcore(&control, parts);
    lcore.nodes = vec![node(Box::new(HandsOn), stats, 1, false)];
    let (mut producer, _consumer) = verbline_ring::spsc(1);
    assert!(producer.push(lcore.state.ctx.caches[0].get().unwrap()).is_ok());
    lcore.doorbells.push(PeerDoorbell { waker: verbline_ring::doorbell().unwrap().0, due: false });
    let stats = Shared::clone(&ring_stats);
    lcore.rings_out.push(RingProducer { producer, sink: 1, doorbell: 0, stats, displacer: None });
    lcore.drain.budget_ns = 0;
    while lcore.run_turn() {}
    control.advance(Phase::Draining);
    let (ends, mut polls) = (Arc::clone(&control), 0);
    rig.script.on_poll(move |queues| {
        polls += 1;
        match polls {
            10 => _ = queues.receive(qpn, 8),
            20 => ends.advance(Phase::Ending),
            _ => {}
        }
    });
    lcore.run().unwrap();
    assert_eq!(control.with(|progress| [progress.undelivered, progress.left_late]), [0, 1]);
    lcore.tear_down(|stage, said| panic!("{stage}: {said}"));
    assert_eq!(ring_stats.drops.count(DropReason::Stopped), 1);
}

/// An lcore that sends on what it receives, and is to drain.
fn hands_on(rig: &Rig) -> OnePort {
    let mut one = one_port(rig, true, [8, 8], Sends::Plain);
    one.lcore.nodes = vec![node(Box::new(HandsOn), Shared::clone(&one.stage), 1, false)];
    while one.lcore.run_turn() {}
    one.control.advance(Phase::Draining);
    one
}

/// When an lcore receives a message that it sends on.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Comes {
    /// Its drain is over, and other lcores have longer.
    AfterItsDrain,
    /// All was quiet, and the owner is about to end the run.
    AfterQuiet,
}

/// An lcore receives a message at the end of its run and sends it on; the peer acknowledges it
/// before all lcores end, as they end, or never. Regressions: the run said that it was drained
/// while the acknowledgement was missing; and that it was not, while it was on its way to an lcore
/// that had time left.
#[test]
fn a_late_send_that_nobody_has_acknowledged_shows() {
    let acknowledged = [Some(1), Some(10), None];
    let cases = [Comes::AfterItsDrain, Comes::AfterQuiet].map(|comes| acknowledged.map(|after| (comes, after)));
    for (comes, after_polls) in cases.into_iter().flatten() {
        let rig = Rig::new(8);
        let OnePort { mut lcore, control, qpn, port, .. } = hands_on(&rig);
        if comes == Comes::AfterItsDrain {
            lcore.drain.budget_ns = 0;
        }
        let read = |control: &Control| control.pulses[0].read();
        let (ends, mut quiet) = (Arc::clone(&control), Quiet::new(1, |_| read(&control)));
        let (mut polls, mut received_at, time) = (0, None, rig.time.clone());
        rig.script.on_poll(move |queues| {
            polls += 1;
            time.pass(1_000_000);
            let is_due = match comes {
                Comes::AfterItsDrain => polls == 10,
                Comes::AfterQuiet => quiet.look(|_| read(&ends)),
            };
            let Some(at) = received_at else {
                received_at = (is_due && queues.receive(qpn, 8)).then_some(polls);
                return;
            };
            if after_polls.is_some_and(|after| polls >= at + after) {
                while queues.end_send(qpn, Status::SUCCESS).is_some() {}
            }
            if polls == at + 2 {
                ends.advance(Phase::Ending);
            }
        });
        lcore.run().unwrap();
        let is_drained = control.with(|progress| progress.was_drained(comes == Comes::AfterQuiet));
        lcore.tear_down(|stage, said| panic!("{stage}: {said}"));
        let arrives = after_polls.is_some_and(|after| after == 1 || comes == Comes::AfterQuiet);
        let figures = (port.tx_packets.value(), is_drained, port.drops.count(DropReason::Stopped));
        assert_eq!(figures, (1, arrives, u64::from(!arrives)), "{comes:?}, acknowledged: {after_polls:?}");
    }
}
