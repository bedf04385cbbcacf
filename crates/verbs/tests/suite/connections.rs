//! Connecting by address: established, refused, rejected, timed out, and disconnected.

use std::net::SocketAddr;
use std::time::Duration;

use crate::common::{Options, PATIENCE, Side, device, hand_back, init_spec, only_soft, open, provider, spec};
use verbline_mem::Batch;
use verbline_verbs::connection::{
    ACCEPT_PRIVATE_BYTES, CONNECT_PRIVATE_BYTES, CmTransport, ConnParam, ConnectOptions, ConnectionError, Listener,
    REJECT_PRIVATE_BYTES, Route, resolve, resolve_for,
};
use verbline_verbs::{Access, InitSpec, Provider, QpState, Status, Transport, expert::AttrMask};

const SOON: Duration = Duration::from_millis(20);

/// A side whose QP is in RESET.
pub fn fresh(device: &'static str) -> Side {
    fresh_of(Transport::Rc, device)
}

fn fresh_of(transport: Transport, device: &'static str) -> Side {
    let options = Options::new(transport);
    let mut side = Side::build(open(device), &options, 0, false);
    side.qp = side.pd.create_qp(&spec(&options, &side.cq, 0)).unwrap();
    side
}

pub fn listen(address: &str) -> Listener {
    Listener::bind(provider(), address.parse().unwrap(), 4).unwrap()
}

fn with(private_data: &[u8]) -> ConnectOptions {
    ConnectOptions { private_data: private_data.to_vec(), ..ConnectOptions::default() }
}

/// A route from soft0's address to the given one.
pub fn route(address: SocketAddr) -> Result<Route, ConnectionError> {
    resolve(provider(), address, Some("10.9.9.1:0".parse().unwrap()), PATIENCE)
}

/// Private data without trailing zeros.
fn words(private_data: &[u8]) -> &[u8] {
    let end = private_data.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    &private_data[..end]
}

fn to(listener: &Listener, ip: &str) -> SocketAddr {
    SocketAddr::new(ip.parse().unwrap(), listener.local_addr().port())
}

#[test]
fn two_sides_meet_exchange_words_talk_and_part() {
    let mut listener = listen("0.0.0.0:0");
    let address = to(&listener, "10.9.9.2");
    let (hear, heard) = std::sync::mpsc::channel();
    let (ask, asked) = std::sync::mpsc::channel();
    let client = std::thread::spawn(move || {
        let mut side = fresh("soft0");
        // The READs that this side starts are those the other is to serve, and the reverse.
        let depths = ConnectOptions { responder_resources: 3, initiator_depth: 5, ..with(b"hello") };
        let timers = ConnectOptions { timeout: Some(17), min_rnr_timer: 9, traffic_class: Some(104), ..depths };
        let options = ConnectOptions { retry_count: 6, rnr_retry_count: 2, ..timers };
        let from = Some("10.9.9.1:0".parse().unwrap());
        let route = resolve_for(provider(), address, from, &options, PATIENCE).unwrap();
        assert_eq!((route.device_name(), route.port()), (device("soft0"), 1));
        let connecting = route.connect(&mut side.qp, &options).unwrap();
        ask.send(side.qp.qpn()).unwrap();
        assert_eq!(side.post_recvs(2), 2);
        let mut connection = connecting.finish(&mut side.qp, PATIENCE).unwrap();
        assert_eq!((words(connection.private_data()), connection.peer_addr()), (&b"welcome"[..], address));
        assert_eq!(connection.local_addr().ip().to_string(), "10.9.9.1");
        assert_eq!(side.qp.state(), QpState::Rts);
        let told = side.qp.query(AttrMask::TIMEOUT | AttrMask::MIN_RNR_TIMER | AttrMask::AV).unwrap();
        assert_eq!((told.timeout, told.min_rnr_timer, told.ah.traffic_class), (17, 9, 104));
        connection.wait_established(PATIENCE).unwrap();
        side.send(b"question");
        assert_eq!(side.receive(1)[0].data(), b"answer");
        hear.send(()).unwrap();
        assert!(connection.wait_disconnected(PATIENCE).unwrap());
        side.qp.start_drain().unwrap();
        side.drain();
        side.assert_all_free();
    });

    let request = listener.next(PATIENCE).unwrap().unwrap();
    assert_eq!((words(request.private_data()), request.device_name()), (&b"hello"[..], device("soft1")));
    assert_eq!((request.port(), request.peer_addr().ip().to_string()), (1, "10.9.9.1".to_owned()));
    let ConnParam { responder_resources, initiator_depth, retry_count, rnr_retry_count, qp_num, srq } = request.param();
    assert_eq!((responder_resources, initiator_depth, retry_count, rnr_retry_count, srq), (5, 3, 6, 2, false));
    assert_eq!(qp_num, asked.recv_timeout(PATIENCE).unwrap());
    let mut side = fresh("soft1");
    // Post the receives first: the question may follow the answer at once, and is retried twice.
    side.qp.to_init(&init_spec()).unwrap();
    assert_eq!(side.post_recvs(2), 2);
    let mut connection = request.accept(&mut side.qp, &with(b"welcome")).unwrap();
    // The side answers with the traffic class of the request.
    assert_eq!(side.qp.query(AttrMask::AV).unwrap().ah.traffic_class, 104);
    connection.wait_established(PATIENCE).unwrap();
    assert_eq!(connection.local_addr(), address, "the listener is on every address, and was called at this one");
    assert_eq!(side.receive(1)[0].data(), b"question");
    side.send(b"answer");
    heard.recv_timeout(PATIENCE).unwrap();
    connection.disconnect(&mut side.qp).unwrap();
    assert_eq!(side.qp.state(), QpState::Err);
    side.qp.start_drain().unwrap();
    side.drain();
    side.assert_all_free();
    client.join().unwrap();
}

#[test]
fn two_sides_of_uc_meet_at_an_address_where_rc_finds_nobody() {
    let uc = ConnectOptions { transport: CmTransport::Uc, ..with(b"hello") };
    let mut listener = Listener::bind_for(provider(), "0.0.0.0:0".parse().unwrap(), CmTransport::Uc, 4).unwrap();
    let address = to(&listener, "10.9.9.2");
    let from = Some("10.9.9.1:0".parse().unwrap());
    let (mut a, mut b) = (fresh_of(Transport::Uc, "soft0"), fresh_of(Transport::Uc, "soft1"));

    let mut reliable = fresh("soft0");
    let asked = route(address).unwrap().connect(&mut reliable.qp, &with(b""));
    let error = asked.and_then(|connecting| connecting.finish(&mut reliable.qp, PATIENCE)).unwrap_err();
    assert!(matches!(error, ConnectionError::Refused { address: at } if at == address), "{error}");
    let route = || resolve_for(provider(), address, from, &uc, PATIENCE).unwrap();
    reliable.qp.to_reset().unwrap();
    let error = route().connect(&mut reliable.qp, &uc).unwrap_err();
    let words = format!("the QP is RC, the connection at {address} is UC; make a QP of that transport");
    assert_eq!(error.to_string(), words);

    let connecting = route().connect(&mut a.qp, &uc).unwrap();
    assert_eq!(a.post_recvs(2), 2);
    let request = listener.next(PATIENCE).unwrap().unwrap();
    assert_eq!((request.transport(), request.param().qp_num), (CmTransport::Uc, a.qp.qpn()));
    b.qp.to_init(&init_spec()).unwrap();
    assert_eq!(b.post_recvs(2), 2);
    let mut accepted = request.accept(&mut b.qp, &with(b"welcome")).unwrap();
    let mut connected = connecting.finish(&mut a.qp, PATIENCE).unwrap();
    accepted.wait_established(PATIENCE).unwrap();
    assert_eq!((a.qp.state(), b.qp.state()), (QpState::Rts, QpState::Rts));
    a.send(b"question");
    assert_eq!(b.receive(1)[0].data(), b"question");
    b.send(b"answer");
    assert_eq!(a.receive(1)[0].data(), b"answer");
    accepted.disconnect(&mut b.qp).unwrap();
    assert!(connected.wait_disconnected(PATIENCE).unwrap());
    for side in [&mut a, &mut b] {
        side.qp.start_drain().unwrap();
        side.drain();
        side.assert_all_free();
    }
}

#[test]
fn each_side_grants_what_it_says_whatever_its_qp_was_brought_to_init_with() {
    let mut listener = listen("10.9.9.2:0");
    let address = to(&listener, "10.9.9.2");
    let (mut a, mut b) = (fresh("soft0"), fresh("soft1"));
    a.qp.to_init(&init_spec()).unwrap();
    b.qp.to_init(&InitSpec { access: Access::REMOTE_WRITE, ..init_spec() }).unwrap();
    let depths =
        |served, started| ConnectOptions { responder_resources: served, initiator_depth: started, ..with(b"") };
    let reads = ConnectOptions { access: Access::REMOTE_READ, ..depths(4, 8) };
    let connecting = route(address).unwrap().connect(&mut a.qp, &reads).unwrap();
    let accepted = listener.next(PATIENCE).unwrap().unwrap().accept(&mut b.qp, &depths(2, 1)).unwrap();
    let connected = connecting.finish(&mut a.qp, PATIENCE).unwrap();
    let told = [&mut a, &mut b].map(|side| {
        let mask = AttrMask::ACCESS_FLAGS | AttrMask::MAX_QP_RD_ATOMIC | AttrMask::MAX_DEST_RD_ATOMIC;
        let told = side.qp.query(mask).unwrap();
        (told.access, told.max_rd_atomic, told.max_dest_rd_atomic)
    });
    // Each side starts as many READs as it wants and the other serves.
    assert_eq!(told, [(Access::REMOTE_READ, 2, 1), (Access::NONE, 1, 2)]);
    assert_eq!((accepted.end_reason(), connected.end_reason()), (None, None));
}

#[test]
fn a_listener_may_say_no_and_why() {
    let mut listener = listen("10.9.9.2:0");
    let address = to(&listener, "10.9.9.2");
    let mut side = fresh("soft0");
    let connecting = route(address).unwrap().connect(&mut side.qp, &with(b"")).unwrap();
    listener.next(PATIENCE).unwrap().unwrap().reject(b"queue 7 is taken").unwrap();
    let error = connecting.finish(&mut side.qp, PATIENCE).unwrap_err();
    assert_eq!(error.to_string(), format!("rejected by {address} (reason 28): queue 7 is taken"));
}

#[test]
fn a_request_that_is_dropped_or_whose_listener_goes_ends() {
    for look_at_it in [true, false] {
        let mut listener = listen("10.9.9.2:0");
        let address = to(&listener, "10.9.9.2");
        let mut side = fresh("soft0");
        let connecting = route(address).unwrap().connect(&mut side.qp, &with(b"")).unwrap();
        if look_at_it {
            drop(listener.next(PATIENCE).unwrap().unwrap());
        }
        drop(listener);
        let error = connecting.finish(&mut side.qp, PATIENCE).unwrap_err();
        // If the listener is dropped without an answer, rdma_cm rejects; a listener that is gone
        // when the request comes counts as absent.
        use ConnectionError::{Ended, Refused, Rejected};
        assert!(matches!(error, Ended { .. } | Rejected { .. } | Refused { .. }), "{error}");
    }
}

#[test]
fn an_answer_that_does_not_come_is_not_waited_for_longer_than_told() {
    let mut listener = listen("10.9.9.2:0");
    let address = to(&listener, "10.9.9.2");
    let mut side = fresh("soft0");
    let connecting = route(address).unwrap().connect(&mut side.qp, &with(b"")).unwrap();
    let error = connecting.finish(&mut side.qp, SOON).unwrap_err();
    assert!(matches!(error, ConnectionError::TimedOut { after: SOON, .. }), "{error}");
    if provider() == Provider::Soft {
        // The request was withdrawn: the listener does not see it any more. rdma_cm has delivered
        // it already.
        assert!(listener.next(SOON).unwrap().is_none());
    }
}

#[test]
fn an_accepted_peer_that_never_finishes_is_noticed() {
    let mut listener = listen("10.9.9.2:0");
    let address = to(&listener, "10.9.9.2");
    let (mut a, mut b) = (fresh("soft0"), fresh("soft1"));
    let connecting = route(address).unwrap().connect(&mut a.qp, &with(b"")).unwrap();
    let mut connection = listener.next(PATIENCE).unwrap().unwrap().accept(&mut b.qp, &with(b"")).unwrap();
    assert!(matches!(connection.wait_established(SOON), Err(ConnectionError::TimedOut { .. })));
    drop(connecting);
    assert!(connection.wait_established(PATIENCE).is_err());
    assert!(connection.wait_disconnected(PATIENCE).unwrap());
}

#[test]
fn a_listener_on_every_device_serves_each() {
    let mut listener = listen("0.0.0.0:0");
    for (from, local, ip, name) in
        [("10.9.9.2", "soft1", "10.9.9.1", "soft0"), ("10.9.9.1", "soft0", "10.9.9.2", "soft1")]
    {
        let address = to(&listener, ip);
        let (mut a, mut b) = (fresh(local), fresh(name));
        let from = SocketAddr::new(from.parse().unwrap(), 0);
        let route = resolve(provider(), address, Some(from), PATIENCE).unwrap();
        assert_eq!(route.device_name(), device(local));
        let connecting = route.connect(&mut a.qp, &with(b"")).unwrap();
        let request = listener.next(PATIENCE).unwrap().unwrap();
        assert_eq!(request.device_name(), device(name));
        b.qp.to_init(&init_spec()).unwrap();
        assert_eq!(b.post_recvs(1), 1);
        let accepted = request.accept(&mut b.qp, &with(b"")).unwrap();
        let connected = connecting.finish(&mut a.qp, PATIENCE).unwrap();
        a.send(b"hello");
        assert_eq!(b.receive(1)[0].data(), b"hello");
        drop((accepted, connected));
    }
}

#[test]
fn a_port_is_taken_once_on_an_address_and_on_every_address() {
    let all = ["0.0.0.0", "[::]", "10.9.9.1", "10.9.9.2"];
    for (first, second) in all.iter().flat_map(|first| all.map(|second| (*first, second))) {
        let holder = listen(&format!("{first}:0"));
        let port = holder.local_addr().port();
        let wanted: SocketAddr = format!("{second}:{port}").parse().unwrap();
        let bound = Listener::bind(provider(), wanted, 4);
        if first != second && first.starts_with("10.") && second.starts_with("10.") {
            assert_eq!(bound.unwrap().local_addr(), wanted, "{first} and {second} are two addresses");
            continue;
        }
        let error = bound.unwrap_err();
        assert!(matches!(error, ConnectionError::AddressInUse { address } if address == wanted), "{first}: {error}");
        drop(holder);
        assert_eq!(listen(&wanted.to_string()).local_addr(), wanted, "after {first} is gone");
    }
}

#[test]
fn a_picked_port_is_nobody_else_s_on_any_address() {
    let all = ["0.0.0.0:0", "10.9.9.1:0", "[::]:0", "10.9.9.2:0", "10.9.9.1:0"];
    let listeners = all.map(listen);
    let mut side = fresh("soft0");
    let mut ports: Vec<u16> = listeners.iter().map(|listener| listener.local_addr().port()).collect();
    // Connecting sides have ports from the same space, which tell their requests apart.
    let mut listener = listen("10.9.9.2:0");
    ports.push(listener.local_addr().port());
    let mut under_way = Vec::new();
    for _ in 0..3 {
        let mut side = fresh("soft0");
        let connecting = route(to(&listener, "10.9.9.2")).unwrap().connect(&mut side.qp, &with(b"")).unwrap();
        let request = listener.next(PATIENCE).unwrap().unwrap();
        ports.push(request.peer_addr().port());
        under_way.push((connecting, request, side));
    }
    let mut once = ports.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), ports.len(), "{ports:?}");

    // A side that names its own port gets that one, never another's.
    drop(under_way);
    let from = SocketAddr::new("10.9.9.1".parse().unwrap(), listeners[0].local_addr().port());
    let error = resolve(provider(), to(&listener, "10.9.9.2"), Some(from), PATIENCE).unwrap_err();
    assert!(matches!(error, ConnectionError::AddressInUse { address } if address == from), "{error}");
    drop(listeners);
    let route = resolve(provider(), to(&listener, "10.9.9.2"), Some(from), PATIENCE).unwrap();
    let _connecting = route.connect(&mut side.qp, &with(b"")).unwrap();
    assert_eq!(listener.next(PATIENCE).unwrap().unwrap().peer_addr(), from);
    assert!(matches!(Listener::bind(provider(), from, 1), Err(ConnectionError::AddressInUse { .. })));
}

#[test]
fn a_listener_on_every_address_of_ipv6_hears_ipv4_too() {
    let mut listener = listen("[::]:0");
    let mut side = fresh("soft0");
    let _connecting = route(to(&listener, "10.9.9.2")).unwrap().connect(&mut side.qp, &with(b"six")).unwrap();
    let request = listener.next(PATIENCE).unwrap().unwrap();
    assert_eq!((words(request.private_data()), request.device_name()), (&b"six"[..], device("soft1")));
}

#[test]
fn more_requests_than_the_backlog_are_refused() {
    only_soft!("rdma_cm takes the backlog as a hint");
    let listener = Listener::bind(provider(), "10.9.9.1:0".parse().unwrap(), 2).unwrap();
    let address = to(&listener, "10.9.9.1");
    let mut waiting = Vec::new();
    for at in 0..3 {
        let mut side = fresh("soft0");
        match route(address).unwrap().connect(&mut side.qp, &with(b"")) {
            Ok(connecting) => waiting.push((connecting, side)),
            Err(error) => assert!(at == 2 && matches!(error, ConnectionError::Refused { .. }), "{at}: {error}"),
        }
    }
    assert_eq!(waiting.len(), 2);
}

#[test]
fn addresses_that_lead_nowhere_are_named() {
    let nowhere: SocketAddr = "10.1.2.3:7".parse().unwrap();
    let error = resolve(provider(), nowhere, None, PATIENCE).unwrap_err();
    assert!(error.to_string().starts_with(&format!("no {} device reaches 10.1.2.3:7; ", provider())), "{error}");
    assert!(matches!(Listener::bind(provider(), nowhere, 1), Err(ConnectionError::Unreachable { .. })));

    let silent: SocketAddr = "10.9.9.2:9".parse().unwrap();
    let mut side = fresh("soft0");
    let asked = route(silent).unwrap().connect(&mut side.qp, &with(b""));
    let error = asked.and_then(|connecting| connecting.finish(&mut side.qp, PATIENCE)).unwrap_err();
    assert_eq!(error.to_string(), "nobody listens at 10.9.9.2:9");

    let listener = listen("10.9.9.1:0");
    let taken = listener.local_addr();
    assert!(matches!(Listener::bind(provider(), taken, 1), Err(ConnectionError::AddressInUse { .. })));
    drop(listener);
    Listener::bind(provider(), taken, 1).unwrap();
}

#[test]
fn private_data_and_devices_are_checked() {
    let mut listener = listen("10.9.9.2:0");
    let address = to(&listener, "10.9.9.2");
    let mut side = fresh("soft0");
    let error = route(address).unwrap().connect(&mut side.qp, &with(&[1; CONNECT_PRIVATE_BYTES + 1])).unwrap_err();
    assert_eq!(error.to_string(), "57 bytes of private data; a request has room for 56");
    let mut elsewhere = fresh("soft1");
    let error = route(address).unwrap().connect(&mut elsewhere.qp, &with(b"")).unwrap_err();
    assert!(matches!(error, ConnectionError::WrongDevice { .. }), "{error}");

    let connecting = route(address).unwrap().connect(&mut side.qp, &with(&[1; CONNECT_PRIVATE_BYTES])).unwrap();
    let request = listener.next(PATIENCE).unwrap().unwrap();
    assert_eq!(words(request.private_data()), [1; CONNECT_PRIVATE_BYTES]);
    let error = request.reject(&[2; REJECT_PRIVATE_BYTES + 1]).unwrap_err();
    assert!(matches!(error, ConnectionError::PrivateData { .. }), "{error}");
    // A request that could not be answered was dropped, which is an answer.
    assert!(connecting.finish(&mut side.qp, PATIENCE).is_err());
    assert_eq!(ACCEPT_PRIVATE_BYTES, 196);
}

#[test]
fn disconnecting_flushes_what_is_posted() {
    let mut listener = listen("10.9.9.2:0");
    let address = to(&listener, "10.9.9.2");
    let (mut a, mut b) = (fresh("soft0"), fresh("soft1"));
    let connecting = route(address).unwrap().connect(&mut a.qp, &with(b"")).unwrap();
    let accepted = listener.next(PATIENCE).unwrap().unwrap().accept(&mut b.qp, &with(b"")).unwrap();
    let connected = connecting.finish(&mut a.qp, PATIENCE).unwrap();
    let mut batch = Batch::with_capacity(3);
    a.cache.get_bulk(&mut batch, 3);
    assert_eq!(a.qp.post_recv(&mut batch).posted, 3);
    connected.disconnect(&mut a.qp).unwrap();
    let mut flushed = 0;
    while flushed < 3 {
        a.poll(|qp, freed, completion| {
            assert_eq!(completion.status(), Status::WR_FLUSH_ERR);
            flushed += 1;
            hand_back(qp, freed, completion);
        });
    }
    let mut accepted = accepted;
    assert!(accepted.wait_disconnected(PATIENCE).unwrap());
}
