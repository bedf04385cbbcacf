//! A stage's descriptors, watched by its lcore: an epoll(7) instance of the stage's own, by which
//! they end a sleep, and the looks at them.
//!
//! Guarantees: a look is one system call per 16 descriptors, and reports each ready one once, so
//! that none starves another. The instance is level-triggered: a descriptor that became ready
//! before a sleep still ends the sleep, and there is nothing to arm. A closed or failed descriptor
//! is reported once more, and then no longer watched.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, epoll};

use crate::stats::clock::Tick;

/// The number of descriptors that one system call looks at.
const AT_ONCE: usize = 16;

/// A descriptor that a stage has its lcore watch, by the order of registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FdId(u32);

/// The events that a descriptor is watched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FdInterest {
    /// Readable.
    Read,
    /// Writable.
    Write,
    /// Either.
    Both,
}

/// A ready descriptor, for [`Stage::fd_ready`](crate::Stage::fd_ready).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FdReady {
    /// The descriptor, as [`Opening::watch_fd`](crate::Opening::watch_fd) returned it.
    pub fd: FdId,
    /// A read would not block; at the end of a stream it reads nothing.
    pub readable: bool,
    /// A write would not block.
    pub writable: bool,
    /// The other end is closed, or the descriptor has failed (POLLHUP, POLLERR). It is no longer
    /// watched: the rest of its data must be read now, or by the stage's own polls.
    pub closed: bool,
}

/// Whether to keep watching a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FdNext {
    /// Keep watching it.
    Watch,
    /// Stop watching it for good, e.g. at the end of a stream, which stays readable for ever.
    Unwatch,
}

#[derive(Debug)]
pub(crate) struct Fds {
    epoll: OwnedFd,
    /// Duplicates of the stage's descriptors, so that none is closed and its number given to
    /// another file while it is watched; `None` once it is no longer watched.
    fds: Vec<Option<(OwnedFd, PollFlags)>>,
    /// The shortest of the requested intervals.
    look_every_ns: Tick,
}

impl Fds {
    pub(crate) fn new() -> io::Result<Fds> {
        Ok(Fds { epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?, fds: Vec::new(), look_every_ns: Tick::MAX })
    }

    pub(crate) fn watch(
        &mut self,
        fd: BorrowedFd<'_>,
        interest: FdInterest,
        look_every: Option<Duration>,
    ) -> io::Result<FdId> {
        use epoll::EventFlags;
        let (flags, polled) = match interest {
            FdInterest::Read => (EventFlags::IN, PollFlags::IN),
            FdInterest::Write => (EventFlags::OUT, PollFlags::OUT),
            FdInterest::Both => (EventFlags::IN | EventFlags::OUT, PollFlags::IN | PollFlags::OUT),
        };
        let id = FdId(self.fds.len() as u32);
        let own = fd.try_clone_to_owned()?;
        epoll::add(&self.epoll, &own, epoll::EventData::new_u64(id.0.into()), flags).map_err(|errno| match errno {
            rustix::io::Errno::PERM => io::Error::new(
                io::ErrorKind::Unsupported,
                "this descriptor is always ready (a regular file or a folder) and can't be watched; read it in `poll`",
            ),
            errno => errno.into(),
        })?;
        self.fds.push(Some((own, polled)));
        let every_ns = look_every.map_or(Tick::MAX, |every| u64::try_from(every.as_nanos()).unwrap_or(Tick::MAX));
        self.look_every_ns = self.look_every_ns.min(every_ns);
        Ok(id)
    }

    pub(crate) fn look_at_least_every(&mut self, every_ns: Tick) {
        self.look_every_ns = self.look_every_ns.min(every_ns);
    }

    pub(crate) fn look_every_ns(&self) -> Tick {
        self.look_every_ns
    }

    /// Looks, and passes each ready descriptor to `ready`.
    pub(crate) fn look(&mut self, mut ready: impl FnMut(FdReady) -> FdNext) {
        for first in (0..self.fds.len()).step_by(AT_ONCE) {
            let found = self.poll(first);
            for (flags, id) in found.into_iter().zip(first as u32..).filter(|(flags, _)| !flags.is_empty()) {
                let closed = flags.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL);
                let event = FdReady {
                    fd: FdId(id),
                    readable: flags.contains(PollFlags::IN),
                    writable: flags.contains(PollFlags::OUT),
                    closed,
                };
                if ready(event) == FdNext::Unwatch || closed {
                    self.unwatch(FdId(id));
                }
            }
        }
    }

    /// Returns the events of [`AT_ONCE`] descriptors, by ppoll(2): some seccomp filters and
    /// valgrind refuse epoll_pwait2(2).
    fn poll(&self, first: usize) -> [PollFlags; AT_ONCE] {
        const NO_WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
        // The instance, with no events, stands in for missing descriptors.
        let mut fds = std::array::from_fn(|at| match self.fds.get(first + at) {
            Some(Some((fd, flags))) => PollFd::new(fd, *flags),
            _ => PollFd::new(&self.epoll, PollFlags::empty()),
        });
        match rustix::event::poll(&mut fds, Some(&NO_WAIT)) {
            Ok(_) => fds.map(|fd| fd.revents()),
            // Out of memory, or a signal: the next look finds the same descriptors ready.
            Err(_) => [PollFlags::empty(); AT_ONCE],
        }
    }

    /// Stops watching all of them.
    pub(crate) fn unwatch_all(&mut self) {
        (0..self.fds.len() as u32).for_each(|id| self.unwatch(FdId(id)));
    }

    fn unwatch(&mut self, fd: FdId) {
        if let Some((own, _)) = self.fds[fd.0 as usize].take() {
            // The instance has held it until now.
            let _ = epoll::delete(&self.epoll, own);
        }
    }
}

impl AsFd for Fds {
    /// Readable while one of the descriptors is ready.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    fn watched(fd: impl AsFd, interest: FdInterest) -> Fds {
        let mut fds = Fds::new().unwrap();
        fds.watch(fd.as_fd(), interest, None).unwrap();
        fds
    }

    /// Whether the instance would end a sleep.
    fn wakes(fds: &Fds) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut [PollFd::new(fds, PollFlags::IN)], Some(&now)).unwrap() > 0
    }

    /// Returns the events of a look: readable, writable, closed.
    fn looked(fds: &mut Fds, next: FdNext) -> Vec<[bool; 3]> {
        let mut told = Vec::new();
        fds.look(|ready| {
            told.push([ready.readable, ready.writable, ready.closed]);
            next
        });
        told
    }

    #[test]
    fn a_descriptor_wakes_and_is_told_of_for_what_it_is_watched_for() {
        let interests = [FdInterest::Read, FdInterest::Write, FdInterest::Both];
        for (interest, [reads, writes]) in interests.into_iter().zip([[true, false], [false, true], [true, true]]) {
            let (mut near, far) = UnixStream::pair().unwrap();
            let mut fds = watched(&far, interest);
            assert_eq!(wakes(&fds), writes, "{interest:?}, nothing to read");
            let told = if writes { vec![[false, true, false]] } else { vec![] };
            assert_eq!(looked(&mut fds, FdNext::Watch), told, "{interest:?}");
            near.write_all(b"x").unwrap();
            assert!(wakes(&fds), "{interest:?}, something to read");
            assert_eq!(looked(&mut fds, FdNext::Watch), [[reads, writes, false]], "{interest:?}");
        }
    }

    #[test]
    fn each_of_more_than_one_call_looks_at_is_told_of_once() {
        let mut pairs: Vec<_> = (0..2 * AT_ONCE + 3).map(|_| UnixStream::pair().unwrap()).collect();
        let mut fds = Fds::new().unwrap();
        let ids = pairs.iter().map(|(_, far)| fds.watch(far.as_fd(), FdInterest::Read, None).unwrap());
        let ids: Vec<_> = ids.collect();
        for ready in [&[1, 15, 16, 32, 34][..], &[20], &(0..ids.len()).collect::<Vec<_>>()] {
            ready.iter().for_each(|at| pairs[*at].0.write_all(b"x").unwrap());
            let mut told = Vec::new();
            fds.look(|ready| {
                told.push(ready.fd);
                FdNext::Watch
            });
            assert_eq!(told, ready.iter().map(|at| ids[*at]).collect::<Vec<_>>());
            ready.iter().for_each(|at| pairs[*at].1.read_exact(&mut [0]).unwrap());
        }
    }

    #[test]
    fn one_that_has_failed_is_watched_no_longer() {
        let (reader, writer) = std::io::pipe().unwrap();
        let mut fds = watched(&writer, FdInterest::Write);
        drop(reader);
        // POLLERR without POLLHUP: poll(2).
        let told = looked(&mut fds, FdNext::Watch);
        assert!(matches!(told[..], [[false, _, true]]), "{told:?}");
        assert!(!wakes(&fds) && looked(&mut fds, FdNext::Watch).is_empty());
    }

    #[test]
    fn one_that_is_unwatched_is_told_of_no_more() {
        let (_near, far) = UnixStream::pair().unwrap();
        let mut fds = watched(&far, FdInterest::Write);
        assert_eq!(looked(&mut fds, FdNext::Unwatch), [[false, true, false]]);
        assert!(!wakes(&fds) && looked(&mut fds, FdNext::Watch).is_empty());
        let mut all = watched(&far, FdInterest::Write);
        all.unwatch_all();
        assert!(!wakes(&all) && looked(&mut all, FdNext::Watch).is_empty());
    }
}
