//! A queue of events behind a file descriptor: the common part of completion channels and
//! asynchronous events.
//!
//! Guarantees: the descriptor is readable exactly while the queue isn't empty, both under one lock,
//! so it can be polled, or set to `O_NONBLOCK` by its user. [`EventQueue::next`] blocks on it, or
//! returns `EAGAIN`.
//!
//! The program has the descriptor, and can apply any system call to it. So it is an epoll instance,
//! which cannot be read or written, around an eventfd that stays private: if other code drained or
//! filled the count, a thread would sleep on, or block in a push under the lock.

use crate::errno;
use std::collections::VecDeque;
use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The events that there is room for from the beginning: an lcore that adds one must not allocate.
const USUAL: usize = 16;

/// See the [module](self). `T` is one event.
#[derive(Debug)]
pub(crate) struct EventQueue<T> {
    /// Readable while `ready` is.
    shown: Descriptor,
    /// An eventfd whose count is 1 while there are events.
    ready: Descriptor,
    events: Mutex<VecDeque<T>>,
}

/// A descriptor, closed with its owner.
#[derive(Debug)]
struct Descriptor(c_int);

impl Descriptor {
    /// Wraps the result of a call, or returns its `errno`.
    fn new(fd: c_int) -> Result<Descriptor, c_int> {
        if fd < 0 { Err(errno::last()) } else { Ok(Descriptor(fd)) }
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: the descriptor is ours and is not used again.
        unsafe { libc::close(self.0) };
    }
}

impl<T> EventQueue<T> {
    /// An empty queue, or the `errno` of `eventfd(2)` or `epoll_create1(2)`.
    pub(crate) fn new() -> Result<Self, c_int> {
        // SAFETY: no pointer is passed.
        let ready = Descriptor::new(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        // SAFETY: epoll_create1 takes only flags and touches no memory.
        let shown = Descriptor::new(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        let mut interest = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        // SAFETY: two descriptors of ours, and a local.
        if unsafe { libc::epoll_ctl(shown.0, libc::EPOLL_CTL_ADD, ready.0, &raw mut interest) } < 0 {
            return Err(errno::last());
        }
        Ok(EventQueue { shown, ready, events: Mutex::new(VecDeque::with_capacity(USUAL)) })
    }

    pub(crate) fn fd(&self) -> c_int {
        self.shown.0
    }

    /// Adds an event and makes the descriptor readable. A system call only if the queue was empty.
    pub(crate) fn push(&self, event: T) {
        let mut events = self.lock();
        events.push_back(event);
        if events.len() == 1 {
            let one = 1u64;
            // SAFETY: eight bytes of a local. It can't block, and has no reason to fail: the count
            // is 0 while the queue is empty.
            unsafe { libc::write(self.ready.0, (&raw const one).cast(), 8) };
        }
    }

    /// Takes the next event, and calls `handed_out` on it under the queue's lock. Waits for one
    /// unless the descriptor is `O_NONBLOCK`. The error is an `errno`.
    pub(crate) fn next<R>(&self, mut handed_out: impl FnMut(T) -> R) -> Result<R, c_int> {
        loop {
            {
                let mut events = self.lock();
                if let Some(event) = events.pop_front() {
                    self.unreadable_if_empty(&events);
                    return Ok(handed_out(event));
                }
            }
            self.wait_readable()?;
        }
    }

    /// Removes the events for which `keep` is false, then calls `under_lock` before another thread
    /// can take an event.
    pub(crate) fn retain<R>(&self, keep: impl FnMut(&T) -> bool, under_lock: impl FnOnce() -> R) -> R {
        let mut events = self.lock();
        let before = events.len();
        events.retain(keep);
        if before > 0 {
            self.unreadable_if_empty(&events);
        }
        under_lock()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<T>> {
        // Poison can't be acted upon: the queue is whole between any two statements above.
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Called under the lock, after the queue has shrunk.
    fn unreadable_if_empty(&self, events: &VecDeque<T>) {
        if events.is_empty() {
            let mut count = 0u64;
            // SAFETY: eight bytes of a local. It can't block: the count was 1 while the queue
            // wasn't empty.
            unsafe { libc::read(self.ready.0, (&raw mut count).cast(), 8) };
        }
    }

    fn wait_readable(&self) -> Result<(), c_int> {
        // SAFETY: no pointer is passed.
        if unsafe { libc::fcntl(self.fd(), libc::F_GETFL) } & libc::O_NONBLOCK != 0 {
            return Err(libc::EAGAIN);
        }
        let mut poll = libc::pollfd { fd: self.fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd, a local.
        if unsafe { libc::poll(&raw mut poll, 1, -1) } < 0 { Err(errno::last()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: the first notification of an lcore's completion queue allocated.
    #[test]
    fn the_usual_number_of_events_is_added_without_an_allocation() {
        let queue = EventQueue::new().unwrap();
        let room = queue.lock().capacity();
        (0..USUAL).for_each(|number| queue.push(number));
        assert_eq!(queue.lock().capacity(), room);
    }
}
