//! A list of waiting commands that takes its queues in turn: a queue with many commands does not
//! hold up a queue with one.
//!
//! A command waits for one thing at a time, so that all lists share one set of links. Nothing is
//! allocated after the start.

use std::collections::VecDeque;

const NONE: u32 = u32::MAX;

/// The command behind each command, by their places.
#[derive(Debug)]
pub(crate) struct Links(Box<[u32]>);

impl Links {
    /// Links for `commands` commands.
    pub(crate) fn new(commands: usize) -> Links {
        Links(vec![NONE; commands].into())
    }

    /// Bytes of the links.
    pub(crate) fn bytes(commands: u64) -> u64 {
        commands * size_of::<u32>() as u64
    }
}

/// See the top of this file.
#[derive(Debug)]
pub(crate) struct Turns {
    lists: Box<[List]>,
    /// The queues with waiting commands, the next one first.
    ring: VecDeque<u16>,
}

#[derive(Clone, Copy, Debug)]
struct List {
    first: u32,
    last: u32,
}

const EMPTY: List = List { first: NONE, last: NONE };

impl Turns {
    /// Makes the lists of `queues` queues.
    pub(crate) fn new(queues: usize) -> Turns {
        Turns { lists: vec![EMPTY; queues].into(), ring: VecDeque::with_capacity(queues) }
    }

    /// Bytes of the lists.
    pub(crate) fn bytes(queues: u64) -> u64 {
        queues * (size_of::<List>() + size_of::<u16>()) as u64
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// The number of queues with waiting commands.
    pub(crate) fn queues(&self) -> usize {
        self.ring.len()
    }

    /// Whether a command of this queue waits.
    #[inline]
    pub(crate) fn has(&self, queue: u16) -> bool {
        self.lists[usize::from(queue)].first != NONE
    }

    /// Adds a command behind the others of its queue.
    pub(crate) fn push(&mut self, queue: u16, place: u32, links: &mut Links) {
        links.0[place as usize] = NONE;
        let list = &mut self.lists[usize::from(queue)];
        match list.last {
            NONE => {
                list.first = place;
                self.ring.push_back(queue);
            }
            last => links.0[last as usize] = place,
        }
        list.last = place;
    }

    /// Puts a command back in front of the others of its queue, whose turn is over.
    pub(crate) fn put_back(&mut self, queue: u16, place: u32, links: &mut Links) {
        let list = &mut self.lists[usize::from(queue)];
        links.0[place as usize] = list.first;
        if list.first == NONE {
            list.last = place;
            self.ring.push_back(queue);
        }
        list.first = place;
    }

    /// Takes out the next command. Returns its queue and its place.
    pub(crate) fn pop(&mut self, links: &mut Links) -> Option<(u16, u32)> {
        let queue = self.ring.pop_front()?;
        let list = &mut self.lists[usize::from(queue)];
        let place = list.first;
        list.first = links.0[place as usize];
        if list.first == NONE {
            list.last = NONE;
        } else {
            self.ring.push_back(queue);
        }
        Some((queue, place))
    }

    /// Removes all commands of this queue.
    pub(crate) fn clear(&mut self, queue: u16) {
        if self.has(queue) {
            self.lists[usize::from(queue)] = EMPTY;
            self.ring.retain(|other| *other != queue);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_have_their_turns_and_commands_their_order() {
        let (mut turns, mut links) = (Turns::new(3), Links::new(16));
        for (queue, place) in [(0, 1), (0, 2), (0, 3), (2, 4), (1, 5), (1, 6)] {
            turns.push(queue, place, &mut links);
        }
        assert_eq!((turns.queues(), turns.has(1)), (3, true));
        assert_eq!(turns.pop(&mut links), Some((0, 1)));
        let (queue, place) = turns.pop(&mut links).expect("the next queue");
        assert_eq!((queue, place), (2, 4));
        turns.put_back(queue, place, &mut links);
        turns.push(2, 7, &mut links);
        let all: Vec<_> = std::iter::from_fn(|| turns.pop(&mut links)).collect();
        assert_eq!(all, [(1, 5), (0, 2), (2, 4), (1, 6), (0, 3), (2, 7)]);
        assert!(turns.is_empty() && !turns.has(0));
    }

    #[test]
    fn a_queue_that_is_cleared_is_out_of_turn() {
        let (mut turns, mut links) = (Turns::new(2), Links::new(4));
        turns.push(0, 0, &mut links);
        turns.push(1, 1, &mut links);
        turns.push(0, 2, &mut links);
        turns.clear(0);
        assert_eq!(turns.pop(&mut links), Some((1, 1)));
        assert_eq!(turns.pop(&mut links), None);
        turns.push(0, 3, &mut links);
        assert_eq!(turns.pop(&mut links), Some((0, 3)));
    }
}
