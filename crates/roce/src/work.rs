//! Work requests and their completions, as programs know them from verbs.

use crate::memory::Sge;
use crate::wire::{AtomicExtension, Qpn, Route, SendEnd, WriteEnd};
use std::net::IpAddr;

/// The most bytes of a message, and of a READ.
pub const MESSAGE_BYTES_MAX: u32 = 1 << 31;

/// A send work request.
#[derive(Clone, Copy, Debug)]
pub struct SendRequest<'a> {
    /// The program's number of the work request.
    pub id: u64,
    /// The operation.
    pub operation: Operation,
    /// The source of its bytes; for a READ or an atomic, their destination.
    pub data: Data<'a>,
    /// Whether its success is reported. Its failure always is.
    pub signaled: bool,
    /// The receiver's completion is a solicited event.
    pub solicited: bool,
    /// It begins once all READs and atomics before it are done.
    pub fence: bool,
}

/// The bytes of a send work request.
#[derive(Clone, Copy, Debug)]
pub enum Data<'a> {
    /// In memory, which must not change until the request has completed.
    Memory(&'a [Sge]),
    /// Copied when posted; only for operations that send bytes.
    Inline(&'a [u8]),
}

/// An address in a peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// The first byte.
    pub addr: u64,
    /// The peer's R_Key.
    pub rkey: u32,
}

/// The operation of a send work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Sends a message to a connected peer's receive.
    Send(SendEnd),
    /// Writes to a peer's memory.
    Write(Remote, WriteEnd),
    /// Reads from a peer's memory.
    Read(Remote),
    /// Changes eight bytes of a peer's memory.
    Atomic(AtomicExtension),
    /// Sends a datagram.
    Datagram(To, WriteEnd),
    /// Changes something on this side, in the order of the other operations
    /// ([`Memory::carry_out`](crate::Memory::carry_out)). It has no bytes, and sends no packet. For
    /// connected queue pairs.
    Local,
}

/// The destination of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct To {
    /// The route.
    pub route: Route,
    /// The receiving queue pair.
    pub qpn: Qpn,
    /// The receiving queue pair's Q_Key.
    pub qkey: u32,
}

/// Why a work request was not posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// The queue is full of work requests under way: poll completions first.
    #[error("the queue is full: {depth} work requests have not been polled")]
    Full {
        /// The depth of the queue.
        depth: usize,
    },
    /// The request has more scatter/gather elements than the queue pair was made for.
    #[error("{sges} scatter/gather elements; the queue pair was made with room for {max}")]
    TooManySges {
        /// The number in the request.
        sges: usize,
        /// The greatest number.
        max: usize,
    },
    /// The request has more inline bytes than the queue pair was made for.
    #[error("{bytes} inline bytes; the queue pair was made with room for {max}")]
    InlineTooLong {
        /// The number in the request.
        bytes: usize,
        /// The greatest number.
        max: usize,
    },
    /// The message is too long for its operation on this queue pair. An atomic has eight bytes, and
    /// a local operation none.
    #[error("{bytes} bytes; the operation takes {max} on this queue pair")]
    Length {
        /// The number in the request.
        bytes: u64,
        /// The greatest number; for an atomic the exact one.
        max: u32,
    },
    /// The queue pair's transport has no such operation, or it takes no inline data.
    #[error("the queue pair's transport has no such operation")]
    Unsupported,
    /// The queue pair doesn't send yet.
    #[error("the queue pair is not ready to send")]
    NotReady,
    /// The receive queue is shared: post there.
    #[error("the queue pair has a shared receive queue")]
    Shared,
}

/// How a work request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// It succeeded.
    Success,
    /// A message did not fit a receive.
    LocalLength,
    /// A local key doesn't grant the access.
    LocalProtection,
    /// An [`Operation::Local`] was refused.
    LocalRefused,
    /// The peer asked for something, through this receive, that it may not do.
    LocalAccess,
    /// The peer found the request invalid.
    RemoteInvalidRequest,
    /// The peer's key doesn't grant the access.
    RemoteAccess,
    /// The peer could not carry out the request.
    RemoteOperation,
    /// The peer didn't answer.
    RetryExceeded,
    /// The peer still had no receive after all RNR retries.
    RnrRetryExceeded,
    /// The queue pair had failed before.
    Flushed,
}

/// The operation of a completed work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completed {
    /// A SEND, or a datagram.
    Send,
    /// A WRITE.
    Write,
    /// A READ.
    Read,
    /// An atomic.
    Atomic,
    /// An [`Operation::Local`].
    Local,
    /// A receive that a message filled.
    Receive(SendEnd),
    /// A receive that a WRITE's immediate data consumed.
    ReceiveWrite {
        /// The immediate data.
        immediate: u32,
    },
}

/// A completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The program's number of the work request.
    pub id: u64,
    /// Its outcome.
    pub status: Status,
    /// The operation; for a failed receive, `Receive(Plain)`.
    pub completed: Completed,
    /// The bytes that were moved; for a datagram including the 40 bytes before it.
    pub bytes: u32,
    /// The peer asked for an event, or the request failed.
    pub solicited: bool,
    /// The sender of a received datagram.
    pub source: Option<Source>,
}

/// The sender of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// Its address.
    pub addr: IpAddr,
    /// Its queue pair.
    pub qpn: Qpn,
}
