//! The memory of a work request, which moves into the QP with it and comes back when it is refused
//! or done.

use rdma_sys::ibv_sge;
use verbline_mem::Packet;

use crate::memory::peer::PeerSlice;
use crate::signature::{KeyLayout, KeyRange, PostedConfiguration};
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
    /// Of a configuration that is done: the layout that it replaced.
    Layout(KeyLayout),
    /// A configuration that is under way; no completion gives it.
    #[doc(hidden)]
    Configuration(PostedConfiguration),
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
            // No bytes of them move.
            Buffer::Layout(_) | Buffer::Configuration(_) => 0,
        }
    }

    /// A PD other than this one that some of it belongs to.
    pub(crate) fn foreign_pd(&self, pd_id: u64) -> Option<u64> {
        match self {
            Buffer::Empty | Buffer::Layout(_) | Buffer::Configuration(_) => None,
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
            Buffer::Empty | Buffer::List(_) | Buffer::Layout(_) | Buffer::Configuration(_) => {
                ibv_sge { addr: 0, length: 0, lkey: 0 }
            }
            Buffer::Packet(packet) => packet_sge(packet),
            Buffer::Peer(slice) => slice.sge(),
        }
    }
}

impl From<Packet> for Buffer {
    fn from(packet: Packet) -> Buffer {
        Buffer::Packet(packet)
    }
}

impl From<PeerSlice> for Buffer {
    fn from(slice: PeerSlice) -> Buffer {
        Buffer::Peer(slice)
    }
}

impl From<KeyRange> for Buffer {
    fn from(range: KeyRange) -> Buffer {
        Buffer::Key(range)
    }
}

impl From<SgList> for Buffer {
    fn from(list: SgList) -> Buffer {
        Buffer::List(list)
    }
}

/// A work request that was not posted; its buffer comes back.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct Refused {
    /// What was to be posted.
    pub buffer: Buffer,
    /// Why it was not.
    pub reason: PostStop,
}
