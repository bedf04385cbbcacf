//! Messages between two processes: RoCE v2 over UDP sockets of this host, without a card, root or a
//! kernel module.
//!
//! A measurement starts the other process, which plays a [`Role`] and ends with it. Each has one
//! software device with an address of its own, and one CPU.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use clap::builder::PossibleValue;
use verbline::engine::WireReport;
use verbline::mem::Batch;
use verbline::prelude::*;
use verbline::verbs::connection::{ConnectOptions, Connection, Listener, resolve};
use verbline::verbs::rdma::{KeepSpec, Remote};
use verbline::verbs::{Access, Provider, QueuePair, wire_counters};

use super::connections::{self, PATIENCE};
use super::endpoint::Endpoint;
use super::idle::cpu_time;
use super::messages::{BURST, DEPTH, OneSided, SHARED_DEPTH_WR, one_sided, ping, pong, rates};
use super::rc::{READS_AT_ONCE, Side, Spec};
use super::{lcores, repeated, stages};
use crate::Figures;
use crate::pair::{cpus, pin};

/// The other process's port for connection management.
const PORT: u16 = 4801;

/// What the other process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// Sends back every message, of this many bytes
    Pong,
    /// Has a region of this many bytes, and polls
    Region,
    /// Receives over this many connections
    Receive,
    /// Keeps this many connections open
    Hold,
}

impl Role {
    /// The parameters of both ends.
    fn spec(self, number: u32) -> Spec {
        match self {
            Role::Pong => Spec { depth_wr: DEPTH as u32, ..Spec::new(number) },
            Role::Region | Role::Hold => Spec { depth_wr: 64, ..Spec::new(64) },
            Role::Receive => {
                let queue_pairs = u16::try_from(number).expect("a count of queue pairs");
                Spec { queue_pairs, depth_wr: 64, shared_depth_wr: SHARED_DEPTH_WR, ..Spec::new(64) }
            }
        }
    }
}

/// The addresses of the two processes of a measurement. They contain the measuring process's id, so
/// that no other measurement uses them at the same time.
fn addresses(of: u32) -> [IpAddr; 2] {
    [1, 2].map(|last| Ipv4Addr::new(127, 0x40 | (of >> 8) as u8 & 0x3f, of as u8, last).into())
}

fn terms(private_data: Vec<u8>) -> ConnectOptions {
    let access = Access::REMOTE_READ | Access::REMOTE_WRITE;
    let (responder_resources, initiator_depth) = (READS_AT_ONCE, READS_AT_ONCE);
    // Half a second per try: a process may be kept from its CPU for a while.
    let timeout = Some(17);
    let all = ConnectOptions { private_data, timeout, access, ..ConnectOptions::default() };
    ConnectOptions { responder_resources, initiator_depth, ..all }
}

// --- the other process

/// Plays a role in a measurement of process `of`, until standard input ends, which it does with
/// that process.
///
/// # Panics
/// If the measuring process does not connect.
pub fn play(role: Role, number: u32, of: u32) {
    let [_, own] = addresses(of);
    if role == Role::Hold {
        return hold(own, number);
    }
    std::thread::spawn(|| {
        // An error is an end, too.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let mut side = Side::at(own, &role.spec(number));
    let cache = side.cache.take().expect("bound once");
    let region = side.peer_region(number.max(8) as usize);
    let _connections = accept_all(&mut side, own, &region.remote(0).to_bytes());
    let _pinned = pin(cpus()[1]);
    if role == Role::Pong {
        side.cache = Some(cache);
        return pong(side, u64::MAX);
    }
    let cache = cache.bind();
    if role == Role::Receive {
        side.fill_shared(&cache, SHARED_DEPTH_WR as usize);
    }
    loop {
        if role == Role::Receive {
            side.poll_shared(&cache);
        } else {
            side.poll(&cache, |_, _| {});
        }
    }
}

fn accept_all(side: &mut Side, own: IpAddr, private_data: &[u8]) -> Vec<Connection> {
    let backlog = side.qps.len() as u32;
    let mut listener = Listener::bind(Provider::Soft, SocketAddr::new(own, PORT), backlog).expect("a free port");
    say("listens");
    let accept = |qp: &mut QueuePair| {
        let request = listener.next(PATIENCE).expect("it listens").expect("somebody asks");
        request.accept(qp, &terms(private_data.to_vec())).expect("it is accepted")
    };
    side.qps.iter_mut().map(accept).collect()
}

/// Prints a line for the measuring process.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // If nobody reads, the measuring process is gone.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Keeps connections open, and prints its CPU time for each line of input.
fn hold(own: IpAddr, connections: u32) {
    let mut plan = preamble(own);
    let _ = writeln!(
        plan,
        "lcore.a = {{ cpu = {}, idle = \"event\" }}\n\
         port.server = {{ lcore = \"a\", device = \"nic0\", pool = \"packets\", transport = \"rc\", \
         listen = \"{own}:{PORT}\", connections_max = {connections}, rx_shared_wr = 512, next = \"stage.sink\" }}\n\
         stage.sink = {{ use = \"sink\", lcore = \"a\" }}",
        cpus()[1].id
    );
    let running = stages::start(&connections::registry(), &plan);
    say("listens");
    for line in std::io::stdin().lines() {
        if line.is_err() {
            break;
        }
        say(&format!("cpu_ns={}", cpu_time().as_nanos()));
    }
    stages::finish(running);
}

fn preamble(address: IpAddr) -> String {
    lcores::preamble(4096).replace("\"soft0\"", &format!("\"soft0\", address = \"{address}\""))
}

// --- the measuring process

/// The other process, as seen by the measuring one. It ends when this is dropped.
#[derive(Debug)]
struct Far {
    child: Child,
    orders: Option<ChildStdin>,
    said: BufReader<ChildStdout>,
}

impl Far {
    /// Starts it by a command that plays a role ([`play`]), and waits until it listens.
    fn start(mut command: Command, role: Role, number: u32) -> Far {
        command.args(role.to_possible_value().iter().map(PossibleValue::get_name));
        command.args([number, std::process::id()].map(|word| word.to_string()));
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.expect("the other process starts");
        let (orders, said) = (child.stdin.take(), child.stdout.take().expect("it is piped"));
        let mut far = Far { child, orders, said: BufReader::new(said) };
        assert_eq!(far.line(), "listens");
        far
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.said.read_line(&mut line).is_ok_and(|bytes| bytes > 0), "the other process goes on");
        line.trim().to_owned()
    }

    /// The CPU time that it has used.
    fn cpu_time(&mut self) -> Duration {
        writeln!(self.orders.as_mut().expect("there until it is dropped"), "look").expect("it reads");
        let line = self.line();
        let ns = line.strip_prefix("cpu_ns=").and_then(|ns| ns.parse().ok());
        Duration::from_nanos(ns.unwrap_or_else(|| panic!("it said {line}")))
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        self.orders = None;
        let _ = self.child.wait();
    }
}

/// Starts the other process and connects every queue pair of a side to it.
fn meet(command: Command, role: Role, number: u32) -> (Far, Side, Vec<Connection>) {
    let [own, to] = addresses(std::process::id());
    let far = Far::start(command, role, number);
    let mut side = Side::at(own, &role.spec(number));
    let connect = |qp: &mut QueuePair| {
        let route = resolve(Provider::Soft, SocketAddr::new(to, PORT), None, PATIENCE).expect("a route");
        route.connect(qp, &terms(Vec::new())).and_then(|asked| asked.finish(qp, PATIENCE)).expect("a connection")
    };
    let connections = side.qps.iter_mut().map(connect).collect();
    (far, side, connections)
}

/// SENDs of `bytes` there and back, one at a time, both ends polling: `ns` one way.
///
/// # Panics
/// If the other process does not start, or a message is lost.
pub fn one_way(far: Command, bytes: u32) -> Figures {
    const TRIPS: u64 = 10_000;
    let (_far, side, _connections) = meet(far, Role::Pong, bytes);
    let _pinned = pin(cpus()[0]);
    let mut side = Endpoint::with_receives(side, DEPTH);
    let ns = repeated(|| {
        let began = Instant::now();
        ping(&mut side, bytes as usize, TRIPS);
        began.elapsed().as_nanos() as f64 / (2 * TRIPS) as f64
    });
    Figures::of("ns", ns).with(datagrams(10 * TRIPS * 2))
}

/// RDMA WRITEs of `bytes`, up to 64 posted at once: `messages_per_s`, `bytes_per_s`.
///
/// # Panics
/// If the other process does not start, or the written bytes are not there.
pub fn write_rate(far: Command, bytes: u32) -> Figures {
    let count = ((128u64 << 20) / u64::from(bytes)).min(1 << 16) / BURST as u64 * BURST as u64;
    let (_far, mut side, connections) = meet(far, Role::Region, bytes);
    let there = connections[0].private_data().first_chunk().expect("where the region is");
    let there = Remote::from_bytes(*there);
    let local = side.peer_region(bytes as usize);
    local.write_from(0, &[0xa5; 8]).expect("within the region");
    let cache = side.cache.take().expect("bound once").bind();
    let _pinned = pin(cpus()[0]);
    let regions = vec![Some(local.clone())];
    side.qps[0].keep_memory(&KeepSpec { regions, ..KeepSpec::default() }).expect("a region of its own");
    let seconds = repeated(|| one_sided(&mut side, &cache, OneSided::Write, count, bytes, there).as_secs_f64());
    local.write_from(0, &[0; 8]).expect("within the region");
    one_sided(&mut side, &cache, OneSided::Read, 1, bytes, there);
    let mut read = [0; 8];
    local.read_into(0, &mut read).expect("within the region");
    assert_eq!(read, [0xa5; 8], "what was written is there");
    rates(count as f64 / seconds, bytes)
}

/// The cost of a message of 64 bytes over this many connections in turn, a list of 32 each, until
/// the last of them is acknowledged: `ns`.
///
/// # Panics
/// If the other process does not start, or the connections do not open.
pub fn in_turn(far: Command, queue_pairs: u32) -> Figures {
    const LISTS: usize = 2_048;
    let (_far, mut side, _connections) = meet(far, Role::Receive, queue_pairs);
    let cache = side.cache.take().expect("bound once").bind();
    let _pinned = pin(cpus()[0]);
    let mut batch = Batch::with_capacity(BURST);
    let ns = repeated(|| {
        let began = Instant::now();
        for list in 0..LISTS {
            cache.get_bulk_of_len(&mut batch, BURST, 64);
            assert_eq!(side.qps[list % queue_pairs as usize].post_send(&mut batch).posted, BURST);
            let mut done = 0;
            while done < BURST {
                done += side.poll(&cache, |_, _| {}).sent;
            }
        }
        began.elapsed().as_nanos() as f64 / (LISTS * BURST) as f64
    });
    Figures::of("ns", ns).with(datagrams(10 * (LISTS * BURST) as u64))
}

/// The device's datagrams for each of this many messages, and system calls for both directions:
/// `datagrams`, `calls`; `again`, the number of packets sent again.
fn datagrams(messages: u64) -> Figures {
    let mut figures = Figures::default();
    for wire in wire_counters().filter(|wire| wire.link.sent > 0) {
        let a_message = |count: u64| count as f64 / messages as f64;
        figures = Figures::of("datagrams", a_message(wire.link.sent))
            .and("calls", a_message(wire.link.send_calls + wire.link.receive_calls))
            .and("again", wire.incidents.retransmitted as f64);
    }
    figures
}

/// This many connections open between two processes in event mode, without traffic: `percent`, the
/// CPU time of the busier process as a share of one core, and the `datagrams` per second of each
/// connection, in both directions.
///
/// # Panics
/// If the other process does not start, or the connections do not open.
pub fn idle(far: Command, connections: u32, time: Duration) -> Figures {
    let [own, to] = addresses(std::process::id());
    let mut far = Far::start(far, Role::Hold, connections);
    let mut plan = preamble(own);
    let _ = writeln!(
        plan,
        "lcore.a = {{ cpu = {}, idle = \"event\" }}\n\
         port.clients = {{ lcore = \"a\", device = \"nic0\", transport = \"rc\", connect = \"{to}:{PORT}\", \
         connections = {connections}, tx_depth_wr = 1, inline_bytes = 128 }}\n\
         stage.rounds = {{ use = \"rounds\", lcore = \"a\", pool = \"packets\", out = {{ out = \"port.clients\" }}, \
         params = {{ connections = {} }} }}",
        cpus()[0].id,
        // One more than there are, so that it never begins.
        connections + 1
    );
    let running = stages::start(&connections::registry(), &plan);
    connections::wait_until_open(&running, connections);
    running.wait(Some(Duration::from_secs(1)));
    let one = |wire: &WireReport| wire.datagrams_sent + wire.datagrams_received;
    let link = |report: &Report| report.wires.iter().map(one).sum::<u64>();
    let (cpu, far_cpu, before, began) = (cpu_time(), far.cpu_time(), link(&running.snapshot()), Instant::now());
    running.wait(Some(time));
    let datagrams = link(&running.snapshot()) - before;
    let share = |used: Duration| 100.0 * used.as_secs_f64() / began.elapsed().as_secs_f64();
    let percent = share(cpu_time() - cpu).max(share(far.cpu_time() - far_cpu));
    stages::finish(running);
    let each = datagrams as f64 / began.elapsed().as_secs_f64() / f64::from(connections);
    Figures::of("percent", percent).and("datagrams", each)
}
