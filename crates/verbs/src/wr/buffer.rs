//! The memory of a work request, which moves into the QP with it and comes back when it is refused
//! or done.

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
    /// A part of memory that peers may reach as well.
    Peer(PeerSlice),
    /// Several of these: a scatter/gather list, of at most [`crate::QpSpec::max_send_sge`] parts
    /// with bytes.
    List(SgList),
    /// A range of a signature key.
    Key(KeyRange),
}

/// Local memory that has addresses of its own: what goes inline, since the CPU copies it during the
/// post, where an atomic puts what it found, and what UD sends. A range of a signature key has
/// none: only the device can tell where it lies, and it does so over connections.
#[derive(Debug, Default)]
pub enum Addressed {
    /// No bytes.
    #[default]
    Empty,
    /// A packet's data: `len()` bytes of it.
    Packet(Packet),
    /// A part of memory that peers may reach as well.
    Peer(PeerSlice),
    /// Several of these: a scatter/gather list, of at most [`crate::QpSpec::max_send_sge`] parts
    /// with bytes.
    List(SgList),
}

/// What comes back with the completion of a work request that was posted by itself.
#[derive(Debug)]
pub enum OpDone {
    /// The memory that it used.
    Memory(Buffer),
    /// Of the configuration of a signature key: the layout that it replaced.
    Layout(KeyLayout),
}

/// The memory of a work request that is to be posted.
pub(crate) enum Given {
    /// What the device uses until the work request is done.
    Used(Buffer),
    /// What the post copies, which has addresses.
    Copied(Buffer),
    /// What the post copies and a configuration of a signature key consists of.
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

    /// A PD other than this one that some of it belongs to.
    pub(crate) fn foreign_pd(&self, pd_id: u64) -> Option<u64> {
        match self {
            Buffer::Empty => None,
            Buffer::Key(range) => Some(range.pd_id()).filter(|&theirs| theirs != pd_id),
            Buffer::Packet(packet) => Some(packet.pd_id()).filter(|&theirs| theirs != pd_id),
            Buffer::Peer(slice) => Some(slice.pd_id()).filter(|&theirs| theirs != pd_id),
            Buffer::List(list) => list.foreign_pd(pd_id),
        }
    }

    /// How many entries its work request has.
    pub(crate) fn sges(&self) -> usize {
        match self {
            Buffer::List(list) => list.sges(),
            other => (other.len_bytes() > 0).into(),
        }
    }

    /// Its memory, if that is in one part.
    pub(crate) fn sge(&self) -> ibv_sge {
        match self {
            Buffer::Key(range) => range.sge(),
            Buffer::Empty | Buffer::List(_) => NO_BYTES,
            Buffer::Packet(packet) => packet_sge(packet),
            Buffer::Peer(slice) => slice.sge(),
        }
    }
}

/// A part without bytes, which no work request lists: an SGE of length 0 means 2^31 bytes.
pub(crate) const NO_BYTES: ibv_sge = ibv_sge { addr: 0, length: 0, lkey: 0 };

impl OpDone {
    /// The memory, if it is that.
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

/// A work request that was not posted; its buffer comes back.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct Refused {
    /// What was to be posted.
    pub buffer: Buffer,
    /// Why it was not.
    pub reason: PostStop,
}

/// A configuration that was not posted; it comes back.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct RefusedKey {
    /// What was to be configured.
    pub config: KeyConfig,
    /// Why it was not.
    pub reason: PostStop,
}
