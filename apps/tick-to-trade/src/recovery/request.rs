//! MoldUDP64 request packets: 20 bytes that ask for messages again.
//!
//! Session 10 bytes, sequence number of the first message 8 bytes, message count 2 bytes,
//! big-endian (Nasdaq "MoldUDP64 Protocol Specification" 1.00). The answer is a downstream packet
//! that begins with that message and has as many messages as requested, or as fit.

use crate::mold::Session;

/// A request packet's length.
pub const REQUEST_LEN_BYTES: usize = 20;

/// A client's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// The session of the messages.
    pub session: Session,
    /// The first message.
    pub sequence: u64,
    /// Their number, 1 or more.
    pub count: u16,
}

/// Why bytes are not a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// Not 20 bytes.
    #[error("a MoldUDP64 request packet has 20 bytes, not {len_bytes}")]
    Length {
        /// The packet's length.
        len_bytes: usize,
    },
    /// The request is for 0 messages.
    #[error("the request at sequence number {sequence} asks for 0 messages")]
    Nothing {
        /// The first message.
        sequence: u64,
    },
    /// The last message's number exceeds 64 bits.
    #[error("sequence number {sequence} plus {count} messages exceeds 64 bits: the request is corrupt")]
    Sequence {
        /// The first message.
        sequence: u64,
        /// The number of messages.
        count: u16,
    },
}

impl Request {
    /// Encodes the packet.
    pub fn to_bytes(self) -> [u8; REQUEST_LEN_BYTES] {
        let mut bytes = [0; REQUEST_LEN_BYTES];
        bytes[..10].copy_from_slice(&self.session);
        bytes[10..18].copy_from_slice(&self.sequence.to_be_bytes());
        bytes[18..].copy_from_slice(&self.count.to_be_bytes());
        bytes
    }

    /// Reads a packet.
    ///
    /// # Errors
    /// The length is wrong, the count 0, or the numbers exceed 64 bits.
    pub fn parse(bytes: &[u8]) -> Result<Request, RequestError> {
        let bytes: &[u8; REQUEST_LEN_BYTES] =
            bytes.try_into().map_err(|_| RequestError::Length { len_bytes: bytes.len() })?;
        let session = *bytes.first_chunk().expect("20 bytes have a first 10");
        let sequence = u64::from_be_bytes(bytes[10..18].try_into().expect("8 bytes"));
        let count = u16::from_be_bytes([bytes[18], bytes[19]]);
        if count == 0 {
            return Err(RequestError::Nothing { sequence });
        }
        if sequence.checked_add(count.into()).is_none() {
            return Err(RequestError::Sequence { sequence, count });
        }
        Ok(Request { session, sequence, count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read_and_anything_else_is_refused(
            session in any::<Session>(),
            sequence in any::<u64>(),
            count in any::<u16>(),
            cut in 0usize..30,
        ) {
            let request = Request { session, sequence, count };
            let read = Request::parse(&request.to_bytes());
            match (count, sequence.checked_add(count.into())) {
                (0, _) => prop_assert_eq!(read, Err(RequestError::Nothing { sequence })),
                (_, None) => prop_assert_eq!(read, Err(RequestError::Sequence { sequence, count })),
                _ => prop_assert_eq!(read, Ok(request)),
            }
            let bytes: Vec<u8> = request.to_bytes().into_iter().cycle().take(cut).collect();
            if cut != REQUEST_LEN_BYTES {
                prop_assert_eq!(Request::parse(&bytes), Err(RequestError::Length { len_bytes: cut }));
            }
        }
    }

    #[test]
    fn a_request_is_as_the_specification_says() {
        let request = Request { session: *b"VERBLINE00", sequence: 0x0102, count: 3 };
        assert_eq!(&request.to_bytes(), b"VERBLINE00\0\0\0\0\0\0\x01\x02\0\x03");
    }
}
