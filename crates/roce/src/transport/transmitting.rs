//! The sending of datagrams, one a call, each made on demand: no sent datagram is kept.

use crate::memory::{Denied, Memory, Place, Right};
use crate::transport::configuration::Peer;
use crate::transport::outgoing::Outgoing;
use crate::transport::queue_pair::{Mode, QueuePair, State};
use crate::transport::read_replies::{Part, Reply};
use crate::transport::refusal::NO_ACCESS;
use crate::wire::{Bth, ROCE_PORT, Rc, ReadPart, Route, Segment, Syndrome, seal, write_head};
use crate::work::Status;

/// A datagram in the caller's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The route.
    pub route: Route,
    /// Its length, from the buffer's start.
    pub len: usize,
}

impl Transmit {
    /// Adds the pad and the checksum to a datagram that has none yet.
    pub(crate) fn sealed(self, out: &mut [u8], ip_id: u16) -> Transmit {
        Transmit { len: seal(out, self.len, &self.route, ip_id), ..self }
    }
}

impl QueuePair {
    /// Writes the next datagram into `out`; `ip_id` as in [`seal`](crate::wire::seal). Returns none
    /// if there is nothing to send until something happens.
    ///
    /// # Panics
    /// If `out` has no room for the queue pair's MTU and
    /// [`HEADERS_MAX_BYTES`](crate::wire::HEADERS_MAX_BYTES).
    pub fn transmit(&mut self, now_ns: u64, memory: &mut impl Memory, out: &mut [u8], ip_id: u16) -> Option<Transmit> {
        self.transmit_unsealed(now_ns, memory, out).map(|sent| sent.sealed(out, ip_id))
    }

    /// Like [`transmit`](Self::transmit), but without the pad and the checksum, which
    /// [`seal`](crate::wire::seal) adds: for a carrier that knows the identification only once it
    /// knows the route.
    pub(crate) fn transmit_unsealed(
        &mut self,
        now_ns: u64,
        memory: &mut impl Memory,
        out: &mut [u8],
    ) -> Option<Transmit> {
        // The halves take turns, so that neither a long answer nor a long message blocks the other.
        // A message goes first: an acknowledgement behind it is shorter, and may leave by the same
        // call.
        for _ in 0..2 {
            let is_responders_turn = self.is_responders_turn;
            self.is_responders_turn = !is_responders_turn;
            let written = if is_responders_turn {
                self.write_response(memory, out)
            } else {
                self.write_request(now_ns, memory, out)
            };
            if let Some(written) = written {
                return Some(self.counted(written));
            }
        }
        self.rest();
        None
    }

    /// Writes an acknowledgement of everything received, for a queue pair that is about to be
    /// destroyed; [`seal`](crate::wire::seal) adds its checksum. A network card acknowledges
    /// completed messages whatever its program does then; here the acknowledgement may still wait
    /// for a message to go with, or for a packet that asks.
    ///
    /// # Panics
    /// If `out` has no room for [`HEADERS_MAX_BYTES`](crate::wire::HEADERS_MAX_BYTES).
    pub fn transmit_acknowledgement(&mut self, out: &mut [u8]) -> Option<Transmit> {
        if let Mode::Rc(_, responder, _) = &mut self.mode {
            responder.acknowledge_all();
        }
        let written = if self.owes_acknowledgement() { self.write_answer(out) } else { None }?;
        Some(self.counted(written))
    }

    /// Counts and returns the written datagram.
    fn counted(&mut self, (route, len): (Route, usize)) -> Transmit {
        self.counters.sent += 1;
        Transmit { route, len }
    }

    /// Writes the responder's next datagram, without its checksum.
    fn write_response(&mut self, memory: &mut impl Memory, out: &mut [u8]) -> Option<(Route, usize)> {
        let Mode::Rc(peer, responder, _) = &mut self.mode else { return None };
        let peer = *peer;
        let acked = responder.syndrome(Syndrome::ACK);
        if let Some(Reply { psn, part }) = responder.next_data() {
            let bth = Bth::new(peer.qpn, psn);
            match part {
                Part::Original(original) => {
                    responder.data_sent();
                    let segment = Segment::Rc(Rc::AtomicResponse(acked, original));
                    return Some((peer.route, write_head(&bth, &segment, 0, out)));
                }
                Part::Data { addr, rkey, len, is_first, is_last } => {
                    let part = match (is_first, is_last) {
                        (true, true) => ReadPart::Only(acked),
                        (true, false) => ReadPart::First(acked),
                        (false, false) => ReadPart::Middle,
                        (false, true) => ReadPart::Last(acked),
                    };
                    let head = write_head(&bth, &Segment::Rc(Rc::ReadResponse(part)), len, out);
                    let place = Place { owner: self.owner, key: rkey, right: Right::RemoteRead, addr };
                    if len == 0 || memory.read(place, &mut out[head..head + len]).is_ok() {
                        responder.data_sent();
                        return Some((peer.route, head + len));
                    }
                    responder.fail_data();
                }
            }
            // The key was invalidated after the READ arrived.
            self.refuse(NO_ACCESS, Some(psn));
        }
        self.write_answer(out)
    }

    /// Writes the responder's next datagram that is no data.
    fn write_answer(&mut self, out: &mut [u8]) -> Option<(Route, usize)> {
        let Mode::Rc(peer, responder, _) = &mut self.mode else { return None };
        let peer = *peer;
        let route = if responder.answers_keep_alive() { keep_alive_route(&peer) } else { peer.route };
        let (psn, syndrome) = responder.take_answer(&mut self.counters)?;
        let segment = Segment::Rc(Rc::Acknowledge(syndrome));
        Some((route, write_head(&Bth::new(peer.qpn, psn), &segment, 0, out)))
    }

    /// Writes the next packet of a request, without its checksum.
    fn write_request(&mut self, now_ns: u64, memory: &mut impl Memory, out: &mut [u8]) -> Option<(Route, usize)> {
        self.carry_out_local(memory);
        if self.state != State::Open {
            return None;
        }
        let next = self.next_request(now_ns).filter(|(_, outgoing)| self.may_begin(outgoing.index));
        let Some((route, outgoing)) = next else {
            return self.write_question(now_ns, memory, out).or_else(|| self.write_keep_alive(out));
        };
        let Ok(len) = self.write_packet(&outgoing, memory, out) else {
            self.fail_when_first(outgoing.index, Status::LocalProtection);
            return self.write_question(now_ns, memory, out);
        };
        match &mut self.mode {
            Mode::Rc(_, _, Some(requester)) => {
                let is_new = requester.sent(now_ns, &self.sends, &outgoing);
                if !is_new {
                    self.counters.note(|all| all.retransmitted += 1);
                }
            }
            Mode::Uc(_, _, Some(sender)) | Mode::Ud { sender: Some(sender), .. } => sender.sent(&mut self.sends),
            _ => {}
        }
        Some((route, len))
    }

    /// Writes a packet of a request, without its checksum.
    fn write_packet(&self, outgoing: &Outgoing, memory: &mut impl Memory, out: &mut [u8]) -> Result<usize, Denied> {
        let head = write_head(&outgoing.bth, &outgoing.segment, outgoing.payload, out);
        let payload = &mut out[head..head + outgoing.payload];
        self.sends.gather(outgoing.index, self.owner, memory, outgoing.offset, payload)?;
        Ok(head + outgoing.payload)
    }

    /// Writes a question for the acknowledgement of packets that have not asked: see
    /// [`asking`](crate::transport::asking).
    fn write_question(&mut self, now_ns: u64, memory: &mut impl Memory, out: &mut [u8]) -> Option<(Route, usize)> {
        let Mode::Rc(peer, _, Some(requester)) = &self.mode else { return None };
        if self.state != State::Open {
            return None;
        }
        let (route, is_stopped) = (peer.route, !self.may_begin(requester.cursor_index));
        let outgoing = requester.question(now_ns, &self.sends, is_stopped)?;
        // The data may be gone; the question works without it.
        let without = requester.nothing(outgoing.index);
        let len = self.write_packet(&outgoing, memory, out);
        let len = len.unwrap_or_else(|_| write_head(&without.bth, &without.segment, 0, out));
        if let Mode::Rc(_, _, Some(requester)) = &mut self.mode
            && requester.questioned(now_ns)
        {
            self.counters.note(|all| all.retransmitted += 1);
        }
        Some((route, len))
    }

    /// Writes a keep-alive to a silent peer: see [`keep_alive`](crate::transport::keep_alive).
    fn write_keep_alive(&mut self, out: &mut [u8]) -> Option<(Route, usize)> {
        let (Mode::Rc(peer, _, Some(requester)), Some(keep_alive)) = (&self.mode, &mut self.keep_alive) else {
            return None;
        };
        if !std::mem::take(&mut keep_alive.asks) || requester.is_waiting() {
            return None;
        }
        let nothing = requester.nothing(requester.cursor_index);
        Some((keep_alive_route(peer), write_head(&nothing.bth, &nothing.segment, 0, out)))
    }

    /// Carries out the next local operations, so that they are done before later sends leave.
    fn carry_out_local(&mut self, memory: &mut impl Memory) {
        while self.state == State::Open {
            let due = match &mut self.mode {
                Mode::Rc(_, _, Some(requester)) => requester.due_local(&self.sends),
                Mode::Uc(_, _, Some(sender)) => sender.due_local(&self.sends),
                _ => None,
            };
            let Some((index, entry)) = due.and_then(|index| Some((index, *self.sends.entry(index)?))) else { return };
            if !self.may_begin(index) {
                return;
            }
            match memory.carry_out(self.owner, entry.id) {
                Ok(()) => self.sends.carried_out(index),
                Err(_) => return self.fail_when_first(index, Status::LocalRefused),
            }
            if let Mode::Rc(_, _, Some(requester)) = &mut self.mode {
                requester.cursor_index = index + 1;
                // It completes once everything before it is acknowledged.
                if entry.signaled {
                    requester.asking.ask_now();
                }
            }
        }
    }

    /// Whether the send of that index may begin: neither it nor one before it is held or failing.
    fn may_begin(&self, index: u64) -> bool {
        !self.is_held(index) && self.failing.is_none_or(|(failing, _)| index < failing)
    }

    /// Fails the send of that index, which can't be carried out, now or once all before it are
    /// done.
    fn fail_when_first(&mut self, index: u64, status: Status) {
        self.failing = Some((index, status));
        self.fail_failing();
    }

    fn next_request(&self, now_ns: u64) -> Option<(Route, Outgoing)> {
        let own = self.owner.qpn;
        match &self.mode {
            Mode::Rc(peer, _, Some(requester)) => Some((peer.route, requester.next(now_ns, &self.sends)?)),
            Mode::Uc(peer, _, Some(sender)) => Some((peer.route, sender.next(&self.sends, own, peer.qpn)?)),
            Mode::Ud { sender: Some(sender), .. } => {
                let outgoing = sender.next(&self.sends, own, own)?;
                let (to, _) = self.sends.datagram(outgoing.index)?;
                Some((to.route, outgoing))
            }
            _ => None,
        }
    }
}

/// The route of a keep-alive and its answer: from the port of RoCE, since a firewall may let pass
/// what comes from there alone. No message may have shown yet what it lets pass.
fn keep_alive_route(peer: &Peer) -> Route {
    Route { source_port: ROCE_PORT, ..peer.route }
}
