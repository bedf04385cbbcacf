//! Messages, WRITEs and READs, there and back.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use verbline_softnic::wire::{News, PortSpace, Terms, of_device};
use verbline_verbs::connection::{ConnectionError, Listener, resolve, resolve_for};
use verbline_verbs::rdma::Remote;
use verbline_verbs::{Access, Provider, SendOptions, Status, Transport, WrKind, wire_counters};

use crate::common::{PATIENCE, message};
use crate::other::Other;
use crate::{REGION_BYTES, connect, finish, own, side, side_of, terms, unreliable_terms};

/// A message asks for an acknowledgement if none was sent for as long as this.
const PAUSE: Duration = Duration::from_millis(1);

/// Bytes written and read back: many packets.
const HALF_BYTES: u32 = 1 << 19;

#[test]
fn two_processes_talk_by_address() {
    let mut other = Other::start("echo");
    let mut side = side(own(), false);
    let mut connection = connect(&mut side, other.listens(), 16);
    assert!(connection.private_data().starts_with(b"welcome"));
    connection.wait_established(PATIENCE).unwrap();
    // From inline to three packets of the largest MTU, and empty.
    for (number, len) in [(1, 8), (2, 64), (3, 4096), (4, 4097), (5, 12_288), (6, 4), (7, 16_000)] {
        let sent = message(number, len);
        side.send(&sent);
        assert_eq!(side.receive(1)[0].data(), sent, "{len} bytes come back");
        assert_eq!(side.post_recvs(1), 1);
    }
    let place = other.says("region");
    let (addr, rkey) = place.split_once(' ').unwrap();
    let there = |offset: u64| Remote { addr: addr.parse::<u64>().unwrap() + offset, rkey: rkey.parse().unwrap() };
    let local = side.peer_region(REGION_BYTES, Access::LOCAL_WRITE);
    let written = message(9, HALF_BYTES as usize);
    local.write_from(0, &written).unwrap();
    let all = local.slice(0, HALF_BYTES).unwrap();
    side.qp.rc().unwrap().write(all, there(64), SendOptions::default()).unwrap();
    assert_eq!(finish(&mut side), Status::SUCCESS);
    let back = local.slice(HALF_BYTES as usize, HALF_BYTES).unwrap();
    side.qp.rc().unwrap().read(back, there(64), SendOptions::default()).unwrap();
    assert_eq!(finish(&mut side), Status::SUCCESS);
    let mut read = vec![0; HALF_BYTES as usize];
    local.read_into(HALF_BYTES as usize, &mut read).unwrap();
    assert!(read == written, "what was written is read");

    // Beyond the region: both ends fail, and what follows is flushed.
    let one = local.slice(0, 8).unwrap();
    side.qp.rc().unwrap().write(one, there(REGION_BYTES as u64), SendOptions::default()).unwrap();
    assert_eq!(finish(&mut side), Status::REM_ACCESS_ERR);
    drop(connection);
    other.ends_well();
}

/// One system call for each answer, and one for each acknowledgement that a signaled message asks
/// for, behind the answer: one in four.
#[test]
fn an_answer_does_not_wait_for_an_acknowledgement_nor_does_each_message_have_one() {
    const EXCHANGES: u64 = 400;
    let mut other = Other::start("echo");
    let mut side = side(own(), false);
    let mut connection = connect(&mut side, other.listens(), 16);
    connection.wait_established(PATIENCE).unwrap();
    let calls = || wire_counters().map(|wire| wire.link.send_calls).sum::<u64>();
    let (before, mut slow) = (calls(), 0);
    for number in 0..EXCHANGES {
        let began = Instant::now();
        side.send(&number.to_le_bytes());
        assert_eq!(side.receive(1)[0].data(), number.to_le_bytes());
        assert_eq!(side.post_recvs(1), 1);
        slow += u64::from(began.elapsed() > PAUSE / 4);
    }
    let calls = calls() - before;
    // If a process loses its CPU in the middle of an exchange, the message asks by itself, or the
    // wire's thread acknowledges; so does the next one.
    let most = EXCHANGES * 3 / 2 + 2 * slow;
    assert!((EXCHANGES..most).contains(&calls), "{calls} calls for {EXCHANGES} messages, {slow} of them slow");
    drop(connection);
    other.ends_well();
}

/// Regression: an acknowledgement delayed for a message to carry it was lost if its queue pair was
/// taken down first, and the peer took the arrived messages for lost.
#[test]
fn who_hangs_up_on_a_message_has_acknowledged_it() {
    for role in ["fail", "reset"] {
        let mut other = Other::start(role);
        let mut side = side(own(), false);
        let connection = connect(&mut side, other.listens(), 16);
        other.says("region");
        // One in four is signaled.
        for number in 0..4_u8 {
            side.send(&[number]);
        }
        side.wait_for(WrKind::Send, |qp, freed, completion| {
            assert_eq!(completion.status(), Status::SUCCESS, "{role}");
            assert_eq!(qp.send_done(completion, freed).unwrap(), 4);
        });
        other.tell("done");
        drop(connection);
        other.ends_well();
    }
}

#[test]
fn two_processes_talk_by_address_over_uc() {
    let mut other = Other::start("unreliable");
    let mut side = side_of(Transport::Uc, own(), false);
    let (at, options) = (other.listens(), unreliable_terms());
    // A listener for UC takes no connection of RC.
    let mut reliable = side_of(Transport::Rc, own(), false);
    let route = resolve(Provider::Soft, at, None, PATIENCE).unwrap();
    let asked = route.connect(&mut reliable.qp, &terms()).unwrap();
    let error = asked.finish(&mut reliable.qp, PATIENCE).unwrap_err();
    assert!(matches!(error, ConnectionError::Refused { address } if address == at), "{error}");

    let route = resolve_for(Provider::Soft, at, None, &options, PATIENCE).unwrap();
    let connecting = route.connect(&mut side.qp, &options).unwrap();
    assert_eq!(side.post_recvs(16), 16);
    let connection = connecting.finish(&mut side.qp, PATIENCE).unwrap();
    for (number, len) in [(1, 8), (2, 4096), (3, 12_288), (4, 16_000)] {
        let sent = message(number, len);
        side.send(&sent);
        assert_eq!(side.receive(1)[0].data(), sent, "{len} bytes come back");
        assert_eq!(side.post_recvs(1), 1);
    }
    drop(connection);
    other.ends_well();
}

/// Regression: the answer carried the numbers that this side could serve, and not the requested
/// ones. A kernel takes its number of READs from the answer, and this side refuses more than the
/// lesser number.
#[test]
fn an_answer_grants_no_more_reads_than_were_asked_for() {
    let mut side = side(own(), false);
    let mut listener = Listener::bind(Provider::Soft, SocketAddr::new(own(), 0), 1).unwrap();
    let asked = Terms {
        qpn: 0x123,
        psn: 7,
        mtu: 3,
        responder_resources: 1,
        initiator_depth: 2,
        retry_count: 7,
        rnr_retry: 7,
        traffic_class: 0,
        srq: false,
        private_data: Vec::new(),
    };
    let (tell, news) = std::sync::mpsc::channel();
    let wire = of_device("soft0").unwrap();
    let to = (PortSpace::Reliable, listener.local_addr());
    let _asking = wire.ask(50_000, to, &asked, move |news| tell.send(news).unwrap()).unwrap();
    let request = listener.next(PATIENCE).unwrap().unwrap();
    let _connection = request.accept(&mut side.qp, &terms()).unwrap();
    let News::Accepted(granted) = news.recv_timeout(PATIENCE).unwrap() else { panic!() };
    assert_eq!((granted.responder_resources, granted.initiator_depth), (2, 1));
}
