//! Requests to a store, and their results.

use verbline_mem::Packet;

/// The operation on the blocks of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Read the blocks into the packet's data.
    Read,
    /// Write the packet's data to the blocks.
    Write {
        /// Force unit access: what is done is durable.
        fua: bool,
    },
    /// Make durable what was done before this request was submitted. It names no blocks.
    Flush,
    /// Make the blocks read as zeros.
    WriteZeroes {
        /// As for a write.
        fua: bool,
        /// The store may give up the space beneath.
        deallocate: bool,
    },
    /// The blocks are no longer needed: each then reads as it was, or as zeros. A store that can do
    /// nothing about it says that it is done.
    Discard,
}

impl Op {
    /// Whether it moves bytes between blocks and a packet.
    #[inline]
    #[must_use]
    pub fn moves_data(self) -> bool {
        matches!(self, Op::Read | Op::Write { .. })
    }

    /// Whether it changes blocks.
    #[inline]
    #[must_use]
    pub fn is_change(self) -> bool {
        matches!(self, Op::Write { .. } | Op::WriteZeroes { .. } | Op::Discard)
    }
}

/// Something for a store to do.
#[derive(Debug)]
pub struct Request {
    /// What.
    pub op: Op,
    /// The first block.
    pub lba: u64,
    /// How many blocks. 0, as `lba`, of a flush.
    pub blocks: u32,
    /// The data of a read or write: exactly as long as the blocks ([`Packet::len`]); nothing
    /// otherwise. It belongs to the store until the request is done.
    pub packet: Option<Packet>,
    /// Comes back with what is done.
    pub tag: u64,
}

impl Request {
    /// Reads as many blocks as the packet is long.
    #[must_use]
    pub fn read(lba: u64, blocks: u32, into: Packet, tag: u64) -> Request {
        Request { op: Op::Read, lba, blocks, packet: Some(into), tag }
    }

    /// Writes the packet's data.
    #[must_use]
    pub fn write(lba: u64, blocks: u32, from: Packet, fua: bool, tag: u64) -> Request {
        Request { op: Op::Write { fua }, lba, blocks, packet: Some(from), tag }
    }

    /// Makes durable what is done.
    #[must_use]
    pub fn flush(tag: u64) -> Request {
        Request { op: Op::Flush, lba: 0, blocks: 0, packet: None, tag }
    }

    /// Makes a request that changes or deallocates blocks without data.
    #[must_use]
    pub fn without_data(op: Op, lba: u64, blocks: u32, tag: u64) -> Request {
        Request { op, lba, blocks, packet: None, tag }
    }

    /// The request as done, with its packet.
    #[inline]
    #[must_use]
    pub fn done(self, result: Result<(), Fault>) -> Done {
        Done { tag: self.tag, op: self.op, result, packet: self.packet }
    }
}

/// A request that is done, one way or another.
#[derive(Debug)]
pub struct Done {
    /// The request's.
    pub tag: u64,
    /// The request's.
    pub op: Op,
    /// How it ended. After a fault, what it was to read or change is in any state.
    pub result: Result<(), Fault>,
    /// The request's packet, with its length as it was.
    pub packet: Option<Packet>,
}

/// Why a request failed. Each names one cause, so that a target can report it in the words of its
/// protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Fault {
    /// Blocks that the store does not have (any more).
    #[error("the blocks leave the store; read its geometry anew, since it may have shrunk")]
    OutOfRange,
    /// The packet is not as long as the blocks, is missing, or is one too many.
    #[error("the packet's length is not that of the blocks; set it with `Packet::set_len` before")]
    BadMemory,
    /// The packet starts at an address that the device can't use.
    #[error("the packet's data starts at an address that direct I/O refuses; give the pool a headroom that aligns it")]
    Misaligned,
    /// The medium beneath is full, or a quota is.
    #[error("no space is left beneath the store; free some, or allocate it beforehand (fallocate)")]
    NoSpace,
    /// The store was opened to be read, or what is beneath has become so.
    #[error("the store is read-only")]
    ReadOnly,
    /// The device failed to do it (EIO).
    #[error("the device reports an I/O error; see the kernel's log")]
    Medium,
    /// The store can't do this at all.
    #[error("the store does not support this")]
    Unsupported,
    /// Something else, by the kernel's number.
    #[error("the kernel refuses it: {}", std::io::Error::from_raw_os_error(*.0))]
    Os(i32),
    /// The kernel takes nothing by the file's ring any more, by its number: nor will it.
    #[error(
        "the file's ring is broken, since io_uring_enter(2) failed: {}; nothing of the file can be read or written \
         until it is opened anew: see what forbids the call (a seccomp filter, a descriptor that somebody closed)",
        std::io::Error::from_raw_os_error(*.0)
    )]
    RingBroken(i32),
    /// The store was closed before it was done: whether it was carried out is not known.
    #[error("the store was closed before it was done")]
    Closed,
}
