//! The [`Store`] trait, and the [`Geometry`] of a store.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;

use verbline_mem::Packet;

use crate::request::{Done, Fault, Op, Request};

/// How large a store is, and of what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of a block: a power of two, at least 512; or 8 more, with protection information
    /// behind the data, which is but bytes to the store.
    pub block_bytes: u32,
    /// How many blocks.
    pub blocks: u64,
    /// Whether a write that is done may be lost in a crash unless it is flushed.
    pub volatile_cache: bool,
    /// Nothing can be changed.
    pub read_only: bool,
    /// The data of a packet must start at a multiple of this, a power of two.
    pub align_bytes: u32,
}

/// Why a geometry is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GeometryError {
    /// Neither a power of two from 512 on, nor 8 more.
    #[error("block_bytes is {0}; it must be a power of two from 512 to 65536, or 8 more (protection information)")]
    BlockBytes(u32),
}

impl Geometry {
    /// Bytes of a block's data that a store can have.
    pub const BLOCK_BYTES: std::ops::RangeInclusive<u32> = 512..=65_536;
    /// Bytes of protection information that may be behind them.
    pub const PROTECTION_BYTES: u32 = 8;

    /// As many whole blocks as `bytes` hold.
    ///
    /// # Errors
    /// Blocks can't be of this size.
    pub fn of_bytes(bytes: u64, block_bytes: u32) -> Result<Geometry, GeometryError> {
        let can_be = |bytes: u32| bytes.is_power_of_two() && Self::BLOCK_BYTES.contains(&bytes);
        if !can_be(block_bytes) && !block_bytes.checked_sub(Self::PROTECTION_BYTES).is_some_and(can_be) {
            return Err(GeometryError::BlockBytes(block_bytes));
        }
        let blocks = bytes / u64::from(block_bytes);
        Ok(Geometry { block_bytes, blocks, volatile_cache: false, read_only: false, align_bytes: 1 })
    }

    /// Whether the store can use the packet's data where it is.
    #[inline]
    #[must_use]
    pub fn is_aligned(&self, packet: &Packet) -> bool {
        packet.addr() & u64::from(self.align_bytes - 1) == 0
    }

    /// In bytes.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.blocks * u64::from(self.block_bytes)
    }

    /// Where the blocks of a request lie, or what is wrong with the request. Every store checks
    /// this before it does anything.
    ///
    /// # Errors
    /// [`Fault::OutOfRange`], [`Fault::BadMemory`], [`Fault::Misaligned`] or [`Fault::ReadOnly`].
    #[inline]
    pub fn extent(&self, request: &Request) -> Result<Extent, Fault> {
        if request.op.is_change() && self.read_only {
            return Err(Fault::ReadOnly);
        }
        let block_bytes = u64::from(self.block_bytes);
        let end = request.lba.checked_add(u64::from(request.blocks)).filter(|end| *end <= self.blocks);
        if end.is_none() {
            return Err(Fault::OutOfRange);
        }
        let extent = Extent { offset: request.lba * block_bytes, len: u64::from(request.blocks) * block_bytes };
        let fits = match (&request.packet, request.op) {
            (Some(packet), Op::Read | Op::Write { .. }) => packet.len() as u64 == extent.len,
            (None, op) => !op.moves_data(),
            (Some(_), _) => false,
        };
        match &request.packet {
            _ if !fits => Err(Fault::BadMemory),
            Some(packet) if !self.is_aligned(packet) => Err(Fault::Misaligned),
            _ => Ok(extent),
        }
    }
}

/// Where a request's blocks lie, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The first byte.
    pub offset: u64,
    /// How many.
    pub len: u64,
}

/// Blocks, driven by one lcore. Several lcores have a store each over the same blocks.
///
/// Each request that [`Store::submit`] took is handed out by [`Store::poll`] exactly once, with its
/// packet, whatever becomes of it. Neither method blocks, and neither allocates.
pub trait Store: Send {
    /// As it was last seen: see [`Store::refresh`].
    fn geometry(&self) -> Geometry;

    /// Takes requests from the front, as many as there is room for, and starts them; gives how
    /// many. The others stay. What is wrong with a request its completion says.
    fn submit(&mut self, requests: &mut VecDeque<Request>) -> usize;

    /// Adds what is done, in the order in which it was, as far as `done` has capacity; gives how
    /// many. To be called for as long as something is under way, also to drive it.
    fn poll(&mut self, done: &mut Vec<Done>) -> usize;

    /// Requests that were submitted and not yet handed out.
    fn under_way(&self) -> usize;

    /// Requests that it takes now.
    fn room(&self) -> usize;

    /// A descriptor that is readable while [`Store::poll`] has something to hand out. `None`: what
    /// is submitted is done at the next poll. It stays the same for as long as the store.
    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Whether the lcore may sleep until [`Store::wake_fd`] is readable. False: something is under
    /// way that no descriptor tells of, so poll again.
    fn may_sleep(&self) -> bool {
        self.under_way() == 0
    }

    /// Looks how large the store is now. It may take a system call: for a timer, not for each
    /// request.
    ///
    /// # Errors
    /// The kernel's, with what it was about; the geometry stays.
    fn refresh(&mut self) -> io::Result<Geometry> {
        Ok(self.geometry())
    }

    /// Where these blocks lie in the memory that the store was made over, bytes, for RDMA
    /// operations that read or write them there. `None` if they are not in memory, or not within
    /// the store. A change made this way is as if it were done, not flushed; concurrent changes of
    /// a block may be seen half done.
    fn direct(&self, lba: u64, blocks: u32) -> Option<std::ops::Range<usize>> {
        let _ = (lba, blocks);
        None
    }
}
