//! Connections with an alternate path: armed, they move to it when the first one fails, or on
//! request. Both ends move together, and nothing is lost.

use std::time::Instant;

use verbline_verbs::event::{AsyncEvent, AsyncEventKind, AsyncEventSource, AsyncEvents};
use verbline_verbs::expert::{AttrMask, QpAttr, fault};
use verbline_verbs::{Gid, RtsSpec, Status, Transport, WrKind, datagram::AhSpec};

use crate::common::{GID_INDEX, Options, PATIENCE, Side, hand_back, only_soft, pair};

/// `enum ibv_mig_state`.
const MIGRATED: u32 = 0;
const REARM: u32 = 1;
const ARMED: u32 = 2;

/// The link-local GID, at index 0.
const OTHER_INDEX: u8 = 0;
const TIMEOUT: u8 = 9;
const OTHER_TIMEOUT: u8 = 11;

/// An ACK timeout of 2 ms, with one retry.
fn quick() -> Options {
    Options {
        signal_every_wr: 1,
        rts: RtsSpec { timeout: TIMEOUT, retry_cnt: 1, ..RtsSpec::default() },
        ..Options::new(Transport::Rc)
    }
}

/// The alternate path to that side.
fn other_way(to: &Side) -> AhSpec {
    AhSpec::to_gid(to.context.query_gid(1, OTHER_INDEX).unwrap()).from_port(1, OTHER_INDEX)
}

fn rearm(side: &mut Side, alt_ah: AhSpec) {
    let attr = QpAttr { alt_ah, alt_port: 1, alt_timeout: OTHER_TIMEOUT, path_mig_state: REARM, ..QpAttr::default() };
    side.qp.modify(&attr, AttrMask::ALT_PATH | AttrMask::PATH_MIG_STATE).unwrap();
}

fn state(side: &mut Side) -> u32 {
    side.qp.query(AttrMask::PATH_MIG_STATE).unwrap().path_mig_state
}

/// The current path, and its ACK timeout.
fn path(side: &mut Side) -> (Option<Gid>, u8, u8) {
    let now = side.qp.query(AttrMask::AV | AttrMask::TIMEOUT).unwrap();
    (now.ah.gid, now.ah.gid_index, now.timeout)
}

fn armed() -> (Side, Side) {
    let (mut a, mut b) = pair(&quick());
    let (to_a, to_b) = (other_way(&a), other_way(&b));
    rearm(&mut a, to_b);
    assert_eq!((state(&mut a), state(&mut b)), (REARM, MIGRATED), "its peer has to ask as well");
    rearm(&mut b, to_a);
    assert_eq!((state(&mut a), state(&mut b)), (ARMED, ARMED));
    (a, b)
}

/// The events so far, except that of the first message.
fn raised(events: &AsyncEvents) -> Vec<AsyncEvent> {
    let all = std::iter::from_fn(|| events.try_next().unwrap());
    all.filter(|event| event.kind != AsyncEventKind::CommEst).collect()
}

#[track_caller]
fn assert_migrated(side: &mut Side, events: &AsyncEvents, to: AhSpec) {
    let source = AsyncEventSource::Qp(side.qp.qpn());
    assert_eq!(raised(events), [AsyncEvent { kind: AsyncEventKind::PathMig, source }]);
    assert_eq!((state(side), path(side)), (MIGRATED, (to.gid, OTHER_INDEX, OTHER_TIMEOUT)));
}

#[test]
fn a_connection_whose_path_fails_goes_on_by_the_other_one_and_back() {
    only_soft!("rdma_rxe has no alternate paths, for the kernel takes none on Ethernet");
    let (mut a, mut b) = armed();
    let events = [a.context.async_events(), b.context.async_events()];
    let first = a.qp.query(AttrMask::AV).unwrap().ah;
    b.post_recvs(8);
    a.send(b"before");
    assert_eq!(b.receive(1)[0].data(), b"before");
    assert!(fault::lose_path(a.qp.qpn()));
    for message in [b"first ", b"second"] {
        a.send(message);
    }
    let came = b.receive(2);
    assert_eq!([came[0].data(), came[1].data()], [b"first ", b"second"]);
    let (to_a, to_b) = (other_way(&a), other_way(&b));
    assert_migrated(&mut a, &events[0], to_b);
    assert_migrated(&mut b, &events[1], to_a);
    // And back to the first path, which both ends have armed.
    let back = b.qp.query(AttrMask::AV).unwrap().ah;
    rearm(&mut a, first);
    rearm(&mut b, AhSpec { gid_index: GID_INDEX, gid: Some(a.qp.endpoint().gid), ..back });
    assert!(fault::lose_path(a.qp.qpn()));
    a.send(b"third ");
    assert_eq!(b.receive(1)[0].data(), b"third ");
    assert_eq!(path(&mut a), (first.gid, first.gid_index, OTHER_TIMEOUT));
    a.drain_sends();
}

#[test]
fn an_armed_connection_migrates_when_it_is_told_to() {
    only_soft!("rdma_rxe has no alternate paths, for the kernel takes none on Ethernet");
    let (mut a, mut b) = armed();
    let events = [a.context.async_events(), b.context.async_events()];
    let tell = QpAttr { path_mig_state: MIGRATED, ..QpAttr::default() };
    b.qp.modify(&tell, AttrMask::PATH_MIG_STATE).unwrap();
    let (to_a, to_b) = (other_way(&a), other_way(&b));
    assert_migrated(&mut a, &events[0], to_b);
    assert_migrated(&mut b, &events[1], to_a);
    // Only once: there is no path left to move to, or to arm.
    b.qp.modify(&tell, AttrMask::PATH_MIG_STATE).unwrap();
    assert_eq!(raised(&events[1]), []);
    let rearm = QpAttr { path_mig_state: REARM, ..QpAttr::default() };
    assert!(a.qp.modify(&rearm, AttrMask::PATH_MIG_STATE).is_err(), "without an alternate path");
    let arm = QpAttr { path_mig_state: ARMED, ..QpAttr::default() };
    assert!(a.qp.modify(&arm, AttrMask::PATH_MIG_STATE).is_err(), "that is the device's to reach");
    b.post_recvs(1);
    a.send(b"by the other way");
    assert_eq!(b.receive(1)[0].data(), b"by the other way");
    a.drain_sends();
}

#[test]
fn a_path_that_fails_breaks_a_connection_that_is_not_armed_or_has_nowhere_to_go() {
    only_soft!("rdma_rxe has no alternate paths, for the kernel takes none on Ethernet");
    // The peer is not armed; it has no alternate path; its alternate path leads to another device.
    for case in ["one end", "none", "astray"] {
        let (mut a, mut b) = pair(&quick());
        let (to_a, to_b) = (other_way(&a), other_way(&b));
        match case {
            "one end" => rearm(&mut a, to_b),
            "astray" => {
                rearm(&mut a, to_a);
                rearm(&mut b, to_a);
            }
            _ => {}
        }
        let events = a.context.async_events();
        b.post_recvs(1);
        assert!(fault::lose_path(a.qp.qpn()));
        a.send(b"lost");
        let status = a.wait_for(WrKind::Send, |_, _, completion| completion.status());
        assert_eq!(status, Status::RETRY_EXC_ERR, "{case}");
        let failed = raised(&events).iter().any(|event| event.kind == AsyncEventKind::PathMigErr);
        assert_eq!(failed, case == "astray", "{case}");
    }
}

impl Side {
    /// Polls until its sends are done.
    fn drain_sends(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        while self.qp.sends_outstanding() > 0 {
            assert!(Instant::now() < deadline, "{:?}", self.qp);
            self.poll(hand_back);
        }
    }
}
