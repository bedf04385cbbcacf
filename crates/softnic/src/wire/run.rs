//! Batched sending by a link's sockets: a run of datagrams by one system call.
//!
//! Guarantees: nothing blocks. A datagram that the kernel doesn't take is counted and lost, as on a
//! network: the transport sends it again. Datagrams of one length to one address leave by one
//! system call (GSO), whose segments have the IPv4 identifications 0, 1, 2 and so on, or those from
//! a connected socket's next number on. Datagrams sent by one such call, or combined by the network
//! interface, are delivered together (GRO).

use crate::wire::calls;
use crate::wire::counters::{LinkTallies, Tally};
use crate::wire::socket::{Control, Link, Name};
use std::io;
use std::mem::{size_of, zeroed};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::ptr::null;

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

impl Run<'_> {
    fn segments(&self) -> u64 {
        self.bytes.len().div_ceil(self.segment_bytes.max(1)) as u64
    }

    /// Whether an error means that the kernel cuts no runs on the path: through IPsec, and with an
    /// older kernel to an interface that computes no checksums.
    pub(super) fn is_refused_as_one(&self, error: &io::Error) -> bool {
        self.segments() > 1 && error.raw_os_error() == Some(libc::EIO)
    }
}

impl Link {
    /// Whether a run of `segments` segments in `bytes` bytes may have another one of `more` bytes.
    pub(crate) fn may_add(segments: usize, bytes: usize, more: usize) -> bool {
        segments < RUN_SEGMENTS_MAX && bytes + more <= RUN_BYTES_MAX
    }

    /// Sends one run by its own socket. A lost one is counted; the transport sends it again.
    pub(crate) fn send(&self, run: &Run<'_>) -> io::Result<()> {
        let sent = put(self.own_socket(), run, Some(Name::new(run.to)));
        self.counted(run, sent)
    }

    /// Sends one run by a socket that is connected to its receiver.
    pub(super) fn send_connected(&self, socket: BorrowedFd<'_>, run: &Run<'_>) -> io::Result<()> {
        let sent = sent_once_more(|| put(socket, run, None));
        self.counted(run, sent)
    }

    /// Counts a run that did not leave, behind one for which the kernel had no room.
    pub(super) fn lose(&self, run: &Run<'_>) {
        self.counters.full.add(run.segments());
    }

    fn counted(&self, run: &Run<'_>, sent: io::Result<()>) -> io::Result<()> {
        self.counters.send_calls.add(1);
        let count = sent.as_ref().map_or_else(|error| self.counters.of_error(error), |()| &self.counters.sent);
        count.add(run.segments());
        sent
    }
}

/// Sends one run by one call: to that name, or without one, by a connected socket.
fn put(socket: BorrowedFd<'_>, run: &Run<'_>, name: Option<(Name, libc::socklen_t)>) -> io::Result<()> {
    let mut controls: [Control; 2] = [Control::segments(run.segment_bytes); 2];
    let mut count = usize::from(run.segments() > 1);
    if run.traffic_class != 0 {
        controls[count] = Control::traffic_class(run.traffic_class, run.to);
        count += 1;
    }
    let (name, name_bytes) = name.as_ref().map_or((null(), 0), |(name, bytes)| (std::ptr::from_ref(name), *bytes));
    let sent = if count == 0 {
        // A call with fewer arguments is faster.
        // SAFETY: the caller's name with its length, or none.
        unsafe { calls::sendto(socket, run.bytes, name.cast(), name_bytes) }
    } else {
        let mut vector = libc::iovec { iov_base: run.bytes.as_ptr().cast_mut().cast(), iov_len: run.bytes.len() };
        // SAFETY: integers and pointers, for which zero is a value.
        let mut header: libc::msghdr = unsafe { zeroed() };
        (header.msg_name, header.msg_namelen) = (name.cast_mut().cast(), name_bytes);
        (header.msg_iov, header.msg_iovlen) = (&raw mut vector, 1);
        (header.msg_control, header.msg_controllen) = (controls.as_mut_ptr().cast(), count * size_of::<Control>());
        // SAFETY: the header points to locals, and to borrowed bytes; the call reads them.
        unsafe { calls::sendmsg(socket, &raw const header) }
    };
    if sent >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sends by a connected socket. At the next call such a socket says what the network said of an
/// earlier datagram, and sends nothing by that call.
pub(super) fn sent_once_more(send: impl Fn() -> io::Result<()>) -> io::Result<()> {
    match send() {
        Err(error) if is_of_network(&error) => send(),
        sent => sent,
    }
}

/// Whether an error may be the network's, about an earlier datagram (the kernel's
/// `icmp_err_convert`).
fn is_of_network(error: &io::Error) -> bool {
    let codes = [
        libc::ECONNREFUSED,
        libc::EHOSTUNREACH,
        libc::ENETUNREACH,
        libc::EHOSTDOWN,
        libc::ENONET,
        libc::ENOPROTOOPT,
        libc::EOPNOTSUPP,
        libc::EPROTO,
        libc::EMSGSIZE,
    ];
    error.raw_os_error().is_some_and(|code| codes.contains(&code))
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
mod tests {
    use super::*;
    use crate::wire::socket::set;
    use crate::wire::socket::tests::pair;
    use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};
    use std::os::fd::AsRawFd;

    /// The next datagram's length and the traffic class of its IP header.
    fn next_class(link: &Link) -> (usize, libc::c_int) {
        let (mut bytes, mut controls) = ([0u8; 2048], [Control::segments(0); 2]);
        let mut vector = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        // SAFETY: integers and pointers, for which zero is a value.
        let mut header: libc::msghdr = unsafe { zeroed() };
        (header.msg_iov, header.msg_iovlen) = (&raw mut vector, 1);
        (header.msg_control, header.msg_controllen) = (controls.as_mut_ptr().cast(), size_of_val(&controls));
        // SAFETY: the header points to locals, which the call may write.
        let got = unsafe { libc::recvmsg(link.own_socket().as_raw_fd(), &raw mut header, libc::MSG_DONTWAIT) };
        let len = usize::try_from(got).expect("a datagram has come");
        assert!(header.msg_controllen >= size_of::<libc::cmsghdr>(), "the class is told");
        (len, controls[0].class())
    }

    #[test]
    fn the_traffic_class_of_a_run_is_in_the_ip_header_of_each_of_its_datagrams() {
        let v6 = || {
            let free = UdpSocket::bind("[::1]:0").expect("a port").local_addr().expect("bound");
            Link::open(free).expect("just freed")
        };
        for [a, b] in [pair([3, 4]), [v6(), v6()]] {
            let (level, kind) = match b.own() {
                SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_RECVTOS),
                SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS),
            };
            set(&b.own_socket(), level, kind, 1).expect("an option of ip(7)");
            a.send(&Run { to: b.own(), traffic_class: 104, bytes: &[7; 1500], segment_bytes: 1000 }).expect("sent");
            a.send(&Run { to: b.own(), traffic_class: 0, bytes: &[7; 30], segment_bytes: 30 }).expect("sent");
            a.send(&Run { to: b.own(), traffic_class: 0xb9, bytes: &[7; 40], segment_bytes: 40 }).expect("sent");
            let got: Vec<_> = (0..4).map(|_| next_class(&b)).collect();
            assert_eq!(got, [(1000, 104), (500, 104), (30, 0), (40, 0xb9)]);
        }
    }

    /// Lost as on a network: the transport sends it again, or not.
    #[test]
    fn what_the_kernel_does_not_take_is_counted_by_its_reason_and_the_next_one_goes() {
        let [a, b] = pair([7, 8]);
        let send = |to: SocketAddr, bytes: &[u8]| {
            let _ = a.send(&Run { to, traffic_class: 0, bytes, segment_bytes: bytes.len() });
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
