//! Time limits of waiting.

use crate::check::{Failure, Outcome};
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

/// Long enough for any required event, even in an emulated guest on a busy machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(10);

/// For events that should follow at once from one already seen, where a device is known to miss
/// them.
pub(crate) const SOON: Duration = Duration::from_secs(1);

/// Forbidden events are watched for this long after the last event that could cause them. A correct
/// device passes whatever the time; a longer watch only finds late offenders.
pub(crate) const QUIET: Duration = Duration::from_millis(4);

/// The time at which a loop gives up.
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

    /// Yields to other threads; fails when the time is over. `seen` describes the progress so far.
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
    // SAFETY: one pollfd, and the count is 1.
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
