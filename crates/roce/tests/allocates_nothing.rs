//! Once queue pairs are made, nothing is allocated: a program of its own, with a counting
//! allocator.

use std::alloc::System;
use std::net::Ipv4Addr;

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use verbline_roce::transport::{
    Arrival, Capacity, Icrc, Mtu, Peer, QueuePair, Receives, Receiving, Retries, Rights, Sending, Serving,
};
use verbline_roce::wire::{
    Addresses, AtomicExtension, AtomicOp, HEADERS_MAX_BYTES, Psn, Qpn, Route, SendEnd, WriteEnd,
};
use verbline_roce::{Data, Denied, Engine, Memory, Operation, Owner, Place, Remote, SendRequest, Sge};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const QUEUE_PAIRS: u32 = 20;
const LEN: u32 = 10_000;

/// Memory in which every address is one of these bytes.
struct Bytes([u8; 64]);

impl Memory for Bytes {
    fn read(&mut self, from: Place, out: &mut [u8]) -> Result<(), Denied> {
        out.fill(self.0[from.addr as usize % 64]);
        Ok(())
    }

    fn write(&mut self, to: Place, bytes: &[u8]) -> Result<(), Denied> {
        bytes.first().iter().for_each(|byte| self.0[to.addr as usize % 64] = **byte);
        Ok(())
    }

    fn check(&mut self, _: Place, _: u64) -> Result<(), Denied> {
        Ok(())
    }

    fn atomic(&mut self, _: Place, _: AtomicOp) -> Result<u64, Denied> {
        Ok(1)
    }

    fn invalidate(&mut self, _: Owner, _: u32) -> Result<(), Denied> {
        Ok(())
    }
}

fn engine(own: u8, peer: u8) -> Engine {
    let mut engine = Engine::new();
    let addresses = Addresses::V4 { source: Ipv4Addr::new(10, 0, 0, own), destination: Ipv4Addr::new(10, 0, 0, peer) };
    for number in 0..QUEUE_PAIRS {
        let qpn = Qpn::new(number + 100);
        let capacity = Capacity { sends: 8, send_sges: 1, inline_bytes: 0, receive_sges: 1 };
        let rights = Rights { write: true, read: true, atomic: true };
        let mut queue_pair = QueuePair::new(Owner { domain: 0, qpn }, rights, capacity, Receives::Own(8));
        let route = Route::new(addresses, qpn.number(), qpn.number());
        let peer = Peer { route, qpn, psn: Psn::new(number), mtu: Mtu::B1024 };
        queue_pair.receive_from(Receiving::Rc(peer, Serving::default())).expect("new");
        queue_pair.start_sending(Sending::Rc(Psn::new(number), Retries::default())).expect("receives");
        engine.add(queue_pair).expect("a free number");
    }
    engine
}

/// Loses every fourth datagram, so that retransmissions are covered too. Returns the number of
/// completions.
fn run(engines: &mut [Engine; 2], out: &mut [u8], rounds: u64) -> u64 {
    let (mut memory, mut now_ns, mut count, mut completions) = (Bytes([0; 64]), 0, 0_u32, 0);
    let sges = [Sge { addr: 5, len: LEN, key: 0 }];
    let remote = Remote { addr: 8, rkey: 0 };
    for round in 0..rounds {
        for (engine, number) in engines.iter_mut().zip([0, 1]) {
            for qpn in (0..QUEUE_PAIRS).map(|number| Qpn::new(number + 100)) {
                let _ = engine.post_receive(qpn, 1, &sges);
                let operation = match (round + number) % 4 {
                    0 => Operation::Send(SendEnd::Immediate(1)),
                    1 => Operation::Write(remote, WriteEnd::Plain),
                    2 => Operation::Read(remote),
                    _ => Operation::Atomic(AtomicExtension { addr: 8, rkey: 0, op: AtomicOp::FetchAdd(1) }),
                };
                let is_atomic = matches!(operation, Operation::Atomic(_));
                let sges = [Sge { len: if is_atomic { 8 } else { LEN }, ..sges[0] }];
                let data = Data::Memory(&sges);
                let request = SendRequest { id: 1, operation, data, signaled: true, solicited: false, fence: false };
                let _ = engine.post_send(qpn, &request);
            }
        }
        for _ in 0..2 {
            for at in 0..2 {
                while let Some(sent) = engines[at].transmit(now_ns, &mut memory, out, 0) {
                    count += 1;
                    if count % 4 > 0 {
                        let arrival = Arrival { route: sent.route, icrc: Icrc::IpId(0) };
                        engines[1 - at].receive(now_ns, arrival, &out[..sent.len], &mut memory);
                    }
                }
                completions += std::iter::from_fn(|| engines[at].poll()).count() as u64;
            }
        }
        if let Some(deadline_ns) = engines.iter().filter_map(Engine::deadline_ns).min() {
            now_ns = deadline_ns.max(now_ns);
        }
        engines.iter_mut().for_each(|engine| engine.advance(now_ns));
    }
    completions
}

/// The test harness has a thread of its own, which may allocate once meanwhile. Allocations of
/// these engines would occur in every attempt, since each has new engines.
#[test]
fn nothing_is_allocated_once_queue_pairs_are_made() {
    let attempt = || {
        let mut engines = [engine(1, 2), engine(2, 1)];
        let mut out = vec![0; 1024 + HEADERS_MAX_BYTES];
        let region = Region::new(ALLOCATOR);
        let completions = run(&mut engines, &mut out, 3000);
        let change = region.change();
        assert!(completions > 2_000, "{completions}");
        (change.allocations, change.reallocations, change.deallocations)
    };
    let attempts: Vec<_> = (0..5).map(|_| attempt()).take_while(|counts| *counts != (0, 0, 0)).collect();
    assert!(attempts.len() < 5, "{attempts:?}");
}
