//! What callgrind counts of the verbs: messages from one queue pair to another in one thread, each sent inline, received, and
//! its receive posted again.
//!
//! The program of `rivals/verbs.c`, step for step, with the verbs crate: one connection, buffers of a pool, the status and the
//! length of every message looked at. Unlike C it can also post a packet that is no list of one.

use verbline::mem::{Batch, BoundCache};
use verbline::verbs::{Completion, CompletionQueue, Completions, QueuePair, WrKind};

use super::rc::{Side, Spec, pair};

const MESSAGE_BYTES: usize = 64;
/// Receives that are kept posted.
const DEPTH: usize = 64;

/// `lists` lists of `burst` messages; those of one message are posted as packets.
pub fn post_and_poll(lists: u64, burst: usize) {
    let [near, far] = pair(&Spec { depth_wr: DEPTH as u32, ..Spec::new(MESSAGE_BYTES as u32) });
    // What is dropped looks for its pool among the caches of the thread, the last that was bound first. The sender drops packets.
    let mut far = Endpoint::new(far);
    let mut near = Endpoint::new(near);
    far.post_receives(DEPTH);
    if burst == 1 { one_by_one(&mut near, &mut far, lists) } else { in_lists(&mut near, &mut far, lists, burst) }
}

fn in_lists(near: &mut Endpoint, far: &mut Endpoint, lists: u64, burst: usize) {
    for _ in 0..lists {
        near.post_sends(burst);
        assert!(far.poll_lists(burst) == burst, "delivered at once");
        near.poll_lists(burst);
    }
}

fn one_by_one(near: &mut Endpoint, far: &mut Endpoint, messages: u64) {
    for _ in 0..messages {
        near.post_send();
        assert!(far.poll() == 1, "delivered at once");
        near.poll();
    }
}

/// One side.
struct Endpoint {
    qp: QueuePair,
    cq: CompletionQueue,
    completions: Completions,
    cache: BoundCache,
    batch: Batch,
    freed: Batch,
    /// Receives to post again.
    owed: usize,
}

impl Endpoint {
    fn new(side: Side) -> Endpoint {
        let Side { mut qps, cq, completions, cache, freed, .. } = side;
        Endpoint {
            qp: qps.pop().expect("made with one"),
            cq,
            completions,
            cache: cache.expect("bound once").bind(),
            batch: Batch::with_capacity(DEPTH),
            freed,
            owed: 0,
        }
    }

    fn post_sends(&mut self, count: usize) {
        self.cache.get_bulk_of_len(&mut self.batch, count, MESSAGE_BYTES);
        assert!(self.qp.post_send(&mut self.batch).posted == count, "there is room");
    }

    fn post_receives(&mut self, count: usize) {
        self.cache.get_bulk_unreset(&mut self.batch, count);
        assert!(self.qp.post_recv(&mut self.batch).posted == count, "the pool covers the queue");
    }

    /// Gives the messages that came; posts as many receives again once a burst is owed.
    fn poll_lists(&mut self, burst: usize) -> usize {
        self.cq.poll(&mut self.completions);
        let mut messages = 0;
        let mut rest = self.completions.as_slice();
        while let Some(first) = rest.first() {
            let count = match first.kind() {
                WrKind::Recv => {
                    let count = self.qp.recv_run(rest, &mut self.batch);
                    assert!(count > 0, "{first:?}");
                    assert!(self.batch.iter().all(|packet| packet.len() == MESSAGE_BYTES));
                    self.cache.put_bulk(&mut self.batch);
                    messages += count;
                    count
                }
                _ => sent(&mut self.qp, first, &mut self.freed),
            };
            rest = &rest[count..];
        }
        self.owed += messages;
        if self.owed >= burst {
            let owed = std::mem::take(&mut self.owed);
            self.post_receives(owed);
        }
        messages
    }

    fn post_send(&mut self) {
        let packet = self.cache.get_of_len(MESSAGE_BYTES).expect("a packet");
        assert!(self.qp.post_send_one(packet).is_ok(), "there is room");
    }

    /// As [`Endpoint::poll_lists`], a packet at a time: none is owed longer than its message is looked at.
    #[inline(always)]
    fn poll(&mut self) -> usize {
        self.cq.poll(&mut self.completions);
        let mut messages = 0;
        for completion in &self.completions {
            if completion.kind() == WrKind::Recv {
                let packet = self.qp.recv_done(completion).expect("a receive of ours");
                assert!(packet.len() == MESSAGE_BYTES);
                self.cache.put(packet);
                let packet = self.cache.get_unreset().expect("a packet");
                assert!(self.qp.post_recv_one(packet).is_ok(), "the pool covers the queue");
                messages += 1;
            } else {
                sent(&mut self.qp, completion, &mut self.freed);
            }
        }
        messages
    }
}

/// Takes the completion of sends, all of them inline, and gives 1, its own.
#[inline(always)]
fn sent(qp: &mut QueuePair, completion: &Completion, freed: &mut Batch) -> usize {
    assert!(completion.is_ok(), "{completion:?}");
    qp.send_done(completion, freed).expect("a send of ours");
    1
}
