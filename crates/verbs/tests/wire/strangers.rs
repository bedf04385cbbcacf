//! The cost of a stranger's UD datagram: docs/hostile-wire.md has a row of each test's name.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Instant;

use crate::common::{Options, PATIENCE, Side};
use crate::datagrams::{datagram_side, ready};
use crate::{ADDRESS_GID, options, own, side_of, side_with};
use verbline_verbs::{Discard, InitSpec, Transport, wire_counters};

const SEND_ONLY: u8 = 0x64;
const RC_SEND_ONLY: u8 = 0x04;
const PKEY: u16 = 0xffff;

/// A sender that is no peer, with a datagram queue pair to send to.
struct Stranger {
    socket: UdpSocket,
    side: Side,
}

/// A sender at an address of its own.
fn stranger() -> Stranger {
    let socket = UdpSocket::bind((Ipv4Addr::new(127, 99, 0, 1), 0)).unwrap();
    socket.set_nonblocking(true).unwrap();
    Stranger { socket, side: datagram_side(own()) }
}

/// A packet: its headers, its payload, and a checksum that a socket does not check.
fn packet(opcode: u8, pkey: u16, (qpn, qkey): (u32, u32), payload: &[u8]) -> Vec<u8> {
    let pad = payload.len().wrapping_neg() & 3;
    let mut bytes = vec![opcode, (pad as u8) << 4];
    bytes.extend(pkey.to_be_bytes());
    bytes.extend(qpn.to_be_bytes());
    bytes.extend([0; 4]);
    if opcode == SEND_ONLY {
        bytes.extend(qkey.to_be_bytes());
        bytes.extend(0x1234_u32.to_be_bytes());
    }
    bytes.extend(payload);
    bytes.extend(vec![0; pad + 4]);
    bytes
}

impl Stranger {
    fn send(&self, bytes: &[u8]) {
        self.socket.send_to(bytes, SocketAddr::new(own(), 4791)).unwrap();
    }

    fn target(&self) -> (u32, u32) {
        (self.side.qp.qpn(), self.side.qp.endpoint().qkey)
    }

    /// Polls until `is_so`; any completion is a fault.
    fn poll_until(&mut self, is_so: impl Fn() -> bool) {
        let until = Instant::now() + PATIENCE;
        while !is_so() {
            assert!(Instant::now() < until, "it never comes");
            self.side.poll(|_, _, completion| panic!("{completion:?}"));
        }
    }

    /// Checks that the packet is counted under that reason, and has no other effect.
    fn is_discarded(&mut self, why: Discard, bytes: &[u8]) {
        let count = move || wire_counters().map(|wire| wire.incidents.discarded(why)).sum::<u64>();
        let before = count();
        self.send(bytes);
        self.poll_until(|| count() > before);
        self.is_there_and_silent();
    }

    /// Checks that the queue pair takes packets with its key, and that nothing has come back.
    fn is_there_and_silent(&mut self) {
        assert_eq!(self.side.post_recvs(1), 1);
        self.send(&packet(SEND_ONLY, PKEY, self.target(), b"known"));
        assert_eq!(self.side.receive(1)[0].data(), b"known");
        let mut room = [0; 64];
        assert!(self.socket.recv(&mut room).is_err(), "a stranger is not answered");
    }
}

#[test]
fn to_nobody() {
    let mut stranger = stranger();
    let (qpn, qkey) = stranger.target();
    // An unused number of this process, and one of a slice without a process.
    for qpn in [qpn ^ 0x8000, 0x42] {
        stranger.is_discarded(Discard::NoQueuePair, &packet(SEND_ONLY, PKEY, (qpn, qkey), b"to nobody"));
    }
}

#[test]
fn to_one_of_another_transport() {
    let mut stranger = stranger();
    let target = stranger.target();
    stranger.is_discarded(Discard::NoQueuePair, &packet(RC_SEND_ONLY, PKEY, target, b"reliable"));
    let reliable = side_of(Transport::Rc, own(), false);
    let to = (reliable.qp.qpn(), target.1);
    stranger.is_discarded(Discard::NoQueuePair, &packet(SEND_ONLY, PKEY, to, b"not yet a peer's"));
}

/// Regression: such a datagram was in no count.
#[test]
fn to_one_that_is_not_ready() {
    let mut stranger = stranger();
    let mut early = side_of(Transport::Ud, own(), false);
    early.qp.to_init(&InitSpec { gid_index: ADDRESS_GID, ..InitSpec::default() }).unwrap();
    let to = (early.qp.qpn(), stranger.target().1);
    stranger.is_discarded(Discard::NotReady, &packet(SEND_ONLY, PKEY, to, b"too early"));
}

/// As the kernel's rxe and cards show it: in the last 20 of the 40 bytes. Regression: there was a
/// GRH of IPv6.
#[test]
fn that_comes_by_ipv4_lies_behind_its_ip_header() {
    let mut stranger = stranger();
    assert_eq!(stranger.side.post_recvs(1), 1);
    let bytes = packet(SEND_ONLY, PKEY, stranger.target(), b"known");
    stranger.send(&bytes);
    let received = stranger.side.receive(1);
    let header = received[0].headroom_data().last_chunk::<40>().unwrap();
    assert_eq!(header[..20], [0; 20]);
    let IpAddr::V4(to) = own() else { panic!() };
    let len = (28 + bytes.len()) as u16;
    assert_eq!((&header[20..22], &header[22..24]), (&[0x45, 0][..], &len.to_be_bytes()[..]));
    assert_eq!((&header[32..36], &header[36..40]), (&[127, 99, 0, 1][..], &to.octets()[..]));
}

#[test]
fn of_another_partition() {
    let mut stranger = stranger();
    let target = stranger.target();
    stranger.is_discarded(Discard::Key, &packet(SEND_ONLY, 0x1234, target, b"elsewhere"));
}

#[test]
fn that_is_no_packet() {
    let mut stranger = stranger();
    for len in [1, 11, 15] {
        stranger.is_discarded(Discard::Malformed, &vec![SEND_ONLY; len]);
    }
}

/// A peer that makes a socket for its connections sends two of them.
#[test]
fn that_is_empty() {
    let mut stranger = stranger();
    let received = || wire_counters().map(|wire| wire.link.received).sum::<u64>();
    let discarded = || Discard::ALL.map(|why| wire_counters().map(|wire| wire.incidents.discarded(why)).sum::<u64>());
    let before = (received(), discarded());
    stranger.send(&[]);
    stranger.poll_until(|| received() > before.0);
    stranger.is_there_and_silent();
    assert_eq!(discarded(), before.1);
}

#[test]
fn with_another_key() {
    let mut stranger = stranger();
    let (qpn, qkey) = stranger.target();
    assert_eq!(stranger.side.post_recvs(1), 1);
    stranger.send(&packet(SEND_ONLY, PKEY, (qpn, qkey ^ 1), b"another key"));
    stranger.send(&packet(SEND_ONLY, PKEY, (qpn, qkey), b"its key"));
    // The one receive is still posted.
    assert_eq!(stranger.side.receive(1)[0].data(), b"its key");
    stranger.is_there_and_silent();
}

#[test]
fn that_finds_no_receive() {
    let mut stranger = stranger();
    let target = stranger.target();
    let lost = stranger.side.qp.out_of_buffer();
    stranger.send(&packet(SEND_ONLY, PKEY, target, b"nowhere to go"));
    stranger.poll_until(|| lost.value() == Some(1));
    stranger.is_there_and_silent();
}

/// Regression: such a datagram failed the queue pair, and ended the run of a program that listens
/// to a group.
#[test]
fn longer_than_its_receive() {
    let short = Options { data_bytes: 512, ..options(Transport::Ud) };
    let mut stranger = Stranger { side: ready(side_with(&short, own(), false)), ..stranger() };
    let (target, lost) = (stranger.target(), stranger.side.qp.out_of_buffer());
    assert_eq!(stranger.side.post_recvs(1), 1);
    stranger.send(&packet(SEND_ONLY, PKEY, target, &[7; 4096]));
    stranger.poll_until(|| lost.value() == Some(1));
    stranger.send(&packet(SEND_ONLY, PKEY, target, b"it fits"));
    // The one receive is still posted.
    assert_eq!(stranger.side.receive(1)[0].data(), b"it fits");
    stranger.is_there_and_silent();
}

#[test]
fn longer_than_any_packet() {
    let mut stranger = stranger();
    let truncated = || wire_counters().map(|wire| wire.link.truncated).sum::<u64>();
    let before = truncated();
    stranger.send(&packet(SEND_ONLY, PKEY, stranger.target(), &[7; 5000]));
    stranger.poll_until(|| truncated() > before);
    stranger.is_there_and_silent();
}
