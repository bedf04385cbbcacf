//! Hosts, their connections and the network, in one simulated time.

use std::collections::VecDeque;
use std::net::Ipv4Addr;

use fastrand::Rng;
use verbline_roce::transport::{Arrival, Icrc, Mtu, Peer, QueuePair, Receiving, Retries, Sending, Serving, Transmit};
use verbline_roce::wire::{Addresses, HEADERS_MAX_BYTES, Psn, Qpn, Route};
use verbline_roce::{Completed, Completion, Engine, Received};

use super::memory::Regions;
use super::network::{Faults, Network};
use super::side::{Arriving, Side};

#[derive(Debug, Default)]
pub(crate) struct Host {
    pub(crate) engine: Engine,
    pub(crate) memory: Regions,
}

/// One end of a connection, on a host, and the messages that must still arrive there.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) host: usize,
    pub(crate) other: usize,
    pub(crate) side: Side,
    pub(crate) arriving: VecDeque<Arriving>,
    /// Sends that are still to be posted.
    pub(crate) to_post: usize,
    pub(crate) posts_receives: bool,
}

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) rng: Rng,
    pub(crate) now_ns: u64,
    pub(crate) hosts: Vec<Host>,
    pub(crate) ends: Vec<End>,
    pub(crate) network: Network,
    out: Vec<u8>,
}

pub(crate) fn address(host: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, 1 + host as u8)
}

pub(crate) fn addresses(from: usize, to: usize) -> Addresses {
    Addresses::V4 { source: address(from), destination: address(to) }
}

/// The pause between two actions of the programs.
const PAUSE_NS: u64 = 20_000;

/// The number of a connection's first packet. Most are so near to the wrap, or to half of all
/// numbers, that the connection passes it.
fn first_psn(rng: &mut Rng) -> Psn {
    let edge = [1 << 24, 1 << 24, 1 << 23, rng.u32(..)][rng.usize(..4)];
    Psn::new(edge.wrapping_sub(rng.u32(..40)))
}

impl World {
    pub(crate) fn new(seed: u64, hosts: usize, faults: Faults) -> World {
        World {
            rng: Rng::with_seed(seed),
            now_ns: 0,
            hosts: (0..hosts).map(|_| Host::default()).collect(),
            ends: Vec::new(),
            network: Network::new(faults),
            out: vec![0; 4096 + HEADERS_MAX_BYTES],
        }
    }

    /// Connects two hosts, or a host with itself.
    pub(crate) fn connect(&mut self, hosts: [usize; 2], mtu: Mtu, retries: Retries, sends: usize) {
        let first = self.ends.len();
        let psns = [first_psn(&mut self.rng), first_psn(&mut self.rng)];
        for (which, host) in hosts.into_iter().enumerate() {
            let qpn = loop {
                let qpn = Qpn::new(self.rng.u32(2..0xFF_FFFF));
                if self.hosts[host].engine.queue_pair(qpn).is_none() {
                    break qpn;
                }
            };
            let domain = (first + which) as u32;
            let side = Side::new(&mut self.rng, &mut self.hosts[host].memory, domain, qpn);
            let (capacity, receives) = Side::capacity();
            let queue_pair = QueuePair::new(side.owner(), Side::rights(), capacity, receives);
            self.hosts[host].engine.add(queue_pair).expect("a free number");
            let (other, arriving) = (first + 1 - which, VecDeque::new());
            self.ends.push(End { host, other, side, arriving, to_post: sends, posts_receives: true });
        }
        for which in 0..2 {
            let (end, other) = (&self.ends[first + which], &self.ends[first + 1 - which]);
            let (qpn, peer_qpn, peer) = (end.side.qpn, other.side.qpn, other.side.reached);
            let route = Route::new(addresses(end.host, other.host), qpn.number(), peer_qpn.number());
            let serving = Serving { reads: retries.reads, rnr_timer: 1, ..Serving::default() };
            let (psn, peer_psn) = (psns[which], psns[1 - which]);
            let receiving = Receiving::Rc(Peer { route, qpn: peer_qpn, psn: peer_psn, mtu }, serving);
            let engine = &mut self.hosts[end.host].engine;
            engine.with(qpn, |queue_pair| queue_pair.receive_from(receiving)).expect("there").expect("new");
            engine.with(qpn, |qp| qp.start_sending(Sending::Rc(psn, retries))).expect("there").expect("receives");
            self.ends[first + which].side.peer = Some(peer);
        }
    }

    /// Lets the programs post and poll.
    pub(crate) fn programs(&mut self) {
        for at in 0..self.ends.len() {
            let other = self.ends[at].other;
            let (host, peer_host) = (self.ends[at].host, self.ends[other].host);
            if self.ends[at].posts_receives && self.rng.u8(..3) > 0 {
                let end = &mut self.ends[at];
                end.side.post_receives(&mut self.rng, &mut self.hosts[host].engine);
            }
            while self.ends[at].to_post > 0 && self.rng.u8(..4) > 0 {
                let Host { engine, memory } = &mut self.hosts[host];
                let posted = self.ends[at].side.post_send(&mut self.rng, engine, memory);
                let Some(arriving) = posted else { break };
                let peer_memory = &self.hosts[peer_host].memory;
                self.ends[at].side.foresee_read(peer_memory);
                self.ends[at].to_post -= 1;
                self.ends[other].arriving.extend(arriving);
            }
        }
        self.poll();
    }

    pub(crate) fn poll(&mut self) {
        for host in 0..self.hosts.len() {
            while let Some((qpn, completion)) = self.hosts[host].engine.poll() {
                self.completed(host, qpn, completion);
            }
        }
    }

    fn completed(&mut self, host: usize, qpn: Qpn, completion: Completion) {
        let at = self.ends.iter().position(|end| end.host == host && end.side.qpn == qpn).expect("a side");
        let peer_host = self.ends[self.ends[at].other].host;
        let (memory, peer_memory) = (&self.hosts[host].memory, &self.hosts[peer_host].memory);
        let end = &mut self.ends[at];
        match completion.completed {
            Completed::Receive(_) | Completed::ReceiveWrite { .. } => {
                if let Some(arrived) = end.side.received(completion, memory) {
                    let expected = end.arriving.pop_front().expect("no more arrives than was sent");
                    assert!(arrived == expected, "{:?} {:?}", arrived.completed, expected.completed);
                }
            }
            _ => end.side.sent(completion, memory, peer_memory),
        }
    }

    /// Lets all hosts send their datagrams.
    pub(crate) fn transmit(&mut self) {
        for at in 0..self.hosts.len() {
            let Host { engine, memory } = &mut self.hosts[at];
            while let Some(Transmit { route, len }) = engine.transmit(self.now_ns, memory, &mut self.out, 0) {
                self.network.send(self.now_ns, &mut self.rng, route, &self.out[..len]);
            }
        }
    }

    /// Goes on to the next event; false if there will be none.
    pub(crate) fn step(&mut self) -> bool {
        self.transmit();
        let deadlines = self.hosts.iter().filter_map(|host| host.engine.deadline_ns());
        let busy = self.ends.iter().any(|end| end.to_post > 0 || !end.arriving.is_empty());
        let pause_ns = busy.then_some(self.now_ns + PAUSE_NS);
        let Some(next_ns) = deadlines.chain(self.network.next_ns()).chain(pause_ns).min() else { return false };
        self.now_ns = self.now_ns.max(next_ns);
        for host in &mut self.hosts {
            host.engine.advance(self.now_ns);
        }
        while let Some((route, datagram)) = self.network.arrived(self.now_ns) {
            self.deliver(route, &datagram);
        }
        self.programs();
        true
    }

    fn deliver(&mut self, route: Route, datagram: &[u8]) {
        let to = self.hosts.len();
        let host = (0..to).find(|host| route.addresses.destination() == address(*host)).expect("a host");
        let Host { engine, memory } = &mut self.hosts[host];
        let arrival = Arrival { route, icrc: Icrc::IpId(0) };
        let received = engine.receive(self.now_ns, arrival, datagram, memory);
        assert!(!matches!(received, Received::Management(_)));
    }

    /// Runs until no event is left.
    pub(crate) fn run(&mut self) {
        let mut steps = 0;
        self.programs();
        while self.step() {
            steps += 1;
            assert!(steps < 200_000, "does not end");
        }
        self.poll();
    }
}
