//! One-sided operations from stages: what a stage asks for, and what comes back to it.
//!
//! A stage hands an [`Operation`] to an output that leads to a port with `ops_depth_wr`
//! ([`Outputs::operate`](crate::Outputs::operate)). It is posted in order with what the stage sends
//! there. The memory that it uses is a packet or a scatter/gather list, which moves in, or a part
//! of a region. What completes comes back by [`Stage::operations`](crate::Stage::operations), each
//! once, with its tag and how it ended.
//!
//! To a port with many connections each operation says over which one it goes
//! ([`Operation::over`]). When that ends, what is under way over it comes back as failed, and goes
//! over no later one.

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
    /// Regions go by their numbers in the plan, windows and keys by those of the port.
    pub(crate) work: rdma::Operation,
    pub(crate) options: WorkOptions,
    pub(crate) tag: u64,
    /// Of a port with many.
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

    /// RDMA READ of the peer's memory into this: as many bytes as it is long. A list is filled one
    /// part after the other.
    pub fn read(into: impl Into<Local>, from: Remote) -> Operation {
        Operation::transfer(Transfer::Read { from, on: OnRc }, into.into())
    }

    /// RDMA WRITE of these bytes to the peer's memory, a list's one part after the other. With an
    /// immediate it also takes one of the peer's receives.
    pub fn write(from: impl Into<Local>, to: Remote) -> Operation {
        Operation::transfer(Transfer::Write { to }, from.into())
    }

    /// SEND of these bytes, which come back once the peer has them. What need not come back goes by
    /// [`Outputs::send`](crate::Outputs::send), which is cheaper; the order between the two holds.
    pub fn send(bytes: impl Into<Local>) -> Operation {
        Operation::transfer(Transfer::Send, bytes.into())
    }

    /// Like [`Operation::send`]; it also takes a key of the receiver back, and tells the receiver
    /// ([`invalidated_key`]). It carries no immediate: both use the same field.
    pub fn send_with_invalidate(bytes: impl Into<Local>, rkey: u32) -> Operation {
        Operation::transfer(Transfer::SendWithInvalidate { rkey }, bytes.into())
    }

    /// Puts `swap` at the peer's eight bytes if `compare` is there. What was there comes back in
    /// `into`, eight bytes long, in this machine's byte order ([`Done::value`]).
    pub fn compare_swap(into: impl Into<Word>, at: Remote, compare: u64, swap: u64) -> Operation {
        Operation::atomic(Atomic::CompareSwap { at, compare, swap }, into.into())
    }

    /// Adds to the peer's eight bytes, wrapping. What was there comes back as from
    /// [`Operation::compare_swap`].
    pub fn fetch_add(into: impl Into<Word>, at: Remote, add: u64) -> Operation {
        Operation::atomic(Atomic::FetchAdd { at, add }, into.into())
    }

    /// Binds a window of the port to a part of a region whose `rights` have `bind`: the key that
    /// [`Done::key`] then has opens that part to the port's peer, for `rights`, until it is taken
    /// back by [`Operation::invalidate`], by the peer's SEND with invalidate, or by another bind.
    pub fn bind(window: KeptWindow, part: Part, rights: Rights) -> Operation {
        Operation::new(rdma::Operation::Bind { window, part, access: access(rights) })
    }

    /// Takes a key back that a bind gave: once this completes, no peer reaches anything by it.
    pub fn invalidate(rkey: u32) -> Operation {
        Operation::new(rdma::Operation::LocalInvalidate { rkey })
    }

    /// Lets a key stand for a part of a region, whose blocks carry this, until it is signed anew.
    pub fn sign(key: KeptKey, part: Part, blocks: BlockSignature) -> Operation {
        Operation::new(rdma::Operation::Sign { key, part, blocks, on: OnRc })
    }

    /// SEND of these bytes once every block is good that moved through the key since it was signed;
    /// else it comes back as [`OperationError::BadBlock`]. It may take back a key of the receiver,
    /// like [`Operation::send_with_invalidate`].
    pub fn respond(key: KeptKey, bytes: impl Into<Local>, invalidate: Option<u32>) -> Operation {
        Operation::new(rdma::Operation::Respond { key, invalidate, local: bytes.into(), on: OnRc })
    }

    /// Over this connection, of a port with many: to its peer, and in order with what is sent to
    /// it. Windows are those of the connection's queue pair.
    #[must_use]
    pub fn over(self, connection: ConnectionId) -> Operation {
        Operation { connection: Some(connection), ..self }
    }

    /// With this tag, which its completion carries; 0 otherwise.
    #[must_use]
    pub fn tag(self, tag: u64) -> Operation {
        Operation { tag, ..self }
    }

    /// With immediate data, which the receiver finds in what it receives ([`immediate`]). Of a
    /// write or a send; others carry none.
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

    /// To start only when every earlier READ and atomic of the port is done (RC). Without it a READ
    /// may bring what a WRITE behind it has written: on a network the peer reads as it answers, and
    /// once more if the answer is lost (InfiniBand Architecture Specification, ordering rules).
    #[must_use]
    pub fn fenced(mut self) -> Operation {
        self.options.fence = true;
        self
    }

    /// To wake a peer whose lcore says `unsolicited_wait`. Of a send, or a write with immediate:
    /// others tell the peer nothing.
    #[must_use]
    pub fn solicited(mut self) -> Operation {
        self.options.solicited = true;
        self
    }

    /// To come back as soon as it is done. Others of the same turn come back together: the last
    /// that is posted completes, and every `signal_every_wr`-th.
    #[must_use]
    pub fn signaled(mut self) -> Operation {
        self.options.signaled = true;
        self
    }

    /// The memory that it reads or writes: a packet comes back so from one that was not accepted.
    pub fn into_local(self) -> Local {
        match self.work {
            rdma::Operation::Transfer { local, .. } | rdma::Operation::Respond { local, .. } => local,
            rdma::Operation::Atomic { into, .. } => into.into(),
            rdma::Operation::Bind { part, .. } | rdma::Operation::Sign { part, .. } => part.into(),
            rdma::Operation::LocalInvalidate { .. } => Local::Empty,
        }
    }

    /// Whether UC carries it.
    pub(crate) fn is_on_uc(&self) -> bool {
        self.work.is_on_uc() && !self.options.fence
    }

    /// How many bytes its memory has, and how many packets that is.
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

    /// What its results are counted as in a report (`operations` of a port).
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

/// Why an operation was not accepted. It is counted at the port (`declined`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeclineReason {
    /// As many are under way as the plan's `ops_depth_wr`, or `ops_shared_wr`, says: backpressure,
    /// not an error.
    #[error("as many operations are under way as the port's `ops_depth_wr` says; some must complete first")]
    Full,
    /// The port has many connections, and the operation names none of those that are open; or it
    /// names one, and the port has no such thing.
    #[error("the operation names no open connection of the port")]
    NoConnection,
    /// The output leads to no port that carries out operations, or the stage's kind does not say
    /// that it asks for some there.
    ///
    /// [`StageSpec::operations`](verbline_plan::StageSpec::operations) says so.
    #[error(
        "the output leads to no port with `ops_depth_wr` in the plan, or `StageSpec::operations` of the stage's kind \
         does not name the output"
    )]
    NoPort,
    /// The region is on another device than the port, or nobody owns it.
    #[error("the range is of a region that the port's device does not have")]
    ForeignRegion,
    /// The port is down: nothing can be posted.
    #[error("the port is down")]
    PortDown,
    /// The port is UC, which carries neither READs nor atomics nor a fence, and has no signature
    /// keys (ibv_post_send(3)).
    #[error("the port is UC, which does not carry the operation; write `transport = \"rc\"`")]
    NotCarried,
}

/// An operation that was not accepted; it comes back.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct Declined<T = Operation> {
    /// What was to be done.
    pub operation: T,
    /// Why it is not.
    pub reason: DeclineReason,
}

/// What became of operations that were handed over together.
#[must_use = "what was declined comes back"]
#[derive(Debug)]
pub struct Accepted {
    /// How many were accepted, from the first on.
    pub count: usize,
    /// The one behind them, if it was declined.
    pub declined: Option<Declined>,
}

/// Why an operation was not carried out, or may not have been.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OperationError {
    /// It completed with this status; the port, or its connection, goes down with it.
    #[error("it completed with {0}")]
    Status(Status),
    /// It can't be posted as it is.
    #[error("{0}")]
    Refused(PostStop),
    /// The response waited for blocks of which one is bad: the peer never gets it. The connection
    /// goes on.
    #[error("it waited for blocks, and {0}")]
    BadBlock(BadBlock),
    /// The port went down before it was posted.
    #[error("the port went down before it was posted")]
    PortDown,
    /// Its connection ended before it was posted.
    #[error("its connection ended before it was posted")]
    ConnectionOver,
    /// The queue pair was lost, and nobody will say whether it was carried out.
    #[error("its queue pair was lost before it completed: whether it was carried out is not known")]
    Lost,
}

impl OperationError {
    /// Of one that can't be posted.
    pub(crate) fn refused(stop: PostStop) -> OperationError {
        match stop {
            PostStop::BadBlock(bad) => OperationError::BadBlock(bad),
            stop => OperationError::Refused(stop),
        }
    }
}

/// An operation that is done, one way or another.
#[derive(Debug)]
pub struct Done {
    /// What it was given.
    pub tag: u64,
    /// What it did.
    pub kind: OperationKind,
    /// How it ended. After an error nothing is known of memory that it was to write.
    pub result: Result<(), OperationError>,
    /// How many bytes it was to move, or to open: of a window that is longer than 4 GiB,
    /// `u32::MAX`.
    pub bytes: u32,
    /// The packet or the scatter/gather list that it used, if it used one and that is still known:
    /// of an operation that was lost it went with the queue pair.
    pub memory: Option<WorkMemory>,
    /// Of a bind: what to tell the peer.
    pub key: Option<Remote>,
    /// Over which connection it went, of a port with many.
    pub connection: Option<ConnectionId>,
}

impl Done {
    /// The packet that it brings back, if it is one.
    pub fn packet(&self) -> Option<&Packet> {
        match &self.memory {
            Some(WorkMemory::Packet(packet)) => Some(packet),
            Some(WorkMemory::List(_)) | None => None,
        }
    }

    /// The same, taken out.
    pub fn into_packet(self) -> Option<Packet> {
        self.memory.and_then(WorkMemory::into_packet)
    }

    /// The scatter/gather list that it brings back, if it is one.
    pub fn into_list(self) -> Option<Box<SgList>> {
        self.memory.and_then(WorkMemory::into_list)
    }

    /// How many packets it brings back.
    pub(crate) fn packets(&self) -> usize {
        match &self.memory {
            Some(WorkMemory::Packet(_)) => 1,
            Some(WorkMemory::List(list)) => list.packets(),
            None => 0,
        }
    }

    /// What an atomic that used a packet found at the peer; `None` if it failed, or used none.
    pub fn value(&self) -> Option<u64> {
        let is_atomic = matches!(self.kind, OperationKind::CompareSwap | OperationKind::FetchAdd);
        let packet = self.packet().filter(|_| is_atomic && self.result.is_ok())?;
        Some(u64::from_ne_bytes(packet.data().try_into().ok()?))
    }
}

/// The operations of a stage that are done, oldest first. What the stage leaves is dropped, and its
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

    /// How many there are.
    pub fn len(&self) -> usize {
        self.done.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.done.len() == 0
    }
}

/// What a packet carries in its mark where the port keeps `immediates`.
const IMMEDIATE: u64 = 1 << 32;
const INVALIDATED: u64 = 2 << 32;

pub(crate) fn mark_of(immediate: Option<u32>, invalidated: Option<u32>) -> u64 {
    match (immediate, invalidated) {
        (Some(imm), _) => IMMEDIATE | u64::from(imm),
        (None, Some(rkey)) => INVALIDATED | u64::from(rkey),
        (None, None) => 0,
    }
}

/// The immediate data that a packet came with, where the port that received it says `immediates =
/// true`. A WRITE with immediate brings a packet of no bytes.
pub fn immediate(packet: &Packet) -> Option<u32> {
    (packet.mark() & !u64::from(u32::MAX) == IMMEDIATE).then_some(packet.mark() as u32)
}

/// The key of ours that the sender took back, where the port says `immediates = true`.
pub fn invalidated_key(packet: &Packet) -> Option<u32> {
    (packet.mark() & !u64::from(u32::MAX) == INVALIDATED).then_some(packet.mark() as u32)
}
