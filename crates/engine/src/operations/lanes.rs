//! The operations and sends under way at a port, oldest first: first held, then listed, then posted
//! to one of its queue pairs, each of which has a lane.
//!
//! With one queue pair everything keeps its order of arrival, in one queue. With many, the lanes
//! and the list are queues of links over shared places: an element stays in its place until it is
//! taken.
//!
//! Guarantees: nothing is allocated after construction, for any distribution of elements over the
//! lanes.

use std::collections::VecDeque;

/// No place.
const NONE: u32 = u32::MAX;

/// The elements under way, up to the number given at construction.
#[derive(Debug)]
pub(crate) enum Lanes<T> {
    /// One queue pair: the number of posted elements, followed by the listed and held ones.
    One { posted: usize, all: VecDeque<T> },
    /// Many queue pairs.
    Many(Linked<T>),
}

/// Queues that share their places: the list, and a lane for each queue pair.
#[derive(Debug)]
pub(crate) struct Linked<T> {
    places: Box<[Place<T>]>,
    /// The first free place.
    free: u32,
    list: Queue,
    lanes: Box<[Queue]>,
}

#[derive(Debug)]
struct Place<T> {
    held: Option<T>,
    /// The next place in its queue, or the next free one.
    next: u32,
}

#[derive(Clone, Copy, Debug)]
struct Queue {
    first: u32,
    last: u32,
}

const EMPTY: Queue = Queue { first: NONE, last: NONE };

/// A held element, which is in at most one queue.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Held(u32);

impl<T> Lanes<T> {
    /// `lanes`: the number of lanes of a port with many queue pairs. There is room for `room`
    /// elements in all.
    pub(crate) fn new(lanes: Option<usize>, room: usize) -> Lanes<T> {
        match lanes {
            None => Lanes::One { posted: 0, all: VecDeque::with_capacity(room) },
            Some(lanes) => Lanes::Many(Linked::new(lanes, room)),
        }
    }

    /// Takes an element in; it comes back if there is no room.
    #[inline]
    pub(crate) fn hold(&mut self, one: T) -> Result<Held, T> {
        match self {
            Lanes::One { all, .. } if all.len() == all.capacity() => Err(one),
            Lanes::One { all, .. } => {
                all.push_back(one);
                Ok(Held(NONE))
            }
            Lanes::Many(linked) => linked.hold(one),
        }
    }

    /// Appends a held element to the list. With one queue pair, elements are listed in the order in
    /// which they were taken in.
    #[inline]
    pub(crate) fn list(&mut self, held: Held) {
        if let Lanes::Many(linked) = self {
            let Linked { places, list, .. } = linked;
            list.push(places, held.0, held.0);
        }
    }

    /// Takes the oldest element of the list.
    pub(crate) fn pop_listed(&mut self) -> Option<T> {
        match self {
            Lanes::One { posted, all } => all.remove(*posted),
            Lanes::Many(linked) => {
                let at = linked.list.pop(&linked.places)?;
                linked.take(at)
            }
        }
    }

    /// Takes an element that is not listed. With one queue pair: the oldest, when none is listed.
    pub(crate) fn take(&mut self, held: Held) -> Option<T> {
        match self {
            Lanes::One { posted, all } => all.remove(*posted),
            Lanes::Many(linked) => linked.take(held.0),
        }
    }

    /// Moves `count` elements of the list to a lane, as posted to its queue pair; `each` sees every
    /// one.
    #[inline]
    pub(crate) fn post(&mut self, lane: usize, count: usize, each: impl FnMut(&T)) {
        match self {
            Lanes::One { posted, all } => {
                let end = all.len().min(*posted + count);
                all.range(*posted..end).for_each(each);
                *posted = end;
            }
            Lanes::Many(linked) => linked.post(lane, count, each),
        }
    }

    /// Takes the `count` oldest elements of a lane, or all if there are fewer. Returns their
    /// number.
    #[inline]
    pub(crate) fn take_posted(&mut self, lane: usize, count: usize, mut each: impl FnMut(T)) -> usize {
        match self {
            Lanes::One { posted, all } => {
                let count = count.min(*posted);
                *posted -= count;
                all.drain(..count).for_each(each);
                count
            }
            Lanes::Many(linked) => {
                let taken = (0..count).map_while(|_| linked.pop(lane));
                taken.fold(0, |taken, one| {
                    each(one);
                    taken + 1
                })
            }
        }
    }

    /// Takes the oldest element of a lane.
    #[inline]
    pub(crate) fn pop(&mut self, lane: usize) -> Option<T> {
        let mut oldest = None;
        self.take_posted(lane, 1, |one| oldest = Some(one));
        oldest
    }

    /// Calls `each` for all elements of a lane, the oldest first.
    pub(crate) fn each_mut(&mut self, lane: usize, mut each: impl FnMut(&mut T)) {
        match self {
            Lanes::One { posted, all } => all.range_mut(..*posted).for_each(each),
            Lanes::Many(linked) => {
                let mut next = linked.lanes[lane].first;
                while let Some(place) = linked.places.get_mut(next as usize) {
                    place.held.as_mut().into_iter().for_each(&mut each);
                    next = place.next;
                }
            }
        }
    }

    /// The sum of `each` over all elements.
    pub(crate) fn sum(&self, each: impl Fn(&T) -> usize) -> usize {
        match self {
            Lanes::One { all, .. } => all.iter().map(each).sum(),
            Lanes::Many(linked) => linked.places.iter().filter_map(|place| place.held.as_ref()).map(each).sum(),
        }
    }
}

impl<T> Linked<T> {
    fn new(lanes: usize, room: usize) -> Linked<T> {
        let room = u32::try_from(room).unwrap_or(NONE).min(NONE - 1);
        let next = |at: u32| if at + 1 < room { at + 1 } else { NONE };
        Linked {
            places: (0..room).map(|at| Place { held: None, next: next(at) }).collect(),
            free: if room > 0 { 0 } else { NONE },
            list: EMPTY,
            lanes: vec![EMPTY; lanes].into_boxed_slice(),
        }
    }

    #[inline]
    fn hold(&mut self, one: T) -> Result<Held, T> {
        let at = self.free;
        let Some(place) = self.places.get_mut(at as usize) else { return Err(one) };
        self.free = place.next;
        place.held = Some(one);
        Ok(Held(at))
    }

    /// Takes an element that is in no queue.
    #[inline]
    fn take(&mut self, at: u32) -> Option<T> {
        let place = &mut self.places[at as usize];
        place.next = std::mem::replace(&mut self.free, at);
        place.held.take()
    }

    #[inline]
    fn pop(&mut self, lane: usize) -> Option<T> {
        let at = self.lanes.get_mut(lane)?.pop(&self.places)?;
        self.take(at)
    }

    #[inline]
    fn post(&mut self, lane: usize, count: usize, mut each: impl FnMut(&T)) {
        let first = self.list.first;
        let (mut end, mut next) = (NONE, first);
        for _ in 0..count {
            let Some(place) = self.places.get(next as usize) else { break };
            place.held.as_ref().into_iter().for_each(&mut each);
            (end, next) = (next, place.next);
        }
        if end == NONE {
            return;
        }
        self.list = if next == NONE { EMPTY } else { Queue { first: next, ..self.list } };
        self.lanes[lane].push(&mut self.places, first, end);
    }
}

impl Queue {
    /// Appends a chain of linked places.
    #[inline]
    fn push<T>(&mut self, places: &mut [Place<T>], first: u32, last: u32) {
        places[last as usize].next = NONE;
        match std::mem::replace(&mut self.last, last) {
            NONE => self.first = first,
            before => places[before as usize].next = first,
        }
    }

    /// Removes the first place.
    #[inline]
    fn pop<T>(&mut self, places: &[Place<T>]) -> Option<u32> {
        let at = self.first;
        self.first = places.get(at as usize)?.next;
        if self.first == NONE {
            self.last = NONE;
        }
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        List,
        PopListed,
        /// Posts a number of elements to a lane.
        Post(usize, usize),
        Take(usize, usize),
        /// Holds an element, and takes it while it is not listed.
        Pass,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => Just(Step::List),
            1 => Just(Step::PopListed),
            3 => (0usize..3, 0usize..8).prop_map(|(lane, count)| Step::Post(lane, count)),
            3 => (0usize..3, 0usize..4).prop_map(|(lane, count)| Step::Take(lane, count)),
            1 => Just(Step::Pass),
        ]
    }

    proptest! {
        /// Compares with plain queues and a count.
        #[test]
        fn the_list_and_each_lane_are_queues(many in any::<bool>(), steps in prop::collection::vec(step(), 0..200)) {
            let count = if many { 3 } else { 1 };
            let mut lanes = Lanes::new(many.then_some(3), 6);
            let (mut list, mut oracle) = (VecDeque::new(), vec![VecDeque::new(); count]);
            for (number, step) in steps.into_iter().enumerate() {
                let all = list.len() + oracle.iter().map(VecDeque::len).sum::<usize>();
                match step {
                    Step::List => match lanes.hold(number) {
                        Ok(held) => {
                            lanes.list(held);
                            list.push_back(number);
                        }
                        Err(back) => prop_assert!(all >= 6 && back == number),
                    },
                    Step::PopListed => prop_assert_eq!(lanes.pop_listed(), list.pop_front()),
                    Step::Post(lane, most) => {
                        let mut shown = Vec::new();
                        lanes.post(lane % count, most, |one| shown.push(*one));
                        let posted: Vec<_> = list.drain(..most.min(list.len())).collect();
                        prop_assert_eq!(&shown, &posted);
                        oracle[lane % count].extend(posted);
                    }
                    Step::Take(lane, most) => {
                        let (mut taken, lane) = (Vec::new(), lane % count);
                        let count = lanes.take_posted(lane, most, |one| taken.push(one));
                        prop_assert_eq!(count, taken.len());
                        let most = most.min(oracle[lane].len());
                        let oldest: Vec<_> = oracle[lane].drain(..most).collect();
                        prop_assert_eq!(taken, oldest);
                    }
                    Step::Pass if !list.is_empty() => {}
                    Step::Pass => match lanes.hold(number) {
                        Ok(held) => prop_assert_eq!(lanes.take(held), Some(number)),
                        Err(_) => prop_assert!(all >= 6),
                    },
                }
                for (lane, expected) in oracle.iter().enumerate() {
                    let mut shown = VecDeque::new();
                    lanes.each_mut(lane, |one| shown.push_back(*one));
                    prop_assert_eq!(&shown, expected);
                }
                let all = list.len() + oracle.iter().map(VecDeque::len).sum::<usize>();
                prop_assert_eq!(lanes.sum(|_| 1), all);
            }
        }
    }

    #[test]
    fn without_room_nothing_fits() {
        for lanes in [None, Some(1)] {
            assert!(Lanes::new(lanes, 0).hold('a').is_err());
        }
    }
}
