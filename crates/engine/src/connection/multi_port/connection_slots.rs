//! The slots of a port's connections, as its cm thread sees them, and the state of each.

use std::collections::VecDeque;

use verbline_mem::ConnectionId;
use verbline_verbs::connection::{Connecting, Connection};

use crate::connection::port_qp::PortQp;

/// The state of a connection in its cm thread.
#[derive(Debug)]
pub(super) enum SlotState {
    /// The listener was asked, and has yet to answer.
    Asked {
        connecting: Connecting,
        qp: Box<PortQp>,
    },
    /// The peer was accepted, and has yet to finish the handshake.
    Accepted {
        connection: Connection,
        qp: Box<PortQp>,
    },
    Open {
        connection: Connection,
    },
    /// The lcore has yet to release its queue pair.
    Closing {
        was_open: bool,
    },
    /// The lcore has released it. The connection was open, and is not to be remade: its slot stays
    /// unused.
    Over,
}

/// The slots of a port: each has at most one connection at a time.
#[derive(Debug)]
pub(super) struct ConnectionSlots<T> {
    port: u16,
    all: Vec<Slot<T>>,
    /// The slot freed first is used first, so that generations grow as slowly as possible.
    free: VecDeque<u16>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    held: Option<T>,
}

impl<T> ConnectionSlots<T> {
    pub(super) fn new(port: u16, count: u32) -> ConnectionSlots<T> {
        let slots = 0..count.min(1 << 16);
        ConnectionSlots {
            port,
            all: slots.clone().map(|_| Slot { generation: 0, held: None }).collect(),
            free: slots.map(|at| at as u16).collect(),
        }
    }

    pub(super) fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// Takes a free slot; returns the handle of its new connection.
    pub(super) fn take(&mut self) -> Option<ConnectionId> {
        let at = self.free.pop_front()?;
        let slot = &mut self.all[usize::from(at)];
        slot.generation += 1;
        ConnectionId::new(self.port, at, slot.generation)
    }

    /// The state of a connection.
    pub(super) fn get(&mut self, connection: ConnectionId) -> Option<&mut T> {
        let slot = self.all.get_mut(connection.slot())?;
        slot.held.as_mut().filter(|_| slot.generation == connection.generation())
    }

    /// The handle of the connection in a slot, if the slot has a state.
    pub(super) fn at(&self, index: usize) -> Option<ConnectionId> {
        let slot = self.all.get(index)?;
        slot.held.as_ref()?;
        ConnectionId::new(self.port, index as u16, slot.generation)
    }

    pub(super) fn put(&mut self, connection: ConnectionId, held: T) {
        self.all[connection.slot()].held = Some(held);
    }

    /// Takes the state; the slot stays the connection's.
    pub(super) fn lift(&mut self, connection: ConnectionId) -> Option<T> {
        let slot = self.all.get_mut(connection.slot())?;
        slot.held.take().filter(|_| slot.generation == connection.generation())
    }

    /// Frees the connection's slot. A slot whose generations are used up is not used again: no
    /// handle comes twice.
    pub(super) fn free(&mut self, connection: ConnectionId) {
        let slot = &mut self.all[connection.slot()];
        slot.held = None;
        if slot.generation < u32::MAX {
            self.free.push_back(connection.slot() as u16);
        } else {
            let (port, slot) = (self.port, connection.slot());
            tracing::warn!(port, slot, "a slot has had 2^32 connections and is retired: the port takes one fewer");
        }
    }

    pub(super) fn drain(&mut self) -> impl Iterator<Item = T> {
        self.all.iter_mut().filter_map(|slot| slot.held.take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_used_again_under_another_handle() {
        let mut slots = ConnectionSlots::new(7, 2);
        let (first, second) = (slots.take().unwrap(), slots.take().unwrap());
        assert_eq!((first.slot(), second.slot(), slots.take()), (0, 1, None));
        slots.put(first, 'a');
        assert_eq!(
            (slots.get(first).copied(), slots.get(second).copied(), slots.at(0)),
            (Some('a'), None, Some(first))
        );
        assert_eq!(slots.lift(first), Some('a'));
        assert_eq!(slots.take(), None, "lifted is not free");
        slots.free(first);
        let third = slots.take().unwrap();
        assert_eq!((third.slot(), third.generation(), third.port()), (0, 2, 7));
        slots.put(third, 'c');
        assert_eq!(slots.get(first), None, "an old handle is nobody's");
    }

    #[test]
    fn a_slot_whose_generations_are_used_up_stays_empty() {
        let mut slots = ConnectionSlots::<()>::new(0, 1);
        slots.all[0].generation = u32::MAX - 1;
        let last = slots.take().unwrap();
        assert_eq!(last.generation(), u32::MAX);
        slots.free(last);
        assert_eq!(slots.take(), None);
    }
}
