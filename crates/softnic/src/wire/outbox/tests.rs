//! The checksums of what leaves, by every kind of socket: read from the frames themselves.

use super::*;
use crate::wire::peer_socket::PeerSocket;
use crate::wire::peer_socket::tests::{next_frame, watch};
use crate::wire::socket::tests::address;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::net::UdpSocket;
use std::os::fd::{AsFd, BorrowedFd};
use verbline_roce::wire::{Addresses, icrc};

/// Headers of IPv4 and UDP.
const HEADERS_BYTES: usize = 28;

/// One link with two peers, and the lengths of the datagrams to each, by the peer's socket and by
/// the link's own, in the order of all that leave.
struct Sender {
    link: Link,
    outbox: Outbox,
    /// Of the peer's socket, and of the link's own.
    routes: [[Route; 2]; 2],
    due: [[VecDeque<usize>; 2]; 2],
}

impl Sender {
    fn new([own, first, second]: [SocketAddr; 3]) -> Sender {
        let (link, mut outbox) = (Link::open(own).expect("a free port"), Outbox::new(own));
        watch(link.own_socket());
        let routes = [first, second].map(|to| {
            let socket = PeerSocket::open(own, to.ip()).expect("loopback tells");
            watch(socket.as_fd());
            let addresses = Addresses::new(own.ip(), to.ip()).expect("one family");
            let port = outbox.peers.join(to.ip(), Some(socket));
            [port, own.port()].map(|source_port| Route { addresses, source_port, traffic_class: 0 })
        });
        Sender { link, outbox, routes, due: Default::default() }
    }

    fn add(&mut self, peer: usize, by: usize, len: usize) {
        let room = self.outbox.made_room(&self.link).expect("sent, if it was full");
        room[..len].fill(len as u8);
        self.outbox.add(&self.routes[peer][by], len);
        self.due[peer][by].push_back(sealed_bytes(len));
    }

    /// Checks all frames that have left by a socket.
    fn check(&mut self, socket: BorrowedFd<'_>) {
        while let Some(frame) = next_frame(socket) {
            let (head, mut rest) = frame.split_at(HEADERS_BYTES);
            let destination = [head[16], head[17], head[18], head[19]];
            let is_to = |routes: &[Route; 2]| routes[0].addresses.destination() == std::net::IpAddr::from(destination);
            let peer = self.routes.iter().position(is_to).expect("one of both");
            let source_port = u16::from_be_bytes([head[20], head[21]]);
            let by = self.routes[peer].iter().position(|route| route.source_port == source_port).expect("known");
            let mut ip_id = u16::from_be_bytes([head[4], head[5]]);
            while !rest.is_empty() {
                let len = self.due[peer][by].pop_front().expect("it was added");
                let (datagram, more) = rest.split_at(len);
                assert!(icrc::check(datagram, &self.routes[peer][by], ip_id), "peer {peer} by {by}: number {ip_id}");
                (rest, ip_id) = (more, ip_id.wrapping_add(1));
            }
        }
    }

    fn flush_and_check(&mut self) {
        self.outbox.flush(&self.link);
        let own = self.link.own_socket().try_clone_to_owned().expect("a descriptor");
        let peers = [0, 1].map(|at| self.outbox.peers.socket(at).try_clone_to_owned().expect("a descriptor"));
        [&own, &peers[0], &peers[1]].into_iter().for_each(|socket| self.check(socket.as_fd()));
        assert!(self.due.iter().flatten().all(VecDeque::is_empty), "all have left: {:?}", self.due);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// One of both peers listens; of the other, the network says at each datagram that it does not.
    #[test]
    fn each_datagram_has_the_checksum_for_the_number_with_which_it_leaves(
        turns in prop::collection::vec(
            prop::collection::vec((0..2usize, 0..2usize, prop_oneof![Just(76), Just(1036), 12..300usize]), 1..80),
            1..6,
        ),
        is_one_by_one in any::<bool>(),
    ) {
        let addresses = [15, 16, 17].map(address);
        let _listens = UdpSocket::bind(addresses[1]).expect("a free port");
        let mut sender = Sender::new(addresses);
        sender.outbox.is_one_by_one = is_one_by_one;
        for turn in turns {
            turn.into_iter().for_each(|(peer, by, len)| sender.add(peer, by, len));
            sender.flush_and_check();
        }
    }
}

/// 65,536 numbers later.
#[test]
fn the_numbers_of_a_peers_socket_go_round() {
    let mut sender = Sender::new([18, 19, 20].map(address));
    for _ in 0..600 {
        // Each shorter than the one before, or longer: a call for every second one.
        (0..220).for_each(|at| sender.add(0, 0, 12 + 4 * (at % 2)));
        sender.flush_and_check();
    }
}

/// The kernel refuses one, and so no number is sure.
#[test]
fn behind_a_datagram_that_can_not_leave_others_have_the_right_checksum() {
    let mut sender = Sender::new([21, 22, 23].map(address));
    sender.add(0, 0, 40);
    sender.flush_and_check();
    let number = sender.outbox.peers.take_number(0);
    let bytes = vec![7; 65_600];
    let (to, link) = (address(22), &sender.link);
    let too_long = Run { to, traffic_class: 0, bytes: &bytes, segment_bytes: bytes.len() };
    let _ = sender.outbox.peers.send(0, link, &too_long, number);
    let behind = Run { bytes: &bytes[..100], segment_bytes: 50, ..too_long };
    let number = sender.outbox.peers.take_number(0);
    let _ = sender.outbox.peers.send(0, link, &behind, number);
    let counted = link.counters.values();
    assert_eq!((counted.too_long, counted.full, counted.sent), (1, 2, 1), "{counted:?}");
    sender.outbox.flush(&sender.link);
    watch(sender.outbox.peers.socket(0));
    sender.add(0, 0, 44);
    sender.add(1, 0, 44);
    sender.flush_and_check();
}

#[test]
fn a_peer_that_is_given_up_or_left_is_served_by_the_links_own_socket() {
    let addresses = [24, 25, 26].map(address);
    let mut sender = Sender::new(addresses);
    let ports = sender.routes.map(|routes| routes[0].source_port);
    sender.outbox.peers.doubt(ports[0], || false);
    // A second queue pair of the other peer has come and gone.
    assert_eq!(sender.outbox.peers.join(addresses[2].ip(), None), ports[1]);
    sender.outbox.peers.leave(ports[1], false);
    for (peer, by) in [(0, 1), (1, 0)] {
        let room = sender.outbox.room().expect("empty");
        room[..40].fill(7);
        // As its queue pair has it, which is not told.
        sender.outbox.add(&sender.routes[peer][0], 40);
        sender.due[peer][by].push_back(sealed_bytes(40));
    }
    sender.flush_and_check();
    sender.outbox.peers.leave(ports[1], false);
    assert_eq!(sender.outbox.peers.join(addresses[2].ip(), None), addresses[0].port(), "its socket is gone");
    assert!(sender.outbox.peers.is_port_to(addresses[0].port(), addresses[2].ip()));
    assert!(!sender.outbox.peers.is_port_to(ports[0], addresses[2].ip()));
}

/// Connections from as many addresses hold all of them; other peers are served by the link's own.
#[test]
fn a_device_has_sixteen_sockets_of_peers_each_as_long_as_a_queue_pair_has_it() {
    let own = address(60);
    let (mut peers, to) = (Peers::new(own), |last| address(last).ip());
    let open = |last| PeerSocket::open(own, to(last)).ok();
    for last in 100..116 {
        assert!(peers.wants(to(last)));
        assert_ne!(peers.join(to(last), open(last)), own.port());
        assert!(!peers.wants(to(last)), "it has one");
    }
    assert!(!peers.wants(to(116)));
    assert_eq!(peers.join(to(116), open(116)), own.port());
    // The second queue pair has the peer's socket, and keeps it.
    let port = peers.join(to(100), open(100));
    assert!(peers.is_port_to(port, to(100)) && port != own.port());
    peers.leave(port, false);
    assert!(!peers.wants(to(116)));
    peers.leave(port, false);
    assert!(peers.wants(to(116)));
    assert_ne!(peers.join(to(116), open(116)), own.port());
}
