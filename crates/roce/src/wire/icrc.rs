//! The invariant CRC: the CRC-32 of Ethernet and zlib over everything that routers leave unchanged.
//!
//! It covers eight bytes of ones, the IP header and the UDP header with their variable fields
//! masked, the base transport header with its congestion bits masked, and the rest of the datagram
//! up to the checksum itself. The IPv4 identification, its DF flag (which is set here), the UDP
//! source port and the lengths are covered.

use crate::wire::header::BTH_BYTES;
use crate::wire::route::{Addresses, ROCE_PORT, Route};
use crc32fast::Hasher;

/// The bytes of the checksum, at a datagram's end, least significant first.
pub const ICRC_BYTES: usize = 4;
/// In place of InfiniBand's local route header, which RoCE lacks.
const ONES_BYTES: usize = 8;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const UDP_BYTES: usize = 8;
const UDP_PROTOCOL: u8 = 17;
/// The byte of the base transport header in which switches mark congestion.
const CONGESTION_BYTE: usize = 4;
const MASKED_MAX_BYTES: usize = ONES_BYTES + IPV6_BYTES + UDP_BYTES + BTH_BYTES;

/// Computes the checksum of a datagram; `body` is all but the checksum.
pub fn compute(body: &[u8], route: &Route, ip_id: u16) -> u32 {
    let mut masked = [0xFF; MASKED_MAX_BYTES];
    let mut len = ONES_BYTES;
    let mut put = |bytes: &[u8]| {
        masked[len..len + bytes.len()].copy_from_slice(bytes);
        len += bytes.len();
    };
    let udp_len = ((UDP_BYTES + body.len() + ICRC_BYTES) as u16).to_be_bytes();
    match route.addresses {
        Addresses::V4 { source, destination } => {
            let total = ((IPV4_BYTES + UDP_BYTES + body.len() + ICRC_BYTES) as u16).to_be_bytes();
            put(&[0x45, 0xFF, total[0], total[1]]);
            put(&ip_id.to_be_bytes());
            // Don't fragment; then time to live, protocol and checksum.
            put(&[0x40, 0, 0xFF, UDP_PROTOCOL, 0xFF, 0xFF]);
            put(&source.octets());
            put(&destination.octets());
        }
        Addresses::V6 { source, destination } => {
            // Version, traffic class and flow label; then payload length, next header, hop limit.
            put(&[0x6F, 0xFF, 0xFF, 0xFF, udp_len[0], udp_len[1], UDP_PROTOCOL, 0xFF]);
            put(&source.octets());
            put(&destination.octets());
        }
    }
    put(&route.source_port.to_be_bytes());
    put(&ROCE_PORT.to_be_bytes());
    put(&udp_len);
    put(&[0xFF, 0xFF]);
    let (head, rest) = body.split_at(body.len().min(BTH_BYTES));
    put(head);
    if head.len() > CONGESTION_BYTE {
        masked[len - head.len() + CONGESTION_BYTE] = 0xFF;
    }
    let mut crc = Hasher::new();
    crc.update(&masked[..len]);
    crc.update(rest);
    crc.finalize()
}

/// Whether a datagram's checksum is right.
pub fn check(datagram: &[u8], route: &Route, ip_id: u16) -> bool {
    let split = datagram.split_last_chunk::<ICRC_BYTES>();
    split.is_some_and(|(body, sum)| u32::from_le_bytes(*sum) == compute(body, route, ip_id))
}
