//! The slots of a port's connections, as its cm thread sees them, and the state of each.

use std::collections::VecDeque;

use verbline_mem::ConnectionId;
use verbline_verbs::connection::{Connecting, Connection};

use crate::connection::port_qp::PortQp;

/// A connection, as the cm thread keeps it.
#[derive(Debug)]
pub(super) enum SlotState {
    /// The listener was asked, and is to answer.
    Asked {
        connecting: Connecting,
        qp: Box<PortQp>,
    },
    /// The peer was accepted, and is to finish.
    Accepted {
        connection: Connection,
        qp: Box<PortQp>,
    },
    Open {
        connection: Connection,
    },
    /// The lcore is to release its queue pair.
    Closing {
        was_open: bool,
    },
    /// The lcore has released it. It was open, and is not to be made again: nobody else gets its
    /// place.
    Over,
}

/// The places of a port: each has at most one connection at a time.
#[derive(Debug)]
pub(super) struct ConnectionSlots<T> {
    port: u16,
    all: Vec<Place<T>>,
    /// The place that was freed first is used first, so that a handle ages as slowly as it can.
    free: VecDeque<u16>,
}

#[derive(Debug)]
struct Place<T> {
    generation: u32,
    held: Option<T>,
}

impl<T> ConnectionSlots<T> {
    pub(super) fn new(port: u16, count: u32) -> ConnectionSlots<T> {
        let places = 0..count.min(1 << 16);
        ConnectionSlots {
            port,
            all: places.clone().map(|_| Place { generation: 0, held: None }).collect(),
            free: places.map(|at| at as u16).collect(),
        }
    }

    pub(super) fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// A free place, and the handle of the connection that is to have it.
    pub(super) fn take(&mut self) -> Option<ConnectionId> {
        let at = self.free.pop_front()?;
        let place = &mut self.all[usize::from(at)];
        place.generation += 1;
        ConnectionId::new(self.port, at, place.generation)
    }

    /// What is kept of a connection.
    pub(super) fn get(&mut self, connection: ConnectionId) -> Option<&mut T> {
        let place = self.all.get_mut(connection.slot())?;
        place.held.as_mut().filter(|_| place.generation == connection.generation())
    }

    /// What is kept in a place, whichever connection that is, and its handle.
    pub(super) fn at(&self, slot: usize) -> Option<ConnectionId> {
        let place = self.all.get(slot)?;
        place.held.as_ref()?;
        ConnectionId::new(self.port, slot as u16, place.generation)
    }

    pub(super) fn put(&mut self, connection: ConnectionId, held: T) {
        self.all[connection.slot()].held = Some(held);
    }

    /// Takes what is kept; the place stays the connection's.
    pub(super) fn lift(&mut self, connection: ConnectionId) -> Option<T> {
        let place = self.all.get_mut(connection.slot())?;
        place.held.take().filter(|_| place.generation == connection.generation())
    }

    /// Ends the connection's right to its place. A place whose generations are used up is not used
    /// again: no handle comes twice.
    pub(super) fn free(&mut self, connection: ConnectionId) {
        let place = &mut self.all[connection.slot()];
        place.held = None;
        if place.generation < u32::MAX {
            self.free.push_back(connection.slot() as u16);
        }
    }

    pub(super) fn drain(&mut self) -> impl Iterator<Item = T> {
        self.all.iter_mut().filter_map(|place| place.held.take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_used_again_under_another_handle() {
        let mut places = ConnectionSlots::new(7, 2);
        let (first, second) = (places.take().unwrap(), places.take().unwrap());
        assert_eq!((first.slot(), second.slot(), places.take()), (0, 1, None));
        places.put(first, 'a');
        assert_eq!(
            (places.get(first).copied(), places.get(second).copied(), places.at(0)),
            (Some('a'), None, Some(first))
        );
        assert_eq!(places.lift(first), Some('a'));
        assert_eq!(places.take(), None, "lifted is not free");
        places.free(first);
        let third = places.take().unwrap();
        assert_eq!((third.slot(), third.generation(), third.port()), (0, 2, 7));
        places.put(third, 'c');
        assert_eq!(places.get(first), None, "an old handle is nobody's");
    }

    #[test]
    fn a_place_whose_generations_are_used_up_stays_empty() {
        let mut places = ConnectionSlots::<()>::new(0, 1);
        places.all[0].generation = u32::MAX - 1;
        let last = places.take().unwrap();
        assert_eq!(last.generation(), u32::MAX);
        places.free(last);
        assert_eq!(places.take(), None);
    }
}
