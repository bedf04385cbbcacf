//! A device's path to other processes and hosts: RoCE v2 over a UDP socket of one address.
//!
//! A device has a wire from [`attach()`] on, and one more entry in its GID table: the address. A
//! reliable or unreliable queue pair whose path begins there, and leads to no device of this
//! process, is the wire's: `verbline-roce` makes and takes in its packets. Its receives,
//! completions, keys and states work like every other queue pair's.
//!
//! # Who does the work
//! The caller: `ibv_post_send` sends; `ibv_poll_cq` takes in arrived packets, retransmits lost
//! ones, and answers. While nobody polls, the wire's own thread does it (`thread`).
//!
//! # Guarantees
//! - Between queue pairs of this process nothing changes: a queue pair's path is decided when it is
//!   connected, and the fast paths are closed to a queue pair on a wire.
//! - One thread at a time works for a wire (`Wire::lock`). A turn is bounded; a poller that finds
//!   another thread at it leaves the work to that one.
//! - All access to memory is checked like any other (`memory`).
//! - Processes of one user share an address; each gets its own packets (`neighbours`).
//!
//! # Not supported yet
//! Multicast by IPv6, keys that sign, and shared receive queues of another protection domain than
//! the queue pair's. The hop limit, the flow label and the service level of a path aren't put on
//! packets: the host's route and the socket decide them.

mod arrivals;
mod attach;
mod calls;
mod carrier_impl;
mod connection;
mod counters;
mod descriptors;
mod device_wire;
mod groups;
mod intake;
mod management;
mod memory;
mod mtu;
mod neighbours;
mod outbox;
mod peer_socket;
mod peers;
mod poll_turn;
mod queue_pair;
mod run;
mod seat;
mod socket;
mod socket_drops;
mod thread;
mod transports;

pub use attach::{AttachError, all, attach, of_device, random_psn};
pub use connection::{Asked, Exchange, Listening};
pub use counters::{LinkCounters, QpIncidents};
pub use device_wire::Wire;
pub use management::{News, Terms};
pub use verbline_roce::cm::{PortSpace, reason};
pub use verbline_roce::transport::{Counters, Discard, Incidents};

use std::net::{IpAddr, Ipv6Addr};

/// The address in a GID.
fn address_of(gid: [u8; 16]) -> IpAddr {
    let v6 = Ipv6Addr::from(gid);
    v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), IpAddr::V4)
}

/// The GID of an address.
fn gid_of(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}
