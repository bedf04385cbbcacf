//! A bell: one side of a connection waits until the other side rings.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

use crate::errno::{Errno, VerbError};

/// An eventfd: rung by one thread, waited on by another.
#[derive(Debug)]
pub(crate) struct Bell(OwnedFd);

impl Bell {
    pub(crate) fn new() -> Result<Bell, VerbError> {
        let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        eventfd(0, flags)
            .map(Bell)
            .map_err(|errno| VerbError::new("eventfd", "a connection", Errno::new(errno.raw_os_error())))
    }

    pub(crate) fn ring(&self) {
        // The write fails only if the count is full, and then the bell is ringing already.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    pub(crate) fn quiet(&self) {
        // The read fails only if the bell is quiet.
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
