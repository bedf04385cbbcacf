//! Two queue pairs with a wire between them that a test controls.

use verbline_roce::transport::{
    Arrival, Capacity, Discard, Icrc, Incoming, Mtu, Peer, QueuePair, Receives, Receiving, Retries, Rights, Sending,
    Serving,
};
use verbline_roce::wire::{self, HEADERS_MAX_BYTES, Packet, Psn, Qpn, Route, Segment};
use verbline_roce::{Completion, Data, Operation, Owner, Remote, Right, SendRequest, Sge, Status};

use crate::sim::memory::Regions;
use crate::sim::world::addresses;

/// A datagram on the wire.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Datagram {
    pub(crate) route: Route,
    pub(crate) bytes: Vec<u8>,
}

impl Datagram {
    pub(crate) fn packet(&self) -> Packet<'_> {
        wire::read(&self.bytes).expect("a packet")
    }

    pub(crate) fn segment(&self) -> Segment {
        self.packet().segment
    }
}

/// One of the two, with memory of its own: a region for itself (4 KiB at `local`), and one that the
/// peer may access with all rights (`remote`).
pub(crate) struct Half {
    pub(crate) qp: QueuePair,
    pub(crate) memory: Regions,
    pub(crate) local: (u32, u64),
    pub(crate) remote: (u32, u64),
}

pub(crate) const ROOM: usize = 16 << 10;
pub(crate) const DEPTH: usize = 4;
pub(crate) const MTU: Mtu = Mtu::B256;
pub(crate) const RIGHTS: Rights = Rights { write: true, read: true, atomic: true };

pub(crate) const PSNS: [Psn; 2] = [Psn::new(0xFF_FFFE), Psn::new(0x7F_FFFF)];
pub(crate) const QPNS: [Qpn; 2] = [Qpn::new(0x21_0011), Qpn::new(0x32_0022)];

impl Half {
    pub(crate) fn new(which: usize, rights: Rights, receives: Receives) -> Half {
        let mut memory = Regions::default();
        let domain = which as u32;
        let local = memory.add(domain, ROOM, &[Right::LocalRead, Right::LocalWrite]);
        let remote = memory.add(domain, ROOM, &[Right::RemoteRead, Right::RemoteWrite, Right::RemoteAtomic]);
        let capacity = Capacity { sends: DEPTH, send_sges: 2, inline_bytes: 16, receive_sges: 2 };
        let owner = Owner { domain, qpn: QPNS[which] };
        Half { qp: QueuePair::new(owner, rights, capacity, receives), memory, local, remote }
    }

    pub(crate) fn peer_of(which: usize) -> Peer {
        let route = Route::new(addresses(which, 1 - which), QPNS[which].number(), QPNS[1 - which].number());
        Peer { route, qpn: QPNS[1 - which], psn: PSNS[1 - which], mtu: MTU }
    }

    pub(crate) fn sge(&self, len: u32) -> Sge {
        Sge { addr: self.local.1, len, key: self.local.0 }
    }

    /// Posts a send of `len` bytes from the front of the local region.
    pub(crate) fn send(&mut self, id: u64, operation: Operation, len: u32) {
        self.post(id, operation, len, true);
    }

    /// Like [`Half::send`], unsignaled.
    pub(crate) fn send_unsignaled(&mut self, id: u64, operation: Operation, len: u32) {
        self.post(id, operation, len, false);
    }

    fn post(&mut self, id: u64, operation: Operation, len: u32, signaled: bool) {
        let sges = [self.sge(len)];
        let data = Data::Memory(&sges[..usize::from(len > 0)]);
        let request = SendRequest { id, operation, data, signaled, solicited: false, fence: false };
        self.qp.post_send(&request).expect("posted");
    }

    /// Posts a receive of `len` bytes, at the back of the local region.
    pub(crate) fn receive(&mut self, id: u64, len: u32) {
        let sge = Sge { addr: self.local.1 + (ROOM / 2) as u64, len, key: self.local.0 };
        self.qp.post_receive(id, &[sge]).expect("posted");
    }

    /// Takes the next datagram.
    pub(crate) fn next(&mut self, now_ns: u64) -> Option<Datagram> {
        let mut out = vec![0; MTU.bytes() as usize + HEADERS_MAX_BYTES];
        let sent = self.qp.transmit(now_ns, &mut self.memory, &mut out, 0)?;
        out.truncate(sent.len);
        Some(Datagram { route: sent.route, bytes: out })
    }

    /// Takes all datagrams.
    pub(crate) fn all(&mut self, now_ns: u64) -> Vec<Datagram> {
        std::iter::from_fn(|| self.next(now_ns)).collect()
    }

    pub(crate) fn take(&mut self, now_ns: u64, datagram: &Datagram) -> Result<(), Discard> {
        let arrival = Arrival { route: datagram.route, icrc: Icrc::IpId(0) };
        let incoming = Incoming::read(arrival, &datagram.bytes).expect("a packet");
        self.qp.receive(now_ns, &incoming, &mut self.memory)
    }

    pub(crate) fn completions(&mut self) -> Vec<Completion> {
        std::iter::from_fn(|| self.qp.poll()).collect()
    }
}

/// The completions: numbers and statuses.
pub(crate) fn statuses(half: &mut Half) -> Vec<(u64, Status)> {
    half.completions().iter().map(|completion| (completion.id, completion.status)).collect()
}

/// The region that the peer may access.
pub(crate) fn remote(half: &Half) -> Remote {
    Remote { rkey: half.remote.0, addr: half.remote.1 }
}

pub(crate) struct Pair {
    pub(crate) a: Half,
    pub(crate) b: Half,
}

impl Pair {
    /// A reliable connection.
    pub(crate) fn rc(retries: Retries, rights: Rights) -> Pair {
        let halves = [0, 1].map(|which| {
            let mut half = Half::new(which, rights, Receives::Own(DEPTH));
            let serving = Serving { reads: 2, rnr_timer: 1, answered_psns: 64 };
            half.qp.receive_from(Receiving::Rc(Half::peer_of(which), serving)).expect("new");
            half.qp.start_sending(Sending::Rc(PSNS[which], retries)).expect("receives");
            half
        });
        let [a, b] = halves;
        Pair { a, b }
    }

    pub(crate) fn uc() -> Pair {
        let halves = [0, 1].map(|which| {
            let mut half = Half::new(which, RIGHTS, Receives::Own(DEPTH));
            half.qp.receive_from(Receiving::Uc(Half::peer_of(which))).expect("new");
            half.qp.start_sending(Sending::Uc(PSNS[which])).expect("receives");
            half
        });
        let [a, b] = halves;
        Pair { a, b }
    }

    pub(crate) fn ud() -> Pair {
        let halves = [0, 1].map(|which| {
            let mut half = Half::new(which, RIGHTS, Receives::Own(DEPTH));
            half.qp.receive_from(Receiving::Ud { qkey: QKEY, mtu: MTU }).expect("new");
            half.qp.start_sending(Sending::Ud(PSNS[which])).expect("receives");
            half
        });
        let [a, b] = halves;
        Pair { a, b }
    }

    /// Carries datagrams both ways until there are no more.
    pub(crate) fn settle(&mut self, now_ns: u64) {
        loop {
            let (to_b, to_a) = (self.a.all(now_ns), self.b.all(now_ns));
            if to_b.is_empty() && to_a.is_empty() {
                return;
            }
            to_b.iter().for_each(|datagram| _ = self.b.take(now_ns, datagram));
            to_a.iter().for_each(|datagram| _ = self.a.take(now_ns, datagram));
        }
    }
}

pub(crate) const QKEY: u32 = 0x1234_5678;

/// The datagrams that A sends at its deadline, which is at `due_ns`.
pub(crate) fn due(pair: &mut Pair, due_ns: u64) -> Vec<Datagram> {
    assert_eq!(pair.a.qp.deadline_ns(), Some(due_ns));
    pair.a.qp.advance(due_ns - 1);
    assert_eq!(pair.a.all(due_ns - 1), [], "too early");
    pair.a.qp.advance(due_ns);
    pair.a.all(due_ns)
}
