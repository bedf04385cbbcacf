//! Completion queues: their parts, arming, creation and destruction. `poll` polls them.
//!
//! Guarantees: after an overrun the rest can be polled, then polling returns -1. `cqe` completions
//! always fit; more may.
//!
//! One thread at a time polls, arms or resizes a queue. Any number of threads add to it.

use crate::events::acknowledged::{Fields, HandedOut};
use crate::events::async_event::Subject;
use crate::objects::comp_channel::Channel;
use crate::objects::context::Context;
use crate::objects::device;
use crate::objects::guards;
use crate::objects::{Object, Users};
use crate::queues::due::Tally;
use crate::queues::pending::StalledQps;
use crossbeam_utils::CachePadded;
use rdma_sys::*;
use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use verbline_sync::consumer::Consumer;
use verbline_sync::guard::Guard;
use verbline_sync::mailbox::{Mailbox, Reader};
use verbline_sync::ring::{self, CqRing};

/// `ibv_cq` first (in `ibv_cq_ex`'s shape), so that a pointer to one is a pointer to the other.
#[repr(C)]
pub(crate) struct Cq {
    raw: UnsafeCell<ibv_cq_ex>,
    channel: Option<NonNull<Channel>>,
    pub(crate) ring: CqRing,
    /// The first mailboxes of `mailboxes` that are or were in use.
    pub(crate) mailboxes_used: AtomicU32,
    /// Each mailbox's queue pair (its number), whose messages come by it; 0 for none.
    pub(crate) owners: [AtomicU32; MAILBOXES],
    pub(crate) polling: CachePadded<Polling>,
    pub(crate) mailboxes: [Mailbox; MAILBOXES],
    /// Queue pairs of this CQ that need progress from its polls.
    pub(crate) stalled: StalledQps,
    pub(crate) comp_handed_out: HandedOut,
    pub(crate) async_handed_out: HandedOut,
    pub(crate) tally: Tally,
    /// The queue pairs that use it.
    pub(crate) users: Users,
}

/// State of the polling thread only.
#[repr(C)]
pub(crate) struct Polling {
    consumer: UnsafeCell<Consumer>,
    pub(crate) guard: Guard,
    readers: UnsafeCell<[Reader; MAILBOXES]>,
}

/// The number of queue pairs of a completion queue that have a mailbox each: the first ones. Every
/// poll looks at the mailboxes in use.
pub(crate) const MAILBOXES: usize = 4;

// SAFETY: `raw` is shared as libibverbs shares it (fields under its own mutex). `polling` is
// reached by `Cq::poller`, which is for one thread at a time. Each mailbox is written by one
// sender, after it knows that the last message was taken (`Sq::all_polled`). The rest is made for
// sharing.
unsafe impl Sync for Cq {}

// `ibv_cq_ex_to_cq` and `ibv_cq_to_cq_ex` of libibverbs/verbs.h are casts: `ibv_cq_ex` begins with
// the fields of `ibv_cq`.
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

// SAFETY: `raw` is the first field of a `repr(C)` struct, and `ibv_cq` first in it.
unsafe impl Object for Cq {
    type Raw = ibv_cq;
}

/// Proof that only this thread polls, arms or resizes the queue, which is alive.
pub(crate) struct Poller<'a> {
    pub(crate) cq: &'a Cq,
    pub(crate) consumer: &'a mut Consumer,
    pub(crate) readers: &'a mut [Reader; MAILBOXES],
}

impl Subject for Cq {
    fn handed_out(&self) -> &HandedOut {
        &self.async_handed_out
    }

    fn acks(&self) -> Fields<'_> {
        // SAFETY: fields of this object.
        unsafe { Fields::cq(self.as_ptr()) }
    }
}

impl Cq {
    /// # Safety
    /// During `'a` no other thread polls, arms or resizes the queue, as for queues of a thread
    /// domain (crate's documentation).
    #[inline(always)]
    pub(crate) unsafe fn poller(&self) -> Poller<'_> {
        // SAFETY: reached from here only, and only by one thread at a time: the contract.
        let (consumer, readers) = unsafe { (&mut *self.polling.consumer.get(), &mut *self.polling.readers.get()) };
        Poller { cq: self, consumer, readers }
    }

    pub(crate) fn as_ptr(&self) -> *mut ibv_cq {
        self.raw.get().cast()
    }

    pub(crate) fn context(&self) -> &Context {
        // SAFETY: written at creation only; the context outlives its objects: `context::retire`
        // refuses while there are any.
        unsafe { Context::from_raw((*self.raw.get()).context) }
    }

    /// The fields for its notifications.
    fn notifications(&self) -> Fields<'_> {
        // SAFETY: fields of this object.
        unsafe { Fields::notifications(self.as_ptr()) }
    }

    fn channel(&self) -> Option<&Channel> {
        // SAFETY: the channel counts the queue and outlives it: `comp_channel::retire` refuses
        // while it has queues.
        self.channel.map(|channel| unsafe { channel.as_ref() })
    }

    /// Gives a mailbox to a queue pair, if one is left. Under the control lock.
    pub(crate) fn attach(&self, qpn: u32) -> Option<&Mailbox> {
        // Relaxed, all: under the lock; a poller that sees it late looks late, and the queue pair
        // is connected before the mailbox has a message.
        let free = self.owners.iter().position(|owner| owner.load(Ordering::Relaxed) == 0)?;
        self.owners[free].store(qpn, Ordering::Relaxed);
        self.mailboxes_used.fetch_max(free as u32 + 1, Ordering::Relaxed);
        Some(&self.mailboxes[free])
    }

    /// Takes the mailbox back. Under the control lock, when no data path can reach the queue pair
    /// any more.
    pub(crate) fn detach(&self, qpn: u32) {
        for owner in self.owners.iter().filter(|owner| owner.load(Ordering::Relaxed) == qpn) {
            // Relaxed: as above.
            owner.store(0, Ordering::Relaxed);
        }
    }

    /// Notifies, after the request for a notification was taken.
    #[cold]
    pub(crate) fn notify(&self) {
        if let Some(channel) = self.channel() {
            channel.push(self.as_ptr(), &self.comp_handed_out);
        }
    }
}

/// `ibv_create_cq(3)`.
pub(crate) fn create(
    context: &Context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: Option<&Channel>,
    comp_vector: c_int,
) -> Result<*mut ibv_cq, c_int> {
    let slots = slots_for(cqe).filter(|_| comp_vector == 0).ok_or(libc::EINVAL)?;
    let (ring, consumer) = CqRing::new(slots);
    // SAFETY: integers, pointers and optional functions, for all of which zero is a value.
    let mut raw: ibv_cq_ex = unsafe { std::mem::zeroed() };
    (raw.context, raw.cq_context, raw.cqe) = (context.as_ptr(), cq_context, (slots / 2) as c_int);
    raw.channel = channel.map_or(std::ptr::null_mut(), Channel::as_ptr);
    let cq = Cq {
        raw: UnsafeCell::new(raw),
        channel: channel.map(NonNull::from),
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
        tally: Tally::new(cqe as u32),
        users: Users::default(),
    }
    .into_raw();
    // SAFETY: made just above.
    let this = unsafe { Cq::from_raw(cq) };
    // Mutex and condition are shared by both counters.
    this.notifications().init();
    if let Some(channel) = channel {
        channel.users.adopt();
    }
    context.users.adopt();
    guards::register(&[&this.polling.guard]);
    Ok(cq)
}

/// Slots so that `cqe` completions of two slots each fit. `None` beyond all sensible sizes.
fn slots_for(cqe: c_int) -> Option<usize> {
    let cqe = u32::try_from(cqe).ok().filter(|cqe| (1..=device::CQE_MAX).contains(cqe))?;
    Some((cqe as usize * 2).next_power_of_two().max(8))
}

impl Poller<'_> {
    /// `ibv_req_notify_cq(3)`.
    pub(crate) fn arm(self, solicited_only: bool) {
        self.consumer.arm(&self.cq.ring, if solicited_only { ring::SOLICITED } else { ring::NEXT });
    }

    /// `ibv_resize_cq(3)`. The queue grows, or stays; `EINVAL` for an invalid size.
    pub(crate) fn resize(self, cqe: c_int) -> Result<(), c_int> {
        let slots = slots_for(cqe).ok_or(libc::EINVAL)?;
        // SAFETY: made with the ring (`create`). Polling keeps no entry between two calls; a
        // producer uses no claim after publishing it.
        unsafe { self.consumer.grow(&self.cq.ring, slots) };
        self.cq.tally.resize(cqe as u32);
        // SAFETY: read by the user only, after this returns.
        unsafe { (*self.cq.raw.get()).cqe = (self.cq.ring.capacity() / 2) as c_int };
        Ok(())
    }
}

/// `ibv_destroy_cq(3)`, up to freeing it. `EBUSY` while a queue pair uses it. Waits until its
/// events are acknowledged.
pub(crate) fn retire(cq: &Cq) -> Result<(), c_int> {
    cq.users.gone()?;
    // Queue pairs that used it are gone; a thread that is still inside a guard with it leaves now.
    guards::quiesce(guards::Taken::Other);
    if let Some(channel) = cq.channel() {
        cq.notifications().wait(channel.forget(cq.as_ptr(), &cq.comp_handed_out));
        channel.users.release();
    }
    cq.context().events.forget(cq);
    guards::unregister(&[&cq.polling.guard]);
    cq.tally.keep();
    cq.context().users.release();
    Ok(())
}
