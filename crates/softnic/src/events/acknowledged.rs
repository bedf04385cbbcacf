//! Events that were handed out and not yet acknowledged: why destroying an object may have to wait.
//!
//! What it guarantees: [`wait`] returns only when as many events were acknowledged as were handed out. The mutex, the
//! condition and the counter are the fields of `ibv_cq`, `ibv_qp` and `ibv_srq` that libibverbs uses for the same thing,
//! so its own `ibv_ack_cq_events` and `ibv_ack_async_event` work on our objects (libibverbs/device.c, verbs.c).

use std::ffi::c_uint;

/// Pointers to the three fields of one object.
pub(crate) struct Fields {
    mutex: *mut libc::pthread_mutex_t,
    cond: *mut libc::pthread_cond_t,
    completed: *mut u32,
}

impl Fields {
    /// From the object's fields; `M` and `C` are rdma-sys's opaque pthread types.
    pub(crate) fn new<M, C>(mutex: *mut M, cond: *mut C, completed: *mut u32) -> Fields {
        const { assert!(size_of::<M>() == size_of::<libc::pthread_mutex_t>()) };
        const { assert!(size_of::<C>() == size_of::<libc::pthread_cond_t>()) };
        Fields { mutex: mutex.cast(), cond: cond.cast(), completed }
    }

    /// Prepares the fields of a new object.
    ///
    /// # Safety
    /// The pointers are to one object's fields, which nobody else uses yet.
    pub(crate) unsafe fn init(&self) {
        // SAFETY: the caller's.
        unsafe {
            libc::pthread_mutex_init(self.mutex, std::ptr::null());
            libc::pthread_cond_init(self.cond, std::ptr::null());
            *self.completed = 0;
        }
    }

    /// Counts `events` acknowledgements.
    ///
    /// # Safety
    /// The object is alive and its fields were prepared by [`init`](Self::init).
    pub(crate) unsafe fn acknowledge(&self, events: c_uint) {
        // SAFETY: the caller's; the counter is written under the mutex.
        unsafe {
            libc::pthread_mutex_lock(self.mutex);
            *self.completed = (*self.completed).wrapping_add(events);
            libc::pthread_cond_signal(self.cond);
            libc::pthread_mutex_unlock(self.mutex);
        }
    }

    /// Waits until `handed_out` events were acknowledged.
    ///
    /// # Safety
    /// As [`acknowledge`](Self::acknowledge).
    pub(crate) unsafe fn wait(&self, handed_out: u32) {
        // SAFETY: the caller's; the counter is read under the mutex.
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
