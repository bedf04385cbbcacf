//! Operations: what a work request does that is more than a packet to be sent, and the memory that
//! it names.

use rdma_sys::{atomic_t, ibv_send_wr, ibv_wr_opcode, rdma_t};
use verbline_mem::Packet;

use crate::memory::mr::Access;
use crate::memory::peer::{PeerMr, Remote};
use crate::memory::window::MemoryWindow;
use crate::signature::{BlockSignature, KeptSignatureKey};
use crate::wr::post::SendOptions;

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// SEND, with immediate data if the options have some.
    Send,
    /// SEND that also invalidates a key of the receiver. Immediate data is not sent: both use the
    /// same field.
    SendWithInvalidate {
        /// The receiver's.
        rkey: u32,
    },
    /// RDMA WRITE; with immediate data it also takes one of the peer's receives.
    Write {
        /// Where to.
        to: Remote,
    },
    /// RDMA READ (RC).
    Read {
        /// Where from.
        from: Remote,
    },
    /// Puts `swap` at the peer's eight bytes if `compare` is there; what was there comes back (RC).
    CompareSwap {
        /// A multiple of 8.
        at: Remote,
        /// What is expected.
        compare: u64,
        /// What takes its place.
        swap: u64,
    },
    /// Adds to the peer's eight bytes, wrapping; what was there comes back (RC).
    FetchAdd {
        /// A multiple of 8.
        at: Remote,
        /// How much.
        add: u64,
    },
    /// Takes a key of this side back.
    LocalInvalidate {
        /// The key.
        rkey: u32,
    },
    /// Binds a window that the QP keeps to the part that is the operation's memory.
    Bind {
        /// Which window.
        window: KeptWindow,
        /// What its key allows peers.
        access: Access,
    },
    /// Configures a signature key that the QP keeps: it stands for the part that is the operation's
    /// memory, whose blocks carry this.
    Sign {
        /// Which key.
        key: KeptKey,
        /// What the blocks carry.
        blocks: BlockSignature,
    },
    /// SEND, fenced, that never goes out if a block that moved through the key since it was
    /// configured is bad ([`crate::QueuePair::cancel_responses`]).
    Respond {
        /// Which key.
        key: KeptKey,
        /// A key of the receiver's that it also invalidates.
        invalidate: Option<u32>,
    },
}

impl Operation {
    pub(crate) fn is_atomic(self) -> bool {
        matches!(self, Operation::CompareSwap { .. } | Operation::FetchAdd { .. })
    }

    /// Whether bytes of its memory are read or written.
    pub(crate) fn moves_bytes(self) -> bool {
        !matches!(self, Operation::Bind { .. } | Operation::LocalInvalidate { .. } | Operation::Sign { .. })
    }

    /// Writes opcode, immediate data and the remote side; of a bind, no more than the opcode.
    pub(crate) fn write(self, imm: Option<u32>, wr: &mut ibv_send_wr) {
        // Written though most opcodes don't read it: the place is used again, and rxe refuses a
        // bind that finds the key of an invalidation there.
        let mut word = 0;
        wr.opcode = match self {
            Operation::Send => {
                word = imm.unwrap_or(0).to_be();
                match imm {
                    Some(_) => ibv_wr_opcode::IBV_WR_SEND_WITH_IMM,
                    None => ibv_wr_opcode::IBV_WR_SEND,
                }
            }
            Operation::SendWithInvalidate { rkey } => {
                word = rkey;
                ibv_wr_opcode::IBV_WR_SEND_WITH_INV
            }
            Operation::Write { to } => {
                word = imm.unwrap_or(0).to_be();
                wr.wr.rdma = rdma_t { remote_addr: to.addr, rkey: to.rkey };
                match imm {
                    Some(_) => ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM,
                    None => ibv_wr_opcode::IBV_WR_RDMA_WRITE,
                }
            }
            Operation::Read { from } => {
                wr.wr.rdma = rdma_t { remote_addr: from.addr, rkey: from.rkey };
                ibv_wr_opcode::IBV_WR_RDMA_READ
            }
            Operation::CompareSwap { at, compare, swap } => {
                wr.wr.atomic = atomic_t { remote_addr: at.addr, compare_add: compare, swap, rkey: at.rkey };
                ibv_wr_opcode::IBV_WR_ATOMIC_CMP_AND_SWP
            }
            Operation::FetchAdd { at, add } => {
                wr.wr.atomic = atomic_t { remote_addr: at.addr, compare_add: add, swap: 0, rkey: at.rkey };
                ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD
            }
            Operation::LocalInvalidate { rkey } => {
                word = rkey;
                ibv_wr_opcode::IBV_WR_LOCAL_INV
            }
            Operation::Bind { .. } => ibv_wr_opcode::IBV_WR_BIND_MW,
            Operation::Sign { .. } => ibv_wr_opcode::IBV_WR_DRIVER1,
            Operation::Respond { invalidate: None, .. } => ibv_wr_opcode::IBV_WR_SEND,
            Operation::Respond { invalidate: Some(rkey), .. } => {
                word = rkey;
                ibv_wr_opcode::IBV_WR_SEND_WITH_INV
            }
        };
        wr.imm_data_invalidated_rkey_union.imm_data = word;
    }
}

/// An operation that is posted by itself, without its memory.
pub(crate) struct Op {
    pub(crate) operation: Operation,
    pub(crate) options: SendOptions,
    pub(crate) inline: bool,
}

/// A region that a QP keeps, by its place among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeptRegion(pub(crate) u16);

/// A window that a QP keeps, by its place among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeptWindow(pub(crate) u16);

/// A signature key that a QP keeps, by its place among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeptKey(pub(crate) u16);

/// Data that a signature key stands for, as [`SignatureKey::range`](crate::signature::SignatureKey)
/// counts it: without protection information, in whole blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyPart {
    /// Which key.
    pub key: KeptKey,
    /// Where it starts, bytes.
    pub offset: u32,
    /// How long it is, bytes.
    pub len: u32,
}

/// A part of a region that the QP keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Part {
    /// Which region.
    pub region: KeptRegion,
    /// Where it starts, bytes.
    pub offset: u32,
    /// How long it is, bytes.
    pub len: u32,
}

/// Local memory of an operation.
#[derive(Debug, Default)]
pub enum Local {
    /// No bytes.
    #[default]
    Empty,
    /// A packet's data: `len()` bytes of it.
    Packet(Packet),
    /// A part of a region that the QP keeps.
    Part(Part),
    /// What a signature key that the QP keeps stands for.
    Key(KeyPart),
}

impl Local {
    /// The packet, if it is one.
    pub fn into_packet(self) -> Option<Packet> {
        match self {
            Local::Packet(packet) => Some(packet),
            Local::Empty | Local::Part(_) | Local::Key(_) => None,
        }
    }

    /// Length, bytes.
    pub(crate) fn len_bytes(&self) -> usize {
        match self {
            Local::Empty => 0,
            Local::Packet(packet) => packet.len(),
            Local::Part(part) => part.len as usize,
            Local::Key(part) => part.len as usize,
        }
    }
}

/// What the QP was given for good, so that operations name it by a number. Keys go before what they
/// stand for.
#[derive(Debug, Default)]
pub(crate) struct KeptMemory {
    pub(crate) keys: Vec<KeptSignatureKey>,
    pub(crate) regions: Vec<PeerMr>,
    pub(crate) windows: Vec<MemoryWindow>,
}
