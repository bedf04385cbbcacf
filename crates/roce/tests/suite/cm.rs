//! Connections, message by message.

use std::net::IpAddr;

use verbline_roce::cm::{
    Accept, Addressee, CmDiscard, Connect, ConnectionId, Event, Limits, MAD_BYTES, Mad, Manager, Message, Outgoing,
    PortSpace, Refused, Rejected, Request, reason,
};
use verbline_roce::transport::{Mtu, ack_timeout_ns};
use verbline_roce::wire::{Psn, Qpn};

const PORT: u16 = 4420;
const QPNS: [Qpn; 2] = [Qpn::new(0x11), Qpn::new(0x22)];

pub(crate) fn address(which: u8) -> IpAddr {
    [10, 0, 0, which].into()
}

pub(crate) fn connect(from: u8, to: u8) -> Connect {
    connect_by(from, to, QPNS[0])
}

pub(crate) fn connect_by(from: u8, to: u8, qpn: Qpn) -> Connect {
    Connect::new(address(from), address(to), PORT, qpn, Psn::new(1), Mtu::B1024, b"hello").expect("one family")
}

pub(crate) fn accept() -> Accept {
    accept_by(QPNS[1])
}

pub(crate) fn accept_by(qpn: Qpn) -> Accept {
    Accept::new(qpn, Psn::new(2), b"welcome")
}

pub(crate) const LIMITS: Limits = Limits {
    connections: 4,
    half_open_per_source: 2,
    answers: 3,
    timeout: 10,
    retries: 2,
    decide_ns: 1_000_000_000,
    time_wait_ns: 500_000_000,
};

pub(crate) struct Two {
    pub(crate) client: Manager,
    pub(crate) server: Manager,
}

/// The queue pair that a side has for its connection of that index.
pub(crate) fn qpn_of(side: usize, index: u32) -> Qpn {
    Qpn::new(QPNS[side].number() + 0x100 * index)
}

pub(crate) fn two() -> Two {
    let mut two = Two { client: Manager::new(LIMITS), server: Manager::new(LIMITS) };
    two.server.listen(PortSpace::Reliable.service_of_port(PORT));
    two
}

impl Two {
    pub(crate) fn bring_server(&mut self, outgoing: &Outgoing) -> Result<(), CmDiscard> {
        self.server.receive(0, 0x5E5E, address(1), &outgoing.mad)
    }

    pub(crate) fn bring_client(&mut self, outgoing: &Outgoing) -> Result<(), CmDiscard> {
        self.client.receive(0, 0xC1C1, address(2), &outgoing.mad)
    }

    /// Sends a request to the server.
    pub(crate) fn requested(&mut self) -> (ConnectionId, ConnectionId, Request) {
        self.requested_by(QPNS[0])
    }

    pub(crate) fn requested_by(&mut self, qpn: Qpn) -> (ConnectionId, ConnectionId, Request) {
        let id = self.client.connect(0, 77, &connect_by(1, 2, qpn)).expect("room");
        let sent = self.client.transmit().expect("a request");
        self.bring_server(&sent).expect("taken");
        let Some(Event::Requested(incoming, request)) = self.server.poll() else { panic!() };
        (id, incoming, request)
    }

    pub(crate) fn established(&mut self) -> (ConnectionId, ConnectionId) {
        self.established_as(0)
    }

    /// Makes the connection of that index, between queue pairs of its own.
    pub(crate) fn established_as(&mut self, index: u32) -> (ConnectionId, ConnectionId) {
        let (id, incoming, _) = self.requested_by(qpn_of(0, index));
        self.server.accept(0, incoming, &accept_by(qpn_of(1, index))).expect("requested");
        let reply = self.server.transmit().expect("a reply");
        self.bring_client(&reply).expect("taken");
        assert!(matches!(self.client.poll(), Some(Event::Replied(replied, _)) if replied == id));
        self.client.establish(0, id).expect("replied");
        let ready = self.client.transmit().expect("ready");
        self.bring_server(&ready).expect("taken");
        assert_eq!(self.server.poll(), Some(Event::Established(incoming)));
        (id, incoming)
    }
}

fn message(outgoing: &Outgoing) -> Message {
    Mad::read(&outgoing.mad).expect("a message").message
}

#[test]
fn a_connection_is_made_and_ended() {
    let mut two = two();
    let (id, incoming) = two.established();
    assert_eq!((two.client.deadline_ns(), two.server.deadline_ns()), (None, None));
    two.server.disconnect(0, incoming).expect("established");
    let request = two.server.transmit().expect("a request");
    let Message::Disconnect(said) = message(&request) else { panic!() };
    assert_eq!((said.remote_qpn, said.remote_id), (QPNS[0], id.number()));
    two.bring_client(&request).expect("taken");
    assert_eq!(two.client.poll(), Some(Event::Disconnected(id)));
    let reply = two.client.transmit().expect("a reply");
    two.bring_server(&reply).expect("taken");
    assert_eq!(two.server.poll(), Some(Event::Disconnected(incoming)));
    // In time-wait a request is answered again; then the place is free.
    assert_eq!(two.bring_client(&request), Err(CmDiscard::Duplicate));
    assert_eq!(two.client.transmit(), Some(reply));
    assert_eq!((two.client.len(), two.server.len()), (1, 1));
    for manager in [&mut two.client, &mut two.server] {
        assert_eq!(manager.deadline_ns(), Some(LIMITS.time_wait_ns));
        manager.advance(LIMITS.time_wait_ns);
        assert!(manager.is_empty() && manager.deadline_ns().is_none());
        assert!(manager.disconnect(0, id).is_err());
    }
}

/// The addressee of each message, where several managers share an address.
#[test]
fn messages_name_the_service_or_the_connection_that_they_are_for() {
    let mut two = two();
    two.client.number_after(3, 5);
    two.server.number_after(31, 5);
    let service = PortSpace::Reliable.service_of_port(PORT);
    assert!(two.server.listens(service) && !two.client.listens(service));
    let first = |addressee| match addressee {
        Addressee::Connection(number) => number >> (32 - 5),
        Addressee::Service(_) => panic!("a connection's"),
    };
    let id = two.client.connect(0, u32::MAX, &connect(1, 2)).expect("room");
    let request = two.client.transmit().expect("a request");
    assert_eq!(message(&request).addressee(), Addressee::Service(service));
    two.bring_server(&request).expect("taken");
    let Some(Event::Requested(incoming, _)) = two.server.poll() else { panic!() };
    assert!(two.server.has_undecided());
    two.server.accept(0, incoming, &accept()).expect("requested");
    assert!(!two.server.has_undecided());
    let reply = two.server.transmit().expect("a reply");
    assert_eq!(first(message(&reply).addressee()), 3);
    two.bring_client(&reply).expect("taken");
    assert!(two.client.poll().is_some());
    two.client.establish(0, id).expect("replied");
    let ready = two.client.transmit().expect("ready");
    assert_eq!(first(message(&ready).addressee()), 31);
    two.bring_server(&ready).expect("taken");
    two.client.disconnect(0, id).expect("established");
    let disconnect = two.client.transmit().expect("the end");
    assert_eq!(first(message(&disconnect).addressee()), 31);
}

#[test]
fn requests_and_replies_carry_what_programs_say() {
    let mut two = two();
    let (_, incoming, request) = two.requested();
    assert_eq!((request.qpn, request.starting_psn, request.mtu), (QPNS[0], Psn::new(1), Mtu::B1024));
    assert_eq!((request.port(), &request.user_data()[..6]), (Some((PortSpace::Reliable, PORT)), &b"hello\0"[..]));
    two.server.accept(0, incoming, &accept()).expect("requested");
    let reply = two.server.transmit().expect("a reply");
    two.bring_client(&reply).expect("taken");
    let Some(Event::Replied(_, reply)) = two.client.poll() else { panic!() };
    assert_eq!((reply.qpn, reply.starting_psn, &reply.data[..8]), (QPNS[1], Psn::new(2), &b"welcome\0"[..]));
}

/// Each kind of connection has a port space of its own, and a request names its kind twice.
#[test]
fn a_port_is_for_one_kind_of_connection() {
    let (reliable, unreliable) = (connect(1, 2), connect(1, 2).in_space(PortSpace::Unreliable));
    assert_eq!((unreliable.request.port(), unreliable.request.service_type), (Some((PortSpace::Unreliable, PORT)), 1));
    let disagrees = |service_type| {
        let mut connect = if service_type == 1 { reliable } else { unreliable };
        connect.request.service_type = service_type;
        connect
    };
    for (space, asked, refused) in [
        (PortSpace::Reliable, reliable, None),
        (PortSpace::Unreliable, unreliable, None),
        (PortSpace::Reliable, unreliable, Some(reason::INVALID_SERVICE)),
        (PortSpace::Unreliable, reliable, Some(reason::INVALID_SERVICE)),
        (PortSpace::Reliable, disagrees(1), Some(reason::INVALID_TRANSPORT)),
        (PortSpace::Unreliable, disagrees(0), Some(reason::INVALID_TRANSPORT)),
    ] {
        let mut two = Two { client: Manager::new(LIMITS), server: Manager::new(LIMITS) };
        two.server.listen(space.service_of_port(PORT));
        two.client.connect(0, 77, &asked).expect("room");
        let sent = two.client.transmit().expect("a request");
        assert_eq!(two.bring_server(&sent).err(), refused.map(CmDiscard::Rejected), "{space:?} {asked:?}");
        assert_eq!(two.server.poll().is_some(), refused.is_none());
    }
}

#[test]
fn a_request_is_rejected_with_a_reason() {
    let mut two = two();
    let (id, incoming, _) = two.requested();
    two.server.reject(0, incoming, reason::CONSUMER, b"no").expect("requested");
    assert_eq!(two.server.len(), 1, "until it was said");
    let reject = two.server.transmit().expect("a rejection");
    assert!(two.server.is_empty());
    two.bring_client(&reject).expect("taken");
    let Some(Event::Rejected(rejected, said)) = two.client.poll() else { panic!() };
    assert_eq!(
        (rejected, said.of, said.reason, &said.data[..2]),
        (id, Rejected::Request, reason::CONSUMER, &b"no"[..])
    );
    assert!(two.client.is_empty());
    // A reply is rejected in the same way.
    let (id, incoming, _) = two.requested();
    two.server.accept(0, incoming, &accept()).expect("requested");
    let reply = two.server.transmit().expect("a reply");
    two.bring_client(&reply).expect("taken");
    two.client.reject(0, id, reason::CONSUMER, b"").expect("replied");
    let reject = two.client.transmit().expect("a rejection");
    two.bring_server(&reject).expect("taken");
    let Some(Event::Rejected(rejected, said)) = two.server.poll() else { panic!() };
    assert_eq!((rejected, said.of), (incoming, Rejected::Reply));
    two.client.poll();
    assert!(two.server.is_empty() && two.client.is_empty());
}

#[test]
fn nobody_listens_or_there_is_no_room() {
    let mut two = two();
    two.server.stop_listening(PortSpace::Reliable.service_of_port(PORT));
    two.client.connect(0, 1, &connect(1, 2)).expect("room");
    let sent = two.client.transmit().expect("a request");
    assert_eq!(two.bring_server(&sent), Err(CmDiscard::Rejected(reason::INVALID_SERVICE)));
    let reject = two.server.transmit().expect("a rejection");
    two.bring_client(&reject).expect("taken");
    assert!(matches!(two.client.poll(), Some(Event::Rejected(_, said)) if said.reason == reason::INVALID_SERVICE));
    // The limits are all places, and the share of one address.
    two.server.listen(PortSpace::Reliable.service_of_port(PORT));
    let mut results = Vec::new();
    for from in [1, 1, 1, 3, 4, 5] {
        let mut asker = Manager::new(LIMITS);
        let connect = connect_by(from, 2, qpn_of(0, results.len() as u32));
        asker.connect(0, u32::from(from) + results.len() as u32, &connect).expect("room");
        let sent = asker.transmit().expect("a request");
        results.push(two.server.receive(0, results.len() as u32, address(from), &sent.mad));
    }
    let full = Err(CmDiscard::Rejected(reason::NO_RESOURCES));
    assert_eq!(results, [Ok(()), Ok(()), full, Ok(()), Ok(()), full]);
    for _ in 0..LIMITS.connections {
        two.client.connect(0, 1, &connect(1, 2)).expect("room");
    }
    assert_eq!(two.client.connect(0, 1, &connect(1, 2)), Err(Refused::Full { connections: 4 }));
    // Half-open ones expire, and their places are free.
    two.server.advance(LIMITS.decide_ns);
    while two.server.transmit().is_some() || two.server.poll().is_some() {}
    assert!(two.server.is_empty());
    let v6: IpAddr = "::1".parse().expect("an address");
    let mixed = Connect::new(v6, address(2), PORT, QPNS[0], Psn::new(1), Mtu::B256, b"");
    assert_eq!(mixed, Err(Refused::Families));
}

/// Regression: a peer that made connections, ended them at once, and answered no DREQ, had all
/// places.
#[test]
fn connections_that_end_count_as_half_open_until_their_numbers_are_free() {
    let mut two = two();
    for ended in [0, 1].map(|index| two.established_as(index).1) {
        two.server.disconnect(0, ended).expect("established");
    }
    while two.server.transmit().is_some() {}
    two.client.connect(0, 1, &connect_by(1, 2, qpn_of(0, 2))).expect("room");
    let sent = two.client.transmit().expect("a request");
    assert_eq!(two.bring_server(&sent), Err(CmDiscard::Rejected(reason::NO_RESOURCES)));
    while let Some(due_ns) = two.server.deadline_ns() {
        two.server.advance(due_ns);
        while two.server.transmit().is_some() || two.server.poll().is_some() {}
    }
    assert!(two.server.is_empty());
    assert_eq!(two.bring_server(&sent), Ok(()));
}

#[test]
fn what_is_not_answered_is_said_again_and_given_up() {
    let mut two = two();
    let id = two.client.connect(0, 1, &connect(1, 2)).expect("room");
    let timeout_ns = ack_timeout_ns(LIMITS.timeout).expect("a time-out");
    let first = two.client.transmit().expect("a request");
    let mut now_ns = 0;
    for _ in 0..LIMITS.retries {
        now_ns += timeout_ns;
        assert_eq!((two.client.transmit(), two.client.deadline_ns()), (None, Some(now_ns)));
        two.client.advance(now_ns);
        assert_eq!(two.client.transmit().as_ref(), Some(&first));
    }
    two.client.advance(now_ns + timeout_ns);
    assert_eq!(two.client.poll(), Some(Event::Unanswered(id)));
    let Message::Reject(reject) = message(&two.client.transmit().expect("a rejection")) else { panic!() };
    assert_eq!(reject.reason, reason::TIMEOUT);
    assert!(two.client.is_empty());
}

#[test]
fn one_who_needs_longer_is_waited_for() {
    let mut two = two();
    let (_, incoming, _) = two.requested();
    two.server.wait(0, incoming, 18).expect("requested");
    let wait = two.server.transmit().expect("a message");
    two.bring_client(&wait).expect("taken");
    let longer_ns = ack_timeout_ns(18).expect("a time-out") + ack_timeout_ns(LIMITS.timeout).expect("one");
    assert_eq!(two.client.deadline_ns(), Some(longer_ns));
    two.server.accept(0, incoming, &accept()).expect("still requested");
    let reply = two.server.transmit().expect("a reply");
    two.bring_client(&reply).expect("taken");
    assert!(matches!(two.client.poll(), Some(Event::Replied(..))));
}

#[test]
fn what_comes_twice_is_answered_once_each_and_changes_nothing() {
    let mut two = two();
    let id = two.client.connect(0, 77, &connect(1, 2)).expect("room");
    let request = two.client.transmit().expect("a request");
    two.bring_server(&request).expect("taken");
    assert_eq!(two.bring_server(&request), Err(CmDiscard::Duplicate));
    let Some(Event::Requested(incoming, _)) = two.server.poll() else { panic!() };
    assert_eq!((two.server.poll(), two.server.transmit()), (None, None));
    two.server.accept(0, incoming, &accept()).expect("requested");
    let reply = two.server.transmit().expect("a reply");
    assert_eq!(two.bring_server(&request), Err(CmDiscard::Duplicate));
    assert_eq!(two.server.transmit(), Some(reply), "the reply was lost, perhaps");
    two.bring_client(&reply).expect("taken");
    assert_eq!(two.bring_client(&reply), Err(CmDiscard::Duplicate));
    assert_eq!(two.client.transmit(), None, "the program has not said yes");
    two.client.establish(0, id).expect("replied");
    let ready = two.client.transmit().expect("ready");
    assert_eq!(two.bring_client(&reply), Err(CmDiscard::Duplicate));
    assert_eq!(two.client.transmit(), Some(ready), "it was lost, perhaps");
    two.bring_server(&ready).expect("taken");
    assert_eq!(two.bring_server(&ready), Err(CmDiscard::Duplicate));
    assert_eq!(two.bring_server(&request), Err(CmDiscard::Duplicate));
    assert_eq!((two.server.transmit(), two.server.poll()), (None, Some(Event::Established(incoming))));
}

#[test]
fn data_may_come_before_the_message_that_says_so() {
    let mut two = two();
    let (id, incoming, _) = two.requested();
    two.server.accept(0, incoming, &accept()).expect("requested");
    let reply = two.server.transmit().expect("a reply");
    two.server.establish(0, incoming).expect("accepted");
    assert_eq!(two.server.deadline_ns(), None, "nothing is waited for any longer");
    two.bring_client(&reply).expect("taken");
    two.client.establish(0, id).expect("replied");
    let ready = two.client.transmit().expect("ready");
    assert_eq!(two.bring_server(&ready), Err(CmDiscard::Duplicate));
}

/// From another address, or with another number: discarded, and answered by one message at most.
#[test]
fn a_stranger_changes_nothing() {
    let mut two = two();
    let (id, incoming) = two.established();
    two.client.disconnect(0, id).expect("established");
    let disconnect = two.client.transmit().expect("a request");
    assert_eq!(two.server.receive(0, 0, address(9), &disconnect.mad), Err(CmDiscard::NoConnection));
    assert_eq!(two.server.transmit().map(|answer| answer.to), Some(address(9)));
    assert_eq!(two.server.transmit(), None);
    for at in [24..28, 28..32] {
        let mut forged = disconnect;
        forged.mad[at.start + 2] ^= 1;
        assert_eq!(two.bring_server(&forged), Err(CmDiscard::NoConnection), "{at:?}");
    }
    while two.server.transmit().is_some() {}
    // Whatever the number of requests, no more answers wait than there is room for.
    for _ in 0..100 {
        let _ = two.server.receive(0, 0, address(9), &disconnect.mad);
    }
    assert_eq!(std::iter::from_fn(|| two.server.transmit()).count(), LIMITS.answers);
    assert!(two.server.receive(0, 0, address(1), &[0; MAD_BYTES]).is_err());
    assert_eq!((two.server.len(), two.server.poll()), (1, None));
    two.bring_server(&disconnect).expect("the true one");
    assert_eq!(two.server.poll(), Some(Event::Disconnected(incoming)));
}
