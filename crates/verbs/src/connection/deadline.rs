//! The deadline of a call of this module.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

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
            let left = self.left();
            let timeout =
                Timespec { tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX), tv_nsec: left.subsec_nanos().into() };
            match poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&timeout)) {
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
