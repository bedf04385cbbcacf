//! One end of a connection, and its oracle: the expected completions and messages.

use std::collections::VecDeque;

use fastrand::Rng;
use verbline_roce::transport::{Capacity, Receives, Rights};
use verbline_roce::wire::{AtomicExtension, AtomicOp, Qpn, SendEnd, WriteEnd};
use verbline_roce::{
    Completed, Completion, Data, Engine, Operation, Owner, PostError, Remote, Right, SendRequest, Sge, Status,
};

use super::memory::Regions;

pub(crate) const DEPTH: usize = 8;
pub(crate) const MESSAGE_MAX: usize = 6_000;
/// Longer than a packet of the smallest MTU, and no whole number of cache lines.
const INLINE_MAX: usize = 600;

/// Memory of a side that its peer may access.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reached {
    /// Destinations of WRITEs, one a slot.
    pub(crate) written: (u32, u64),
    /// The source of READs.
    pub(crate) read: (u32, u64),
    /// Two words for atomics.
    pub(crate) words: (u32, u64),
}

/// A posted send.
#[derive(Clone)]
pub(crate) struct Posted {
    pub(crate) id: u64,
    pub(crate) signaled: bool,
    operation: Operation,
    len: usize,
    /// The expected bytes: of a WRITE at the peer, of a READ or an atomic here.
    bytes: Vec<u8>,
}

impl std::fmt::Debug for Posted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?}, {} bytes, signaled: {}", self.id, self.operation, self.len, self.signaled)
    }
}

/// A message that the peer must receive.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Arriving {
    pub(crate) completed: Completed,
    pub(crate) bytes: Vec<u8>,
    pub(crate) solicited: bool,
    pub(crate) len: u32,
}

#[derive(Debug)]
pub(crate) struct Side {
    pub(crate) qpn: Qpn,
    pub(crate) domain: u32,
    /// Local buffers of sends and receives, one a slot.
    local: (u32, u64),
    receiving: (u32, u64),
    pub(crate) reached: Reached,
    /// The peer's memory.
    pub(crate) peer: Option<Reached>,
    pub(crate) posted: VecDeque<Posted>,
    next_id: u64,
    free_receives: Vec<u64>,
    sum: u64,
    swapped: u64,
    pub(crate) succeeded: u64,
    pub(crate) statuses: Vec<Status>,
}

pub(crate) fn random_bytes(rng: &mut Rng, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    rng.fill(&mut bytes);
    bytes
}

impl Side {
    pub(crate) fn new(rng: &mut Rng, regions: &mut Regions, domain: u32, qpn: Qpn) -> Side {
        let room = DEPTH * MESSAGE_MAX;
        let reached = Reached {
            written: regions.add(domain, room, &[Right::RemoteWrite]),
            read: regions.add(domain, room, &[Right::RemoteRead]),
            words: regions.add(domain, 16, &[Right::RemoteAtomic]),
        };
        let side = Side {
            qpn,
            domain,
            local: regions.add(domain, room, &[Right::LocalRead, Right::LocalWrite]),
            receiving: regions.add(domain, room, &[Right::LocalWrite]),
            reached,
            peer: None,
            posted: VecDeque::new(),
            next_id: 0,
            free_receives: (0..DEPTH as u64).collect(),
            sum: 0,
            swapped: 0,
            succeeded: 0,
            statuses: Vec::new(),
        };
        let bytes = random_bytes(rng, room);
        regions.fill(side.reached.read.0, side.reached.read.1, &bytes);
        side
    }

    pub(crate) fn owner(&self) -> Owner {
        Owner { domain: self.domain, qpn: self.qpn }
    }

    pub(crate) fn rights() -> Rights {
        Rights { write: true, read: true, atomic: true }
    }

    pub(crate) fn capacity() -> (Capacity, Receives) {
        let capacity = Capacity { sends: DEPTH, send_sges: 3, inline_bytes: INLINE_MAX, receive_sges: 2 };
        (capacity, Receives::Own(DEPTH))
    }

    /// Posts all free receives, or some of them.
    pub(crate) fn post_receives(&mut self, rng: &mut Rng, engine: &mut Engine) {
        while let Some(slot) = self.free_receives.pop() {
            let (key, base) = self.receiving;
            let cut = rng.u32(..MESSAGE_MAX as u32);
            let addr = base + slot * MESSAGE_MAX as u64;
            let sges =
                [Sge { addr, len: cut, key }, Sge { addr: addr + u64::from(cut), len: MESSAGE_MAX as u32 - cut, key }];
            engine.post_receive(self.qpn, slot, &sges).expect("a queue pair").expect("room");
            if rng.u8(..4) == 0 {
                break;
            }
        }
    }

    /// Posts a random send, and returns the message that must arrive; nothing if the queue is full.
    pub(crate) fn post_send(
        &mut self,
        rng: &mut Rng,
        engine: &mut Engine,
        memory: &mut Regions,
    ) -> Option<Option<Arriving>> {
        let slot = self.next_id % DEPTH as u64;
        let (key, base) = self.local;
        let at = base + slot * MESSAGE_MAX as u64;
        let peer = self.peer.expect("a peer");
        let place = |(rkey, base): (u32, u64)| Remote { rkey, addr: base + slot * MESSAGE_MAX as u64 };
        let len = match rng.u8(..4) {
            0 => rng.usize(..32),
            1 | 2 => rng.usize(..1200),
            _ => rng.usize(..=MESSAGE_MAX),
        };
        let word = |at: u64, op| AtomicExtension { addr: peer.words.1 + at, rkey: peer.words.0, op };
        let (add, swap) = (rng.u64(..), rng.u64(..));
        let immediate = rng.u32(..);
        let operation = match rng.u8(..9) {
            0 | 1 => Operation::Send(SendEnd::Plain),
            2 => Operation::Send(SendEnd::Immediate(immediate)),
            3 => Operation::Write(place(peer.written), WriteEnd::Plain),
            4 => Operation::Write(place(peer.written), WriteEnd::Immediate(immediate)),
            5 => Operation::Read(place(peer.read)),
            6 => Operation::Atomic(word(0, AtomicOp::FetchAdd(add))),
            7 => Operation::Local,
            _ => Operation::Atomic(word(8, AtomicOp::CompareSwap { compare: self.swapped, swap })),
        };
        let len = match operation {
            Operation::Atomic(_) => 8,
            Operation::Local => 0,
            _ => len,
        };
        let reads = matches!(operation, Operation::Read(_) | Operation::Atomic(_) | Operation::Local);
        let payload = random_bytes(rng, len);
        let cut = rng.u32(..=len as u32);
        let sges = [Sge { addr: at, len: cut, key }, Sge { addr: at + u64::from(cut), len: len as u32 - cut, key }];
        let is_inline = !reads && len <= INLINE_MAX && rng.bool();
        let request = SendRequest {
            id: self.next_id,
            operation,
            data: if is_inline { Data::Inline(&payload) } else { Data::Memory(&sges) },
            // An unsignaled send keeps its place until a later one is polled.
            signaled: rng.bool() || self.next_id % 4 == 3,
            solicited: rng.bool(),
            fence: rng.u8(..4) == 0,
        };
        match engine.post_send(self.qpn, &request).expect("a queue pair") {
            Ok(()) => {}
            Err(PostError::Full { .. }) => return None,
            Err(error) => panic!("{error}"),
        }
        if !is_inline && !reads {
            memory.fill(key, at, &payload);
        }
        let bytes = match operation {
            // See `foresee_read`.
            Operation::Read(_) => Vec::new(),
            Operation::Atomic(AtomicExtension { op: AtomicOp::FetchAdd(_), .. }) => {
                let before = self.sum;
                self.sum = self.sum.wrapping_add(add);
                before.to_ne_bytes().to_vec()
            }
            Operation::Atomic(_) => std::mem::replace(&mut self.swapped, swap).to_ne_bytes().to_vec(),
            _ => payload.clone(),
        };
        self.posted.push_back(Posted { id: self.next_id, signaled: request.signaled, operation, len, bytes });
        self.next_id += 1;
        let solicited = request.solicited;
        Some(match operation {
            Operation::Send(end) => {
                Some(Arriving { completed: Completed::Receive(end), bytes: payload, solicited, len: len as u32 })
            }
            Operation::Write(_, WriteEnd::Immediate(immediate)) => Some(Arriving {
                completed: Completed::ReceiveWrite { immediate },
                bytes: Vec::new(),
                solicited,
                len: len as u32,
            }),
            _ => None,
        })
    }

    /// If the last send posted is a READ, fills in its expected bytes, which nobody changes.
    pub(crate) fn foresee_read(&mut self, peer_memory: &Regions) {
        if let Some(Posted { operation: Operation::Read(remote), len, bytes, .. }) = self.posted.back_mut() {
            *bytes = peer_memory.bytes(remote.rkey, remote.addr, *len).to_vec();
        }
    }

    /// Checks a completion of a send: it must be the next one reported. Earlier sends without a
    /// report have succeeded.
    pub(crate) fn sent(&mut self, completion: Completion, memory: &Regions, peer_memory: &Regions) {
        loop {
            let posted = self.posted.pop_front().expect("no more completions than work requests");
            let is_it = posted.id == completion.id;
            assert!(is_it || !posted.signaled, "{posted:?} was passed over by {completion:?}");
            let status = if is_it { completion.status } else { Status::Success };
            if status == Status::Success {
                assert!(self.statuses.is_empty(), "{completion:?} succeeds behind {:?}", self.statuses);
                self.verify(&posted, memory, peer_memory);
                self.succeeded += 1;
            } else {
                self.statuses.push(status);
            }
            if is_it {
                if status == Status::Success {
                    assert_eq!(completion.bytes as usize, posted.len);
                }
                return;
            }
        }
    }

    fn verify(&self, posted: &Posted, memory: &Regions, peer_memory: &Regions) {
        let here = self.local.1 + posted.id % DEPTH as u64 * MESSAGE_MAX as u64;
        let found = match posted.operation {
            Operation::Write(remote, _) => peer_memory.bytes(remote.rkey, remote.addr, posted.len),
            Operation::Read(_) | Operation::Atomic(_) => memory.bytes(self.local.0, here, posted.len),
            Operation::Local => {
                let carried_out = memory.carried_out.get(&self.qpn.number());
                assert!(carried_out.is_some_and(|ids| ids.contains(&posted.id)), "{posted:?}");
                return;
            }
            _ => return,
        };
        assert!(found == posted.bytes, "{posted:?}");
    }

    /// Checks the unsignaled sends that are left at the end: they have succeeded, if none has
    /// failed.
    pub(crate) fn finish(&mut self, memory: &Regions, peer_memory: &Regions) {
        while let Some(posted) = self.posted.pop_front() {
            assert!(!posted.signaled, "{posted:?} has not completed");
            self.verify(&posted, memory, peer_memory);
        }
    }

    /// Checks a completion of a receive. Returns the message, or nothing if it was flushed.
    pub(crate) fn received(&mut self, completion: Completion, memory: &Regions) -> Option<Arriving> {
        assert!(!self.free_receives.contains(&completion.id), "{completion:?} twice");
        self.free_receives.push(completion.id);
        if completion.status != Status::Success {
            assert_eq!(completion.status, Status::Flushed);
            return None;
        }
        let at = self.receiving.1 + completion.id * MESSAGE_MAX as u64;
        let len = match completion.completed {
            Completed::Receive(_) => completion.bytes as usize,
            _ => 0,
        };
        Some(Arriving {
            completed: completion.completed,
            bytes: memory.bytes(self.receiving.0, at, len).to_vec(),
            solicited: completion.solicited,
            len: completion.bytes,
        })
    }

    pub(crate) fn receives_posted(&self) -> usize {
        DEPTH - self.free_receives.len()
    }
}
