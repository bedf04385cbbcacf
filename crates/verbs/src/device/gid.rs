//! A GID: the 128-bit name of a port or a multicast group (InfiniBand Architecture Specification,
//! chapter 4; RoCEv2 annex A17).

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use rdma_sys::ibv_gid;

/// A GID in network order. RoCEv2 GIDs are IPv6 addresses, or IPv4 addresses mapped as
/// `::ffff:a.b.c.d`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The GID as an IPv6 address.
    pub fn to_ipv6(self) -> Ipv6Addr {
        Ipv6Addr::from(self.0)
    }

    /// The mapped IPv4 address, if the GID is one.
    pub fn to_ipv4(self) -> Option<Ipv4Addr> {
        self.to_ipv6().to_ipv4_mapped()
    }

    /// An empty entry of a GID table is all zeros.
    pub(crate) fn is_unset(self) -> bool {
        self.0 == [0; 16]
    }

    /// Whether the GID names a group: `ff00::/8`, or a mapped IPv4 multicast address.
    pub fn is_multicast(self) -> bool {
        match self.to_ipv4() {
            Some(address) => address.is_multicast(),
            None => self.0[0] == 0xff,
        }
    }

    pub(crate) fn to_raw(self) -> ibv_gid {
        ibv_gid { raw: self.0 }
    }

    pub(crate) fn from_raw(raw: &ibv_gid) -> Gid {
        // SAFETY: both members of the union are 16 bytes for which every value is valid; the verbs
        // that fill one are given zeroed memory, so that all 16 are initialised.
        Gid(unsafe { raw.raw })
    }
}

impl From<Ipv6Addr> for Gid {
    fn from(address: Ipv6Addr) -> Gid {
        Gid(address.octets())
    }
}

impl From<Ipv4Addr> for Gid {
    /// `::ffff:a.b.c.d`.
    fn from(address: Ipv4Addr) -> Gid {
        Gid(address.to_ipv6_mapped().octets())
    }
}

impl FromStr for Gid {
    type Err = std::net::AddrParseError;

    /// Reads both `239.1.1.1` and `fe80::1`.
    fn from_str(text: &str) -> Result<Gid, Self::Err> {
        match text.parse::<Ipv4Addr>() {
            Ok(address) => Ok(address.into()),
            Err(_) => Ok(text.parse::<Ipv6Addr>()?.into()),
        }
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.to_ipv6(), f)
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The address of a QP, which the two sides of a connection exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// The QP's number, 24 bits.
    pub qpn: u32,
    /// The QP's first PSN to send, 24 bits.
    pub psn: u32,
    /// Its port's GID.
    pub gid: Gid,
    /// Its port's LID; 0 on Ethernet.
    pub lid: u16,
    /// Its Q_Key; UD only.
    pub qkey: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv4_is_mapped_and_read_back() {
        let gid: Gid = "239.1.1.2".parse().unwrap();
        assert_eq!(gid.to_string(), "::ffff:239.1.1.2");
        assert_eq!(gid.to_ipv4(), Some(Ipv4Addr::new(239, 1, 1, 2)));
        assert!(gid.is_multicast());
        assert!(!Gid::from(Ipv4Addr::new(10, 0, 0, 1)).is_multicast());
    }

    #[test]
    fn ipv6_groups_are_multicast() {
        assert!("ff0e::1".parse::<Gid>().unwrap().is_multicast());
        assert!(!"fe80::1".parse::<Gid>().unwrap().is_multicast());
        assert!("nonsense".parse::<Gid>().is_err());
    }
}
