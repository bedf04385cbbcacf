//! Descriptors that the threads of the control path wait on: [`EventFd`], which one thread signals
//! for another; [`StopFlag`], which stays raised; and the flags that stop the threads of a run's
//! connections.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

/// An eventfd(2). One thread signals it; another waits on it, and clears it before it looks for the
/// reason.
#[derive(Debug)]
pub(crate) struct EventFd(OwnedFd);

impl EventFd {
    pub(crate) fn new() -> io::Result<EventFd> {
        Ok(EventFd(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    pub(crate) fn signal(&self) {
        // The write fails only when the count is full, and then the descriptor is readable already.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    pub(crate) fn clear(&self) {
        // The read fails only when nothing was signaled.
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A flag that tells any number of threads to stop. Once raised it stays raised.
#[derive(Debug)]
pub(crate) struct StopFlag {
    raised: AtomicBool,
    event: EventFd,
}

impl StopFlag {
    pub(crate) fn new() -> io::Result<StopFlag> {
        Ok(StopFlag { raised: AtomicBool::new(false), event: EventFd::new()? })
    }

    pub(crate) fn raise(&self) {
        // Relaxed: the flag carries no data, and a waiting thread is woken by the eventfd, which
        // nobody clears.
        self.raised.store(true, Ordering::Relaxed);
        self.event.signal();
    }

    pub(crate) fn is_raised(&self) -> bool {
        // Relaxed: see `raise`.
        self.raised.load(Ordering::Relaxed)
    }
}

impl AsFd for StopFlag {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// The pause after a wait that failed.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Waits until one of the descriptors is readable, or until `until` (`None`: forever). Returns
/// which are readable.
pub(crate) fn wait<const N: usize>(on: [BorrowedFd<'_>; N], until: Option<Instant>) -> [bool; N] {
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        let mut fds = on.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) => return fds.map(|fd| !fd.revents().is_empty()),
            Err(rustix::io::Errno::INTR) => {}
            // poll(2) fails for want of memory, if at all. The caller looks for its reasons and
            // waits again.
            Err(errno) => {
                tracing::debug!(%errno, "cannot wait");
                std::thread::sleep(LOOK_EVERY);
                return [false; N];
            }
        }
    }
}

/// All flags that stop the threads of a run's connections.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionStops {
    connecting: Arc<StopFlag>,
    watching: Arc<StopFlag>,
    /// One per lcore of the plan.
    lcores: Vec<Arc<StopFlag>>,
}

/// The flags that the thread of one port obeys.
#[derive(Clone, Debug)]
pub(crate) struct StopFlags {
    /// Make no more connections.
    pub(crate) connecting: Arc<StopFlag>,
    /// Stop watching connections, and keep them: their owner ends them.
    pub(crate) watching: Arc<StopFlag>,
    /// The port's lcore has ended, as the run has failed: disconnect.
    pub(crate) lcore_ended: Arc<StopFlag>,
}

impl ConnectionStops {
    /// For a plan with this many lcores. `connecting` stopped the first connection attempts.
    pub(crate) fn new(connecting: Arc<StopFlag>, lcores: usize) -> io::Result<ConnectionStops> {
        let flag = || StopFlag::new().map(Arc::new);
        let lcores = (0..lcores).map(|_| flag()).collect::<io::Result<_>>()?;
        Ok(ConnectionStops { connecting, watching: flag()?, lcores })
    }

    /// The flags for a port of the lcore at this index in the plan.
    pub(crate) fn of_lcore(&self, index: usize) -> StopFlags {
        let (connecting, watching) = (Arc::clone(&self.connecting), Arc::clone(&self.watching));
        StopFlags { connecting, watching, lcore_ended: Arc::clone(&self.lcores[index]) }
    }

    pub(crate) fn stop_connecting(&self) {
        self.connecting.raise();
    }

    pub(crate) fn stop_watching(&self) {
        self.connecting.raise();
        self.watching.raise();
    }

    /// The lcore at this index in the plan has ended.
    pub(crate) fn end_lcore(&self, index: usize) {
        self.lcores[index].raise();
    }
}
