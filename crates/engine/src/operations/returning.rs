//! Packets to be returned once their send is done ([`crate::operations::send_with`]): their
//! destination, and those on their way to it.

use verbline_mem::{Batch, Packet};
use verbline_verbs::Completion;

use crate::operations::send_with::{SendFailure, asks_to_return, end};
use crate::stats::drop_reason::DropReason;

/// See the top of this file.
#[derive(Debug)]
pub(crate) struct Returning {
    /// The sink that they go to; `None` if the plan names no destination.
    to: Option<u16>,
    /// Packets on their way back; empty between two calls of the port.
    pub(crate) ended: Batch,
}

impl Returning {
    /// `room`: the most packets that end at once.
    pub(crate) fn new(to: Option<u16>, room: usize) -> Returning {
        Returning { to, ended: Batch::with_capacity(if to.is_some() { room } else { 0 }) }
    }

    /// Takes a packet whose send has ended; a packet that did not ask to come back goes to its
    /// pool.
    #[inline]
    pub(crate) fn end(&mut self, mut packet: Packet, result: Result<(), SendFailure>) {
        if self.to.is_some() && asks_to_return(&packet) {
            end(&mut packet, result);
            // If more packets end than there is room for, the last ones go to their pool.
            drop(self.ended.push(packet));
        }
    }

    /// Like [`Returning::end`], for a packet that is not sent.
    pub(crate) fn refuse(&mut self, packet: Packet, reason: DropReason) {
        self.end(packet, Err(SendFailure::Refused(reason)));
    }

    /// Takes the packets that a completion gave back. The last one is the completion's own, if it
    /// asked to come back; the others succeeded.
    pub(crate) fn take(&mut self, completion: &Completion, freed: &mut Batch) {
        let count = freed.len();
        for (at, packet) in freed.drain_front(count).enumerate() {
            let failed = at + 1 == count && !completion.is_ok();
            self.end(packet, if failed { Err(SendFailure::Status(completion.status())) } else { Ok(()) });
        }
    }

    /// The packets that have ended, and their destination. The caller puts the emptied batch back
    /// into [`Returning::ended`].
    pub(crate) fn take_ended(&mut self) -> Option<(u16, Batch)> {
        let to = self.to.filter(|_| !self.ended.is_empty())?;
        Some((to, std::mem::replace(&mut self.ended, Batch::with_capacity(0))))
    }
}
