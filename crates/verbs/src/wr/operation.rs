//! Operations: work requests beyond sending a packet.
//!
//! Each variant holds the memory that its operation needs, in a type that holds nothing else: so
//! every operation is valid, however a caller combines its parts. Transfers take a [`Local`]; an
//! atomic, eight bytes; and operations that make a key or a window stand for memory, a [`Part`],
//! which stays with the QP. Operations that only RC carries cannot be written for UC
//! ([`crate::rdma::Connected`]).

use crate::memory::mr::Access;
use crate::memory::peer::Remote;
use crate::signature::BlockSignature;
use crate::wr::connected::{Connected, OnRc};
use crate::wr::kept::{KeptKey, KeptWindow};
use crate::wr::local::{Local, Part, Word, WorkMemory};
use crate::wr::sg_list::SgList;

/// An operation in a list of work requests over a connection.
#[derive(Debug)]
pub enum Operation<T: Connected = OnRc> {
    /// Moves bytes between local memory and the peer.
    Transfer {
        /// The kind of transfer, and the peer's memory.
        transfer: Transfer<T>,
        /// The local memory.
        local: Local<T>,
    },
    /// Changes eight bytes of the peer's atomically; the previous value comes back.
    Atomic {
        /// The kind of change.
        atomic: Atomic,
        /// The local memory for the previous value.
        into: Word,
        /// Exists on RC only.
        on: T::Reliable,
    },
    /// A fenced SEND that never goes out if a block that moved through the key since its
    /// configuration is bad ([`crate::QueuePair::cancel_responses`]).
    Respond {
        /// The key.
        key: KeptKey,
        /// A key of the receiver that the SEND also invalidates.
        invalidate: Option<u32>,
        /// The data of the SEND.
        local: Local<T>,
        /// Exists on RC only.
        on: T::Reliable,
    },
    /// Invalidates a key of this side.
    LocalInvalidate {
        /// The key.
        rkey: u32,
    },
    /// Binds a window that the QP keeps.
    Bind {
        /// The window.
        window: KeptWindow,
        /// The memory to bind it to.
        part: Part,
        /// The access that its key grants to peers.
        access: Access,
    },
    /// Configures a signature key that the QP keeps.
    Sign {
        /// The key.
        key: KeptKey,
        /// The memory that it stands for from then on.
        part: Part,
        /// The signature of the part's blocks.
        blocks: BlockSignature,
        /// Exists on RC only.
        on: T::Reliable,
    },
}

/// A kind of transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer<T: Connected = OnRc> {
    /// SEND.
    Send,
    /// SEND with immediate data.
    SendWithImm {
        /// The immediate data, host order.
        imm: u32,
    },
    /// SEND that also invalidates a key of the receiver.
    SendWithInvalidate {
        /// The receiver's key.
        rkey: u32,
    },
    /// RDMA WRITE.
    Write {
        /// The peer's memory.
        to: Remote,
    },
    /// RDMA WRITE with immediate data, which also takes one of the peer's receives.
    WriteWithImm {
        /// The peer's memory.
        to: Remote,
        /// The immediate data, host order.
        imm: u32,
    },
    /// RDMA READ.
    Read {
        /// The peer's memory.
        from: Remote,
        /// Exists on RC only.
        on: T::Reliable,
    },
}

/// A change of eight bytes of the peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atomic {
    /// Writes `swap` if the memory holds `compare`.
    CompareSwap {
        /// The address, a multiple of 8.
        at: Remote,
        /// The expected value.
        compare: u64,
        /// The new value.
        swap: u64,
    },
    /// Adds, wrapping.
    FetchAdd {
        /// The address, a multiple of 8.
        at: Remote,
        /// The value to add.
        add: u64,
    },
}

impl Operation {
    /// RDMA READ into this memory.
    pub fn read(local: Local, from: Remote) -> Operation {
        Operation::Transfer { transfer: Transfer::Read { from, on: OnRc }, local }
    }
}

impl<T: Connected> Operation<T> {
    /// SEND of these bytes.
    pub fn send(local: Local<T>) -> Operation<T> {
        Operation::Transfer { transfer: Transfer::Send, local }
    }

    /// RDMA WRITE of these bytes.
    pub fn write(local: Local<T>, to: Remote) -> Operation<T> {
        Operation::Transfer { transfer: Transfer::Write { to }, local }
    }

    /// Whether UC carries this operation.
    #[inline]
    pub fn is_on_uc(&self) -> bool {
        match self {
            Operation::Transfer { transfer: Transfer::Read { .. }, .. }
            | Operation::Transfer { local: Local::Key(..), .. } => false,
            Operation::Transfer {
                local: Local::Empty | Local::Packet(_) | Local::Part(_) | Local::List(_), ..
            } => true,
            Operation::LocalInvalidate { .. } | Operation::Bind { .. } => true,
            Operation::Atomic { .. } | Operation::Respond { .. } | Operation::Sign { .. } => false,
        }
    }

    /// The scatter/gather list of the operation, if any.
    #[inline]
    pub(crate) fn list(&self) -> Option<&SgList> {
        match self {
            Operation::Transfer { local: Local::List(list), .. }
            | Operation::Respond { local: Local::List(list), .. } => Some(list),
            _ => None,
        }
    }

    /// The memory of the operation that comes back with its completion.
    pub fn into_memory(self) -> Option<WorkMemory> {
        match self {
            Operation::Transfer { local: Local::Packet(packet), .. }
            | Operation::Respond { local: Local::Packet(packet), .. }
            | Operation::Atomic { into: Word::Packet(packet), .. } => Some(WorkMemory::Packet(packet)),
            Operation::Transfer { local: Local::List(list), .. }
            | Operation::Respond { local: Local::List(list), .. } => Some(WorkMemory::List(list)),
            Operation::Transfer { .. }
            | Operation::Respond { .. }
            | Operation::Atomic { .. }
            | Operation::LocalInvalidate { .. }
            | Operation::Bind { .. }
            | Operation::Sign { .. } => None,
        }
    }
}

impl<T: Connected> Transfer<T> {
    /// SEND, with immediate data if given.
    pub fn send(imm: Option<u32>) -> Transfer<T> {
        imm.map_or(Transfer::Send, |imm| Transfer::SendWithImm { imm })
    }

    /// RDMA WRITE, with immediate data if given.
    pub fn write(to: Remote, imm: Option<u32>) -> Transfer<T> {
        imm.map_or(Transfer::Write { to }, |imm| Transfer::WriteWithImm { to, imm })
    }

    /// Whether bytes go to the peer, so that the post may copy them.
    pub(crate) fn sends(self) -> bool {
        !matches!(self, Transfer::Read { .. })
    }

    /// Whether it takes one of the peer's receives.
    pub(crate) fn is_received(self) -> bool {
        !matches!(self, Transfer::Write { .. } | Transfer::Read { .. })
    }

    /// The same transfer on RC, which carries all.
    #[inline]
    pub(crate) fn on_rc(self) -> Transfer {
        match self {
            Transfer::Send => Transfer::Send,
            Transfer::SendWithImm { imm } => Transfer::SendWithImm { imm },
            Transfer::SendWithInvalidate { rkey } => Transfer::SendWithInvalidate { rkey },
            Transfer::Write { to } => Transfer::Write { to },
            Transfer::WriteWithImm { to, imm } => Transfer::WriteWithImm { to, imm },
            Transfer::Read { from, on: _ } => Transfer::Read { from, on: OnRc },
        }
    }
}

/// Options of a listed operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct WorkOptions<T: Connected = OnRc> {
    /// Wake a receiver that armed its CQ for solicited completions only: for a SEND, or a WRITE
    /// with immediate data.
    pub solicited: bool,
    /// Like [`SendOptions::fence`](crate::SendOptions::fence).
    pub fence: T::Fence,
    /// Request a completion, whatever the QP's `signal_every_wr`.
    pub signaled: bool,
}
