//! First-in-first-out queues that share their places: one a queue pair of a port.
//!
//! Guarantees: nothing is allocated after they are made, however what is in them is spread over
//! them.

/// No place.
const NONE: u32 = u32::MAX;

/// Queues that together hold as much as they were made for.
#[derive(Debug)]
pub(crate) struct Lanes<T> {
    places: Box<[Place<T>]>,
    /// The first place that is free.
    free: u32,
    lanes: Box<[Lane]>,
}

#[derive(Debug)]
struct Place<T> {
    held: Option<T>,
    /// The place behind it in its lane, or the next that is free.
    next: u32,
}

#[derive(Clone, Copy, Debug)]
struct Lane {
    first: u32,
    last: u32,
}

impl<T> Lanes<T> {
    /// So many lanes, and room for so many in all of them together.
    pub(crate) fn new(lanes: usize, room: usize) -> Lanes<T> {
        let room = u32::try_from(room).unwrap_or(NONE).min(NONE - 1);
        let next = |at: u32| if at + 1 < room { at + 1 } else { NONE };
        Lanes {
            places: (0..room).map(|at| Place { held: None, next: next(at) }).collect(),
            free: if room > 0 { 0 } else { NONE },
            lanes: vec![Lane { first: NONE, last: NONE }; lanes].into_boxed_slice(),
        }
    }

    /// Puts one behind the others of its lane; it comes back if there is no room, or no such lane.
    #[inline]
    pub(crate) fn push(&mut self, lane: usize, one: T) -> Result<(), T> {
        let at = self.free;
        let (Some(place), Some(lane)) = (self.places.get_mut(at as usize), self.lanes.get_mut(lane)) else {
            return Err(one);
        };
        self.free = std::mem::replace(&mut place.next, NONE);
        place.held = Some(one);
        match std::mem::replace(&mut lane.last, at) {
            NONE => lane.first = at,
            before => self.places[before as usize].next = at,
        }
        Ok(())
    }

    /// Takes the oldest of a lane.
    #[inline]
    pub(crate) fn pop(&mut self, lane: usize) -> Option<T> {
        let lane = self.lanes.get_mut(lane)?;
        let at = lane.first;
        let place = self.places.get_mut(at as usize)?;
        lane.first = std::mem::replace(&mut place.next, self.free);
        if lane.first == NONE {
            lane.last = NONE;
        }
        self.free = at;
        place.held.take()
    }

    /// All that there are, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.places.iter().filter_map(|place| place.held.as_ref())
    }

    pub(crate) fn lanes(&self) -> usize {
        self.lanes.len()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against as many queues, and a count.
        #[test]
        fn each_lane_is_a_queue(steps in prop::collection::vec((0usize..5, any::<bool>()), 0..200)) {
            let (mut lanes, mut oracle) = (Lanes::new(4, 6), vec![VecDeque::new(); 4]);
            for (number, (lane, comes)) in steps.into_iter().enumerate() {
                if comes {
                    let fits = lane < 4 && oracle.iter().map(VecDeque::len).sum::<usize>() < 6;
                    prop_assert_eq!(lanes.push(lane, number).is_ok(), fits);
                    if fits {
                        oracle[lane].push_back(number);
                    }
                } else {
                    prop_assert_eq!(lanes.pop(lane), oracle.get_mut(lane).and_then(VecDeque::pop_front));
                }
                let (mut all, mut known): (Vec<_>, Vec<_>) =
                    (lanes.iter().copied().collect(), oracle.iter().flatten().copied().collect());
                all.sort_unstable();
                known.sort_unstable();
                prop_assert_eq!(all, known);
            }
        }
    }

    #[test]
    fn without_room_nothing_fits() {
        assert_eq!(Lanes::new(1, 0).push(0, 'a'), Err('a'));
    }
}
