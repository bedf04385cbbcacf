//! The connections of a client: the open ones, and the number of operations in flight on each.

use verbline::engine::ConnectionId;

/// The connections of one port, by their slots.
#[derive(Debug)]
pub(crate) struct Peers {
    port: u16,
    slots: Vec<Option<Peer>>,
    /// The slots of the open connections, in no order.
    open: Vec<u16>,
    /// Where the next search for room begins.
    cursor: usize,
    window: u32,
    /// Operations that may begin now, on all connections together.
    room: usize,
}

#[derive(Clone, Copy, Debug)]
struct Peer {
    id: ConnectionId,
    under_way: u32,
}

impl Peers {
    /// Makes room for this many connections of this port, each with up to `window` operations in
    /// flight.
    pub(crate) fn new(port: u16, connections: usize, window: u32) -> Peers {
        Peers {
            port,
            slots: vec![None; connections],
            open: Vec::with_capacity(connections),
            cursor: 0,
            window,
            room: 0,
        }
    }

    /// Adds an opened connection. Connections of other ports have the same slots; they are ignored.
    pub(crate) fn open(&mut self, id: ConnectionId) {
        if id.port() == self.port
            && let Some(slot) = self.slots.get_mut(id.slot())
        {
            *slot = Some(Peer { id, under_way: 0 });
            self.open.push(id.slot() as u16);
            self.room += self.window as usize;
        }
    }

    /// Removes a connection. Returns false if it was removed before, or is of another port.
    pub(crate) fn close(&mut self, id: ConnectionId) -> bool {
        let Some(peer) = self.peer(id).copied() else { return false };
        self.room -= (self.window - peer.under_way) as usize;
        self.slots[id.slot()] = None;
        self.open.retain(|slot| usize::from(*slot) != id.slot());
        true
    }

    /// Takes the next connection in turn with room in its window, and counts an operation on it.
    pub(crate) fn begin(&mut self) -> Option<ConnectionId> {
        if self.room == 0 {
            return None;
        }
        for _ in 0..self.open.len() {
            self.cursor = (self.cursor + 1) % self.open.len();
            let slot = usize::from(self.open[self.cursor]);
            if let Some(peer) = self.slots[slot].as_mut().filter(|peer| peer.under_way < self.window) {
                peer.under_way += 1;
                self.room -= 1;
                return Some(peer.id);
            }
        }
        None
    }

    /// Counts an operation on the connection as ended, however it ended.
    pub(crate) fn end(&mut self, id: ConnectionId) {
        if let Some(peer) = self.peer(id) {
            peer.under_way -= 1;
            self.room += 1;
        }
    }

    /// Whether a connection was neither closed by the client nor lost.
    pub(crate) fn is_open(&self, id: ConnectionId) -> bool {
        self.slots.get(id.slot()).is_some_and(|slot| slot.is_some_and(|peer| peer.id == id))
    }

    /// The connection that `begin` returned last.
    pub(crate) fn last(&self) -> Option<ConnectionId> {
        let slot = self.open.get(self.cursor)?;
        self.slots[usize::from(*slot)].map(|peer| peer.id)
    }

    fn peer(&mut self, id: ConnectionId) -> Option<&mut Peer> {
        self.slots.get_mut(id.slot())?.as_mut().filter(|peer| peer.id == id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(slot: u16, generation: u32) -> ConnectionId {
        ConnectionId::new(0, slot, generation).expect("a generation")
    }

    #[test]
    fn connections_take_turns_and_are_never_mistaken() {
        let mut peers = Peers::new(0, 3, 1);
        assert_eq!(peers.begin(), None);
        (0..3).for_each(|slot| peers.open(id(slot, 1)));
        let mut begun: Vec<_> = (0..3).filter_map(|_| peers.begin()).collect();
        begun.sort();
        assert_eq!(begun, [id(0, 1), id(1, 1), id(2, 1)]);
        assert_eq!(peers.begin(), None, "each has one under way");
        assert!(peers.close(id(1, 1)) && !peers.close(id(1, 1)));
        peers.open(id(1, 2));
        peers.end(id(1, 1));
        assert_eq!((peers.begin(), peers.begin()), (Some(id(1, 2)), None));
        peers.end(id(2, 1));
        assert_eq!(peers.begin(), Some(id(2, 1)));
    }
}
