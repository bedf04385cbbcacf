//! Connections that come and go over a network that loses, doubles and delays: both ends agree in
//! the end, and no place stays taken.

use std::collections::{BTreeSet, HashMap};

use fastrand::Rng;
use verbline_roce::cm::{
    Accept, CmDiscard, Connect, ConnectionId, Event, Limits, Mad, Manager, Message, PortSpace, Request, reason,
};
use verbline_roce::transport::Mtu;
use verbline_roce::wire::{self, Psn, Qpn, Route};

use crate::cm_wire::datagram;
use crate::sim::for_seeds;
use crate::sim::network::{Faults, Network};
use crate::sim::world::{address, addresses};

const LIMITS: Limits = Limits {
    connections: 16,
    half_open_per_source: 16,
    answers: 16,
    timeout: 5,
    retries: 15,
    decide_ns: 50_000_000,
    time_wait_ns: 3_000_000,
};

/// The last event of a connection at one end; the key is the client's queue pair, which is drawn
/// anew for each connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    Asked,
    Open,
    Closed,
    Rejected,
    /// Rejected for want of room; the passive program gets no event.
    NoRoom,
    Lost,
}

struct World {
    rng: Rng,
    now_ns: u64,
    managers: [Manager; 2],
    network: Network,
    heard: [HashMap<u32, Heard>; 2],
    names: [HashMap<ConnectionId, u32>; 2],
    to_ask: usize,
}

impl World {
    fn new(seed: u64) -> World {
        let mut rng = Rng::with_seed(seed);
        let mut chance = |most: u32| if rng.bool() { 0 } else { rng.u32(..=most) };
        let faults = Faults { lost: chance(200), doubled: chance(200), changed: 0, late: chance(300) };
        let mut managers = [Manager::new(LIMITS), Manager::new(LIMITS)];
        managers.iter_mut().for_each(|manager| manager.listen(PortSpace::Reliable.service_of_port(1)));
        let network = Network::new(faults);
        World {
            to_ask: rng.usize(1..40),
            rng,
            now_ns: 0,
            managers,
            network,
            heard: Default::default(),
            names: Default::default(),
        }
    }

    fn transmit(&mut self) {
        for at in 0..2 {
            while let Some(outgoing) = self.managers[at].transmit() {
                assert_eq!(outgoing.to, address(1 - at));
                let route = Route::new(addresses(at, 1 - at), 1, 1);
                let bytes = datagram(&Mad::read(&outgoing.mad).expect("a message"), &route);
                self.network.send(self.now_ns, &mut self.rng, route, &bytes);
            }
        }
    }

    fn hear(&mut self, at: usize, id: ConnectionId, heard: Heard) {
        let name = self.names[at][&id];
        let before = self.heard[at].insert(name, heard);
        let is_next = match heard {
            // An active side that misses its rejection asks again.
            Heard::Asked => matches!(before, None | Some(Heard::Rejected)),
            Heard::Open | Heard::Rejected | Heard::NoRoom => before == Some(Heard::Asked),
            Heard::Closed | Heard::Lost => matches!(before, Some(Heard::Asked | Heard::Open)),
        };
        assert!(is_next, "{name:#x}: {before:?}, then {heard:?}");
    }

    fn programs(&mut self) {
        for at in 0..2 {
            while let Some(event) = self.managers[at].poll() {
                self.event(at, event);
            }
        }
        if self.to_ask > 0 && self.rng.bool() {
            let at = self.rng.usize(..2);
            let qpn = self.rng.u32(2..0xFF_FFFF);
            let [from, to] = [at, 1 - at].map(|host| address(host).into());
            let connect =
                Connect::new(from, to, 1, Qpn::new(qpn), Psn::new(qpn), Mtu::B1024, b"x").expect("one family");
            if let Ok(id) = self.managers[at].connect(self.now_ns, self.rng.u32(..), &connect) {
                self.to_ask -= 1;
                self.names[at].insert(id, qpn);
                self.hear(at, id, Heard::Asked);
            }
        }
        // Some are ended, by either side.
        for at in 0..2 {
            let open = self.names[at].iter().filter(|(_, name)| self.heard[at][name] == Heard::Open);
            let mut open: Vec<_> = open.map(|(id, _)| *id).collect();
            open.sort_unstable_by_key(|id| id.number());
            if let Some(id) = self.rng.choice(open).filter(|_| self.to_ask == 0 || self.rng.u8(..4) == 0) {
                // The end may be under way already.
                let _ = self.managers[at].disconnect(self.now_ns, id);
            }
        }
    }

    fn event(&mut self, at: usize, event: Event) {
        match event {
            Event::Requested(id, request) => {
                assert_eq!(request.starting_psn.number(), request.qpn.number());
                self.names[at].insert(id, request.qpn.number());
                self.hear(at, id, Heard::Asked);
                if self.rng.u8(..5) == 0 {
                    self.managers[at].reject(self.now_ns, id, reason::CONSUMER, b"").expect("requested");
                    self.hear(at, id, Heard::Rejected);
                } else {
                    let accept = Accept::new(request.qpn, request.starting_psn, b"");
                    self.managers[at].accept(self.now_ns, id, &accept).expect("requested");
                }
            }
            Event::Replied(id, reply) => {
                assert_eq!(reply.qpn.number(), self.names[at][&id], "another's reply");
                // The connection may have been ended since.
                if self.managers[at].establish(self.now_ns, id).is_ok() {
                    self.hear(at, id, Heard::Open);
                }
            }
            Event::Established(id) => self.hear(at, id, Heard::Open),
            Event::Rejected(id, said) if said.reason == reason::NO_RESOURCES => self.hear(at, id, Heard::NoRoom),
            Event::Rejected(id, _) => self.hear(at, id, Heard::Rejected),
            Event::Unanswered(id) => self.hear(at, id, Heard::Lost),
            Event::Disconnected(id) => self.hear(at, id, Heard::Closed),
        }
    }

    /// Returns false if nothing will happen any more.
    fn step(&mut self) -> bool {
        self.programs();
        self.transmit();
        let busy = self.to_ask > 0 || self.heard.iter().any(|heard| heard.values().any(|heard| *heard == Heard::Open));
        let pause_ns = busy.then_some(self.now_ns + 100_000);
        let deadlines = self.managers.iter().filter_map(Manager::deadline_ns);
        let Some(next_ns) = deadlines.chain(self.network.next_ns()).chain(pause_ns).min() else { return false };
        self.now_ns = self.now_ns.max(next_ns);
        self.managers.iter_mut().for_each(|manager| manager.advance(self.now_ns));
        while let Some((route, bytes)) = self.network.arrived(self.now_ns) {
            let packet = wire::read(&bytes).expect("a packet");
            let at = usize::from(route.addresses.destination() == address(1));
            let random = self.rng.u32(..);
            let _ = self.managers[at].receive(self.now_ns, random, route.addresses.source(), packet.payload);
        }
        true
    }
}

#[test]
fn both_ends_agree_in_the_end_and_no_place_stays_taken() {
    for_seeds(300, |seed| {
        let mut world = World::new(seed);
        let mut steps = 0;
        while world.step() {
            steps += 1;
            assert!(steps < 100_000, "does not end");
        }
        assert!(world.managers.iter().all(Manager::is_empty), "{:?}", world.heard);
        for heard in &world.heard {
            assert!(heard.values().all(|heard| !matches!(heard, Heard::Asked | Heard::Open)), "{heard:?}");
        }
        let names: BTreeSet<u32> = world.heard.iter().flat_map(|heard| heard.keys().copied()).collect();
        for name in names {
            let agree = match [0, 1].map(|at| world.heard[at].get(&name)) {
                [Some(one), Some(other)] if one == other => *one != Heard::NoRoom,
                // There may have been room, and a rejection by the program, for a repeated request.
                [Some(Heard::NoRoom), None | Some(Heard::Rejected)] => true,
                [None | Some(Heard::Rejected), Some(Heard::NoRoom)] => true,
                // Every message to this end was lost; and its own request may never have arrived.
                [Some(Heard::Lost), _] | [_, Some(Heard::Lost)] => true,
                _ => false,
            };
            assert!(agree, "{name:#x}: {:?}", world.heard);
        }
    });
}

/// Random messages in random order: nothing panics, nothing grows, and time empties the manager.
#[test]
fn any_messages_leave_nothing_behind() {
    for_seeds(300, |seed| {
        let mut rng = Rng::with_seed(seed);
        let half_open = 3;
        let mut manager = Manager::new(Limits { half_open_per_source: half_open, ..LIMITS });
        manager.listen(PortSpace::Reliable.service_of_port(1));
        let [from, to] = [0, 1].map(|host| address(host).into());
        let mut recorded: Vec<[u8; 256]> = Vec::new();
        for step in 0..300_u64 {
            let now_ns = step * 100_000;
            // Few numbers: some of the connections are stale.
            let qpn = Qpn::new(rng.u32(2..6));
            let connect = Connect::new(from, to, 1, qpn, Psn::new(1), Mtu::B256, b"").expect("one family");
            match rng.u8(..8) {
                0 => _ = manager.connect(now_ns, rng.u32(..), &connect),
                1 => {
                    let mut request = connect.request;
                    request.local_id = rng.u32(..20);
                    recorded.push(Mad { transaction: 1, message: Message::Request(request) }.to_bytes());
                }
                2 => recorded.extend(manager.transmit().map(|outgoing| outgoing.mad)),
                3 => match manager.poll() {
                    Some(Event::Requested(id, _)) if rng.bool() => {
                        let _ = manager.accept(now_ns, id, &Accept::new(Qpn::new(2), Psn::new(3), b""));
                    }
                    Some(Event::Replied(id, _)) => _ = manager.establish(now_ns, id),
                    Some(Event::Established(id)) => _ = manager.disconnect(now_ns, id),
                    _ => {}
                },
                4 => manager.advance(now_ns),
                _ => {}
            }
            if let Some(mut mad) = rng.choice(&recorded).copied() {
                // Our message comes back as if the peer had sent it: the numbers change sides, and
                // the kind changes.
                if rng.bool() {
                    let (ours, theirs) = (mad[24..28].to_vec(), mad[28..32].to_vec());
                    mad[24..28].copy_from_slice(&theirs);
                    mad[28..32].copy_from_slice(&ours);
                    mad[17] = rng.u8(0x10..0x17);
                }
                if rng.bool() {
                    mad[rng.usize(..256)] = rng.u8(..);
                }
                let _ = manager.receive(now_ns, rng.u32(..), [from, to][rng.usize(..2)], &mad);
            }
            assert!(manager.len() <= LIMITS.connections);
        }
        let mut now_ns = 1_000_000_000;
        for _ in 0..10_000 {
            while let Some(event) = manager.poll() {
                if let Event::Established(id) | Event::Replied(id, _) = event {
                    let _ = (manager.establish(now_ns, id), manager.disconnect(now_ns, id));
                }
            }
            while manager.transmit().is_some() {}
            let Some(deadline_ns) = manager.deadline_ns() else { break };
            now_ns = now_ns.max(deadline_ns);
            manager.advance(now_ns);
        }
        assert_eq!(manager.deadline_ns(), None);
        assert!(!manager.has_undecided());
        // Three can connect as before, and a fourth can't.
        let connect = Connect::new(from, to, 1, Qpn::new(9), Psn::new(1), Mtu::B256, b"").expect("one family");
        for number in 0..half_open as u32 + 1 {
            let request = Request { local_id: 1000 + number, qpn: Qpn::new(9 + number), ..connect.request };
            let mad = Mad { transaction: 1, message: Message::Request(request) }.to_bytes();
            let taken = manager.receive(now_ns, rng.u32(..), from, &mad);
            let expected =
                if number < half_open as u32 { Ok(()) } else { Err(CmDiscard::Rejected(reason::NO_RESOURCES)) };
            assert_eq!(taken, expected, "request {number} of {}", manager.len());
        }
        assert!(manager.has_undecided());
    });
}
