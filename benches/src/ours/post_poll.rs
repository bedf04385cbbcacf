//! The verbs work that callgrind counts: messages from one queue pair to another in one thread,
//! each sent inline, received, and its receive posted again.
//!
//! The same steps as the program of `rivals/verbs.c`, with the verbs crate: one connection, buffers
//! of a pool, the status and the length of every message checked. Unlike C it can also post a
//! single packet that is not in a list.

use verbline::verbs::WrKind;

use super::endpoint::{Endpoint, sent};
use super::rc::{Spec, pair};

const MESSAGE_BYTES: usize = 64;
/// The number of posted receives.
const DEPTH: usize = 64;

/// Sends `lists` lists of `burst` messages; a single message is posted as a packet.
pub fn post_and_poll(lists: u64, burst: usize) {
    let [near, far] = pair(&Spec { depth_wr: DEPTH as u32, ..Spec::new(MESSAGE_BYTES as u32) });
    // A dropped packet looks for its pool among the thread's caches, the last bound first. The
    // sender drops packets.
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
        near.send(MESSAGE_BYTES, |_| ());
        let came = far.poll_each(|qp, cache, packet| {
            assert!(packet.len() == MESSAGE_BYTES);
            cache.put(packet);
            let packet = cache.get_unreset().expect("a packet");
            assert!(qp.post_recv_one(packet).is_ok(), "the pool covers the queue");
        });
        assert!(came == 1, "delivered at once");
        near.poll_each(|_, _, _| ());
    }
}

impl Endpoint {
    fn post_sends(&mut self, count: usize) {
        self.cache.get_bulk_of_len(&mut self.batch, count, MESSAGE_BYTES);
        assert!(self.qp.post_send(&mut self.batch).posted == count, "there is room");
    }

    /// Returns the number of messages received; posts as many receives again once a burst is owed.
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
                _ => {
                    sent(&mut self.qp, first, &mut self.freed);
                    1
                }
            };
            rest = &rest[count..];
        }
        self.owe(messages, burst);
        messages
    }
}
