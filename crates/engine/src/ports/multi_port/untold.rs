//! Changes of connections that the stages must still be told, in order.
//!
//! Guarantees: nothing is allocated after the start; the peer of a connection whose end the stages
//! have not heard of is found without a search: many connections may end at once, and a stage may
//! ask for the peers of all of them at each.

use std::collections::VecDeque;
use std::mem;

use verbline_mem::ConnectionId;

use crate::connection::acceptor::ConnectionPeer;
use crate::connection::event::ConnectionChange;

#[derive(Debug)]
pub(super) struct Untold {
    changes: VecDeque<Change>,
    /// The number of the first change in the queue.
    first: u64,
    /// The number of the last end of each slot's connections; 0 if none has ended.
    ends: Box<[u64]>,
}

/// A connection's change that the stages must still be told.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) connection: ConnectionId,
    pub(super) change: ConnectionChange,
    /// Set for a connection that is over: stages may ask for its peer until they know of the end.
    /// The slot may already be free.
    pub(super) peer: Option<Box<ConnectionPeer>>,
    /// The number of the end before this one in the same slot; 0 if there was none.
    end_before: u64,
}

impl Untold {
    /// For a port with this many connections.
    pub(super) fn new(connections: usize) -> Untold {
        // A connection may open and end before the stages hear of either.
        let changes = VecDeque::with_capacity(connections * 2);
        Untold { changes, first: 1, ends: (0..connections).map(|_| 0).collect() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    pub(super) fn opened(&mut self, connection: ConnectionId) {
        let change = ConnectionChange::Opened;
        self.changes.push_back(Change { connection, change, peer: None, end_before: 0 });
    }

    /// The connection is over, as `change` says.
    pub(super) fn ended(
        &mut self,
        connection: ConnectionId,
        change: ConnectionChange,
        peer: Option<Box<ConnectionPeer>>,
    ) {
        let number = self.first + self.changes.len() as u64;
        let end_before = self.ends.get_mut(connection.slot()).map_or(0, |end| mem::replace(end, number));
        self.changes.push_back(Change { connection, change, peer, end_before });
    }

    /// Returns the next change.
    pub(super) fn next(&mut self) -> Option<Change> {
        let change = self.changes.pop_front()?;
        self.first += 1;
        Some(change)
    }

    /// Returns the peer of a connection that is over, if the stages have not heard of that.
    pub(super) fn peer(&self, connection: ConnectionId) -> Option<&ConnectionPeer> {
        let mut number = *self.ends.get(connection.slot())?;
        loop {
            // Told ends come before the first one here.
            let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
            let change = self.changes.get(index)?;
            if change.connection == connection {
                return change.peer.as_deref();
            }
            number = change.end_before;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn id(slot: u16, generation: u32) -> ConnectionId {
        ConnectionId::new(7, slot, generation).unwrap()
    }

    fn peer(tag: u64) -> Option<Box<ConnectionPeer>> {
        let address = "10.9.9.1:7".parse().unwrap();
        Some(Box::new(ConnectionPeer { address, local: address, private_data: Box::default(), tag }))
    }

    const OVER: ConnectionChange = ConnectionChange::Closed { reason: "it left" };

    #[test]
    fn a_peer_is_known_until_its_end_is_told_whoever_has_the_slot_by_then() {
        let mut untold = Untold::new(2);
        let (first, second, other) = (id(0, 1), id(0, 2), id(1, 1));
        let tag = |untold: &Untold, connection| untold.peer(connection).map(|peer| peer.tag);
        untold.opened(first);
        assert_eq!(tag(&untold, first), None, "it is not over");
        untold.ended(first, OVER, peer(1));
        untold.opened(second);
        untold.ended(other, OVER, peer(3));
        untold.ended(second, OVER, peer(2));
        assert_eq!([first, second, other].map(|one| tag(&untold, one)), [Some(1), Some(2), Some(3)]);
        assert_eq!(tag(&untold, id(0, 3)), None);
        assert_eq!(tag(&untold, id(2, 1)), None, "no slot of the port");
        let told: Vec<_> = (0..3).map(|_| untold.next().unwrap().connection).collect();
        assert_eq!(told, [first, first, second]);
        assert_eq!([first, second, other].map(|one| tag(&untold, one)), [None, Some(2), Some(3)]);
        assert_eq!([untold.next().unwrap().connection, untold.next().unwrap().connection], [other, second]);
        assert_eq!([first, second, other].map(|one| tag(&untold, one)), [None; 3]);
        assert!(untold.is_empty() && untold.next().is_none());
    }

    // Regression: each look-up searched all changes. A stage that asked for the peer of each
    // connection that ended held up its lcore for seconds.
    #[test]
    fn the_peers_of_as_many_connections_as_there_may_be_are_found_at_once() {
        const CONNECTIONS: u16 = 32_768;
        let mut untold = Untold::new(CONNECTIONS.into());
        (0..CONNECTIONS).for_each(|slot| untold.ended(id(slot, 1), OVER, peer(slot.into())));
        let began = Instant::now();
        for slot in 0..CONNECTIONS {
            let last = CONNECTIONS - 1;
            assert_eq!(untold.peer(id(last, 1)).map(|peer| peer.tag), Some(last.into()));
            assert_eq!(untold.next().unwrap().connection.slot(), usize::from(slot));
            assert!(untold.peer(id(slot, 1)).is_none());
        }
        assert!(began.elapsed() < Duration::from_millis(200), "{:?}", began.elapsed());
    }
}
