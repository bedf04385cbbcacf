//! Stores that carry out a request as they take it: their queue of answers, and the one that keeps
//! nothing.

use std::collections::VecDeque;

use crate::request::{Done, Fault, Op, Request};
use crate::store::{Geometry, Store};

/// Requests that are done, and are handed out by the next polls.
#[derive(Debug)]
pub(crate) struct Answers {
    depth: usize,
    done: VecDeque<Done>,
}

impl Answers {
    /// With at most `depth` requests under way, above 0.
    pub(crate) fn new(depth: usize) -> Answers {
        let depth = depth.max(1);
        Answers { depth, done: VecDeque::with_capacity(depth) }
    }

    /// Takes requests as far as there is room, and carries them out. Gives their number.
    pub(crate) fn submit(
        &mut self,
        requests: &mut VecDeque<Request>,
        carry_out: impl Fn(&mut Request) -> Result<(), Fault>,
    ) -> usize {
        let taken = requests.len().min(self.room());
        for mut request in requests.drain(..taken) {
            let result = carry_out(&mut request);
            self.done.push_back(request.done(result));
        }
        taken
    }

    /// See [`Store::poll`].
    pub(crate) fn poll(&mut self, done: &mut Vec<Done>) -> usize {
        hand_out(&mut self.done, done)
    }

    /// See [`Store::under_way`].
    pub(crate) fn under_way(&self) -> usize {
        self.done.len()
    }

    /// See [`Store::room`].
    pub(crate) fn room(&self) -> usize {
        self.depth - self.done.len()
    }
}

/// Moves finished requests, as far as there is capacity.
pub(crate) fn hand_out(from: &mut VecDeque<Done>, to: &mut Vec<Done>) -> usize {
    let count = from.len().min(to.capacity() - to.len());
    to.extend(from.drain(..count));
    count
}

/// A store that keeps nothing, which shows what the path around a store costs. Writes are dropped,
/// and all blocks read as zeros: a packet may hold another's data from its use before. Everything
/// is done at the next poll.
#[derive(Debug)]
pub struct NullStore {
    geometry: Geometry,
    answers: Answers,
}

impl NullStore {
    /// With at most `depth` requests under way, above 0.
    #[must_use]
    pub fn new(geometry: Geometry, depth: usize) -> NullStore {
        NullStore { geometry, answers: Answers::new(depth) }
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
        self.answers.submit(requests, |request| {
            self.geometry.extent(request)?;
            if let (Op::Read, Some(packet)) = (request.op, &mut request.packet) {
                packet.data_mut().fill(0);
            }
            Ok(())
        })
    }

    fn poll(&mut self, done: &mut Vec<Done>) -> usize {
        self.answers.poll(done)
    }

    fn under_way(&self) -> usize {
        self.answers.under_way()
    }

    fn room(&self) -> usize {
        self.answers.room()
    }
}
