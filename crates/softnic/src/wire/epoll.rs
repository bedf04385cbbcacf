//! A set of descriptors: one call finds the readable ones.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// An epoll instance, readable itself when one of its descriptors is. A closed descriptor leaves
/// it.
#[derive(Debug)]
pub(super) struct Epoll(OwnedFd);

/// The most descriptors that one call finds.
const FOUND_MAX: usize = 16;

impl Epoll {
    pub(super) fn new() -> io::Result<Epoll> {
        // SAFETY: no pointer is passed.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: made just above, and nobody else has it.
        Ok(Epoll(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    pub(super) fn add(&self, fd: &impl AsFd) -> io::Result<()> {
        let fd = fd.as_fd().as_raw_fd();
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: fd as u64 };
        // SAFETY: both descriptors are open, and the event is a local.
        let ret = unsafe { libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event) };
        if ret < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// The readable descriptors, up to a bound. Doesn't wait.
    pub(super) fn readable(&self) -> impl Iterator<Item = RawFd> + use<> {
        let mut found = [libc::epoll_event { events: 0, u64: 0 }; FOUND_MAX];
        // SAFETY: a local, and its number of events.
        let count = unsafe { libc::epoll_wait(self.0.as_raw_fd(), found.as_mut_ptr(), FOUND_MAX as libc::c_int, 0) };
        found.into_iter().take(usize::try_from(count).unwrap_or(0)).map(|event| event.u64 as RawFd)
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
