//! The outcome of a received datagram: for a queue pair, for connection management, or for others.

use crate::cm::MANAGEMENT_QKEY;
use crate::transport::{Discard, Incoming};
use crate::wire::{Qpn, Segment};

/// The outcome of a received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received<'a> {
    /// A queue pair took it in.
    Taken {
        /// The queue pair.
        qpn: Qpn,
        /// It is the first datagram that the queue pair took in.
        is_first: bool,
    },
    /// A message of connection management, whose state machine is separate.
    Management(Management<'a>),
    /// The datagram is for a queue pair outside of [the numbers of this
    /// engine](crate::Engine::own_numbers).
    Elsewhere(Qpn),
    /// A UD datagram for no queue pair of the engine: another one of the carrier's, or a group.
    Datagram(Datagram<'a>),
    /// The datagram was discarded.
    Discarded(Discard),
}

/// A UD datagram to a queue pair outside of the engine, or to the members of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// The destination; [`Qpn::MULTICAST`] for a group.
    pub to: Qpn,
    /// The sender's queue pair.
    pub from: Qpn,
    /// The Q_Key.
    pub qkey: u32,
    /// Immediate data, host order.
    pub immediate: Option<u32>,
    /// The receiver's completion is a solicited event.
    pub solicited: bool,
    /// The message.
    pub payload: &'a [u8],
}

/// A datagram to queue pair 1, with that queue pair's Q_Key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Management<'a> {
    /// The message.
    pub payload: &'a [u8],
}

/// Returns a datagram to queue pair 1, if it is valid.
pub(super) fn management<'a>(incoming: &Incoming<'a>) -> Result<Received<'a>, Discard> {
    let packet = incoming.packet();
    incoming.check()?;
    match packet.segment {
        Segment::Ud(deth, _) if deth.qkey != MANAGEMENT_QKEY => Err(Discard::Key),
        Segment::Ud(..) => Ok(Received::Management(Management { payload: packet.payload })),
        _ => Err(Discard::Transport),
    }
}

/// Returns a datagram for no queue pair of the engine, if it is a valid one of UD.
pub(super) fn unknown<'a>(incoming: &Incoming<'a>) -> Result<Received<'a>, Discard> {
    let packet = incoming.packet();
    let Segment::Ud(deth, immediate) = packet.segment else { return Err(Discard::NoQueuePair) };
    incoming.check()?;
    Ok(Received::Datagram(Datagram {
        to: packet.bth.destination,
        from: deth.source,
        qkey: deth.qkey,
        immediate,
        solicited: packet.bth.solicited,
        payload: packet.payload,
    }))
}
