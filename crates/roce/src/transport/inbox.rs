//! The receiving side's work requests: the receive that a message fills, and the completions.
//!
//! Guarantees: a receive is taken only while there is room for its completion, so no completion is
//! lost and nothing grows.

use crate::memory::{Memory, Owner, Place, Receive, Right, Sge, list_bytes, pieces};
use crate::transport::configuration::Receives;
use crate::transport::receive_queue::ReceiveQueue;
use crate::wire::SendEnd;
use crate::work::{Completed, Completion, PostError, Source, Status};
use std::collections::VecDeque;

#[derive(Debug)]
pub(crate) struct Inbox {
    queue: Queue,
    /// The receive of the incoming message, if `is_held`.
    held: Receive,
    is_held: bool,
    /// Completions, at most `room`.
    done: VecDeque<Completion>,
    room: usize,
}

#[derive(Debug)]
enum Queue {
    Own(ReceiveQueue),
    Shared(u32),
}

/// Why bytes have no place in a receive.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Misplaced {
    TooLong,
    Denied,
}

/// A message, as its completion reports it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    pub(crate) completed: Completed,
    pub(crate) bytes: u32,
    pub(crate) solicited: bool,
    pub(crate) source: Option<Source>,
}

impl Inbox {
    pub(crate) fn new(receives: Receives, sges: usize) -> Inbox {
        let (queue, room) = match receives {
            Receives::Own(depth) => (Queue::Own(ReceiveQueue::new(depth, sges)), depth.max(1)),
            Receives::Shared { queue, completions } => (Queue::Shared(queue), completions.max(1)),
        };
        Inbox { queue, held: Receive::new(sges), is_held: false, done: VecDeque::with_capacity(room), room }
    }

    pub(crate) fn post(&mut self, id: u64, sges: &[Sge]) -> Result<(), PostError> {
        let unpolled = self.done.len() + usize::from(self.is_held);
        match &mut self.queue {
            Queue::Own(queue) if queue.len() + unpolled >= queue.depth() => {
                Err(PostError::Full { depth: queue.depth() })
            }
            Queue::Own(queue) => queue.post(id, sges),
            Queue::Shared(_) => Err(PostError::Shared),
        }
    }

    pub(crate) fn poll(&mut self) -> Option<Completion> {
        self.done.pop_front()
    }

    pub(crate) fn has_completions(&self) -> bool {
        !self.done.is_empty()
    }

    /// Takes the next receive, unless one is held already; false if there is none.
    pub(crate) fn hold(&mut self, memory: &mut impl Memory) -> bool {
        if !self.is_held && self.done.len() < self.room {
            self.is_held = match &mut self.queue {
                Queue::Own(queue) => queue.take(&mut self.held),
                Queue::Shared(queue) => memory.take_shared_receive(*queue, &mut self.held),
            };
        }
        self.is_held
    }

    /// Puts bytes into the held receive, at `offset`.
    pub(crate) fn place(
        &self,
        owner: Owner,
        memory: &mut impl Memory,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), Misplaced> {
        let sges = self.held.sges();
        if list_bytes(sges) < offset + bytes.len() as u64 {
            return Err(Misplaced::TooLong);
        }
        for (addr, key, range) in pieces(sges, offset, bytes.len()) {
            let place = Place { owner, key, right: Right::LocalWrite, addr };
            memory.write(place, &bytes[range]).map_err(|_| Misplaced::Denied)?;
        }
        Ok(())
    }

    /// Completes the held receive with a message.
    pub(crate) fn complete(&mut self, message: Message) {
        let Message { completed, bytes, solicited, source } = message;
        self.finish(Completion { id: self.held.id(), status: Status::Success, completed, bytes, solicited, source });
    }

    /// Fails the held receive, if there is one.
    pub(crate) fn fail(&mut self, status: Status) {
        if self.is_held {
            self.finish(failed(self.held.id(), status));
        }
    }

    fn finish(&mut self, completion: Completion) {
        debug_assert!(self.is_held && self.done.len() < self.room);
        self.is_held = false;
        self.done.push_back(completion);
    }

    /// Fails the held and all posted receives. Receives of a shared queue stay there.
    pub(crate) fn flush(&mut self) {
        self.fail(Status::Flushed);
        if let Queue::Own(queue) = &mut self.queue {
            while let Some(id) = queue.skip() {
                self.done.push_back(failed(id, Status::Flushed));
            }
        }
    }
}

fn failed(id: u64, status: Status) -> Completion {
    let completed = Completed::Receive(SendEnd::Plain);
    Completion { id, status, completed, bytes: 0, solicited: true, source: None }
}
