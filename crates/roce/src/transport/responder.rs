//! The responder of a reliable connection: carries out the peer's requests, in order, once each.

use crate::memory::{Denied, Memory, Owner, Place, Right};
use crate::transport::configuration::{Rights, Serving};
use crate::transport::counters::{Counters, Discard};
use crate::transport::inbox::{Inbox, Message, Misplaced};
use crate::transport::keep_alive::is_keep_alive;
use crate::transport::read_replies::{Asked, ReadReplies, Reply};
use crate::transport::refusal::{Halt, INVALID, NO_ACCESS, Refusal};
use crate::wire::{AtomicExtension, Bth, Psn, Rc, Reth, SendEnd, Syndrome, WriteEnd};
use crate::work::{Completed, Status};

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Responder {
    expected: Psn,
    /// The number of messages carried out.
    msn: u32,
    serving: Serving,
    mtu: u32,
    message: Underway,
    replies: ReadReplies,
    reply: Option<Answer>,
    /// The packet before the expected one asked for an acknowledgement.
    is_asked: bool,
    /// The peer was told that the expected packet is missing, or has no receive. The value is the
    /// last packet that arrived ahead of it.
    told: Option<Psn>,
    /// The number of the first packet.
    first: Psn,
    /// The first packet came again after something was sent to the peer.
    pub(crate) is_first_repeated: bool,
}

/// The incoming message.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Underway {
    Nothing,
    Send { received: u64 },
    Write { addr: u64, rkey: u32, left: u32, received: u32 },
}

/// The next message to the peer, behind the answers of READs and atomics.
#[derive(Clone, Copy, Debug)]
enum Answer {
    /// All packets before the expected one are here.
    Acknowledge,
    /// The same, to a peer that asks whether we are there.
    Present,
    /// The expected packet is missing, or waits for a receive.
    Again(u8),
    /// The connection ends, at that number.
    Refuse(u8, Psn),
}

/// The context of a request.
pub(crate) struct Serve<'a, M> {
    pub(crate) owner: Owner,
    pub(crate) rights: Rights,
    pub(crate) inbox: &'a mut Inbox,
    pub(crate) memory: &'a mut M,
    pub(crate) counters: &'a mut Counters,
}

/// The greatest length of a message.
pub(crate) const TOO_LONG_BYTES: u64 = 1 << 31;

impl Responder {
    pub(crate) fn new(expected: Psn, mtu: u32, serving: Serving) -> Responder {
        let replies = ReadReplies::new();
        let message = Underway::Nothing;
        Responder {
            expected,
            msn: 0,
            serving,
            mtu,
            message,
            replies,
            reply: None,
            is_asked: true,
            told: None,
            first: expected,
            is_first_repeated: false,
        }
    }

    /// Sets new attributes.
    pub(crate) fn serve_by(&mut self, serving: Serving) {
        self.serving = serving;
    }

    /// Takes in a request.
    pub(crate) fn request<M: Memory>(
        &mut self,
        cx: &mut Serve<'_, M>,
        bth: &Bth,
        rc: Rc,
        payload: &[u8],
    ) -> Result<(), Halt> {
        let ahead = bth.psn.ahead_of(self.expected);
        if ahead == -1 && (is_keep_alive(rc) || self.is_question(bth, rc)) {
            self.is_asked = true;
            self.reply = self.reply.or(Some(if is_keep_alive(rc) { Answer::Present } else { Answer::Acknowledge }));
            return Ok(());
        }
        if ahead != 0 {
            let why = self.unexpected(cx.counters, bth.psn, ahead, rc);
            self.is_first_repeated |= why == Discard::Duplicate && bth.psn == self.first && cx.counters.sent > 0;
            return Err(Halt::Discard(why));
        }
        let early = self.told.take();
        let packets = match rc {
            Rc::Send { first, last } => self.send(cx, bth, first, last, payload).map(|()| 1)?,
            Rc::Write { first, last } => self.write(cx, bth, first, last, payload).map(|()| 1)?,
            Rc::ReadRequest(reth) => self.read(cx, &reth, payload)?,
            Rc::Atomic(atomic) => self.atomic(cx, &atomic, payload)?,
            Rc::ReadResponse(_) | Rc::Acknowledge(_) | Rc::AtomicResponse(..) => {
                return Err(Halt::Discard(Discard::Unfitting));
            }
        };
        self.expected = self.expected.plus(packets);
        // An answer with data acknowledges everything before it.
        let is_answered = matches!(rc, Rc::ReadRequest(_) | Rc::Atomic(_));
        self.is_asked = bth.ack_request || is_answered;
        let pending = self.reply.take();
        if let (Some(early), Some(Answer::Again(Syndrome::NAK_SEQUENCE))) = (early, pending)
            && early.ahead_of(self.expected) >= 0
        {
            // This packet was only late, but those behind it were dropped.
            (self.told, self.reply) = (Some(early), pending);
        } else if !is_answered && (bth.ack_request || pending.is_some()) {
            // Also in place of a NAK, which acknowledges earlier packets.
            self.reply = Some(Answer::Acknowledge);
        }
        Ok(())
    }

    /// Whether the packet before the expected one was sent again to ask for its acknowledgement
    /// ([`asking`](crate::transport::asking)): nothing was lost.
    fn is_question(&self, bth: &Bth, rc: Rc) -> bool {
        bth.ack_request && !self.is_asked && matches!(rc, Rc::Send { .. } | Rc::Write { .. })
    }

    /// Handles a packet with an unexpected number. It is answered only if it is near, or repeats an
    /// earlier request.
    fn unexpected(&mut self, counters: &mut Counters, psn: Psn, ahead: i32, rc: Rc) -> Discard {
        let is_near = ahead.unsigned_abs() <= self.serving.answered_psns;
        if ahead > 0 {
            if !is_near {
                return Discard::OutsideWindow;
            }
            counters.note(|all| all.out_of_order += 1);
            // Earlier packets again mean that the peer has gone back: if the expected packet is not
            // among them, it was lost again.
            if self.told.replace(psn).is_none_or(|before| psn.ahead_of(before) <= 0) {
                self.reply = Some(Answer::Again(Syndrome::NAK_SEQUENCE));
            }
            return Discard::OutOfOrder;
        }
        let is_ours = match rc {
            Rc::ReadRequest(reth) => self.replies.read_again(psn, self.mtu, &reth),
            Rc::Atomic(atomic) => self.replies.atomic_again(psn, &atomic),
            Rc::Send { .. } | Rc::Write { .. } if is_near => {
                self.reply = self.reply.or(Some(Answer::Acknowledge));
                true
            }
            _ => false,
        };
        if !is_ours {
            return Discard::OutsideWindow;
        }
        counters.note(|all| all.duplicates += 1);
        Discard::Duplicate
    }

    fn send<M: Memory>(
        &mut self,
        cx: &mut Serve<'_, M>,
        bth: &Bth,
        first: bool,
        last: Option<SendEnd>,
        payload: &[u8],
    ) -> Result<(), Halt> {
        let before = match (first, self.message) {
            (true, Underway::Nothing) => 0,
            (false, Underway::Send { received }) => received,
            _ => return Err(INVALID.into()),
        };
        if !fits_part(payload, self.mtu, first, last.is_some()) {
            return Err(INVALID.into());
        }
        if !cx.inbox.hold(cx.memory) {
            return Err(self.no_receive());
        }
        let received = before + payload.len() as u64;
        if received > TOO_LONG_BYTES {
            return Err(INVALID.into());
        }
        cx.inbox.place(cx.owner, cx.memory, before, payload).map_err(|misplaced| match misplaced {
            Misplaced::TooLong => Refusal { local: Status::LocalLength, ..INVALID },
            Misplaced::Denied => Refusal { code: Syndrome::NAK_REMOTE_OPERATION, local: Status::LocalProtection },
        })?;
        self.message = Underway::Send { received };
        if let Some(end) = last {
            if let SendEnd::Invalidate(rkey) = end {
                let refusal = Refusal { local: Status::LocalAccess, ..NO_ACCESS };
                cx.memory.invalidate(cx.owner, rkey).map_err(|Denied| refusal)?;
            }
            self.finish(cx, bth, Some(Completed::Receive(end)), received as u32);
        }
        Ok(())
    }

    fn write<M: Memory>(
        &mut self,
        cx: &mut Serve<'_, M>,
        bth: &Bth,
        first: Option<Reth>,
        last: Option<WriteEnd>,
        payload: &[u8],
    ) -> Result<(), Halt> {
        let (addr, rkey, left, received) = match (first, self.message) {
            (Some(reth), Underway::Nothing) => (reth.addr, reth.rkey, reth.len, 0),
            (None, Underway::Write { addr, rkey, left, received }) => (addr, rkey, left, received),
            _ => return Err(INVALID.into()),
        };
        let len = payload.len() as u32;
        let is_whole = if last.is_some() { len == left } else { len < left };
        let is_fitting = fits_part(payload, self.mtu, first.is_some(), last.is_some());
        if !cx.rights.write || !is_whole || !is_fitting || u64::from(left) > TOO_LONG_BYTES {
            return Err(INVALID.into());
        }
        let place = Place { owner: cx.owner, key: rkey, right: Right::RemoteWrite, addr };
        if first.is_some() && left > 0 {
            cx.memory.check(place, u64::from(left))?;
        }
        let immediate = match last {
            Some(WriteEnd::Immediate(immediate)) => Some(Completed::ReceiveWrite { immediate }),
            _ => None,
        };
        if immediate.is_some() && !cx.inbox.hold(cx.memory) {
            return Err(self.no_receive());
        }
        if len > 0 {
            cx.memory.write(place, payload)?;
        }
        let (addr, left, received) = (addr.wrapping_add(u64::from(len)), left - len, received + len);
        self.message = Underway::Write { addr, rkey, left, received };
        if last.is_some() {
            self.finish(cx, bth, immediate, received);
        }
        Ok(())
    }

    /// Finishes a message, and completes its receive if it takes one.
    fn finish<M>(&mut self, cx: &mut Serve<'_, M>, bth: &Bth, completed: Option<Completed>, bytes: u32) {
        self.message = Underway::Nothing;
        self.msn = self.msn.wrapping_add(1);
        if let Some(completed) = completed {
            cx.inbox.complete(Message { completed, bytes, solicited: bth.solicited, source: None });
        }
    }

    fn read<M: Memory>(&mut self, cx: &mut Serve<'_, M>, reth: &Reth, payload: &[u8]) -> Result<u32, Halt> {
        let is_fitting = matches!(self.message, Underway::Nothing) && payload.is_empty();
        if !cx.rights.read || !is_fitting || u64::from(reth.len) > TOO_LONG_BYTES {
            return Err(INVALID.into());
        }
        if reth.len > 0 {
            let place = Place { owner: cx.owner, key: reth.rkey, right: Right::RemoteRead, addr: reth.addr };
            cx.memory.check(place, u64::from(reth.len))?;
        }
        let packets = reth.len.div_ceil(self.mtu).max(1);
        self.answer_later(Asked::read(*reth, packets), packets)
    }

    fn atomic<M: Memory>(
        &mut self,
        cx: &mut Serve<'_, M>,
        atomic: &AtomicExtension,
        payload: &[u8],
    ) -> Result<u32, Halt> {
        let is_fitting = matches!(self.message, Underway::Nothing) && payload.is_empty();
        if !cx.rights.atomic || !is_fitting || !atomic.addr.is_multiple_of(8) || !self.has_room_for_read() {
            return Err(INVALID.into());
        }
        let place = Place { owner: cx.owner, key: atomic.rkey, right: Right::RemoteAtomic, addr: atomic.addr };
        let original = cx.memory.atomic(place, atomic.op)?;
        self.answer_later(Asked::Atomic { extension: *atomic, original }, 1)
    }

    fn has_room_for_read(&self) -> bool {
        self.replies.has_room(self.serving.reads)
    }

    /// Returns the number of packet numbers that the answer takes.
    fn answer_later(&mut self, asked: Asked, packets: u32) -> Result<u32, Halt> {
        self.replies.add(self.serving.reads, self.expected, asked).map_err(|_| INVALID)?;
        self.msn = self.msn.wrapping_add(1);
        Ok(packets)
    }

    fn no_receive(&mut self) -> Halt {
        self.told = Some(self.expected);
        self.reply = Some(Answer::Again(Syndrome::RNR | self.serving.rnr_timer & 0x1F));
        Halt::Discard(Discard::NoReceive)
    }

    /// Ends the connection here, or at `psn`: the peer is told.
    pub(crate) fn refuse(&mut self, refusal: Refusal, psn: Option<Psn>) {
        self.reply = Some(Answer::Refuse(refusal.code, psn.unwrap_or(self.expected)));
        self.message = Underway::Nothing;
    }

    /// Drops everything that was still to be sent.
    pub(crate) fn fall_silent(&mut self) {
        self.replies.clear();
        self.reply = None;
    }

    /// The next packet of an answer with data.
    pub(crate) fn next_data(&self) -> Option<Reply> {
        self.replies.next(self.mtu)
    }

    /// Records that this packet was sent.
    pub(crate) fn data_sent(&mut self) {
        self.replies.sent();
    }

    /// Drops the pending answers: a READ's memory is gone.
    pub(crate) fn fail_data(&mut self) {
        self.replies.clear();
    }

    /// Whether there is anything to send.
    pub(crate) fn may_answer(&self) -> bool {
        self.reply.is_some() || self.next_data().is_some()
    }

    /// Whether an acknowledgement is all that there is to send.
    pub(crate) fn owes_acknowledgement(&self) -> bool {
        matches!(self.reply, Some(Answer::Acknowledge | Answer::Present)) && self.next_data().is_none()
    }

    /// Whether the next answer is to a keep-alive.
    pub(crate) fn answers_keep_alive(&self) -> bool {
        matches!(self.reply, Some(Answer::Present))
    }

    /// Acknowledges everything that has arrived, even if it did not ask, unless a NAK is pending.
    pub(crate) fn acknowledge_all(&mut self) {
        if self.reply.is_none() && !self.is_asked {
            (self.reply, self.is_asked) = (Some(Answer::Acknowledge), true);
        }
    }

    /// Takes the next message that is not data, with its packet number. Call it once all
    /// [data](Self::next_data) was sent.
    pub(crate) fn take_answer(&mut self, counters: &mut Counters) -> Option<(Psn, Syndrome)> {
        let answer = self.reply.take()?;
        let (psn, code) = match answer {
            Answer::Acknowledge | Answer::Present => {
                counters.acks_sent += 1;
                (self.expected.before(), Syndrome::ACK)
            }
            Answer::Again(code) if code == Syndrome::NAK_SEQUENCE => {
                counters.note(|all| all.sequence_naks_sent += 1);
                (self.expected, code)
            }
            Answer::Again(code) => {
                counters.note(|all| all.rnr_naks_sent += 1);
                (self.expected, code)
            }
            Answer::Refuse(code, psn) => {
                counters.note(|all| all.fatal_naks_sent += 1);
                (psn, code)
            }
        };
        Some((psn, self.syndrome(code)))
    }

    /// Makes a syndrome with the count of messages.
    pub(crate) fn syndrome(&self, code: u8) -> Syndrome {
        Syndrome { code, msn: self.msn & 0xFF_FFFF }
    }
}

/// Whether a payload has the length of that part of a message.
pub(crate) fn fits_part(payload: &[u8], mtu: u32, is_first: bool, is_last: bool) -> bool {
    let len = payload.len() as u64;
    match (is_first, is_last) {
        (_, false) => len == u64::from(mtu),
        (false, true) => (1..=u64::from(mtu)).contains(&len),
        (true, true) => len <= u64::from(mtu),
    }
}

#[cfg(test)]
mod tests;
