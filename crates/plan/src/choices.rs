//! The choices that a plan has: providers, page sizes, idle policies, transports, rights of a
//! region, destinations of a port.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::BitOr;

use crate::ids::PortId;

/// Declares the choices of a key, each with its word in a plan; the first is the default, if the
/// key has one.
macro_rules! words {
    ($($(#[$about:meta])* $name:ident, $count:literal { $($(#[$doc:meta])* $one:ident = $word:literal,)+ })+) => {$(
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$doc])* $one,)+ }

        impl $name {
            /// Every choice, by its word.
            pub(crate) const WORDS: [(&'static str, $name); $count] = [$(($word, $name::$one)),+];

            /// As a plan writes it.
            pub fn word(self) -> &'static str {
                match self { $($name::$one => $word,)+ }
            }
        }
    )+};
}

words! {
    /// The stack that a device belongs to.
    Provider, 2 {
        /// The software RNIC in this process.
        Soft = "soft",
        /// libibverbs and the kernel.
        Kernel = "kernel",
    }

    /// A queue pair's transport service.
    Transport, 3 {
        /// Reliable connection.
        Rc = "rc",
        /// Unreliable connection.
        Uc = "uc",
        /// Unreliable datagram.
        Ud = "ud",
    }

    /// An lcore's behaviour without work.
    IdlePolicy, 3 {
        /// Spins for the budget, then arms and sleeps.
        Adaptive = "adaptive",
        /// Spins forever.
        Poll = "poll",
        /// Arms and sleeps at once.
        Event = "event",
    }

    /// A full ring's treatment of packets that it has no room for.
    WhenFull, 3 {
        /// New packets are refused: they stay with the stage, or are dropped.
        Refuse = "refuse",
        /// The oldest packets are dropped.
        Displace = "displace",
        /// The stages that fill the ring are not run until there is room.
        Hold = "hold",
    }

    /// How a spread deals out its packets.
    SpreadBy, 3 {
        /// Each packet goes to the target of its mark, which is its key: the same key always goes
        /// to the same target.
        Key = "key",
        /// Each packet goes to the next target in turn that has room.
        RoundRobin = "round-robin",
        /// Each target gets one: the packet, or a copy of it from the stage's pool.
        Copy = "copy",
    }

    /// The rule by which the ports of a shared listener get connections.
    Placement, 2 {
        /// The port with the fewest connections is next.
        Fewest = "fewest",
        /// The ports take turns.
        RoundRobin = "round-robin",
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

    /// Whether the port's connection is made by an address.
    pub fn is_by_address(self) -> bool {
        matches!(self, Destination::Listen(_) | Destination::Connect(_))
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
