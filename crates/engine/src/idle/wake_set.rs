//! The wake sources of an lcore: the channel of its completion queue, its doorbell, and the
//! descriptors that its stages watch, in one ppoll(2).
//!
//! Guarantees: only a full set of armed sources can block. [`Armed`] has one token for each source,
//! and [`WakeSet::arm`] destructures the set by name, so that a source that is added but not armed
//! does not compile. Events are acknowledged in one call. After [`WakeSet::release`] no source of
//! the engine's own is readable, so that none can make the lcore spin; a stage's descriptor stays
//! readable until the stage has read it. A completion that the lcore polls while it is awake does
//! not end its next sleep.
//!
//! ppoll rather than epoll: there are at most three descriptors (all stages' descriptors are behind
//! one), its time-out has nanoseconds on every kernel, and it runs under valgrind, which counts our
//! instructions.
//!
//! Rings and control both ring the doorbell. So does the thread that reads the devices'
//! asynchronous events, for the lcores concerned ([`crate::control::device_events`]).

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

#[cfg(not(test))]
use rustix::event::poll;
use rustix::event::{PollFd, PollFlags, Timespec, epoll};
#[cfg(not(test))]
use rustix::time::{ClockId, clock_gettime};
use verbline_ring::{ArmedDoorbell, Sleeper};
use verbline_verbs::{ArmedCq, CompletionChannel, CompletionQueue, Completions, Notify};

use crate::idle::sleep::Fired;
#[cfg(test)]
use crate::rig::{monotonic_ns, poll};

/// The completion queue of an lcore with ports, and its channel, a wake source.
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
    /// The completions that wake it.
    pub(crate) notify: Notify,
    /// The last sleep took no event of the completion queue, which cannot be disarmed: the next
    /// completion announces itself, even if the lcore is awake to poll it.
    is_left_armed: bool,
    doorbell: Sleeper,
    fds: Option<WatchedFds>,
}

/// All descriptors that the stages of one lcore watch: an epoll(7) instance over the stages' own
/// instances.
#[derive(Debug)]
pub(crate) struct WatchedFds {
    all: OwnedFd,
    /// A descriptor has ended the last block.
    fired: bool,
}

/// Every wake source of one lcore, armed.
#[must_use = "either block on it or release it"]
#[derive(Debug)]
pub(crate) struct Armed {
    completions: Option<ArmedCq>,
    doorbell: ArmedDoorbell,
}

impl WatchedFds {
    /// Combines the instances of some stages.
    pub(crate) fn new(of_stages: &[BorrowedFd<'_>]) -> io::Result<WatchedFds> {
        let all = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (number, fd) in of_stages.iter().enumerate() {
            epoll::add(&all, fd, epoll::EventData::new_u64(number as u64), epoll::EventFlags::IN)?;
        }
        Ok(WatchedFds { all, fired: false })
    }
}

impl WakeSet {
    pub(crate) fn new(completions: Option<CqSource>, doorbell: Sleeper, fds: Option<WatchedFds>) -> WakeSet {
        WakeSet { completions, notify: Notify::Next, is_left_armed: false, doorbell, fds }
    }

    /// Whether a stage's descriptor has ended the last block, perhaps among others.
    pub(crate) fn take_fd_fired(&mut self) -> bool {
        self.fds.as_mut().is_some_and(|fds| std::mem::take(&mut fds.fired))
    }

    /// Polls the completion queue, if there is one.
    #[inline]
    pub(crate) fn poll(&mut self, completions: &mut Completions) -> usize {
        match &mut self.completions {
            Some(source) => source.cq.poll(completions),
            None => 0,
        }
    }

    /// Returns how many completions the queue holds.
    pub(crate) fn depth_wc(&self) -> usize {
        self.completions.as_ref().map_or(0, |source| source.cq.depth_wc() as usize)
    }

    /// Whether the device has refused a poll: the queue is beyond help.
    #[inline]
    pub(crate) fn is_refused(&self) -> bool {
        self.completions.as_ref().is_some_and(|source| source.cq.poll_errors() > 0)
    }

    /// Arms every source. Earlier arrivals are not announced: poll everything once more before
    /// blocking.
    pub(crate) fn arm(&mut self) -> io::Result<Armed> {
        // The stages' descriptors need no arming: they are readable until the stages are told.
        let WakeSet { completions, notify, is_left_armed, doorbell, fds: _ } = self;
        let completions = match completions {
            Some(source) => {
                if std::mem::take(is_left_armed) {
                    // Takes the event of the earlier arming. The arming below counts.
                    let armed = source.cq.arm(Notify::Next).map_err(io::Error::other)?;
                    source.channel.take_events(armed).map_err(io::Error::other)?;
                }
                Some(source.cq.arm(*notify).map_err(io::Error::other)?)
            }
            None => None,
        };
        Ok(Armed { completions, doorbell: doorbell.arm() })
    }

    /// Blocks until a source fires or the time is up. A signal neither ends nor lengthens it.
    pub(crate) fn block(&mut self, armed: Armed, timeout_ns: u64) -> io::Result<(Fired, Armed)> {
        Ok((self.wait(timeout_ns)?, armed))
    }

    /// Ends the armed state: takes and acknowledges fired events, in one call per source.
    pub(crate) fn release(&mut self, armed: Armed) -> io::Result<()> {
        let Armed { completions, doorbell } = armed;
        self.doorbell.woken(doorbell);
        if let (Some(source), Some(armed)) = (&mut self.completions, completions) {
            self.is_left_armed = source.channel.take_events(armed).map_err(io::Error::other)? == 0;
        }
        Ok(())
    }

    fn wait(&mut self, timeout_ns: u64) -> io::Result<Fired> {
        // An absolute time, so that time before a signal is not slept again.
        let until_ns = monotonic_ns().saturating_add(timeout_ns);
        let mut left_ns = timeout_ns;
        let bell = PollFd::new(&self.doorbell, PollFlags::IN);
        let channel = self.completions.as_ref().map(|source| PollFd::new(&source.channel, PollFlags::IN));
        let watched = self.fds.as_ref().map(|fds| PollFd::new(&fds.all, PollFlags::IN));
        // The doorbell stands in for missing sources.
        let (has_channel, asked) = (channel.is_some(), if watched.is_some() { 3 } else { 2 });
        let mut fds = [bell.clone(), channel.unwrap_or(bell.clone()), watched.unwrap_or(bell)];
        loop {
            let timeout =
                Timespec { tv_sec: (left_ns / 1_000_000_000) as i64, tv_nsec: (left_ns % 1_000_000_000) as i64 };
            match poll(&mut fds[..asked], Some(&timeout)) {
                Ok(_) => {
                    let [bell, second, watched] = fds.map(|fd| !fd.revents().is_empty());
                    // It may have rung between the looks at the first and at the second.
                    let bell = bell || second && !has_channel;
                    return Ok(self.fired(bell, second && has_channel, watched));
                }
                // With no time left, the kernel is asked once more: something may have arrived
                // meanwhile.
                Err(rustix::io::Errno::INTR) => left_ns = until_ns.saturating_sub(monotonic_ns()),
                Err(errno) => return Err(refused(errno)),
            }
        }
    }

    fn fired(&mut self, bell: bool, channel: bool, watched: bool) -> Fired {
        let watched = self.fds.as_mut().is_some_and(|fds| {
            fds.fired = watched;
            watched
        });
        if channel {
            Fired::Completion
        } else if bell {
            Fired::Doorbell
        } else if watched {
            Fired::Fd
        } else {
            Fired::Nothing
        }
    }
}

/// Says which call failed, and what may forbid it.
#[cold]
fn refused(errno: rustix::io::Errno) -> io::Error {
    let error = io::Error::from(errno);
    let why = "see what forbids it: a seccomp filter of the container or service, or a limit of descriptors that was \
               lowered during the run (`ulimit -n`)";
    io::Error::new(error.kind(), format!("ppoll(2), by which the lcore sleeps, failed: {error}; {why}"))
}

/// The clock of ppoll(2)'s time-out.
#[cfg(not(test))]
fn monotonic_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;

    use verbline_verbs::{Device, InitSpec, Provider, QpSpec, Transport};

    use super::*;
    use crate::rig;
    use crate::stats::clock::told::Time;

    /// The kernel looks at one descriptor after the other, and the doorbell may ring in between.
    #[test]
    fn a_doorbell_that_rings_as_the_lcore_goes_to_sleep_is_heard_as_one() {
        let (waker, sleeper) = verbline_ring::doorbell().unwrap();
        let mut wakes = WakeSet::new(None, sleeper, Some(WatchedFds::new(&[]).unwrap()));
        let (tell, told) = channel();
        let ringer = thread::spawn(move || {
            for (number, ()) in told.iter().enumerate() {
                (0..number % 2000).for_each(|_| std::hint::spin_loop());
                waker.ring();
            }
        });
        for _ in 0..20_000 {
            let armed = wakes.arm().unwrap();
            tell.send(()).unwrap();
            let (fired, armed) = wakes.block(armed, 1_000_000_000).unwrap();
            assert_eq!(fired, Fired::Doorbell);
            wakes.release(armed).unwrap();
        }
        drop(tell);
        ringer.join().unwrap();
    }

    // Regression: a 20 ms timer under `idle = "event"` fired three times in ten seconds, where a
    // signal came every 5 ms.
    #[test]
    fn signals_make_no_sleep_longer() {
        let (time, (_waker, sleeper)) = (Time::default(), verbline_ring::doorbell().unwrap());
        let mut wakes = WakeSet::new(None, sleeper, None);
        rig::sleep_in(&time);
        for every_ns in [1, 5_000_000, 19_999_999, 20_000_000, 30_000_000] {
            rig::interrupt_every(every_ns);
            let (from_ns, armed) = (time.clock().now_ns(), wakes.arm().unwrap());
            // Limits the signals, for a test's sake.
            let timeout_ns = 20_000_000.min(every_ns * 1000);
            let (fired, armed) = wakes.block(armed, timeout_ns).unwrap();
            wakes.release(armed).unwrap();
            let slept_ns = time.clock().now_ns() - from_ns;
            assert_eq!((fired, slept_ns), (Fired::Nothing, timeout_ns), "a signal every {every_ns} ns");
        }
        rig::interrupt_every(u64::MAX);
    }

    // Regression: an lcore that slept until shortly before an expected completion, and polled it
    // awake, was woken from its next sleep by it: two sleeps per arrival, and a late batch that
    // nobody had sent.
    #[test]
    fn what_was_polled_awake_does_not_end_the_next_sleep() {
        let context = Device::find(Provider::Soft, "soft0").unwrap().open().unwrap();
        let (pd, pool, source) = (context.alloc_pd().unwrap(), rig::pool(64), rig::source(&context));
        pd.register_pool(&pool).unwrap();
        let cache = pool.cache(0);
        let mut qp = pd.create_qp(&QpSpec::new(Transport::Rc, &source.cq)).unwrap();
        qp.to_init(&InitSpec::default()).unwrap();
        qp.to_err().unwrap();
        // In ERR the receive is flushed at once.
        let mut complete = || qp.post_recv_one(cache.get().unwrap()).unwrap();
        let mut wakes = WakeSet::new(Some(source), verbline_ring::doorbell().unwrap().1, None);
        let mut found = Completions::with_capacity(4);
        let sleep = |wakes: &mut WakeSet| {
            let armed = wakes.arm().unwrap();
            let (fired, armed) = wakes.block(armed, 1_000).unwrap();
            wakes.release(armed).unwrap();
            fired
        };
        for _ in 0..3 {
            assert_eq!(sleep(&mut wakes), Fired::Nothing);
            complete();
            assert_eq!(wakes.poll(&mut found), 1);
        }
        // A completion between arming and blocking ends the block.
        let armed = wakes.arm().unwrap();
        complete();
        let (fired, armed) = wakes.block(armed, 1_000_000_000).unwrap();
        assert_eq!((fired, wakes.poll(&mut found)), (Fired::Completion, 1));
        wakes.release(armed).unwrap();
        assert_eq!(sleep(&mut wakes), Fired::Nothing);
    }
}
