//! State changes of connections by messages and by time.

use crate::cm::bits::padded;
use crate::cm::connection::{CmDiscard, Connection, ConnectionId, Event, State};
use crate::cm::mad::{Mad, MadError, Message};
use crate::cm::manager::{Manager, Outgoing};
use crate::cm::notices::{Disconnect, Disconnected, Ready, Reject, Rejected, Resolve, Resolved, Wait, reason};
use crate::cm::reply::Reply;
use crate::cm::request::Request;
use crate::transport::ack_timeout_ns;
use crate::wire::{DEFAULT_PKEY, Qpn};
use std::net::IpAddr;

/// The extension that a passive side asks for by MRA, and the longest that an active side gets: 8.6
/// s.
const WAIT_MAX: u8 = 21;
/// The longest that a passive side gets: 69 s, as long as the kernel's `rdma_cm` asks for.
const DECIDE_MAX: u8 = 24;

impl Manager {
    /// Takes in a message that `from` sent to queue pair 1. `random` makes the number of a new
    /// connection hard to guess.
    pub fn receive(&mut self, now_ns: u64, random: u32, from: IpAddr, mad: &[u8]) -> Result<(), CmDiscard> {
        let read = Mad::read(mad);
        if let (Err(MadError::Mtu(_)), Some((transaction, local_id))) = (read, Mad::numbers(mad)) {
            return Err(self.refuse(from, transaction, local_id, reason::INVALID_MTU));
        }
        let Mad { transaction, message } = read?;
        match message {
            Message::Request(request) => self.request(now_ns, random, from, transaction, request),
            Message::Reply(reply) => self.reply(now_ns, from, transaction, reply),
            Message::Ready(ready) => self.ready(from, ready),
            Message::Reject(reject) => self.rejected(from, reject),
            Message::Wait(wait) => self.longer(now_ns, from, wait),
            Message::Disconnect(disconnect) => self.ends(now_ns, from, transaction, disconnect),
            Message::Disconnected(disconnected) => self.ended(now_ns, from, disconnected),
            Message::Resolve(resolve) => Err(self.unresolved(from, transaction, resolve)),
            Message::Resolved(_) => Err(CmDiscard::NoConnection),
        }
    }

    /// Finds our connection that a message from this address refers to.
    fn connection(&self, from: IpAddr, ours: u32) -> Result<(usize, &Connection), CmDiscard> {
        let place = self.place_of(ours);
        let connection = self.places[place].as_ref();
        let connection = connection.filter(|connection| connection.id == ours && connection.peer == from);
        Ok((place, connection.ok_or(CmDiscard::NoConnection)?))
    }

    /// Finds our connection that the peer has by the number `theirs`. An active side doesn't know
    /// that number before the reply.
    fn connection_of(&self, from: IpAddr, ours: u32, theirs: u32) -> Result<(usize, &Connection), CmDiscard> {
        let (place, connection) = self.connection(from, ours)?;
        let is_it = connection.state == State::Requesting || connection.remote_id == theirs;
        is_it.then_some((place, connection)).ok_or(CmDiscard::NoConnection)
    }

    fn request(
        &mut self,
        now_ns: u64,
        random: u32,
        from: IpAddr,
        transaction: u64,
        request: Request,
    ) -> Result<(), CmDiscard> {
        let remote = (from, request.local_id);
        if let Some(place) = self.asked.place_of(remote) {
            let state = self.places[place].as_ref().map(|connection| connection.state);
            // Our answer was lost, or is on its way.
            if matches!(state, Some(State::Accepting | State::Requested)) {
                self.ask_for_time(now_ns, place, &request);
                self.to_send.ask(place);
            }
            // Our answer was lost, and the connection has ended since; or the peer has restarted.
            if matches!(state, Some(State::Disconnecting | State::TimeWait)) {
                self.refuse(from, transaction, request.local_id, reason::STALE);
            }
            return Err(CmDiscard::Duplicate);
        }
        let queue_pair = (from, request.ca_guid, request.qpn.number());
        if let Some(place) = self.taken.place_of(&queue_pair) {
            self.end_stale(now_ns, place);
            return Err(self.refuse(from, transaction, request.local_id, reason::STALE));
        }
        let why = if !self.services.contains(&request.service) {
            Some(reason::INVALID_SERVICE)
        } else if !request.has_transport() {
            Some(reason::INVALID_TRANSPORT)
        } else if request.qpn.is_reserved() || !is_default(request.pkey) {
            Some(reason::UNSUPPORTED)
        } else if self.asked.half_open(from) >= self.limits.half_open_per_source {
            Some(reason::NO_RESOURCES)
        } else {
            None
        };
        let place = if why.is_none() { self.free.pop() } else { None };
        let Some(place) = place else {
            return Err(self.refuse(from, transaction, request.local_id, why.unwrap_or(reason::NO_RESOURCES)));
        };
        let id = self.number(place, random);
        let deadline_ns = Some(now_ns.saturating_add(self.limits.decide_ns));
        self.places[place] = Some(Connection {
            id,
            peer: from,
            remote_id: request.local_id,
            remote_qpn: request.qpn,
            remote_guid: request.ca_guid,
            own_qpn: None,
            transaction,
            state: State::Requested,
            message: None,
            deadline_ns,
            tries_left: 0,
            is_prolonged: false,
            unpolled: 0,
            ca_guid: 0,
            is_passive: true,
        });
        self.asked.begin(remote, place);
        self.taken.take(queue_pair, place);
        self.wait_until(place, deadline_ns);
        self.tell(place, Event::Requested(ConnectionId(id), request));
        Ok(())
    }

    /// Handles a repeated request that the program has not decided on. Once half of the active
    /// side's total waiting time is over, it gets an MRA, now and for each further repetition.
    fn ask_for_time(&mut self, now_ns: u64, place: usize, request: &Request) {
        let Some(connection) = &mut self.places[place] else { return };
        let tries = 1 + u64::from(request.cm_retries);
        let asks_ns = ack_timeout_ns(request.remote_response_timeout).unwrap_or(0) * tries;
        let left_ns = connection.deadline_ns.unwrap_or(0).saturating_sub(now_ns);
        let is_late = left_ns.saturating_add(asks_ns / 2) <= self.limits.decide_ns;
        // The reply, and the program's own MRA, are repeated as they are.
        if connection.message.is_none() && is_late {
            let (local_id, remote_id) = (connection.id, connection.remote_id);
            let wait = Wait { local_id, remote_id, of: Rejected::Request, timeout: WAIT_MAX };
            connection.message = Some(Message::Wait(wait));
        }
    }

    /// Rejects a request without a connection; `remote_id` is its number at the sender.
    fn refuse(&mut self, from: IpAddr, transaction: u64, remote_id: u32, reason: u16) -> CmDiscard {
        let (of, data) = (Rejected::Request, padded(&[]));
        let reject = Reject { local_id: 0, remote_id, of, reason, info: 0, data };
        self.answer(from, transaction, Message::Reject(reject));
        CmDiscard::Rejected(reason)
    }

    /// Answers a question for a service's datagram queue pair: there is none, so the peer need not
    /// wait for its time-outs.
    fn unresolved(&mut self, from: IpAddr, transaction: u64, resolve: Resolve) -> CmDiscard {
        let Resolve { request_id, service } = resolve;
        let resolved = Resolved { request_id, status: Resolved::UNSUPPORTED, service };
        self.answer(from, transaction, Message::Resolved(resolved));
        CmDiscard::Rejected(reason::INVALID_SERVICE)
    }

    /// Ends a connection whose peer has lost it: a new one names the same queue pair. A request
    /// that the program has not decided on stays, as the kernel's does.
    fn end_stale(&mut self, now_ns: u64, place: usize) {
        if let Some(id) = self.places[place].as_ref().map(|connection| connection.id) {
            let _ = self.disconnect(now_ns, ConnectionId(id));
        }
    }

    fn reply(&mut self, now_ns: u64, from: IpAddr, answers: u64, reply: Reply) -> Result<(), CmDiscard> {
        let found = self.connection(from, reply.remote_id);
        let found = found.map(|(place, found)| (place, found.id, found.remote_id, found.transaction, found.state));
        let (place, id, remote_id, transaction, state) = found.inspect_err(|_| self.unknown(from, answers, &reply))?;
        match state {
            State::Requesting => {
                let queue_pair = (from, reply.ca_guid, reply.qpn.number());
                let stale = self.taken.place_of(&queue_pair);
                if stale.is_some() || reply.qpn.is_reserved() {
                    let reason = stale.map_or(reason::UNSUPPORTED, |_| reason::STALE);
                    stale.into_iter().for_each(|stale| self.end_stale(now_ns, stale));
                    let (of, data) = (Rejected::Reply, padded(&[]));
                    let reject = Reject { local_id: id, remote_id: reply.local_id, of, reason, info: 0, data };
                    self.tell(place, Event::Rejected(ConnectionId(id), reject));
                    self.say(now_ns, place, State::Gone, Message::Reject(reject));
                    return Err(CmDiscard::Rejected(reason));
                }
                self.taken.take(queue_pair, place);
                let decide_ns = now_ns.saturating_add(self.limits.decide_ns);
                if let Some(connection) = &mut self.places[place] {
                    (connection.remote_id, connection.remote_qpn) = (reply.local_id, reply.qpn);
                    connection.remote_guid = reply.ca_guid;
                    connection.message = None;
                }
                self.rest(place, State::Replied, Some(decide_ns));
                self.tell(place, Event::Replied(ConnectionId(id), reply));
                Ok(())
            }
            // Our RTU was lost. After the end of the connection it is not repeated.
            State::Established if remote_id == reply.local_id => {
                let ready = Message::Ready(Ready { local_id: id, remote_id });
                self.answer(from, transaction, ready);
                Err(CmDiscard::Duplicate)
            }
            _ => Err(CmDiscard::Duplicate),
        }
    }

    /// Rejects a reply to an unknown connection, so that its sender need not keep one open. If the
    /// number belongs to another manager, that manager decides.
    fn unknown(&mut self, from: IpAddr, transaction: u64, reply: &Reply) {
        if self.is_own_number(reply.remote_id) {
            let (local_id, remote_id, data) = (reply.remote_id, reply.local_id, padded(&[]));
            let reject = Reject { local_id, remote_id, of: Rejected::Reply, reason: reason::INVALID_ID, info: 0, data };
            self.answer(from, transaction, Message::Reject(reject));
        }
    }

    fn ready(&mut self, from: IpAddr, ready: Ready) -> Result<(), CmDiscard> {
        let (place, connection) = self.connection(from, ready.remote_id)?;
        let id = connection.id;
        if connection.remote_id != ready.local_id {
            return Err(CmDiscard::NoConnection);
        }
        if connection.state != State::Accepting {
            return Err(CmDiscard::Duplicate);
        }
        self.rest(place, State::Established, None);
        self.tell(place, Event::Established(ConnectionId(id)));
        Ok(())
    }

    /// The number of our connection that an active side gives up before it knows that number: it
    /// names its device instead.
    fn given_up_by(&self, from: IpAddr, reject: &Reject) -> Option<u32> {
        if (reject.reason, reject.remote_id) != (reason::TIMEOUT, 0) {
            return None;
        }
        let connection = self.places[self.asked.place_of((from, reject.local_id))?].as_ref()?;
        (connection.remote_guid == reject.info).then_some(connection.id)
    }

    fn rejected(&mut self, from: IpAddr, reject: Reject) -> Result<(), CmDiscard> {
        let ours = self.given_up_by(from, &reject).unwrap_or(reject.remote_id);
        let (place, connection) = self.connection(from, ours)?;
        let (id, state) = (connection.id, connection.state);
        // The peer may have no number for the connection, and then sends 0.
        if state != State::Requesting && connection.remote_id != reject.local_id && reject.local_id != 0 {
            return Err(CmDiscard::NoConnection);
        }
        // An established active side whose RTUs were all lost gets the rejection too.
        let is_given_up = state == State::Established
            && !connection.is_passive
            && reject.of == Rejected::Reply
            && connection.remote_id == reject.local_id;
        let is_made = matches!(state, State::Requesting | State::Replied | State::Requested | State::Accepting);
        if !(is_made || is_given_up) {
            return Err(CmDiscard::Duplicate);
        }
        self.to_send.forget(place);
        self.tell(place, Event::Rejected(ConnectionId(id), reject));
        self.rest(place, State::Gone, None);
        Ok(())
    }

    /// Grants the peer more time to answer, once for each message.
    fn longer(&mut self, now_ns: u64, from: IpAddr, wait: Wait) -> Result<(), CmDiscard> {
        let (place, connection) = self.connection_of(from, wait.remote_id, wait.local_id)?;
        let longest = match (connection.state, wait.of) {
            (State::Requesting, Rejected::Request) => Some(DECIDE_MAX),
            (State::Accepting, Rejected::Reply) => Some(WAIT_MAX),
            _ => None,
        };
        let longest = longest.filter(|_| !connection.is_prolonged).ok_or(CmDiscard::Duplicate)?;
        if let Some(connection) = &mut self.places[place] {
            connection.is_prolonged = true;
        }
        let longer_ns = ack_timeout_ns(wait.timeout.min(longest)).unwrap_or(0);
        let timeout_ns = ack_timeout_ns(self.limits.timeout).unwrap_or(0);
        self.wait_until(place, Some(now_ns.saturating_add(longer_ns).saturating_add(timeout_ns)));
        Ok(())
    }

    fn ends(&mut self, now_ns: u64, from: IpAddr, transaction: u64, disconnect: Disconnect) -> Result<(), CmDiscard> {
        let bye = Disconnected { local_id: disconnect.remote_id, remote_id: disconnect.local_id };
        let found = self.connection(from, disconnect.remote_id);
        let is_own = |qpn: Option<Qpn>| qpn.is_none_or(|own| own == disconnect.remote_qpn);
        let is_its =
            |connection: &Connection| connection.remote_id == disconnect.local_id && is_own(connection.own_qpn);
        let found = found.map(|(place, connection)| (place, connection.id, is_its(connection), connection.state));
        let (place, id, _, state) = match found {
            Ok(found) if found.2 => found,
            // The peer's number came in a reply that was lost or is yet to come. DREP frees the
            // peer from waiting; it rejects a further request.
            Ok((.., State::Requesting)) => {
                self.answer(from, transaction, Message::Disconnected(bye));
                return Err(CmDiscard::NoConnection);
            }
            Ok(_) => return Err(CmDiscard::NoConnection),
            // The connection is unknown here, perhaps after a restart: DREP frees the peer from
            // waiting.
            Err(why) => {
                self.answer(from, transaction, Message::Disconnected(bye));
                return Err(why);
            }
        };
        self.answer(from, transaction, Message::Disconnected(bye));
        if matches!(state, State::TimeWait | State::Gone | State::Requesting | State::Requested) {
            return Err(CmDiscard::Duplicate);
        }
        self.over(now_ns, place, id);
        Ok(())
    }

    fn ended(&mut self, now_ns: u64, from: IpAddr, disconnected: Disconnected) -> Result<(), CmDiscard> {
        let (place, connection) = self.connection_of(from, disconnected.remote_id, disconnected.local_id)?;
        let id = connection.id;
        if connection.state != State::Disconnecting {
            return Err(CmDiscard::Duplicate);
        }
        self.over(now_ns, place, id);
        Ok(())
    }

    /// Ends a connection: its numbers rest for a while.
    fn over(&mut self, now_ns: u64, place: usize, id: u32) {
        self.to_send.forget(place);
        self.tell(place, Event::Disconnected(ConnectionId(id)));
        self.rest(place, State::TimeWait, Some(now_ns.saturating_add(self.limits.time_wait_ns)));
    }

    /// Queues a message outside of a connection's sequence; drops it if too many answers wait
    /// already.
    fn answer(&mut self, to: IpAddr, transaction: u64, message: Message) {
        if self.answers.len() < self.limits.answers {
            self.answers.push_back(Outgoing { to, mad: Mad { transaction, message }.to_bytes() });
        }
    }

    /// Lets time pass: repeats messages without an answer, or gives up.
    pub fn advance(&mut self, now_ns: u64) {
        while let Some(place) = self.deadlines.take_due(now_ns) {
            let Some(connection) = &mut self.places[place] else { continue };
            let (id, state) = (connection.id, connection.state);
            let repeats = matches!(state, State::Requesting | State::Accepting | State::Disconnecting);
            if repeats && connection.tries_left > 0 {
                connection.tries_left -= 1;
                let timeout_ns = ack_timeout_ns(self.limits.timeout).unwrap_or(1);
                self.wait_until(place, Some(now_ns.saturating_add(timeout_ns)));
                self.to_send.ask(place);
                continue;
            }
            match state {
                State::Disconnecting => self.over(now_ns, place, id),
                State::TimeWait => self.rest(place, State::Gone, None),
                State::Requesting | State::Accepting | State::Requested | State::Replied => {
                    let of = match state {
                        State::Requesting | State::Requested => Rejected::Request,
                        _ => Rejected::Reply,
                    };
                    let (remote_id, info, data) = (connection.remote_id, connection.ca_guid, padded(&[]));
                    let reject = Reject { local_id: id, remote_id, of, reason: reason::TIMEOUT, info, data };
                    self.tell(place, Event::Unanswered(ConnectionId(id)));
                    self.say(now_ns, place, State::Gone, Message::Reject(reject));
                }
                State::Established | State::Gone => {}
            }
        }
    }
}

/// Whether a partition is the default one, as a full or a limited member.
fn is_default(pkey: u16) -> bool {
    const MEMBER: u16 = 0x7FFF;
    pkey & MEMBER == DEFAULT_PKEY & MEMBER
}
