//! What the threads of the control path wait on: bells that one rings for another, and signs that stay up once they are raised.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

/// An eventfd: rung by one thread, waited on by another, which quiets it before it looks why.
#[derive(Debug)]
pub(crate) struct Bell(OwnedFd);

impl Bell {
    pub(crate) fn new() -> io::Result<Bell> {
        Ok(Bell(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    pub(crate) fn ring(&self) {
        // It fails only when the count is full, and then the bell is ringing already.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    pub(crate) fn quiet(&self) {
        // It fails only when the bell is quiet.
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Something to be heeded by any number of threads, from when it is raised and for good.
#[derive(Debug)]
pub(crate) struct Sign {
    raised: AtomicBool,
    bell: Bell,
}

impl Sign {
    pub(crate) fn new() -> io::Result<Sign> {
        Ok(Sign { raised: AtomicBool::new(false), bell: Bell::new()? })
    }

    pub(crate) fn raise(&self) {
        // Relaxed: the flag carries no data, and who waits is woken by the bell, which nobody quiets.
        self.raised.store(true, Ordering::Relaxed);
        self.bell.ring();
    }

    pub(crate) fn is_raised(&self) -> bool {
        // Relaxed: see `raise`.
        self.raised.load(Ordering::Relaxed)
    }
}

impl AsFd for Sign {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

/// Between two looks where waiting fails.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Waits until one of the descriptors is readable, or until then (`None`: for ever). Says which are.
pub(crate) fn wait<const N: usize>(on: [BorrowedFd<'_>; N], until: Option<Instant>) -> [bool; N] {
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let timeout = left.map(|left| Timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        });
        let mut fds = on.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) => return fds.map(|fd| !fd.revents().is_empty()),
            Err(rustix::io::Errno::INTR) => {}
            // For want of memory, if at all: the caller looks at its reasons and comes again.
            Err(errno) => {
                tracing::debug!(%errno, "cannot wait");
                std::thread::sleep(LOOK_EVERY);
                return [false; N];
            }
        }
    }
}
