//! The port that all queue pairs use, and its addresses.

use std::fmt;
use std::net::Ipv4Addr;

/// The only port used. Ports count from 1.
pub(super) const PORT: u8 = 1;

/// A port, as queried when the device was opened.
#[derive(Clone, Debug)]
pub(crate) struct PortFacts {
    pub(crate) attr: PortAttr,
    pub(crate) gid: Gid,
    pub(crate) gid_index: u8,
}

/// The fields of `struct ibv_port_attr` that rows use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PortAttr {
    pub(crate) active: bool,
    /// `enum ibv_mtu`.
    pub(crate) active_mtu: u32,
    pub(crate) max_mtu: u32,
    pub(crate) max_message_bytes: u32,
    pub(crate) gids: u32,
    pub(crate) pkeys: u16,
    pub(crate) lid: u16,
    pub(crate) grh_required: bool,
    pub(crate) is_ethernet: bool,
}

impl PortAttr {
    pub(crate) fn mtu_bytes(&self) -> usize {
        128 << self.active_mtu
    }
}

/// `union ibv_gid`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gid(pub(crate) [u8; 16]);

impl Gid {
    /// `::ffff:a.b.c.d`.
    pub(crate) fn ipv4(addr: Ipv4Addr) -> Gid {
        Gid(addr.to_ipv6_mapped().octets())
    }

    pub(crate) fn as_ipv4(&self) -> Option<Ipv4Addr> {
        std::net::Ipv6Addr::from(self.0).to_ipv4_mapped()
    }

    pub(super) fn is_ipv4(&self) -> bool {
        self.as_ipv4().is_some()
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.0 == [0; 16]
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&std::net::Ipv6Addr::from(self.0), f)
    }
}
