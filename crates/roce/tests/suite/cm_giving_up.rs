//! Connections that one end gives up, and the messages to the other.

use verbline_roce::cm::{
    CmDiscard, Disconnect, Disconnected, Event, Mad, Message, Ready, Reject, Rejected, Wait, reason,
};
use verbline_roce::transport::ack_timeout_ns;

use crate::cm::{LIMITS, accept, address, connect, two};

#[test]
fn who_gives_up_says_nothing_and_leaves_nothing() {
    let mut two = two();
    let id = two.client.connect(0, 77, &connect(1, 2)).expect("room");
    two.client.forget(id);
    assert_eq!((two.client.transmit(), two.client.deadline_ns(), two.client.len()), (None, None, 0));
    // A request that arrives by then is answered, and the answer is rejected as unknown.
    let (asking, incoming, _) = two.requested();
    two.server.accept(0, incoming, &accept()).expect("it is there");
    two.client.forget(asking);
    let reply = two.server.transmit().expect("a reply");
    assert_eq!(two.bring_client(&reply), Err(CmDiscard::NoConnection));
    assert_eq!((two.client.poll(), two.client.len()), (None, 0));
    let reject = two.client.transmit().expect("nobody knows of it");
    two.bring_server(&reject).expect("about its reply");
    let Some(Event::Rejected(rejected, said)) = two.server.poll() else { panic!() };
    assert_eq!((rejected, said.of, said.reason), (incoming, Rejected::Reply, reason::INVALID_ID));
    assert!(two.server.is_empty());
}

/// Regression: an active side whose RTUs were all lost was not told that the other side had given
/// up.
#[test]
fn who_is_ready_hears_that_the_other_has_given_up() {
    let mut two = two();
    let (id, incoming, _) = two.requested();
    two.server.accept(0, incoming, &accept()).expect("requested");
    let reply = two.server.transmit().expect("a reply");
    two.bring_client(&reply).expect("taken");
    assert!(matches!(two.client.poll(), Some(Event::Replied(..))));
    two.client.establish(0, id).expect("replied");
    while two.client.transmit().is_some() {}
    let mut said = None;
    while let Some(due_ns) = two.server.deadline_ns() {
        two.server.advance(due_ns);
        said = two.server.transmit();
    }
    assert_eq!(two.server.poll(), Some(Event::Unanswered(incoming)));
    two.bring_client(&said.expect("a rejection")).expect("taken");
    assert!(matches!(two.client.poll(), Some(Event::Rejected(rejected, _)) if rejected == id));
    assert!(two.client.is_empty());
}

/// Regression: the passive side ended the connection after its reply was lost. The active side
/// repeated its request in vain until its retries were used up.
#[test]
fn who_asks_again_hears_that_the_connection_has_ended() {
    let mut two = two();
    let id = two.client.connect(0, 77, &connect(1, 2)).expect("room");
    let request = two.client.transmit().expect("a request");
    two.bring_server(&request).expect("taken");
    let Some(Event::Requested(incoming, _)) = two.server.poll() else { panic!() };
    two.server.accept(0, incoming, &accept()).expect("requested");
    two.server.disconnect(0, incoming).expect("accepted");
    while two.server.transmit().is_some() {}
    assert_eq!(two.bring_server(&request), Err(CmDiscard::Duplicate));
    let reject = two.server.transmit().expect("a rejection");
    two.bring_client(&reject).expect("taken");
    let Some(Event::Rejected(rejected, said)) = two.client.poll() else { panic!() };
    assert_eq!((rejected, said.of, said.reason), (id, Rejected::Request, reason::STALE));
    assert!(two.client.is_empty());
}

/// Regression: an active side whose reply was lost did not answer the DREQ that came next: the
/// other side waited for it in vain.
#[test]
fn an_end_that_comes_before_the_reply_is_answered_and_changes_nothing() {
    let mut two = two();
    let (id, incoming, _) = two.requested();
    two.server.accept(0, incoming, &accept()).expect("requested");
    two.server.transmit().expect("a reply, which is lost");
    two.server.disconnect(0, incoming).expect("accepted");
    let end = two.server.transmit().expect("a request");
    assert_eq!(two.bring_client(&end), Err(CmDiscard::NoConnection));
    let answer = two.client.transmit().expect("an answer");
    assert_eq!((two.client.transmit(), two.client.poll()), (None, None));
    two.bring_server(&answer).expect("taken");
    assert_eq!(two.server.poll(), Some(Event::Disconnected(incoming)));
    assert!(two.client.deadline_ns().is_some(), "{id:?} still asks");
}

/// Regression: the active side gave up before the program had decided, though the program had time
/// left.
#[test]
fn one_who_asks_is_told_to_wait_while_the_program_has_time() {
    let mut two = two();
    let (id, incoming, _) = two.requested();
    let gives_up_ns = two.server.deadline_ns().expect("some time");
    let (mut asked, mut told) = (0, 0);
    while let Some(now_ns) = two.client.deadline_ns().filter(|due_ns| *due_ns < gives_up_ns) {
        two.client.advance(now_ns);
        while let Some(again) = two.client.transmit() {
            asked += 1;
            assert_eq!(two.server.receive(now_ns, 0, address(1), &again.mad), Err(CmDiscard::Duplicate));
        }
        while let Some(wait) = two.server.transmit() {
            told += 1;
            two.client.receive(now_ns, 0, address(2), &wait.mad).expect("taken");
        }
    }
    assert_eq!((asked, told, two.client.poll()), (2, 1, None), "not before half of the time is over");
    assert_eq!(two.server.deadline_ns(), Some(gives_up_ns), "a program has no more time than before");
    two.server.accept(gives_up_ns - 1, incoming, &accept()).expect("still requested");
    let reply = two.server.transmit().expect("a reply");
    two.client.receive(gives_up_ns - 1, 0, address(2), &reply.mad).expect("taken");
    assert!(matches!(two.client.poll(), Some(Event::Replied(replied, _)) if replied == id));
}

/// The peer's messages about a connection that it has by another number, e.g. an earlier one: in
/// every state, they are discarded, and the connection is made all the same.
#[test]
fn what_is_about_another_connection_of_the_peer_changes_nothing() {
    let others = |of: u32, at: u32| {
        let (local_id, remote_id) = (of ^ 1, at);
        let reject =
            |of| Message::Reject(Reject { local_id, remote_id, of, reason: reason::TIMEOUT, info: 0, data: [0; 148] });
        let messages = [
            reject(Rejected::Request),
            reject(Rejected::Reply),
            Message::Ready(Ready { local_id, remote_id }),
            Message::Wait(Wait { local_id, remote_id, of: Rejected::Reply, timeout: 20 }),
            Message::Disconnected(Disconnected { local_id, remote_id }),
        ];
        messages.map(|message| Mad { transaction: 7, message }.to_bytes())
    };
    let mut two = two();
    let (id, incoming, request) = two.requested();
    let (client, server) = (id.number(), incoming.number());
    assert_eq!(request.local_id, client);
    for mad in others(client, server) {
        assert_eq!(two.server.receive(0, 0, address(1), &mad), Err(CmDiscard::NoConnection), "requested");
    }
    two.server.accept(0, incoming, &accept()).expect("requested");
    let repeats_ns = two.server.deadline_ns();
    for mad in others(client, server) {
        assert_eq!(two.server.receive(0, 0, address(1), &mad), Err(CmDiscard::NoConnection), "accepting");
    }
    assert_eq!(two.server.deadline_ns(), repeats_ns);
    let reply = two.server.transmit().expect("a reply");
    two.bring_client(&reply).expect("taken");
    for mad in others(server, client) {
        assert_eq!(two.client.receive(0, 0, address(2), &mad), Err(CmDiscard::NoConnection), "replied");
    }
    assert!(matches!(two.client.poll(), Some(Event::Replied(..))));
    two.client.establish(0, id).expect("replied");
    let ready = two.client.transmit().expect("ready");
    two.bring_server(&ready).expect("taken");
    assert_eq!(two.server.poll(), Some(Event::Established(incoming)));
    assert_eq!((two.client.poll(), two.server.poll(), two.server.transmit()), (None, None, None));
    two.server.disconnect(0, incoming).expect("established");
    for mad in others(client, server) {
        assert_eq!(two.server.receive(0, 0, address(1), &mad), Err(CmDiscard::NoConnection), "ending");
    }
    assert_eq!(two.server.poll(), None, "the peer has not answered");
}

/// The peer gives up on its reply after it was accepted: only the active side of that very
/// connection hears of it. Any other rejection comes too late.
#[test]
fn an_established_connection_ends_by_no_other_rejection() {
    let reject = |(ours, theirs): (u32, u32), of| {
        let reject = Reject { local_id: theirs, remote_id: ours, of, reason: reason::TIMEOUT, info: 0, data: [0; 148] };
        Mad { transaction: 7, message: Message::Reject(reject) }.to_bytes()
    };
    let mut two = two();
    let (id, incoming) = two.established();
    let [active, passive] = [(id.number(), incoming.number()), (incoming.number(), id.number())];
    for of in [Rejected::Request, Rejected::Reply, Rejected::Other] {
        assert_eq!(two.server.receive(0, 0, address(1), &reject(passive, of)), Err(CmDiscard::Duplicate));
        assert_eq!(two.server.receive(0, 0, address(1), &reject((passive.0, 0), of)), Err(CmDiscard::Duplicate));
        assert_eq!(two.client.receive(0, 0, address(2), &reject((active.0, 0), of)), Err(CmDiscard::Duplicate));
    }
    for of in [Rejected::Request, Rejected::Other] {
        assert_eq!(two.client.receive(0, 0, address(2), &reject(active, of)), Err(CmDiscard::Duplicate));
    }
    assert_eq!((two.client.poll(), two.server.poll()), (None, None));
    two.client.receive(0, 0, address(2), &reject(active, Rejected::Reply)).expect("it gave up");
    assert!(matches!(two.client.poll(), Some(Event::Rejected(rejected, _)) if rejected == id));
}

/// A peer that has no number for the connection, perhaps after a restart, sends 0.
#[test]
fn a_reply_is_rejected_by_a_peer_without_a_number() {
    let mut two = two();
    let (_, incoming, _) = two.requested();
    two.server.accept(0, incoming, &accept()).expect("requested");
    let reject = Reject {
        local_id: 0,
        remote_id: incoming.number(),
        of: Rejected::Reply,
        reason: reason::INVALID_ID,
        info: 0,
        data: [0; 148],
    };
    let mad = Mad { transaction: 7, message: Message::Reject(reject) }.to_bytes();
    two.server.receive(0, 0, address(1), &mad).expect("taken");
    assert_eq!(two.server.poll(), Some(Event::Rejected(incoming, reject)));
    assert_eq!((two.server.transmit(), two.server.len()), (None, 0), "the reply is not sent any more");
}

/// A peer gets 69 s at most for the answer to a request, and 8.6 s for the one to a reply.
#[test]
fn a_peer_that_needs_longer_is_not_waited_for_without_end() {
    for timeout in [0, 1, 21, 22, 24, 25, 31] {
        let wait = |ours: u32, theirs: u32, of| {
            let wait = Wait { local_id: theirs, remote_id: ours, of, timeout };
            Mad { transaction: 7, message: Message::Wait(wait) }.to_bytes()
        };
        let [of_request_ns, of_reply_ns, timeout_ns] =
            [timeout.min(24), timeout.min(21), LIMITS.timeout].map(|code| ack_timeout_ns(code).unwrap_or(0));
        let mut two = two();
        let (id, incoming, _) = two.requested();
        let mad = wait(id.number(), incoming.number(), Rejected::Request);
        two.client.receive(5, 0, address(2), &mad).expect("taken");
        assert_eq!(two.client.deadline_ns(), Some(5 + of_request_ns + timeout_ns), "{timeout}");
        two.server.accept(0, incoming, &accept()).expect("requested");
        let mad = wait(incoming.number(), id.number(), Rejected::Reply);
        two.server.receive(5, 0, address(1), &mad).expect("taken");
        assert_eq!(two.server.deadline_ns(), Some(5 + of_reply_ns + timeout_ns), "{timeout}");
    }
}

/// Regression: a peer that asked for time again and again kept a connection from ever being given
/// up. The kernel's connection manager takes one such message for each of its own as well.
#[test]
fn a_peer_that_asks_for_time_again_and_again_is_given_up() {
    let [longer_ns, timeout_ns] = [21, LIMITS.timeout].map(|code| ack_timeout_ns(code).expect("a time"));
    let bound_ns = longer_ns + (1 + u64::from(LIMITS.retries)) * timeout_ns;
    let mut two = two();
    let (id, incoming, _) = two.requested();
    two.server.accept(0, incoming, &accept()).expect("requested");
    let ids = [(id, incoming), (incoming, id)].map(|(ours, theirs)| (ours.number(), theirs.number()));
    let ends = [(two.client, ids[0], Rejected::Request, 2), (two.server, ids[1], Rejected::Reply, 1)];
    for (mut manager, (ours, theirs), of, peer) in ends {
        let wait = Wait { local_id: theirs, remote_id: ours, of, timeout: 21 };
        let mad = Mad { transaction: 7, message: Message::Wait(wait) }.to_bytes();
        let (mut now_ns, mut taken) = (0, Ok(()));
        while let Some(due_ns) = manager.deadline_ns() {
            assert_eq!(manager.receive(now_ns, 0, address(peer), &mad), taken, "{of:?}");
            taken = Err(CmDiscard::Duplicate);
            now_ns = manager.deadline_ns().unwrap_or(due_ns);
            manager.advance(now_ns);
        }
        assert!(matches!(manager.poll(), Some(Event::Unanswered(_))), "{of:?}");
        assert_eq!(now_ns, bound_ns, "{of:?}");
    }
}

/// A peer asks for time for the message that we sent, and for no other.
#[test]
fn time_for_another_message_is_not_granted() {
    let mut two = two();
    let (id, incoming, _) = two.requested();
    two.server.accept(0, incoming, &accept()).expect("requested");
    let sides = [(&mut two.client, id, incoming, Rejected::Request), (&mut two.server, incoming, id, Rejected::Reply)];
    for ((manager, ours, theirs, own), peer) in sides.into_iter().zip([2, 1]) {
        let due_ns = manager.deadline_ns();
        for of in [Rejected::Request, Rejected::Reply, Rejected::Other].into_iter().filter(|of| *of != own) {
            let wait = Wait { local_id: theirs.number(), remote_id: ours.number(), of, timeout: 21 };
            let mad = Mad { transaction: 7, message: Message::Wait(wait) }.to_bytes();
            assert_eq!(manager.receive(0, 0, address(peer), &mad), Err(CmDiscard::Duplicate), "{of:?}");
            assert_eq!(manager.deadline_ns(), due_ns, "{of:?}");
        }
    }
}

/// Regression: an active side that gave up before it knew the other side's number named its device
/// in vain. The other side kept the request, and then a reply, for as long as all of their time.
#[test]
fn an_active_side_that_gives_up_names_its_device_and_is_believed() {
    for accepts in [false, true] {
        let mut two = two();
        let mut connect = connect(1, 2);
        connect.request.ca_guid = 0x1234_5678_9ABC_DEF0;
        let id = two.client.connect(0, 77, &connect).expect("room");
        let request = two.client.transmit().expect("a request");
        two.bring_server(&request).expect("taken");
        let Some(Event::Requested(incoming, _)) = two.server.poll() else { panic!() };
        if accepts {
            two.server.accept(0, incoming, &accept()).expect("requested");
        }
        let mut last = None;
        while let Some(due_ns) = two.client.deadline_ns() {
            two.client.advance(due_ns);
            last = two.client.transmit();
        }
        assert_eq!(two.client.poll(), Some(Event::Unanswered(id)));
        let last = last.expect("a rejection");
        let Ok(Mad { message: Message::Reject(said), .. }) = Mad::read(&last.mad) else { panic!() };
        assert_eq!((said.remote_id, said.of), (0, Rejected::Request));
        assert_eq!((said.reason, said.info), (reason::TIMEOUT, connect.request.ca_guid));
        for (of_another, from) in [
            (Reject { info: said.info ^ 1, ..said }, 1),
            (Reject { local_id: said.local_id ^ 1, ..said }, 1),
            (Reject { reason: reason::CONSUMER, ..said }, 1),
            (said, 3),
        ] {
            let mad = Mad { transaction: 7, message: Message::Reject(of_another) }.to_bytes();
            assert_eq!(two.server.receive(0, 0, address(from), &mad), Err(CmDiscard::NoConnection), "{of_another:?}");
        }
        two.bring_server(&last).expect("about its request");
        assert_eq!(two.server.poll(), Some(Event::Rejected(incoming, said)));
        assert_eq!((two.server.transmit(), two.server.deadline_ns(), two.server.len()), (None, None, 0));
    }
}

/// A reply of another connection of the peer to ours is not answered as ours is.
#[test]
fn a_reply_with_another_number_is_not_said_to_be_ready_for() {
    let mut two = two();
    let (id, incoming, _) = two.requested();
    two.server.accept(0, incoming, &accept()).expect("requested");
    let reply = two.server.transmit().expect("a reply");
    two.bring_client(&reply).expect("taken");
    two.client.establish(0, id).expect("replied");
    while two.client.transmit().is_some() {}
    let mut other = reply;
    other.mad[27] ^= 1;
    assert_eq!(two.bring_client(&other), Err(CmDiscard::Duplicate));
    assert_eq!(two.client.transmit(), None);
    assert_eq!(two.bring_client(&reply), Err(CmDiscard::Duplicate));
    assert!(two.client.transmit().is_some(), "its own is answered again");
}

/// Before the program has decided there is nothing to end: the end is answered, and the program
/// decides all the same.
#[test]
fn an_end_before_the_decision_changes_nothing() {
    let mut two = two();
    let (id, incoming, request) = two.requested();
    let (local_id, remote_id) = (id.number(), incoming.number());
    let end = Disconnect { local_id, remote_id, remote_qpn: request.qpn };
    let mad = Mad { transaction: 7, message: Message::Disconnect(end) }.to_bytes();
    assert_eq!(two.server.receive(0, 0, address(1), &mad), Err(CmDiscard::Duplicate));
    assert!(two.server.transmit().is_some() && two.server.poll().is_none());
    two.server.accept(0, incoming, &accept()).expect("still requested");
}

/// A program that has told its peer to wait may take as long, and no less than without.
#[test]
fn a_program_has_the_time_that_it_asked_for() {
    for timeout in [1, 17, 18, 25] {
        let mut two = two();
        let (_, incoming, _) = two.requested();
        assert_eq!(two.server.deadline_ns(), Some(LIMITS.decide_ns));
        two.server.wait(5, incoming, timeout).expect("requested");
        let has_ns = ack_timeout_ns(timeout).expect("a time").max(LIMITS.decide_ns);
        assert_eq!(two.server.deadline_ns(), Some(5 + has_ns), "{timeout}");
        two.server.advance(5 + has_ns - 1);
        two.server.accept(5 + has_ns - 1, incoming, &accept()).expect("in time");
    }
}
