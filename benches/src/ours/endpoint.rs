//! One side of one connection, and no more: the state of a program with a single queue pair that
//! handles one packet at a time.

use std::mem;

use verbline::mem::{Batch, BoundCache, Packet};
use verbline::verbs::{Completion, CompletionQueue, Completions, QueuePair};

use super::rc::Side;

/// See the [module](self).
#[derive(Debug)]
pub struct Endpoint {
    pub(super) qp: QueuePair,
    pub(super) cq: CompletionQueue,
    pub(super) completions: Completions,
    pub(super) cache: BoundCache,
    pub(super) batch: Batch,
    pub(super) freed: Batch,
    /// Receives to post again.
    owed: usize,
}

impl Endpoint {
    /// An endpoint of a side with one queue pair; binds the cache to this thread.
    ///
    /// # Panics
    /// If the side's cache is bound already.
    pub fn new(side: Side) -> Endpoint {
        let Side { mut qps, cq, completions, cache, freed, .. } = side;
        Endpoint {
            qp: qps.pop().expect("made with one"),
            cq,
            completions,
            cache: cache.expect("bound once").bind(),
            // As deep as a receive queue; `freed` is as deep as a send queue.
            batch: Batch::with_capacity(freed.capacity()),
            freed,
            owed: 0,
        }
    }

    /// Like [`new`](Self::new), with this many receives posted.
    ///
    /// # Panics
    /// Like [`new`](Self::new), and if there is no room for them.
    pub fn with_receives(side: Side, count: usize) -> Endpoint {
        let mut endpoint = Endpoint::new(side);
        endpoint.post_receives(count);
        endpoint
    }

    /// Posts this many receives.
    ///
    /// # Panics
    /// If there is no room, or no packet.
    pub fn post_receives(&mut self, count: usize) {
        self.cache.get_bulk_unreset(&mut self.batch, count);
        assert!(self.qp.post_recv(&mut self.batch).posted == count, "the pool covers the queue");
    }

    /// Posts a message of this many bytes, written by `write`.
    ///
    /// # Panics
    /// If there is no room, or no packet.
    #[inline(always)]
    pub fn send(&mut self, len_bytes: usize, write: impl FnOnce(&mut Packet)) {
        let mut packet = self.cache.get_of_len(len_bytes).expect("a packet");
        write(&mut packet);
        assert!(self.qp.post_send_one(packet).is_ok(), "there is room");
    }

    /// Polls once and hands each message to `each`; posts all owed receives again once `repost` are
    /// owed. Returns the number of messages.
    ///
    /// # Panics
    /// If a work request failed.
    #[inline(always)]
    pub fn poll(&mut self, repost: usize, each: impl FnMut(&mut QueuePair, &BoundCache, Packet)) -> usize {
        let messages = self.poll_each(each);
        self.owe(messages, repost);
        messages
    }

    /// Notes that this many receives were taken; posts all owed ones again once they are `repost`.
    #[inline(always)]
    pub(super) fn owe(&mut self, taken: usize, repost: usize) {
        self.owed += taken;
        if self.owed >= repost {
            let owed = mem::take(&mut self.owed);
            self.post_receives(owed);
        }
    }

    /// Polls once and hands each message to `each`, and posts no receive. Returns the number of
    /// messages.
    ///
    /// # Panics
    /// If a work request failed.
    #[inline(always)]
    pub fn poll_each(&mut self, mut each: impl FnMut(&mut QueuePair, &BoundCache, Packet)) -> usize {
        self.cq.poll(&mut self.completions);
        let mut messages = 0;
        for completion in &self.completions {
            let Some(packet) = self.qp.recv_one(completion) else {
                sent(&mut self.qp, completion, &mut self.freed);
                continue;
            };
            each(&mut self.qp, &self.cache, packet);
            messages += 1;
        }
        messages
    }
}

/// Takes the completion of sends. Their packets go back to their pool.
#[inline(always)]
pub(super) fn sent(qp: &mut QueuePair, completion: &Completion, freed: &mut Batch) {
    assert!(completion.is_ok(), "{completion:?}");
    qp.send_done(completion, freed).expect("a send of ours");
    if !freed.is_empty() {
        freed.clear();
    }
}
