//! RoCE v2 without I/O: frames as bytes, ready to be carried.
//!
//! Guarantees: no function here does I/O, reads a clock or panics, whatever bytes it is given, and
//! none that a packet passes through allocates. What is read is a value, or an error that says why
//! not; what is written is read back as the same value.
//!
//! Names and numbers are those of the InfiniBand Architecture Specification, volume 1, with its
//! annex A17 (RoCE v2).
//!
//! ```
//! use verbline_roce::wire::{self, Addresses, Bth, Packet, Psn, Qpn, Rc, Route, Segment, SendEnd, icrc};
//! use std::net::Ipv4Addr;
//!
//! let addresses = Addresses::V4 { source: Ipv4Addr::new(10, 0, 0, 1), destination: Ipv4Addr::new(10, 0, 0, 2) };
//! let route = Route::new(addresses, 0x11, 0x12);
//! let segment = Segment::Rc(Rc::Send { first: true, last: Some(SendEnd::Plain) });
//! let packet = Packet { bth: Bth::new(Qpn::new(0x12), Psn::new(7)), segment, payload: b"hello" };
//! let mut datagram = [0; 64];
//! let len = packet.write(&mut datagram, &route, 0);
//! assert!(icrc::check(&datagram[..len], &route, 0));
//! assert_eq!(wire::read(&datagram[..len])?, packet);
//! # Ok::<(), wire::Malformed>(())
//! ```
#![forbid(unsafe_code)]

pub mod wire;
