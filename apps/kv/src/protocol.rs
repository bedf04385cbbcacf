//! The messages of clients and servers: one request or one reply per message.
//!
//! All numbers are little-endian.
//!
//! ```text
//! request  | opcode 1 | shard 1 | key bytes 2 | value bytes 4 | id 8 | key | value |
//! reply    | opcode 1 | status 1 | 0 2        | value bytes 4 | id 8 | value |
//! ```
//! The reply to `Locate` has a [`Location`] as its value: the address of the shard's table, so that
//! a client can read it by itself.

use verbline::verbs::rdma::Remote;

use crate::table::Shape;

/// Length of the header of a request or a reply, bytes.
pub(crate) const HEADER_BYTES: usize = 16;

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Opcode {
    /// Returns the value of a key.
    Get = 1,
    /// Gives a key a value.
    Put = 2,
    /// Removes a key.
    Delete = 3,
    /// Returns the location of a shard's table.
    Locate = 4,
}

/// The result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Status {
    /// Done.
    Ok = 0,
    /// There is no such key.
    NotFound = 1,
    /// Both buckets of the key are full.
    Full = 2,
    /// The key or the value is longer than the table takes, or the key is empty.
    TooLong = 3,
    /// The message is not a valid request.
    Malformed = 4,
}

/// A request, in place in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request<'a> {
    /// The operation.
    pub(crate) opcode: Opcode,
    /// The shard of a `Locate`; else 0, since the key determines it.
    pub(crate) shard: u8,
    /// The id by which the client matches the reply.
    pub(crate) id: u64,
    /// The key; empty for `Locate`.
    pub(crate) key: &'a [u8],
    /// The value of a `Put`; else empty.
    pub(crate) value: &'a [u8],
}

/// A reply, in place in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reply<'a> {
    /// The opcode of its request.
    pub(crate) opcode: Opcode,
    /// The result.
    pub(crate) status: Status,
    /// The id of its request.
    pub(crate) id: u64,
    /// The value of a `Get`, the [`Location`] of a `Locate`; else empty.
    pub(crate) value: &'a [u8],
}

impl Opcode {
    fn from_byte(byte: u8) -> Option<Opcode> {
        [Opcode::Get, Opcode::Put, Opcode::Delete, Opcode::Locate].into_iter().find(|opcode| *opcode as u8 == byte)
    }
}

impl Status {
    fn from_byte(byte: u8) -> Option<Status> {
        [Status::Ok, Status::NotFound, Status::Full, Status::TooLong, Status::Malformed]
            .into_iter()
            .find(|status| *status as u8 == byte)
    }
}

impl<'a> Request<'a> {
    /// Reads a message; `None` unless it is exactly one request.
    pub(crate) fn read(bytes: &'a [u8]) -> Option<Request<'a>> {
        let (header, rest) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        let opcode = Opcode::from_byte(header[0])?;
        let key_bytes = usize::from(u16::from_le_bytes([header[2], header[3]]));
        let value_bytes = u32::from_le_bytes([header[4], header[5], header[6], header[7]]) as usize;
        let (key, value) = rest.split_at_checked(key_bytes)?;
        if value.len() != value_bytes {
            return None;
        }
        let fits = match opcode {
            Opcode::Put => !key.is_empty(),
            Opcode::Get | Opcode::Delete => !key.is_empty() && value.is_empty(),
            Opcode::Locate => key.is_empty() && value.is_empty(),
        };
        fits.then(|| Request { opcode, shard: header[1], id: id_of(header), key, value })
    }

    /// Encodes a request's header; its key and value are written behind it.
    pub(crate) fn header(opcode: Opcode, shard: u8, key_bytes: u16, value_bytes: u32, id: u64) -> [u8; HEADER_BYTES] {
        header([opcode as u8, shard], key_bytes, value_bytes, id)
    }
}

impl<'a> Reply<'a> {
    /// Reads a message; `None` unless it is exactly one reply.
    pub(crate) fn read(bytes: &'a [u8]) -> Option<Reply<'a>> {
        let (header, value) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        let value_bytes = u32::from_le_bytes([header[4], header[5], header[6], header[7]]) as usize;
        let (opcode, status) = (Opcode::from_byte(header[0])?, Status::from_byte(header[1])?);
        (value.len() == value_bytes && header[2..4] == [0, 0]).then(|| Reply {
            opcode,
            status,
            id: id_of(header),
            value,
        })
    }

    /// Encodes a reply's header; its value is written behind it.
    pub(crate) fn header(opcode: Opcode, status: Status, id: u64, value_bytes: u32) -> [u8; HEADER_BYTES] {
        header([opcode as u8, status as u8], 0, value_bytes, id)
    }
}

fn header(first: [u8; 2], key_bytes: u16, value_bytes: u32, id: u64) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..2].copy_from_slice(&first);
    header[2..4].copy_from_slice(&key_bytes.to_le_bytes());
    header[4..8].copy_from_slice(&value_bytes.to_le_bytes());
    header[8..].copy_from_slice(&id.to_le_bytes());
    header
}

fn id_of(header: &[u8; HEADER_BYTES]) -> u64 {
    let mut id = [0; 8];
    id.copy_from_slice(&header[8..]);
    u64::from_le_bytes(id)
}

/// The address of a shard's table, and its shape: enough for a client to read it by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    /// The table's first byte, for a READ.
    pub(crate) table: Remote,
    /// The shape of the table.
    pub(crate) shape: Shape,
}

impl Location {
    /// The length of the encoding, in bytes.
    pub(crate) const BYTES: usize = Remote::BYTES + 12;

    /// Encodes the location.
    pub(crate) fn to_bytes(self) -> [u8; Location::BYTES] {
        let mut bytes = [0; Location::BYTES];
        let (table, shape) = bytes.split_at_mut(Remote::BYTES);
        table.copy_from_slice(&self.table.to_bytes());
        let numbers = [self.shape.buckets, self.shape.key_bytes, self.shape.value_bytes];
        for (place, number) in shape.chunks_exact_mut(4).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// Decodes a location; `None` unless its table is possible.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Location> {
        let (table, shape) = bytes.split_first_chunk::<{ Remote::BYTES }>()?;
        let shape: &[u8; Location::BYTES - Remote::BYTES] = shape.try_into().ok()?;
        let number = |at: usize| u32::from_le_bytes([shape[at], shape[at + 1], shape[at + 2], shape[at + 3]]);
        let (table, shape) = (Remote::from_bytes(*table), Shape::new(number(0), number(4), number(8))?);
        // The last byte of the table must have an address, too.
        table.addr.checked_add(shape.len_bytes() as u64)?;
        Some(Location { table, shape })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn opcodes() -> impl Strategy<Value = Opcode> {
        prop::sample::select(vec![Opcode::Get, Opcode::Put, Opcode::Delete, Opcode::Locate])
    }

    proptest! {
        /// A request is read back as written, and with one byte more or less it is no message.
        #[test]
        fn a_request_survives_the_wire(
            opcode in opcodes(), shard: u8, id: u64,
            key in prop::collection::vec(any::<u8>(), 1..40), value in prop::collection::vec(any::<u8>(), 0..90),
        ) {
            let (key, value) = match opcode {
                Opcode::Put => (&key[..], &value[..]),
                Opcode::Get | Opcode::Delete => (&key[..], &[][..]),
                Opcode::Locate => (&[][..], &[][..]),
            };
            let header = Request::header(opcode, shard, key.len() as u16, value.len() as u32, id);
            let mut bytes = [&header[..], key, value].concat();
            prop_assert_eq!(Request::read(&bytes), Some(Request { opcode, shard, id, key, value }));
            prop_assert_eq!(Request::read(&bytes[..bytes.len() - 1]), None);
            bytes.push(0);
            prop_assert_eq!(Request::read(&bytes), None);
        }

        /// A reply is read back as written.
        #[test]
        fn a_reply_survives_the_wire(opcode in opcodes(), id: u64, value in prop::collection::vec(any::<u8>(), 0..90)) {
            let header = Reply::header(opcode, Status::Full, id, value.len() as u32);
            let bytes = [&header[..], &value].concat();
            prop_assert_eq!(Reply::read(&bytes), Some(Reply { opcode, status: Status::Full, id, value: &value }));
            prop_assert_eq!(Reply::read(&bytes[..bytes.len() - 1]), None);
        }

        /// Any bytes are a message or none; if they are one, it is encoded as the same bytes.
        #[test]
        fn any_bytes_may_arrive(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            if let Some(Request { opcode, shard, id, key, value }) = Request::read(&bytes) {
                let header = Request::header(opcode, shard, key.len() as u16, value.len() as u32, id);
                prop_assert_eq!([&header[..], key, value].concat(), &bytes[..]);
            }
            if let Some(Reply { opcode, status, id, value }) = Reply::read(&bytes) {
                let header = Reply::header(opcode, status, id, value.len() as u32);
                prop_assert_eq!([&header[..], value].concat(), &bytes[..]);
            }
            if let Some(location) = Location::from_bytes(&bytes) {
                prop_assert_eq!(&location.to_bytes()[..], &bytes[..]);
            }
        }
    }
}
