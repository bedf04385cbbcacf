//! What becomes of a datagram that has come: a queue pair's, connection management's, or another's.

use crate::transport::{Discard, Incoming};
use crate::wire::{Qpn, Segment};

/// What became of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received<'a> {
    /// A queue pair took it in.
    Taken {
        /// The queue pair.
        qpn: Qpn,
        /// It is the first that the queue pair took in.
        is_first: bool,
    },
    /// It is connection management's, whose state machine is apart.
    Management(Management<'a>),
    /// It is for a queue pair that is not among
    /// [the numbers of this engine](crate::Engine::own_numbers).
    Elsewhere(Qpn),
    /// It is UD, and for no queue pair of the engine: another of its carrier's, or a group.
    Datagram(Datagram<'a>),
    /// It was discarded.
    Discarded(Discard),
}

/// A datagram of UD to a queue pair that is not the engine's, or to the members of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Whom it is for; [`Qpn::MULTICAST`] of a group.
    pub to: Qpn,
    /// The sender's queue pair.
    pub from: Qpn,
    /// The key that it carries.
    pub qkey: u32,
    /// Immediate data, host order.
    pub immediate: Option<u32>,
    /// The receiver's completion is a solicited event.
    pub solicited: bool,
    /// What it says.
    pub payload: &'a [u8],
}

/// A datagram to queue pair 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Management<'a> {
    /// The key that it carries.
    pub qkey: u32,
    /// What it says.
    pub payload: &'a [u8],
}

/// A datagram to queue pair 1.
pub(super) fn management<'a>(incoming: &Incoming<'a>) -> Result<Received<'a>, Discard> {
    let packet = incoming.packet();
    incoming.check()?;
    match packet.segment {
        Segment::Ud(deth, _) => Ok(Received::Management(Management { qkey: deth.qkey, payload: packet.payload })),
        _ => Err(Discard::Transport),
    }
}

/// One for no queue pair of the engine.
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
