//! What wakes an lcore: its completion queue's channel and its doorbell, on one epoll.
//!
//! Guarantees: only a full set of armed sources can block ([`Armed`] has one token for each, and [`WakeSet::arm`] takes
//! the set apart by name, so that a source that is added and not armed does not compile); events are acknowledged in
//! one call; after [`WakeSet::release`] no source is readable, so that none can make the lcore spin.
//!
//! Rings and control both come by the doorbell. Devices' asynchronous events don't wake lcores: see [`crate::events`].

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{Timespec, epoll};
use verbline_ring::{ArmedDoorbell, Sleeper};
use verbline_verbs::{ArmedCq, CompletionChannel, CompletionQueue, Completions, Notify};

use crate::sleep::Fired;

const COMPLETIONS: u64 = 0;
const DOORBELL: u64 = 1;

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
    epoll: OwnedFd,
}

/// Every wake source of one lcore, armed.
#[must_use = "either block on it or release it"]
#[derive(Debug)]
pub(crate) struct Armed {
    completions: Option<ArmedCq>,
    doorbell: ArmedDoorbell,
}

impl WakeSet {
    /// Puts the sources on one epoll.
    pub(crate) fn new(completions: Option<CqSource>, doorbell: Sleeper) -> io::Result<WakeSet> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        // Level-triggered: what is left unread shows again instead of being lost.
        let readable = epoll::EventFlags::IN;
        if let Some(source) = &completions {
            epoll::add(&epoll, source.channel.as_fd(), epoll::EventData::new_u64(COMPLETIONS), readable)?;
        }
        epoll::add(&epoll, doorbell.as_fd(), epoll::EventData::new_u64(DOORBELL), readable)?;
        let mut set = WakeSet { completions, doorbell, epoll };
        // Says now, and not at the first sleep, if this kernel lacks epoll_pwait2(2).
        set.wait(0)?;
        Ok(set)
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

    /// Arms every source. Whatever came before announces nothing: poll everything once more before blocking.
    pub(crate) fn arm(&mut self) -> io::Result<Armed> {
        let WakeSet { completions, doorbell, epoll: _ } = self;
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

    fn wait(&mut self, timeout_ns: u64) -> io::Result<Fired> {
        let timeout =
            Timespec { tv_sec: (timeout_ns / 1_000_000_000) as i64, tv_nsec: (timeout_ns % 1_000_000_000) as i64 };
        let mut buffer = [MaybeUninit::uninit(); 2];
        loop {
            // epoll_pwait2(2): the timeout has nanoseconds.
            match epoll::wait(&self.epoll, &mut buffer, Some(&timeout)) {
                Ok((events, _)) => return Ok(fired(events)),
                // Starts the time anew: a sleep may last longer by what has passed, which the safety time-out bounds.
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

fn fired(events: &[epoll::Event]) -> Fired {
    let has = |source| events.iter().any(|event| event.data.u64() == source);
    if has(COMPLETIONS) {
        Fired::Completion
    } else if has(DOORBELL) {
        Fired::Doorbell
    } else {
        Fired::Nothing
    }
}
