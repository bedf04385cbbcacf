//! The wake sources of an lcore: the channel of its completion queue, and its doorbell, in one
//! ppoll(2).
//!
//! Guarantees: only a full set of armed sources can block. [`Armed`] has one token for each source,
//! and [`WakeSet::arm`] takes the set apart by name, so that a source that is added but not armed
//! does not compile. Events are acknowledged in one call. After [`WakeSet::release`] no source is
//! readable, so that none can make the lcore spin.
//!
//! ppoll rather than epoll: there are at most two descriptors, its time-out has nanoseconds on
//! every kernel, and it runs under valgrind, which counts our instructions.
//!
//! Rings and control both ring the doorbell. So does the thread that reads the devices'
//! asynchronous events, for the lcores that an event concerns ([`crate::control::device_events`]).

use std::io;

#[cfg(not(test))]
use rustix::event::poll;
use rustix::event::{PollFd, PollFlags, Timespec};
use verbline_ring::{ArmedDoorbell, Sleeper};
use verbline_verbs::{ArmedCq, CompletionChannel, CompletionQueue, Completions, Notify};

use crate::idle::sleep::Fired;
#[cfg(test)]
use crate::rig::poll;

/// The completion queue of an lcore that has ports, and the channel by which it wakes.
#[derive(Debug)]
pub(crate) struct CqSource {
    pub(crate) cq: CompletionQueue,
    pub(crate) channel: CompletionChannel,
}

/// All wake sources of one lcore.
#[derive(Debug)]
pub(crate) struct WakeSet {
    /// `None` on an lcore without ports.
    completions: Option<CqSource>,
    doorbell: Sleeper,
}

/// Every wake source of one lcore, armed.
#[must_use = "either block on it or release it"]
#[derive(Debug)]
pub(crate) struct Armed {
    completions: Option<ArmedCq>,
    doorbell: ArmedDoorbell,
}

impl WakeSet {
    pub(crate) fn new(completions: Option<CqSource>, doorbell: Sleeper) -> WakeSet {
        WakeSet { completions, doorbell }
    }

    /// Polls the completion queue, if there is one.
    #[inline]
    pub(crate) fn poll(&mut self, completions: &mut Completions) -> usize {
        match &mut self.completions {
            Some(source) => source.cq.poll(completions),
            None => 0,
        }
    }

    /// Whether the device has refused a poll: the queue is beyond help.
    #[inline]
    pub(crate) fn is_refused(&self) -> bool {
        self.completions.as_ref().is_some_and(|source| source.cq.poll_errors() > 0)
    }

    /// Arms every source. Whatever came before announces nothing: poll everything once more before
    /// blocking.
    pub(crate) fn arm(&mut self) -> io::Result<Armed> {
        let WakeSet { completions, doorbell } = self;
        let completions = match completions {
            Some(source) => Some(source.cq.arm(Notify::Next).map_err(io::Error::other)?),
            None => None,
        };
        Ok(Armed { completions, doorbell: doorbell.arm() })
    }

    /// Blocks until a source fires or the time is up. A signal does not end it.
    pub(crate) fn block(&mut self, armed: Armed, timeout_ns: u64) -> io::Result<(Fired, Armed)> {
        Ok((self.wait(timeout_ns)?, armed))
    }

    /// Ends the armed state: takes and acknowledges what has fired, in one call a source.
    pub(crate) fn release(&mut self, armed: Armed) -> io::Result<()> {
        let Armed { completions, doorbell } = armed;
        self.doorbell.woken(doorbell);
        if let (Some(source), Some(armed)) = (&mut self.completions, completions) {
            source.channel.take_events(armed).map_err(io::Error::other)?;
        }
        Ok(())
    }

    fn wait(&self, timeout_ns: u64) -> io::Result<Fired> {
        let timeout =
            Timespec { tv_sec: (timeout_ns / 1_000_000_000) as i64, tv_nsec: (timeout_ns % 1_000_000_000) as i64 };
        let bell = PollFd::new(&self.doorbell, PollFlags::IN);
        let mut fds = match &self.completions {
            Some(source) => [bell, PollFd::new(&source.channel, PollFlags::IN)],
            // Twice the same: told by the first.
            None => [bell.clone(), bell],
        };
        loop {
            match poll(&mut fds, Some(&timeout)) {
                Ok(_) => return Ok(self.fired(&fds)),
                // Starts the time anew: a sleep may last longer by what has passed, which the
                // safety time-out bounds.
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    fn fired(&self, [bell, channel]: &[PollFd<'_>; 2]) -> Fired {
        if self.completions.is_some() && !channel.revents().is_empty() {
            Fired::Completion
        } else if !bell.revents().is_empty() {
            Fired::Doorbell
        } else {
            Fired::Nothing
        }
    }
}
