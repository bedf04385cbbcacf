//! One-sided operations of stages: requests, and their results.
//!
//! A stage hands an [`Operation`] to an output that leads to a port with `ops_depth_wr`
//! ([`Outputs::operate`](crate::Outputs::operate)). It is posted in order with the stage's sends to
//! that port. Its memory is a packet or a scatter/gather list, which moves in, or a part of a
//! region. A completed operation comes back once, by
//! [`Stage::operations`](crate::Stage::operations), with its tag and its result.
//!
//! To a port with many connections each operation names its connection ([`Operation::over`]). When
//! the connection ends, its outstanding operations come back as failed, and none moves to a later
//! connection.

use verbline_mem::{ConnectionId, Packet};
use verbline_plan::{OperationKind, Rights};
use verbline_verbs::expert::SgList;
use verbline_verbs::rdma::{
    self, Atomic, KeptKey, KeptWindow, Local, OnRc, Part, Remote, Transfer, Word, WorkMemory, WorkOptions,
};
use verbline_verbs::{PostStop, Status};

use crate::operations::region::access;
use crate::operations::signature::{BadBlock, BlockSignature};

/// An operation to be handed to [`Outputs::operate`](crate::Outputs::operate).
#[derive(Debug)]
pub struct Operation {
    /// Names regions by their numbers in the plan, windows and keys by those of the port.
    pub(crate) work: rdma::Operation,
    pub(crate) options: WorkOptions,
    pub(crate) tag: u64,
    /// Ports with many connections only.
    pub(crate) connection: Option<ConnectionId>,
}

impl Operation {
    #[inline]
    fn new(work: rdma::Operation) -> Operation {
        Operation { work, options: WorkOptions::default(), tag: 0, connection: None }
    }

    #[inline]
    fn transfer(transfer: Transfer, local: Local) -> Operation {
        Operation::new(rdma::Operation::Transfer { transfer, local })
    }

    fn atomic(atomic: Atomic, into: Word) -> Operation {
        Operation::new(rdma::Operation::Atomic { atomic, into, on: OnRc })
    }

    /// RDMA READ of the peer's memory into local memory; the length is that of `into`. The entries
    /// of a list are filled in order.
    pub fn read(into: impl Into<Local>, from: Remote) -> Operation {
        Operation::transfer(Transfer::Read { from, on: OnRc }, into.into())
    }

    /// RDMA WRITE of local memory to the peer's memory; the entries of a list follow one another.
    /// With an immediate it also takes one of the peer's receives.
    pub fn write(from: impl Into<Local>, to: Remote) -> Operation {
        Operation::transfer(Transfer::Write { to }, from.into())
    }

    /// SEND of these bytes, which come back once the peer has them. For bytes that need not come
    /// back [`Outputs::send`](crate::Outputs::send) is cheaper; the order between the two holds.
    pub fn send(bytes: impl Into<Local>) -> Operation {
        Operation::transfer(Transfer::Send, bytes.into())
    }

    /// Like [`Operation::send`]; it also invalidates a key of the receiver, who learns which
    /// ([`invalidated_key`]). It carries no immediate: both use the same field.
    pub fn send_with_invalidate(bytes: impl Into<Local>, rkey: u32) -> Operation {
        Operation::transfer(Transfer::SendWithInvalidate { rkey }, bytes.into())
    }

    /// Writes `swap` to the peer's eight bytes if they equal `compare`. The previous value comes
    /// back in `into`, eight bytes long, in this machine's byte order ([`Done::value`]).
    pub fn compare_swap(into: impl Into<Word>, at: Remote, compare: u64, swap: u64) -> Operation {
        Operation::atomic(Atomic::CompareSwap { at, compare, swap }, into.into())
    }

    /// Adds to the peer's eight bytes, wrapping. The previous value comes back as in
    /// [`Operation::compare_swap`].
    pub fn fetch_add(into: impl Into<Word>, at: Remote, add: u64) -> Operation {
        Operation::atomic(Atomic::FetchAdd { at, add }, into.into())
    }

    /// Binds a window of the port to a part of a region whose `rights` have `bind`. The key in
    /// [`Done::key`] opens that part to the port's peer, for `rights`, until it is invalidated by
    /// [`Operation::invalidate`], by the peer's SEND with invalidate, or by another bind.
    pub fn bind(window: KeptWindow, part: Part, rights: Rights) -> Operation {
        Operation::new(rdma::Operation::Bind { window, part, access: access(rights) })
    }

    /// Invalidates a key of a bind: after the completion no peer reaches memory by it.
    pub fn invalidate(rkey: u32) -> Operation {
        Operation::new(rdma::Operation::LocalInvalidate { rkey })
    }

    /// Lets a key stand for a part of a region with blocks of this signature, until it is signed
    /// anew.
    pub fn sign(key: KeptKey, part: Part, blocks: BlockSignature) -> Operation {
        Operation::new(rdma::Operation::Sign { key, part, blocks, on: OnRc })
    }

    /// SEND of these bytes after every block that moved through the key since it was signed has
    /// proved good; otherwise it comes back as [`OperationError::BadBlock`]. It may invalidate a
    /// key of the receiver, like [`Operation::send_with_invalidate`].
    pub fn respond(key: KeptKey, bytes: impl Into<Local>, invalidate: Option<u32>) -> Operation {
        Operation::new(rdma::Operation::Respond { key, invalidate, local: bytes.into(), on: OnRc })
    }

    /// Sets the connection, on a port with many: the operation goes to its peer, in order with the
    /// sends to it. Windows are those of the connection's queue pair.
    #[must_use]
    pub fn over(self, connection: ConnectionId) -> Operation {
        Operation { connection: Some(connection), ..self }
    }

    /// Sets the tag that its completion carries; 0 otherwise.
    #[must_use]
    pub fn tag(self, tag: u64) -> Operation {
        Operation { tag, ..self }
    }

    /// Adds immediate data, which the receiver finds with the received packet ([`immediate`]). Only
    /// a write or a send carries it; other operations ignore this.
    #[must_use]
    pub fn imm(mut self, imm: u32) -> Operation {
        if let rdma::Operation::Transfer { transfer, .. } = &mut self.work {
            *transfer = match *transfer {
                Transfer::Send | Transfer::SendWithImm { .. } => Transfer::SendWithImm { imm },
                Transfer::Write { to } | Transfer::WriteWithImm { to, .. } => Transfer::WriteWithImm { to, imm },
                other @ (Transfer::SendWithInvalidate { .. } | Transfer::Read { .. }) => other,
            };
        }
        self
    }

    /// Delays the start until every earlier READ and atomic of the port is done (RC). Without it a
    /// READ may return bytes of a WRITE behind it: on a network the peer reads as it answers, and
    /// once more if the answer is lost (InfiniBand Architecture Specification, ordering rules).
    #[must_use]
    pub fn fenced(mut self) -> Operation {
        self.options.fence = true;
        self
    }

    /// Wakes a peer whose lcore says `unsolicited_wait`. For a send, or a write with immediate:
    /// other operations are invisible to the peer.
    #[must_use]
    pub fn solicited(mut self) -> Operation {
        self.options.solicited = true;
        self
    }

    /// Completes as soon as it is done. Other operations of a turn come back together: the last one
    /// posted completes, and every `signal_every_wr`-th.
    #[must_use]
    pub fn signaled(mut self) -> Operation {
        self.options.signaled = true;
        self
    }

    /// The memory that it reads or writes: this recovers the packet of a declined operation.
    pub fn into_local(self) -> Local {
        match self.work {
            rdma::Operation::Transfer { local, .. } | rdma::Operation::Respond { local, .. } => local,
            rdma::Operation::Atomic { into, .. } => into.into(),
            rdma::Operation::Bind { part, .. } | rdma::Operation::Sign { part, .. } => part.into(),
            rdma::Operation::LocalInvalidate { .. } => Local::Empty,
        }
    }

    /// Whether UC carries the operation.
    pub(crate) fn is_on_uc(&self) -> bool {
        self.work.is_on_uc() && !self.options.fence
    }

    /// The number of bytes of its memory, and of packets.
    #[inline]
    pub(crate) fn memory(&self) -> (usize, usize) {
        match &self.work {
            rdma::Operation::Transfer { local, .. } | rdma::Operation::Respond { local, .. } => {
                (local.len_bytes(), local.packets())
            }
            rdma::Operation::Atomic { into, .. } => (into.len_bytes(), matches!(into, Word::Packet(_)).into()),
            rdma::Operation::Bind { part, .. } | rdma::Operation::Sign { part, .. } => (part.len(), 0),
            rdma::Operation::LocalInvalidate { .. } => (0, 0),
        }
    }

    /// The kind that counts its results in a report (`operations` of a port).
    #[inline]
    pub fn kind(&self) -> OperationKind {
        match &self.work {
            rdma::Operation::Transfer { transfer, .. } => match transfer {
                Transfer::Send | Transfer::SendWithImm { .. } | Transfer::SendWithInvalidate { .. } => {
                    OperationKind::Send
                }
                Transfer::Write { .. } | Transfer::WriteWithImm { .. } => OperationKind::Write,
                Transfer::Read { .. } => OperationKind::Read,
            },
            rdma::Operation::Atomic { atomic: Atomic::CompareSwap { .. }, .. } => OperationKind::CompareSwap,
            rdma::Operation::Atomic { atomic: Atomic::FetchAdd { .. }, .. } => OperationKind::FetchAdd,
            rdma::Operation::Bind { .. } => OperationKind::Bind,
            rdma::Operation::LocalInvalidate { .. } => OperationKind::Invalidate,
            rdma::Operation::Sign { .. } => OperationKind::Sign,
            rdma::Operation::Respond { .. } => OperationKind::Respond,
        }
    }
}

/// The reason why an operation was not carried out, or may not have been.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OperationError {
    /// It completed with this status; the port, or its connection, goes down.
    #[error("it completed with {0}")]
    Status(Status),
    /// The queue pair refused to post it.
    #[error("{0}")]
    Refused(PostStop),
    /// The response waited for a block that proved bad: the peer never gets it. The connection goes
    /// on.
    #[error("it waited for blocks, and {0}")]
    BadBlock(BadBlock),
    /// The port went down before it was posted.
    #[error("the port went down before it was posted")]
    PortDown,
    /// Its connection ended before it was posted.
    #[error("its connection ended before it was posted")]
    ConnectionOver,
    /// The queue pair was lost, and whether the operation was carried out is unknown.
    #[error("its queue pair was lost before it completed: whether it was carried out is not known")]
    Lost,
}

impl OperationError {
    /// The error of an operation that can't be posted.
    pub(crate) fn refused(stop: PostStop) -> OperationError {
        match stop {
            PostStop::BadBlock(bad) => OperationError::BadBlock(bad),
            stop => OperationError::Refused(stop),
        }
    }
}

/// An operation that is done, with any result.
#[derive(Debug)]
pub struct Done {
    /// The tag that the stage set.
    pub tag: u64,
    /// Its kind.
    pub kind: OperationKind,
    /// Its result. After an error the contents of memory that it was to write are undefined.
    pub result: Result<(), OperationError>,
    /// The bytes that it was to move, or to open; `u32::MAX` for a window longer than 4 GiB.
    pub bytes: u32,
    /// The packet or the scatter/gather list that it used, if any. The memory of a lost operation
    /// went with the queue pair.
    pub memory: Option<WorkMemory>,
    /// For a bind: the address and key to tell the peer.
    pub key: Option<Remote>,
    /// Its connection, on a port with many.
    pub connection: Option<ConnectionId>,
}

impl Done {
    /// The packet that it brings back, if its memory was a packet.
    pub fn packet(&self) -> Option<&Packet> {
        match &self.memory {
            Some(WorkMemory::Packet(packet)) => Some(packet),
            Some(WorkMemory::List(_)) | None => None,
        }
    }

    /// Like [`Done::packet`], by value.
    pub fn into_packet(self) -> Option<Packet> {
        self.memory.and_then(WorkMemory::into_packet)
    }

    /// The scatter/gather list that it brings back, if its memory was a list.
    pub fn into_list(self) -> Option<Box<SgList>> {
        self.memory.and_then(WorkMemory::into_list)
    }

    /// The number of packets that it brings back.
    pub(crate) fn packets(&self) -> usize {
        match &self.memory {
            Some(WorkMemory::Packet(_)) => 1,
            Some(WorkMemory::List(list)) => list.packets(),
            None => 0,
        }
    }

    /// The previous value that an atomic into a packet found at the peer; `None` if it failed, or
    /// used no packet.
    pub fn value(&self) -> Option<u64> {
        let is_atomic = matches!(self.kind, OperationKind::CompareSwap | OperationKind::FetchAdd);
        let packet = self.packet().filter(|_| is_atomic && self.result.is_ok())?;
        Some(u64::from_ne_bytes(packet.data().try_into().ok()?))
    }
}

/// The operations of a stage that are done, oldest first. Those left here are dropped, and their
/// packets are counted as `unclaimed`.
#[derive(Debug)]
pub struct Completed<'a> {
    pub(crate) done: std::vec::Drain<'a, Done>,
}

impl Completed<'_> {
    /// The next one.
    #[inline]
    pub fn pop(&mut self) -> Option<Done> {
        self.done.next()
    }

    /// The number of operations left.
    pub fn len(&self) -> usize {
        self.done.len()
    }

    /// Whether no operation is left.
    pub fn is_empty(&self) -> bool {
        self.done.len() == 0
    }
}

/// The upper half of a packet's mark where the port keeps `immediates`.
const IMMEDIATE: u64 = 1 << 32;
const INVALIDATED: u64 = 2 << 32;

pub(crate) fn mark_of(immediate: Option<u32>, invalidated: Option<u32>) -> u64 {
    match (immediate, invalidated) {
        (Some(imm), _) => IMMEDIATE | u64::from(imm),
        (None, Some(rkey)) => INVALIDATED | u64::from(rkey),
        (None, None) => 0,
    }
}

/// The immediate data of a received packet, if its port says `immediates = true`. A WRITE with
/// immediate brings a packet of no bytes.
pub fn immediate(packet: &Packet) -> Option<u32> {
    (packet.mark() & !u64::from(u32::MAX) == IMMEDIATE).then_some(packet.mark() as u32)
}

/// The local key that the sender invalidated, if the port says `immediates = true`.
pub fn invalidated_key(packet: &Packet) -> Option<u32> {
    (packet.mark() & !u64::from(u32::MAX) == INVALIDATED).then_some(packet.mark() as u32)
}
