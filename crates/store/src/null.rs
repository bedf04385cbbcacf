//! A store that keeps nothing: what the path around a store costs.

use std::collections::VecDeque;

use crate::check;
use crate::request::{Done, Request};
use crate::store::{Geometry, Store};

/// Writes are dropped, and reads leave the packet as it is. Everything is done at the next poll.
#[derive(Debug)]
pub struct NullStore {
    geometry: Geometry,
    depth: usize,
    done: VecDeque<Done>,
}

impl NullStore {
    /// With at most `depth` requests under way, above 0.
    #[must_use]
    pub fn new(geometry: Geometry, depth: usize) -> NullStore {
        let depth = depth.max(1);
        NullStore { geometry, depth, done: VecDeque::with_capacity(depth) }
    }

    /// Bytes that a store sets aside for `depth` requests.
    #[must_use]
    pub fn queue_bytes(depth: u64) -> u64 {
        depth * size_of::<Done>() as u64
    }
}

impl Store for NullStore {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&mut self, requests: &mut VecDeque<Request>) -> usize {
        let taken = requests.len().min(self.room());
        for request in requests.drain(..taken) {
            let result = check::extent(&request, &self.geometry).map(drop);
            self.done.push_back(request.done(result));
        }
        taken
    }

    fn poll(&mut self, done: &mut Vec<Done>) -> usize {
        hand_out(&mut self.done, done)
    }

    fn under_way(&self) -> usize {
        self.done.len()
    }

    fn room(&self) -> usize {
        self.depth - self.done.len()
    }
}

/// Moves what is done, as far as there is capacity.
pub(crate) fn hand_out(from: &mut VecDeque<Done>, to: &mut Vec<Done>) -> usize {
    let count = from.len().min(to.capacity() - to.len());
    to.extend(from.drain(..count));
    count
}
