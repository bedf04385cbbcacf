//! Submissions to a ring, and their completions.

use crate::packet::Packet;
use crate::pool::Pool;

/// A ring to make.
#[derive(Clone, Debug)]
pub struct RingSpec {
    /// The most entries under way, from 1 to 16384.
    pub depth: u32,
    /// Pools whose packets are to be used without a lookup of their pages.
    pub pools: Vec<Pool>,
}

/// The operation on the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Read from `offset` on into the packet's data, behind its first `skip` bytes.
    Read {
        /// Offset in the file, bytes.
        offset: u64,
        /// Offset in the packet's data, bytes.
        skip: u32,
    },
    /// Write the packet's data, behind its first `skip` bytes, to `offset` on.
    Write {
        /// Offset in the file, bytes.
        offset: u64,
        /// Offset in the packet's data, bytes.
        skip: u32,
        /// Durable when done (RWF_DSYNC, pwritev2(2)).
        dsync: bool,
    },
    /// Write `len` zeros, at most [`ZEROS_MAX`](super::ZEROS_MAX).
    WriteZeros {
        /// Offset in the file, bytes.
        offset: u64,
        /// Length, bytes.
        len: u32,
        /// As for a write.
        dsync: bool,
    },
    /// Make what is done durable (fdatasync(2)).
    Sync,
    /// Make the range read as zeros, with its space kept (FALLOC_FL_ZERO_RANGE, fallocate(2)).
    ZeroRange {
        /// Offset in the file, bytes.
        offset: u64,
        /// Length, bytes.
        len: u64,
    },
    /// Make the range read as zeros, and give up its space (FALLOC_FL_PUNCH_HOLE).
    PunchHole {
        /// Offset in the file, bytes.
        offset: u64,
        /// Length, bytes.
        len: u64,
    },
}

/// Something to do, with the packet that it needs.
#[derive(Debug)]
pub struct Submission {
    /// What.
    pub what: What,
    /// The packet of a read or write; it belongs to the ring until the entry is done. Other
    /// operations hand it back unused.
    pub packet: Option<Packet>,
    /// Comes back with what is done.
    pub tag: u64,
}

/// An entry that the kernel is done with.
#[derive(Debug)]
pub struct Completed {
    /// The entry's.
    pub tag: u64,
    /// Bytes that were read or written, 0 of others; or the error's number (errno(3)).
    pub result: Result<u32, i32>,
    /// The entry's.
    pub packet: Option<Packet>,
}

/// Why an entry was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PushError {
    /// As many are under way as the ring's depth says.
    #[error("as many entries are under way as the ring's depth says; take completions first")]
    Full,
    /// A read or write without a packet, with nothing behind `skip`, or more zeros than there are.
    #[error("a read or write needs a packet with more data than `skip`, and zeros come up to ZEROS_MAX at once")]
    NoData,
    /// The kernel takes nothing by this ring any more.
    #[error("the ring is broken, as its submit said: open the file anew")]
    Broken,
}
