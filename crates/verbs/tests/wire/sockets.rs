//! The sockets by which reliable queue pairs send, seen by a peer that is a bare UDP socket.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Instant;

use verbline_verbs::{Endpoint, Gid, InitSpec, RtrSpec, RtsSpec, Transport, WrKind};

use crate::common::{Options, PATIENCE, Side, hand_back};
use crate::{ADDRESS_GID, address, options, own, side_with};

const LINKS_PORT: u16 = 4791;
const SEND_ONLY: u8 = 0x04;
const ACKNOWLEDGE: u8 = 0x11;
const ACK: u8 = 0x1f;
const ASKS: u32 = 1 << 31;
/// The number of the first packet to each queue pair.
const FIRST: u32 = 70;

/// The peer of several queue pairs of this process.
struct Peer {
    socket: UdpSocket,
    ip: Ipv4Addr,
}

/// A packet that has come from a queue pair.
#[derive(Debug)]
struct Came {
    from_port: u16,
    opcode: u8,
    psn: u32,
}

impl Peer {
    fn new(last: u8) -> Peer {
        let IpAddr::V4(ip) = address(std::process::id(), last) else { panic!("addresses are of IPv4") };
        let socket = UdpSocket::bind((ip, LINKS_PORT)).unwrap();
        socket.set_nonblocking(true).unwrap();
        Peer { socket, ip }
    }

    /// A queue pair whose peer this is.
    fn connected(&self) -> Side {
        let mut side = side_with(&Options { signal_every_wr: 1, ..options(Transport::Rc) }, own(), false);
        side.qp.to_init(&InitSpec { gid_index: ADDRESS_GID, ..InitSpec::default() }).unwrap();
        let remote = Endpoint { qpn: 0x1234, psn: FIRST, gid: Gid::from(self.ip), lid: 0, qkey: 0 };
        side.qp.to_rtr(&RtrSpec::connected(remote)).unwrap();
        side.qp.to_rts(&RtsSpec::default()).unwrap();
        assert_eq!(side.post_recvs(4), 4);
        side
    }

    /// The next packet of a queue pair that polls meanwhile.
    fn next(&self, side: &mut Side) -> Came {
        let until = Instant::now() + PATIENCE;
        let mut bytes = [0; 2048];
        loop {
            assert!(Instant::now() < until, "it never comes");
            side.poll(hand_back);
            // An empty one tells the sender its number.
            let Ok((12.., from)) = self.socket.recv_from(&mut bytes) else { continue };
            let psn = u32::from_be_bytes([0, bytes[9], bytes[10], bytes[11]]);
            return Came { from_port: from.port(), opcode: bytes[0], psn };
        }
    }

    fn put(&self, side: &Side, opcode: u8, psn: u32, rest: &[u8]) {
        let head = [&[opcode, 0, 0xff, 0xff][..], &side.qp.qpn().to_be_bytes(), &psn.to_be_bytes()];
        let bytes = [&head.concat()[..], rest, &[0; 4]].concat();
        self.socket.send_to(&bytes, SocketAddr::new(own(), LINKS_PORT)).unwrap();
    }

    /// Sends a message; returns the port of the acknowledgement.
    fn says(&self, side: &mut Side, number: u32) -> u16 {
        self.put(side, SEND_ONLY, ASKS | (FIRST + number), b"said");
        let came = self.next(side);
        assert_eq!((came.opcode, came.psn), (ACKNOWLEDGE, FIRST + number), "{came:?}");
        came.from_port
    }
}

/// Regression: when the first packet of a queue pair was lost, all queue pairs of the peer sent by
/// the link's own socket from then on.
#[test]
fn a_socket_that_was_answered_stays_when_a_packet_of_another_queue_pair_is_lost() {
    let peer = Peer::new(250);
    let [mut first, mut second, mut third] = [peer.connected(), peer.connected(), peer.connected()];
    first.send(b"sent");
    let sent = peer.next(&mut first);
    assert_ne!(sent.from_port, LINKS_PORT);
    peer.put(&first, ACKNOWLEDGE, sent.psn, &[ACK, 0, 0, 1]);
    first.wait_for(WrKind::Send, hand_back);
    // The second loses its first packet; the third after the answered one has gone.
    second.send(b"sent");
    let ports = [peer.next(&mut second), peer.next(&mut second)].map(|came| came.from_port);
    drop(first);
    third.send(b"sent");
    let later = [peer.next(&mut third), peer.next(&mut third)].map(|came| came.from_port);
    assert_eq!([ports, later], [[sent.from_port; 2]; 2]);
}

/// Regression: a queue pair that only receives had no proof that it was heard. When one of its
/// acknowledgements was lost, all queue pairs of the peer sent by the link's own socket.
#[test]
fn a_queue_pair_that_only_receives_keeps_its_socket_when_an_acknowledgement_is_lost() {
    let peer = Peer::new(251);
    let mut side = peer.connected();
    let port = peer.says(&mut side, 0);
    assert_ne!(port, LINKS_PORT);
    assert_eq!(peer.says(&mut side, 1), port);
    // The peer repeats the second message, and so has got the answer to the first.
    assert_eq!([peer.says(&mut side, 1), peer.says(&mut side, 2)], [port; 2]);
}

/// A firewall takes what doesn't come from the link's port.
#[test]
fn a_peer_that_repeats_its_first_message_is_answered_by_the_links_own_socket() {
    let peer = Peer::new(252);
    let mut side = peer.connected();
    let ports = [0, 0, 1].map(|number| peer.says(&mut side, number));
    assert_ne!(ports[0], LINKS_PORT);
    assert_eq!(ports[1..], [LINKS_PORT; 2]);
}
