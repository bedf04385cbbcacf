//! Completion channels: the descriptor on which a thread sleeps until an armed queue has a completion.
//!
//! What it guarantees: as [`EventQueue`]; one event for each notification of a queue, and none of a destroyed queue.

use crate::errno;
use crate::events::event_queue::EventQueue;
use crate::objects::context::Context;
use crate::objects::cq::Cq;
use rdma_sys::*;
use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU32, Ordering};

/// `ibv_comp_channel` first, so that a pointer to one is a pointer to the other.
#[repr(C)]
pub(crate) struct Channel {
    raw: UnsafeCell<ibv_comp_channel>,
    queue: EventQueue<Ready>,
    users: AtomicU32,
}

// SAFETY: `raw` is written at creation only; the rest is for sharing.
unsafe impl Sync for Channel {}

/// A completion queue that notified.
#[derive(Clone, Copy, Debug)]
struct Ready(*const Cq);
// SAFETY: followed only under the queue's lock, and purged before the completion queue goes.
unsafe impl Send for Ready {}

impl Channel {
    /// # Safety
    /// `channel` is one that [`create`] gave and [`destroy`] has not taken back.
    pub(crate) unsafe fn from_raw<'a>(channel: *mut ibv_comp_channel) -> &'a Channel {
        // SAFETY: `raw` is first in a `Channel`.
        unsafe { &*channel.cast::<Channel>() }
    }

    /// A completion queue uses it from now on, or no more.
    pub(crate) fn count_user(&self, more: bool) {
        // Relaxed: a count; `destroy` comes after, by contract.
        if more {
            self.users.fetch_add(1, Ordering::Relaxed)
        } else {
            self.users.fetch_sub(1, Ordering::Relaxed)
        };
    }

    /// `cq` notifies.
    pub(crate) fn push(&self, cq: &Cq) {
        self.queue.push(Ready(cq));
    }

    /// Drops the events of `cq`, of which there will be no more; gives how many were ever handed out.
    pub(crate) fn forget(&self, cq: &Cq) -> u32 {
        self.queue.retain(|ready| !std::ptr::eq(ready.0, cq), || cq.comp_handed_out.value())
    }
}

/// `ibv_create_comp_channel(3)`.
///
/// # Safety
/// `context` is open.
pub(crate) unsafe fn create(context: *mut ibv_context) -> *mut ibv_comp_channel {
    let queue = match EventQueue::new() {
        Ok(queue) => queue,
        Err(code) => return errno::null(code),
    };
    let raw = UnsafeCell::new(ibv_comp_channel { context, fd: queue.fd(), refcnt: 0 });
    // SAFETY: the caller's.
    unsafe { Context::from_raw(context) }.adopt();
    Box::into_raw(Box::new(Channel { raw, queue, users: AtomicU32::new(0) })).cast()
}

/// `ibv_destroy_comp_channel(3)`. `EBUSY` while a completion queue uses it.
///
/// # Safety
/// `channel` is alive, and isn't used after success.
pub(crate) unsafe fn destroy(channel: *mut ibv_comp_channel) -> c_int {
    // SAFETY: the caller's.
    let this = unsafe { Channel::from_raw(channel) };
    // Relaxed: see `count_user`.
    if this.users.load(Ordering::Relaxed) != 0 {
        return libc::EBUSY;
    }
    // SAFETY: the caller's: the context outlives the channel; the box is the one that `create` made.
    unsafe {
        Context::from_raw((*this.raw.get()).context).release();
        drop(Box::from_raw(channel.cast::<Channel>()));
    }
    0
}

/// `ibv_get_cq_event(3)`.
///
/// # Safety
/// `channel` is alive, the other pointers are writable.
pub(crate) unsafe fn next(channel: *mut ibv_comp_channel, cq: *mut *mut ibv_cq, cq_context: *mut *mut c_void) -> c_int {
    // SAFETY: the caller's.
    let taken = unsafe { Channel::from_raw(channel) }.queue.next(|ready| {
        // SAFETY: a queue's events are purged before it goes, under the lock that we are called under.
        let ready = unsafe { &*ready.0 };
        ready.comp_handed_out.count();
        (ready.as_ptr(), ready.user_context())
    });
    match taken {
        Ok((ready, context)) => {
            // SAFETY: the caller's.
            unsafe {
                *cq = ready;
                *cq_context = context;
            }
            0
        }
        Err(code) => errno::minus_one(code),
    }
}
