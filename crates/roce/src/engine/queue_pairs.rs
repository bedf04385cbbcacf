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

/// The queue pairs that one caller drives.
///
/// Memory is allocated when a queue pair is [added](Self::add), and at no other time. Several
/// engines serve several threads without a lock, as long as each datagram goes to the engine with
/// its queue pair.
#[derive(Debug, Default)]
pub struct Engine {
    places: Vec<Option<QueuePair>>,
    free: Vec<usize>,
    by_number: ByNumber<usize>,
    /// The numbers of this engine's queue pairs, where it shares its address; `None`: all numbers.
    numbers: Option<Range<u32>>,
    to_send: Turns,
    to_poll: Turns,
    /// Failed queue pairs, not yet reported.
    failed: Turns,
    /// Held queue pairs whose begun sends are done, not yet reported.
    drained: Turns,
    /// Queue pairs with new incidents, not yet reported.
    noted: Turns,
    deadlines: Deadlines,
    /// Datagrams that the first queue pair in `to_send` has sent in a row.
    in_a_row: u32,
    /// Incidents of all present and former queue pairs, and of datagrams without one.
    incidents: Incidents,
    has_incidents: bool,
}

/// Why a queue pair was not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CreateError {
    /// A queue pair with this number exists.
    #[error("queue pair number {0:#x} is taken")]
    Taken(u32),
    /// Numbers 0 and 1 belong to management, and 0xFFFFFF to multicast.
    #[error("queue pair number {0:#x} is reserved")]
    Reserved(u32),
}

/// Datagrams of one queue pair before the next one's turn: few enough for latency, enough for a
/// carrier to send several to one address at once.
const BURST: u32 = 16;

impl Engine {
    /// An engine without queue pairs.
    pub fn new() -> Engine {
        Engine::default()
    }

    /// Limits the numbers of its queue pairs, and of UD queue pairs beside it, to this range. From
    /// now on a datagram for another number is [elsewhere's](Received::Elsewhere).
    pub fn own_numbers(&mut self, numbers: Range<u32>) {
        self.numbers = Some(numbers);
    }

    /// Adds a queue pair. Its number should be random: a stranger has to guess it first.
    pub fn add(&mut self, queue_pair: QueuePair) -> Result<Qpn, CreateError> {
        let qpn = queue_pair.qpn();
        if qpn.is_reserved() {
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

    /// Removes a queue pair, and returns it.
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

    /// A queue pair, for reading.
    pub fn queue_pair(&self, qpn: Qpn) -> Option<&QueuePair> {
        self.places[*self.by_number.get(&qpn.number())?].as_ref()
    }

    /// Calls `tell` with a queue pair, and schedules what its changes need.
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

    /// The incidents of all present and former queue pairs, and of datagrams without one.
    pub fn incidents(&self) -> &Incidents {
        &self.incidents
    }

    /// Like [`incidents`](Self::incidents), but only if there are new ones since the last call.
    pub fn take_new_incidents(&mut self) -> Option<&Incidents> {
        std::mem::take(&mut self.has_incidents).then_some(&self.incidents)
    }

    /// Counts a datagram that the caller has discarded: one that is
    /// [elsewhere's](Received::Elsewhere) without an owner there, for instance.
    pub fn count_discarded(&mut self, why: Discard) {
        self.discard(why);
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

    /// Looks at a queue pair after a change: it may have datagrams to send, completions, or a
    /// deadline.
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

    /// Writes the next datagram into `out`, like [`QueuePair::transmit`]. The queue pairs take
    /// turns.
    ///
    /// # Panics
    /// As for [`QueuePair::transmit`].
    pub fn transmit(&mut self, now_ns: u64, memory: &mut impl Memory, out: &mut [u8], ip_id: u16) -> Option<Transmit> {
        self.transmit_unsealed(now_ns, memory, out).map(|sent| sent.sealed(out, ip_id))
    }

    /// Like [`transmit`](Self::transmit), but without the pad and the checksum, which
    /// [`seal`](crate::wire::seal) adds: for a carrier that knows the identification only once it
    /// knows the route.
    ///
    /// # Panics
    /// As for [`QueuePair::transmit`].
    pub fn transmit_unsealed(&mut self, now_ns: u64, memory: &mut impl Memory, out: &mut [u8]) -> Option<Transmit> {
        while let Some(place) = self.to_send.first() {
            let (mut transmit, mut has_more) = (None, false);
            if let Some(queue_pair) = &mut self.places[place] {
                transmit = queue_pair.transmit_unsealed(now_ns, memory, out);
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

    /// Whether a queue pair may have a datagram to send: if not, [`transmit`](Self::transmit)
    /// returns nothing.
    pub fn may_transmit(&self) -> bool {
        self.to_send.first().is_some()
    }

    /// Whether there is a completion to take, or a report of a queue pair that has failed, or whose
    /// held sends are done.
    #[inline]
    pub fn has_news(&self) -> bool {
        [&self.to_poll, &self.failed, &self.drained].iter().any(|turns| turns.first().is_some())
    }

    /// Takes the next completion, with its queue pair; the queue pairs take turns.
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

    /// Takes the report of the next failed queue pair, with its peer's fault if the peer caused the
    /// failure. Each failure is reported once. Completions may still have to be polled.
    pub fn take_failed(&mut self) -> Option<(Qpn, Option<PeerFault>)> {
        while let Some(place) = self.failed.first() {
            self.failed.pass();
            if let Some(queue_pair) = &mut self.places[place] {
                return Some((queue_pair.qpn(), queue_pair.take_fault()));
            }
        }
        None
    }

    /// Takes the report of the next [held](QueuePair::hold) queue pair whose begun sends are now
    /// done. Each is reported once.
    pub fn take_drained(&mut self) -> Option<Qpn> {
        while let Some(place) = self.drained.first() {
            self.drained.pass();
            if let Some(queue_pair) = &self.places[place] {
                return Some(queue_pair.qpn());
            }
        }
        None
    }

    /// Takes the report of the next queue pair with new incidents since its last report, with all
    /// incidents since its creation.
    pub fn take_noted(&mut self) -> Option<(Qpn, Incidents)> {
        while let Some(place) = self.noted.first() {
            self.noted.pass();
            if let Some(queue_pair) = &self.places[place] {
                return Some((queue_pair.qpn(), *queue_pair.counters().incidents()));
            }
        }
        None
    }

    /// Whether the next queue pair to send [owes an
    /// acknowledgement](QueuePair::owes_acknowledgement).
    pub fn owes_acknowledgement(&self) -> bool {
        let next = self.to_send.first().and_then(|place| self.places[place].as_ref());
        next.is_some_and(QueuePair::owes_acknowledgement)
    }

    /// Whether one queue pair's acknowledgement is all that is left to send. Nobody waits for it: a
    /// message before it need not leave together with it.
    pub fn only_acknowledges(&self) -> bool {
        let only = self.to_send.only().and_then(|place| self.places[place].as_ref());
        only.is_some_and(QueuePair::only_acknowledges)
    }

    /// The latest time to call [`advance`](Self::advance). It may be too early, never too late.
    pub fn deadline_ns(&self) -> Option<u64> {
        self.deadlines.next_ns()
    }

    /// Lets time pass.
    pub fn advance(&mut self, now_ns: u64) {
        while let Some(place) = self.deadlines.take_due(now_ns) {
            if let Some(queue_pair) = &mut self.places[place] {
                queue_pair.advance(now_ns);
                self.look_at(place);
            }
        }
    }
}

/// A map by queue pair number.
pub type ByNumber<V> = HashMap<u32, V, BuildHasherDefault<NumberHasher>>;

/// Spreads queue pair numbers, which strangers do not choose.
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
