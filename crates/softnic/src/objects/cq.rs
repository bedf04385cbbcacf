//! Completion queues: what one consists of, arming, and its life. How it is polled is in `poll`.
//!
//! What it guarantees: after an overrun the rest can be polled, then polling gives -1. `cqe` completions always fit; more may.
//!
//! One thread at a time polls, arms or resizes a queue. Any number of threads add to it.

use crate::data_path::stall::StalledQps;
use crate::errno;
use crate::events::acknowledged::Fields;
use crate::events::async_event::HandedOut;
use crate::events::channel::Channel;
use crate::objects::context::Context;
use crate::objects::{device, fabric};
use crossbeam_utils::CachePadded;
use rdma_sys::*;
use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::mem::offset_of;
use std::sync::atomic::{AtomicU32, Ordering};
use verbline_sync::guard::Guard;
use verbline_sync::mailbox::{Mailbox, Reader};
use verbline_sync::ring::{self, Consumer, CqRing};

/// `ibv_cq` first (in `ibv_cq_ex`'s shape), so that a pointer to one is a pointer to the other.
#[repr(C)]
pub(crate) struct Cq {
    raw: UnsafeCell<ibv_cq_ex>,
    channel: *const Channel,
    pub(crate) ring: CqRing,
    /// How many of `mailboxes` are or were somebody's.
    pub(crate) mailboxes_used: AtomicU32,
    /// The queue pair (its number) whose messages come by the mailbox; 0 for none.
    pub(crate) owners: [AtomicU32; MAILBOXES],
    pub(crate) polling: CachePadded<Polling>,
    pub(crate) mailboxes: [Mailbox; MAILBOXES],
    /// Send queues of this CQ that have something pending.
    pub(crate) stalled: StalledQps,
    pub(crate) comp_handed_out: HandedOut,
    pub(crate) async_handed_out: HandedOut,
    users: AtomicU32,
}

/// The polling thread's own.
#[repr(C)]
pub(crate) struct Polling {
    pub(crate) consumer: UnsafeCell<Consumer>,
    pub(crate) guard: Guard,
    pub(crate) readers: UnsafeCell<[Reader; MAILBOXES]>,
}

/// The first queue pairs of a completion queue, so many, have a mailbox each in it. Every poll looks at those in use.
pub(crate) const MAILBOXES: usize = 4;

// SAFETY: `raw` is shared as libibverbs shares it (fields under its own mutex); `polling` is used by one thread at a
// time, by contract; the rest is made for sharing.
unsafe impl Sync for Cq {}

// `ibv_cq_ex_to_cq` and `ibv_cq_to_cq_ex` of libibverbs/verbs.h are casts: what `ibv_cq` has is first in `ibv_cq_ex`.
const _: () = {
    assert!(offset_of!(ibv_cq_ex, context) == offset_of!(ibv_cq, context));
    assert!(offset_of!(ibv_cq_ex, channel) == offset_of!(ibv_cq, channel));
    assert!(offset_of!(ibv_cq_ex, cq_context) == offset_of!(ibv_cq, cq_context));
    assert!(offset_of!(ibv_cq_ex, handle) == offset_of!(ibv_cq, handle));
    assert!(offset_of!(ibv_cq_ex, cqe) == offset_of!(ibv_cq, cqe));
    assert!(offset_of!(ibv_cq_ex, mutex) == offset_of!(ibv_cq, mutex));
    assert!(offset_of!(ibv_cq_ex, cond) == offset_of!(ibv_cq, cond));
    assert!(offset_of!(ibv_cq_ex, comp_events_completed) == offset_of!(ibv_cq, comp_events_completed));
    assert!(offset_of!(ibv_cq_ex, async_events_completed) == offset_of!(ibv_cq, async_events_completed));
    assert!(size_of::<ibv_cq_ex>() >= size_of::<ibv_cq>());
};

impl Cq {
    /// # Safety
    /// `cq` is one that [`create`] gave and [`destroy`] has not taken back.
    #[inline(always)]
    pub(crate) unsafe fn from_raw<'a>(cq: *mut ibv_cq) -> &'a Cq {
        // SAFETY: `raw` is first in a `Cq`.
        unsafe { &*cq.cast::<Cq>() }
    }

    pub(crate) fn as_ptr(&self) -> *mut ibv_cq {
        self.raw.get().cast()
    }

    pub(crate) fn context(&self) -> &Context {
        // SAFETY: written at creation only; the context outlives its objects.
        unsafe { Context::from_raw((*self.raw.get()).context) }
    }

    pub(crate) fn user_context(&self) -> *mut c_void {
        // SAFETY: written at creation only.
        unsafe { (*self.raw.get()).cq_context }
    }

    pub(crate) fn async_acks(&self) -> Fields {
        let raw = self.raw.get();
        // SAFETY: addresses of fields of a live object.
        unsafe { Fields::new(&raw mut (*raw).mutex, &raw mut (*raw).cond, &raw mut (*raw).async_events_completed) }
    }

    pub(crate) fn comp_acks(&self) -> Fields {
        let raw = self.raw.get();
        // SAFETY: addresses of fields of a live object.
        unsafe { Fields::new(&raw mut (*raw).mutex, &raw mut (*raw).cond, &raw mut (*raw).comp_events_completed) }
    }

    /// A queue pair uses it from now on, or no more.
    pub(crate) fn count_user(&self, more: bool) {
        // Relaxed: a count; `destroy` comes after, by contract.
        if more {
            self.users.fetch_add(1, Ordering::Relaxed)
        } else {
            self.users.fetch_sub(1, Ordering::Relaxed)
        };
    }

    /// Gives a mailbox to a queue pair, if one is left. Under the control lock.
    pub(crate) fn attach(&self, qpn: u32) -> Option<&Mailbox> {
        // Relaxed, all: under the lock; a poller that sees it late looks late, and before anything is in it the queue pair is
        // connected.
        let free = self.owners.iter().position(|owner| owner.load(Ordering::Relaxed) == 0)?;
        self.owners[free].store(qpn, Ordering::Relaxed);
        self.mailboxes_used.fetch_max(free as u32 + 1, Ordering::Relaxed);
        Some(&self.mailboxes[free])
    }

    /// Takes it back. Under the control lock, when no data path can reach the queue pair any more.
    pub(crate) fn detach(&self, qpn: u32) {
        for owner in self.owners.iter().filter(|owner| owner.load(Ordering::Relaxed) == qpn) {
            // Relaxed: as above.
            owner.store(0, Ordering::Relaxed);
        }
    }

    /// Its request for a notification was taken: here it is.
    #[cold]
    pub(crate) fn notify(&self) {
        // SAFETY: the channel outlives the queue, which is counted as its user.
        if let Some(channel) = unsafe { self.channel.as_ref() } {
            channel.push(self);
        }
    }
}

/// `ibv_req_notify_cq(3)`.
pub(crate) unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: by the verb's contract, which is also that the thread that polls also arms.
    let this = unsafe { Cq::from_raw(cq) };
    // SAFETY: as above.
    let consumer = unsafe { &mut *this.polling.consumer.get() };
    consumer.arm(&this.ring, if solicited_only == 0 { ring::NEXT } else { ring::SOLICITED });
    0
}

/// `ibv_create_cq(3)`.
///
/// # Safety
/// `context` is open; `channel` is null or alive.
pub(crate) unsafe fn create(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> *mut ibv_cq {
    let Some(slots) = slots_for(cqe) else { return errno::null(libc::EINVAL) };
    if comp_vector != 0 {
        return errno::null(libc::EINVAL);
    }
    let (ring, consumer) = CqRing::new(slots);
    // SAFETY: integers, pointers and optional functions, for all of which zero is a value.
    let mut raw: ibv_cq_ex = unsafe { std::mem::zeroed() };
    (raw.context, raw.channel, raw.cq_context, raw.cqe) = (context, channel, cq_context, (slots / 2) as c_int);
    let cq = Box::leak(Box::new(Cq {
        raw: UnsafeCell::new(raw),
        channel: channel.cast_const().cast(),
        ring,
        mailboxes_used: AtomicU32::new(0),
        owners: Default::default(),
        polling: CachePadded::new(Polling {
            consumer: UnsafeCell::new(consumer),
            guard: Guard::new(),
            readers: UnsafeCell::default(),
        }),
        mailboxes: Default::default(),
        stalled: StalledQps::default(),
        comp_handed_out: HandedOut::default(),
        async_handed_out: HandedOut::default(),
        users: AtomicU32::new(0),
    }));
    // SAFETY: its fields, which nobody else uses yet. Mutex and condition are shared by both counters.
    unsafe { cq.comp_acks().init() };
    if !channel.is_null() {
        // SAFETY: the caller's.
        unsafe { Channel::from_raw(channel) }.count_user(true);
    }
    cq.context().adopt();
    fabric::register(&[&cq.polling.guard]);
    cq.as_ptr()
}

/// Slots so that `cqe` completions of two slots each fit. `None` if nobody can want that many.
fn slots_for(cqe: c_int) -> Option<usize> {
    let cqe = u32::try_from(cqe).ok().filter(|cqe| (1..=device::CQE_MAX).contains(cqe))?;
    Some((cqe as usize * 2).next_power_of_two().max(8))
}

/// `ibv_resize_cq(3)`. It grows, or stays; `EINVAL` for a size that can't be.
///
/// # Safety
/// `cq` is alive, and polled by nobody else meanwhile.
pub(crate) unsafe fn resize(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    // SAFETY: the caller's.
    let this = unsafe { Cq::from_raw(cq) };
    let Some(slots) = slots_for(cqe) else { return libc::EINVAL };
    // SAFETY: the caller's: we are the polling thread.
    let consumer = unsafe { &mut *this.polling.consumer.get() };
    // SAFETY: made with it. Polling keeps no entry between two calls; a producer uses no claim after publishing it.
    unsafe { consumer.grow(&this.ring, slots) };
    // SAFETY: read by the user only, after this returns.
    unsafe { (*this.raw.get()).cqe = (this.ring.capacity() / 2) as c_int };
    0
}

/// `ibv_destroy_cq(3)`. `EBUSY` while a queue pair uses it. Waits until its events are acknowledged.
///
/// # Safety
/// `cq` is alive, and isn't used after success.
pub(crate) unsafe fn destroy(cq: *mut ibv_cq) -> c_int {
    // SAFETY: the caller's.
    let this = unsafe { Cq::from_raw(cq) };
    // Relaxed: see `count_user`.
    if this.users.load(Ordering::Relaxed) != 0 {
        return libc::EBUSY;
    }
    // Queue pairs that used it are gone; whoever is still inside a guard with it leaves here.
    fabric::quiesce();
    // SAFETY: the channel outlives the queue, which is counted as its user.
    if let Some(channel) = unsafe { this.channel.as_ref() } {
        let handed_out = channel.forget(this);
        // SAFETY: initialised at creation.
        unsafe { this.comp_acks().wait(handed_out) };
        channel.count_user(false);
    }
    this.context().events.forget_cq(this);
    fabric::unregister(&[&this.polling.guard]);
    this.context().release();
    // SAFETY: the box that `create` leaked.
    drop(unsafe { Box::from_raw(cq.cast::<Cq>()) });
    0
}
