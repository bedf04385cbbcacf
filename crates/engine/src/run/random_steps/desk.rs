//! The stage of the run, and what it writes down.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use verbline_mem::Batch;

use super::Kind;
use crate::api::connection::{ConnectionChange, ConnectionEvent, ConnectionId};
use crate::api::outputs::{OutId, Outputs};
use crate::api::stage::Stage;

/// Bytes of a message: who sends it, its number, its kind.
pub(super) const MESSAGE_BYTES: usize = 9;

pub(super) fn message(peer: u32, number: u32, kind: Kind) -> [u8; MESSAGE_BYTES] {
    let mut bytes = [0; MESSAGE_BYTES];
    bytes[..4].copy_from_slice(&peer.to_le_bytes());
    bytes[4..8].copy_from_slice(&number.to_le_bytes());
    bytes[8] = kind as u8;
    bytes
}

pub(super) fn read(bytes: &[u8]) -> (u32, u32, u8) {
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    (word(0), word(4), bytes[8])
}

/// What the stage has seen.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Who is at the other end, once a message has said so.
    pub(super) open: BTreeMap<(usize, u32), Option<u32>>,
    /// Every connection that ever was.
    known: BTreeSet<(usize, u32)>,
    /// How many messages came of each peer.
    pub(super) received: BTreeMap<u32, u32>,
    /// The connection that ended last.
    gone: Option<ConnectionId>,
    pub(super) sent: u64,
    pub(super) opened: u64,
    pub(super) closed: u64,
    pub(super) failed: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Shared(Arc<Mutex<Ledger>>);

impl Shared {
    pub(super) fn look(&self) -> MutexGuard<'_, Ledger> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends each message back, or does what it asks for.
pub(super) struct Desk(pub(super) Shared);

fn key(connection: ConnectionId) -> (usize, u32) {
    (connection.slot(), connection.generation())
}

impl Stage for Desk {
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
            if kind == Kind::Bye as u8 {
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
