//! Counts events handed out and not yet acknowledged: destroying an object waits for them.
//!
//! Guarantees: [`Fields::wait`] returns only when all events that were handed out are acknowledged.
//! The mutex, the condition and the counter are the fields of `ibv_cq`, `ibv_qp` and `ibv_srq` that
//! libibverbs uses for the same thing, so its own `ibv_ack_cq_events` and `ibv_ack_async_event`
//! work on our objects (libibverbs/device.c, verbs.c).

use rdma_sys::{ibv_cq, ibv_qp, ibv_srq};
use std::ffi::c_uint;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, Ordering};

/// The number of an object's events that were handed out. Changed under the lock of the queue that
/// hands them out.
#[derive(Debug, Default)]
pub(crate) struct HandedOut(AtomicU32);

impl HandedOut {
    pub(crate) fn count(&self) {
        // Relaxed, here and below: under the queue's lock.
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    pub(crate) fn value(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Pointers to the three fields of one object, which is alive for `'a`.
pub(crate) struct Fields<'a> {
    mutex: *mut libc::pthread_mutex_t,
    cond: *mut libc::pthread_cond_t,
    completed: *mut u32,
    object: PhantomData<&'a ()>,
}

macro_rules! fields_of {
    ($($(#[$doc:meta])* $name:ident: $raw:ty, $completed:ident;)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// The object is alive for `'a`. Only this type and libibverbs use the fields.
            pub(crate) unsafe fn $name(raw: *mut $raw) -> Fields<'a> {
                // SAFETY: addresses of fields of a live object: the contract of each function of
                // this macro.
                unsafe { Fields::new(&raw mut (*raw).mutex, &raw mut (*raw).cond, &raw mut (*raw).$completed) }
            }
        )*
    };
}

impl<'a> Fields<'a> {
    fields_of! {
        /// The fields for a queue pair's asynchronous events.
        qp: ibv_qp, events_completed;
        /// The fields for a shared receive queue's asynchronous events.
        srq: ibv_srq, events_completed;
        /// The fields for a completion queue's asynchronous events.
        cq: ibv_cq, async_events_completed;
        /// The fields for a completion queue's notifications.
        notifications: ibv_cq, comp_events_completed;
    }

    /// `M` and `C` are rdma-sys's opaque pthread types.
    fn new<M, C>(mutex: *mut M, cond: *mut C, completed: *mut u32) -> Fields<'a> {
        const { assert!(size_of::<M>() == size_of::<libc::pthread_mutex_t>()) };
        const { assert!(size_of::<C>() == size_of::<libc::pthread_cond_t>()) };
        Fields { mutex: mutex.cast(), cond: cond.cast(), completed, object: PhantomData }
    }

    /// Initialises the fields of a new object, which nobody else has yet.
    pub(crate) fn init(&self) {
        // SAFETY: the fields are valid for `'a`, by the contract of the constructor.
        unsafe {
            libc::pthread_mutex_init(self.mutex, std::ptr::null());
            libc::pthread_cond_init(self.cond, std::ptr::null());
            *self.completed = 0;
        }
    }

    /// Counts `events` acknowledgements.
    pub(crate) fn acknowledge(&self, events: c_uint) {
        // SAFETY: as in `init`; each object's `create` initialises the fields, and the counter is
        // written under the mutex.
        unsafe {
            libc::pthread_mutex_lock(self.mutex);
            *self.completed = (*self.completed).wrapping_add(events);
            libc::pthread_cond_signal(self.cond);
            libc::pthread_mutex_unlock(self.mutex);
        }
    }

    /// Waits until `handed_out` events were acknowledged.
    pub(crate) fn wait(&self, handed_out: u32) {
        // SAFETY: as in `acknowledge`; the counter is read under the mutex.
        unsafe {
            libc::pthread_mutex_lock(self.mutex);
            // Volatile: others change it while we wait without the mutex.
            while self.completed.read_volatile() != handed_out {
                libc::pthread_cond_wait(self.cond, self.mutex);
            }
            libc::pthread_mutex_unlock(self.mutex);
        }
    }
}
