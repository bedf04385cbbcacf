//! The route of a datagram: its source and destination.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The UDP port of RoCE v2.
pub const ROCE_PORT: u16 = 4791;

/// Two addresses of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Addresses {
    /// IPv4.
    V4 {
        /// The sender's.
        source: Ipv4Addr,
        /// The receiver's.
        destination: Ipv4Addr,
    },
    /// IPv6.
    V6 {
        /// The sender's.
        source: Ipv6Addr,
        /// The receiver's.
        destination: Ipv6Addr,
    },
}

impl Addresses {
    /// The addresses of both ends; nothing if their families differ.
    pub fn new(source: IpAddr, destination: IpAddr) -> Option<Addresses> {
        match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => Some(Addresses::V4 { source, destination }),
            (IpAddr::V6(source), IpAddr::V6(destination)) => Some(Addresses::V6 { source, destination }),
            _ => None,
        }
    }

    /// The sender's.
    pub fn source(&self) -> IpAddr {
        match *self {
            Addresses::V4 { source, .. } => source.into(),
            Addresses::V6 { source, .. } => source.into(),
        }
    }

    /// The receiver's.
    pub fn destination(&self) -> IpAddr {
        match *self {
            Addresses::V4 { destination, .. } => destination.into(),
            Addresses::V6 { destination, .. } => destination.into(),
        }
    }

    /// The addresses of the way back.
    #[must_use]
    pub fn reversed(&self) -> Addresses {
        match *self {
            Addresses::V4 { source, destination } => Addresses::V4 { source: destination, destination: source },
            Addresses::V6 { source, destination } => Addresses::V6 { source: destination, destination: source },
        }
    }
}

/// The fields of a datagram's IP and UDP headers that the ICRC covers or a carrier must set. The
/// destination port is [`ROCE_PORT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Route {
    /// The source and the destination.
    pub addresses: Addresses,
    /// The UDP source port, which spreads queue pairs over paths; receivers ignore it.
    pub source_port: u16,
    /// DSCP and ECN. The ICRC does not cover it, since routers change it.
    pub traffic_class: u8,
}

impl Route {
    /// Makes a route with the UDP source port that the kernel's rxe and cards use for a pair of
    /// queue pairs: 0xC000 and 14 bits made of both numbers.
    pub fn new(addresses: Addresses, source_qp: u32, destination_qp: u32) -> Route {
        let mixed = source_qp.wrapping_mul(destination_qp | 1).wrapping_mul(0x9E37_79B1);
        Route { addresses, source_port: 0xC000 | (mixed >> 18) as u16, traffic_class: 0 }
    }
}
