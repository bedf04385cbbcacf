//! The memory of a work request. It moves into the QP with the work request, and comes back when
//! that is refused or done.

use rdma_sys::ibv_sge;
use verbline_mem::Packet;

use crate::memory::peer::PeerSlice;
use crate::signature::{KeyConfig, KeyLayout, KeyRange};
use crate::wr::post::PostStop;
use crate::wr::sg_list::{SgList, packet_sge};

/// Local memory of a work request.
#[derive(Debug, Default)]
pub enum Buffer {
    /// No bytes.
    #[default]
    Empty,
    /// A packet's data: `len()` bytes of it.
    Packet(Packet),
    /// A part of memory that peers may also reach.
    Peer(PeerSlice),
    /// Several parts: a scatter/gather list, with at most [`crate::QpSpec::max_send_sge`] non-empty
    /// parts.
    List(SgList),
    /// A range of a signature key.
    Key(KeyRange),
}

/// Local memory with addresses of its own. Three uses need it: inline data, which the CPU copies
/// during the post; the result of an atomic; and UD sends. A range of a signature key has no
/// address: only the device can locate it, and only over connections.
#[derive(Debug, Default)]
pub enum Addressed {
    /// No bytes.
    #[default]
    Empty,
    /// A packet's data: `len()` bytes of it.
    Packet(Packet),
    /// A part of memory that peers may also reach.
    Peer(PeerSlice),
    /// Several parts: a scatter/gather list, with at most [`crate::QpSpec::max_send_sge`] non-empty
    /// parts.
    List(SgList),
}

/// Returned with the completion of a work request that was posted by itself.
#[derive(Debug)]
pub enum OpDone {
    /// The memory of the work request.
    Memory(Buffer),
    /// The layout that a configuration of a signature key replaced.
    Layout(KeyLayout),
}

/// The memory of a work request to be posted.
pub(crate) enum Given {
    /// Memory that the device uses until the work request is done.
    Used(Buffer),
    /// Memory with addresses that the post copies.
    Copied(Buffer),
    /// Inline words that configure a signature key, which the post copies.
    Words(ibv_sge),
}

impl Given {
    pub(crate) fn copied(memory: Addressed) -> Given {
        Given::Copied(memory.into())
    }

    pub(crate) fn buffer(&self) -> Option<&Buffer> {
        match self {
            Given::Used(buffer) | Given::Copied(buffer) => Some(buffer),
            Given::Words(_) => None,
        }
    }

    pub(crate) fn into_buffer(self) -> Buffer {
        match self {
            Given::Used(buffer) | Given::Copied(buffer) => buffer,
            Given::Words(_) => Buffer::Empty,
        }
    }
}

impl Buffer {
    /// The packet, if it is one.
    pub fn into_packet(self) -> Option<Packet> {
        match self {
            Buffer::Packet(packet) => Some(packet),
            _ => None,
        }
    }

    /// The scatter/gather list, if it is one.
    pub fn into_list(self) -> Option<SgList> {
        match self {
            Buffer::List(list) => Some(list),
            _ => None,
        }
    }

    pub(crate) fn len_bytes(&self) -> usize {
        match self {
            Buffer::Empty => 0,
            Buffer::Packet(packet) => packet.len(),
            Buffer::Peer(slice) => slice.len() as usize,
            Buffer::List(list) => list.len_bytes(),
            Buffer::Key(range) => range.len() as usize,
        }
    }

    /// The PD of a part that belongs to another PD than this one.
    pub(crate) fn foreign_pd(&self, pd_id: u64) -> Option<u64> {
        match self {
            Buffer::Empty => None,
            Buffer::Key(range) => Some(range.pd_id()).filter(|&theirs| theirs != pd_id),
            Buffer::Packet(packet) => Some(packet.pd_id()).filter(|&theirs| theirs != pd_id),
            Buffer::Peer(slice) => Some(slice.pd_id()).filter(|&theirs| theirs != pd_id),
            Buffer::List(list) => list.foreign_pd(pd_id),
        }
    }

    /// The number of SGEs in its work request.
    pub(crate) fn sges(&self) -> usize {
        match self {
            Buffer::List(list) => list.sges(),
            other => (other.len_bytes() > 0).into(),
        }
    }

    /// The SGE of memory in one part.
    pub(crate) fn sge(&self) -> ibv_sge {
        match self {
            Buffer::Key(range) => range.sge(),
            Buffer::Empty | Buffer::List(_) => NO_BYTES,
            Buffer::Packet(packet) => packet_sge(packet),
            Buffer::Peer(slice) => slice.sge(),
        }
    }
}

/// An empty part, which no work request lists: an SGE of length 0 means 2^31 bytes.
pub(crate) const NO_BYTES: ibv_sge = ibv_sge { addr: 0, length: 0, lkey: 0 };

impl OpDone {
    /// The memory; empty for a layout.
    pub fn into_buffer(self) -> Buffer {
        match self {
            OpDone::Memory(buffer) => buffer,
            OpDone::Layout(_) => Buffer::Empty,
        }
    }

    /// The packet, if it is one.
    pub fn into_packet(self) -> Option<Packet> {
        self.into_buffer().into_packet()
    }

    /// The scatter/gather list, if it is one.
    pub fn into_list(self) -> Option<SgList> {
        self.into_buffer().into_list()
    }
}

impl From<Addressed> for Buffer {
    fn from(memory: Addressed) -> Buffer {
        match memory {
            Addressed::Empty => Buffer::Empty,
            Addressed::Packet(packet) => Buffer::Packet(packet),
            Addressed::Peer(slice) => Buffer::Peer(slice),
            Addressed::List(list) => Buffer::List(list),
        }
    }
}

macro_rules! from {
    ($memory:ident: $($variant:ident($part:ident)),+) => {
        $(impl From<$part> for $memory {
            fn from(part: $part) -> $memory {
                $memory::$variant(part)
            }
        })+
    };
}

from!(Buffer: Packet(Packet), Peer(PeerSlice), List(SgList), Key(KeyRange));
from!(Addressed: Packet(Packet), Peer(PeerSlice), List(SgList));

/// A work request that was not posted, with its buffer.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct Refused {
    /// The memory of the work request.
    pub buffer: Buffer,
    /// The reason.
    pub reason: PostStop,
}

/// A configuration that was not posted.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct RefusedKey {
    /// The configuration.
    pub config: KeyConfig,
    /// The reason.
    pub reason: PostStop,
}
