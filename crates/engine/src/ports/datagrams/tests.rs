//! The places of senders, over a device that completes sends on command.

use std::collections::HashMap;
use std::sync::Arc;

use proptest::prelude::*;
use verbline_plan::IdlePolicy;
use verbline_verbs::datagram::DEFAULT_QKEY;
use verbline_verbs::event::AsyncEventKind;
use verbline_verbs::{CompletionQueue, Completions, SendOptions, Status, Transport};

use super::*;
use crate::api::stage::Stage;
use crate::control::notice::Notice;
use crate::control::run_control::{Control, LcoreInbox, Phase, Word};
use crate::idle::policy::Budget;
use crate::lcore::poll_loop::Lcore;
use crate::operations::send_with::{Returning, SendWith};
use crate::ports::sink::{Sink, SinkStats};
use crate::ports::tx_half::Sending;
use crate::rig::{self, Depths, Parts, Rig};
use crate::stats::counter::Shared;
use crate::stats::counters::{PortStats, StageStats};
use crate::stats::drop_reason::DropReason;

const SENDERS: usize = 4;
const DEPTHS: Depths = Depths { tx_wr: 8, rx_wr: 8, signal_every_wr: 8 };
/// The drain of the rig's lcores.
const DRAIN_NS: u64 = 1_000_000_000;

fn inbox() -> LcoreInbox {
    let (waker, _) = verbline_ring::doorbell().unwrap();
    LcoreInbox { control: Arc::new(Control::new(vec![waker])), lcore: 0 }
}

/// A queue pair in RTS, and its completion queue.
fn queue_pair(rig: &Rig) -> (CompletionQueue, QueuePair) {
    let cq = rig.context.create_cq(64, None).unwrap();
    let mut qp = rig.pd.create_qp(&Rig::spec(&cq, Transport::Ud, DEPTHS, 0)).unwrap();
    rig.bring_up(&mut qp);
    (cq, qp)
}

fn datagrams(rig: &Rig, qp: &mut QueuePair) -> Datagrams {
    datagrams_by(qp, Some(AhMaker::new(rig.pd.clone(), inbox(), 0, SENDERS, "port").unwrap()), 0)
}

/// With this maker, and answers that go out from this GID.
fn datagrams_by(qp: &mut QueuePair, maker: Option<AhMaker>, gid_index: u8) -> Datagrams {
    let mut datagrams = Datagrams::new(DatagramsSpec {
        port: 0,
        asks: true,
        named: 0,
        senders: SENDERS,
        qkey: DEFAULT_QKEY,
        path: AhSpec { gid_index, ..AhSpec::default() },
        maker,
        pending: 8,
    });
    datagrams.name(&[], qp);
    datagrams
}

/// Hears of a sender, and waits for its address handle if it is given a place.
fn hear(datagrams: &mut Datagrams, qp: &mut QueuePair, qpn: u32) -> ConnectionId {
    let path = AhSpec::to_endpoint(&qp.endpoint());
    let handle = datagrams.find(Sender { gid: path.gid, lid: path.lid, qpn }, path, qp);
    while datagrams.peers.get(handle.slot()).is_some_and(|peer| peer.way == Way::Asked) {
        datagrams.take_made(qp);
        std::thread::yield_now();
    }
    handle
}

/// While a send may use replaced address handles, no more are replaced than there are places: an
/// endless row of strangers takes no more memory, and they get their places once the send is done.
#[test]
fn what_new_senders_replace_is_bounded_while_a_send_may_use_it() {
    let rig = Rig::new(8);
    let (cq, mut qp) = queue_pair(&rig);
    let mut datagrams = datagrams(&rig, &mut qp);
    // With nothing posted, each sender finds a place.
    for qpn in 0..3 * SENDERS as u32 {
        assert_ne!(hear(&mut datagrams, &mut qp, qpn), datagrams.nobody());
        assert_eq!(qp.replaced(), 0);
    }
    let cache = rig.pool.cache(0);
    let mut batch = Batch::with_capacity(1);
    batch.push(cache.get().unwrap()).unwrap();
    let signaled = |_, _: &Packet| SendOptions { signaled: true, ..SendOptions::default() };
    assert_eq!(qp.post_send_with(&mut batch, signaled).posted, 1);
    let places = (100..200).filter(|qpn| hear(&mut datagrams, &mut qp, *qpn) != datagrams.nobody()).count();
    assert_eq!((places, qp.replaced()), (SENDERS, SENDERS));

    assert!(rig.script.queues().end_send(qp.qpn(), Status::SUCCESS).is_some());
    let (mut completions, mut freed) = (Completions::with_capacity(4), Batch::with_capacity(4));
    let mut cq = cq;
    assert_eq!(cq.poll(&mut completions), 1);
    assert_eq!(qp.send_done(&completions.as_slice()[0], &mut freed).unwrap(), 1);
    assert_ne!(hear(&mut datagrams, &mut qp, 200), datagrams.nobody());
    assert_eq!(qp.replaced(), 0);
}

// Regression: the generation began again, with handles that other senders had had.
#[test]
fn a_place_whose_generations_are_used_up_stays_with_its_last_sender() {
    let rig = Rig::new(8);
    let (_cq, mut qp) = queue_pair(&rig);
    let mut datagrams = datagrams(&rig, &mut qp);
    for (place, peer) in datagrams.peers.iter_mut().enumerate().skip(1) {
        peer.handle = handle(0, place as u16, u32::MAX - 1);
    }
    let stays: Vec<_> = (0..4 * SENDERS as u32)
        .map(|qpn| (qpn, hear(&mut datagrams, &mut qp, qpn)))
        .filter(|(_, handle)| handle.generation() == u32::MAX)
        .collect();
    assert_eq!(stays.len(), SENDERS - 1);
    // Strangers share the other place.
    for qpn in 100..200 {
        assert_eq!(hear(&mut datagrams, &mut qp, qpn).slot(), 0);
    }
    for (qpn, handle) in stays {
        assert_eq!(hear(&mut datagrams, &mut qp, qpn), handle);
    }
    datagrams.peers[0].handle = handle(0, 0, u32::MAX);
    assert_eq!(hear(&mut datagrams, &mut qp, 200), datagrams.nobody());
}

/// Checks what the port keeps of senders against itself, and against the handles given so far.
fn check(datagrams: &Datagrams, given: &HashMap<ConnectionId, u32>) {
    let Datagrams { peers, by_sender, asked, last, .. } = datagrams;
    assert_eq!(*asked, peers.iter().filter(|peer| peer.way == Way::Asked).count(), "asked for");
    for (place, peer) in peers.iter().enumerate() {
        let is_found = by_sender.get(&peer.sender) == Some(&(place as u16));
        assert_eq!(is_found, peer.way != Way::None, "{place}: {peer:?}, {by_sender:?}");
        if peer.way != Way::None {
            assert_eq!(given.get(&peer.handle), Some(&peer.sender.qpn), "a handle is never another's: {peer:?}");
        }
    }
    assert_eq!(by_sender.len(), peers.iter().filter(|peer| peer.way != Way::None).count());
    if let Some((sender, handle)) = last {
        let place = by_sender.get(sender).map(|place| usize::from(*place));
        assert_eq!(place.map(|place| peers[place].handle), Some(*handle), "the last sender has its place");
    }
}

proptest! {
    /// Senders come in any order, some of them by a path for which no address handle is made, and
    /// the address handles arrive at any time.
    #[test]
    fn each_sender_has_a_place_of_its_own(
        steps in prop::collection::vec((0u32..9, prop::bool::weighted(0.6), prop::bool::weighted(0.6)), 1..80),
    ) {
        let rig = Rig::new(8);
        let (_cq, mut qp) = queue_pair(&rig);
        let (mut datagrams, mut given) = (datagrams(&rig, &mut qp), HashMap::new());
        for (qpn, is_reached, waits) in steps {
            let path = AhSpec::to_endpoint(&qp.endpoint());
            // The software RNIC has no groups by LID alone (InfiniBand's multicast LIDs).
            let path = if is_reached { path } else { AhSpec { gid: None, lid: 0xC001, ..path } };
            let sender = Sender { gid: path.gid, lid: path.lid, qpn: qpn + if is_reached { 0 } else { 100 } };
            let handle = datagrams.find(sender, path, &mut qp);
            if handle != datagrams.nobody() {
                prop_assert_eq!(*given.entry(handle).or_insert(sender.qpn), sender.qpn);
            }
            check(&datagrams, &given);
            while waits && datagrams.asked > 0 {
                datagrams.take_made(&mut qp);
                check(&datagrams, &given);
                std::thread::yield_now();
            }
            if waits && handle != datagrams.nobody() {
                let peer = &datagrams.peers[handle.slot()];
                let is_its = peer.handle == handle && matches!(peer.way, Way::Known(_));
                prop_assert_eq!(is_its, is_reached, "{:?}", peer);
            }
        }
    }
}

/// Packets that waited for an address handle, and then find no room, go in a later turn; a port
/// that is down keeps none of them.
#[test]
fn packets_that_waited_for_an_address_handle_go_once_there_is_room() {
    let rig = Rig::new(32);
    let (_cq, mut qp) = queue_pair(&rig);
    let (mut datagrams, cache) = (datagrams(&rig, &mut qp), rig.pool.cache(0));
    let known = hear(&mut datagrams, &mut qp, 1);
    let path = AhSpec::to_endpoint(&qp.endpoint());
    let asked = datagrams.find(Sender { gid: path.gid, lid: path.lid, qpn: 2 }, path, &mut qp);
    let room = datagrams.ready.capacity();
    let sort = |datagrams: &mut Datagrams, to: ConnectionId, count: usize| {
        let mut pending = Batch::with_capacity(room);
        pending.push_iter((0..count).map(|_| {
            let mut packet = cache.get().unwrap();
            packet.set_connection(Some(to));
            packet
        }));
        datagrams.sort(&mut pending, &mut |_, reason| panic!("{reason:?}"));
        assert!(pending.is_empty());
    };
    sort(&mut datagrams, asked, 3);
    sort(&mut datagrams, known, room);
    hear(&mut datagrams, &mut qp, 2);
    for _ in 0..2 {
        sort(&mut datagrams, known, 0);
        assert_eq!((datagrams.ready.len(), datagrams.parked.len(), datagrams.is_settled()), (room, 3, false));
    }
    datagrams.ready.clear();
    sort(&mut datagrams, known, 0);
    assert_eq!((datagrams.ready.len(), datagrams.parked.len()), (3, 0));
    datagrams.is_made = true;
    let mut given_up = 0;
    datagrams.give_up(|_| given_up += 1);
    assert_eq!((given_up, datagrams.is_settled(), datagrams.pending()), (3, true, 0));
}

/// The thread is woken whenever it sleeps, and while it is awake makes the requested address
/// handles.
#[test]
fn every_address_handle_that_is_asked_for_is_made() {
    let rig = Rig::new(1);
    let maker = AhMaker::new(rig.pd.clone(), inbox(), 0, 64, "port").unwrap();
    let path = AhSpec::to_gid(Gid::default());
    for run in 0..1000 {
        let count = 1 + run % 5;
        (0..count).for_each(|place| maker.ask(handle(0, place, 1), path));
        let mut made = 0;
        while made < count {
            match maker.take() {
                Some((to, _)) => {
                    assert_eq!(to, handle(0, made, 1));
                    made += 1;
                }
                None => std::thread::yield_now(),
            }
        }
    }
}

struct Silent;

impl Stage for Silent {}

/// An lcore with an answer, which asks to come back, on its way to a port.
struct Answering {
    rig: Rig,
    lcore: Lcore,
    control: Arc<Control>,
    port: Shared<PortStats>,
    stage: Shared<StageStats>,
    qpn: u32,
}

impl Answering {
    /// `gid_index`: the GID that its address handle is made with; without one it is never made.
    fn new(gid_index: Option<u8>) -> Answering {
        let rig = Rig::new(8);
        let source = rig.source();
        let mut qp = rig.pd.create_qp(&Rig::spec(&source.cq, Transport::Ud, DEPTHS, 0)).unwrap();
        rig.bring_up(&mut qp);
        let (waker, doorbell) = verbline_ring::doorbell().unwrap();
        let control = Arc::new(Control::new(vec![waker]));
        let told = LcoreInbox { control: Arc::clone(&control), lcore: 0 };
        let maker = gid_index.map(|_| AhMaker::new(rig.pd.clone(), told, 0, SENDERS, "port").unwrap());
        let mut datagrams = datagrams_by(&mut qp, maker, gid_index.unwrap_or(0));
        let path = AhSpec::to_endpoint(&qp.endpoint());
        let mut find = || datagrams.find(Sender { gid: path.gid, lid: path.lid, qpn: 7 }, path, &mut qp);
        // Nobody who makes address handles refuses the first request.
        let sender = [find(), find()][1];
        while gid_index.is_some() && control.word() == Word::FIRST {
            std::thread::yield_now();
        }
        let mut sending = Sending::new(1, DEPTHS.signal_every_wr, DEPTHS.tx_wr as usize)
            .with_options(Some(Returning::new(Some(0), DEPTHS.tx_wr as usize)));
        sending.know_peers(Some(Box::new(datagrams)));
        let qpn = qp.qpn();
        let port = rig::port(0, qp, None, Some(sending), None);
        let stats = Shared::clone(&port.stats);
        let mut sink = Sink::new(8, DropReason::TxFull, SinkStats::Port(Shared::clone(&stats)));
        let cache = rig.pool.cache(0).bind();
        let mut answer = cache.get().unwrap();
        answer.set_connection(Some(sender));
        SendWith::new().returned().ask(&mut answer);
        sink.push(answer);
        drop(cache);
        let (budget, stage) = (Budget::none(IdlePolicy::Poll), Box::new(Silent));
        let parts =
            Parts { budget, ports: vec![port], sinks: vec![sink], stage, source: Some(source), doorbell, burst: 4 };
        let (lcore, stage) = rig.lcore(&control, parts);
        Answering { rig, lcore, control, port: stats, stage, qpn }
    }

    /// Drains for as long as it may, and ends. Returns the lcores that were not drained, the
    /// packets that came back to the stage, and the packets that the port dropped as `reason` and
    /// as the run ended.
    fn drain(self, reason: DropReason) -> [u64; 4] {
        let Answering { rig, mut lcore, control, port, stage, .. } = self;
        let (ends, time, began_ns) = (Arc::clone(&control), rig.time.clone(), rig.time.clock().now_ns());
        rig.script.on_poll(move |_| {
            time.pass(DRAIN_NS / 10);
            // Long after the drain may last.
            if time.clock().now_ns() - began_ns > 5 * DRAIN_NS {
                ends.advance(Phase::Ending);
            }
        });
        control.advance(Phase::Draining);
        lcore.run().unwrap();
        let undelivered = control.with(|progress| progress.undelivered) as u64;
        lcore.tear_down(|stage, said| panic!("{stage}: {said}"));
        let drops = [reason, DropReason::Stopped].map(|reason| port.drops.count(reason));
        [undelivered, stage.packets_in.value(), drops[0], drops[1]]
    }
}

/// Regression: a drain did not wait for the address handles of its answers, and the run said that
/// it was drained.
#[test]
fn a_drain_waits_for_address_handles_as_long_as_it_may() {
    assert_eq!(Answering::new(None).drain(DropReason::NoConnection), [1, 0, 0, 1]);
}

/// Regression: it lay in front of its stage, which was not called before something else came.
#[test]
fn an_answer_that_has_no_address_handle_comes_back_at_once() {
    const NO_GID: u8 = 200;
    assert_eq!(Answering::new(Some(NO_GID)).drain(DropReason::NoConnection), [0, 1, 1, 0]);
}

/// Regression: it went on waiting for its address handle, and counted as `stopped`.
#[test]
fn a_port_that_goes_down_gives_up_the_answers_that_wait_for_address_handles() {
    for waits in [false, true] {
        let mut answering = Answering::new(None);
        if waits {
            while answering.lcore.run_turn() {}
        }
        let Answering { control, qpn, .. } = &answering;
        control.notify(0, Notice::QpFailed { port: 0, qpn: *qpn, event: AsyncEventKind::QpFatal });
        assert_eq!(answering.drain(DropReason::PortDown), [0, 1, 1, 0], "waits: {waits}");
    }
}
