//! Control: how the owner of a run, the threads that watch its devices, and its lcores communicate.
//! It has a phase that only moves forward, notices to single lcores, and the lcores' progress.
//!
//! A loop that has work touches nothing here but the [`Word`], by one relaxed load. The word's line
//! is written three times in a run, and once for each notice ([`verbline_ring::Notices`], which is
//! model-checked).

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
pub(crate) use verbline_ring::Word;
use verbline_ring::{Notices, Pulse, Waker};

use crate::capture::desk::Desks;
use crate::capture::tap::Tap;
use crate::control::notice::Notice;
use crate::errors::error::EngineError;
use crate::stats::report::FailureReport;
use crate::trace::recorder::Recorder;

/// Where a run is. Only ever moves to a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Phase {
    Running = 0,
    /// Sources have stopped; everything else runs on until nothing is in flight.
    Draining = 1,
    /// Every lcore releases everything and ends.
    Ending = 2,
}

impl Phase {
    #[inline]
    pub(crate) fn of(word: Word) -> Phase {
        match word.phase() {
            0 => Phase::Running,
            1 => Phase::Draining,
            _ => Phase::Ending,
        }
    }
}

/// Notices that an lcore may get before it looks; more of them allocate.
const ROOM: usize = 64;

/// What is known about a run's progress towards its end.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Lcores pinned and in their place.
    pub(crate) ready: usize,
    /// Why others are not.
    pub(crate) refused: Vec<EngineError>,
    /// All are in their place: run.
    pub(crate) go: bool,
    /// Sources that said `Done`.
    pub(crate) sources_done: usize,
    /// Lcores that have released everything.
    pub(crate) ended: usize,
    /// Lcores that left something undelivered as they ended.
    pub(crate) undelivered: usize,
    /// Somebody wants the owner to stop waiting.
    pub(crate) interrupted: bool,
    pub(crate) failures: Vec<FailureReport>,
    /// The places in the plan of the ports that are down for good and end the run, in the order in
    /// which they went.
    pub(crate) lost_ports: Vec<usize>,
}

/// Shared by the thread that owns a run and all its lcores.
#[derive(Debug)]
pub(crate) struct Control {
    /// The phase, and what each lcore has not looked into yet.
    notices: Notices<Notice>,
    /// One an lcore, beaten while the run drains.
    pub(crate) pulses: Vec<CachePadded<Pulse>>,
    /// One an lcore, to end its sleep.
    wakers: Vec<Waker>,
    /// Where captures and traces reach the lcores.
    pub(crate) captures: Desks<Tap>,
    pub(crate) traces: Desks<Recorder>,
    progress: Mutex<Progress>,
    changed: Condvar,
}

/// Where notices for one lcore are posted.
#[derive(Clone, Debug)]
pub(crate) struct LcoreInbox {
    pub(crate) control: Arc<Control>,
    /// The lcore's place in the plan.
    pub(crate) lcore: usize,
}

impl LcoreInbox {
    /// Posts a notice, which the lcore reads at its next turn.
    pub(crate) fn post(&self, notice: Notice) {
        self.control.notify(self.lcore, notice);
    }
}

impl Control {
    pub(crate) fn new(wakers: Vec<Waker>) -> Control {
        let pulses = wakers.iter().map(|_| CachePadded::default()).collect();
        Control {
            notices: Notices::new(wakers.len(), ROOM),
            pulses,
            captures: Desks::new(wakers.len()),
            traces: Desks::new(wakers.len()),
            wakers,
            progress: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// What an lcore looks at in every turn. As long as it is the one that it heard last, there is
    /// nothing new. A sleeping lcore is brought to look by its doorbell.
    #[inline]
    pub(crate) fn word(&self) -> Word {
        self.notices.word()
    }

    /// Moves on to `phase` if the run is not there yet, and wakes every lcore.
    pub(crate) fn advance(&self, phase: Phase) {
        self.notices.advance(phase as u8);
        for waker in &self.wakers {
            waker.ring();
        }
    }

    /// Tells one lcore something, and wakes it.
    pub(crate) fn notify(&self, lcore: usize, notice: Notice) {
        self.notices.post([(lcore, notice)]);
        self.wakers[lcore].ring();
    }

    /// Tells several lcores something, each its own. Whatever one of them does about it, e.g. end
    /// the run, the others have their notices by then.
    pub(crate) fn notify_all(&self, notices: Vec<(usize, Notice)>) {
        let lcores: Vec<usize> = notices.iter().map(|(lcore, _)| *lcore).collect();
        self.notices.post(notices);
        for lcore in lcores {
            // Whether it slept is all the same: one that is awake looks at the word.
            self.wakers[lcore].ring();
        }
    }

    /// An empty vector as [`Control::read_notices`] takes it.
    pub(crate) fn inbox() -> Vec<Notice> {
        Vec::with_capacity(ROOM)
    }

    /// What an lcore was told since it last asked, into `notices`, which is empty; and the word
    /// that this is up to.
    pub(crate) fn read_notices(&self, lcore: usize, notices: &mut Vec<Notice>) -> Word {
        self.notices.hear(lcore, notices)
    }

    /// The port at this place in the plan is down for good, and with it the run.
    pub(crate) fn lose_port(&self, place: usize) {
        self.update(|progress| progress.lost_ports.push(place));
    }

    /// The run has failed, and comes to its end.
    pub(crate) fn fail(&self, failure: FailureReport) {
        self.update(|progress| progress.failures.push(failure));
        self.advance(Phase::Draining);
    }

    /// Tells the owner something. Takes a lock: only for what happens once (a start, an end, a
    /// failure).
    pub(crate) fn update(&self, change: impl FnOnce(&mut Progress)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    /// Looks at the progress, or takes something out of it, without waking anybody.
    pub(crate) fn with<T>(&self, look: impl FnOnce(&mut Progress) -> T) -> T {
        look(&mut self.lock())
    }

    /// Waits until `done` says so, or for `timeout`; gives what `read` makes of the progress then.
    pub(crate) fn wait<T>(
        &self,
        timeout: Option<Duration>,
        done: impl Fn(&Progress) -> bool,
        read: impl FnOnce(&Progress) -> T,
    ) -> T {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut progress = self.lock();
        while !done(&progress) {
            match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
                Some(Duration::ZERO) => break,
                Some(left) => {
                    progress = self.changed.wait_timeout(progress, left).unwrap_or_else(|e| e.into_inner()).0;
                }
                None => progress = self.changed.wait(progress).unwrap_or_else(|e| e.into_inner()),
            }
        }
        read(&progress)
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        lock(&self.progress)
    }
}

/// A thread that panicked while it held one of these locks leaves plain figures behind, which are
/// as good as before.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control() -> Control {
        Control::new(vec![verbline_ring::doorbell().unwrap().0, verbline_ring::doorbell().unwrap().0])
    }

    /// A notice posted at any point between reading the word and draining the inbox is delivered.
    #[test]
    fn every_notice_is_heard_once_while_they_come() {
        let control = control();
        const COUNT: usize = 20_000;
        std::thread::scope(|scope| {
            scope.spawn(|| (0..COUNT).for_each(|_| control.notify(1, Notice::CqOverrun)));
            let (mut heard, mut seen, mut notices) = (0, Word::FIRST, Control::inbox());
            let deadline = Instant::now() + Duration::from_secs(20);
            while heard < COUNT {
                // As an lcore does: looks into the box only when the word is another one.
                if control.word() != seen {
                    seen = control.read_notices(1, &mut notices);
                    heard += notices.drain(..).count();
                }
                assert!(Instant::now() < deadline, "{heard} of {COUNT} were heard, and the word is {seen:?}");
            }
        });
    }
}
