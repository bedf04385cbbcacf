//! Connection management: the messages by which two ends agree on a connection, as bytes and as a
//! state machine.
//!
//! The messages are management datagrams (MADs) of 256 bytes, from queue pair 1 to queue pair 1, as
//! the kernel's `rdma_cm` sends and understands them. [`Mad`] reads and writes them, [`IpHeader`]
//! is `rdma_cm`'s header of a request's private data, [`Manager`] makes and ends connections, and
//! [`packet_of`] wraps a message for the wire.
//!
//! ```
//! use std::net::IpAddr;
//! use verbline_roce::cm::{Accept, Connect, Event, Limits, Manager, PortSpace};
//! use verbline_roce::{transport::Mtu, wire::{Psn, Qpn}};
//!
//! let [client_addr, server_addr]: [IpAddr; 2] = ["10.0.0.1", "10.0.0.2"].map(|text| text.parse().expect("one"));
//! let (mut client, mut server) = (Manager::new(Limits::default()), Manager::new(Limits::default()));
//! server.listen(PortSpace::Reliable.service_of_port(4420));
//! let (qpn, psn) = (Qpn::new(0x11), Psn::new(7));
//! let connect = Connect::new(client_addr, server_addr, 4420, qpn, psn, Mtu::B1024, b"hello")?;
//! // Identifiers should be random; these are not.
//! let id = client.connect(0, 0xC0, &connect)?;
//!
//! let request = client.transmit().expect("a request");
//! server.receive(0, 0x5E, client_addr, &request.mad)?;
//! let Some(Event::Requested(incoming, request)) = server.poll() else { panic!() };
//! assert_eq!((request.qpn, request.port()), (Qpn::new(0x11), Some((PortSpace::Reliable, 4420))));
//! assert_eq!(request.user_data()[..5], *b"hello");
//! server.accept(0, incoming, &Accept::new(Qpn::new(0x12), Psn::new(9), b"welcome"))?;
//!
//! client.receive(0, 0, server_addr, &server.transmit().expect("a reply").mad)?;
//! let Some(Event::Replied(_, reply)) = client.poll() else { panic!() };
//! assert_eq!((reply.qpn, reply.starting_psn), (Qpn::new(0x12), Psn::new(9)));
//! client.establish(0, id)?;
//! server.receive(0, 0, client_addr, &client.transmit().expect("ready to use").mad)?;
//! assert_eq!(server.poll(), Some(Event::Established(incoming)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod address;
mod asked;
mod bits;
mod connection;
mod mad;
mod manager;
mod notices;
mod progress;
mod reply;
mod request;
mod taken;

pub use address::{IP_HEADER_BYTES, IpHeader, PortSpace};
pub use connection::{Accept, CmDiscard, Connect, ConnectionId, Event, Limits, NoSuchConnection, Refused};
pub use mad::{Addressee, MAD_BYTES, MANAGEMENT_QKEY, Mad, MadError, Message, packet_of};
pub use manager::{Manager, Outgoing};
pub use notices::{Disconnect, Disconnected, Ready, Reject, Rejected, Resolve, Resolved, Wait, reason};
pub use reply::{REPLY_DATA_BYTES, Reply};
pub use request::{Path, REQUEST_DATA_BYTES, Request};
