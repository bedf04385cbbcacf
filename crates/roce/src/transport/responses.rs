//! The completer: applies the peer's responses to the requests under way.
//!
//! Guarantees: a response counts only if it answers a packet that was sent and is not yet
//! acknowledged. All others are discarded.

use crate::memory::{Memory, Owner};
use crate::transport::counters::{Counters, Discard};
use crate::transport::requester::Requester;
use crate::transport::retransmit::Stop;
use crate::transport::send_queue::{Kind, QueuedSend, SendQueue};
use crate::wire::{Psn, Rc, ReadPart, Syndrome};
use crate::work::Status;

/// The context of a response.
pub(crate) struct Completing<'a, M> {
    pub(crate) now_ns: u64,
    pub(crate) owner: Owner,
    pub(crate) sends: &'a mut SendQueue,
    pub(crate) memory: &'a mut M,
    pub(crate) counters: &'a mut Counters,
}

/// The values of a syndrome's three highest bits.
const ACK: u8 = 0;
const RNR: u8 = 1;
const NAK: u8 = 3;

impl Requester {
    /// Takes in a response.
    pub(crate) fn respond<M: Memory>(
        &mut self,
        cx: &mut Completing<'_, M>,
        psn: Psn,
        rc: Rc,
        payload: &[u8],
    ) -> Result<(), Stop> {
        let number = self.number_of(psn).ok_or(Stop::Discard(Discard::OutsideWindow))?;
        if number < self.una {
            if matches!(rc, Rc::Acknowledge(syndrome) if syndrome.code >> 5 == ACK) {
                // The answer to a probe: the packet at the front is missing.
                if number + 1 == self.una && self.probe.is_sent() && self.cursor > self.una {
                    return self.repair_asked(cx.sends);
                }
                self.probe.answered_again();
            }
            return Err(Stop::Discard(Discard::Duplicate));
        }
        match rc {
            Rc::Acknowledge(syndrome) => self.acknowledgement(cx, number, syndrome),
            Rc::ReadResponse(part) => self.read_response(cx, number, part, payload),
            Rc::AtomicResponse(_, original) => self.atomic_response(cx, number, original),
            _ => Err(Stop::Discard(Discard::Unfitting)),
        }
    }

    fn acknowledgement<M>(&mut self, cx: &mut Completing<'_, M>, number: u64, syndrome: Syndrome) -> Result<(), Stop> {
        // An ACK includes its packet, a NAK only those before.
        let through = if syndrome.code >> 5 == ACK { number + 1 } else { number };
        if !self.progress(cx, through) {
            return self.repair_unanswered(cx.sends, number);
        }
        let status = match (syndrome.code >> 5, syndrome.code) {
            (ACK, _) => return Ok(()),
            (RNR, code) => {
                cx.counters.note(|all| all.rnr_naks_received += 1);
                return self.wait_for_receive(cx.now_ns, cx.sends, code & 0x1F);
            }
            (NAK, Syndrome::NAK_SEQUENCE) => {
                cx.counters.note(|all| all.sequence_naks_received += 1);
                return self.repair_asked(cx.sends);
            }
            (NAK, Syndrome::NAK_INVALID_REQUEST) => Status::RemoteInvalidRequest,
            (NAK, Syndrome::NAK_REMOTE_ACCESS) => Status::RemoteAccess,
            (NAK, Syndrome::NAK_REMOTE_OPERATION) => Status::RemoteOperation,
            _ => return Err(Stop::Discard(Discard::Unfitting)),
        };
        cx.counters.note(|all| all.fatal_naks_received += 1);
        Err(Stop::Fail(status))
    }

    /// [Acknowledges](Self::acknowledge), and restores the retries on progress. Call it before
    /// judging the rest of the response: a NAK costs a retry, and stops the timer.
    fn progress<M>(&mut self, cx: &mut Completing<'_, M>, through: u64) -> bool {
        let before = self.una;
        let is_reached = self.acknowledge(cx.sends, through);
        self.note_progress(cx.now_ns, before);
        is_reached
    }

    /// The READ or atomic at the front, whose next answer is packet `number`. A response
    /// acknowledges everything before it.
    fn answered<M>(&mut self, cx: &mut Completing<'_, M>, number: u64) -> Result<QueuedSend, Stop> {
        if !self.progress(cx, number) {
            self.repair_unanswered(cx.sends, number)?;
            return Err(Stop::Discard(Discard::OutOfOrder));
        }
        let entry = cx.sends.entry(cx.sends.front()).copied();
        entry.ok_or(Stop::Discard(Discard::Unfitting))
    }

    fn read_response<M: Memory>(
        &mut self,
        cx: &mut Completing<'_, M>,
        number: u64,
        part: ReadPart,
        payload: &[u8],
    ) -> Result<(), Stop> {
        let entry = self.answered(cx, number)?;
        let at = (number - entry.first) as u32;
        let is_end = at + 1 == self.read_end(&entry, at);
        let ends = matches!(part, ReadPart::Last(_) | ReadPart::Only(_));
        let offset = u64::from(at) * u64::from(self.mtu());
        let len = (u64::from(entry.len) - offset).min(u64::from(self.mtu()));
        if !matches!(entry.kind, Kind::Read(_)) || ends != is_end || payload.len() as u64 != len {
            return Err(Stop::Discard(Discard::Unfitting));
        }
        self.take_data(cx, offset, payload, is_end, number + 1 == entry.end())
    }

    fn atomic_response<M: Memory>(
        &mut self,
        cx: &mut Completing<'_, M>,
        number: u64,
        original: u64,
    ) -> Result<(), Stop> {
        let entry = self.answered(cx, number)?;
        if entry.kind != Kind::Atomic {
            return Err(Stop::Discard(Discard::Unfitting));
        }
        // In the program's own byte order, like cards.
        self.take_data(cx, 0, &original.to_ne_bytes(), true, true)
    }

    /// Handles an answer of these bytes to the packet at the front.
    fn take_data<M: Memory>(
        &mut self,
        cx: &mut Completing<'_, M>,
        offset: u64,
        bytes: &[u8],
        ends_request: bool,
        ends_entry: bool,
    ) -> Result<(), Stop> {
        let placed = cx.sends.scatter(cx.sends.front(), cx.owner, cx.memory, offset, bytes);
        placed.map_err(|_| Stop::Fail(Status::LocalProtection))?;
        self.una += 1;
        if ends_request {
            self.reads_out = self.reads_out.saturating_sub(1);
        }
        if ends_entry {
            cx.sends.complete(Status::Success);
        }
        self.keep_up(cx.sends);
        self.note_progress(cx.now_ns, self.una - 1);
        Ok(())
    }
}
