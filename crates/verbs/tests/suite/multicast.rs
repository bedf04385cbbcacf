//! Multicast: one datagram, a copy for every member.

use crate::common::{Options, Side};
use verbline_verbs::{
    Gid, InitSpec, QpError, RtrSpec, Transport,
    datagram::{AhSpec, MULTICAST_QPN},
};

fn member(device: &'static str, options: &Options, tag: u16) -> Side {
    let mut side = Side::new(device, options, tag);
    side.qp.to_rtr(&RtrSpec::datagram()).unwrap();
    side.qp.to_rts(&options.rts).unwrap();
    side
}

#[test]
fn every_member_gets_a_copy_and_those_who_left_get_none() {
    let options = Options::new(Transport::Ud);
    let group: Gid = "239.7.7.1".parse().unwrap();
    let other: Gid = "239.7.7.2".parse().unwrap();
    let mut sender = member("soft0", &options, 0);
    let qkey = sender.qp.endpoint().qkey;
    let ah = sender.pd.create_ah(&crate::common::to_gid(group)).unwrap();
    sender.qp.set_destination(&ah, MULTICAST_QPN, qkey).unwrap();
    let mut members: Vec<_> =
        [("soft0", 1), ("soft1", 2), ("soft1", 3)].map(|(device, tag)| member(device, &options, tag)).into();
    for member in &mut members {
        member.qp.attach_mcast(group, 0).unwrap();
        assert_eq!(member.post_recvs(4), 4);
    }
    let mut outsider = member("soft1", &options, 4);
    outsider.qp.attach_mcast(other, 0).unwrap();
    assert_eq!(outsider.post_recvs(4), 4);

    sender.send(b"to all");
    for member in &mut members {
        assert_eq!(member.receive(1)[0].data(), b"to all");
    }
    members[1].qp.detach_mcast(group, 0).unwrap();
    sender.send(b"to two");
    for at in [0, 2] {
        assert_eq!(members[at].receive(1)[0].data(), b"to two");
    }
    for side in [&mut members[1], &mut outsider] {
        side.poll(|_, _, completion| panic!("{completion:?}"));
    }
}

#[test]
fn a_member_can_be_dropped_without_leaving_first() {
    let options = Options::new(Transport::Ud);
    let mut side = member("soft0", &options, 0);
    side.qp.attach_mcast("239.7.7.3".parse().unwrap(), 0).unwrap();
    assert_eq!(side.post_recvs(4), 4);
    drop(side.qp);
    side.cache.flush();
    assert_eq!(side.pool.account().held, 0);
}

#[test]
fn only_ud_joins_and_only_groups() {
    let mut rc = Side::new("soft0", &Options::new(Transport::Rc), 0);
    let error = rc.qp.attach_mcast("239.7.7.4".parse().unwrap(), 0).unwrap_err();
    assert!(matches!(error, QpError::NotTransport { is: Transport::Rc, asked: Transport::Ud, .. }), "{error}");
    let mut ud = Side::new("soft0", &Options::new(Transport::Ud), 0);
    assert!(matches!(ud.qp.attach_mcast("10.0.0.1".parse().unwrap(), 0), Err(QpError::Verb(_))));
}

#[test]
fn a_group_of_ipv6_is_heard_too() {
    let options = Options::new(Transport::Ud);
    let group: Gid = "ff12::7701".parse().unwrap();
    let by_ipv6 = |device, tag| {
        let mut side = Side::new(device, &options, tag);
        side.qp.to_reset().unwrap();
        side.qp.to_init(&InitSpec::default()).unwrap();
        side.qp.to_rtr(&RtrSpec::datagram()).unwrap();
        side.qp.to_rts(&options.rts).unwrap();
        side
    };
    let (mut sender, mut member) = (by_ipv6("soft0", 0), by_ipv6("soft1", 1));
    let ah = sender.pd.create_ah(&AhSpec::to_gid(group)).unwrap();
    sender.qp.set_destination(&ah, MULTICAST_QPN, sender.qp.endpoint().qkey).unwrap();
    member.qp.attach_mcast(group, 0).unwrap();
    assert_eq!(member.post_recvs(1), 1);
    sender.send(b"to all");
    assert_eq!(member.receive(1)[0].data(), b"to all");
}
