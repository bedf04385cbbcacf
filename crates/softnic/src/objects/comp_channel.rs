//! Completion channels: the descriptor on which a thread sleeps until an armed queue has a
//! completion.
//!
//! Guarantees, beside those of [`EventQueue`]: one event for each notification of a queue, and none
//! of a destroyed queue.

use crate::events::acknowledged::HandedOut;
use crate::events::event_queue::EventQueue;
use crate::objects::context::Context;
use crate::objects::{Object, Users};
use rdma_sys::*;
use std::ffi::c_int;

/// `ibv_comp_channel` first, so that a pointer to one is a pointer to the other.
#[repr(C)]
pub(crate) struct Channel {
    raw: ibv_comp_channel,
    queue: EventQueue<Ready>,
    /// The completion queues that use it.
    pub(crate) users: Users,
}

// SAFETY: `raw` is the first field of a `repr(C)` struct.
unsafe impl Object for Channel {
    type Raw = ibv_comp_channel;
}

/// A completion queue that notified, and its count of notifications handed out.
#[derive(Clone, Copy, Debug)]
struct Ready(*mut ibv_cq, *const HandedOut);
// SAFETY: dereferenced only under the queue's lock, under which `forget` takes a completion queue's
// events out before it goes.
unsafe impl Send for Ready {}

impl Channel {
    pub(crate) fn as_ptr(&self) -> *mut ibv_comp_channel {
        (&raw const self.raw).cast_mut()
    }

    /// Adds a notification of `cq`.
    pub(crate) fn push(&self, cq: *mut ibv_cq, handed_out: &HandedOut) {
        self.queue.push(Ready(cq, handed_out));
    }

    /// Drops the events of `cq`, which adds no more; returns the number ever handed out.
    pub(crate) fn forget(&self, cq: *mut ibv_cq, handed_out: &HandedOut) -> u32 {
        self.queue.retain(|ready| ready.0 != cq, || handed_out.value())
    }

    /// `ibv_get_cq_event(3)`; or an `errno`.
    pub(crate) fn next(&self) -> Result<*mut ibv_cq, c_int> {
        self.queue.next(|Ready(cq, handed_out)| {
            // SAFETY: `forget` takes a queue's events out before the queue goes, under the lock
            // that is held here.
            unsafe { &*handed_out }.count();
            cq
        })
    }
}

/// `ibv_create_comp_channel(3)`.
pub(crate) fn create(context: &Context) -> Result<*mut ibv_comp_channel, c_int> {
    let queue = EventQueue::new()?;
    let raw = ibv_comp_channel { context: context.as_ptr(), fd: queue.fd(), refcnt: 0 };
    context.users.adopt();
    Ok(Channel { raw, queue, users: Users::default() }.into_raw())
}

/// `ibv_destroy_comp_channel(3)`, up to freeing it. `EBUSY` while a completion queue uses it.
pub(crate) fn retire(channel: &Channel) -> Result<(), c_int> {
    channel.users.gone()?;
    // SAFETY: a context outlives its objects: `context::retire` refuses while there are any.
    unsafe { Context::from_raw(channel.raw.context) }.users.release();
    Ok(())
}
