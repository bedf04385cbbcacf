//! The stage of the run, and its ledger.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use verbline_mem::{Batch, Packet};
use verbline_verbs::rdma::Remote;

use super::Kind;
use super::memory::second;
use crate::api::outputs::{OutId, Outputs};
use crate::api::stage::Stage;
use crate::connection::event::{ConnectionChange, ConnectionEvent, ConnectionId};
use crate::operations::declined::DeclineReason;
use crate::operations::operation::{Completed, Done, Operation};

/// The bytes of a message: its sender, its number, its kind, the memory that the sender lends.
pub(super) const MESSAGE_BYTES: usize = 9 + Remote::BYTES;

pub(super) fn message(peer: u32, number: u32, kind: Kind, lent: Remote) -> [u8; MESSAGE_BYTES] {
    let mut bytes = [0; MESSAGE_BYTES];
    bytes[9..].copy_from_slice(&lent.to_bytes());
    bytes[..4].copy_from_slice(&peer.to_le_bytes());
    bytes[4..8].copy_from_slice(&number.to_le_bytes());
    bytes[8] = kind as u8;
    bytes
}

pub(super) fn read(bytes: &[u8]) -> (u32, u32, u8) {
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    (word(0), word(4), bytes[8])
}

/// The stage's records.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// The peer of each open connection, once a message has named it.
    pub(super) open: BTreeMap<(usize, u32), Option<u32>>,
    /// Every connection so far.
    known: BTreeSet<(usize, u32)>,
    /// The number of messages from each peer.
    pub(super) received: BTreeMap<u32, u32>,
    /// The connection that ended last.
    gone: Option<ConnectionId>,
    pub(super) sent: u64,
    pub(super) opened: u64,
    pub(super) closed: u64,
    pub(super) failed: u64,
    /// Operations under way, by their tags.
    pub(super) under_way: BTreeMap<u64, Asked>,
    next_tag: u64,
    /// The numbers of operations that succeeded, failed, and were declined.
    pub(super) operated: u64,
    pub(super) failed_operations: u64,
    pub(super) declined: u64,
    /// The last number written to each peer, by the desk's completions.
    pub(super) stored: BTreeMap<u32, u32>,
}

/// An operation that was accepted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    over: ConnectionId,
    peer: u32,
    /// The number that it writes; `None` for a READ.
    number: Option<u32>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Shared(Arc<Mutex<Ledger>>);

impl Shared {
    pub(super) fn look(&self) -> MutexGuard<'_, Ledger> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends each message back, or does as it asks.
pub(super) struct Desk(pub(super) Shared);

fn key(connection: ConnectionId) -> (usize, u32) {
    (connection.slot(), connection.generation())
}

impl Ledger {
    /// Hands over the operation that a message asks for, with the message's packet.
    fn ask(&mut self, mut packet: Packet, asked: Asked, out: &mut Outputs<'_>) {
        let lent = packet.data()[MESSAGE_BYTES - Remote::BYTES..].try_into().expect("a whole message");
        let lent = Remote::from_bytes(lent);
        let tag = self.next_tag;
        self.next_tag += 1;
        // The word is 0 before the first WRITE.
        let value = asked.number.map_or(u64::MAX, |number| u64::from(number) + 1);
        assert!(packet.fill(&value.to_ne_bytes()));
        let operation = match asked.number {
            None => Operation::read(packet, lent),
            Some(_) => Operation::write(packet, second(lent)),
        };
        match out.operate(OutId(0), operation.over(asked.over).tag(tag)) {
            Ok(()) => _ = self.under_way.insert(tag, asked),
            Err(declined) => {
                use DeclineReason::{Full, NoConnection, NoPort};
                assert!(matches!(declined.reason, Full | NoConnection | NoPort), "{declined}");
                self.declined += u64::from(declined.reason != NoPort);
            }
        }
    }

    /// Checks and records an operation that is done.
    fn done(&mut self, done: &Done) {
        let asked = self.under_way.remove(&done.tag).unwrap_or_else(|| panic!("{done:?} comes twice, or unasked"));
        assert_eq!(done.connection, Some(asked.over), "{done:?} is credited to another");
        let first = self.under_way.iter().find(|(_, other)| other.over == asked.over);
        assert!(first.is_none_or(|(tag, _)| *tag > done.tag), "{done:?} comes before {first:?}");
        if done.result.is_err() {
            self.failed_operations += 1;
            return;
        }
        self.operated += 1;
        match asked.number {
            Some(number) => _ = self.stored.insert(asked.peer, number),
            None => {
                let read = done.packet().map(|packet| packet.data().to_vec());
                assert_eq!(read, Some(u64::from(asked.peer).to_ne_bytes().to_vec()), "it reads another's memory");
            }
        }
    }
}

impl Stage for Desk {
    fn operations(&mut self, done: &mut Completed<'_>, _: &mut Outputs<'_>) {
        let mut ledger = self.0.look();
        while let Some(done) = done.pop() {
            ledger.done(&done);
        }
    }

    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        let mut ledger = self.0.look();
        for mut packet in input.drain_front(input.len()) {
            let connection = packet.connection().expect("it came by a connection");
            let (peer, number, kind) = read(packet.data());
            let known = ledger.open.get_mut(&key(connection));
            let known = known.unwrap_or_else(|| panic!("a message of {connection}, which is not open"));
            assert_eq!(*known.get_or_insert(peer), peer, "{connection} is another's");
            let received = ledger.received.entry(peer).or_default();
            assert_eq!(number, *received, "of peer {peer}: exactly once, and in order");
            *received += 1;
            if kind == Kind::Fetch as u8 || kind == Kind::Store as u8 {
                let number = (kind == Kind::Store as u8).then_some(number);
                ledger.ask(packet, Asked { over: connection, peer, number }, out);
            } else if kind == Kind::Bye as u8 {
                out.close(connection);
            } else if kind != Kind::Quiet as u8 {
                if kind == Kind::Stray as u8 {
                    packet.set_connection(ledger.gone);
                }
                out.send(OutId(0), packet);
                ledger.sent += 1;
            }
        }
    }

    fn connection_event(&mut self, event: ConnectionEvent, _: &mut Outputs<'_>) {
        let (mut ledger, key) = (self.0.look(), key(event.connection));
        match event.change {
            ConnectionChange::Opened => {
                assert!(ledger.known.insert(key), "{key:?} comes twice");
                assert!(ledger.open.keys().all(|(slot, _)| *slot != key.0), "{key:?}: its place is taken");
                ledger.open.insert(key, None);
                ledger.opened += 1;
            }
            ConnectionChange::Closed { .. } | ConnectionChange::Failed { .. } => {
                ledger.gone = Some(event.connection);
                assert!(ledger.open.remove(&key).is_some(), "{key:?} is over and was not open");
                match event.change {
                    ConnectionChange::Closed { .. } => ledger.closed += 1,
                    _ => ledger.failed += 1,
                }
            }
        }
    }
}
