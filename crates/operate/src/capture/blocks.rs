//! The blocks of a capture, whole and one at a time, so that a client can end a file and begin
//! another between two of them.

use std::io::{self, ErrorKind};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::pcapng::{DROPPED, INTERFACE, PACKET, SECTION, STATISTICS};
use crate::incoming::Incoming;

/// The most bytes of a block.
const BLOCK_BYTES_MAX: usize = 1 << 20;
const HEAD_BYTES: usize = 8;

/// The kind of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    /// A block of the file's head: of the section or of an interface.
    Head,
    /// A packet.
    Packet,
    /// The end of the capture at one point, with the packets seen there but not captured, because
    /// they came faster than they were taken.
    End {
        /// The number of packets not captured.
        lost: u64,
    },
}

/// A block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its kind.
    pub kind: BlockKind,
    /// The whole block.
    pub bytes: Vec<u8>,
}

/// A capture being received. Dropping it ends it, and waits for that for a second at most.
#[derive(Debug)]
pub struct Blocks {
    incoming: Incoming,
}

impl Blocks {
    pub(crate) fn new(stream: UnixStream, read: Vec<u8>) -> Blocks {
        Blocks { incoming: Incoming::new(stream, read) }
    }

    /// Asks the run to end the capture; the rest of it, and its last counts, still arrive.
    pub fn end(&self) {
        self.incoming.end();
    }

    /// The next block; `None` if no whole one arrives within `patience`.
    ///
    /// # Errors
    /// `UnexpectedEof`: the capture has ended. `InvalidData`: the bytes are not a capture.
    pub fn next(&mut self, patience: Duration) -> io::Result<Option<Block>> {
        loop {
            if let Some(block) = self.take()? {
                return Ok(Some(block));
            }
            if !self.incoming.wait(patience)? {
                return Ok(None);
            }
        }
    }

    fn take(&mut self) -> io::Result<Option<Block>> {
        let rest = self.incoming.rest();
        let Some((kind, len)) = word(rest, 0).zip(word(rest, 4)) else { return Ok(None) };
        let len = len as usize;
        let invalid = |why: &str| io::Error::new(ErrorKind::InvalidData, why.to_owned());
        if !(HEAD_BYTES + 4..=BLOCK_BYTES_MAX).contains(&len) || !len.is_multiple_of(4) {
            return Err(invalid("a block's length can't be"));
        }
        let Some(bytes) = rest.get(..len) else { return Ok(None) };
        let kind = match kind {
            SECTION | INTERFACE => BlockKind::Head,
            PACKET => BlockKind::Packet,
            STATISTICS => BlockKind::End { lost: lost(bytes).ok_or_else(|| invalid("no count is in statistics"))? },
            _ => return Err(invalid("a block of another kind")),
        };
        let bytes = bytes.to_vec();
        self.incoming.take(len);
        Ok(Some(Block { kind, bytes }))
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The count of dropped packets in the options of a statistics block.
fn lost(block: &[u8]) -> Option<u64> {
    const OPTIONS_AT: usize = 20;
    let mut options = block.get(OPTIONS_AT..)?;
    loop {
        let (head, rest) = options.split_first_chunk::<4>()?;
        let (code, len) = (u16::from_le_bytes([head[0], head[1]]), u16::from_le_bytes([head[2], head[3]]));
        if code == DROPPED {
            return Some(u64::from_le_bytes(*rest.first_chunk()?));
        }
        options = rest.get(usize::from(len).next_multiple_of(4)..).filter(|_| code != 0)?;
    }
}
