//! The header of a received datagram, and the path back to its sender (ibv_create_ah_from_wc(3)).

use std::net::Ipv4Addr;

use verbline_mem::Packet;

use crate::cq::completion::{Completion, Status, WcOpcode};
use crate::datagram::ah::AhSpec;
use crate::device::gid::Gid;

/// Bytes that a UD receive puts before the message: a Global Routing Header, or 40 bytes without
/// meaning when none came (InfiniBand Architecture Specification, 11.4.1.2).
pub const GRH_BYTES: usize = 40;

/// Offset of the IPv4 header in datagrams that came by IPv4 (RoCEv2, annex A17): the last 20 of the
/// 40 bytes.
const IPV4: usize = 20;

/// The header of a received datagram: a GRH (InfiniBand Architecture Specification, 8.3), or on
/// RoCEv2 the IP header in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grh {
    /// The sender's GID.
    pub source: Gid,
    /// The destination: a GID of ours, or a group's.
    pub destination: Gid,
    /// Traffic class.
    pub traffic_class: u8,
    /// Flow label, 20 bits; 0 for IPv4.
    pub flow_label: u32,
    /// Hops that remained.
    pub hop_limit: u8,
}

/// Why there is no path back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// The completion is not of a received message.
    #[error("only a received message can be answered; this completion is {opcode:?}, {status}")]
    NotReceived {
        /// The completion's operation.
        opcode: WcOpcode,
        /// The completion's status.
        status: Status,
    },
    /// The packet has less than 40 bytes before its data.
    #[error(
        "the packet has {headroom_bytes} bytes before its data, too few for the GRH: ask before anything is put in \
         front, and with the packet of this completion"
    )]
    NoHeader {
        /// The packet's headroom.
        headroom_bytes: usize,
    },
    /// The 40 bytes are neither form of header.
    #[error("the 40 bytes before the packet's data are no GRH and no IP header; were they overwritten?")]
    Unreadable,
}

impl Grh {
    /// Reads the first 40 bytes of a datagram's receive buffer, which are valid if
    /// [`Completion::has_grh`]; `None` when they are not a header.
    ///
    /// The two forms are told apart as in libibverbs. With IPv4 the first 20 bytes are undefined
    /// and may look like the other form; then the checksum decides.
    pub fn parse(bytes: &[u8; GRH_BYTES]) -> Option<Grh> {
        let (like_grh, like_ipv4) = (bytes[0] >> 4 == 6, bytes[IPV4] == 0x45);
        match (like_grh, like_ipv4) {
            (_, true) if !like_grh || checksum_is_right(&bytes[IPV4..]) => Some(Grh::of_ipv4(bytes)),
            (true, _) => Some(Grh::of_grh(bytes)),
            _ => None,
        }
    }

    /// [`Grh::parse`] of the bytes before the data of a packet from
    /// [`crate::QueuePair::recv_done`].
    pub fn before(packet: &Packet) -> Option<Grh> {
        Grh::parse(packet.headroom_data().last_chunk()?)
    }

    fn of_grh(bytes: &[u8; GRH_BYTES]) -> Grh {
        // Version, traffic class and flow label, payload length, next header, hop limit, and the
        // two GIDs.
        let first = u32::from_be_bytes(part(bytes, 0));
        Grh {
            source: Gid(part(bytes, 8)),
            destination: Gid(part(bytes, 24)),
            traffic_class: (first >> 20) as u8,
            flow_label: first & 0xf_ffff,
            hop_limit: bytes[7],
        }
    }

    fn of_ipv4(bytes: &[u8; GRH_BYTES]) -> Grh {
        // RFC 791, 3.1.
        let address = |at| Gid::from(Ipv4Addr::from(part::<4>(bytes, at)));
        Grh {
            source: address(IPV4 + 12),
            destination: address(IPV4 + 16),
            traffic_class: bytes[IPV4 + 1],
            flow_label: 0,
            hop_limit: bytes[IPV4 + 8],
        }
    }
}

impl AhSpec {
    /// The path to the sender of this completion's message, with the message's traffic class, flow
    /// label and service level. The packet must be the completion's, unchanged since
    /// [`crate::QueuePair::recv_done`] returned it: the GRH is read from before its data. The
    /// sender's QP is [`Completion::src_qp`]; its Q_Key must be agreed on otherwise.
    ///
    /// The path starts at port 1 and GID index 0, the default: [`AhSpec::from_port`] changes that,
    /// and [`crate::QueuePair::reply_path`] takes the QP's own.
    pub fn reply(completion: &Completion, packet: &Packet) -> Result<AhSpec, ReplyError> {
        if !completion.brought_a_message() {
            return Err(ReplyError::NotReceived { opcode: completion.opcode(), status: completion.status() });
        }
        let by_lid = AhSpec { lid: completion.slid(), service_level: completion.service_level(), ..AhSpec::default() };
        if !completion.has_grh() {
            return Ok(by_lid);
        }
        let headroom_bytes = packet.headroom();
        if headroom_bytes < GRH_BYTES {
            return Err(ReplyError::NoHeader { headroom_bytes });
        }
        let Grh { source, traffic_class, flow_label, .. } = Grh::before(packet).ok_or(ReplyError::Unreadable)?;
        Ok(AhSpec { gid: Some(source), traffic_class, flow_label, ..by_lid })
    }
}

/// `LEN` bytes from `at`, which must lie within `bytes`.
fn part<const LEN: usize>(bytes: &[u8; GRH_BYTES], at: usize) -> [u8; LEN] {
    std::array::from_fn(|index| bytes[at + index])
}

/// Whether the sum of an IPv4 header with its checksum is correct (RFC 1071).
fn checksum_is_right(header: &[u8]) -> bool {
    let words = header.as_chunks::<2>().0;
    let sum: u32 = words.iter().map(|&word| u32::from(u16::from_be_bytes(word))).sum();
    (sum & 0xffff) + (sum >> 16) == 0xffff
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From 10.0.0.1 to 239.1.1.1, DSCP 46, 3 hops left, with its checksum.
    const IPV4_HEADER: [u8; 20] = [0x45, 0xb8, 0, 60, 0, 1, 0, 0, 3, 17, 0xbc, 0xf5, 10, 0, 0, 1, 239, 1, 1, 1];

    fn behind(first: [u8; 20], header: [u8; 20]) -> [u8; GRH_BYTES] {
        let mut bytes = [0; GRH_BYTES];
        bytes[..20].copy_from_slice(&first);
        bytes[20..].copy_from_slice(&header);
        bytes
    }

    fn ipv4() -> Grh {
        Grh {
            source: "10.0.0.1".parse().unwrap(),
            destination: "239.1.1.1".parse().unwrap(),
            traffic_class: 0xb8,
            flow_label: 0,
            hop_limit: 3,
        }
    }

    #[test]
    fn an_ipv4_header_is_read_whatever_is_before_it() {
        for first in [[0; 20], [0xff; 20], [0x60; 20], [0x45; 20]] {
            assert_eq!(Grh::parse(&behind(first, IPV4_HEADER)), Some(ipv4()), "{first:?}");
        }
    }

    #[test]
    fn a_grh_is_read_also_where_its_gid_looks_like_the_start_of_an_ipv4_header() {
        let mut bytes = [0; GRH_BYTES];
        bytes[..8].copy_from_slice(&[0x61, 0x2a, 0xbc, 0xde, 0, 60, 0x1b, 9]);
        let source: Gid = "fe80::4500:3c:1:2".parse().unwrap();
        let destination: Gid = "fe80::7".parse().unwrap();
        bytes[8..24].copy_from_slice(&source.0);
        bytes[24..].copy_from_slice(&destination.0);
        bytes[20] = 0x45;
        let source = Gid(part(&bytes, 8));
        let expected = Grh { source, destination, traffic_class: 0x12, flow_label: 0xa_bcde, hop_limit: 9 };
        assert_eq!(Grh::parse(&bytes), Some(expected));
    }

    #[test]
    fn what_is_neither_is_nothing() {
        let mut six = IPV4_HEADER;
        six[0] = 0x46;
        for bytes in [[0; GRH_BYTES], [0xff; GRH_BYTES], behind([0; 20], six)] {
            assert_eq!(Grh::parse(&bytes), None);
        }
    }
}
