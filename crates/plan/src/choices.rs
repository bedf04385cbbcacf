//! The choices that a plan has: providers, page sizes, idle policies, transports, rights of a
//! region, destinations of a port.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::BitOr;

use crate::ids::PortId;

/// The stack that a device belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Provider {
    /// libibverbs and the kernel.
    Kernel,
    /// The software RNIC in this process.
    Soft,
}

impl Provider {
    pub(crate) const ALL: [Provider; 2] = [Provider::Soft, Provider::Kernel];

    /// As a plan writes it.
    pub fn word(self) -> &'static str {
        match self {
            Provider::Kernel => "kernel",
            Provider::Soft => "soft",
        }
    }
}

/// The pages that a pool or a region asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pages {
    /// The default hugepages; 4 KiB pages, announced, where there are too few.
    Auto,
    /// 4 KiB pages.
    Small4K,
    /// 2 MiB pages or nothing.
    Huge2M,
    /// 1 GiB pages or nothing.
    Huge1G,
    /// 4 KiB pages, each of which comes when it is touched first, by this end or by its device.
    OnDemand,
}

/// The CPU that a plan gives an lcore.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Cpu {
    /// The CPU with this kernel number.
    Number(u32),
    /// The CPU at this place, from 0, among those that the process may run on.
    Allowed(u32),
}

impl Cpu {
    /// The prefix of a place.
    pub(crate) const ALLOWED: &str = "allowed:";

    /// Parses a place such as `allowed:0`.
    pub(crate) fn parse(text: &str) -> Option<Cpu> {
        let place = text.strip_prefix(Cpu::ALLOWED)?;
        let is_plain = !place.is_empty() && place.bytes().all(|byte| byte.is_ascii_digit());
        Some(Cpu::Allowed(place.parse().ok().filter(|_| is_plain)?))
    }
}

/// As the file writes it, without quotes.
impl fmt::Display for Cpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cpu::Number(number) => number.fmt(f),
            Cpu::Allowed(place) => write!(f, "{}{place}", Cpu::ALLOWED),
        }
    }
}

/// An lcore's behaviour without work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IdlePolicy {
    /// Spins forever.
    Poll,
    /// Arms and sleeps at once.
    Event,
    /// Spins for the budget, then arms and sleeps.
    Adaptive,
}

impl IdlePolicy {
    /// As a plan writes it.
    pub fn word(self) -> &'static str {
        match self {
            IdlePolicy::Poll => "poll",
            IdlePolicy::Event => "event",
            IdlePolicy::Adaptive => "adaptive",
        }
    }
}

/// A full ring's treatment of packets that it has no room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WhenFull {
    /// New packets are refused: they stay with the stage, or are dropped.
    Refuse,
    /// The oldest packets are dropped.
    Displace,
    /// The stages that fill the ring are not run until there is room.
    Hold,
}

impl WhenFull {
    pub(crate) const ALL: [WhenFull; 3] = [WhenFull::Refuse, WhenFull::Displace, WhenFull::Hold];

    /// As a plan writes it.
    pub fn word(self) -> &'static str {
        match self {
            WhenFull::Refuse => "refuse",
            WhenFull::Displace => "displace",
            WhenFull::Hold => "hold",
        }
    }
}

/// How a spread deals out its packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SpreadBy {
    /// Each packet goes to the target of its mark, which is its key: the same key always goes to
    /// the same target.
    Key,
    /// Each packet goes to the next target in turn that has room.
    RoundRobin,
    /// Each target gets one: the packet, or a copy of it from the stage's pool.
    Copy,
}

impl SpreadBy {
    pub(crate) const ALL: [SpreadBy; 3] = [SpreadBy::Key, SpreadBy::RoundRobin, SpreadBy::Copy];

    /// As a plan writes it.
    pub fn word(self) -> &'static str {
        match self {
            SpreadBy::Key => "key",
            SpreadBy::RoundRobin => "round-robin",
            SpreadBy::Copy => "copy",
        }
    }
}

/// The rule by which the ports of a shared listener get connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Placement {
    /// The port with the fewest connections is next.
    Fewest,
    /// The ports take turns.
    RoundRobin,
}

impl Placement {
    pub(crate) const ALL: [Placement; 2] = [Placement::Fewest, Placement::RoundRobin];

    /// As a plan writes it.
    pub fn word(self) -> &'static str {
        match self {
            Placement::Fewest => "fewest",
            Placement::RoundRobin => "round-robin",
        }
    }
}

/// A queue pair's transport service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transport {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
}

/// A port's destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Destination {
    /// No destination: a UD port that only receives.
    None,
    /// Another port of this plan. Mutual on RC and UC.
    Peer(PortId),
    /// A multicast group; UD only.
    Group(Group),
    /// The peer that connects to this local address; RC only.
    Listen(SocketAddr),
    /// The peer that listens at this address; RC only.
    Connect(SocketAddr),
}

impl Destination {
    /// The peer, if the destination is one.
    pub fn peer(self) -> Option<PortId> {
        match self {
            Destination::Peer(id) => Some(id),
            _ => None,
        }
    }

    /// The group, if the destination is one.
    pub fn group(self) -> Option<Group> {
        match self {
            Destination::Group(group) => Some(group),
            _ => None,
        }
    }
}

/// A multicast GID: an IPv4 group mapped as RoCE v2 does (`::ffff:a.b.c.d`), or an IPv6-style one
/// (`ff…`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Group {
    /// The GID in network order.
    pub gid: [u8; 16],
}

impl Group {
    /// The IPv4 group, if it is a mapped one.
    pub fn ipv4(&self) -> Option<Ipv4Addr> {
        Ipv6Addr::from(self.gid).to_ipv4_mapped()
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ipv4() {
            Some(group) => group.fmt(f),
            None => Ipv6Addr::from(self.gid).fmt(f),
        }
    }
}

pub(crate) fn transport_word(transport: Transport) -> &'static str {
    match transport {
        Transport::Rc => "RC",
        Transport::Uc => "UC",
        Transport::Ud => "UD",
    }
}

/// The rights of a region, beside reads by work requests of this end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rights(u8);

impl Rights {
    /// No rights.
    pub const NONE: Rights = Rights(0);
    /// Work requests of this end may write it: the data of a READ, or an atomic's old value.
    pub const LOCAL_WRITE: Rights = Rights(1);
    /// Peers may READ it.
    pub const REMOTE_READ: Rights = Rights(2);
    /// Peers may WRITE it.
    pub const REMOTE_WRITE: Rights = Rights(4);
    /// Peers may compare and swap in it, and add.
    pub const REMOTE_ATOMIC: Rights = Rights(8);
    /// Memory windows may be bound to parts of it.
    pub const BIND: Rights = Rights(16);

    pub(crate) const WORDS: [(&'static str, Rights); 5] = [
        ("local-write", Rights::LOCAL_WRITE),
        ("remote-read", Rights::REMOTE_READ),
        ("remote-write", Rights::REMOTE_WRITE),
        ("remote-atomic", Rights::REMOTE_ATOMIC),
        ("bind", Rights::BIND),
    ];

    /// Whether it has all of `other`.
    pub fn contains(self, other: Rights) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Rights {
    type Output = Rights;

    fn bitor(self, other: Rights) -> Rights {
        Rights(self.0 | other.0)
    }
}
