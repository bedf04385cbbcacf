//! Local memory of an operation: a packet, a part of a region, or blocks of a signature key.

use verbline_mem::Packet;

use crate::operations::region::Range;
use crate::operations::signature::Blocks;

/// The memory of this end that an operation reads or writes.
#[derive(Debug, Default)]
pub enum Memory {
    /// No bytes.
    #[default]
    Empty,
    /// A packet's data: `len()` bytes of it. It belongs to the operation until that completes.
    Packet(Packet),
    /// A part of a region that a stage of this device owns.
    Range(Range),
    /// Blocks that a signature key of the port stands for.
    Blocks(Blocks),
}

impl Memory {
    /// The packet, if it is one.
    pub fn into_packet(self) -> Option<Packet> {
        match self {
            Memory::Packet(packet) => Some(packet),
            Memory::Empty | Memory::Range(_) | Memory::Blocks(_) => None,
        }
    }

    /// Length, bytes.
    pub fn len_bytes(&self) -> usize {
        match self {
            Memory::Empty => 0,
            Memory::Packet(packet) => packet.len(),
            Memory::Range(range) => range.len(),
            Memory::Blocks(blocks) => blocks.data_bytes as usize,
        }
    }
}

/// Eight bytes of this end, where an atomic puts what it found at the peer.
#[derive(Debug)]
pub enum Word {
    /// A packet whose data are eight bytes long. It belongs to the operation until that completes.
    Packet(Packet),
    /// Eight bytes of a region that a stage of this device owns.
    Range(Range),
}

impl Word {
    pub(crate) fn len_bytes(&self) -> usize {
        match self {
            Word::Packet(packet) => packet.len(),
            Word::Range(range) => range.len(),
        }
    }
}

impl From<Packet> for Word {
    fn from(packet: Packet) -> Word {
        Word::Packet(packet)
    }
}

impl From<Range> for Word {
    fn from(range: Range) -> Word {
        Word::Range(range)
    }
}

impl From<Word> for Memory {
    fn from(word: Word) -> Memory {
        match word {
            Word::Packet(packet) => Memory::Packet(packet),
            Word::Range(range) => Memory::Range(range),
        }
    }
}

impl From<Packet> for Memory {
    fn from(packet: Packet) -> Memory {
        Memory::Packet(packet)
    }
}

impl From<Range> for Memory {
    fn from(range: Range) -> Memory {
        Memory::Range(range)
    }
}

impl From<Blocks> for Memory {
    fn from(blocks: Blocks) -> Memory {
        Memory::Blocks(blocks)
    }
}
