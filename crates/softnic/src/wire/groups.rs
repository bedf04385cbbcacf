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
