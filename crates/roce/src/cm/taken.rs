//! The peers' queue pairs that have a connection. A second connection of one of them shows that the
//! first is stale: its peer has lost it, perhaps by a restart.
//!
//! Guarantees: a look costs the same for any number of connections. Nothing is allocated after
//! creation.

use std::collections::HashMap;
use std::net::IpAddr;

/// A peer's queue pair: the peer's address, its device's name, and the number there. A stranger
/// that forges the address has to guess the other two.
pub(crate) type PeerQueuePair = (IpAddr, u64, u32);

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Taken(HashMap<PeerQueuePair, usize>);

impl Taken {
    /// Makes room for that many connections.
    pub(crate) fn new(connections: usize) -> Taken {
        // A half-empty table is rehashed in place, without an allocation.
        Taken(HashMap::with_capacity(2 * connections))
    }

    /// The place of the connection that has a queue pair.
    pub(crate) fn place_of(&self, queue_pair: &PeerQueuePair) -> Option<usize> {
        self.0.get(queue_pair).copied()
    }

    pub(crate) fn take(&mut self, queue_pair: PeerQueuePair, place: usize) {
        self.0.insert(queue_pair, place);
    }

    /// Frees a queue pair, if the connection at that place has it.
    pub(crate) fn free(&mut self, queue_pair: &PeerQueuePair, place: usize) {
        if self.place_of(queue_pair) == Some(place) {
            self.0.remove(queue_pair);
        }
    }
}
