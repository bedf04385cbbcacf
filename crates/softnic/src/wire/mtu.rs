//! The MTU for packets to an address: by the kernel's knowledge of the path, or by the interface
//! alone.

use crate::wire::socket::{DATAGRAM_BYTES_MAX, Link, get, never_cut};
use std::io;
use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsRawFd;
use verbline_roce::transport::Mtu;
use verbline_roce::wire::HEADERS_MAX_BYTES;

const UDP_HEADER_BYTES: libc::c_int = 8;

impl Link {
    /// The largest MTU for the path to an address, as far as the kernel knows it: by the interface,
    /// by a route, and by reports of a router or this host itself about packets that were too long.
    /// The kernel keeps such a report for ten minutes (`ip_rt_mtu_expires`), though the interface
    /// may take longer packets again.
    pub(crate) fn path_mtu(&self, to: IpAddr) -> io::Result<Mtu> {
        let (level, name, ip) = match to {
            IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU, 20),
            IpAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MTU, 40),
        };
        let room = get(&self.probe(to)?, level, name)? - ip - UDP_HEADER_BYTES;
        largest(|datagram_bytes| Ok(datagram_bytes as libc::c_int <= room))
    }

    /// The largest MTU whose packets leave by the interface towards an address. Reports about the
    /// path don't count: the link's datagrams leave regardless of them.
    pub(crate) fn interface_mtu(&self, to: IpAddr) -> io::Result<Mtu> {
        let probe = self.probe(to)?;
        never_cut(&probe, to)?;
        largest(|datagram_bytes| takes(&probe, datagram_bytes))
    }

    /// A socket connected to an address, which sends nothing: the link's own is unconnected and has
    /// no path.
    fn probe(&self, to: IpAddr) -> io::Result<UdpSocket> {
        let probe = UdpSocket::bind((self.own().ip(), 0))?;
        probe.connect((to, self.own().port()))?;
        Ok(probe)
    }
}

/// The largest MTU whose longest datagram fits; the smallest of all is not tried.
fn largest(mut fits: impl FnMut(usize) -> io::Result<bool>) -> io::Result<Mtu> {
    for mtu in [Mtu::B4096, Mtu::B2048, Mtu::B1024, Mtu::B512] {
        if fits(mtu.bytes() as usize + HEADERS_MAX_BYTES)? {
            return Ok(mtu);
        }
    }
    Ok(Mtu::B256)
}

/// Whether the interface takes a datagram of that length. The datagram is begun and never ended:
/// the socket drops it when it is closed, or tried again.
fn takes(probe: &UdpSocket, bytes: usize) -> io::Result<bool> {
    let datagram = [0u8; DATAGRAM_BYTES_MAX];
    let (start, flags) = (datagram[..bytes].as_ptr(), libc::MSG_MORE | libc::MSG_DONTWAIT);
    // SAFETY: a borrowed slice and its length.
    let ret = unsafe { libc::send(probe.as_raw_fd(), start.cast(), bytes, flags) };
    match (ret, io::Error::last_os_error()) {
        (0.., _) => Ok(true),
        (_, error) if error.raw_os_error() == Some(libc::EMSGSIZE) => Ok(false),
        (_, error) => Err(error),
    }
}
