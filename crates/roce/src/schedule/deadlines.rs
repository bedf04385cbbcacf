//! The deadlines of many places, soonest first: an indexed binary heap. And the turns of those that
//! have work.
//!
//! A deadline that moves back keeps its old entry until that comes: every acknowledgement moves
//! one, and few ever come.

use std::collections::VecDeque;

/// The sooner of two times, if there is one.
#[inline]
pub(crate) fn sooner(one_ns: Option<u64>, other_ns: Option<u64>) -> Option<u64> {
    match (one_ns, other_ns) {
        (Some(one_ns), Some(other_ns)) => Some(one_ns.min(other_ns)),
        (one_ns, None) => one_ns,
        (None, other_ns) => other_ns,
    }
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    /// Times and places.
    heap: Vec<(u64, usize)>,
    /// The index in the heap of each place.
    at: Vec<Option<usize>>,
}

impl Deadlines {
    /// Makes room for places below `count`.
    pub(crate) fn make_room(&mut self, count: usize) {
        self.at.resize(count.max(self.at.len()), None);
        self.heap.reserve(self.at.len() - self.heap.len());
    }

    /// The earliest time at which a deadline may be due.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.heap.first().map(|(when_ns, _)| *when_ns)
    }

    /// Sets the deadline of a place. A later one, or none, takes effect when the old entry comes.
    pub(crate) fn set(&mut self, place: usize, when_ns: Option<u64>) {
        let Some(when_ns) = when_ns else { return };
        match self.at[place] {
            None => {
                self.heap.push((when_ns, place));
                self.at[place] = Some(self.heap.len() - 1);
                self.rise(self.heap.len() - 1);
            }
            Some(at) if when_ns < self.heap[at].0 => {
                self.heap[at].0 = when_ns;
                self.rise(at);
            }
            Some(_) => {}
        }
    }

    /// Takes a place whose time has come.
    pub(crate) fn take_due(&mut self, now_ns: u64) -> Option<usize> {
        let (when_ns, place) = *self.heap.first()?;
        (when_ns <= now_ns).then(|| {
            self.forget(place);
            place
        })
    }

    /// Removes the deadline of a place.
    pub(crate) fn forget(&mut self, place: usize) {
        let Some(at) = self.at[place].take() else { return };
        self.heap.swap_remove(at);
        if let Some((_, moved)) = self.heap.get(at) {
            self.at[*moved] = Some(at);
            self.rise(at);
            self.sink(at);
        }
    }

    fn rise(&mut self, mut at: usize) {
        while at > 0 && self.heap[at] < self.heap[(at - 1) / 2] {
            self.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
    }

    fn sink(&mut self, mut at: usize) {
        loop {
            let children = [2 * at + 1, 2 * at + 2].into_iter().filter(|child| *child < self.heap.len());
            let Some(least) = children.min_by_key(|child| self.heap[*child]) else { return };
            if self.heap[at] <= self.heap[least] {
                return;
            }
            self.swap(at, least);
            at = least;
        }
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.heap.swap(one, other);
        for at in [one, other] {
            self.at[self.heap[at].1] = Some(at);
        }
    }
}

/// A queue of places, without duplicates.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    queue: VecDeque<usize>,
    is_queued: Vec<bool>,
}

impl Turns {
    /// Makes room for places below `count`.
    pub(crate) fn make_room(&mut self, count: usize) {
        self.is_queued.resize(count.max(self.is_queued.len()), false);
        self.queue.reserve(self.is_queued.len() - self.queue.len());
    }

    /// Puts a place at the end, unless it waits already.
    pub(crate) fn ask(&mut self, place: usize) {
        if !std::mem::replace(&mut self.is_queued[place], true) {
            self.queue.push_back(place);
        }
    }

    /// Whether a place waits for its turn.
    pub(crate) fn is_asked(&self, place: usize) -> bool {
        self.is_queued[place]
    }

    /// The place whose turn it is.
    pub(crate) fn first(&self) -> Option<usize> {
        self.queue.front().copied()
    }

    /// The place whose turn it is, if no other one waits.
    pub(crate) fn only(&self) -> Option<usize> {
        if self.queue.len() == 1 { self.first() } else { None }
    }

    /// Ends the first place's turn.
    pub(crate) fn pass(&mut self) {
        if let Some(place) = self.queue.pop_front() {
            self.is_queued[place] = false;
        }
    }

    /// Removes a place.
    pub(crate) fn forget(&mut self, place: usize) {
        if std::mem::replace(&mut self.is_queued[place], false) {
            self.queue.retain(|queued| *queued != place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Compares with a sorted map, by generated steps.
    #[test]
    fn the_soonest_comes_first() {
        let mut rng = fastrand::Rng::with_seed(1);
        let (mut deadlines, mut oracle) = (Deadlines::default(), BTreeMap::new());
        deadlines.make_room(40);
        for _ in 0..20_000 {
            let (place, when_ns) = (rng.usize(..40), rng.u64(..1000));
            match rng.u8(..5) {
                0 => {
                    deadlines.forget(place);
                    oracle.remove(&place);
                }
                1 => {
                    let soonest = oracle.values().min().copied();
                    assert_eq!(deadlines.next_ns(), soonest);
                    match deadlines.take_due(when_ns) {
                        Some(due) => assert_eq!(oracle.remove(&due), soonest),
                        None => assert!(soonest.is_none_or(|soonest| soonest > when_ns)),
                    }
                }
                _ => {
                    deadlines.set(place, Some(when_ns));
                    let known = oracle.entry(place).or_insert(when_ns);
                    *known = when_ns.min(*known);
                }
            }
        }
    }
}
