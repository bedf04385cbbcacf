//! Sends with options: immediate data, a fence, a solicited event, and the packet back once the
//! send is done.
//!
//! A packet carries its send's options, over rings and spreads too, to a port whose plan says
//! `send_options`; other ports ignore them. Immediate data is the lower half of the packet's mark
//! ([`Packet::set_mark`]). [`Returning`] takes those that come back to their destination.

use verbline_mem::{Batch, Packet};
use verbline_verbs::{Completion, SendOptions, Status};

use crate::stats::drop_reason::DropReason;

const IMM: u8 = 1;
const FENCE: u8 = 2;
const SOLICITED: u8 = 4;
const RETURNED: u8 = 8;
/// Marks a packet that came back: the other bits hold the result of its send, 0 for success.
const ENDED: u8 = 0x80;
/// Values from here on: the packet was not posted.
const REFUSED: u8 = 0x40;

/// The reasons why a port does not send a packet, in the order of their numbers.
const REFUSALS: [DropReason; 5] =
    [DropReason::SendError, DropReason::TxFull, DropReason::TooLong, DropReason::PortDown, DropReason::NoConnection];

/// Options of one send ([`Outputs::send_with`](crate::Outputs::send_with)), in addition to those of
/// the port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendWith {
    note: u8,
    imm: u32,
}

/// The reason why a send with a requested result failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendFailure {
    /// It completed with this status: the peer may have it or not.
    #[error("it completed with {0}")]
    Status(Status),
    /// It was not posted, and is among the port's drops for this reason.
    #[error("it was not posted: {0:?}")]
    Refused(DropReason),
}

impl SendWith {
    /// No option.
    pub const fn new() -> SendWith {
        SendWith { note: 0, imm: 0 }
    }

    /// Adds immediate data, which the receiver finds with the received packet
    /// ([`immediate`](crate::immediate)). It takes the lower half of the packet's mark.
    #[must_use]
    pub const fn imm(self, imm: u32) -> SendWith {
        SendWith { note: self.note | IMM, imm }
    }

    /// Delays the start until every earlier READ and atomic of the port is done. Only RC has these,
    /// so UC and UD have nothing to wait for.
    #[must_use]
    pub const fn fenced(self) -> SendWith {
        SendWith { note: self.note | FENCE, ..self }
    }

    /// Wakes a peer whose lcore says `unsolicited_wait`.
    #[must_use]
    pub const fn solicited(self) -> SendWith {
        SendWith { note: self.note | SOLICITED, ..self }
    }

    /// Returns the packet once its send is done or refused: it goes to the port's `sent`, and
    /// [`send_result`] gives the result. Its data are unchanged. Its send is signaled, and its
    /// bytes do not go inline.
    #[must_use]
    pub const fn returned(self) -> SendWith {
        SendWith { note: self.note | RETURNED, ..self }
    }

    /// Sets these options on the packet, in place of earlier ones: for
    /// [`Outputs::send`](crate::Outputs::send) or
    /// [`Outputs::send_batch`](crate::Outputs::send_batch).
    #[inline]
    pub fn ask(self, packet: &mut Packet) {
        packet.set_send_note(self.note);
        if self.note & IMM != 0 {
            packet.set_mark(packet.mark() & !u64::from(u32::MAX) | u64::from(self.imm));
        }
    }
}

/// The result of the send of a packet that asked to come back ([`SendWith::returned`]); `None` for
/// any other packet.
pub fn send_result(packet: &Packet) -> Option<Result<(), SendFailure>> {
    let note = packet.send_note();
    let number = note & !ENDED & !REFUSED;
    if note & ENDED == 0 {
        return None;
    }
    Some(match (note & REFUSED, number) {
        (0, 0) => Ok(()),
        (0, status) => Err(SendFailure::Status(Status::from_raw(status.into()))),
        (_, reason) => Err(SendFailure::Refused(REFUSALS[usize::from(reason) % REFUSALS.len()])),
    })
}

/// The send options of a packet.
#[inline]
pub(crate) fn options_of(packet: &Packet) -> SendOptions {
    let asks = asks(packet);
    let has = |bit| asks & bit != 0;
    SendOptions {
        imm: has(IMM).then_some(packet.mark() as u32),
        fence: has(FENCE),
        solicited: has(SOLICITED),
        signaled: has(RETURNED),
        comes_back: has(RETURNED),
        ..SendOptions::default()
    }
}

/// The options of a packet, as its stage set them.
pub(crate) fn asked_of(packet: &Packet) -> SendWith {
    let note = asks(packet);
    SendWith { note, imm: if note & IMM != 0 { packet.mark() as u32 } else { 0 } }
}

/// Whether a packet has any option.
#[inline]
pub(crate) fn asks_for_something(packet: &Packet) -> bool {
    asks(packet) != 0
}

/// Whether a packet is to come back.
#[inline]
pub(crate) fn asks_to_return(packet: &Packet) -> bool {
    asks(packet) & RETURNED != 0
}

/// Stores the result of its send in a packet, and clears its options.
pub(crate) fn end(packet: &mut Packet, result: Result<(), SendFailure>) {
    let number = match result {
        Ok(()) => 0,
        // Statuses of ibv_wc_status are less than 64.
        Err(SendFailure::Status(status)) => status.raw() as u8 & (REFUSED - 1),
        Err(SendFailure::Refused(reason)) => {
            REFUSED | REFUSALS.iter().position(|known| *known == reason).unwrap_or(0) as u8
        }
    };
    packet.set_send_note(ENDED | number);
}

/// A packet that came back has no options until a stage sets new ones.
#[inline]
fn asks(packet: &Packet) -> u8 {
    let note = packet.send_note();
    if note & ENDED == 0 { note } else { 0 }
}

/// Packets to be returned once their send is done: their destination, and those on their way to it.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::Rig;

    #[test]
    fn a_result_is_read_as_it_was_written_and_asks_for_nothing() {
        let rig = Rig::new(1);
        let cache = rig.pool.cache(0);
        let mut packet = cache.get().unwrap();
        assert_eq!(send_result(&packet), None);
        let results = REFUSALS.map(|reason| Err(SendFailure::Refused(reason)));
        let statuses = (1..24).map(|raw| Err(SendFailure::Status(Status::from_raw(raw))));
        for result in results.into_iter().chain(statuses).chain([Ok(())]) {
            SendWith::new().imm(7).fenced().returned().ask(&mut packet);
            assert_eq!((send_result(&packet), asks_to_return(&packet)), (None, true));
            end(&mut packet, result);
            assert_eq!((send_result(&packet), asks_for_something(&packet)), (Some(result), false));
        }
        packet.reset();
        assert_eq!(send_result(&packet), None);
    }

    #[test]
    fn a_packet_asks_for_what_it_was_told_to_and_its_mark_keeps_its_upper_half() {
        let rig = Rig::new(1);
        let cache = rig.pool.cache(0);
        let mut packet = cache.get().unwrap();
        packet.set_mark(u64::MAX);
        SendWith::new().solicited().ask(&mut packet);
        assert_eq!(packet.mark(), u64::MAX);
        assert_eq!(options_of(&packet), SendOptions { solicited: true, ..SendOptions::default() });
        SendWith::new().imm(5).ask(&mut packet);
        assert_eq!(packet.mark(), u64::from(u32::MAX) << 32 | 5);
        assert_eq!(options_of(&packet), SendOptions { imm: Some(5), ..SendOptions::default() });
        SendWith::new().fenced().returned().ask(&mut packet);
        let expected = SendOptions { fence: true, signaled: true, comes_back: true, ..SendOptions::default() };
        assert_eq!(options_of(&packet), expected);
    }
}
