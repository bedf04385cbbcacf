//! MoldUDP64 downstream packets: a 20-byte header, then message blocks, each a 2-byte length and
//! that many bytes.
//!
//! Header (big-endian, Nasdaq "MoldUDP64 Protocol Specification" 1.00): session 10 bytes, sequence
//! number of the first message 8 bytes, message count 2 bytes. A count of 0 is a heartbeat and
//! 0xffff the end of the session; both carry the next expected sequence number. [`Packet::parse`]
//! checks the framing of the whole packet, so that a packet is taken as a whole or not at all and
//! iterating over its messages cannot fail.

/// The header's length.
pub const HEADER_LEN_BYTES: usize = 20;
/// The length field before each message.
pub const BLOCK_HEADER_LEN_BYTES: usize = 2;
const END_OF_SESSION: u16 = 0xffff;

/// The session's name: 10 characters, padded with spaces.
pub type Session = [u8; 10];

/// Why bytes are not a MoldUDP64 packet, or why a message does not fit into one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MoldError {
    /// Shorter than a header.
    #[error("{len_bytes} bytes hold no MoldUDP64 header of 20 bytes; is this port's group a MoldUDP64 feed?")]
    Header {
        /// The packet's length.
        len_bytes: usize,
    },
    /// The packet ends within a message block.
    #[error(
        "message {index} of {count} at byte {offset_bytes} needs {need_bytes} bytes, the packet has {have_bytes} \
         left: it was cut"
    )]
    Truncated {
        /// The block, counted from 0.
        index: u16,
        /// The number of messages that the header announces.
        count: u16,
        /// The block's offset in the packet.
        offset_bytes: usize,
        /// The block's length with its length field.
        need_bytes: usize,
        /// The bytes left from there.
        have_bytes: usize,
    },
    /// Bytes follow the last message block.
    #[error("{extra_bytes} bytes follow the {count} messages that the header announces: count and contents disagree")]
    Trailing {
        /// The number of messages that the header announces.
        count: u16,
        /// The bytes too many.
        extra_bytes: usize,
    },
    /// The sequence number of the last message exceeds 64 bits.
    #[error("sequence number {sequence} plus {count} messages exceeds 64 bits: the header is corrupt")]
    Sequence {
        /// The header's sequence number.
        sequence: u64,
        /// The header's count.
        count: u16,
    },
    /// The output buffer has no room for another message.
    #[error(
        "a block of {need_bytes} bytes does not fit into the {room_bytes} left of the packet; send it and start another"
    )]
    Full {
        /// The block's length with its length field.
        need_bytes: usize,
        /// The bytes left.
        room_bytes: usize,
    },
}

/// The kind of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It carries this many messages.
    Messages(u16),
    /// Carries the next sequence number only.
    Heartbeat,
    /// Like a heartbeat, and the last packet of its session.
    EndOfSession,
}

/// A packet whose framing is whole.
#[derive(Debug, Clone, Copy)]
pub struct Packet<'a> {
    session: &'a Session,
    sequence: u64,
    kind: Kind,
    blocks: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Checks header and message blocks.
    ///
    /// # Errors
    /// The header is short, a block exceeds the packet, bytes follow the last block, or the
    /// sequence number overflows.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, MoldError> {
        let Some((header, blocks)) = bytes.split_first_chunk::<HEADER_LEN_BYTES>() else {
            return Err(MoldError::Header { len_bytes: bytes.len() });
        };
        let session = header.first_chunk().expect("20 bytes have a first 10");
        let sequence = u64::from_be_bytes(header[10..18].try_into().expect("8 bytes"));
        let count = u16::from_be_bytes([header[18], header[19]]);
        let (kind, messages) = match count {
            0 => (Kind::Heartbeat, 0),
            END_OF_SESSION => (Kind::EndOfSession, 0),
            n => (Kind::Messages(n), n),
        };
        if sequence.checked_add(u64::from(messages)).is_none() {
            return Err(MoldError::Sequence { sequence, count });
        }
        check_blocks(blocks, messages)?;
        Ok(Self { session, sequence, kind, blocks })
    }

    /// The session's name.
    pub fn session(&self) -> &'a Session {
        self.session
    }

    /// The sequence number of the first message, or the next one expected.
    #[inline]
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The kind of packet.
    #[inline]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The number of messages in it.
    #[inline]
    pub fn count(&self) -> u16 {
        match self.kind {
            Kind::Messages(n) => n,
            Kind::Heartbeat | Kind::EndOfSession => 0,
        }
    }

    /// The messages in order; the first has [`Packet::sequence`].
    #[inline]
    pub fn messages(&self) -> Messages<'a> {
        Messages { rest: self.blocks }
    }
}

/// Iterator over a packet's messages.
#[derive(Debug, Clone)]
pub struct Messages<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Messages<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        // `Packet::parse` has walked the same blocks; `None` comes at the end only.
        let (len, rest) = self.rest.split_first_chunk::<BLOCK_HEADER_LEN_BYTES>()?;
        let (message, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*len)))?;
        self.rest = rest;
        Some(message)
    }
}

/// Builds one packet in a caller's buffer.
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut [u8],
    len_bytes: usize,
    count: u16,
}

impl<'a> Writer<'a> {
    /// Starts a packet at the front of `out`.
    ///
    /// # Errors
    /// `out` is shorter than a header.
    pub fn new(out: &'a mut [u8], session: &Session, sequence: u64) -> Result<Self, MoldError> {
        let len_bytes = out.len();
        let Some(header) = out.first_chunk_mut::<HEADER_LEN_BYTES>() else {
            return Err(MoldError::Header { len_bytes });
        };
        header[..10].copy_from_slice(session);
        header[10..18].copy_from_slice(&sequence.to_be_bytes());
        header[18..].copy_from_slice(&[0, 0]);
        Ok(Self { out, len_bytes: HEADER_LEN_BYTES, count: 0 })
    }

    /// The greatest length of the next message, in bytes.
    pub fn room_bytes(&self) -> usize {
        (self.out.len() - self.len_bytes).saturating_sub(BLOCK_HEADER_LEN_BYTES)
    }

    /// Messages so far.
    pub fn count(&self) -> u16 {
        self.count
    }

    /// Appends a copy of a message.
    ///
    /// # Errors
    /// The packet has no room, or 65,534 messages already; it stays as it was.
    pub fn push(&mut self, message: &[u8]) -> Result<(), MoldError> {
        self.push_with(|out| {
            let slot = out.get_mut(..message.len())?;
            slot.copy_from_slice(message);
            Some(message.len())
        })
        .map_err(|room_bytes| MoldError::Full { need_bytes: message.len() + BLOCK_HEADER_LEN_BYTES, room_bytes })
    }

    /// Appends a message that `encode` writes to the front of the buffer it is given; `encode`
    /// returns the message's length, or `None` to write nothing.
    ///
    /// # Errors
    /// `encode` wrote nothing or more than fits, or the packet's count is full; the value is the
    /// room that `encode` had, in bytes.
    pub fn push_with(&mut self, encode: impl FnOnce(&mut [u8]) -> Option<usize>) -> Result<(), usize> {
        let room_bytes = self.room_bytes().min(usize::from(u16::MAX));
        if self.count == END_OF_SESSION - 1 || self.out.len() < self.len_bytes + BLOCK_HEADER_LEN_BYTES {
            return Err(0);
        }
        let block = &mut self.out[self.len_bytes..];
        let (len, body) = block.split_at_mut(BLOCK_HEADER_LEN_BYTES);
        let written = encode(&mut body[..room_bytes]).filter(|&n| n <= room_bytes).ok_or(room_bytes)?;
        len.copy_from_slice(&(written as u16).to_be_bytes());
        self.len_bytes += BLOCK_HEADER_LEN_BYTES + written;
        self.count += 1;
        Ok(())
    }

    /// Writes the count and returns the packet's length. A packet without messages is a heartbeat.
    pub fn finish(self) -> usize {
        self.out[18..20].copy_from_slice(&self.count.to_be_bytes());
        self.len_bytes
    }

    /// Makes the packet an end of session, which carries no message, and returns its length.
    pub fn finish_session(self) -> usize {
        self.out[18..20].copy_from_slice(&END_OF_SESSION.to_be_bytes());
        HEADER_LEN_BYTES
    }
}

#[inline]
fn check_blocks(blocks: &[u8], count: u16) -> Result<(), MoldError> {
    let mut at = 0;
    for index in 0..count {
        let have_bytes = blocks.len() - at;
        let need_bytes = match blocks[at..] {
            [high, low, ..] => BLOCK_HEADER_LEN_BYTES + usize::from(u16::from_be_bytes([high, low])),
            _ => BLOCK_HEADER_LEN_BYTES,
        };
        if need_bytes > have_bytes {
            let offset_bytes = HEADER_LEN_BYTES + at;
            return Err(MoldError::Truncated { index, count, offset_bytes, need_bytes, have_bytes });
        }
        at += need_bytes;
    }
    match blocks.len() - at {
        0 => Ok(()),
        extra_bytes => Err(MoldError::Trailing { count, extra_bytes }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SESSION: Session = *b"VERBLINE01";

    fn packet(messages: &[Vec<u8>], sequence: u64) -> Vec<u8> {
        let mut out = vec![0; 64 * 1024];
        let mut writer = Writer::new(&mut out, &SESSION, sequence).unwrap();
        for message in messages {
            writer.push(message).unwrap();
        }
        let len = writer.finish();
        out.truncate(len);
        out
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..40),
            sequence in 0..u64::MAX / 2,
        ) {
            let bytes = packet(&messages, sequence);
            let read = Packet::parse(&bytes).unwrap();
            prop_assert_eq!(read.session(), &SESSION);
            prop_assert_eq!(read.sequence(), sequence);
            prop_assert_eq!(usize::from(read.count()), messages.len());
            prop_assert_eq!(read.kind() == Kind::Heartbeat, messages.is_empty());
            prop_assert!(read.messages().eq(messages.iter().map(Vec::as_slice)));
        }

        #[test]
        fn every_cut_and_every_extra_byte_is_found(
            messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 1..10),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut bytes = packet(&messages, 1);
            let cut = cut.index(bytes.len());
            let refused = Packet::parse(&bytes[..cut]);
            let is_named = matches!(refused, Err(MoldError::Header { .. } | MoldError::Truncated { .. }));
            prop_assert!(is_named);
            bytes.push(0);
            let is_named = matches!(Packet::parse(&bytes), Err(MoldError::Trailing { extra_bytes: 1, .. }));
            prop_assert!(is_named);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(packet) = Packet::parse(&bytes) {
                prop_assert_eq!(packet.messages().count(), usize::from(packet.count()));
            }
        }
    }

    #[test]
    fn end_of_session_and_overflow() {
        let mut out = [0; 64];
        let len = Writer::new(&mut out, &SESSION, 77).unwrap().finish_session();
        let packet = Packet::parse(&out[..len]).unwrap();
        assert_eq!((packet.kind(), packet.count(), packet.sequence()), (Kind::EndOfSession, 0, 77));

        let mut bytes = super::tests::packet(&[vec![1]], 1);
        bytes[10..18].fill(0xff);
        assert_eq!(Packet::parse(&bytes).err(), Some(MoldError::Sequence { sequence: u64::MAX, count: 1 }));
    }

    #[test]
    fn a_full_packet_refuses_and_stays() {
        let mut out = [0; 30];
        let mut writer = Writer::new(&mut out, &SESSION, 1).unwrap();
        writer.push(b"12345").unwrap();
        assert_eq!(writer.push(b"12"), Err(MoldError::Full { need_bytes: 4, room_bytes: 1 }));
        assert_eq!(writer.push(b"1"), Ok(()));
        assert_eq!(writer.push(b""), Err(MoldError::Full { need_bytes: 2, room_bytes: 0 }));
        assert_eq!(writer.finish(), 30);
        assert_eq!(Packet::parse(&out).unwrap().messages().collect::<Vec<_>>(), [&b"12345"[..], b"1"]);
    }

    #[test]
    fn errors_say_what_is_wrong() {
        insta::assert_snapshot!(
            Packet::parse(&[0; 7]).unwrap_err(),
            @"7 bytes hold no MoldUDP64 header of 20 bytes; is this port's group a MoldUDP64 feed?"
        );
        let bytes = packet(&[vec![1; 10]], 1);
        insta::assert_snapshot!(
            Packet::parse(&bytes[..25]).unwrap_err(),
            @"message 0 of 1 at byte 20 needs 12 bytes, the packet has 5 left: it was cut"
        );
    }
}
