//! The header of `rdma_cm` with addresses and ports, which precedes a request's private data.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The header's bytes.
pub const IP_HEADER_BYTES: usize = 36;
/// The kinds of connections of `rdma_cm`. Each has a port space of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PortSpace {
    /// RC, in `RDMA_PS_TCP`.
    Reliable,
    /// UC, in `RDMA_PS_IB`: the only space of `rdma_cm` in which a program chooses the transport.
    Unreliable,
}

impl PortSpace {
    const ALL: [PortSpace; 2] = [PortSpace::Reliable, PortSpace::Unreliable];

    /// The space in a service's number (rdma_cma.h, `enum rdma_port_space`).
    fn bits(self) -> u64 {
        match self {
            PortSpace::Reliable => 0x0106 << 16,
            PortSpace::Unreliable => 0x013F << 16,
        }
    }

    /// The number of the service that listens on a port of this space.
    pub fn service_of_port(self, port: u16) -> u64 {
        self.bits() | u64::from(port)
    }

    /// The space and the port of a service, if it is a port of `rdma_cm`'s connections.
    pub(crate) fn of_service(service: u64) -> Option<(PortSpace, u16)> {
        let space = PortSpace::ALL.into_iter().find(|space| service & !0xFFFF == space.bits())?;
        Some((space, service as u16))
    }

    /// The transport service type in requests for connections of this space.
    pub(crate) fn service_type(self) -> u8 {
        match self {
            PortSpace::Reliable => 0,
            PortSpace::Unreliable => 1,
        }
    }
}

/// The active side of a request, in terms of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpHeader {
    /// By IPv4.
    V4 {
        /// The active side's port.
        source_port: u16,
        /// Its address.
        source: Ipv4Addr,
        /// The address that the request is for.
        destination: Ipv4Addr,
    },
    /// By IPv6.
    V6 {
        /// The active side's port.
        source_port: u16,
        /// Its address.
        source: Ipv6Addr,
        /// The address that the request is for.
        destination: Ipv6Addr,
    },
}

impl IpHeader {
    /// Makes the header of two addresses; nothing if their families differ.
    pub fn new(source: IpAddr, source_port: u16, destination: IpAddr) -> Option<IpHeader> {
        match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => Some(IpHeader::V4 { source_port, source, destination }),
            (IpAddr::V6(source), IpAddr::V6(destination)) => Some(IpHeader::V6 { source_port, source, destination }),
            _ => None,
        }
    }

    /// Reads the header; nothing if its version or that of IP is unknown.
    pub fn read(bytes: &[u8; IP_HEADER_BYTES]) -> Option<IpHeader> {
        let source_port = u16::from_be_bytes([bytes[2], bytes[3]]);
        let v4 = |at: usize| Ipv4Addr::new(bytes[at + 12], bytes[at + 13], bytes[at + 14], bytes[at + 15]);
        let v6 = |at: usize| Ipv6Addr::from(<[u8; 16]>::try_from(&bytes[at..at + 16]).expect("sixteen bytes"));
        match (bytes[0], bytes[1] >> 4) {
            (0, 4) => Some(IpHeader::V4 { source_port, source: v4(4), destination: v4(20) }),
            (0, 6) => Some(IpHeader::V6 { source_port, source: v6(4), destination: v6(20) }),
            _ => None,
        }
    }

    /// Writes the header.
    pub fn to_bytes(&self) -> [u8; IP_HEADER_BYTES] {
        let mut bytes = [0; IP_HEADER_BYTES];
        let port = match *self {
            IpHeader::V4 { source_port, source, destination } => {
                bytes[1] = 4 << 4;
                bytes[16..20].copy_from_slice(&source.octets());
                bytes[32..36].copy_from_slice(&destination.octets());
                source_port
            }
            IpHeader::V6 { source_port, source, destination } => {
                bytes[1] = 6 << 4;
                bytes[4..20].copy_from_slice(&source.octets());
                bytes[20..36].copy_from_slice(&destination.octets());
                source_port
            }
        };
        bytes[2..4].copy_from_slice(&port.to_be_bytes());
        bytes
    }
}

/// An address as a GID: IPv4 is mapped into IPv6.
pub(crate) fn gid_of(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}
