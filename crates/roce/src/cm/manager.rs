//! See [`Manager`].

use crate::cm::asked::Asked;
use crate::cm::connection::{
    Accept, Connect, Connection, ConnectionId, Event, Limits, NoSuchConnection, Refused, State,
};
use crate::cm::mad::{MAD_BYTES, Mad, Message};
use crate::cm::notices::{Disconnect, Ready, Reject, Rejected, Wait};
use crate::cm::reply::Reply;
use crate::cm::request::Request;
use crate::cm::taken::Taken;
use crate::schedule::{Deadlines, Turns};
use crate::transport::ack_timeout_ns;
use crate::wire::Qpn;
use std::collections::VecDeque;
use std::net::IpAddr;

/// Makes and ends connections by exchanging messages. All its room is allocated at creation.
#[derive(Debug)]
pub struct Manager {
    pub(crate) limits: Limits,
    pub(crate) services: Vec<u64>,
    /// The first bits of all its connection numbers, and the number of these bits.
    prefix: (u32, u32),
    pub(crate) places: Box<[Option<Connection>]>,
    pub(crate) free: Vec<usize>,
    pub(crate) asked: Asked,
    pub(crate) taken: Taken,
    pub(crate) to_send: Turns,
    pub(crate) deadlines: Deadlines,
    events: VecDeque<Event>,
    /// Messages to peers without a connection.
    pub(crate) answers: VecDeque<Outgoing>,
}

/// A message to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// The destination.
    pub to: IpAddr,
    /// Its bytes.
    pub mad: [u8; MAD_BYTES],
}

/// The most events of a connection during its life.
const EVENTS_EACH: usize = 4;
const CONNECTIONS_MAX: usize = 1 << 16;

impl Manager {
    /// A manager without connections.
    pub fn new(limits: Limits) -> Manager {
        let count = limits.connections.clamp(1, CONNECTIONS_MAX);
        let (mut to_send, mut deadlines) = (Turns::default(), Deadlines::default());
        to_send.make_room(count);
        deadlines.make_room(count);
        Manager {
            limits: Limits { connections: count, ..limits },
            services: Vec::new(),
            prefix: (1, 1),
            places: (0..count).map(|_| None).collect(),
            free: (0..count).rev().collect(),
            asked: Asked::new(count),
            taken: Taken::new(count),
            to_send,
            deadlines,
            events: VecDeque::with_capacity(count * EVENTS_EACH),
            answers: VecDeque::with_capacity(limits.answers),
        }
    }

    /// Makes the numbers of its connections begin with these bits, not all of them zeros. Several
    /// managers that share an address tell their connections apart by them.
    pub fn number_after(&mut self, prefix: u32, bits: u32) {
        debug_assert!((1..32).contains(&bits) && (1..1 << bits).contains(&prefix));
        self.prefix = (prefix, bits);
    }

    /// Whether requests for a service are accepted for decision.
    pub fn listens(&self, service: u64) -> bool {
        self.services.contains(&service)
    }

    /// Whether a program has a request that it has neither accepted nor rejected.
    pub fn has_undecided(&self) -> bool {
        self.asked.has_undecided()
    }

    /// Begins to take requests for a service.
    pub fn listen(&mut self, service: u64) {
        if !self.services.contains(&service) {
            self.services.push(service);
        }
    }

    /// Stops taking requests for a service.
    pub fn stop_listening(&mut self, service: u64) {
        self.services.retain(|listened| *listened != service);
    }

    /// The number of connections that are not gone.
    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Requests a connection. `random` makes its number hard to guess.
    pub fn connect(&mut self, now_ns: u64, random: u32, connect: &Connect) -> Result<ConnectionId, Refused> {
        let place = self.free.pop().ok_or(Refused::Full { connections: self.limits.connections })?;
        let id = self.number(place, random);
        let timeout = self.limits.timeout & 0x1F;
        let request = Request {
            local_id: id,
            remote_response_timeout: timeout,
            local_response_timeout: timeout,
            cm_retries: self.limits.retries.min(15),
            ..connect.request
        };
        self.places[place] = Some(Connection {
            id,
            peer: connect.to,
            remote_id: 0,
            remote_qpn: Qpn::default(),
            remote_guid: 0,
            own_qpn: Some(connect.request.qpn),
            transaction: u64::from(id) << 32 | u64::from(random),
            state: State::Requesting,
            message: None,
            deadline_ns: None,
            tries_left: 0,
            is_prolonged: false,
            unpolled: 0,
            ca_guid: connect.request.ca_guid,
            is_passive: false,
        });
        self.say(now_ns, place, State::Requesting, Message::Request(request));
        Ok(ConnectionId(id))
    }

    /// Accepts a request.
    pub fn accept(&mut self, now_ns: u64, id: ConnectionId, accept: &Accept) -> Result<(), NoSuchConnection> {
        let (place, remote_id) = self.in_state(id, &[State::Requested])?;
        let reply = Reply { local_id: id.0, remote_id, ..accept.reply };
        if let Some(connection) = &mut self.places[place] {
            (connection.ca_guid, connection.own_qpn) = (reply.ca_guid, Some(reply.qpn));
        }
        self.say(now_ns, place, State::Accepting, Message::Reply(reply));
        Ok(())
    }

    /// Tells the active side that the answer takes longer: 4.096 µs · 2^`timeout` from now on.
    /// Peers believe it once; a manager of this kind waits for 69 s at most.
    pub fn wait(&mut self, now_ns: u64, id: ConnectionId, timeout: u8) -> Result<(), NoSuchConnection> {
        let (place, remote_id) = self.in_state(id, &[State::Requested])?;
        let wait = Wait { local_id: id.0, remote_id, of: Rejected::Request, timeout: timeout & 0x1F };
        self.say(now_ns, place, State::Requested, Message::Wait(wait));
        let longer_ns = ack_timeout_ns(timeout).unwrap_or(0).max(self.limits.decide_ns);
        self.wait_until(place, Some(now_ns.saturating_add(longer_ns)));
        Ok(())
    }

    /// Rejects a request or a reply, with as much data as fits.
    pub fn reject(&mut self, now_ns: u64, id: ConnectionId, reason: u16, data: &[u8]) -> Result<(), NoSuchConnection> {
        let (place, remote_id) = self.in_state(id, &[State::Requested, State::Replied])?;
        let is_reply = self.places[place].as_ref().is_some_and(|connection| connection.state == State::Replied);
        let of = if is_reply { Rejected::Reply } else { Rejected::Request };
        let data = crate::cm::bits::padded(data);
        let reject = Reject { local_id: id.0, remote_id, of, reason, info: 0, data };
        self.say(now_ns, place, State::Gone, Message::Reject(reject));
        Ok(())
    }

    /// The queue pair is ready for the peer that a reply offered; or, on the passive side, the
    /// peer's first packet has arrived before its RTU.
    pub fn establish(&mut self, now_ns: u64, id: ConnectionId) -> Result<(), NoSuchConnection> {
        let (place, remote_id) = self.in_state(id, &[State::Replied, State::Accepting])?;
        let is_passive = self.places[place].as_ref().is_some_and(|connection| connection.is_passive);
        if is_passive {
            self.rest(place, State::Established, None);
        } else {
            self.say(now_ns, place, State::Established, Message::Ready(Ready { local_id: id.0, remote_id }));
        }
        Ok(())
    }

    /// Gives up silently on a connection that is being made: the other side gives up too, or learns
    /// by a rejection that the connection is unknown here. Established and gone connections stay as
    /// they are.
    pub fn forget(&mut self, id: ConnectionId) {
        let making = [State::Requesting, State::Replied, State::Requested];
        if let Ok((place, _)) = self.in_state(id, &making) {
            self.to_send.forget(place);
            self.rest(place, State::Gone, None);
        }
    }

    /// Ends a connection.
    pub fn disconnect(&mut self, now_ns: u64, id: ConnectionId) -> Result<(), NoSuchConnection> {
        let (place, remote_id) = self.in_state(id, &[State::Established, State::Accepting])?;
        let remote_qpn = self.places[place].as_ref().map_or(Qpn::default(), |connection| connection.remote_qpn);
        let disconnect = Disconnect { local_id: id.0, remote_id, remote_qpn };
        self.say(now_ns, place, State::Disconnecting, Message::Disconnect(disconnect));
        Ok(())
    }

    /// The next event.
    pub fn poll(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        let (Event::Requested(id, _)
        | Event::Replied(id, _)
        | Event::Established(id)
        | Event::Rejected(id, _)
        | Event::Unanswered(id)
        | Event::Disconnected(id)) = event;
        let place = self.place_of(id.0);
        if let Some(connection) = &mut self.places[place] {
            connection.unpolled -= 1;
        }
        self.free_if_gone(place);
        Some(event)
    }

    /// Whether messages wait to be sent: if not, [`transmit`](Self::transmit) returns none.
    pub fn has_messages(&self) -> bool {
        !self.answers.is_empty() || self.to_send.first().is_some()
    }

    /// The next message to send.
    pub fn transmit(&mut self) -> Option<Outgoing> {
        if let Some(answer) = self.answers.pop_front() {
            return Some(answer);
        }
        while let Some(place) = self.to_send.first() {
            self.to_send.pass();
            let outgoing = self.places[place].as_ref().and_then(|connection| {
                let mad = Mad { transaction: connection.transaction, message: connection.message? };
                Some(Outgoing { to: connection.peer, mad: mad.to_bytes() })
            });
            self.free_if_gone(place);
            if outgoing.is_some() {
                return outgoing;
            }
        }
        None
    }

    /// The latest time to call [`advance`](Self::advance).
    pub fn deadline_ns(&self) -> Option<u64> {
        self.deadlines.next_ns()
    }

    /// Makes a connection number, with the place in its low bits.
    pub(crate) fn number(&self, place: usize, random: u32) -> u32 {
        let shift = self.places.len().next_power_of_two().trailing_zeros();
        let (prefix, bits) = self.prefix;
        // No number is 0, which stands for no connection, since a prefix is not 0.
        let rest = random.checked_shl(shift).unwrap_or(0) | place as u32;
        rest & u32::MAX >> bits | prefix << (32 - bits)
    }

    /// Whether a number has this manager's prefix.
    pub(crate) fn is_own_number(&self, number: u32) -> bool {
        let (prefix, bits) = self.prefix;
        number >> (32 - bits) == prefix
    }

    pub(crate) fn place_of(&self, number: u32) -> usize {
        let mask = self.places.len().next_power_of_two() - 1;
        (number as usize & mask).min(self.places.len() - 1)
    }

    fn in_state(&self, id: ConnectionId, states: &[State]) -> Result<(usize, u32), NoSuchConnection> {
        let place = self.place_of(id.0);
        let connection = self.places[place].as_ref().filter(|connection| connection.id == id.0);
        let connection = connection.filter(|connection| states.contains(&connection.state));
        let connection = connection.ok_or(NoSuchConnection { number: id.0 })?;
        Ok((place, connection.remote_id))
    }

    /// Sends a message of a connection, and waits for the answer if one is due.
    pub(crate) fn say(&mut self, now_ns: u64, place: usize, state: State, message: Message) {
        let (timeout_ns, tries_left) = (ack_timeout_ns(self.limits.timeout), self.limits.retries);
        let waits = matches!(state, State::Requesting | State::Accepting | State::Disconnecting);
        let deadline_ns = timeout_ns.filter(|_| waits).map(|timeout_ns| now_ns.saturating_add(timeout_ns));
        if let Some(connection) = &mut self.places[place] {
            (connection.message, connection.tries_left) = (Some(message), tries_left);
            connection.is_prolonged = false;
        }
        self.to_send.ask(place);
        self.rest(place, state, deadline_ns);
    }

    /// Puts a connection into a state, until `until_ns` at most.
    pub(crate) fn rest(&mut self, place: usize, state: State, until_ns: Option<u64>) {
        if let Some(connection) = &mut self.places[place] {
            let before = std::mem::replace(&mut connection.state, state);
            if connection.is_passive {
                self.asked.go((connection.peer, connection.remote_id), before, state);
            }
            if matches!(state, State::TimeWait | State::Gone) {
                self.taken.free(&connection.queue_pair(), place);
            }
        }
        self.wait_until(place, until_ns);
        self.free_if_gone(place);
    }

    pub(crate) fn wait_until(&mut self, place: usize, until_ns: Option<u64>) {
        if let Some(connection) = &mut self.places[place] {
            connection.deadline_ns = until_ns;
            self.deadlines.forget(place);
            self.deadlines.set(place, until_ns);
        }
    }

    pub(crate) fn tell(&mut self, place: usize, event: Event) {
        if let Some(connection) = &mut self.places[place] {
            connection.unpolled += 1;
            debug_assert!(self.events.len() < self.events.capacity());
            self.events.push_back(event);
        }
    }

    fn free_if_gone(&mut self, place: usize) {
        let is_over = |connection: &Connection| connection.state == State::Gone && connection.unpolled == 0;
        if self.places[place].as_ref().is_some_and(is_over) && !self.to_send.is_asked(place) {
            self.places[place] = None;
            self.deadlines.forget(place);
            self.free.push(place);
        }
    }
}
