//! The shim that lets loom run the real protocol: atomics, the reference count, the lock, the
//! fences and the event.
//!
//! In a normal build these are the standard library's, [`fence`](crate::fence) and an eventfd.
//! Under `--cfg loom` they are loom's, the event is a mutex and a condition variable, and a model
//! may leave one fence out to show that it is needed.

#[cfg(not(loom))]
pub(crate) use native::{Arc, AtomicU32, AtomicU64, Event, Fences, Mutex, MutexGuard, Ordering};

#[cfg(loom)]
pub(crate) use modelled::{Arc, AtomicU32, AtomicU64, Event, Fences, Mutex, MutexGuard, Ordering};

#[cfg(not(loom))]
mod native {
    use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
    use rustix::io::{Errno, read, retry_on_intr, write};
    use std::io;
    use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
    pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
    pub(crate) use std::sync::{Arc, Mutex, MutexGuard};
    use std::time::Duration;

    /// The two sides' fences. Takes no room; under loom one of them can be missing.
    #[derive(Debug)]
    pub(crate) struct Fences;

    impl Fences {
        pub(crate) fn both() -> Self {
            Self
        }

        #[inline(always)]
        pub(crate) fn light(&self) {
            crate::fence::light();
        }

        pub(crate) fn heavy(&self) {
            crate::fence::heavy();
        }
    }

    /// A counter in the kernel that is readable while it isn't 0: eventfd(2).
    #[derive(Debug)]
    pub(crate) struct Event(OwnedFd);

    impl Event {
        pub(crate) fn new() -> io::Result<Self> {
            Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
        }

        /// Adds 1. Cannot fill the counter: the protocol adds at most one for each sleep.
        pub(crate) fn signal(&self) {
            if let Err(error) = retry_on_intr(|| write(&self.0, &1u64.to_ne_bytes())) {
                panic!(
                    "write to the doorbell's eventfd failed ({error}): its lcore would sleep on; is write(2) allowed?"
                );
            }
        }

        /// Takes the count, leaving 0. Doesn't wait.
        pub(crate) fn take(&self) -> u64 {
            let mut count = [0u8; 8];
            match retry_on_intr(|| read(&self.0, &mut count)) {
                Ok(_) => u64::from_ne_bytes(count),
                Err(Errno::AGAIN) => 0,
                Err(error) => panic!("read of the doorbell's eventfd failed ({error}): is read(2) allowed?"),
            }
        }

        /// Waits until the count isn't 0, the time is over (`None`: no limit) or a signal handler
        /// ran.
        pub(crate) fn wait(&self, timeout: Option<Duration>) -> io::Result<()> {
            // A time too long for the kernel's clock is no limit.
            let timeout = timeout.and_then(|limit| Timespec::try_from(limit).ok());
            match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], timeout.as_ref()) {
                Ok(_) | Err(Errno::INTR) => Ok(()),
                Err(error) => Err(error.into()),
            }
        }
    }

    impl AsFd for Event {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
    }
}

#[cfg(loom)]
mod modelled {
    pub(crate) use loom::sync::Arc;
    use loom::sync::Condvar;
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
    pub(crate) use loom::sync::{Mutex, MutexGuard};
    use std::io;
    use std::time::Duration;

    /// The two sides' fences, of which a model can leave one out.
    #[derive(Debug)]
    pub(crate) struct Fences {
        pub(crate) without_light: bool,
        pub(crate) without_heavy: bool,
    }

    impl Fences {
        pub(crate) fn both() -> Self {
            Self { without_light: false, without_heavy: false }
        }

        pub(crate) fn light(&self) {
            if !self.without_light {
                crate::fence::light();
            }
        }

        pub(crate) fn heavy(&self) {
            if !self.without_heavy {
                crate::fence::heavy();
            }
        }
    }

    /// Stands in for eventfd(2). A wait that nobody ends is a deadlock, which loom reports.
    #[derive(Debug)]
    pub(crate) struct Event {
        count: Mutex<u64>,
        readable: Condvar,
    }

    impl Event {
        pub(crate) fn new() -> io::Result<Self> {
            Ok(Self { count: Mutex::new(0), readable: Condvar::new() })
        }

        pub(crate) fn signal(&self) {
            *self.count.lock().expect("no model panics with the lock held") += 1;
            self.readable.notify_one();
        }

        pub(crate) fn take(&self) -> u64 {
            std::mem::take(&mut *self.count.lock().expect("no model panics with the lock held"))
        }

        /// Waits until the count isn't 0. Loom has no time, so a limit is no limit.
        pub(crate) fn wait(&self, _timeout: Option<Duration>) -> io::Result<()> {
            let mut count = self.count.lock().expect("no model panics with the lock held");
            while *count == 0 {
                count = self.readable.wait(count).expect("no model panics with the lock held");
            }
            Ok(())
        }
    }
}
