//! A socket that is connected to one peer, and only sends.
//!
//! For each datagram of an unconnected socket the kernel looks up a route, which takes a tenth of a
//! small message's time; a connected socket has its route. It has a UDP port of its own, too: with
//! the link's port it would get the peer's datagrams to every process of the address.
//!
//! Over IPv4 Linux numbers the datagrams of a connected socket from a random identification on,
//! which the ICRC covers. So the socket learns its next number: it sends empty datagrams, which no
//! peer takes for packets, and asks for the times when they leave (`SO_TIMESTAMPING`). With such a
//! time the kernel returns the datagram and all its headers, to any user unless
//! `net.core.tstamp_allow_data` is 0.

use crate::wire::descriptors::check;
use crate::wire::run::sent_once_more;
use crate::wire::socket::{BUFFER_BYTES, never_cut, set};
use std::io;
use std::mem::zeroed;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use verbline_roce::wire::ip;

/// The longest wait for a number while a queue pair is being connected: the kernel may have to ask
/// for the peer's link address first.
const NUMBER_WAIT_MS: libc::c_int = 5;
/// The length of an empty datagram's headers, without the link's.
const EMPTY_BYTES: usize = 28;
/// The longest header of a link before those.
const LINK_HEADER_MAX_BYTES: usize = 100;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct PeerSocket {
    socket: UdpSocket,
    to: IpAddr,
    port: u16,
    /// The IPv4 identification of the next datagram.
    next_ip_id: u16,
}

impl PeerSocket {
    /// Connects a socket of a link's address to a peer's. Waits for a few milliseconds at most.
    pub(super) fn open(own: SocketAddr, to: IpAddr) -> io::Result<PeerSocket> {
        let mut free = own;
        free.set_port(0);
        let socket = UdpSocket::bind(free)?;
        never_cut(&socket, own.ip())?;
        set(&socket, libc::SOL_SOCKET, libc::SO_SNDBUF, BUFFER_BYTES)?;
        // The least that the kernel grants: only the numbers come by it.
        set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, 0)?;
        socket.connect((to, own.port()))?;
        let port = socket.local_addr()?.port();
        let mut made = PeerSocket { socket, to, port, next_ip_id: 0 };
        made.learn_number(NUMBER_WAIT_MS)?;
        Ok(made)
    }

    pub(super) fn to(&self) -> IpAddr {
        self.to
    }

    /// Its own UDP port.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// The identification of the next call's first datagram. A call takes one number, however many
    /// segments its datagrams are cut into.
    pub(super) fn take_number(&mut self) -> u16 {
        let taken = self.next_ip_id;
        self.next_ip_id = taken.wrapping_add(1);
        taken
    }

    /// Notes that the kernel has not taken the datagram of this number.
    pub(super) fn give_back(&mut self, number: u16) {
        self.next_ip_id = number;
    }

    /// Learns the next number, by two datagrams: it also has to be true that the kernel counts.
    pub(super) fn learn_number(&mut self, wait_ms: libc::c_int) -> io::Result<()> {
        if self.to.is_ipv6() {
            return Ok(());
        }
        tell_times(self.as_fd(), true)?;
        let learnt = self.number_of_an_empty_one(wait_ms).and_then(|first| {
            let second = self.number_of_an_empty_one(wait_ms)?;
            Ok((first, second))
        });
        tell_times(self.as_fd(), false)?;
        let (first, second) = learnt?;
        self.next_ip_id = second.wrapping_add(1);
        if second == first.wrapping_add(1) { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
    }

    /// Sends an empty datagram; returns its identification.
    fn number_of_an_empty_one(&self, wait_ms: libc::c_int) -> io::Result<u16> {
        sent_once_more(|| self.socket.send(&[]).map(drop))?;
        let mut bytes = [0; LINK_HEADER_MAX_BYTES + EMPTY_BYTES];
        let len = returned(self.as_fd(), &mut bytes, wait_ms)?;
        let frame = len.checked_sub(EMPTY_BYTES).and_then(|from| ip::read(bytes.get(from..len)?));
        let is_it = |frame: &ip::Frame<'_>| frame.route.source_port == self.port && frame.datagram.is_empty();
        frame.filter(is_it).map(|frame| frame.ip_id).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

impl AsFd for PeerSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Whether the kernel returns what leaves by a socket, with the time.
fn tell_times(socket: BorrowedFd<'_>, is_told: bool) -> io::Result<()> {
    let which = libc::SOF_TIMESTAMPING_TX_SCHED | libc::SOF_TIMESTAMPING_SOFTWARE;
    set(&socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, if is_told { which as libc::c_int } else { 0 })
}

/// The length of the next frame that the kernel returns.
fn returned(socket: BorrowedFd<'_>, bytes: &mut [u8], wait_ms: libc::c_int) -> io::Result<usize> {
    let mut waits = libc::pollfd { fd: socket.as_raw_fd(), events: 0, revents: 0 };
    // SAFETY: a local, which is one entry, as the call is told.
    check(unsafe { libc::poll(&raw mut waits, 1, wait_ms) })?;
    let mut vector = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: integers and pointers, for which zero is a value.
    let mut header: libc::msghdr = unsafe { zeroed() };
    (header.msg_iov, header.msg_iovlen) = (&raw mut vector, 1);
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    // SAFETY: the header points to a local, and to borrowed bytes, which the call may write.
    let len = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, flags) };
    usize::try_from(len).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::wire::socket::tests::address;

    /// Makes the kernel return what leaves by a socket.
    pub(in crate::wire) fn watch(socket: BorrowedFd<'_>) {
        set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, BUFFER_BYTES).expect("an option of socket(7)");
        tell_times(socket, true).expect("the same");
    }

    /// The next frame that has left since, from its IP header on.
    pub(in crate::wire) fn next_frame(socket: BorrowedFd<'_>) -> Option<Vec<u8>> {
        let mut bytes = vec![0; 1 << 17];
        let len = returned(socket, &mut bytes, 0).ok()?;
        // Loopback's frames begin like Ethernet's.
        Some(bytes[14..len].to_vec())
    }

    #[test]
    fn a_socket_knows_the_number_of_what_it_sends_next() {
        let (own, to) = (address(11), address(12));
        let _receiver = UdpSocket::bind(to).expect("a free port");
        let mut socket = PeerSocket::open(own, to.ip()).expect("loopback tells");
        watch(socket.as_fd());
        for _ in 0..3 {
            let number = socket.take_number();
            socket.socket.send(&[7; 40]).expect("sent");
            let frame = next_frame(socket.as_fd()).expect("it has left");
            let frame = ip::read(&frame).expect("a frame");
            assert_eq!((frame.ip_id, frame.datagram, frame.route.source_port), (number, &[7; 40][..], socket.port()));
        }
        let number = socket.take_number();
        socket.learn_number(0).expect("as before");
        assert_eq!(socket.take_number(), number.wrapping_add(2), "nothing has left but two empty datagrams");
    }

    /// The socket is told of each datagram that nobody takes, at the next.
    #[test]
    fn nobody_needs_to_listen_for_the_number_to_be_learnt() {
        PeerSocket::open(address(13), address(14).ip()).expect("loopback tells");
    }
}
