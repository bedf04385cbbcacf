//! Waits of this module: their deadline, and the bell that ends them.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::error::ConnectionError;
use crate::errno::{Errno, VerbError};

/// A moment to give up at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    start: Instant,
    limit: Duration,
}

impl Deadline {
    pub(super) fn after(limit: Duration) -> Deadline {
        Deadline { start: Instant::now(), limit }
    }

    pub(super) fn left(self) -> Duration {
        self.limit.saturating_sub(self.start.elapsed())
    }

    pub(super) fn left_ms(self) -> i32 {
        // At least 1: 0 means "for ever" to some of rdma_cm's calls.
        i32::try_from(self.left().as_millis()).unwrap_or(i32::MAX).max(1)
    }

    pub(super) fn error(self, what: &'static str) -> ConnectionError {
        ConnectionError::TimedOut { what, after: self.limit }
    }

    /// Waits until the descriptor is readable; false if the deadline passed first.
    pub(super) fn wait(self, fd: BorrowedFd<'_>) -> Result<bool, VerbError> {
        loop {
            let timeout = Timespec::try_from(self.left()).ok();
            match poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], timeout.as_ref()) {
                Ok(0) => return Ok(false),
                Ok(_) => return Ok(true),
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => {
                    return Err(VerbError::new("poll", "a connection's events", Errno::new(errno.raw_os_error())));
                }
            }
        }
    }
}

/// An eventfd: rung by one thread, waited on by another.
#[derive(Debug)]
pub(super) struct Bell(OwnedFd);

impl Bell {
    pub(super) fn new() -> Result<Bell, VerbError> {
        let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        eventfd(0, flags)
            .map(Bell)
            .map_err(|errno| VerbError::new("eventfd", "a connection", Errno::new(errno.raw_os_error())))
    }

    pub(super) fn ring(&self) {
        // The write fails only if the count is full, and then the bell is ringing already.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    pub(super) fn quiet(&self) {
        // The read fails only if the bell is quiet.
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }

    /// Waits until `look` at the state that the bell is for returns a value; `None` if the deadline
    /// passed first.
    pub(super) fn wait<S, T>(
        &self,
        state: &Mutex<S>,
        deadline: Deadline,
        mut look: impl FnMut(&S) -> Option<T>,
    ) -> Result<Option<T>, ConnectionError> {
        loop {
            // Quiet first, then look: the next wait hears a ring in between.
            self.quiet();
            if let Some(found) = look(&lock(state)) {
                return Ok(Some(found));
            }
            if !deadline.wait(self.as_fd())? {
                return Ok(None);
            }
        }
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic while a lock is held leaves no inconsistent state: every change is one assignment or
    // one push.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
