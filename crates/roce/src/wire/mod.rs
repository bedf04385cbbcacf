//! RoCE v2 packets as bytes: the payload of a UDP datagram to port 4791.
//!
//! A [`Packet`] is a base transport header, a [`Segment`] (the operation with its extension
//! headers) and a payload. Combinations without an opcode can't be expressed. [`icrc`] computes the
//! checksum at a datagram's end, which covers IP and UDP headers too, and so needs a [`Route`].
//! [`ip`] writes and reads those headers, for carriers of whole frames.

mod extension;
mod header;
pub mod icrc;
pub mod ip;
mod opcode;
mod packet;
mod route;

pub use extension::{AtomicExtension, AtomicOp, Deth, Reth, Syndrome};
pub use header::{Bth, DEFAULT_PKEY, Psn, Qpn};
pub use opcode::{Rc, ReadPart, Segment, SendEnd, Uc, WriteEnd};
pub(crate) use packet::write_head;
pub use packet::{HEADERS_MAX_BYTES, Malformed, Packet, read, seal, sealed_bytes};
pub use route::{Addresses, ROCE_PORT, Route};
