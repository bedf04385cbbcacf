//! RoCE datagrams and messages of connection management: any bytes are a packet, which is written
//! as it was read, or an error. Two queue pairs converse while the bytes inject and change
//! datagrams; in the end both have given everything back.
#![no_main]

use std::net::Ipv4Addr;

use libfuzzer_sys::fuzz_target;
use verbline_roce::cm::{Mad, Message};
use verbline_roce::transport::{
    Arrival, Capacity, Icrc, Incoming, Mtu, Peer, QueuePair, Receives, Receiving, Retries, Rights, Sending, Serving,
};
use verbline_roce::wire::{
    self, Addresses, AtomicExtension, AtomicOp, HEADERS_MAX_BYTES, Psn, Qpn, Route, SendEnd, WriteEnd, ip,
};
use verbline_roce::{Data, Denied, Memory, Operation, Owner, Place, Remote, Right, SendRequest, Sge};

const MTU: Mtu = Mtu::B256;
const LEN: usize = 1024;
const DEPTH: u64 = 4;
const QPNS: [Qpn; 2] = [Qpn::new(0x11), Qpn::new(0x12)];

/// A buffer at address 0: key 1 is its owner's, key 2 the peer's.
struct Buffer([u8; LEN]);

impl Buffer {
    fn reach(&mut self, place: Place, len: u64) -> Result<&mut [u8], Denied> {
        let is_remote = !matches!(place.right, Right::LocalRead | Right::LocalWrite);
        let end = place.addr.checked_add(len).filter(|end| *end <= LEN as u64).ok_or(Denied)?;
        if place.key != 1 + u32::from(is_remote) {
            return Err(Denied);
        }
        Ok(&mut self.0[place.addr as usize..end as usize])
    }
}

impl Memory for Buffer {
    fn read(&mut self, from: Place, out: &mut [u8]) -> Result<(), Denied> {
        out.copy_from_slice(self.reach(from, out.len() as u64)?);
        Ok(())
    }

    fn write(&mut self, to: Place, bytes: &[u8]) -> Result<(), Denied> {
        self.reach(to, bytes.len() as u64)?.copy_from_slice(bytes);
        Ok(())
    }

    fn check(&mut self, at: Place, len: u64) -> Result<(), Denied> {
        self.reach(at, len).map(|_| ())
    }

    fn atomic(&mut self, at: Place, _: AtomicOp) -> Result<u64, Denied> {
        assert!(at.addr % 8 == 0, "{at:?}");
        self.reach(at, 8).map(|word| u64::from(word[0]))
    }

    fn invalidate(&mut self, _: Owner, _: u32) -> Result<(), Denied> {
        Err(Denied)
    }
}

fuzz_target!(|bytes: &[u8]| {
    reads(bytes);
    converses(bytes);
});

fn route(own: usize) -> Route {
    let addresses = Addresses::V4 { source: Ipv4Addr::new(10, 0, 0, 1), destination: Ipv4Addr::new(10, 0, 0, 2) };
    Route::new(if own == 0 { addresses } else { addresses.reversed() }, 1, 2)
}

fn reads(bytes: &[u8]) {
    if let Ok(packet) = wire::read(bytes) {
        let mut out = vec![0; packet.payload.len() + HEADERS_MAX_BYTES];
        let len = packet.write(&mut out, &route(0), 0);
        assert_eq!(wire::read(&out[..len]), Ok(packet));
    }
    if let Some(frame) = ip::read(bytes) {
        let _ = frame.is_intact();
    }
    if let Ok(mad) = Mad::read(bytes) {
        assert_eq!(Mad::read(&mad.to_bytes()), Ok(mad));
        if let Message::Request(request) = mad.message {
            let _ = (request.ip(), request.port(), request.user_data());
        }
    }
}

struct Half {
    qp: QueuePair,
    memory: Buffer,
}

fn half(own: usize) -> Half {
    let capacity = Capacity { sends: DEPTH as usize, send_sges: 1, inline_bytes: 0, receive_sges: 1 };
    let rights = Rights { write: true, read: true, atomic: true };
    let owner = Owner { domain: 0, qpn: QPNS[own] };
    let mut qp = QueuePair::new(owner, rights, capacity, Receives::Own(DEPTH as usize));
    let peer = Peer { route: route(own), qpn: QPNS[1 - own], psn: Psn::new(0xFF_FFFE), mtu: MTU };
    let serving = Serving { reads: 2, rnr_timer: 1, answered_psns: 1 << 10 };
    qp.receive_from(Receiving::Rc(peer, serving)).expect("new");
    qp.start_sending(Sending::Rc(Psn::new(0xFF_FFFE), Retries { reads: 2, ..Retries::default() })).expect("receives");
    let remote = Remote { addr: 64, rkey: 2 };
    for id in 0..DEPTH {
        qp.post_receive(id, &[Sge { addr: 0, len: LEN as u32, key: 1 }]).expect("room");
        let operation = match id {
            0 => Operation::Send(SendEnd::Immediate(1)),
            1 => Operation::Write(remote, WriteEnd::Immediate(2)),
            2 => Operation::Read(remote),
            _ => Operation::Atomic(AtomicExtension { addr: 64, rkey: 2, op: AtomicOp::FetchAdd(1) }),
        };
        let sges = [Sge { addr: 0, len: if id == 3 { 8 } else { 700 }, key: 1 }];
        let data = Data::Memory(&sges);
        let request = SendRequest { id, operation, data, signaled: true, solicited: false, fence: false };
        qp.post_send(&request).expect("room");
    }
    Half { qp, memory: Buffer([own as u8; LEN]) }
}

impl Half {
    fn take(&mut self, now_ns: u64, route: Route, datagram: &[u8]) {
        let arrival = Arrival { route, icrc: Icrc::Unknown };
        if let Ok(incoming) = Incoming::read(arrival, datagram) {
            let _ = self.qp.receive(now_ns, &incoming, &mut self.memory);
        }
    }
}

/// The bytes decide the fate of each datagram: it comes, is lost, comes twice, or is changed. They
/// may also be a datagram themselves.
fn converses(bytes: &[u8]) {
    let (mut halves, mut now_ns, mut bytes) = ([half(0), half(1)], 0, bytes);
    let mut out = [0; 256 + HEADERS_MAX_BYTES];
    while let Some((&fate, rest)) = bytes.split_first() {
        bytes = rest;
        let own = usize::from(fate & 1);
        if fate & 0xE0 == 0xE0 {
            let len = rest.len().min(usize::from(fate & 0x1E) * 4);
            halves[own].take(now_ns, route(1 - own), &rest[..len]);
            bytes = &rest[len..];
            continue;
        }
        let Half { qp, memory } = &mut halves[own];
        let Some(sent) = qp.transmit(now_ns, memory, &mut out, 0) else {
            now_ns = now_ns.max(qp.deadline_ns().unwrap_or(now_ns));
            qp.advance(now_ns);
            continue;
        };
        let datagram = &mut out[..sent.len];
        match fate >> 1 & 7 {
            0 => continue,
            1 => halves[1 - own].take(now_ns, sent.route, datagram),
            2 | 3 => {
                for change in rest.chunks(2).take(2) {
                    if let [at, byte] = change {
                        datagram[usize::from(*at) % sent.len] ^= byte;
                    }
                }
            }
            _ => {}
        }
        assert!(wire::read(&out[..sent.len]).is_ok() || matches!(fate >> 1 & 7, 2 | 3));
        halves[1 - own].take(now_ns, sent.route, &out[..sent.len]);
    }
    for Half { qp, memory } in &mut halves {
        qp.fail();
        let (mut sent, mut received) = (0_u32, 0_u32);
        while let Some(completion) = qp.poll() {
            let seen = match completion.completed {
                verbline_roce::Completed::Receive(_) | verbline_roce::Completed::ReceiveWrite { .. } => &mut received,
                _ => &mut sent,
            };
            let bit = 1 << completion.id;
            assert_eq!(*seen & bit, 0, "{completion:?} twice");
            *seen |= bit;
        }
        assert_eq!((sent, received), (0xF, 0xF), "everything comes back");
        assert_eq!(qp.transmit(now_ns, memory, &mut out, 0), None);
    }
}
