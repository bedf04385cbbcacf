//! The places of senders, over a device that completes sends on command.

use std::sync::Arc;

use verbline_plan::IdlePolicy;
use verbline_verbs::datagram::DEFAULT_QKEY;
use verbline_verbs::{Completions, SendOptions, Status, Transport};

use super::*;
use crate::api::stage::Stage;
use crate::control::run_control::{Control, LcoreInbox, Phase};
use crate::idle::policy::Budget;
use crate::operations::returning::Returning;
use crate::ports::sink::{Sink, SinkStats};
use crate::ports::tx_half::Sending;
use crate::rig::{self, Depths, Parts, Rig};
use crate::stats::counter::Shared;
use crate::stats::drop_reason::DropReason;

const SENDERS: usize = 4;
/// The drain of the rig's lcores.
const DRAIN_NS: u64 = 1_000_000_000;

fn inbox() -> LcoreInbox {
    let (waker, _) = verbline_ring::doorbell().unwrap();
    LcoreInbox { control: Arc::new(Control::new(vec![waker])), lcore: 0 }
}

fn datagrams(rig: &Rig, qp: &mut QueuePair) -> Datagrams {
    let mut datagrams = Datagrams::new(DatagramsSpec {
        port: 0,
        asks: false,
        named: 0,
        senders: SENDERS,
        qkey: DEFAULT_QKEY,
        path: AhSpec::default(),
        maker: Some(AhMaker::new(rig.pd.clone(), inbox(), 0, SENDERS, "port").unwrap()),
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
    let cq = rig.context.create_cq(64, None).unwrap();
    let depths = Depths { tx_wr: 8, rx_wr: 8, signal_every_wr: 8 };
    let mut qp = rig.pd.create_qp(&Rig::spec(&cq, Transport::Ud, depths, 0)).unwrap();
    rig.bring_up(&mut qp);
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

/// Regression: a drain did not wait for the address handles of its answers, and the run said that
/// it was drained.
#[test]
fn a_drain_waits_for_address_handles_as_long_as_it_may() {
    let rig = Rig::new(8);
    let source = rig.source();
    let depths = Depths { tx_wr: 8, rx_wr: 8, signal_every_wr: 8 };
    let mut qp = rig.pd.create_qp(&Rig::spec(&source.cq, Transport::Ud, depths, 0)).unwrap();
    rig.bring_up(&mut qp);
    let mut datagrams = datagrams(&rig, &mut qp);
    // The lcore never hears that the handle is made: the notice goes to another inbox.
    let path = AhSpec::to_endpoint(&qp.endpoint());
    let sender = datagrams.find(Sender { gid: path.gid, lid: path.lid, qpn: 7 }, path, &mut qp);
    let mut sending = Sending::new(1, depths.signal_every_wr, depths.tx_wr as usize)
        .with_options(Some(Returning::new(None, depths.tx_wr as usize)));
    sending.know_peers(Some(Box::new(datagrams)));
    let port = rig::port(0, qp, None, Some(sending), None);
    let port_stats = Shared::clone(&port.stats);
    let mut sink = Sink::new(8, DropReason::TxFull, SinkStats::Port(Shared::clone(&port_stats)));
    let cache = rig.pool.cache(0).bind();
    let mut answer = cache.get().unwrap();
    answer.set_connection(Some(sender));
    sink.push(answer);
    drop(cache);

    let (waker, doorbell) = verbline_ring::doorbell().unwrap();
    let control = Arc::new(Control::new(vec![waker]));
    let (budget, stage) = (Budget::none(IdlePolicy::Poll), Box::new(Silent));
    let parts = Parts { budget, ports: vec![port], sinks: vec![sink], stage, source: Some(source), doorbell, burst: 4 };
    let (mut lcore, _) = rig.lcore(&control, parts);
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
    assert_eq!(control.with(|progress| progress.undelivered), 1);
    lcore.tear_down(|stage, said| panic!("{stage}: {said}"));
    assert_eq!(port_stats.drops.count(DropReason::Stopped), 1);
}
