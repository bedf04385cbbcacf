//! First-in-first-out queues that share their places: one a queue pair of a port.
//!
//! What is put into a place stays there until it is taken; the queues, or lanes, link places. So to
//! move what waits in one lane to another is to link it anew.
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

const EMPTY: Lane = Lane { first: NONE, last: NONE };

/// A place that holds something: until it is taken, in at most one lane.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Held(u32);

impl<T> Lanes<T> {
    /// `lanes` lanes, and room for `room` elements in all of them together.
    pub(crate) fn new(lanes: usize, room: usize) -> Lanes<T> {
        let room = u32::try_from(room).unwrap_or(NONE).min(NONE - 1);
        let next = |at: u32| if at + 1 < room { at + 1 } else { NONE };
        Lanes {
            places: (0..room).map(|at| Place { held: None, next: next(at) }).collect(),
            free: if room > 0 { 0 } else { NONE },
            lanes: vec![EMPTY; lanes].into_boxed_slice(),
        }
    }

    /// Puts one into a place, in no lane yet; it comes back if there is no room.
    #[inline]
    pub(crate) fn hold(&mut self, one: T) -> Result<Held, T> {
        let at = self.free;
        let Some(place) = self.places.get_mut(at as usize) else { return Err(one) };
        self.free = place.next;
        place.held = Some(one);
        Ok(Held(at))
    }

    /// Puts what is held behind the others of a lane.
    #[inline]
    pub(crate) fn push(&mut self, lane: usize, held: Held) {
        let Held(at) = held;
        let lane = &mut self.lanes[lane];
        self.places[at as usize].next = NONE;
        match std::mem::replace(&mut lane.last, at) {
            NONE => lane.first = at,
            before => self.places[before as usize].next = at,
        }
    }

    /// Takes the oldest of a lane.
    #[inline]
    pub(crate) fn pop(&mut self, lane: usize) -> Option<T> {
        let lane = self.lanes.get_mut(lane)?;
        let at = lane.first;
        lane.first = self.places.get(at as usize)?.next;
        if lane.first == NONE {
            lane.last = NONE;
        }
        self.take(Held(at))
    }

    /// Takes one that is in no lane.
    #[inline]
    pub(crate) fn take(&mut self, held: Held) -> Option<T> {
        let Held(at) = held;
        let place = &mut self.places[at as usize];
        place.next = std::mem::replace(&mut self.free, at);
        place.held.take()
    }

    /// Moves the oldest of one lane behind those of another, as many as there are of `count`; each
    /// is shown.
    #[inline]
    pub(crate) fn shift(&mut self, from: usize, to: usize, count: usize, mut each: impl FnMut(&T)) {
        let Lane { first, last } = self.lanes[from];
        let (mut end, mut next) = (NONE, first);
        for _ in 0..count {
            let Some(place) = self.places.get(next as usize) else { break };
            place.held.as_ref().into_iter().for_each(&mut each);
            (end, next) = (next, place.next);
        }
        if end == NONE {
            return;
        }
        self.places[end as usize].next = NONE;
        self.lanes[from] = if next == NONE { EMPTY } else { Lane { first: next, last } };
        let lane = &mut self.lanes[to];
        match std::mem::replace(&mut lane.last, end) {
            NONE => lane.first = first,
            before => self.places[before as usize].next = first,
        }
    }

    /// Shows all of a lane, the oldest first.
    pub(crate) fn each_mut(&mut self, lane: usize, mut each: impl FnMut(&mut T)) {
        let mut next = self.lanes[lane].first;
        while let Some(place) = self.places.get_mut(next as usize) {
            place.held.as_mut().into_iter().for_each(&mut each);
            next = place.next;
        }
    }

    /// All that there are, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.places.iter().filter_map(|place| place.held.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Push(usize),
        Pop(usize),
        Shift(usize, usize, usize),
        /// Held, and taken out of no lane.
        Pass,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0usize..4).prop_map(Step::Push),
            2 => (0usize..5).prop_map(Step::Pop),
            2 => (0usize..4, 0usize..4, 0usize..8).prop_map(|(from, to, count)| Step::Shift(from, to, count)),
            1 => Just(Step::Pass),
        ]
    }

    proptest! {
        /// Against as many queues, and a count.
        #[test]
        fn each_lane_is_a_queue(steps in prop::collection::vec(step(), 0..200)) {
            let (mut lanes, mut oracle) = (Lanes::new(4, 6), vec![VecDeque::new(); 4]);
            for (number, step) in steps.into_iter().enumerate() {
                let is_full = oracle.iter().map(VecDeque::len).sum::<usize>() == 6;
                match step {
                    Step::Push(lane) => match lanes.hold(number) {
                        Ok(held) => {
                            lanes.push(lane, held);
                            oracle[lane].push_back(number);
                        }
                        Err(number_back) => prop_assert!(is_full && number_back == number),
                    },
                    Step::Pop(lane) => {
                        prop_assert_eq!(lanes.pop(lane), oracle.get_mut(lane).and_then(VecDeque::pop_front));
                    }
                    Step::Shift(from, to, _) if from == to => {}
                    Step::Shift(from, to, count) => {
                        let mut shown = Vec::new();
                        lanes.shift(from, to, count, |one| shown.push(*one));
                        let count = count.min(oracle[from].len());
                        let moved: Vec<_> = oracle[from].drain(..count).collect();
                        prop_assert_eq!(&shown, &moved);
                        oracle[to].extend(moved);
                    }
                    Step::Pass => match lanes.hold(number) {
                        Ok(held) => prop_assert_eq!(lanes.take(held), Some(number)),
                        Err(_) => prop_assert!(is_full),
                    },
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
        assert_eq!(Lanes::new(1, 0).hold('a'), Err('a'));
    }
}
