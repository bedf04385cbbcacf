//! The link: a UDP socket of one address, with its options, names and control messages.
//!
//! Uses libc: rustix, which the other crates use, has neither `recvmmsg(2)` nor the control
//! messages of GSO.

use crate::wire::counters::{LinkCounters, LinkTallies, Published};
use crate::wire::descriptors::{Epoll, check, made};
use crate::wire::socket_drops::SocketDrops;
use std::io;
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use verbline_roce::transport::Mtu;
use verbline_roce::wire::HEADERS_MAX_BYTES;

/// The longest datagram: a packet of the largest MTU.
pub(crate) const DATAGRAM_BYTES_MAX: usize = Mtu::B4096.bytes() as usize + HEADERS_MAX_BYTES;
/// The requested buffer sizes, for receiving and for sending. The kernel grants at most
/// `net.core.rmem_max` and `wmem_max`.
pub(super) const BUFFER_BYTES: libc::c_int = 4 << 20;

/// The socket.
#[derive(Debug)]
pub(crate) struct Link {
    socket: UdpSocket,
    own: SocketAddr,
    /// Readable when another socket of the link is: a group's, or a neighbour's. Its own is not in
    /// the set: each datagram to a socket of a set notifies the set, at the sender's cost, though
    /// nobody waits.
    others: Epoll,
    pub(super) counters: LinkTallies,
    pub(super) drops: SocketDrops,
    /// The incidents of all its queue pairs.
    pub(super) incidents: Published,
}

impl Link {
    /// Opens it, beside the sockets that other processes of this user have at the address. Its
    /// datagrams are never fragmented, and their IPv4 identification is known.
    pub(crate) fn open(own: SocketAddr) -> io::Result<Link> {
        let socket = bound(own, libc::SO_REUSEPORT)?;
        never_cut(&socket, own.ip())?;
        set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, BUFFER_BYTES)?;
        set(&socket, libc::SOL_SOCKET, libc::SO_SNDBUF, BUFFER_BYTES)?;
        if let IpAddr::V4(own) = own.ip() {
            // Send to groups from this address, not from the one that a route would choose.
            let own = libc::in_addr { s_addr: u32::from_ne_bytes(own.octets()) };
            set_to(&socket, libc::IPPROTO_IP, libc::IP_MULTICAST_IF, &own)?;
        }
        let (counters, drops, incidents) = (LinkTallies::default(), SocketDrops::default(), Published::new());
        Ok(Link { socket, own, others: Epoll::new()?, counters, drops, incidents })
    }

    /// All its counters.
    pub(super) fn counters(&self) -> LinkCounters {
        LinkCounters { socket_full: self.drops.count(self.own_socket()), ..self.counters.values() }
    }

    /// Adds a descriptor to those that a waiting thread waits for, until it is closed.
    pub(super) fn watch(&self, fd: &impl AsFd) -> io::Result<()> {
        self.others.add(fd)
    }

    /// The socket of its own address.
    pub(super) fn own_socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The descriptors to wait for: the socket of its own address, and the set of all others.
    pub(super) fn waits_for(&self) -> [BorrowedFd<'_>; 2] {
        [self.socket.as_fd(), self.others.as_fd()]
    }

    /// Its address and port.
    pub(crate) fn own(&self) -> SocketAddr {
        self.own
    }
}

/// Makes the socket's datagrams never be fragmented; only the interface limits their length.
pub(super) fn never_cut(socket: &UdpSocket, own: IpAddr) -> io::Result<()> {
    let (level, name, value) = match own {
        IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE),
        IpAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE),
    };
    set(socket, level, name, value)
}

/// Makes the kernel deliver datagrams of one length and one sender together (GRO). A kernel without
/// that goes on delivering them one by one.
pub(super) fn merge(socket: BorrowedFd<'_>) {
    let _ = set(&socket, libc::SOL_UDP, libc::UDP_GRO, 1);
}

/// The socket of a multicast group, which only receives.
#[derive(Debug)]
pub(super) struct GroupSocket(Arc<UdpSocket>);

impl GroupSocket {
    /// Opens the socket of a group on the interface with that address. Others may have the same
    /// one.
    pub(super) fn open(group: SocketAddrV4, interface: Ipv4Addr) -> io::Result<GroupSocket> {
        let socket = bound(group.into(), libc::SO_REUSEADDR)?;
        set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, BUFFER_BYTES)?;
        // Receive only by the interface where the group was joined (ip(7)).
        set(&socket, libc::IPPROTO_IP, libc::IP_MULTICAST_ALL, 0)?;
        socket.join_multicast_v4(group.ip(), &interface)?;
        Ok(GroupSocket(Arc::new(socket)))
    }

    /// For the link's [drops](Link::drops), which outlast it.
    pub(super) fn shared(&self) -> &Arc<UdpSocket> {
        &self.0
    }
}

impl AsFd for GroupSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A non-blocking socket of that address; `shared` is the option that permits sharing it.
fn bound(own: SocketAddr, shared: libc::c_int) -> io::Result<UdpSocket> {
    let family = if own.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no pointer is passed, and the descriptor is new.
    let socket: UdpSocket = unsafe { made(libc::socket(family, kind, 0)) }?.into();
    set(&socket, libc::SOL_SOCKET, shared, 1)?;
    let (name, name_bytes) = Name::new(own);
    // SAFETY: a local's socket address, and its length.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const name).cast(), name_bytes) })?;
    Ok(socket)
}

pub(super) fn set(socket: &impl AsRawFd, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    set_to(socket, level, name, &value)
}

fn set_to<T: Copy>(socket: &impl AsRawFd, level: libc::c_int, name: libc::c_int, value: &T) -> io::Result<()> {
    let (value, bytes) = (std::ptr::from_ref(value), size_of::<T>() as libc::socklen_t);
    // SAFETY: the option's bytes are a borrowed value's; the kernel checks their length.
    check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value.cast(), bytes) }).map(drop)
}

pub(super) fn get(socket: &UdpSocket, level: libc::c_int, name: libc::c_int) -> io::Result<libc::c_int> {
    let (mut value, mut bytes) = (0, size_of::<libc::c_int>() as libc::socklen_t);
    // SAFETY: both are locals, which the call may write.
    check(unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut bytes) })?;
    Ok(value)
}

/// An address of either family.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) union Name {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl Name {
    pub(super) fn new(address: SocketAddr) -> (Name, libc::socklen_t) {
        // SAFETY: integers, for which zero is a value.
        let mut name: Name = unsafe { zeroed() };
        match address {
            SocketAddr::V4(v4) => {
                // SAFETY: integers, for which zero is a value.
                let mut raw: libc::sockaddr_in = unsafe { zeroed() };
                raw.sin_family = libc::AF_INET as libc::sa_family_t;
                raw.sin_port = v4.port().to_be();
                raw.sin_addr.s_addr = u32::from_ne_bytes(v4.ip().octets());
                name.v4 = raw;
                (name, size_of::<libc::sockaddr_in>() as libc::socklen_t)
            }
            SocketAddr::V6(v6) => {
                // SAFETY: integers, for which zero is a value.
                let mut raw: libc::sockaddr_in6 = unsafe { zeroed() };
                raw.sin6_family = libc::AF_INET6 as libc::sa_family_t;
                raw.sin6_port = v6.port().to_be();
                raw.sin6_addr.s6_addr = v6.ip().octets();
                raw.sin6_scope_id = v6.scope_id();
                name.v6 = raw;
                (name, size_of::<libc::sockaddr_in6>() as libc::socklen_t)
            }
        }
    }

    /// The address, if a socket wrote one.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        // SAFETY: integers, valid for all bytes; the family is first in both.
        let (v4, v6) = unsafe { (self.v4, self.v6) };
        match libc::c_int::from(v4.sin_family) {
            libc::AF_INET => {
                let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
                Some(SocketAddr::from((ip, u16::from_be(v4.sin_port))))
            }
            libc::AF_INET6 => {
                let (ip, port) = (Ipv6Addr::from(v6.sin6_addr.s6_addr), u16::from_be(v6.sin6_port));
                Some(SocketAddrV6::new(ip, port, 0, v6.sin6_scope_id).into())
            }
            _ => None,
        }
    }
}

/// A control message and its value, padded to the alignment of the next.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Control {
    header: libc::cmsghdr,
    value: [u8; 8],
}

const _: () = assert!(size_of::<Control>() == 24);

impl Control {
    fn new<const BYTES: usize>(level: libc::c_int, kind: libc::c_int, said: [u8; BYTES]) -> Control {
        let cmsg_len = size_of::<libc::cmsghdr>() + BYTES;
        let mut value = [0; 8];
        value[..BYTES].copy_from_slice(&said);
        Control { header: libc::cmsghdr { cmsg_len, cmsg_level: level, cmsg_type: kind }, value }
    }

    /// The length of merged segments, if that is the message's kind.
    pub(super) fn segment_bytes(&self) -> Option<usize> {
        let is_told = self.header.cmsg_level == libc::SOL_UDP && self.header.cmsg_type == libc::UDP_GRO;
        let bytes = libc::c_int::from_ne_bytes([self.value[0], self.value[1], self.value[2], self.value[3]]);
        usize::try_from(bytes).ok().filter(|bytes| is_told && *bytes > 0)
    }

    /// The traffic class of a received datagram, if that is the message's kind.
    #[cfg(test)]
    pub(super) fn class(&self) -> libc::c_int {
        // IPv4 reports one byte, IPv6 an integer.
        match self.header.cmsg_len - size_of::<libc::cmsghdr>() {
            1 => self.value[0].into(),
            _ => libc::c_int::from_ne_bytes([self.value[0], self.value[1], self.value[2], self.value[3]]),
        }
    }

    /// A message with the length of the segments.
    pub(super) fn segments(bytes: usize) -> Control {
        Control::new(libc::SOL_UDP, libc::UDP_SEGMENT, (bytes as u16).to_ne_bytes())
    }

    /// A message with the traffic class for the IP header (ip(7), ipv6(7)).
    pub(super) fn traffic_class(class: u8, to: SocketAddr) -> Control {
        let (level, kind) = match to {
            SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_TOS),
            SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
        };
        Control::new(level, kind, libc::c_int::from(class).to_ne_bytes())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Two ends, with addresses for this process alone: they contain its number, and a byte of the
    /// test's choice.
    pub(in crate::wire) fn pair(lasts: [u8; 2]) -> [Link; 2] {
        lasts.map(|last| Link::open(address(last)).expect("a free port"))
    }

    /// The address of one end.
    pub(in crate::wire) fn address(last: u8) -> SocketAddr {
        let pid = std::process::id();
        (Ipv4Addr::new(127, 0x40 | (pid >> 8) as u8 & 0x3f, pid as u8, last), 4791).into()
    }
}
