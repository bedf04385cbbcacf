//! An I/O queue: its commands in flight, in slots that name them.

use verbline::engine::ConnectionId;
use verbline::prelude::*;

use crate::handshake_state::AuthStep;

/// The kind of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Connect.
    Connect,
    /// A command of authentication.
    Authenticate(AuthStep),
    /// A read of a block, which should be of this generation.
    Read { block: usize, generation: u32 },
    /// A write of a block, of this generation.
    Write { block: usize, generation: u32 },
    /// A flush.
    Flush,
}

/// A command in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub(crate) task: Task,
    pub(crate) began_ns: Tick,
    /// The key that the response should invalidate.
    pub(crate) key: Option<u32>,
}

/// The state of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It has no connection.
    Down,
    /// It has a connection, and no controller.
    Open,
    /// It connects to the controller, or authenticates.
    Connecting,
    /// It takes commands.
    Ready,
}

/// A queue.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) connection: Option<ConnectionId>,
    pub(crate) state: State,
    /// The transaction number of its authentication.
    pub(crate) transaction: u16,
    slots: Vec<(u16, Option<Pending>)>,
    free: Vec<u16>,
}

/// Slots are the low 12 bits of an identifier. The bits above count the uses of the slot.
const SLOT_BITS: u32 = 12;

impl Queue {
    pub(crate) fn new(depth: u16) -> Queue {
        let free = (0..depth).rev().collect();
        Queue { connection: None, state: State::Down, transaction: 0, slots: vec![(0, None); depth.into()], free }
    }

    /// The slot of the next command, if one is free.
    pub(crate) fn next_slot(&self) -> Option<u16> {
        self.free.last().copied()
    }

    /// Puts a command into that slot. Returns its identifier.
    pub(crate) fn begin(&mut self, pending: Pending) -> Option<u16> {
        let slot = self.free.pop()?;
        let (used, place) = &mut self.slots[usize::from(slot)];
        *used = (*used + 1) & 0xF;
        *place = Some(pending);
        Some(slot | *used << SLOT_BITS)
    }

    /// Takes the command of an identifier, with its slot; each command once.
    pub(crate) fn end(&mut self, cid: u16) -> Option<(u16, Pending)> {
        let slot = cid & ((1 << SLOT_BITS) - 1);
        let (used, place) = self.slots.get_mut(usize::from(slot))?;
        if *used != cid >> SLOT_BITS {
            return None;
        }
        let pending = place.take()?;
        self.free.push(slot);
        Some((slot, pending))
    }

    /// The command in a slot.
    pub(crate) fn get_mut(&mut self, slot: u16) -> Option<(u16, &mut Pending)> {
        let (used, place) = self.slots.get_mut(usize::from(slot))?;
        Some((slot | *used << SLOT_BITS, place.as_mut()?))
    }

    /// Whether no command is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    /// Takes out any command in flight.
    pub(crate) fn take_any(&mut self) -> Option<Pending> {
        let slot = self.slots.iter().position(|(_, place)| place.is_some())?;
        self.free.push(slot as u16);
        self.slots[slot].1.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identifier_names_one_command() {
        let mut queue = Queue::new(2);
        let pending = |block| Pending { task: Task::Write { block, generation: 1 }, began_ns: 0, key: None };
        let (first, second) = (queue.begin(pending(1)), queue.begin(pending(2)));
        assert_eq!(queue.next_slot(), None);
        assert!(queue.begin(pending(3)).is_none());
        let first = first.expect("a slot");
        let ended = queue.end(first).map(|(slot, ended)| (slot, ended.task));
        assert_eq!(ended, Some((0, Task::Write { block: 1, generation: 1 })));
        assert!(queue.end(first).is_none(), "it is over");
        let third = queue.begin(pending(3)).expect("a slot");
        assert_ne!(third, first, "the same slot by another name");
        assert!(queue.end(0xFFF).is_none() && second.is_some());
        assert!(queue.take_any().is_some() && queue.take_any().is_some() && queue.take_any().is_none());
    }
}
