//! The link: a UDP socket of one address, and batched sending by it.
//!
//! Guarantees: nothing blocks. A datagram that the kernel doesn't take is counted and lost, as on a
//! network: the transport sends it again. Datagrams of one length to one address leave by one
//! system call (GSO), whose segments have the IPv4 identifications 0, 1, 2 and so on. Datagrams
//! sent by one such call, or combined by the network interface, are delivered together (GRO).
//!
//! Uses libc: rustix, which the other crates use, has neither `recvmmsg(2)` nor the control
//! messages of GSO.

use crate::wire::calls;
use crate::wire::counters::{LinkTallies, Published, Tally};
use crate::wire::descriptors::{Epoll, check, made};
use std::io;
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
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
        let (counters, incidents) = (LinkTallies::default(), Published::new());
        Ok(Link { socket, own, others: Epoll::new()?, counters, incidents })
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
pub(super) struct GroupSocket(UdpSocket);

impl GroupSocket {
    /// Opens the socket of a group on the interface with that address. Others may have the same
    /// one.
    pub(super) fn open(group: SocketAddrV4, interface: Ipv4Addr) -> io::Result<GroupSocket> {
        let socket = bound(group.into(), libc::SO_REUSEADDR)?;
        set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, BUFFER_BYTES)?;
        // Receive only by the interface where the group was joined (ip(7)).
        set(&socket, libc::IPPROTO_IP, libc::IP_MULTICAST_ALL, 0)?;
        socket.join_multicast_v4(group.ip(), &interface)?;
        Ok(GroupSocket(socket))
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

fn set(socket: &impl AsRawFd, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
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
    fn new(address: SocketAddr) -> (Name, libc::socklen_t) {
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

/// The most bytes of one system call's segments, and their most number (`UDP_MAX_SEGMENTS`).
const RUN_BYTES_MAX: usize = 65_000;
const RUN_SEGMENTS_MAX: usize = 64;

/// One system call's segments: all of one length but the last, which may be shorter.
pub(crate) struct Run<'a> {
    pub(crate) to: SocketAddr,
    /// DSCP and ECN, for the IP header.
    pub(crate) traffic_class: u8,
    pub(crate) bytes: &'a [u8],
    pub(crate) segment_bytes: usize,
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

    /// A message with the length of the segments.
    pub(super) fn segments(bytes: usize) -> Control {
        Control::new(libc::SOL_UDP, libc::UDP_SEGMENT, (bytes as u16).to_ne_bytes())
    }

    /// A message with the traffic class for the IP header (ip(7), ipv6(7)).
    fn traffic_class(class: u8, to: SocketAddr) -> Control {
        let (level, kind) = match to {
            SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_TOS),
            SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
        };
        Control::new(level, kind, libc::c_int::from(class).to_ne_bytes())
    }
}

impl Link {
    /// Whether a run of `segments` segments in `bytes` bytes may have another one of `more` bytes.
    pub(crate) fn may_add(segments: usize, bytes: usize, more: usize) -> bool {
        segments < RUN_SEGMENTS_MAX && bytes + more <= RUN_BYTES_MAX
    }

    /// Sends one run.
    pub(crate) fn send(&self, run: &Run<'_>) {
        let segments = run.bytes.len().div_ceil(run.segment_bytes.max(1));
        let (mut name, name_bytes) = Name::new(run.to);
        let mut vector = libc::iovec { iov_base: run.bytes.as_ptr().cast_mut().cast(), iov_len: run.bytes.len() };
        let mut controls: [Control; 2] = [Control::segments(run.segment_bytes); 2];
        let mut count = usize::from(segments > 1);
        if run.traffic_class != 0 {
            controls[count] = Control::traffic_class(run.traffic_class, run.to);
            count += 1;
        }
        self.counters.send_calls.add(1);
        let socket = self.socket.as_fd();
        let sent = if count == 0 {
            // A call with fewer arguments is faster.
            // SAFETY: a local, with its length.
            unsafe { calls::sendto(socket, run.bytes, (&raw const name).cast(), name_bytes) }
        } else {
            // SAFETY: integers and pointers, for which zero is a value.
            let mut header: libc::msghdr = unsafe { zeroed() };
            (header.msg_name, header.msg_namelen) = ((&raw mut name).cast(), name_bytes);
            (header.msg_iov, header.msg_iovlen) = (&raw mut vector, 1);
            (header.msg_control, header.msg_controllen) = (controls.as_mut_ptr().cast(), count * size_of::<Control>());
            // SAFETY: the header points to locals, and to borrowed bytes; the call reads them.
            unsafe { calls::sendmsg(socket, &raw const header) }
        };
        let count = if sent >= 0 { &self.counters.sent } else { self.counters.of_error(&io::Error::last_os_error()) };
        count.add(segments as u64);
    }
}

impl LinkTallies {
    fn of_error(&self, error: &io::Error) -> &Tally {
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => &self.full,
            Some(libc::EMSGSIZE) => &self.too_long,
            Some(libc::EPERM | libc::EACCES) => &self.refused,
            _ => &self.failed,
        }
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

    /// The next datagram's length and the traffic class of its IP header.
    fn next_class(link: &Link) -> (usize, libc::c_int) {
        let (mut bytes, mut controls) = ([0u8; 2048], [Control::segments(0); 2]);
        let mut vector = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        // SAFETY: integers and pointers, for which zero is a value.
        let mut header: libc::msghdr = unsafe { zeroed() };
        (header.msg_iov, header.msg_iovlen) = (&raw mut vector, 1);
        (header.msg_control, header.msg_controllen) = (controls.as_mut_ptr().cast(), size_of_val(&controls));
        // SAFETY: the header points to locals, which the call may write.
        let got = unsafe { libc::recvmsg(link.socket.as_raw_fd(), &raw mut header, libc::MSG_DONTWAIT) };
        let len = usize::try_from(got).expect("a datagram has come");
        assert!(header.msg_controllen >= size_of::<libc::cmsghdr>(), "the class is told");
        let told = controls[0];
        // IPv4 reports one byte, IPv6 an integer.
        let class = match told.header.cmsg_len - size_of::<libc::cmsghdr>() {
            1 => told.value[0].into(),
            _ => libc::c_int::from_ne_bytes([told.value[0], told.value[1], told.value[2], told.value[3]]),
        };
        (len, class)
    }

    #[test]
    fn the_traffic_class_of_a_run_is_in_the_ip_header_of_each_of_its_datagrams() {
        let v6 = || {
            let free = UdpSocket::bind("[::1]:0").expect("a port").local_addr().expect("bound");
            Link::open(free).expect("just freed")
        };
        for [a, b] in [pair([3, 4]), [v6(), v6()]] {
            let (level, kind) = match b.own {
                SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_RECVTOS),
                SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS),
            };
            set(&b.socket, level, kind, 1).expect("an option of ip(7)");
            a.send(&Run { to: b.own(), traffic_class: 104, bytes: &[7; 1500], segment_bytes: 1000 });
            a.send(&Run { to: b.own(), traffic_class: 0, bytes: &[7; 30], segment_bytes: 30 });
            a.send(&Run { to: b.own(), traffic_class: 0xb9, bytes: &[7; 40], segment_bytes: 40 });
            let got: Vec<_> = (0..4).map(|_| next_class(&b)).collect();
            assert_eq!(got, [(1000, 104), (500, 104), (30, 0), (40, 0xb9)]);
        }
    }

    /// Lost as on a network: the transport sends it again, or not.
    #[test]
    fn what_the_kernel_does_not_take_is_counted_by_its_reason_and_the_next_one_goes() {
        let [a, b] = pair([7, 8]);
        let send = |to: SocketAddr, bytes: &[u8]| {
            a.send(&Run { to, traffic_class: 0, bytes, segment_bytes: bytes.len() });
        };
        // Longer than IPv4 permits; to the broadcast address, which needs permission; of another
        // family.
        send(b.own(), &[7; 65_600]);
        send((Ipv4Addr::new(127, 255, 255, 255), 4791).into(), &[7; 30]);
        send((Ipv6Addr::LOCALHOST, 4791).into(), &[7; 30]);
        send(b.own(), &[7; 30]);
        let counted = a.counters.values();
        assert_eq!((counted.too_long, counted.refused, counted.failed, counted.sent), (1, 1, 1, 1), "{counted:?}");
        // A full queue, which no test can cause at will.
        for (code, of) in [(libc::EAGAIN, 0), (libc::ENOBUFS, 0), (libc::EPERM, 1), (libc::EMSGSIZE, 2)] {
            let tally = [&a.counters.full, &a.counters.refused, &a.counters.too_long][of];
            assert!(std::ptr::eq(a.counters.of_error(&io::Error::from_raw_os_error(code)), tally), "errno {code}");
        }
    }
}
