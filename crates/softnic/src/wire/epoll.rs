//! A set of descriptors, of which those that are readable are found by one call.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Readable itself when one of them is. One that is closed leaves it.
#[derive(Debug)]
pub(super) struct Epoll(OwnedFd);

/// Descriptors that one call finds at most.
const FOUND_MAX: usize = 16;

impl Epoll {
    pub(super) fn new() -> io::Result<Epoll> {
        // SAFETY: no pointer is passed.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: it was made just now, and nobody else has it.
        Ok(Epoll(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    pub(super) fn add(&self, fd: &impl AsFd) -> io::Result<()> {
        let fd = fd.as_fd().as_raw_fd();
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: fd as u64 };
        // SAFETY: both descriptors are open, and the event is a local.
        let ret = unsafe { libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event) };
        if ret < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Those that are readable, up to a bound. Waits for none.
    pub(super) fn readable(&self) -> impl Iterator<Item = RawFd> + use<> {
        let mut found = [libc::epoll_event { events: 0, u64: 0 }; FOUND_MAX];
        // SAFETY: as many events as it says, of a local.
        let count = unsafe { libc::epoll_wait(self.0.as_raw_fd(), found.as_mut_ptr(), FOUND_MAX as libc::c_int, 0) };
        found.into_iter().take(usize::try_from(count).unwrap_or(0)).map(|event| event.u64 as RawFd)
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
