//! The places of senders, over a device that completes sends on command.

use std::sync::Arc;

use verbline_verbs::datagram::DEFAULT_QKEY;
use verbline_verbs::{Completions, SendOptions, Status, Transport};

use super::*;
use crate::control::run_control::{Control, LcoreInbox};
use crate::rig::{Depths, Rig};

const SENDERS: usize = 4;

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
