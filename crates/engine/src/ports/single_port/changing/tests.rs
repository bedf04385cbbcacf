//! A port whose queue pair changes its attributes: at once, drained, in vain, and not at all.

use verbline_mem::{Batch, Pool};
use verbline_verbs::{
    CompletionQueue, Completions, Context, Device, InitSpec, ProtectionDomain, Provider, QpSpec, QueuePair, RtrSpec,
    RtsSpec, Transport,
};

use super::*;
use crate::ports::tx_half::Sending;
use crate::rig::log::errors_of;
use crate::rig::{Depths, Rig, pool, port};
use crate::stats::down_reason::DownReason;
use crate::stats::drop_reason::DropReason;

const DEPTH_WR: u32 = 8;

/// A port and the queue pair that it sends to, on the software RNIC.
struct Pair {
    port: Port,
    peer: QueuePair,
    cq: CompletionQueue,
    pool: Pool,
    _pd: ProtectionDomain,
    _context: Context,
}

impl Pair {
    fn new(transport: Transport) -> Pair {
        let context = Device::find(Provider::Soft, "soft0").unwrap().open().unwrap();
        let pd = context.alloc_pd().unwrap();
        let pool = pool(64);
        pd.register_pool(&pool).unwrap();
        let cq = context.create_cq(64, None).unwrap();
        let make = || {
            let spec = QpSpec {
                tx_depth_wr: DEPTH_WR,
                rx_depth_wr: DEPTH_WR,
                signal_every_wr: 1,
                ..QpSpec::new(transport, &cq)
            };
            let mut qp = pd.create_qp(&spec).unwrap();
            qp.to_init(&InitSpec::default()).unwrap();
            qp
        };
        let (mut qp, mut peer) = (make(), make());
        let ends = [qp.endpoint(), peer.endpoint()];
        for (one, other) in [(&mut qp, ends[1]), (&mut peer, ends[0])] {
            one.to_rtr(&RtrSpec::connected(other)).unwrap();
            one.to_rts(&RtsSpec::default()).unwrap();
        }
        Pair { port: port(0, qp, None, None, None), peer, cq, pool, _pd: pd, _context: context }
    }

    /// Sends one packet for each number.
    fn send(&mut self, numbers: impl IntoIterator<Item = u64>) {
        for number in numbers {
            let mut batch = Batch::with_capacity(1);
            assert_eq!(self.pool.cache(0).get_bulk_of_len(&mut batch, 1, 8), 1);
            batch.as_mut_slice()[0].data_mut().copy_from_slice(&number.to_le_bytes());
            assert_eq!(self.port.qp.post_send(&mut batch).posted, 1);
        }
    }

    /// Posts receives, and returns the numbers received.
    fn receive(&mut self, receives: usize) -> Vec<u64> {
        let mut batch = Batch::with_capacity(receives);
        assert_eq!(self.pool.cache(0).get_bulk(&mut batch, receives), receives);
        assert_eq!(self.peer.post_recv(&mut batch).posted, receives);
        let (mut completions, mut numbers) = (Completions::with_capacity(64), Vec::new());
        while self.cq.poll(&mut completions) > 0 {
            for completion in completions.as_slice() {
                assert!(completion.is_ok(), "{completion:?}");
                match completion.qp_num() == self.peer.qpn() {
                    true => {
                        let packet = self.peer.recv_done(completion).unwrap();
                        numbers.push(u64::from_le_bytes(packet.data().try_into().unwrap()));
                    }
                    false => {
                        _ = self.port.qp.send_done(completion, &mut Batch::with_capacity(DEPTH_WR as usize)).unwrap()
                    }
                }
            }
        }
        numbers
    }
}

fn drained(attr: QpAttr, mask: AttrMask) -> Arc<Change> {
    Change::new(Asked::Attributes { drains: true, attr: Box::new(attr), mask, path: PathChange::default() })
}

fn retries(retry_cnt: u8) -> Arc<Change> {
    drained(QpAttr { retry_cnt, ..QpAttr::default() }, AttrMask::RETRY_CNT)
}

fn outcome(change: &Change) -> Option<ChangeOutcome> {
    change.wait(Duration::ZERO)
}

#[track_caller]
fn refusal(change: &Change) -> String {
    match outcome(change) {
        Some(ChangeOutcome::Refused(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_idle_queue_pair_has_all_that_it_is_told_and_sends_on() {
    let mut pair = Pair::new(Transport::Rc);
    let attr = QpAttr { timeout: 17, retry_cnt: 2, rnr_retry: 3, max_rd_atomic: 4, ..QpAttr::default() };
    let mask = AttrMask::TIMEOUT | AttrMask::RETRY_CNT | AttrMask::RNR_RETRY | AttrMask::MAX_QP_RD_ATOMIC;
    let path = PathChange { traffic_class: Some(104), hop_limit: Some(3), service_level: None };
    let change = Change::new(Asked::Attributes { drains: true, attr: Box::new(attr), mask, path });
    let before = pair.port.qp.query(AttrMask::AV).unwrap();
    pair.port.change(Arc::clone(&change), 5);
    assert_eq!(outcome(&change), Some(ChangeOutcome::Taken { held: Duration::ZERO }));
    let now = pair.port.qp.query(mask | AttrMask::AV).unwrap();
    assert_eq!((now.timeout, now.retry_cnt, now.rnr_retry, now.max_rd_atomic), (17, 2, 3, 4));
    assert_eq!((now.ah.traffic_class, now.ah.hop_limit, now.ah.service_level), (104, 3, before.ah.service_level));
    assert_eq!((now.ah.gid, now.state, pair.port.qp.state()), (before.ah.gid, QpState::Rts, QpState::Rts));
    assert!(pair.receive(4).is_empty());
    pair.send(0..3);
    assert_eq!(pair.receive(0), [0, 1, 2]);
}

#[test]
fn what_a_queue_pair_takes_while_it_sends_drains_nothing() {
    let mut pair = Pair::new(Transport::Rc);
    // The packet waits for a receive: a drain would not end.
    pair.send([0]);
    let attr = QpAttr { min_rnr_timer: 20, ..QpAttr::default() };
    let (mask, path) = (AttrMask::MIN_RNR_TIMER, PathChange::default());
    let change = Change::new(Asked::Attributes { drains: false, attr: Box::new(attr), mask, path });
    pair.port.change(Arc::clone(&change), 0);
    assert_eq!(outcome(&change), Some(ChangeOutcome::Taken { held: Duration::ZERO }));
    let now = pair.port.qp.query(mask).unwrap();
    assert_eq!((now.min_rnr_timer, now.state), (20, QpState::Rts));
}

#[test]
fn sends_that_come_while_it_drains_wait_and_arrive_in_their_order() {
    let mut pair = Pair::new(Transport::Rc);
    pair.send([0]);
    let change = retries(1);
    pair.port.change(Arc::clone(&change), 1_000);
    assert_eq!((outcome(&change), pair.port.health), (None, Health::Up), "the first send is not done");
    pair.send(1..5);
    // The change is requested again, and a false stop is reported: it waits on.
    pair.port.change(Arc::clone(&change), 2_000);
    pair.port.go_on_changing(3_000);
    assert_eq!((outcome(&change), pair.port.qp.state()), (None, QpState::Sqd));
    assert_eq!(pair.receive(8), [0], "the others are held");
    pair.port.go_on_changing(9_000);
    assert_eq!(outcome(&change), Some(ChangeOutcome::Taken { held: Duration::from_nanos(8_000) }));
    assert_eq!(pair.port.qp.query(AttrMask::RETRY_CNT).unwrap().retry_cnt, 1);
    pair.send([5]);
    assert_eq!(pair.receive(0), [1, 2, 3, 4, 5]);
    // The event comes late; nothing is changed again.
    pair.port.change(Arc::clone(&change), 10_000);
    pair.port.go_on_changing(10_000);
    assert_eq!(pair.port.qp.state(), QpState::Rts);
    assert_eq!(outcome(&change), Some(ChangeOutcome::Taken { held: Duration::from_nanos(8_000) }), "as it ended");
}

#[test]
fn what_the_device_refuses_is_said_and_the_port_sends_on() {
    let mut pair = Pair::new(Transport::Uc);
    let change = drained(QpAttr { pkey_index: 7, ..QpAttr::default() }, AttrMask::PKEY_INDEX);
    pair.port.change(Arc::clone(&change), 0);
    assert!(refusal(&change).contains("IBV_QP_PKEY_INDEX"), "{}", refusal(&change));
    assert_eq!((pair.port.health, pair.port.qp.query(AttrMask::STATE).unwrap().state), (Health::Up, QpState::Rts));
    // Attributes outside the table are refused before the device is asked.
    let change = retries(1);
    pair.port.change(Arc::clone(&change), 0);
    assert!(refusal(&change).contains("not allowed here IBV_QP_RETRY_CNT"), "{}", refusal(&change));
    assert!(pair.receive(2).is_empty());
    pair.send([7]);
    assert_eq!(pair.receive(0), [7]);
}

#[test]
fn what_the_device_refuses_once_nobody_waits_for_it_is_logged() {
    for is_abandoned in [false, true] {
        let mut pair = Pair::new(Transport::Rc);
        pair.send([0]);
        let change = drained(QpAttr { pkey_index: 7, ..QpAttr::default() }, AttrMask::PKEY_INDEX);
        pair.port.change(Arc::clone(&change), 0);
        assert!(!is_abandoned || change.abandon().is_none());
        assert_eq!(pair.receive(2), [0]);
        let errors = errors_of(|| pair.port.go_on_changing(0));
        assert_eq!(errors, usize::from(is_abandoned), "else the asking thread tells of it");
        assert!(refusal(&change).contains("IBV_QP_PKEY_INDEX"), "{}", refusal(&change));
    }
}

#[test]
fn a_port_that_is_down_or_goes_down_takes_nothing_and_has_one_change_at_a_time() {
    let mut pair = Pair::new(Transport::Rc);
    pair.send([0]);
    let (first, second) = (retries(1), retries(2));
    pair.port.change(Arc::clone(&first), 0);
    pair.port.change(Arc::clone(&second), 0);
    assert!(refusal(&second).contains("still being drained"), "{}", refusal(&second));
    pair.port.go_down(Health::Down, DownReason::LOST);
    assert!(refusal(&first).contains("went down while"), "{}", refusal(&first));
    let third = retries(3);
    pair.port.change(Arc::clone(&third), 0);
    assert_eq!(refusal(&third), "its queue pair is down");
}

#[test]
fn a_queue_pair_that_fails_while_it_drains_is_not_changed() {
    let mut pair = Pair::new(Transport::Rc);
    pair.send([0]);
    let change = retries(1);
    pair.port.change(Arc::clone(&change), 0);
    pair.port.qp.to_err().unwrap();
    pair.port.go_on_changing(0);
    assert_eq!(refusal(&change), "its queue pair went to ERR while its send queue was drained");
}

#[test]
fn a_pause_holds_what_is_sent_through_changes_until_it_ends() {
    let mut pair = Pair::new(Transport::Rc);
    let pause = Change::new(Asked::Pause);
    pair.port.change(Arc::clone(&pause), 0);
    assert_eq!(outcome(&pause), Some(ChangeOutcome::Taken { held: Duration::ZERO }));
    pair.send(0..3);
    let change = retries(1);
    pair.port.change(Arc::clone(&change), 0);
    assert_eq!(outcome(&change), Some(ChangeOutcome::Taken { held: Duration::ZERO }));
    // The event of its own drain comes late.
    pair.port.go_on_changing(0);
    assert!(pair.receive(8).is_empty());
    let now = pair.port.qp.query(AttrMask::RETRY_CNT).unwrap();
    assert_eq!((now.retry_cnt, now.state), (1, QpState::Sqd));
    let resume = Change::new(Asked::Resume);
    pair.port.change(Arc::clone(&resume), 0);
    assert_eq!(outcome(&resume), Some(ChangeOutcome::Taken { held: Duration::ZERO }));
    assert_eq!(pair.receive(0), [0, 1, 2]);
}

#[test]
fn a_pause_that_nobody_waits_for_any_more_does_not_begin() {
    let mut pair = Pair::new(Transport::Rc);
    pair.send([0]);
    let pause = Change::new(Asked::Pause);
    pair.port.change(Arc::clone(&pause), 0);
    pair.send([1]);
    assert_eq!(pause.abandon(), None);
    assert_eq!(pair.receive(4), [0]);
    pair.port.go_on_changing(7);
    assert_eq!((pair.port.is_paused, pair.port.qp.state()), (false, QpState::Rts));
    assert_eq!(pair.receive(0), [1]);
}

/// Sends of UC that are not signaled are soon on the wire, unless the port is paused. Regression: a
/// drain did not wait for them, and they went with the queue pair.
#[test]
fn sends_that_a_pause_holds_are_waited_for_and_counted() {
    let rig = Rig::new(8);
    let cq = rig.context.create_cq(8, None).unwrap();
    let depths = Depths { tx_wr: 8, rx_wr: 1, signal_every_wr: 8 };
    let mut qp = rig.pd.create_qp(&Rig::spec(&cq, Transport::Uc, depths, 0)).unwrap();
    rig.bring_up(&mut qp);
    let mut port = port(0, qp, None, Some(Sending::new(0, 8, 8)), None);
    let mut batch = Batch::with_capacity(3);
    assert_eq!(rig.pool.cache(0).get_bulk_of_len(&mut batch, 3, 8), 3);
    assert_eq!(port.qp.post_send(&mut batch).posted, 3);
    port.drain();
    for is_paused in [false, true] {
        port.is_paused = is_paused;
        port.count_stopped(&[]);
        let lost = if is_paused { 3 } else { 0 };
        let figures = (port.awaits_completion(), port.stats.drops.count(DropReason::Stopped));
        assert_eq!(figures, (is_paused, lost));
    }
}
