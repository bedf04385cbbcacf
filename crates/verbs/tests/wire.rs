//! Two processes, each with a software device of its own address: connected by address, over UDP.
//!
//! A program of its own: a device keeps its address as long as its process. It starts itself as the
//! other process, with the role in the environment.

#[path = "suite/common.rs"]
#[allow(dead_code, unused_macros, unused_imports, unreachable_pub, reason = "the API tests use the rest")]
mod common;

use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use common::{Options, PATIENCE, Side, message, open, spec};
use verbline_mem::Batch;
use verbline_verbs::connection::{ConnectOptions, Connection, ConnectionError, Listener, resolve, resolve_for};
use verbline_verbs::expert::AttrMask;
use verbline_verbs::rdma::Remote;
use verbline_verbs::{Access, Notify, Provider, QpState, SendOptions, Status, Transport, WrKind};

/// What the other process is to do, and where.
const ROLE: &str = "VERBLINE_TEST_ROLE";
const PARENT: &str = "VERBLINE_TEST_PARENT";
const REGION_BYTES: usize = 1 << 20;
/// What is written and read back: many packets.
const HALF_BYTES: u32 = 1 << 19;

/// Addresses that no other test has at the same time: the process's number is in them.
fn address(of: u32, last: u8) -> IpAddr {
    Ipv4Addr::new(127, 0x40 | (of >> 8) as u8 & 0x3f, of as u8, last).into()
}

fn options() -> Options {
    Options { data_bytes: 16 << 10, ..Options::new(Transport::Rc) }
}

fn terms() -> ConnectOptions {
    ConnectOptions {
        responder_resources: 4,
        initiator_depth: 4,
        access: Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC,
        ..ConnectOptions::default()
    }
}

/// A side whose device has the address, with its QP in RESET.
fn side(address: IpAddr, with_channel: bool) -> Side {
    let context = open("soft0");
    assert_eq!(context.set_address(address).unwrap(), 2);
    let mut side = Side::build(context, &options(), 0, with_channel);
    side.qp = side.pd.create_qp(&spec(&options(), &side.cq, 0)).unwrap();
    side
}

/// The other process.
struct Other {
    child: Child,
    stdin: ChildStdin,
    lines: BufReader<std::process::ChildStdout>,
    last: u8,
}

impl Other {
    /// Starts it in a role, with an address of its own.
    fn start(role: &str) -> Other {
        static NEXT: Mutex<u8> = Mutex::new(10);
        let last = {
            let mut next = NEXT.lock().unwrap();
            *next += 1;
            *next
        };
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["the_other_process", "--exact", "--nocapture", "--test-threads=1"])
            .env(ROLE, format!("{role} {last}"))
            .env(PARENT, std::process::id().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (stdin, lines) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Other { child, stdin, lines, last }
    }

    /// What it says next.
    fn says(&mut self, what: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "it says {what} before it ends");
            if let Some((_, rest)) = line.split_once(&format!("{what}=")) {
                return rest.trim().to_owned();
            }
        }
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.stdin, "{line}").unwrap();
    }

    fn listens(&mut self) -> SocketAddr {
        let port = self.says("port").parse().unwrap();
        SocketAddr::new(address(std::process::id(), self.last), port)
    }

    fn ends_well(mut self) {
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}");
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
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

/// What a queue pair was told that the connection manager does not say: the traffic class and the
/// timers.
fn own_attr(side: &mut Side) -> [u8; 3] {
    let told = side.qp.query(AttrMask::AV | AttrMask::TIMEOUT | AttrMask::MIN_RNR_TIMER).unwrap();
    [told.ah.traffic_class, told.timeout, told.min_rnr_timer]
}

/// What the other process does; nothing in the test's own.
#[test]
fn the_other_process() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let (role, last) = role.split_once(' ').unwrap();
    let parent: u32 = std::env::var(PARENT).unwrap().parse().unwrap();
    let mut side = side(address(parent, last.parse().unwrap()), false);
    let own = side.context.address().unwrap();
    let mut listener = Listener::bind(Provider::Soft, SocketAddr::new(own, 0), 4).unwrap();
    println!("port={}", listener.local_addr().port());
    let request = listener.next(PATIENCE).unwrap().expect("somebody asks");
    assert!(request.private_data().starts_with(b"hello"));
    if role == "reject" {
        return request.reject(b"closed on Sundays").unwrap();
    }
    side.qp.to_init(&common::init_spec()).unwrap();
    assert_eq!(side.post_recvs(16), 16);
    let options = ConnectOptions { private_data: b"welcome".to_vec(), ..terms() };
    let mut connection = request.accept(&mut side.qp, &options).unwrap();
    connection.wait_established(PATIENCE).unwrap();
    let region = side.peer_region(REGION_BYTES, Access::LOCAL_WRITE | terms().access);
    let Remote { addr, rkey } = region.remote(0);
    println!("region={addr} {rkey}");
    let [class, timeout, timer] = own_attr(&mut side);
    println!("attributes={class} {timeout} {timer}");
    match role {
        "echo" => echo(&mut side, &mut connection),
        "late" => {
            std::io::stdin().lines().next();
            side.send(b"late");
            side.drain_sends();
            assert!(connection.wait_disconnected(PATIENCE).unwrap());
        }
        // Until it is killed, or its parent is gone.
        _ => drop(std::io::stdin().lines().next()),
    }
}

/// Sends back what comes, until the peer disconnects.
fn echo(side: &mut Side, connection: &mut Connection) {
    while !connection.wait_disconnected(Duration::ZERO).unwrap() {
        let mut packets = Batch::with_capacity(64);
        side.poll(|qp, freed, completion| match completion.kind() {
            // The peer may be gone with what was under way.
            WrKind::Recv => drop(qp.recv_done(completion).map(|packet| packets.push(packet).unwrap())),
            _ => _ = qp.send_done(completion, freed),
        });
        if !packets.is_empty() && side.qp.state() == QpState::Rts {
            let count = packets.len();
            // A queue pair that has failed meanwhile takes none.
            let _ = side.qp.post_send(&mut packets);
            side.post_recvs(count);
        }
    }
}

impl Side {
    /// Polls until all sends have completed, or half a second is over: some are not signaled.
    fn drain_sends(&mut self) {
        let until = Instant::now() + Duration::from_millis(500);
        while self.qp.sends_outstanding() > 0 && Instant::now() < until {
            self.poll(common::hand_back);
        }
    }
}

#[test]
fn two_processes_talk_by_address() {
    let mut other = Other::start("echo");
    let mut side = side(own(), false);
    let mut connection = connect(&mut side, other.listens(), 16);
    assert!(connection.private_data().starts_with(b"welcome"));
    connection.wait_established(PATIENCE).unwrap();
    // From what fits inline to three packets of the largest MTU, and nothing at all.
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

/// Polls until the operation is done; gives its status.
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
    // The process is gone, and nobody else has its address.
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
    side.qp.start_drain().unwrap();
    side.drain();
    side.assert_all_free();
    drop(connection);
}

#[test]
fn who_sleeps_is_woken_by_what_comes_from_elsewhere() {
    let mut other = Other::start("late");
    let mut side = side(own(), true);
    let connection = connect(&mut side, other.listens(), 4);
    other.says("region");
    let mut channel = side.channel.take().unwrap();
    let armed = side.cq.arm(Notify::Next).unwrap();
    assert_eq!(side.cq.poll(&mut side.completions), 0);
    other.tell("now");
    // Nobody polls from here on.
    let mut fds = [rustix::event::PollFd::new(&channel, rustix::event::PollFlags::IN)];
    let patience = rustix::event::Timespec { tv_sec: 10, tv_nsec: 0 };
    assert_eq!(rustix::event::poll(&mut fds, Some(&patience)), Ok(1), "the channel is readable");
    channel.take_events(armed).unwrap();
    assert_eq!(side.receive(1)[0].data(), b"late");
    drop(connection);
    other.ends_well();
}

#[test]
fn an_address_that_cannot_be_is_refused_with_the_reason() {
    let context = open("soft1");
    let refused = |address: &str| context.set_address(address.parse().unwrap()).unwrap_err().to_string();
    assert!(refused("0.0.0.0").contains("no address that a peer can send to"));
    assert!(refused("192.0.2.1").contains("no address of this host"), "{}", refused("192.0.2.1"));
    let other = Other::start("wait");
    let mut other = other;
    let at = other.listens();
    let taken = refused(&at.ip().to_string());
    assert!(taken.contains("UDP port 4791 of 127.") && taken.contains("is taken"), "{taken}");
    assert_eq!(context.address(), None);
    // One more of the device that has one.
    let side = side(own(), false);
    let error = side.context.set_address(Ipv4Addr::new(127, 1, 1, 1).into()).unwrap_err().to_string();
    assert!(error.starts_with(&format!("soft0 has the address {} already", own())), "{error}");
}
