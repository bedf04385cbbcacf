//! Local memory of operations ([`crate::rdma::Operation`]): a packet or a scatter/gather list,
//! which moves in and comes back with the completion, or memory that the QP keeps, by number.

use verbline_mem::Packet;

use crate::memory::span::Span;
use crate::wr::connected::{Connected, OnRc};
use crate::wr::kept::{KeptKey, KeptRegion};
use crate::wr::sg_list::SgList;

/// A range of a signature key's data, counted like
/// [`SignatureKey::range`](crate::signature::SignatureKey): without protection information, in
/// whole blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyPart {
    /// The key.
    pub key: KeptKey,
    /// The offset, bytes.
    pub offset: u32,
    /// The length, bytes.
    pub len: u32,
}

/// A part of a region that the QP keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Part {
    /// The region.
    pub region: KeptRegion,
    /// The range within the region.
    pub span: Span,
}

impl Part {
    /// The offset in its region, bytes.
    pub fn offset(self) -> usize {
        self.span.offset() as usize
    }

    /// Length, bytes.
    #[inline]
    pub fn len(self) -> usize {
        self.span.len_bytes() as usize
    }

    /// Whether the part is empty.
    pub fn is_empty(self) -> bool {
        self.span.is_empty()
    }
}

/// Local memory of a transfer.
#[derive(Debug, Default)]
pub enum Local<T: Connected = OnRc> {
    /// No bytes.
    #[default]
    Empty,
    /// A packet's data: `len()` bytes of it.
    Packet(Packet),
    /// A part of a region that the QP keeps.
    Part(Part),
    /// Several packets and slices of regions, up to [`crate::QpSpec::max_send_sge`] parts: sent or
    /// written in order, or filled in order. The list comes back with the completion.
    List(Box<SgList>),
    /// The data of a signature key that the QP keeps: on RC.
    Key(KeyPart, T::Reliable),
}

/// Memory of a listed work request that comes back with its completion.
#[derive(Debug)]
pub enum WorkMemory {
    /// A packet.
    Packet(Packet),
    /// A scatter/gather list.
    List(Box<SgList>),
}

impl WorkMemory {
    /// The packet, if it is one.
    pub fn into_packet(self) -> Option<Packet> {
        match self {
            WorkMemory::Packet(packet) => Some(packet),
            WorkMemory::List(_) => None,
        }
    }

    /// The scatter/gather list, if it is one.
    pub fn into_list(self) -> Option<Box<SgList>> {
        match self {
            WorkMemory::Packet(_) => None,
            WorkMemory::List(list) => Some(list),
        }
    }
}

/// Eight local bytes for the result of an atomic, in this machine's byte order.
#[derive(Debug)]
pub enum Word {
    /// A packet's data, eight bytes long.
    Packet(Packet),
    /// A part of a region that the QP keeps, eight bytes long.
    Part(Part),
}

impl<T: Connected> Local<T> {
    /// The packet, if it is one.
    pub fn into_packet(self) -> Option<Packet> {
        if let Local::Packet(packet) = self { Some(packet) } else { None }
    }

    /// The number of packets.
    #[inline]
    pub fn packets(&self) -> usize {
        match self {
            Local::Packet(_) => 1,
            Local::List(list) => list.packets(),
            Local::Empty | Local::Part(_) | Local::Key(..) => 0,
        }
    }

    /// Length, bytes.
    #[inline]
    pub fn len_bytes(&self) -> usize {
        match self {
            Local::Empty => 0,
            Local::Packet(packet) => packet.len(),
            Local::Part(part) => part.len(),
            Local::List(list) => list.len_bytes(),
            Local::Key(part, _) => part.len as usize,
        }
    }
}

impl Word {
    /// Length, bytes; any other than eight is refused.
    #[inline]
    pub fn len_bytes(&self) -> usize {
        match self {
            Word::Packet(packet) => packet.len(),
            Word::Part(part) => part.len(),
        }
    }
}

impl<T: Connected> From<Packet> for Local<T> {
    fn from(packet: Packet) -> Local<T> {
        Local::Packet(packet)
    }
}

impl<T: Connected> From<Part> for Local<T> {
    fn from(part: Part) -> Local<T> {
        Local::Part(part)
    }
}

impl<T: Connected> From<Box<SgList>> for Local<T> {
    fn from(list: Box<SgList>) -> Local<T> {
        Local::List(list)
    }
}

impl From<KeyPart> for Local {
    fn from(part: KeyPart) -> Local {
        Local::Key(part, OnRc)
    }
}

impl<T: Connected> From<Word> for Local<T> {
    fn from(word: Word) -> Local<T> {
        match word {
            Word::Packet(packet) => Local::Packet(packet),
            Word::Part(part) => Local::Part(part),
        }
    }
}

impl From<Packet> for Word {
    fn from(packet: Packet) -> Word {
        Word::Packet(packet)
    }
}

impl From<Part> for Word {
    fn from(part: Part) -> Word {
        Word::Part(part)
    }
}
