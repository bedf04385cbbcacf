//! A device's way to other processes and hosts: RoCE v2 over a UDP socket of one address.
//!
//! A device has a wire from [`attach`] on, and one more entry in its GID table: the address. A
//! reliable or unreliable queue pair whose path begins there, and leads to no device of this
//! process, is the wire's: `verbline-roce` makes and takes in its packets, while its receives,
//! its completions, its keys and its states stay what they are for every other queue pair.
//!
//! # Who does the work
//! The caller: `ibv_post_send` sends, `ibv_poll_cq` takes in what has come, sends again what was
//! lost, and answers. While nobody polls, the wire's own thread does it (`thread`).
//!
//! # What it guarantees
//! - Between queue pairs of this process nothing changes: which way a queue pair goes is decided
//!   when it is connected, and the fast paths are closed to one that goes by a wire.
//! - One thread at a time works for a wire (`Wire::lock`). A turn is bounded; who polls and finds
//!   another at it, leaves it to that one.
//! - All access to memory is checked like any other (`memory`).
//! - Processes of one user share an address; each gets what is its own (`neighbours`).
//!
//! # What is not, yet
//! Multicast by IPv6, binds and local invalidation in the order of the send queue, keys that sign,
//! and shared receive queues of another protection domain than the queue pair's. The hop limit and
//! the service level of a path aren't put on packets: the host's route and the socket's priority
//! say them.

mod arrivals;
mod attach;
mod calls;
mod carrier_impl;
mod connection;
mod counters;
mod device_wire;
mod doorbell;
mod epoll;
mod gid;
mod groups;
mod intake;
mod management;
mod memory;
mod mtu;
mod neighbours;
mod outbox;
mod poll_turn;
mod queue_pair;
mod seat;
mod socket;
mod thread;
mod transports;

pub use attach::{AttachError, all, attach, of_device, random_psn};
pub use connection::{Asked, Exchange, Listening};
pub use counters::{LinkCounters, QpIncidents};
pub use device_wire::Wire;
pub use management::{News, Terms};
pub use verbline_roce::cm::PortSpace;
pub use verbline_roce::transport::{Counters, Discard, Incidents};
