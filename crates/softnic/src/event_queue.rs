//! A queue of events behind a file descriptor: what completion channels and asynchronous events have in common.
//!
//! What it guarantees: the descriptor is readable exactly while the queue isn't empty, both under one lock, so it can be
//! polled, or set to `O_NONBLOCK` by its user. [`EventQueue::next`] blocks on it, or gives `EAGAIN`.

use crate::errno;
use std::collections::VecDeque;
use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// See the [module](self). `T` is one event.
#[derive(Debug)]
pub(crate) struct EventQueue<T> {
    fd: c_int,
    events: Mutex<VecDeque<T>>,
}

impl<T> EventQueue<T> {
    /// An empty queue, or the `errno` of `eventfd(2)`.
    pub(crate) fn new() -> Result<Self, c_int> {
        // SAFETY: no pointer is passed.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if fd < 0 { Err(errno::last()) } else { Ok(EventQueue { fd, events: Mutex::new(VecDeque::new()) }) }
    }

    pub(crate) fn fd(&self) -> c_int {
        self.fd
    }

    /// Adds an event and makes the descriptor readable. A system call only if the queue was empty.
    pub(crate) fn push(&self, event: T) {
        let mut events = self.lock();
        events.push_back(event);
        if events.len() == 1 {
            let one = 1u64;
            // SAFETY: eight bytes of a local. It can't block or fail: the count is 0 while the queue is empty.
            let written = unsafe { libc::write(self.fd, (&raw const one).cast(), 8) };
            debug_assert_eq!(written, 8);
        }
    }

    /// The next event; `handed_out` is called on it under the queue's lock. Waits for one unless the descriptor is
    /// `O_NONBLOCK`. The error is an `errno`.
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

    /// Takes out the events for which `keep` is false, then calls `under_lock` before anybody can take another.
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
        // Poison is impossible to act on: the queue is whole between any two statements above.
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The queue has just shrunk, under its lock.
    fn unreadable_if_empty(&self, events: &VecDeque<T>) {
        if events.is_empty() {
            let mut count = 0u64;
            // SAFETY: eight bytes of a local. It can't block: the count is 1 while the queue isn't empty.
            let read = unsafe { libc::read(self.fd, (&raw mut count).cast(), 8) };
            debug_assert_eq!((read, count), (8, 1));
        }
    }

    fn wait_readable(&self) -> Result<(), c_int> {
        // SAFETY: no pointer is passed.
        if unsafe { libc::fcntl(self.fd, libc::F_GETFL) } & libc::O_NONBLOCK != 0 {
            return Err(libc::EAGAIN);
        }
        let mut poll = libc::pollfd { fd: self.fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd, a local.
        if unsafe { libc::poll(&raw mut poll, 1, -1) } < 0 { Err(errno::last()) } else { Ok(()) }
    }
}

impl<T> Drop for EventQueue<T> {
    fn drop(&mut self) {
        // SAFETY: the descriptor is ours and used no more.
        unsafe { libc::close(self.fd) };
    }
}
