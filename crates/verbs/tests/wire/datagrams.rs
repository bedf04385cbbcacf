//! Datagrams to another process, and to a group with members in both.

use std::net::{IpAddr, Ipv4Addr};

use crate::common::{Side, message};
use crate::other::Other;
use crate::{ADDRESS_GID, address, own, side_of};
use verbline_verbs::datagram::{AhSpec, MULTICAST_QPN};
use verbline_verbs::{Gid, InitSpec, RtrSpec, RtsSpec, Transport, WrKind};

/// A group that no other test uses at the same time.
fn group(of: u32, last: u8) -> Gid {
    Ipv4Addr::new(239, 0x40 | (of >> 8) as u8 & 0x3f, of as u8, last).into()
}

/// A datagram queue pair on the device that reaches other processes.
pub(crate) fn datagram_side(address: IpAddr) -> Side {
    ready(side_of(Transport::Ud, address, false))
}

/// The side with its queue pair in RTS.
pub(crate) fn ready(mut side: Side) -> Side {
    side.qp.to_init(&InitSpec { gid_index: ADDRESS_GID, ..InitSpec::default() }).unwrap();
    side.qp.to_rtr(&RtrSpec::datagram()).unwrap();
    side.qp.to_rts(&RtsSpec::default()).unwrap();
    side
}

/// Sends two datagrams back to their sender: one addressed to it, and one to its group.
pub(crate) fn answer_datagrams(own: IpAddr, parent: u32, last: u8) {
    let mut side = datagram_side(own);
    side.qp.attach_mcast(group(parent, last), 0).unwrap();
    assert_eq!(side.post_recvs(8), 8);
    println!("qpn={}", side.qp.qpn());
    for _ in 0..2 {
        let answer = side.wait_for(WrKind::Recv, |qp, _, completion| {
            let packet = qp.recv_done(completion).unwrap();
            let to = qp.reply_path(completion, &packet).unwrap();
            assert_eq!(to.gid_index, ADDRESS_GID);
            let ah = qp.pd().create_ah(&to).unwrap();
            let qkey = qp.endpoint().qkey;
            qp.set_destination(&ah, completion.src_qp(), qkey).unwrap();
            packet.data().to_vec()
        });
        side.send(&answer);
    }
    side.drain_sends();
}

#[test]
fn datagrams_go_to_a_queue_pair_and_to_a_group_of_another_process() {
    exchange(Other::start("datagrams"));
}

#[test]
fn datagrams_go_to_another_process_of_the_same_address_too() {
    exchange(Other::start_at("datagrams", 1));
}

fn exchange(mut other: Other) {
    let mut side = datagram_side(own());
    // The sender is a member too, and gets one copy: its own, in this process.
    side.qp.attach_mcast(group(std::process::id(), other.last), 0).unwrap();
    assert_eq!(side.post_recvs(8), 8);
    let (qpn, qkey) = (other.says("qpn").parse().unwrap(), side.qp.endpoint().qkey);
    let there = address(std::process::id(), other.last);
    let gid = match there {
        IpAddr::V4(ip) => Gid::from(ip),
        IpAddr::V6(ip) => Gid::from(ip),
    };
    let from_here = |gid| AhSpec::to_gid(gid).from_port(1, ADDRESS_GID);
    let to_one = side.pd.create_ah(&from_here(gid)).unwrap();
    side.qp.set_destination(&to_one, qpn, qkey).unwrap();
    side.send(b"to you");
    assert_eq!(side.receive(1)[0].data(), b"to you");
    let to_all = side.pd.create_ah(&from_here(group(std::process::id(), other.last))).unwrap();
    side.qp.set_destination(&to_all, MULTICAST_QPN, qkey).unwrap();
    side.send(&message(7, 4000));
    for received in side.receive(2) {
        assert_eq!(received.data(), message(7, 4000));
    }
    other.ends_well();
    side.poll(|_, _, completion| assert_ne!(completion.kind(), WrKind::Recv, "no third copy"));
}
