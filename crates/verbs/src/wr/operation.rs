//! Operations: what a work request does that is more than a packet to be sent.
//!
//! Each operation has the memory that it needs in its own variant, of a type that holds nothing
//! else: so what is posted always means something, whatever a caller puts together. What moves
//! bytes takes a [`Local`]; an atomic, eight bytes; what lets a key or a window stand for memory, a
//! [`Part`], which stays with the QP. What RC alone carries can't be written for UC
//! ([`crate::rdma::Connected`]).

use crate::memory::mr::Access;
use crate::memory::peer::Remote;
use crate::signature::BlockSignature;
use crate::wr::connected::{Connected, OnRc};
use crate::wr::kept::{KeptKey, KeptWindow};
use crate::wr::local::{Local, Part, Word, WorkMemory};
use crate::wr::sg_list::SgList;

/// What a list of work requests carries out over a connection.
#[derive(Debug)]
pub enum Operation<T: Connected = OnRc> {
    /// Moves bytes between this memory and the peer.
    Transfer {
        /// How, and to or from where.
        transfer: Transfer<T>,
        /// The memory of this side.
        local: Local<T>,
    },
    /// Changes eight bytes of the peer's in one step; what was there comes back.
    Atomic {
        /// How.
        atomic: Atomic,
        /// Where what was there is put.
        into: Word,
        /// RC.
        on: T::Reliable,
    },
    /// SEND, fenced, that never goes out if a block that moved through the key since it was
    /// configured is bad ([`crate::QueuePair::cancel_responses`]).
    Respond {
        /// Which key.
        key: KeptKey,
        /// A key of the receiver's that it also invalidates.
        invalidate: Option<u32>,
        /// What is sent.
        local: Local<T>,
        /// RC.
        on: T::Reliable,
    },
    /// Takes a key of this side back.
    LocalInvalidate {
        /// The key.
        rkey: u32,
    },
    /// Binds a window that the QP keeps.
    Bind {
        /// Which window.
        window: KeptWindow,
        /// What to.
        part: Part,
        /// What its key allows peers.
        access: Access,
    },
    /// Configures a signature key that the QP keeps.
    Sign {
        /// Which key.
        key: KeptKey,
        /// What it stands for from then on.
        part: Part,
        /// What the blocks of the part carry.
        blocks: BlockSignature,
        /// RC.
        on: T::Reliable,
    },
}

/// A work request that moves bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer<T: Connected = OnRc> {
    /// SEND.
    Send,
    /// SEND with immediate data.
    SendWithImm {
        /// Host order.
        imm: u32,
    },
    /// SEND that also invalidates a key of the receiver.
    SendWithInvalidate {
        /// The receiver's.
        rkey: u32,
    },
    /// RDMA WRITE.
    Write {
        /// Where to.
        to: Remote,
    },
    /// RDMA WRITE with immediate data, which also takes one of the peer's receives.
    WriteWithImm {
        /// Where to.
        to: Remote,
        /// Host order.
        imm: u32,
    },
    /// RDMA READ.
    Read {
        /// Where from.
        from: Remote,
        /// RC.
        on: T::Reliable,
    },
}

/// A work request that changes eight bytes of the peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atomic {
    /// Puts `swap` there if `compare` is there.
    CompareSwap {
        /// A multiple of 8.
        at: Remote,
        /// What is expected.
        compare: u64,
        /// What takes its place.
        swap: u64,
    },
    /// Adds, wrapping.
    FetchAdd {
        /// A multiple of 8.
        at: Remote,
        /// How much.
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

    /// Whether UC carries it.
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

    /// The scatter/gather list that it uses, if it uses one.
    #[inline]
    pub(crate) fn list(&self) -> Option<&SgList> {
        match self {
            Operation::Transfer { local: Local::List(list), .. }
            | Operation::Respond { local: Local::List(list), .. } => Some(list),
            _ => None,
        }
    }

    /// The memory that it uses and that comes back with its completion.
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
    /// SEND, with this immediate data if there is some.
    pub fn send(imm: Option<u32>) -> Transfer<T> {
        imm.map_or(Transfer::Send, |imm| Transfer::SendWithImm { imm })
    }

    /// RDMA WRITE, with this immediate data if there is some.
    pub fn write(to: Remote, imm: Option<u32>) -> Transfer<T> {
        imm.map_or(Transfer::Write { to }, |imm| Transfer::WriteWithImm { to, imm })
    }

    /// Whether bytes go to the peer, so that they may be copied by the post.
    pub(crate) fn sends(self) -> bool {
        !matches!(self, Transfer::Read { .. })
    }

    /// Whether it takes a receive of the peer.
    pub(crate) fn is_received(self) -> bool {
        !matches!(self, Transfer::Write { .. } | Transfer::Read { .. })
    }

    /// The same on RC, which carries all.
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

/// How a listed operation is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct WorkOptions<T: Connected = OnRc> {
    /// Wake a receiver that armed its CQ for solicited completions only: of a SEND, or of a WRITE
    /// with immediate data.
    pub solicited: bool,
    /// Like [`SendOptions::fence`](crate::SendOptions::fence).
    pub fence: T::Fence,
    /// Ask for a completion, whatever the QP's `signal_every_wr` says.
    pub signaled: bool,
}
