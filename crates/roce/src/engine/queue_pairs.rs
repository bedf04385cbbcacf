//! See [`Engine`].

use crate::engine::received::{Received, management, unknown};
use crate::memory::{Memory, Sge};
use crate::schedule::{Deadlines, Turns};
use crate::transport::{Arrival, Discard, Incidents, Incoming, PeerFault, QueuePair, Transmit};
use crate::wire::Qpn;
use crate::work::{Completion, PostError, SendRequest};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;

/// Queue pairs that one caller drives.
///
/// Room is made when a queue pair is [added](Self::add), and at no other time. Several engines
/// serve several threads without a lock, as long as each datagram goes to the engine that has its
/// queue pair.
#[derive(Debug, Default)]
pub struct Engine {
    places: Vec<Option<QueuePair>>,
    free: Vec<usize>,
    by_number: ByNumber<usize>,
    /// Those of others who share its address are not among them; without, all are.
    numbers: Option<Range<u32>>,
    to_send: Turns,
    to_poll: Turns,
    /// Failed, and not told of yet.
    failed: Turns,
    /// Held, and all that was begun is done, which is not told of yet.
    drained: Turns,
    /// Something went wrong with them that is not told of yet.
    noted: Turns,
    deadlines: Deadlines,
    /// Datagrams that the first one to send has sent in a row.
    in_a_row: u32,
    /// Of all queue pairs that there are or were, and of what belongs to none.
    incidents: Incidents,
    has_incidents: bool,
}

/// Why a queue pair is not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CreateError {
    /// Another one has the number.
    #[error("queue pair number {0:#x} is taken")]
    Taken(u32),
    /// Numbers 0 and 1 are management's, and 0xFFFFFF is multicast's.
    #[error("queue pair number {0:#x} is reserved")]
    Reserved(u32),
}

/// Datagrams of one queue pair before it is the next one's turn: few enough for latency, enough for
/// a carrier to send several to one address at once.
const BURST: u32 = 16;

impl Engine {
    /// An engine without queue pairs.
    pub fn new() -> Engine {
        Engine::default()
    }

    /// Its queue pairs, and those of UD beside it, have numbers among these from now on: what is
    /// for another is [elsewhere's](Received::Elsewhere).
    pub fn own_numbers(&mut self, numbers: Range<u32>) {
        self.numbers = Some(numbers);
    }

    /// Takes over a queue pair. Its number should be random: it is the first that a stranger has to
    /// guess.
    pub fn add(&mut self, queue_pair: QueuePair) -> Result<Qpn, CreateError> {
        let qpn = queue_pair.qpn();
        if qpn.number() <= Qpn::MANAGEMENT.number() || qpn == Qpn::MULTICAST {
            return Err(CreateError::Reserved(qpn.number()));
        }
        if self.by_number.contains_key(&qpn.number()) {
            return Err(CreateError::Taken(qpn.number()));
        }
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        self.to_send.make_room(self.places.len());
        self.to_poll.make_room(self.places.len());
        self.failed.make_room(self.places.len());
        self.drained.make_room(self.places.len());
        self.noted.make_room(self.places.len());
        self.deadlines.make_room(self.places.len());
        self.places[place] = Some(queue_pair);
        self.by_number.insert(qpn.number(), place);
        Ok(qpn)
    }

    /// Gives a queue pair back.
    pub fn remove(&mut self, qpn: Qpn) -> Option<QueuePair> {
        let place = self.by_number.remove(&qpn.number())?;
        self.to_send.forget(place);
        self.to_poll.forget(place);
        self.failed.forget(place);
        self.drained.forget(place);
        self.noted.forget(place);
        self.deadlines.forget(place);
        self.free.push(place);
        self.places[place].take()
    }

    /// A queue pair, to look at.
    pub fn queue_pair(&self, qpn: Qpn) -> Option<&QueuePair> {
        self.places[*self.by_number.get(&qpn.number())?].as_ref()
    }

    /// A queue pair, to be told something.
    pub fn with<R>(&mut self, qpn: Qpn, tell: impl FnOnce(&mut QueuePair) -> R) -> Option<R> {
        let place = *self.by_number.get(&qpn.number())?;
        let result = tell(self.places[place].as_mut()?);
        self.look_at(place);
        Some(result)
    }

    /// Posts a send; nothing if there is no such queue pair.
    pub fn post_send(&mut self, qpn: Qpn, request: &SendRequest<'_>) -> Option<Result<(), PostError>> {
        self.with(qpn, |queue_pair| queue_pair.post_send(request))
    }

    /// Posts a receive; nothing if there is no such queue pair.
    pub fn post_receive(&mut self, qpn: Qpn, id: u64, sges: &[Sge]) -> Option<Result<(), PostError>> {
        self.with(qpn, |queue_pair| queue_pair.post_receive(id, sges))
    }

    /// What went wrong with all queue pairs that there are or were, and the datagrams of none.
    pub fn incidents(&self) -> &Incidents {
        &self.incidents
    }

    /// The same, if something did since the last call.
    pub fn take_new_incidents(&mut self) -> Option<&Incidents> {
        std::mem::take(&mut self.has_incidents).then_some(&self.incidents)
    }

    /// What is elsewhere's is nobody's: it is discarded, and counted.
    pub fn discard_of_nobody(&mut self) {
        self.discard(Discard::NoQueuePair);
    }

    fn discard(&mut self, why: Discard) -> Received<'static> {
        self.incidents.discard(why);
        self.has_incidents = true;
        Received::Discarded(why)
    }

    /// Takes in a datagram.
    pub fn receive<'a>(
        &mut self,
        now_ns: u64,
        arrival: Arrival,
        datagram: &'a [u8],
        memory: &mut impl Memory,
    ) -> Received<'a> {
        let Ok(incoming) = Incoming::read(arrival, datagram) else {
            return self.discard(Discard::Malformed);
        };
        let qpn = incoming.destination();
        if qpn == Qpn::MANAGEMENT {
            return management(&incoming).unwrap_or_else(|why| self.discard(why));
        }
        let place = self.by_number.get(&qpn.number()).copied();
        let Some((place, queue_pair)) = place.and_then(|place| Some((place, self.places[place].as_mut()?))) else {
            let is_own = qpn == Qpn::MULTICAST || self.numbers.as_ref().is_none_or(|own| own.contains(&qpn.number()));
            if !is_own {
                return Received::Elsewhere(qpn);
            }
            return unknown(&incoming).unwrap_or_else(|why| self.discard(why));
        };
        let is_first = queue_pair.counters().received == 0;
        let taken = queue_pair.receive(now_ns, &incoming, memory);
        self.look_at(place);
        taken.map_or_else(Received::Discarded, |()| Received::Taken { qpn, is_first })
    }

    /// Something happened to a queue pair: it may have something to send, to complete, or to wait
    /// for.
    fn look_at(&mut self, place: usize) {
        if self.places[place].as_ref().is_some_and(QueuePair::may_transmit) {
            self.to_send.ask(place);
        }
        self.note(place);
    }

    fn note(&mut self, place: usize) {
        let Some(queue_pair) = &mut self.places[place] else { return };
        if let Some(more) = queue_pair.take_incidents() {
            self.incidents.add(&more);
            self.has_incidents = true;
            self.noted.ask(place);
        }
        if queue_pair.has_completions() {
            self.to_poll.ask(place);
        }
        if queue_pair.failed_just_now() {
            self.failed.ask(place);
        }
        if queue_pair.drained_just_now() {
            self.drained.ask(place);
        }
        self.deadlines.set(place, queue_pair.deadline_ns());
    }

    /// Writes the next datagram into `out`, as [`QueuePair::transmit`] does; the queue pairs take
    /// turns.
    ///
    /// # Panics
    /// As there.
    pub fn transmit(&mut self, now_ns: u64, memory: &mut impl Memory, out: &mut [u8], ip_id: u16) -> Option<Transmit> {
        while let Some(place) = self.to_send.first() {
            let (mut transmit, mut has_more) = (None, false);
            if let Some(queue_pair) = &mut self.places[place] {
                transmit = queue_pair.transmit(now_ns, memory, out, ip_id);
                has_more = transmit.is_some() && queue_pair.may_transmit();
                if !has_more {
                    queue_pair.rest();
                }
            }
            self.note(place);
            self.in_a_row += 1;
            if !has_more || self.in_a_row == BURST {
                self.in_a_row = 0;
                self.to_send.pass();
                if has_more {
                    self.to_send.ask(place);
                }
            }
            if transmit.is_some() {
                return transmit;
            }
        }
        None
    }

    /// Whether a queue pair may have something to send: without, [`transmit`](Self::transmit) has
    /// nothing.
    pub fn may_transmit(&self) -> bool {
        self.to_send.first().is_some()
    }

    /// Whether there is a completion to take, or a queue pair that has failed, or whose sends are
    /// held and done.
    #[inline]
    pub fn has_news(&self) -> bool {
        [&self.to_poll, &self.failed, &self.drained].iter().any(|turns| turns.first().is_some())
    }

    /// Takes the next completion, and whose it is; the queue pairs take turns.
    pub fn poll(&mut self) -> Option<(Qpn, Completion)> {
        while let Some(place) = self.to_poll.first() {
            self.to_poll.pass();
            let Some(queue_pair) = &mut self.places[place] else { continue };
            if let Some(completion) = queue_pair.poll() {
                let qpn = queue_pair.qpn();
                if queue_pair.has_completions() {
                    self.to_poll.ask(place);
                }
                return Some((qpn, completion));
            }
        }
        None
    }

    /// The next queue pair that has failed, once each, and what its peer did to it, if it was the
    /// peer's doing. Its completions may still be to be polled.
    pub fn take_failed(&mut self) -> Option<(Qpn, Option<PeerFault>)> {
        while let Some(place) = self.failed.first() {
            self.failed.pass();
            if let Some(queue_pair) = &mut self.places[place] {
                return Some((queue_pair.qpn(), queue_pair.take_fault()));
            }
        }
        None
    }

    /// The next queue pair whose sends are [held](QueuePair::hold) and of which all that was sent
    /// before is finished now, once each.
    pub fn take_drained(&mut self) -> Option<Qpn> {
        while let Some(place) = self.drained.first() {
            self.drained.pass();
            if let Some(queue_pair) = &self.places[place] {
                return Some(queue_pair.qpn());
            }
        }
        None
    }

    /// The next queue pair with which something went wrong since it was given here last, and all
    /// that did since it was made.
    pub fn take_noted(&mut self) -> Option<(Qpn, Incidents)> {
        while let Some(place) = self.noted.first() {
            self.noted.pass();
            if let Some(queue_pair) = &self.places[place] {
                return Some((queue_pair.qpn(), *queue_pair.counters().incidents()));
            }
        }
        None
    }

    /// Whether the queue pair whose turn it is to send
    /// [owes an acknowledgement](QueuePair::owes_acknowledgement).
    pub fn owes_acknowledgement(&self) -> bool {
        let next = self.to_send.first().and_then(|place| self.places[place].as_ref());
        next.is_some_and(QueuePair::owes_acknowledgement)
    }

    /// When to call [`advance`](Self::advance) at the latest. It may be too early, never too late.
    pub fn deadline_ns(&self) -> Option<u64> {
        self.deadlines.next_ns()
    }

    /// Time has passed.
    pub fn advance(&mut self, now_ns: u64) {
        while let Some(place) = self.deadlines.take_due(now_ns) {
            if let Some(queue_pair) = &mut self.places[place] {
                queue_pair.advance(now_ns);
                self.look_at(place);
            }
        }
    }
}

/// Something of each queue pair, by its number.
pub type ByNumber<V> = HashMap<u32, V, BuildHasherDefault<NumberHasher>>;

/// Spreads queue pair numbers, which no stranger chooses.
#[derive(Debug, Default)]
pub struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u32(self.0 as u32 ^ u32::from(*byte)));
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = u64::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
