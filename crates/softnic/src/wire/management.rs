//! Connections over a wire: reports the connection manager's events to the connections' owners.
//!
//! Guarantees: each owner gets the events of its connection, in order, by its own function. The
//! thread that took the message in calls the functions under the wire's lock: they must be short,
//! and call nothing of a wire.

use crate::objects::fabric::SLICE_BITS;
use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::net::{IpAddr, SocketAddr};
use verbline_roce::cm::{
    Accept, Addressee, CmDiscard, Connect, ConnectionId, Event, IP_HEADER_BYTES, IpHeader, Limits, Mad, Manager,
    PortSpace, Refused, Request, packet_of, reason,
};
use verbline_roce::transport::Mtu;
use verbline_roce::wire::{Addresses, Psn, Qpn, Route};

/// The most connections of a wire at a time, including time-wait.
const CONNECTIONS_MAX: usize = 4096;

/// The terms of one end of a connection, as sent to the other end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The queue pair's number.
    pub qpn: u32,
    /// The number of the first packet to be sent to it.
    pub psn: u32,
    /// The path MTU, as verbs number it. Only a request carries it; 0 in [`News::Accepted`].
    pub mtu: u8,
    /// READs and atomics that it serves at a time.
    pub responder_resources: u8,
    /// READs and atomics that it has in flight at a time.
    pub initiator_depth: u8,
    /// The number of retransmissions.
    pub retry_count: u8,
    /// The number of retries while no receive is posted.
    pub rnr_retry: u8,
    /// The traffic class of its packets, which the answer's packets may use as well. Only a request
    /// carries it.
    pub traffic_class: u8,
    /// Whether it receives from a shared queue.
    pub srq: bool,
    /// Private data; may arrive followed by zeros.
    pub private_data: Vec<u8>,
}

/// An event of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// It was accepted, and can be established.
    Accepted(Terms),
    /// It was rejected, and is gone.
    Rejected {
        /// The reason, by the specification's number.
        reason: u16,
        /// Private data, followed by zeros.
        private_data: Vec<u8>,
    },
    /// Nobody answered, and it is gone.
    Unanswered,
    /// The other end is ready.
    Established,
    /// It has ended.
    Disconnected,
}

/// A request for a connection.
#[derive(Debug)]
pub(crate) struct Requested {
    pub(crate) id: ConnectionId,
    pub(crate) peer: SocketAddr,
    pub(crate) called: IpAddr,
    pub(crate) terms: Terms,
}

/// Takes a request; returns false if there is no room.
pub(crate) type Take = Box<dyn FnMut(Requested) -> bool + Send>;
/// Reports an event of a connection.
pub(crate) type Tell = Box<dyn FnMut(News) + Send>;

/// The owner of a connection.
struct Owner {
    /// Its queue pair.
    qpn: u32,
    /// It has accepted, and waits for the word that the other end is ready.
    accepts: bool,
    tell: Tell,
}

/// The addressee of a message: this process, or perhaps another of the address.
pub(super) enum Whose {
    Own,
    Slice(u32),
    Listener(u64),
}

pub(crate) struct Management {
    own: SocketAddr,
    slice: u32,
    /// Names the device to peers. If two devices had one name, a kernel would take their queue
    /// pairs and connections for those of one device, and end the older of two with the same
    /// number.
    guid: u64,
    manager: Manager,
    listeners: HashMap<(PortSpace, u16), Take>,
    owners: HashMap<ConnectionId, Owner>,
    /// Queue pairs whose connections were established and not yet returned by `next_established`.
    established: Vec<u32>,
    /// The number of queue pair 1's next packet.
    psn: Psn,
}

impl fmt::Debug for Management {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Management").field("own", &self.own).finish_non_exhaustive()
    }
}

/// A number that strangers can't know.
pub(crate) fn random() -> u32 {
    RandomState::new().build_hasher().finish() as u32
}

impl Management {
    pub(super) fn new(own: SocketAddr, slice: u32) -> Management {
        let limits =
            Limits { connections: CONNECTIONS_MAX, half_open_per_source: CONNECTIONS_MAX / 4, ..Limits::default() };
        let mut manager = Manager::new(limits);
        manager.number_after(slice, SLICE_BITS);
        Management {
            own,
            slice,
            guid: u64::from(random()) << 32 | u64::from(random()),
            manager,
            listeners: HashMap::new(),
            owners: HashMap::new(),
            established: Vec::new(),
            psn: Psn::new(random()),
        }
    }

    /// Sends requests to that port to `take`; returns false if the port has a listener.
    pub(super) fn listen(&mut self, (space, port): (PortSpace, u16), take: Take) -> bool {
        if self.listeners.contains_key(&(space, port)) {
            return false;
        }
        self.manager.listen(space.service_of_port(port));
        self.listeners.insert((space, port), take);
        true
    }

    /// Returns the listener, to be dropped outside the lock.
    pub(super) fn stop_listening(&mut self, (space, port): (PortSpace, u16)) -> Option<Take> {
        self.manager.stop_listening(space.service_of_port(port));
        self.listeners.remove(&(space, port))
    }

    /// Asks for a connection.
    pub(super) fn connect(
        &mut self,
        now_ns: u64,
        source_port: u16,
        (space, to): (PortSpace, SocketAddr),
        terms: &Terms,
        tell: Tell,
    ) -> Result<ConnectionId, Refused> {
        let mtu = Mtu::of_code(terms.mtu).unwrap_or(Mtu::B256);
        let (qpn, psn) = (Qpn::new(terms.qpn), Psn::new(terms.psn));
        let connect = Connect::new(self.own.ip(), to.ip(), to.port(), qpn, psn, mtu, &terms.private_data)?;
        let mut connect = connect.in_space(space);
        let header = IpHeader::new(self.own.ip(), source_port, to.ip()).ok_or(Refused::Families)?;
        connect.request.data[..IP_HEADER_BYTES].copy_from_slice(&header.to_bytes());
        let request = &mut connect.request;
        (request.responder_resources, request.initiator_depth) = (terms.responder_resources, terms.initiator_depth);
        (request.retry_count, request.rnr_retry) = (terms.retry_count, terms.rnr_retry);
        (request.shared_receives, request.ca_guid) = (terms.srq, self.guid);
        request.path.traffic_class = terms.traffic_class;
        let id = self.manager.connect(now_ns, random(), &connect)?;
        self.owners.insert(id, Owner { qpn: terms.qpn, accepts: false, tell });
        Ok(id)
    }

    /// Accepts a request; false if it is no longer there.
    pub(super) fn accept(&mut self, now_ns: u64, id: ConnectionId, terms: &Terms, tell: Tell) -> bool {
        let mut accept = Accept::new(Qpn::new(terms.qpn), Psn::new(terms.psn), &terms.private_data);
        let reply = &mut accept.reply;
        (reply.responder_resources, reply.initiator_depth) = (terms.responder_resources, terms.initiator_depth);
        (reply.rnr_retry, reply.shared_receives, reply.ca_guid) = (terms.rnr_retry, terms.srq, self.guid);
        let is_there = self.manager.accept(now_ns, id, &accept).is_ok();
        if is_there {
            self.owners.insert(id, Owner { qpn: terms.qpn, accepts: true, tell });
        }
        is_there
    }

    /// Rejects a request.
    pub(super) fn reject(&mut self, now_ns: u64, id: ConnectionId, reason: u16, data: &[u8]) {
        // A request that is gone needs no answer.
        let _ = self.manager.reject(now_ns, id, reason, data);
    }

    /// Sends the other end the word that this one is ready; returns false if the connection is
    /// gone.
    pub(super) fn establish(&mut self, now_ns: u64, id: ConnectionId) -> bool {
        let is_there = self.manager.establish(now_ns, id).is_ok();
        if is_there {
            self.note_established(id);
        }
        is_there
    }

    /// A queue pair has received its peer's first packet. So the peer is ready, though its word may
    /// be late or lost (C12-30).
    pub(super) fn hear(&mut self, now_ns: u64, qpn: u32) {
        let waits = |owner: &Owner| owner.accepts && owner.qpn == qpn;
        let found = self.owners.iter().find_map(|(id, owner)| waits(owner).then_some(*id));
        if let Some(id) = found.filter(|id| self.establish(now_ns, *id))
            && let Some(owner) = self.owners.get_mut(&id)
        {
            (owner.tell)(News::Established);
        }
    }

    fn note_established(&mut self, id: ConnectionId) {
        self.established.extend(self.owners.get(&id).map(|owner| owner.qpn));
    }

    /// The next queue pair whose connection was established.
    pub(super) fn next_established(&mut self) -> Option<u32> {
        self.established.pop()
    }

    /// Ends a connection without an owner, in whatever state it is.
    pub(super) fn end(&mut self, now_ns: u64, id: ConnectionId) {
        self.owners.remove(&id);
        if self.manager.disconnect(now_ns, id).is_err() {
            self.manager.forget(id);
        }
    }

    /// The addressee of a message, among the processes that share the address.
    pub(super) fn whose(&self, message: &verbline_roce::Management<'_>) -> Whose {
        let addressee = Mad::read(message.payload).ok();
        match addressee.map(|mad| mad.message.addressee()) {
            Some(Addressee::Service(service)) if !self.manager.listens(service) => Whose::Listener(service),
            Some(Addressee::Connection(number)) => match number >> (u32::BITS - SLICE_BITS) {
                slice if slice == self.slice || slice == 0 => Whose::Own,
                slice => Whose::Slice(slice),
            },
            Some(Addressee::Service(_)) | None => Whose::Own,
        }
    }

    /// Whether a program has a request that it has neither accepted nor rejected.
    pub(super) fn has_undecided(&self) -> bool {
        self.manager.has_undecided()
    }

    /// Takes in a message; returns false if the bytes are none.
    pub(super) fn receive(&mut self, now_ns: u64, from: IpAddr, message: &verbline_roce::Management<'_>) -> bool {
        let taken = self.manager.receive(now_ns, random(), from, message.payload);
        self.tell(now_ns, Some(from));
        // Any other discarded message was late, or was answered.
        !matches!(taken, Err(CmDiscard::Mad(_)))
    }

    pub(super) fn deadline_ns(&self) -> Option<u64> {
        self.manager.deadline_ns()
    }

    pub(super) fn advance(&mut self, now_ns: u64) {
        if self.manager.deadline_ns().is_some_and(|deadline_ns| deadline_ns <= now_ns) {
            self.manager.advance(now_ns);
            self.tell(now_ns, None);
        }
    }

    /// Whether messages wait to be sent.
    pub(super) fn has_messages(&self) -> bool {
        self.manager.has_messages()
    }

    /// Writes the next message to be sent, without its checksum.
    pub(super) fn transmit(&mut self, out: &mut [u8]) -> Option<(Route, usize)> {
        loop {
            let outgoing = self.manager.transmit()?;
            let Some(addresses) = Addresses::new(self.own.ip(), outgoing.to) else { continue };
            let route = Route { addresses, source_port: self.own.port(), traffic_class: 0 };
            let len = packet_of(&outgoing.mad, self.psn).write_unsealed(out);
            self.psn = self.psn.plus(1);
            return Some((route, len));
        }
    }

    /// Reports all events to their owners: caused by a message of `from`, or by time.
    fn tell(&mut self, now_ns: u64, from: Option<IpAddr>) {
        while let Some(event) = self.manager.poll() {
            let (id, news, is_last) = match event {
                Event::Requested(id, request) => {
                    self.requested(now_ns, from, id, &request);
                    continue;
                }
                Event::Replied(id, reply) => {
                    let terms = Terms {
                        qpn: reply.qpn.number(),
                        psn: reply.starting_psn.number(),
                        mtu: 0,
                        responder_resources: reply.responder_resources,
                        initiator_depth: reply.initiator_depth,
                        retry_count: 0,
                        rnr_retry: reply.rnr_retry,
                        traffic_class: 0,
                        srq: reply.shared_receives,
                        private_data: reply.data.to_vec(),
                    };
                    (id, News::Accepted(terms), false)
                }
                Event::Established(id) => {
                    self.note_established(id);
                    (id, News::Established, false)
                }
                Event::Rejected(id, reject) => {
                    (id, News::Rejected { reason: reject.reason, private_data: reject.data.to_vec() }, true)
                }
                Event::Unanswered(id) => (id, News::Unanswered, true),
                Event::Disconnected(id) => (id, News::Disconnected, true),
            };
            if let Some(owner) = self.owners.get_mut(&id) {
                (owner.tell)(news);
            }
            if is_last {
                self.owners.remove(&id);
            }
        }
    }

    fn requested(&mut self, now_ns: u64, from: Option<IpAddr>, id: ConnectionId, request: &Request) {
        // The queue pair's packets go to the address in the message, so a sender may not name
        // another's.
        let said = request.ip().map(ends).filter(|(peer, _)| from.is_none_or(|from| from == peer.ip()));
        let Some((peer, called)) = said else {
            return self.reject(now_ns, id, reason::UNSUPPORTED, b"another sender's address");
        };
        if called != self.own.ip() {
            return self.reject(now_ns, id, reason::INVALID_GID, b"another receiver's address");
        }
        let Some((space, port)) = request.port() else {
            return self.reject(now_ns, id, reason::INVALID_SERVICE, &[]);
        };
        let terms = Terms {
            qpn: request.qpn.number(),
            psn: request.starting_psn.number(),
            mtu: request.mtu.code(),
            responder_resources: request.responder_resources,
            initiator_depth: request.initiator_depth,
            retry_count: request.retry_count,
            rnr_retry: request.rnr_retry,
            traffic_class: request.path.traffic_class,
            srq: request.shared_receives,
            private_data: request.user_data().to_vec(),
        };
        let take = self.listeners.get_mut(&(space, port));
        let is_taken = take.is_some_and(|take| take(Requested { id, peer, called, terms }));
        if !is_taken {
            self.reject(now_ns, id, reason::NO_RESOURCES, &[]);
        }
    }
}

/// The requester's address, and the requested one.
fn ends(header: IpHeader) -> (SocketAddr, IpAddr) {
    match header {
        IpHeader::V4 { source_port, source, destination } => ((source, source_port).into(), destination.into()),
        IpHeader::V6 { source_port, source, destination } => ((source, source_port).into(), destination.into()),
    }
}

#[cfg(test)]
pub(super) mod tests;
