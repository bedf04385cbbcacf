//! Descriptors that the wire's thread waits for: its doorbell, and a set, of which one call finds
//! the readable ones.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// The result of a system call that returns a negative number for an error.
pub(super) fn check(ret: libc::c_int) -> io::Result<libc::c_int> {
    if ret < 0 { Err(io::Error::last_os_error()) } else { Ok(ret) }
}

/// The descriptor that a system call made, if it did.
///
/// # Safety
/// Nobody else has the descriptor.
pub(super) unsafe fn made(fd: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: an open descriptor, by the check, and nobody else's, by the contract.
    check(fd).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// An eventfd that wakes the thread.
#[derive(Debug)]
pub(super) struct Doorbell(OwnedFd);

impl Doorbell {
    pub(super) fn new() -> io::Result<Doorbell> {
        // SAFETY: no pointer is passed, and the descriptor is new.
        unsafe { made(libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK)) }.map(Doorbell)
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

/// An epoll instance, readable itself when one of its descriptors is. A closed descriptor leaves
/// it.
#[derive(Debug)]
pub(super) struct Epoll(OwnedFd);

/// The most descriptors that one call finds.
const FOUND_MAX: usize = 16;

impl Epoll {
    pub(super) fn new() -> io::Result<Epoll> {
        // SAFETY: no pointer is passed, and the descriptor is new.
        unsafe { made(libc::epoll_create1(libc::EPOLL_CLOEXEC)) }.map(Epoll)
    }

    pub(super) fn add(&self, fd: &impl AsFd) -> io::Result<()> {
        let fd = fd.as_fd().as_raw_fd();
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: fd as u64 };
        // SAFETY: both descriptors are open, and the event is a local.
        check(unsafe { libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event) }).map(drop)
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
