//! How long anything is waited for.

use crate::check::{Failure, Outcome};
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

/// What must happen has happened by then, even in an emulated guest on a busy machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(10);

/// For what should follow at once from something that was seen, where a device is known to miss it.
pub(crate) const SOON: Duration = Duration::from_secs(1);

/// What must *not* happen is looked for this long after the last thing that could cause it was
/// seen. A device that is right passes whatever the time; a longer look only finds late offenders.
pub(crate) const QUIET: Duration = Duration::from_millis(4);

/// A point in time that a loop gives up at.
pub(crate) struct Deadline {
    what: &'static str,
    limit: Duration,
    end: Instant,
    spins: u32,
}

impl Deadline {
    pub(crate) fn new(what: &'static str) -> Deadline {
        Deadline::within(what, DEADLINE)
    }

    pub(super) fn within(what: &'static str, limit: Duration) -> Deadline {
        Deadline { what, limit, end: Instant::now() + limit, spins: 0 }
    }

    /// Lets others run; fails when the time is over. `seen` tells how far it got.
    pub(crate) fn pause(&mut self, seen: impl FnOnce() -> String) -> Outcome {
        self.spins += 1;
        if self.spins.is_multiple_of(64) {
            std::thread::yield_now();
            if Instant::now() > self.end {
                return Err(Failure::new(format!("{}: not within {:?}; {}", self.what, self.limit, seen())));
            }
        }
        Ok(())
    }
}

/// Whether `fd` becomes readable within `limit`.
pub(super) fn readable(fd: RawFd, limit: Duration) -> bool {
    let mut entry = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let limit_ms = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: one pollfd, as many as told.
    let ready = unsafe { libc::poll(&raw mut entry, 1, limit_ms) };
    ready == 1 && entry.revents & libc::POLLIN != 0
}

/// Makes reads of `fd` return at once.
pub(super) fn set_nonblocking(fd: RawFd, on: bool) -> std::io::Result<()> {
    // SAFETY: fcntl on a descriptor takes no pointers for these commands.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    let flags = if on { flags | libc::O_NONBLOCK } else { flags & !libc::O_NONBLOCK };
    // SAFETY: fcntl with F_SETFL takes an integer and touches no memory.
    if unsafe { libc::fcntl(fd, libc::F_SETFL, flags) } < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}
