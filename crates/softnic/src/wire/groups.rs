//! The multicast groups of a wire: each has a socket, since a socket bound to its own address gets
//! no datagrams to a group.
//!
//! Guarantees: a group's socket exists as long as a queue pair of the device is in the group.
//! Several processes of a host may be in one group: each gets every datagram.

use crate::objects::mcast::{self, Group};
use crate::wire::arrivals::Asking;
use crate::wire::socket::GroupSocket;
use crate::wire::{address_of, gid_of};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};

/// A group with members among the device's queue pairs.
pub(super) struct Joined {
    pub(super) gid: [u8; 16],
    pub(super) group: &'static Group,
    pub(super) address: Ipv4Addr,
    pub(super) socket: GroupSocket,
    pub(super) asking: Asking,
    /// The number of these queue pairs.
    members: usize,
}

/// The groups of a wire.
#[derive(Default)]
pub(super) struct Groups(Vec<Joined>);

/// The IPv4 address mapped into a group's GID. Other groups stay within the process.
pub(super) fn address_of_group(gid: &[u8; 16]) -> Option<Ipv4Addr> {
    let IpAddr::V4(address) = address_of(*gid) else { return None };
    address.is_multicast().then_some(address)
}

impl Groups {
    pub(super) fn get(&mut self, index: usize) -> Option<&mut Joined> {
        self.0.get_mut(index)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Counts one more queue pair in a group; `own` is the address of the interface that receives
    /// it. Returns the group if it is new.
    pub(super) fn join(&mut self, address: Ipv4Addr, own: Ipv4Addr, port: u16) -> io::Result<Option<&Joined>> {
        let gid = gid_of(address.into());
        if let Some(joined) = self.0.iter_mut().find(|joined| joined.gid == gid) {
            joined.members += 1;
            return Ok(None);
        }
        let socket = GroupSocket::open(SocketAddrV4::new(address, port), own)?;
        self.0.push(Joined {
            gid,
            group: mcast::group(&gid),
            address,
            socket,
            asking: Asking::one_by_one(),
            members: 1,
        });
        Ok(self.0.last())
    }

    /// Counts one queue pair less. Returns the group if that was the last one: closing its socket
    /// leaves it, and removes the socket from the descriptors that the thread waits for.
    pub(super) fn leave(&mut self, gid: &[u8; 16]) -> Option<Joined> {
        let at = self.0.iter().position(|joined| joined.gid == *gid)?;
        self.0[at].members -= 1;
        (self.0[at].members == 0).then(|| self.0.swap_remove(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::run::Run;
    use crate::wire::socket::Link;
    use crate::wire::socket::tests::address;
    use std::net::SocketAddr;
    use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

    /// Sends more datagrams than a socket holds; returns how many of them it does not hold.
    fn flood(from: &Link, to: SocketAddr, socket: BorrowedFd<'_>) -> u64 {
        const DATAGRAMS: u64 = 20_000;
        let run = Run { to, traffic_class: 0, bytes: &[7; 1000], segment_bytes: 1000 };
        (0..DATAGRAMS).for_each(|_| from.send(&run).expect("sent"));
        DATAGRAMS - held(socket) as u64
    }

    /// Empties a socket; returns how many datagrams it held.
    fn held(socket: BorrowedFd<'_>) -> usize {
        let mut bytes = [0u8; 8];
        let receive = || {
            let (first, len) = (bytes.as_mut_ptr().cast(), bytes.len());
            // SAFETY: a local, and its length.
            unsafe { libc::recv(socket.as_raw_fd(), first, len, libc::MSG_DONTWAIT) }
        };
        std::iter::repeat_with(receive).take_while(|bytes| *bytes >= 0).count()
    }

    #[test]
    fn what_a_full_socket_loses_is_counted_also_of_a_group_that_was_left() {
        let link = Link::open(address(30)).expect("a free port");
        let from = Link::open(address(31)).expect("a free port");
        assert_eq!(link.counters().socket_full, 0);
        let of_own = flood(&from, link.own(), link.own_socket());
        assert!(of_own > 0, "it was full");
        assert_eq!(link.counters().socket_full, of_own);

        let [high, low] = (std::process::id() as u16).to_be_bytes();
        let (group, interface) = (Ipv4Addr::new(239, 77, high, low), Ipv4Addr::LOCALHOST);
        let joined = GroupSocket::open(SocketAddrV4::new(group, 4791), interface).expect("a group of loopback");
        link.drops.add(joined.shared());
        let of_group = flood(&from, (group, 4791).into(), joined.as_fd());
        assert!(of_group > 0, "it was full");
        assert_eq!(link.counters().socket_full, of_own + of_group);
        link.drops.remove(joined.shared());
        drop(joined);
        assert_eq!(link.counters().socket_full, of_own + of_group);
    }
}
