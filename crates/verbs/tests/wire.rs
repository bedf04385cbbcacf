//! Two processes, each with a software device of its own address: connected by address, over UDP.
//!
//! A program of its own: a device keeps its address for the life of its process. It starts itself
//! as the other process, with the role in the environment.

#[path = "wire/asleep.rs"]
mod asleep;
#[path = "suite/common.rs"]
#[allow(dead_code, unused_macros, unused_imports, unreachable_pub, reason = "the API tests use the rest")]
mod common;
#[path = "wire/datagrams.rs"]
mod datagrams;
#[path = "wire/faults.rs"]
mod faults;
#[path = "wire/messages.rs"]
mod messages;
#[path = "wire/other.rs"]
mod other;
#[path = "wire/shared.rs"]
mod shared;
#[path = "wire/silence.rs"]
mod silence;
#[path = "wire/sockets.rs"]
mod sockets;
#[path = "wire/strangers.rs"]
mod strangers;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use common::{Options, PATIENCE, Side, message, open, spec};
use other::Other;
use verbline_mem::Batch;
use verbline_verbs::connection::{
    CmTransport, ConnectOptions, Connection, ConnectionError, Listener, resolve, resolve_for,
};
use verbline_verbs::expert::AttrMask;
use verbline_verbs::rdma::Remote;
use verbline_verbs::{Access, Provider, QpState, SendOptions, Status, Transport, WrKind};

/// The environment variable with the role and address of the other process.
const ROLE: &str = "VERBLINE_TEST_ROLE";
const PARENT: &str = "VERBLINE_TEST_PARENT";
/// The GID index of a software device's address.
const ADDRESS_GID: u8 = 2;
const REGION_BYTES: usize = 1 << 20;
/// A quarter of a second per retry, seven retries: even a busy machine gives a process its CPU
/// within that time.
const TIMEOUT: u8 = 16;
/// Messages sent at once, and receives posted for them.
const BURST: usize = 48;

/// Addresses that no concurrent test uses: they contain the process's number.
fn address(of: u32, last: u8) -> IpAddr {
    Ipv4Addr::new(127, 0x40 | (of >> 8) as u8 & 0x3f, of as u8, last).into()
}

fn options(transport: Transport) -> Options {
    let depth_wr = BURST as u32;
    let depths = Options { tx_depth_wr: depth_wr, rx_depth_wr: depth_wr, ..Options::new(transport) };
    Options { data_bytes: 16 << 10, cq_depth_wc: 2 * depth_wr, ..depths }
}

fn terms() -> ConnectOptions {
    ConnectOptions {
        responder_resources: 4,
        initiator_depth: 4,
        timeout: Some(TIMEOUT),
        access: Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC,
        ..ConnectOptions::default()
    }
}

/// A side whose device has the address, with its QP in RESET.
fn side(address: IpAddr, with_channel: bool) -> Side {
    side_of(Transport::Rc, address, with_channel)
}

fn side_of(transport: Transport, address: IpAddr, with_channel: bool) -> Side {
    side_with(&options(transport), address, with_channel)
}

fn side_with(options: &Options, address: IpAddr, with_channel: bool) -> Side {
    let context = open("soft0");
    assert_eq!(context.set_address(address).unwrap(), ADDRESS_GID);
    let mut side = Side::build(context, options, 0, with_channel);
    side.qp = side.pd.create_qp(&spec(options, &side.cq, 0)).unwrap();
    side
}

/// Options of a connection without retransmission.
fn unreliable_terms() -> ConnectOptions {
    let (transport, private_data) = (CmTransport::Uc, b"hello".to_vec());
    ConnectOptions { transport, private_data, access: Access::REMOTE_WRITE, ..ConnectOptions::default() }
}

fn connect(side: &mut Side, to: SocketAddr, receives: usize) -> Connection {
    let route = resolve(Provider::Soft, to, None, PATIENCE).unwrap();
    assert_eq!(route.device_name(), "soft0");
    let connecting = route.connect(&mut side.qp, &ConnectOptions { private_data: b"hello".to_vec(), ..terms() });
    let connecting = connecting.unwrap();
    assert_eq!(side.post_recvs(receives), receives);
    connecting.finish(&mut side.qp, PATIENCE).unwrap()
}

fn own() -> IpAddr {
    address(std::process::id(), 1)
}

/// Attributes of a queue pair that the connection manager does not supply: the traffic class and
/// the timers.
fn own_attr(side: &mut Side) -> [u8; 3] {
    let told = side.qp.query(AttrMask::AV | AttrMask::TIMEOUT | AttrMask::MIN_RNR_TIMER).unwrap();
    [told.ah.traffic_class, told.timeout, told.min_rnr_timer]
}

/// The role of the other process; does nothing in the test's own process.
#[test]
fn the_other_process() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let (role, last) = role.split_once(' ').unwrap();
    let parent: u32 = std::env::var(PARENT).unwrap().parse().unwrap();
    let last = last.parse().unwrap();
    let own = address(parent, last);
    match role {
        "datagrams" => return datagrams::answer_datagrams(own, parent, last),
        "ask" => return shared::ask(own),
        "refused" => return shared::be_refused(own),
        "older" => return shared::be_older(own),
        "threadless" => return faults::get_no_thread(own),
        _ => {}
    }
    let (transport, terms) = match role {
        "unreliable" => (Transport::Uc, unreliable_terms()),
        "wait" => (Transport::Rc, ConnectOptions { timeout: None, ..terms() }),
        _ => (Transport::Rc, terms()),
    };
    let mut side = side_of(transport, own, false);
    if role == "behind-a-firewall" {
        faults::let_pass_the_links_port_alone(own);
    }
    if role == "burst-one-by-one" {
        // As runs through IPsec. Lone datagrams leave by another call.
        faults::refuse(libc::SYS_sendmsg, libc::EIO);
    }
    let own = SocketAddr::new(side.context.address().unwrap(), 0);
    let mut listener = Listener::bind_for(Provider::Soft, own, terms.transport, 4).unwrap();
    println!("port={}", listener.local_addr().port());
    let request = listener.next(PATIENCE).unwrap().expect("somebody asks");
    assert!(request.private_data().starts_with(b"hello"));
    if role == "reject" {
        return request.reject(b"closed on Sundays").unwrap();
    }
    side.qp.to_init(&common::init_spec()).unwrap();
    assert_eq!(side.post_recvs(16), 16);
    let options = ConnectOptions { private_data: b"welcome".to_vec(), ..terms };
    let mut connection = request.accept(&mut side.qp, &options).unwrap();
    connection.wait_established(PATIENCE).unwrap();
    let region = side.peer_region(REGION_BYTES, Access::LOCAL_WRITE | options.access);
    let Remote { addr, rkey } = region.remote(0);
    println!("region={addr} {rkey}");
    let [class, timeout, timer] = own_attr(&mut side);
    println!("attributes={class} {timeout} {timer}");
    match role {
        "echo" | "behind-a-firewall" | "unreliable" => echo(&mut side, &mut connection),
        "late" => {
            std::io::stdin().lines().next();
            side.send(b"late");
            side.drain_sends();
            assert!(connection.wait_disconnected(PATIENCE).unwrap());
        }
        "burst" | "burst-one-by-one" => {
            std::io::stdin().lines().next();
            let messages: Vec<_> = (0..BURST as u32).map(|number| message(number, 64)).collect();
            let mut batch = side.batch(messages.iter().map(Vec::as_slice));
            assert_eq!(side.qp.post_send(&mut batch).posted, BURST);
            side.drain_sends();
            assert!(connection.wait_disconnected(PATIENCE).unwrap());
        }
        "fail" | "reset" => {
            side.receive(4);
            let gone = if role == "fail" { side.qp.to_err() } else { side.qp.to_reset() };
            gone.unwrap();
            std::io::stdin().lines().next();
        }
        // Until it is killed, or its parent is gone.
        _ => drop(std::io::stdin().lines().next()),
    }
}

/// Sends messages back, until the peer disconnects.
fn echo(side: &mut Side, connection: &mut Connection) {
    while !connection.wait_disconnected(Duration::ZERO).unwrap() {
        let mut packets = Batch::with_capacity(64);
        side.poll(|qp, freed, completion| match completion.kind() {
            // The peer may be gone with messages in flight.
            WrKind::Recv => drop(qp.recv_done(completion).map(|packet| packets.push(packet).unwrap())),
            _ => _ = qp.send_done(completion, freed),
        });
        if !packets.is_empty() && side.qp.state() == QpState::Rts {
            let count = packets.len();
            // A queue pair that has failed meanwhile takes no packets.
            let _ = side.qp.post_send(&mut packets);
            side.post_recvs(count);
        }
    }
}

impl Side {
    /// Polls until all sends have completed, or half a second has passed: some are not signaled.
    fn drain_sends(&mut self) {
        let until = Instant::now() + Duration::from_millis(500);
        while self.qp.sends_outstanding() > 0 && Instant::now() < until {
            self.poll(common::hand_back);
        }
    }
}

/// Polls until the operation is done; returns its status.
fn finish(side: &mut Side) -> Status {
    side.wait_for(WrKind::Op, |qp, freed, completion| {
        let status = completion.status();
        drop(qp.op_done(completion, freed));
        status
    })
}

#[test]
fn a_queue_pair_is_told_what_its_side_asks_and_the_listener_answers_in_the_class_of_the_request() {
    let mut other = Other::start("wait");
    let mut side = side(own(), false);
    let (at, private_data) = (other.listens(), b"hello".to_vec());
    let asked = ConnectOptions { traffic_class: Some(104), timeout: Some(11), min_rnr_timer: 9, ..terms() };
    let options = ConnectOptions { private_data, ..asked };
    let route = resolve_for(Provider::Soft, at, None, &options, PATIENCE).unwrap();
    let _connection = route.connect(&mut side.qp, &options).unwrap().finish(&mut side.qp, PATIENCE).unwrap();
    assert_eq!(own_attr(&mut side), [104, 11, 9]);
    assert_eq!(other.says("attributes"), "104 14 1");
}

#[test]
fn a_listener_elsewhere_says_no_and_why() {
    let mut other = Other::start("reject");
    let mut side = side(own(), false);
    let at = other.listens();
    let route = resolve(Provider::Soft, at, None, PATIENCE).unwrap();
    let options = ConnectOptions { private_data: b"hello".to_vec(), ..terms() };
    let error = route.connect(&mut side.qp, &options).unwrap().finish(&mut side.qp, PATIENCE).unwrap_err();
    assert_eq!(error.to_string(), format!("rejected by {at} (reason 28): closed on Sundays"));
    other.ends_well();
    // The process is gone, and no other has its address.
    let error = {
        side.qp.to_reset().unwrap();
        let route = resolve(Provider::Soft, at, None, PATIENCE).unwrap();
        route.connect(&mut side.qp, &options).unwrap().finish(&mut side.qp, PATIENCE).unwrap_err()
    };
    assert!(matches!(error, ConnectionError::Unanswered { address, udp_port: 4791 } if address == at), "{error}");
}

#[test]
fn a_peer_that_is_killed_ends_what_is_posted_within_the_retries() {
    let mut other = Other::start("wait");
    let mut side = side(own(), false);
    let connection = connect(&mut side, other.listens(), 4);
    other.says("region");
    other.child.kill().unwrap();
    other.child.wait().unwrap();
    let began = Instant::now();
    let local = side.peer_region(4096, Access::LOCAL_WRITE);
    let write = |side: &mut Side| {
        let to = Remote { addr: 0, rkey: 0 };
        side.qp.rc().unwrap().write(local.slice(0, 8).unwrap(), to, SendOptions::default()).unwrap();
    };
    write(&mut side);
    write(&mut side);
    // Seven retries after 67 ms each.
    let mut ended = Vec::new();
    while ended.len() < 2 {
        assert!(began.elapsed() < PATIENCE, "{ended:?}");
        side.poll(|qp, freed, completion| {
            // The receives are flushed too.
            if completion.kind() == WrKind::Op {
                ended.push(completion.status());
            }
            common::hand_back(qp, freed, completion);
        });
    }
    assert_eq!(ended, [Status::RETRY_EXC_ERR, Status::WR_FLUSH_ERR]);
    let took = began.elapsed();
    assert!((Duration::from_millis(400)..Duration::from_secs(10)).contains(&took), "{took:?}");
    let incidents = connection.incidents().expect("it goes over UDP");
    let counted = incidents.values();
    // Each of the seven retransmits both packets.
    assert_eq!((counted.timeouts, counted.retransmitted), (8, 14), "{counted:?}");
    side.qp.start_drain().unwrap();
    side.drain();
    side.assert_all_free();
    drop(connection);
    drop(side);
    assert_eq!(incidents.values(), counted, "they are kept when the queue pair is gone");
}

/// Receives a burst of this other process, whole.
fn after_a_burst_of(name: &str) -> (Other, Side, Connection) {
    let mut other = Other::start(name);
    let mut side = side(own(), false);
    let connection = connect(&mut side, other.listens(), BURST);
    other.says("region");
    other.tell("now");
    for (number, packet) in side.receive(BURST).iter().enumerate() {
        assert_eq!(packet.data(), message(number as u32, 64), "message {number}");
    }
    (other, side, connection)
}

/// Regression: packets from one system call were completed only once all had been taken in, and the
/// transport has no space for so long a burst. It told the peer that there was no receive (RNR).
#[test]
fn a_burst_that_comes_at_once_finds_its_receives() {
    let (other, side, connection) = after_a_burst_of("burst");
    let wire = verbline_softnic::wire::of_device("soft0").expect("it has an address");
    let counted = wire.counters(side.qp.qpn()).expect("it goes over UDP");
    assert_eq!(counted.incidents().rnr_naks_sent, 0);
    drop(connection);
    other.ends_well();
}

#[test]
fn an_address_that_cannot_be_is_refused_with_the_reason() {
    let context = open("soft1");
    let refused = |address: &str| context.set_address(address.parse().unwrap()).unwrap_err().to_string();
    assert!(refused("0.0.0.0").contains("no address that a peer can send to"));
    assert!(refused("fe80::1").contains("link-local"), "{}", refused("fe80::1"));
    assert!(refused("192.0.2.1").contains("no address of this host"), "{}", refused("192.0.2.1"));
    assert_eq!(context.address(), None);
    // Another side of the device that has an address already.
    let side = side(own(), false);
    let error = side.context.set_address(Ipv4Addr::new(127, 1, 1, 1).into()).unwrap_err().to_string();
    assert!(error.starts_with(&format!("soft0 has the address {} already", own())), "{error}");
}
