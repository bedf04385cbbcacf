//! Turns: places in the order in which they asked, without duplicates.

use std::collections::VecDeque;

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
