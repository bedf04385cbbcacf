//! Work requests and their completions, as programs know them from verbs.

use crate::memory::Sge;
use crate::wire::{AtomicExtension, Qpn, Route, SendEnd, WriteEnd};
use std::net::IpAddr;

/// The most bytes of a message, and of what a READ asks for.
pub const MESSAGE_BYTES_MAX: u32 = 1 << 31;

/// A send work request.
#[derive(Clone, Copy, Debug)]
pub struct SendRequest<'a> {
    /// The program's number for it.
    pub id: u64,
    /// What it does.
    pub operation: Operation,
    /// Where its bytes come from; of a READ or an atomic, where they go.
    pub data: Data<'a>,
    /// Its success is reported. Its failure always is.
    pub signaled: bool,
    /// The receiver's completion is a solicited event.
    pub solicited: bool,
    /// It begins when all READs and atomics before it are done.
    pub fence: bool,
}

/// The bytes of a send work request.
#[derive(Clone, Copy, Debug)]
pub enum Data<'a> {
    /// In memory, which stays as it is until the request has completed.
    Memory(&'a [Sge]),
    /// Copied when it is posted. For what sends bytes only.
    Inline(&'a [u8]),
}

/// Where a peer's memory is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// The first byte.
    pub addr: u64,
    /// The peer's key.
    pub rkey: u32,
}

/// What a send work request does.
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
    /// Changes something here, in the order of the others
    /// ([`Memory::carry_out`](crate::Memory::carry_out)): it has no bytes, and nothing of it
    /// travels. On connected queue pairs.
    Local,
}

/// Where a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct To {
    /// The addresses.
    pub route: Route,
    /// The receiving queue pair.
    pub qpn: Qpn,
    /// Its key.
    pub qkey: u32,
}

/// Why a work request is not posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// As many are under way as the queue holds: poll completions first.
    #[error("the queue is full: {depth} work requests have not been polled")]
    Full {
        /// How many it holds.
        depth: usize,
    },
    /// More pieces than were asked for at creation.
    #[error("{sges} scatter/gather elements; the queue pair was made with room for {max}")]
    TooManySges {
        /// How many the request has.
        sges: usize,
        /// How many there may be.
        max: usize,
    },
    /// More inline bytes than were asked for at creation.
    #[error("{bytes} inline bytes; the queue pair was made with room for {max}")]
    InlineTooLong {
        /// How many the request has.
        bytes: usize,
        /// How many there may be.
        max: usize,
    },
    /// The message is too long for its operation on this queue pair; of an atomic, not eight bytes;
    /// of a local operation, any.
    #[error("{bytes} bytes; the operation takes {max} on this queue pair")]
    Length {
        /// How many the request has.
        bytes: u64,
        /// How many there may be, or must be of an atomic.
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
    /// As it should.
    Success,
    /// A message did not fit a receive.
    LocalLength,
    /// A local key doesn't grant it.
    LocalProtection,
    /// An [`Operation::Local`] was refused.
    LocalRefused,
    /// A peer may not do what it asked for by this receive.
    LocalAccess,
    /// The peer found the request invalid.
    RemoteInvalidRequest,
    /// The peer's key doesn't grant it.
    RemoteAccess,
    /// The peer could not carry it out.
    RemoteOperation,
    /// The peer didn't answer.
    RetryExceeded,
    /// The peer had no receive, as often as was asked for.
    RnrRetryExceeded,
    /// The queue pair failed before.
    Flushed,
}

/// What a completed work request was.
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
    /// A receive that took a message.
    Receive(SendEnd),
    /// A receive that a WRITE's immediate data took.
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
    /// How it ended.
    pub status: Status,
    /// What it was; of a failed receive, `Receive(Plain)`.
    pub completed: Completed,
    /// The bytes that were moved; of a datagram with the 40 bytes before it.
    pub bytes: u32,
    /// The peer asked for an event, or the request failed.
    pub solicited: bool,
    /// Of a datagram that was received: who sent it.
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
