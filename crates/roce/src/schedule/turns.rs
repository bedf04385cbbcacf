//! Who is next: places in the order in which they asked, each once.

use std::collections::VecDeque;

/// A queue of places, none of them twice.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    queue: VecDeque<usize>,
    is_queued: Vec<bool>,
}

impl Turns {
    /// There is room for places below `count` from now on.
    pub(crate) fn make_room(&mut self, count: usize) {
        self.is_queued.resize(count.max(self.is_queued.len()), false);
        self.queue.reserve(self.is_queued.len() - self.queue.len());
    }

    /// Asks for a turn, behind the others.
    pub(crate) fn ask(&mut self, place: usize) {
        if !std::mem::replace(&mut self.is_queued[place], true) {
            self.queue.push_back(place);
        }
    }

    /// Whether a place waits for its turn.
    pub(crate) fn is_asked(&self, place: usize) -> bool {
        self.is_queued[place]
    }

    /// Whose turn it is.
    pub(crate) fn first(&self) -> Option<usize> {
        self.queue.front().copied()
    }

    /// The first had its turn.
    pub(crate) fn pass(&mut self) {
        if let Some(place) = self.queue.pop_front() {
            self.is_queued[place] = false;
        }
    }

    /// A place asks no longer.
    pub(crate) fn forget(&mut self, place: usize) {
        if std::mem::replace(&mut self.is_queued[place], false) {
            self.queue.retain(|queued| *queued != place);
        }
    }
}
