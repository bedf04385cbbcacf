//! The doorbell that wakes the wire's thread.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// An eventfd that wakes the thread.
#[derive(Debug)]
pub(super) struct Doorbell(OwnedFd);

impl Doorbell {
    pub(super) fn new() -> io::Result<Doorbell> {
        // SAFETY: no pointer is passed.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: made just above, and nobody else has it.
        Ok(Doorbell(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    pub(super) fn ring(&self) {
        let one = 1u64;
        // SAFETY: eight bytes of a local. It fails only if the count is full: it rings already.
        unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    /// Whether it was rung since the last call.
    pub(super) fn was_rung(&self) -> bool {
        let mut count = 0u64;
        // SAFETY: eight bytes of a local.
        unsafe { libc::read(self.0.as_raw_fd(), (&raw mut count).cast(), 8) == 8 }
    }
}

impl AsFd for Doorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
