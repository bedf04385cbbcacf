//! Makes up the Ethernet frame of a captured packet: addresses and numbers are those of its queue
//! pairs, the rest is invented. A message is one frame of any length. If the capture kept only a
//! part, the lengths in the headers are of that part.

use std::net::{IpAddr, Ipv6Addr};

use verbline_engine::{CaptureDirection, CapturePath, Captured, Endpoint, Gid, Transport};
use verbline_roce::wire::{
    self, Addresses, Bth, Deth, HEADERS_MAX_BYTES, Psn, Qpn, Rc, Route, Segment, SendEnd, Uc, WriteEnd, ip,
};

const ETHERNET_BYTES: usize = 14;
const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xDD];
/// Locally administered, so that it belongs to no vendor.
const LOCAL_MAC: [u8; 3] = [0x02, 0x56, 0x4C];
/// The room of an IP packet beside the headers.
const PAYLOAD_BYTES_MAX: usize = 65_535 - ip::IP_UDP_MAX_BYTES - HEADERS_MAX_BYTES;

/// Writes the frame of a packet with number `psn` into `out`, replacing its content. Returns the
/// frame's bytes beside the packet's.
pub(super) fn write(out: &mut Vec<u8>, captured: &Captured, psn: u32) -> usize {
    let data = captured.data();
    let payload = &data[..data.len().min(PAYLOAD_BYTES_MAX)];
    let Ends { from, to, transport } = Ends::of(captured);
    let route = Route::new(addresses(from.gid, to.gid), from.qpn, to.qpn);
    let packet = wire::Packet {
        bth: Bth { ack_request: transport == Transport::Rc, ..Bth::new(Qpn::new(to.qpn), Psn::new(psn)) },
        segment: segment(transport, captured.immediate, from, to),
        payload,
    };
    let headers = ETHERNET_BYTES + ip::IP_UDP_MAX_BYTES;
    out.clear();
    out.resize(headers + payload.len() + HEADERS_MAX_BYTES, 0);
    let datagram = packet.write(&mut out[headers..], &route, 0);
    let mut ip_udp = [0; ip::IP_UDP_MAX_BYTES];
    let ip_bytes = ip::write(&mut ip_udp, &route, 0, datagram);
    // The headers end right before the datagram.
    let begin = headers - ip_bytes - ETHERNET_BYTES;
    out[headers - ip_bytes..headers].copy_from_slice(&ip_udp[..ip_bytes]);
    let kind = if route.addresses.source().is_ipv4() { IPV4 } else { IPV6 };
    let ethernet = [&mac(to.gid)[..], &mac(from.gid), &kind].concat();
    out[begin..begin + ETHERNET_BYTES].copy_from_slice(&ethernet);
    out.truncate(headers + datagram);
    out.drain(..begin);
    out.len() - payload.len()
}

/// The source and destination of a packet.
#[derive(Clone, Copy)]
pub(super) struct Ends {
    pub(super) from: Endpoint,
    pub(super) to: Endpoint,
    transport: Transport,
}

impl Ends {
    pub(super) fn of(captured: &Captured) -> Ends {
        let nobody = Endpoint { qpn: 0, psn: 0, gid: Gid::default(), lid: 0, qkey: 0 };
        let (local, peer, transport) = match captured.path {
            Some(CapturePath { transport, local, peer }) => (local, peer.unwrap_or(nobody), transport),
            None => (nobody, nobody, Transport::Rc),
        };
        match captured.direction {
            CaptureDirection::Received => Ends { from: peer, to: local, transport },
            CaptureDirection::Sent | CaptureDirection::Within => Ends { from: local, to: peer, transport },
        }
    }
}

fn segment(transport: Transport, immediate: Option<u32>, from: Endpoint, to: Endpoint) -> Segment {
    match transport {
        Transport::Ud => Segment::Ud(Deth { qkey: to.qkey, source: Qpn::new(from.qpn) }, immediate),
        Transport::Uc => {
            let last = immediate.map_or(WriteEnd::Plain, WriteEnd::Immediate);
            Segment::Uc(Uc::Send { first: true, last: Some(last) })
        }
        Transport::Rc | Transport::RawPacket => {
            let last = immediate.map_or(SendEnd::Plain, SendEnd::Immediate);
            Segment::Rc(Rc::Send { first: true, last: Some(last) })
        }
    }
}

/// The addresses of two GIDs, in one family.
fn addresses(from: Gid, to: Gid) -> Addresses {
    let v4 = from.to_ipv4().zip(to.to_ipv4());
    let both = v4.and_then(|(from, to)| Addresses::new(IpAddr::V4(from), IpAddr::V4(to)));
    both.unwrap_or(Addresses::V6 { source: Ipv6Addr::from(from.0), destination: Ipv6Addr::from(to.0) })
}

/// A made-up address, the same for the same GID.
fn mac(gid: Gid) -> [u8; 6] {
    let ([a, b, c], [.., x, y, z]) = (LOCAL_MAC, gid.0);
    [a, b, c, x, y, z]
}
