//! A wire whose thread is asleep, as far as the wire knows.

use super::*;
use crate::data_path::carrier::Carrier;
use crate::data_path::errors::Errors;
use crate::objects::fabric;
use crate::objects::guards::Pinned;
use crate::queues::timer;
use crate::wire::management::tests::{TERMS, asking};
use crate::wire::management::{News, Requested, Terms};
use crate::wire::neighbours::{Neighbours, claim_slice};
use crate::wire::run::Run;
use crate::wire::socket::tests::address;
use std::net::Ipv4Addr;
use std::sync::{Mutex, OnceLock};
use verbline_roce::Owner;
use verbline_roce::cm::{MANAGEMENT_QKEY, PortSpace};
use verbline_roce::transport::{Capacity, Discard, Mtu, Peer, QueuePair, Receives, Receiving, Rights, Serving};
use verbline_roce::wire::{
    Addresses, Bth, Deth, HEADERS_MAX_BYTES, Packet, Psn, Qpn, Rc, Reth, Route, Segment, WriteEnd,
};
use verbline_sync::guard::Guard;

fn wire_at(own: SocketAddr) -> Wire {
    let slice = claim_slice(own.ip(), 0).expect("a name").expect("a slice");
    let link = Arc::new(Link::open(own).expect("a free port"));
    Wire::new(&device::devices()[0], link, slice).expect("descriptors")
}

/// Regression: packets taken in by a poll made something due, and the thread slept on: a program
/// that did not poll again kept its peer waiting.
#[test]
fn a_poll_wakes_the_thread_if_something_is_due_sooner_than_it_knows() {
    let (own, peer) = (address(41), address(42));
    let wire = wire_at(own);
    assert!(wire.lock().management.listen((PortSpace::Reliable, 4420), Box::new(|_| true)));
    let asker = Link::open(peer).expect("a free port");
    let guard = Guard::default();
    // An undecided request is given up at some time.
    let poll = || {
        let bytes = asking(peer, (own.ip(), 4420));
        asker.send(&Run { to: own, traffic_class: 0, bytes: &bytes, segment_bytes: bytes.len() }).expect("sent");
        let (inside, mut errors) = (guard.enter(), Errors::new());
        wire.poll(Pinned::inside(&inside), &mut errors);
        assert!(wire.lock().deadline_ns().is_some(), "the request has come");
        wire.alarm.was_rung()
    };
    assert!(wire.lock().may_sleep(None));
    assert_eq!([poll(), poll()], [true, false], "once, and not while it is awake");
    // Nor if it wakes in time.
    let due_ns = wire.lock().deadline_ns();
    assert!(wire.lock().may_sleep(due_ns));
    assert!(!poll());
}

/// Regression: the peer's RTU is lost, and its first packet, a WRITE of no bytes, comes instead.
#[test]
fn an_acceptor_learns_by_its_peers_first_packet_that_the_peer_is_ready() {
    let (own, peer) = (address(43), address(44));
    let wire = wire_at(own);
    let qpn = Qpn::new(fabric::numbers_of(wire.slice).start + 5);
    let asker = Link::open(peer).expect("a free port");
    let guard = Guard::default();
    let bring = |bytes: &[u8]| {
        asker.send(&Run { to: own, traffic_class: 0, bytes, segment_bytes: bytes.len() }).expect("sent");
        let (inside, mut errors) = (guard.enter(), Errors::new());
        wire.poll(Pinned::inside(&inside), &mut errors);
    };
    let (asked, news) = (Arc::new(Mutex::new(None)), Arc::new(Mutex::new(Vec::new())));
    let (keep, note) = (asked.clone(), news.clone());
    let take = Box::new(move |requested: Requested| keep.lock().expect("no panic").replace(requested.id).is_none());
    assert!(wire.lock().management.listen((PortSpace::Reliable, 4420), take));
    bring(&asking(peer, (own.ip(), 4420)));
    let id = asked.lock().expect("no panic").take().expect("a request");
    let terms = Terms { qpn: qpn.number(), ..TERMS };
    let tell = Box::new(move |one| note.lock().expect("no panic").push(one));
    assert!(wire.lock().management.accept(timer::now_ns(), id, &terms, tell));

    let capacity = Capacity { sends: 1, send_sges: 1, inline_bytes: 0, receive_sges: 1 };
    let (rights, receives) = (Rights { write: true, ..Rights::default() }, Receives::Own(1));
    let mut made = QueuePair::new(Owner { domain: 0, qpn }, rights, capacity, receives);
    let (theirs, psn) = (Qpn::new(TERMS.qpn), Psn::new(9));
    let there = Addresses::new(own.ip(), peer.ip()).expect("one family");
    let route = Route::new(there, qpn.number(), theirs.number());
    let receiving = Receiving::Rc(Peer { route, qpn: theirs, psn, mtu: Mtu::B1024 }, Serving::default());
    made.receive_from(receiving).expect("a new one");
    wire.lock().queue_pairs.engine.add(made).expect("a free number");
    let nothing = Reth { addr: 0, rkey: 0, len: 0 };
    let segment = Segment::Rc(Rc::Write { first: Some(nothing), last: Some(WriteEnd::Plain) });
    let mut bytes = [0; HEADERS_MAX_BYTES];
    let route = Route { addresses: there.reversed(), ..route };
    let len = Packet { bth: Bth::new(qpn, psn), segment, payload: &[] }.write(&mut bytes, &route, 0);
    bring(&bytes[..len]);
    assert_eq!(*news.lock().expect("no panic"), [News::Established]);
}

/// Regression: some datagrams that this process discards were in no count.
#[test]
fn each_datagram_that_leads_nowhere_is_counted_by_its_reason() {
    let (own, peer) = (address(45), address(46));
    let wire = wire_at(own);
    let asker = Link::open(peer).expect("a free port");
    let guard = Guard::default();
    let route = Route::new(Addresses::new(peer.ip(), own.ip()).expect("one family"), 2, 1);
    let datagram = |to: Qpn, qkey: u32, payload: &[u8]| {
        let segment = Segment::Ud(Deth { qkey, source: Qpn::MANAGEMENT }, None);
        let mut bytes = vec![0; payload.len() + HEADERS_MAX_BYTES];
        let len = Packet { bth: Bth::new(to, Psn::new(0)), segment, payload }.write(&mut bytes, &route, 0);
        bytes.truncate(len);
        bytes
    };
    let asking = asking(peer, (own.ip(), 4420));
    let mad = verbline_roce::wire::read(&asking).expect("a packet").payload;
    let group = Ipv4Addr::new(239, 0x77, std::process::id() as u8, 45);
    wire.join(&group.to_ipv6_mapped().octets()).expect("a group");
    let group = (group, own.port()).into();
    let message = |to| datagram(to, 1, &[7; 8]);
    for (what, to, bytes, why) in [
        ("a message without management's key", own, datagram(Qpn::MANAGEMENT, 1, mad), Some(Discard::Key)),
        ("no message", own, datagram(Qpn::MANAGEMENT, MANAGEMENT_QKEY, &mad[..252]), Some(Discard::Malformed)),
        ("a group's, to an address", own, message(Qpn::MULTICAST), Some(Discard::NoQueuePair)),
        ("a group's, without a member", group, message(Qpn::MULTICAST), Some(Discard::NoQueuePair)),
        ("a queue pair's, to a group", group, message(Qpn::new(2)), Some(Discard::NoQueuePair)),
        ("a message to a group", group, asking.clone(), Some(Discard::NoQueuePair)),
        ("a message", own, asking.clone(), None),
    ] {
        let before = *wire.lock().queue_pairs.engine.incidents();
        asker.send(&Run { to, traffic_class: 0, bytes: &bytes, segment_bytes: bytes.len() }).expect("sent");
        let (inside, mut errors) = (guard.enter(), Errors::new());
        wire.poll(Pinned::inside(&inside), &mut errors);
        let after = *wire.lock().queue_pairs.engine.incidents();
        let counted = Discard::ALL.into_iter().filter(|why| after.discarded(*why) > before.discarded(*why));
        assert_eq!(counted.collect::<Vec<_>>(), why.into_iter().collect::<Vec<_>>(), "{what}");
    }
}

/// Regression: a service stayed its former listener's until that process had something else to do.
#[test]
fn a_service_is_free_for_other_processes_once_its_listener_is_gone_and_all_requests_are_decided() {
    let (own, peer) = (address(47), address(48));
    let slice = || claim_slice(own.ip(), 0).expect("a name").expect("a slice");
    let link = || Arc::new(Link::open(own).expect("an address that is shared"));
    static WIRE: OnceLock<Wire> = OnceLock::new();
    let wire = WIRE.get_or_init(|| Wire::new(&device::devices()[0], link(), slice()).expect("descriptors"));
    let at = (PortSpace::Reliable, 4420);
    let asked = Arc::new(Mutex::new(None));
    let keep = asked.clone();
    let take = move |request| {
        keep.lock().expect("no panic").replace(request);
        Ok(())
    };
    let listening = wire.listen(at, take).expect("a free port");
    let asker = Link::open(peer).expect("a free port");
    let bytes = asking(peer, (own.ip(), 4420));
    asker.send(&Run { to: own, traffic_class: 0, bytes: &bytes, segment_bytes: bytes.len() }).expect("sent");
    let (guard, mut errors) = (Guard::default(), Errors::new());
    wire.poll(Pinned::inside(&guard.enter()), &mut errors);
    let asked = asked.lock().expect("no panic").take().expect("a request");

    let mut other = Neighbours::new(&link(), slice()).expect("descriptors");
    let service = PortSpace::Reliable.service_of_port(4420);
    let refused = |other: &mut Neighbours| other.listen(service).expect_err("taken").kind();
    assert_eq!(refused(&mut other), io::ErrorKind::AddrInUse, "it has a listener");
    drop(listening);
    assert_eq!(refused(&mut other), io::ErrorKind::AddrInUse, "the request may come once more");
    asked.reject(28, &[]);
    other.listen(service).expect("all is decided");
    other.stop_listening(service);
    other.leave();
    drop(wire.listen(at, Err).expect("nobody has it"));
    other.listen(service).expect("nothing was to be decided");
}

/// Regression: the messages of connection management for which a turn had no room waited until
/// something else happened.
#[test]
fn messages_that_a_turn_has_no_room_for_are_due_at_once() {
    let (own, peer) = (address(49), address(50));
    let wire = wire_at(own);
    let mut inner = wire.lock();
    const CONNECTIONS: u32 = 1_000;
    for qpn in 2..2 + CONNECTIONS {
        let (to, terms) = ((PortSpace::Reliable, peer), Terms { qpn, ..TERMS });
        inner.management.connect(timer::now_ns(), 1, to, &terms, Box::new(|_| {})).expect("there is room");
    }
    inner.say();
    let sent = wire.link_counters().sent;
    assert!(sent < CONNECTIONS.into(), "{sent}: one turn has no room for all");
    assert_eq!(inner.deadline_ns(), Some(0));
    inner.say();
    assert_eq!(wire.link_counters().sent, CONNECTIONS.into());
    assert_ne!(inner.deadline_ns(), Some(0));
}
