//! A device's name, as sent to its peers, and the word that a peer is ready.

use super::*;
use std::sync::{Arc, Mutex};
use verbline_roce::cm::{MAD_BYTES, Message};
use verbline_roce::wire::{self, HEADERS_MAX_BYTES, seal};

pub(in crate::wire) const TERMS: Terms = Terms {
    qpn: 2,
    psn: 3,
    mtu: 3,
    responder_resources: 1,
    initiator_depth: 1,
    retry_count: 7,
    rnr_retry: 7,
    traffic_class: 0,
    srq: false,
    private_data: Vec::new(),
};

/// The next message to be sent.
fn said(by: &mut Management) -> Message {
    let mut room = [0; MAD_BYTES + HEADERS_MAX_BYTES];
    let (route, len) = by.transmit(&mut room).expect("a message");
    let len = seal(&mut room, len, &route, 0);
    Mad::read(wire::read(&room[..len]).expect("a packet").payload).expect("a message").message
}

/// A request of `own` for a connection, as a datagram.
pub(in crate::wire) fn asking(own: SocketAddr, to: (IpAddr, u16)) -> Vec<u8> {
    let mut management = Management::new(own, 1);
    let asked = management.connect(0, 1, (PortSpace::Reliable, to.into()), &TERMS, Box::new(|_| {}));
    asked.expect("room");
    let mut room = [0; MAD_BYTES + HEADERS_MAX_BYTES];
    let (route, len) = management.transmit(&mut room).expect("a message");
    let len = seal(&mut room, len, &route, 0);
    room[..len].to_vec()
}

/// Regression: every device was device 0, so a kernel took the queue pairs of two hosts for those
/// of one, and ended a connection when another had the same number.
#[test]
fn each_device_has_a_name_of_its_own_which_it_gives_up_by() {
    let (own, to) = (([10, 0, 0, 1], 4791).into(), ([10, 0, 0, 2], 4420).into());
    let mut names = [1, 1].map(|slice| {
        let mut management = Management::new(own, slice);
        let asked = management.connect(0, 1, (PortSpace::Reliable, to), &TERMS, Box::new(|_| {}));
        asked.expect("room");
        let Message::Request(request) = said(&mut management) else { panic!() };
        while let Some(due_ns) = management.deadline_ns() {
            management.advance(due_ns);
            if let Message::Reject(reject) = said(&mut management) {
                assert_eq!(reject.info, request.ca_guid);
            }
        }
        request.ca_guid
    });
    names.sort_unstable();
    assert!(names[0] != names[1] && names[0] != 0, "{names:?}");
}

/// Regression: an acceptor whose peer's RTU was lost waited until it had repeated its own message,
/// though packets of the connection came.
#[test]
fn a_first_packet_stands_for_the_word_that_the_peer_is_ready() {
    let at = |last: u8| SocketAddr::from(([10, 0, 0, last], 4791));
    let (mut client, mut server) = (Management::new(at(1), 1), Management::new(at(2), 2));
    let (asked, news) = (Arc::new(Mutex::new(None)), Arc::new(Mutex::new(Vec::new())));
    let keep = asked.clone();
    let take: Take = Box::new(move |requested| keep.lock().expect("no panic").replace(requested.id).is_none());
    assert!(server.listen((PortSpace::Reliable, 7), take));
    let bring = |from: &mut Management, to: &mut Management| {
        let mut room = [0; MAD_BYTES + HEADERS_MAX_BYTES];
        let (route, len) = from.transmit(&mut room).expect("a message");
        let len = seal(&mut room, len, &route, 0);
        let payload = wire::read(&room[..len]).expect("a packet").payload;
        assert!(to.receive(0, from.own.ip(), &verbline_roce::Management { payload }));
    };
    let to = (PortSpace::Reliable, (at(2).ip(), 7).into());
    let id = client.connect(0, 1, to, &TERMS, Box::new(|_| {})).expect("room");
    bring(&mut client, &mut server);
    let accepted = asked.lock().expect("no panic").take().expect("a request");
    let note = news.clone();
    let tell: Tell = Box::new(move |one| note.lock().expect("no panic").push(one));
    let terms = Terms { qpn: 9, ..TERMS };
    assert!(server.accept(0, accepted, &terms, tell));
    bring(&mut server, &mut client);
    // The asker's first packet may come before its program has seen the answer.
    client.hear(0, TERMS.qpn);
    assert!(client.next_established().is_none() && !client.has_messages());
    server.hear(0, 8);
    assert_eq!((news.lock().expect("no panic").len(), server.next_established()), (0, None), "another's packet");
    server.hear(0, 9);
    assert_eq!(*news.lock().expect("no panic"), [News::Established]);
    assert_eq!((server.next_established(), server.deadline_ns()), (Some(9), None));
    // The word itself, and further packets, change nothing.
    assert!(client.establish(0, id));
    bring(&mut client, &mut server);
    server.hear(0, 9);
    assert_eq!((news.lock().expect("no panic").len(), server.next_established()), (1, None));
}

/// Regression: a listener was told any address that its peer had asked for.
#[test]
fn a_request_for_another_address_is_rejected() {
    let at = |last: u8| SocketAddr::from(([10, 0, 0, last], 4791));
    for (asked, expected) in [(2, None), (3, Some(reason::INVALID_GID))] {
        let (mut client, mut server) = (Management::new(at(1), 1), Management::new(at(2), 2));
        let taken = Arc::new(Mutex::new(0));
        let count = taken.clone();
        let take: Take = Box::new(move |_| {
            *count.lock().expect("no panic") += 1;
            true
        });
        assert!(server.listen((PortSpace::Reliable, 7), take));
        let to = (PortSpace::Reliable, (at(asked).ip(), 7).into());
        client.connect(0, 1, to, &TERMS, Box::new(|_| {})).expect("room");
        let mad = Mad { transaction: 1, message: said(&mut client) }.to_bytes();
        assert!(server.receive(0, at(1).ip(), &verbline_roce::Management { payload: &mad }));
        let rejected = server.has_messages().then(|| said(&mut server));
        let why = rejected.map(|message| if let Message::Reject(reject) = message { reject.reason } else { 0 });
        assert_eq!((why, *taken.lock().expect("no panic")), (expected, u32::from(asked == 2)));
    }
}
