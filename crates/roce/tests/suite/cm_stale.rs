//! Requests and replies that a manager can't take: whose queue pair has a connection already, or
//! whose fields have no meaning.

use verbline_roce::cm::{
    CmDiscard, Connect, ConnectionId, Disconnect, Event, Mad, Manager, Message, Outgoing, Reject, Rejected, reason,
};
use verbline_roce::wire::Qpn;

use crate::cm::{LIMITS, Two, accept_by, address, connect, connect_by, qpn_of, two};

fn rejection(outgoing: &Outgoing) -> Reject {
    let Message::Reject(reject) = Mad::read(&outgoing.mad).expect("a message").message else { panic!() };
    reject
}

/// The request of a manager of its own, like a peer's after a restart.
fn asked_anew(connect: &Connect) -> (Manager, Outgoing) {
    let mut anew = Manager::new(LIMITS);
    anew.connect(0, 5, connect).expect("room");
    let sent = anew.transmit().expect("a request");
    (anew, sent)
}

/// The same request with another number of the connection.
fn with_another_number(request: &Outgoing, bit: u8) -> Outgoing {
    let mut other = *request;
    other.mad[27] ^= bit;
    other
}

/// The message by which the server ends its first connection.
fn end_of(two: &mut Two, incoming: ConnectionId) -> Outgoing {
    let end = two.server.transmit().expect("the old connection ends");
    let Message::Disconnect(said) = Mad::read(&end.mad).expect("a message").message else { panic!() };
    assert_eq!((said.local_id, said.remote_qpn), (incoming.number(), qpn_of(0, 0)));
    end
}

/// Regression: a peer that had started again, and named a queue pair with the number of an earlier
/// one, got a second connection, and the first one stayed open.
#[test]
fn a_request_with_the_queue_pair_of_an_open_connection_ends_that_one() {
    let mut two = two();
    let (_, incoming) = two.established();
    let (mut anew, request) = asked_anew(&connect(1, 2));
    let stale = Err(CmDiscard::Rejected(reason::STALE));
    assert_eq!(two.bring_server(&request), stale);
    let said = rejection(&two.server.transmit().expect("a rejection"));
    assert_eq!((said.of, said.reason), (Rejected::Request, reason::STALE));
    let end = end_of(&mut two, incoming);
    // Until it has ended, a request is answered in the same way; then it is served.
    let other = with_another_number(&request, 4);
    assert_eq!(two.bring_server(&other), stale);
    two.server.transmit().expect("a rejection");
    anew.receive(0, 0, address(2), &end.mad).expect_err("it knows of no connection");
    let answer = anew.transmit().expect("but answers");
    two.bring_server(&answer).expect("taken");
    assert_eq!(two.server.poll(), Some(Event::Disconnected(incoming)));
    two.bring_server(&other).expect("taken");
    assert!(matches!(two.server.poll(), Some(Event::Requested(..))));
}

/// The kernel tells queue pairs apart in the same way; and a stranger has to guess.
#[test]
fn another_address_device_or_queue_pair_is_no_sign_that_a_connection_is_stale() {
    let mut of_device = connect(1, 2);
    of_device.request.ca_guid = 7;
    for (from, connect) in [(3, connect(3, 2)), (1, of_device), (1, connect_by(1, 2, qpn_of(0, 1)))] {
        let mut two = two();
        two.established();
        let (_, request) = asked_anew(&connect);
        let request = with_another_number(&request, 4);
        assert_eq!(two.server.receive(0, 9, address(from), &request.mad), Ok(()), "{from}");
        assert!(matches!(two.server.poll(), Some(Event::Requested(..))));
        assert_eq!((two.server.transmit(), two.server.len()), (None, 2));
    }
}

/// In every state the queue pair is the connection's; a request that the program has not decided on
/// stays.
#[test]
fn a_queue_pair_is_free_again_once_its_connection_has_ended() {
    let mut two = two();
    let (_, incoming, request) = two.requested();
    let request =
        Outgoing { to: address(2), mad: Mad { transaction: 1, message: Message::Request(request) }.to_bytes() };
    let other = with_another_number(&request, 4);
    let stale = Err(CmDiscard::Rejected(reason::STALE));
    assert_eq!(two.bring_server(&other), stale);
    two.server.transmit().expect("a rejection");
    assert_eq!((two.server.transmit(), two.server.poll()), (None, None));
    two.server.accept(0, incoming, &accept_by(qpn_of(1, 0))).expect("still requested");
    two.server.transmit().expect("a reply");
    assert_eq!(two.bring_server(&other), stale);
    two.server.transmit().expect("a rejection");
    end_of(&mut two, incoming);
    // Nobody answers the end.
    let mut ended = None;
    while ended.is_none() {
        let due_ns = two.server.deadline_ns().expect("it waits");
        two.server.advance(due_ns);
        while two.server.transmit().is_some() {}
        ended = two.server.poll();
    }
    assert_eq!(ended, Some(Event::Disconnected(incoming)));
    assert_eq!((two.bring_server(&other), two.server.len()), (Ok(()), 2), "its numbers rest, but it has ended");
    // So it is after a rejection.
    let Some(Event::Requested(incoming, _)) = two.server.poll() else { panic!() };
    two.server.reject(0, incoming, reason::CONSUMER, b"").expect("requested");
    assert_eq!(two.bring_server(&with_another_number(&other, 8)), Ok(()));
}

/// A passive side that has started again names a queue pair with the number of an earlier one.
#[test]
fn a_reply_with_the_queue_pair_of_an_open_connection_ends_both() {
    let mut two = two();
    let (old, _) = two.established();
    two.server = crate::cm::two().server;
    let (id, incoming, _) = two.requested_by(qpn_of(0, 1));
    two.server.accept(0, incoming, &accept_by(qpn_of(1, 0))).expect("requested");
    let reply = two.server.transmit().expect("a reply");
    assert_eq!(two.bring_client(&reply), Err(CmDiscard::Rejected(reason::STALE)));
    assert!(matches!(two.client.poll(), Some(Event::Rejected(one, why)) if one == id && why.reason == reason::STALE));
    let said: Vec<_> = std::iter::from_fn(|| two.client.transmit()).collect();
    let [end, reject] = &said[..] else { panic!("{said:?}") };
    two.bring_server(reject).expect("about its reply");
    assert!(matches!(two.server.poll(), Some(Event::Rejected(one, _)) if one == incoming));
    two.bring_server(end).expect_err("of no connection");
    let answer = two.server.transmit().expect("but it is answered");
    two.bring_client(&answer).expect("taken");
    assert_eq!(two.client.poll(), Some(Event::Disconnected(old)));
    assert!(two.server.is_empty());
}

/// Regression: such a request was taken for random bytes, and its sender asked in vain until its
/// retries were used up.
#[test]
fn a_request_with_an_invalid_mtu_is_rejected_for_it() {
    for code in [0, 6, 15] {
        let mut two = two();
        let id = two.client.connect(0, 1, &connect(1, 2)).expect("room");
        let mut request = two.client.transmit().expect("a request");
        request.mad[24 + 50] = code << 4 | request.mad[24 + 50] & 0xF;
        assert_eq!(two.bring_server(&request), Err(CmDiscard::Rejected(reason::INVALID_MTU)), "{code}");
        let reject = two.server.transmit().expect("a rejection");
        assert_eq!((two.server.len(), two.server.poll()), (0, None));
        two.bring_client(&reject).expect("taken");
        let Some(Event::Rejected(rejected, said)) = two.client.poll() else { panic!() };
        assert_eq!((rejected, said.of, said.reason), (id, Rejected::Request, reason::INVALID_MTU));
    }
}

/// Regression: the reserved numbers of queue pairs were taken, and other partitions.
#[test]
fn a_request_of_no_queue_pair_or_of_another_partition_is_rejected() {
    let connects = [0, 1, 0xFF_FFFF].map(|qpn| connect_by(1, 2, Qpn::new(qpn)));
    let mut elsewhere = connect(1, 2);
    elsewhere.request.pkey = 0x8001;
    for connect in connects.into_iter().chain([elsewhere]) {
        let mut two = two();
        let (_, request) = asked_anew(&connect);
        assert_eq!(two.bring_server(&request), Err(CmDiscard::Rejected(reason::UNSUPPORTED)), "{connect:?}");
        assert!(two.server.is_empty());
    }
    let mut limited = connect(1, 2);
    limited.request.pkey = 0x7FFF;
    assert_eq!(two().bring_server(&asked_anew(&limited).1), Ok(()));
    for qpn in [0, 1, 0xFF_FFFF] {
        let mut two = two();
        let (id, incoming, _) = two.requested();
        two.server.accept(0, incoming, &accept_by(Qpn::new(qpn))).expect("requested");
        let reply = two.server.transmit().expect("a reply");
        assert_eq!(two.bring_client(&reply), Err(CmDiscard::Rejected(reason::UNSUPPORTED)), "{qpn}");
        assert!(matches!(two.client.poll(), Some(Event::Rejected(rejected, _)) if rejected == id));
        let reject = two.client.transmit().expect("a rejection");
        two.bring_server(&reject).expect("about its reply");
        assert!(matches!(two.server.poll(), Some(Event::Rejected(rejected, _)) if rejected == incoming));
    }
}

/// Regression: the end of a connection was believed whichever queue pair it named.
#[test]
fn an_end_that_names_another_queue_pair_changes_nothing() {
    let mut two = two();
    let (id, incoming) = two.established();
    for (own, theirs, side) in [(id, incoming, 0), (incoming, id, 1)] {
        for (qpn, is_its) in [(qpn_of(1 - side, 0), false), (qpn_of(side, 0), true)] {
            let (local_id, remote_id) = (theirs.number(), own.number());
            let message = Message::Disconnect(Disconnect { local_id, remote_id, remote_qpn: qpn });
            let mad = Mad { transaction: 7, message }.to_bytes();
            let (manager, from) = if side == 0 { (&mut two.client, 2) } else { (&mut two.server, 1) };
            let taken = manager.receive(0, 0, address(from), &mad);
            assert_eq!(taken, if is_its { Ok(()) } else { Err(CmDiscard::NoConnection) });
            assert_eq!(manager.poll(), is_its.then_some(Event::Disconnected(own)));
            assert_eq!(manager.transmit().is_some(), is_its);
        }
    }
}
