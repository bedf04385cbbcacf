//! Descriptors that one thread waits for, some of which may be readable with nothing to read.
//!
//! A device's descriptor is of this kind: its event may be forgotten before it is read, as the
//! queue pair of the event is destroyed. Another kind stays readable for ever, and would keep the
//! thread spinning. So a descriptor that gave nothing rests for a while, which doubles up to
//! [`REST_MAX`], and is then waited for again.
//!
//! Guarantees: no descriptor is given up; one that is readable in vain costs a wake-up per
//! [`REST_MAX`] at most; events that come during a rest are read after it.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};

/// The first rest of a descriptor, and the longest.
const REST_MIN: Duration = Duration::from_millis(1);
const REST_MAX: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Readable {
    epoll: OwnedFd,
    /// By the number of the descriptor.
    rests: Vec<Rest>,
}

#[derive(Clone, Copy, Debug)]
struct Rest {
    /// The length of the next rest.
    next: Duration,
    /// The end of the current rest, until which the descriptor is not waited for.
    until: Option<Instant>,
}

impl Readable {
    pub(crate) fn new<'a>(fds: impl IntoIterator<Item = BorrowedFd<'a>>) -> io::Result<Readable> {
        let mut readable = Readable { epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?, rests: Vec::new() };
        for fd in fds {
            readable.rests.push(Rest { next: REST_MIN, until: None });
            readable.add(readable.rests.len() - 1, fd)?;
        }
        Ok(readable)
    }

    /// Waits until some are readable, for `timeout` at most (`None`: for ever), and returns their
    /// numbers, possibly none. `fd` returns a descriptor whose rest is over, to be watched again.
    pub(crate) fn wait<'a>(
        &mut self,
        timeout: Option<Duration>,
        fd: impl Fn(usize) -> BorrowedFd<'a>,
    ) -> io::Result<Vec<usize>> {
        let now = Instant::now();
        for number in 0..self.rests.len() {
            if self.rests[number].until.is_some_and(|until| until <= now) {
                self.rests[number].until = None;
                if let Err(error) = self.add(number, fd(number)) {
                    tracing::error!(%error, "a device's events cannot be waited for");
                    self.rest(number, now);
                }
            }
        }
        let rests = self.rests.iter().filter_map(|rest| rest.until).map(|until| until.saturating_duration_since(now));
        let timeout = rests.chain(timeout).min().and_then(|left| Timespec::try_from(left).ok());
        let mut buffer = [MaybeUninit::uninit(); 8];
        match epoll::wait(&self.epoll, &mut buffer, timeout.as_ref()) {
            Ok((ready, _)) => Ok(ready.iter().map(|event| event.data.u64() as usize).collect()),
            Err(rustix::io::Errno::INTR) => Ok(Vec::new()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Notes whether a readable descriptor gave anything.
    pub(crate) fn gave(&mut self, number: usize, any: bool, fd: &impl AsFd) {
        if any {
            self.rests[number].next = REST_MIN;
        } else if epoll::delete(&self.epoll, fd.as_fd()).is_ok() {
            self.rest(number, Instant::now());
        }
    }

    fn rest(&mut self, number: usize, now: Instant) {
        let rest = &mut self.rests[number];
        rest.until = Some(now + rest.next);
        rest.next = (rest.next * 2).min(REST_MAX);
    }

    fn add(&self, number: usize, fd: BorrowedFd<'_>) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, epoll::EventData::new_u64(number as u64), epoll::EventFlags::IN)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::event_fd::EventFd;

    fn readable(fds: &[EventFd; 2]) -> Readable {
        Readable::new(fds.iter().map(AsFd::as_fd)).unwrap()
    }

    // Regression: a descriptor that was readable in vain eight times, however many days apart, was
    // no longer watched, and its later events were lost.
    #[test]
    fn what_is_readable_in_vain_is_never_given_up_and_keeps_no_thread_busy() {
        let fds = [(); 2].map(|()| EventFd::new().unwrap());
        let (mut readable, began) = (readable(&fds), Instant::now());
        fds[1].signal();
        let mut in_vain = 0;
        while began.elapsed() < Duration::from_millis(400) {
            for number in readable.wait(Some(Duration::from_millis(5)), |number| fds[number].as_fd()).unwrap() {
                assert_eq!(number, 1);
                in_vain += 1;
                readable.gave(number, false, &fds[number]);
            }
        }
        assert!((4..12).contains(&in_vain), "rests of 1, 2, 4, … ms: {in_vain}");
        // The other one is heard at once meanwhile, and this one again after it has given
        // something.
        fds[0].signal();
        assert_eq!(readable.wait(None, |number| fds[number].as_fd()).unwrap(), [0]);
        fds[0].clear();
        readable.gave(0, true, &fds[0]);
        for _ in 0..3 {
            let heard = (0..9).find_map(|_| readable.wait(None, |number| fds[number].as_fd()).unwrap().pop());
            assert_eq!(heard, Some(1));
            readable.gave(1, true, &fds[1]);
        }
    }
}
