//! Management datagrams: the header, and the kind of message behind it; on the wire each is a
//! datagram from queue pair 1 to queue pair 1.

use crate::cm::bits::{BODY_BYTES, Body};
use crate::cm::notices::{Disconnect, Disconnected, Ready, Reject, Resolve, Resolved, Wait};
use crate::cm::reply::Reply;
use crate::cm::request::Request;
use crate::wire::{Bth, Deth, Packet, Psn, Qpn, Segment};

/// The bytes of each message.
pub const MAD_BYTES: usize = HEADER_BYTES + BODY_BYTES;
const HEADER_BYTES: usize = 24;
/// Base version, class (communication management), class version, method (Send).
const KIND: [u8; 4] = [1, 0x07, 2, 0x03];

/// A message with its transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mad {
    /// The transaction; an answer has that of its request.
    pub transaction: u64,
    /// The message.
    pub message: Message,
}

/// A message of connection management.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// REQ.
    Request(Request),
    /// MRA.
    Wait(Wait),
    /// REJ.
    Reject(Reject),
    /// REP.
    Reply(Reply),
    /// RTU.
    Ready(Ready),
    /// DREQ.
    Disconnect(Disconnect),
    /// DREP.
    Disconnected(Disconnected),
    /// SIDR_REQ.
    Resolve(Resolve),
    /// SIDR_REP.
    Resolved(Resolved),
}

/// The addressee of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addressee {
    /// The listener of this service.
    Service(u64),
    /// The owner of the connection of this number.
    Connection(u32),
}

impl Message {
    /// The message's addressee.
    pub fn addressee(&self) -> Addressee {
        match self {
            Message::Request(request) => Addressee::Service(request.service),
            Message::Resolve(resolve) => Addressee::Service(resolve.service),
            Message::Wait(wait) => Addressee::Connection(wait.remote_id),
            Message::Reject(reject) => Addressee::Connection(reject.remote_id),
            Message::Reply(reply) => Addressee::Connection(reply.remote_id),
            Message::Ready(ready) => Addressee::Connection(ready.remote_id),
            Message::Disconnect(disconnect) => Addressee::Connection(disconnect.remote_id),
            Message::Disconnected(disconnected) => Addressee::Connection(disconnected.remote_id),
            Message::Resolved(resolved) => Addressee::Connection(resolved.request_id),
        }
    }
}

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MadError {
    /// Not the 256 bytes of every message.
    #[error("{bytes} bytes are no management datagram, which has 256")]
    Length {
        /// The number of bytes.
        bytes: usize,
    },
    /// A different class, version or method.
    #[error("base version, class, class version and method {0:02x?} are not connection management's")]
    Kind([u8; 4]),
    /// A different message.
    #[error("attribute {0:#06x} is no message of connections")]
    Attribute(u16),
    /// An MTU without a meaning.
    #[error("MTU {0} of a request is none of 1 to 5")]
    Mtu(u8),
}

impl Mad {
    /// Reads a message.
    pub fn read(bytes: &[u8]) -> Result<Mad, MadError> {
        let whole: &[u8; MAD_BYTES] = bytes.try_into().map_err(|_| MadError::Length { bytes: bytes.len() })?;
        let header = Body(std::array::from_fn(|at| if at < HEADER_BYTES { whole[at] } else { 0 }));
        let body = Body(std::array::from_fn(|at| whole[HEADER_BYTES + at]));
        let kind: [u8; 4] = header.bytes(0);
        if kind != KIND {
            return Err(MadError::Kind(kind));
        }
        let message = match header.u16(16) {
            0x10 => Message::Request(Request::read(&body).ok_or(MadError::Mtu(body.0[50] >> 4))?),
            0x11 => Message::Wait(Wait::read(&body)),
            0x12 => Message::Reject(Reject::read(&body)),
            0x13 => Message::Reply(Reply::read(&body)),
            0x14 => Message::Ready(Ready::read(&body)),
            0x15 => Message::Disconnect(Disconnect::read(&body)),
            0x16 => Message::Disconnected(Disconnected::read(&body)),
            0x17 => Message::Resolve(Resolve::read(&body)),
            0x18 => Message::Resolved(Resolved::read(&body)),
            attribute => return Err(MadError::Attribute(attribute)),
        };
        Ok(Mad { transaction: header.u64(8), message })
    }

    /// The transaction of a message of the right length, and its sender's number of the connection.
    pub(crate) fn numbers(bytes: &[u8]) -> Option<(u64, u32)> {
        let (header, body) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        let local_id = u32::from_be_bytes(*body.first_chunk()?);
        Some((u64::from_be_bytes(*header[8..].first_chunk()?), local_id))
    }

    /// Writes it.
    pub fn to_bytes(&self) -> [u8; MAD_BYTES] {
        let (attribute, body) = match &self.message {
            Message::Request(request) => (0x10_u16, request.write()),
            Message::Wait(wait) => (0x11, wait.write()),
            Message::Reject(reject) => (0x12, reject.write()),
            Message::Reply(reply) => (0x13, reply.write()),
            Message::Ready(ready) => (0x14, ready.write()),
            Message::Disconnect(disconnect) => (0x15, disconnect.write()),
            Message::Disconnected(disconnected) => (0x16, disconnected.write()),
            Message::Resolve(resolve) => (0x17, resolve.write()),
            Message::Resolved(resolved) => (0x18, resolved.write()),
        };
        let mut bytes = [0; MAD_BYTES];
        bytes[..4].copy_from_slice(&KIND);
        bytes[8..16].copy_from_slice(&self.transaction.to_be_bytes());
        bytes[16..18].copy_from_slice(&attribute.to_be_bytes());
        bytes[HEADER_BYTES..].copy_from_slice(&body.0);
        bytes
    }
}

/// The Q_Key of queue pair 1, on every device.
pub const MANAGEMENT_QKEY: u32 = 0x8001_0000;

/// The packet of a message. `psn` counts the packets that queue pair 1 sends.
pub fn packet_of(mad: &[u8; MAD_BYTES], psn: Psn) -> Packet<'_> {
    let segment = Segment::Ud(Deth { qkey: MANAGEMENT_QKEY, source: Qpn::MANAGEMENT }, None);
    Packet { bth: Bth::new(Qpn::MANAGEMENT, psn), segment, payload: mad }
}
