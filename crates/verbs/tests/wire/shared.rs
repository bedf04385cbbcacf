//! Several processes that share one address: servers and clients, some of which are killed.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

use crate::common::{Options, PATIENCE, Side, message, open, spec};
use crate::other::Other;
use crate::{address, connect, own, side, terms};
use verbline_verbs::connection::{ConnectionError, Listener, resolve};
use verbline_verbs::{Endpoint, Gid, InitSpec, Provider, RtrSpec, Transport, wire_counters};

/// The last number of the address that all processes but the test's own have.
const SHARED: u8 = 9;
/// Messages per client, some of several packets.
const MESSAGES: u32 = 40;

fn shared() -> IpAddr {
    address(std::process::id(), SHARED)
}

/// Sends messages to a server on its own address, one by one on request; prints how many datagrams
/// it passed on, and received passed on.
pub(crate) fn ask(address: IpAddr) {
    let mut side = side(address, false);
    println!("ready=");
    for line in std::io::stdin().lines() {
        let port: u16 = line.unwrap().parse().unwrap();
        let connection = connect(&mut side, SocketAddr::new(address, port), 16);
        for number in 0..MESSAGES {
            let sent = message(number, 64 + 300 * number as usize);
            side.send(&sent);
            assert_eq!(side.receive(1)[0].data(), sent);
            assert_eq!(side.post_recvs(1), 1);
        }
        drop(connection);
        let link = wire_counters().next().unwrap().link;
        println!("done={} {}", link.passed_on, link.taken_over);
        side.qp.to_reset().unwrap();
    }
}

fn start(role: &str) -> Other {
    Other::start_at(role, SHARED)
}

fn server() -> (Other, SocketAddr) {
    let mut server = start("echo");
    let at = server.listens();
    assert_eq!(at.ip(), shared());
    (server, at)
}

/// Two servers and two clients. Only the processes themselves can tell whose a datagram is.
#[test]
fn four_processes_share_an_address_and_one_that_is_killed_takes_nothing_with_it() {
    let [(first, at_first), (mut second, at_second)] = [server(), server()];
    assert_ne!(at_first.port(), at_second.port(), "each has a port of its own");
    let mut clients = [start("ask"), start("ask")];
    for client in &mut clients {
        client.says("ready");
    }
    // At once, each with a server of its own.
    clients[0].tell(&at_first.port().to_string());
    clients[1].tell(&at_second.port().to_string());
    let counts = clients.each_mut().map(|client| client.says("done"));
    first.ends_well();
    // Killed while others talk; the kernel may have given it their datagrams.
    let (third, at_third) = server();
    clients[0].tell(&at_third.port().to_string());
    second.child.kill().unwrap();
    second.child.wait().unwrap();
    clients[0].says("done");
    third.ends_well();
    // Another process takes its place, perhaps with the same port and the same numbers.
    let (fourth, at_fourth) = server();
    clients[1].tell(&at_fourth.port().to_string());
    clients[1].says("done");
    fourth.ends_well();
    // The kernel gives all datagrams from this address to itself to one process, which passes them
    // on to the others.
    let went_on = counts.iter().any(|counts| counts.split(' ').any(|count| count != "0"));
    let all: Vec<_> = clients.iter_mut().map(|client| client.child.try_wait().unwrap()).collect();
    assert!(all.iter().all(Option::is_none), "the clients are there yet: {all:?}");
    assert!(went_on, "datagrams went from process to process: {counts:?}");
}

#[test]
fn nobody_listens_on_an_address_that_two_processes_share() {
    let mut client = start("refused");
    assert_eq!(client.says("refused"), "yes");
    client.ends_well();
}

/// Connects to a port without a listener in any process of its address.
pub(crate) fn be_refused(address: IpAddr) {
    let mut side = side(address, false);
    let at = SocketAddr::new(address, 7);
    let route = resolve(Provider::Soft, at, None, PATIENCE).unwrap();
    let asked = route.connect(&mut side.qp, &terms()).and_then(|asked| asked.finish(&mut side.qp, PATIENCE).map(drop));
    println!("refused={}", if matches!(asked, Err(ConnectionError::Refused { .. })) { "yes" } else { "no" });
}

#[test]
fn a_port_that_another_process_of_the_address_listens_at_is_taken() {
    let mut other = Other::start_at("wait", 1);
    let port = other.says("port").parse().unwrap();
    drop(side(own(), false));
    let taken = Listener::bind(Provider::Soft, SocketAddr::new(own(), port), 4).unwrap_err();
    assert!(matches!(taken, ConnectionError::AddressInUse { .. }), "{taken}");
    // Any other port is free.
    let listener = Listener::bind(Provider::Soft, SocketAddr::new(own(), 0), 4).unwrap();
    assert_ne!(listener.local_addr().port(), port);
}

/// The route was resolved while no listener was here, so that the request goes through the network,
/// which may lead back here.
#[test]
fn a_listener_of_this_process_that_comes_later_is_reached_by_the_address() {
    let [mut asker, mut answerer] = [side(own(), false), side(own(), false)];
    let at = SocketAddr::new(own(), 4711);
    let route = resolve(Provider::Soft, at, None, PATIENCE).unwrap();
    let mut listener = Listener::bind(Provider::Soft, at, 4).unwrap();
    let connecting = route.connect(&mut asker.qp, &terms()).unwrap();
    let request = listener.next(PATIENCE).unwrap().expect("somebody asks");
    let mut accepted = request.accept(&mut answerer.qp, &terms()).unwrap();
    let _asked = connecting.finish(&mut asker.qp, PATIENCE).unwrap();
    accepted.wait_established(PATIENCE).unwrap();
    assert_eq!((asker.post_recvs(1), answerer.post_recvs(1)), (1, 1));
    asker.send(b"here");
    assert_eq!(answerer.receive(1)[0].data(), b"here");
    answerer.send(b"and back");
    assert_eq!(asker.receive(1)[0].data(), b"and back");
}

#[test]
fn a_queue_pair_that_is_older_than_the_address_does_not_go_by_it() {
    let mut other = Other::start("older");
    let refused = other.says("older");
    assert!(refused.contains("EINVAL") || refused.contains("Invalid argument"), "{refused}");
    assert_eq!(other.says("younger"), "none");
    other.ends_well();
}

/// Makes a queue pair, then gives its device an address, and then makes another.
pub(crate) fn be_older(address: IpAddr) {
    let mut side = Side::build(open("soft0"), &Options::new(Transport::Rc), 0, false);
    println!("older={}", go_by_address(&mut side, address));
    side.qp = side.pd.create_qp(&spec(&Options::new(Transport::Rc), &side.cq, 0)).unwrap();
    println!("younger={}", go_by_address(&mut side, address));
}

fn go_by_address(side: &mut Side, address: IpAddr) -> String {
    let gid_index = side.context.set_address(address).unwrap();
    let IpAddr::V4(ip) = address else { panic!("{address}") };
    let peer = Endpoint { qpn: 0x77_7777, psn: 0, gid: Gid::from(ip), lid: 0, qkey: 0 };
    side.qp.to_init(&InitSpec { gid_index, ..InitSpec::default() }).unwrap();
    side.qp.to_rtr(&RtrSpec::connected(peer)).err().map_or_else(|| "none".to_owned(), |error| error.to_string())
}

/// Regression: both devices of a process took one address, and a connection between them failed.
#[test]
fn two_devices_of_a_process_have_an_address_each() {
    let context = open("soft0");
    context.set_address(own()).unwrap();
    let refused = open("soft1").set_address(own()).unwrap_err().to_string();
    assert!(refused.starts_with(&format!("soft0 of this process has {} already", own())), "{refused}");
    context.set_address(own()).unwrap();
}

/// An address of another user, of a program, or of the kernel: its holder does not share it.
#[test]
fn an_address_that_somebody_else_has_is_taken() {
    let at: IpAddr = Ipv4Addr::new(127, 0x40, 0, 8).into();
    let _socket = UdpSocket::bind((at, 4791)).unwrap();
    // Even as an IPv4-mapped IPv6 address, which would receive no IPv4 packet.
    for at in [at, Ipv4Addr::new(127, 0x40, 0, 8).to_ipv6_mapped().into()] {
        let taken = open("soft1").set_address(at).unwrap_err().to_string();
        assert!(taken.starts_with("UDP port 4791 of 127.64.0.8 is taken: by another user's"), "{taken}");
    }
}
