//! IP and UDP headers around a datagram, for carriers of whole frames and for captures. Sockets
//! write these headers themselves.

use crate::wire::icrc;
use crate::wire::route::{Addresses, ROCE_PORT, Route};
use std::net::{Ipv4Addr, Ipv6Addr};

/// The most bytes of headers.
pub const IP_UDP_MAX_BYTES: usize = IPV6_BYTES + UDP_BYTES;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const UDP_BYTES: usize = 8;
/// The bytes before an IPv4 header, where an IPv6 header would begin.
const BEFORE_V4_BYTES: usize = IPV6_BYTES - IPV4_BYTES;
const UDP_PROTOCOL: u8 = 17;
const HOP_LIMIT: u8 = 64;
const DONT_FRAGMENT: u16 = 0x4000;

/// A parsed frame, from the IP header on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The contents of its headers.
    pub route: Route,
    /// The identification of an IPv4 header; 0 for IPv6.
    pub ip_id: u16,
    /// The UDP payload.
    pub datagram: &'a [u8],
}

/// The bytes before a datagram's message in a receive (verbs: `ibv_grh`).
pub const BEFORE_MESSAGE_BYTES: usize = IPV6_BYTES;

/// The bytes before the message of a received datagram of `len` bytes: its IPv6 header, or zeros
/// and its IPv4 header (annex A17). A carrier that doesn't know the identification and the hop
/// limit shows those that we send with.
///
/// # Panics
/// If `len` is more than fits a datagram.
pub fn before_message(route: &Route, len: usize) -> [u8; BEFORE_MESSAGE_BYTES] {
    let mut written = [0; IP_UDP_MAX_BYTES];
    write(&mut written, route, 0, len);
    let mut before = [0; BEFORE_MESSAGE_BYTES];
    match route.addresses {
        Addresses::V4 { .. } => before[BEFORE_V4_BYTES..].copy_from_slice(&written[..IPV4_BYTES]),
        Addresses::V6 { .. } => before.copy_from_slice(&written[..IPV6_BYTES]),
    }
    before
}

/// An IPv4 header before a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BeforeV4 {
    /// The sender's address.
    pub source: Ipv4Addr,
    /// The receiver's address, or the group's.
    pub destination: Ipv4Addr,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// Hops that remained.
    pub hop_limit: u8,
}

/// Reads the IPv4 header before a message; nothing if a GRH or an IPv6 header lies there. The bytes
/// before an IPv4 header may be of any value; where they look like an IPv6 header, the checksum
/// decides.
pub fn read_v4_before_message(before: &[u8; BEFORE_MESSAGE_BYTES]) -> Option<BeforeV4> {
    let head = before.last_chunk::<IPV4_BYTES>()?;
    let is_v4 = head[0] == 0x45 && (before[0] >> 4 != 6 || header_checksum(head) == 0);
    let address = |at: usize| Ipv4Addr::new(head[at], head[at + 1], head[at + 2], head[at + 3]);
    let (source, destination) = (address(12), address(16));
    is_v4.then_some(BeforeV4 { source, destination, traffic_class: head[1], hop_limit: head[8] })
}

/// Writes the headers before a datagram of `len` bytes; returns their length. IPv6 goes without a
/// UDP checksum too, as RFC 6935 allows where another one (the ICRC) covers the payload.
///
/// # Panics
/// If `out` is shorter than [`IP_UDP_MAX_BYTES`], or `len` is more than fits a datagram.
pub fn write(out: &mut [u8], route: &Route, ip_id: u16, len: usize) -> usize {
    let udp_len = u16::try_from(UDP_BYTES + len).expect("a datagram's length fits 16 bits");
    let at = match route.addresses {
        Addresses::V4 { source, destination } => {
            let total = u16::try_from(IPV4_BYTES + UDP_BYTES + len).expect("a packet's length fits 16 bits");
            out[..2].copy_from_slice(&[0x45, route.traffic_class]);
            out[2..4].copy_from_slice(&total.to_be_bytes());
            out[4..6].copy_from_slice(&ip_id.to_be_bytes());
            out[6..8].copy_from_slice(&DONT_FRAGMENT.to_be_bytes());
            out[8..12].copy_from_slice(&[HOP_LIMIT, UDP_PROTOCOL, 0, 0]);
            out[12..16].copy_from_slice(&source.octets());
            out[16..20].copy_from_slice(&destination.octets());
            let sum = header_checksum(&out[..IPV4_BYTES]);
            out[10..12].copy_from_slice(&sum.to_be_bytes());
            IPV4_BYTES
        }
        Addresses::V6 { source, destination } => {
            let first = 6 << 28 | u32::from(route.traffic_class) << 20;
            out[..4].copy_from_slice(&u32::to_be_bytes(first));
            out[4..6].copy_from_slice(&udp_len.to_be_bytes());
            out[6..8].copy_from_slice(&[UDP_PROTOCOL, HOP_LIMIT]);
            out[8..24].copy_from_slice(&source.octets());
            out[24..40].copy_from_slice(&destination.octets());
            IPV6_BYTES
        }
    };
    let udp = &mut out[at..at + UDP_BYTES];
    udp[..2].copy_from_slice(&route.source_port.to_be_bytes());
    udp[2..4].copy_from_slice(&ROCE_PORT.to_be_bytes());
    udp[4..6].copy_from_slice(&udp_len.to_be_bytes());
    udp[6..].fill(0);
    at + UDP_BYTES
}

/// Parses a frame; nothing if it is not a whole UDP datagram to [`ROCE_PORT`], is a fragment, or
/// has IP options or extension headers, which RoCE doesn't allow.
pub fn read(frame: &[u8]) -> Option<Frame<'_>> {
    let (addresses, traffic_class, ip_id, rest) = match frame.first()? >> 4 {
        4 => read_v4(frame)?,
        6 => read_v6(frame)?,
        _ => return None,
    };
    let (udp, body) = rest.split_first_chunk::<UDP_BYTES>()?;
    let [s0, s1, d0, d1, l0, l1, ..] = *udp;
    let len = usize::from(u16::from_be_bytes([l0, l1])).checked_sub(UDP_BYTES)?;
    let is_ours = u16::from_be_bytes([d0, d1]) == ROCE_PORT && len == body.len();
    let route = Route { addresses, source_port: u16::from_be_bytes([s0, s1]), traffic_class };
    is_ours.then_some(Frame { route, ip_id, datagram: body })
}

type Headers<'a> = (Addresses, u8, u16, &'a [u8]);

fn read_v4(frame: &[u8]) -> Option<Headers<'_>> {
    let head = frame.first_chunk::<IPV4_BYTES>()?;
    let total = usize::from(u16::from_be_bytes([head[2], head[3]]));
    let rest = frame.get(IPV4_BYTES..total)?;
    let is_plain = head[0] == 0x45 && u16::from_be_bytes([head[6], head[7]]) == DONT_FRAGMENT;
    let is_right = is_plain && head[9] == UDP_PROTOCOL && header_checksum(head) == 0;
    let address = |at: usize| Ipv4Addr::new(head[at], head[at + 1], head[at + 2], head[at + 3]);
    let addresses = Addresses::V4 { source: address(12), destination: address(16) };
    is_right.then_some((addresses, head[1], u16::from_be_bytes([head[4], head[5]]), rest))
}

fn read_v6(frame: &[u8]) -> Option<Headers<'_>> {
    let head = frame.first_chunk::<IPV6_BYTES>()?;
    let len = usize::from(u16::from_be_bytes([head[4], head[5]]));
    let rest = frame.get(IPV6_BYTES..IPV6_BYTES + len)?;
    let address = |at: usize| Ipv6Addr::from(<[u8; 16]>::try_from(&head[at..at + 16]).expect("sixteen bytes"));
    let addresses = Addresses::V6 { source: address(8), destination: address(24) };
    (head[6] == UDP_PROTOCOL).then_some((addresses, head[0] << 4 | head[1] >> 4, 0, rest))
}

impl Frame<'_> {
    /// Whether the datagram's ICRC is right.
    pub fn is_intact(&self) -> bool {
        icrc::check(self.datagram, &self.route, self.ip_id)
    }
}

/// The checksum of an IPv4 header whose checksum field is 0; 0 for one whose field is right.
fn header_checksum(head: &[u8]) -> u16 {
    let sum: u32 = head.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let folded = (sum & 0xFFFF) + (sum >> 16);
    !((folded & 0xFFFF) + (folded >> 16)) as u16
}
