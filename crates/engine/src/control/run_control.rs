//! Control: communication between the owner of a run, the threads that watch its devices, and its
//! lcores. It has a phase that only moves forward, notices to single lcores, and the lcores'
//! progress.
//!
//! A loop that has work touches nothing here but the [`Word`], by one relaxed load. The word's line
//! is written three times in a run, and once for each notice ([`verbline_ring::Notices`], which is
//! model-checked).

use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use verbline_ring::{Notices, Pulse, Waker};

use crate::capture::desk::Desks;
use crate::capture::tap::Tap;
use crate::control::event_fd::ConnectionStops;
use crate::control::notice::Notice;
use crate::errors::error::EngineError;
use crate::errors::guarded::lock;
use crate::stats::report::FailureReport;
use crate::trace::recorder::Recorder;

pub(crate) use verbline_ring::Word;

/// The phase of a run. Only ever moves to a later one.
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

/// The room for notices that an lcore has not read yet; more of them allocate.
const ROOM: usize = 64;

/// A run's progress towards its end.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Lcores pinned and registered.
    pub(crate) ready: usize,
    /// The errors of lcores that are not.
    pub(crate) refused: Vec<EngineError>,
    /// All lcores are ready: run.
    pub(crate) go: bool,
    /// Sources that said `Done`.
    pub(crate) sources_done: usize,
    /// Lcores that have released all their resources.
    pub(crate) ended: usize,
    /// Lcores that had packets undelivered as their drain ended.
    pub(crate) undelivered: usize,
    /// Lcores that left packets which came after the end of their drain, or after all was quiet, or
    /// that had sent such packets and not seen their completions.
    pub(crate) left_late: usize,
    /// The owner is to stop waiting.
    pub(crate) interrupted: bool,
    pub(crate) failures: Vec<FailureReport>,
    /// The indices in the plan of the ports that are down for good and end the run, in the order of
    /// their loss.
    pub(crate) lost_ports: Vec<usize>,
}

impl Progress {
    /// Whether nothing was on its way as the run ended. `is_quiet`: the owner found all lcores
    /// quiet before.
    pub(crate) fn was_drained(&self, is_quiet: bool) -> bool {
        (is_quiet || self.undelivered == 0 && self.failures.is_empty()) && self.left_late == 0
    }
}

/// Shared by the thread that owns a run and all its lcores.
#[derive(Debug)]
pub(crate) struct Control {
    /// The phase, and the notices that each lcore has not read yet.
    notices: Notices<Notice>,
    /// One per lcore, beaten while the run drains.
    pub(crate) pulses: Vec<CachePadded<Pulse>>,
    /// One per lcore, to end its sleep.
    wakers: Vec<Waker>,
    /// The hand-over of captures and traces to the lcores.
    pub(crate) captures: Desks<Tap>,
    pub(crate) traces: Desks<Recorder>,
    /// Set once the run has connections by address.
    connections: OnceLock<ConnectionStops>,
    progress: Mutex<Progress>,
    changed: Condvar,
}

/// The inbox of one lcore, for notices.
#[derive(Clone, Debug)]
pub(crate) struct LcoreInbox {
    pub(crate) control: Arc<Control>,
    /// The lcore's index in the plan.
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
            connections: OnceLock::new(),
            progress: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// The word that an lcore reads in every turn. While it equals the last one, there is nothing
    /// new. A sleeping lcore is brought to read it by its doorbell.
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

    /// Posts a notice to one lcore, and wakes it.
    pub(crate) fn notify(&self, lcore: usize, notice: Notice) {
        self.notices.post([(lcore, notice)]);
        self.wakers[lcore].ring();
    }

    /// Posts several notices, each to one lcore. Whatever an lcore does about its notice, e.g. end
    /// the run, the others have theirs by then.
    pub(crate) fn notify_all(&self, notices: Vec<(usize, Notice)>) {
        let lcores: Vec<usize> = notices.iter().map(|(lcore, _)| *lcore).collect();
        self.notices.post(notices);
        for lcore in lcores {
            // It need not have slept: an lcore that is awake reads the word.
            self.wakers[lcore].ring();
        }
    }

    /// An empty vector for [`Control::read_notices`].
    pub(crate) fn inbox() -> Vec<Notice> {
        Vec::with_capacity(ROOM)
    }

    /// Moves an lcore's notices since its last call into `notices`, which is empty; returns the
    /// word up to which they were posted.
    pub(crate) fn read_notices(&self, lcore: usize, notices: &mut Vec<Notice>) -> Word {
        self.notices.hear(lcore, notices)
    }

    /// Sets the flags of the run's connections, which a failure raises.
    pub(crate) fn set_connections(&self, stops: &ConnectionStops) {
        // A run makes its connections once.
        self.connections.get_or_init(|| stops.clone());
    }

    /// Records a failure, ends the run, and logs the failure: once it is known, the run is
    /// stopping. No more connections are made.
    pub(crate) fn fail(&self, failure: FailureReport) {
        self.update(|progress| {
            progress.failures.push(failure.clone());
            self.notices.advance(Phase::Draining as u8);
        });
        if let Some(connections) = self.connections.get() {
            connections.stop_connecting();
        }
        self.advance(Phase::Draining);
        // Last: the log may block, and the run ends all the same.
        tracing::error!(lcore = %failure.lcore, stage = ?failure.stage, "{}", failure.message);
    }

    /// The lcore at this index in the plan has ended. Its connections are disconnected, unless the
    /// owner has taken them ([`StopFlags`](crate::control::event_fd::StopFlags)).
    pub(crate) fn lcore_ended(&self, index: usize) {
        if let Some(connections) = self.connections.get() {
            connections.end_lcore(index);
        }
    }

    /// Updates the progress for the owner. Takes a lock: only for events that happen once (a start,
    /// an end, a failure).
    pub(crate) fn update(&self, change: impl FnOnce(&mut Progress)) {
        change(&mut lock(&self.progress));
        self.changed.notify_all();
    }

    /// Reads or takes part of the progress, without waking any thread.
    pub(crate) fn with<T>(&self, look: impl FnOnce(&mut Progress) -> T) -> T {
        look(&mut lock(&self.progress))
    }

    /// Waits until `done` holds, or for `timeout`; then returns `read` of the progress.
    pub(crate) fn wait<T>(
        &self,
        timeout: Option<Duration>,
        done: impl Fn(&Progress) -> bool,
        read: impl FnOnce(&Progress) -> T,
    ) -> T {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut progress = lock(&self.progress);
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
}

/// An lcore's means to report that one of its stages has failed.
pub(crate) struct Failing {
    control: Arc<Control>,
    lcore: String,
    /// The stages' names, in the order of their calls.
    stages: Box<[String]>,
    has_failed: bool,
}

impl Failing {
    pub(crate) fn new(control: Arc<Control>, lcore: String, stages: Box<[String]>) -> Failing {
        Failing { control, lcore, stages, has_failed: false }
    }

    /// Fails the run, which then drains; the stage at this index has failed.
    #[cold]
    pub(crate) fn fail(&mut self, place: Option<usize>, why: impl Into<String>) {
        if std::mem::replace(&mut self.has_failed, true) {
            return;
        }
        let stage = place.and_then(|place| self.stages.get(place)).cloned();
        let failure = FailureReport { lcore: self.lcore.clone(), stage, panicked: false, message: why.into() };
        self.control.fail(failure);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::log::at_each_log;

    fn control() -> Control {
        Control::new(vec![verbline_ring::doorbell().unwrap().0, verbline_ring::doorbell().unwrap().0])
    }

    /// Regression: a thread that had heard of the failure pushed to an injector, which took the
    /// message and never delivered it.
    #[test]
    fn a_run_whose_failure_is_known_is_stopping() {
        for _ in 0..500 {
            let control = control();
            let has_failed = |progress: &Progress| !progress.failures.is_empty();
            std::thread::scope(|scope| {
                // To wake this one takes a while, in which the other looks.
                scope.spawn(|| control.wait(None, has_failed, |_| ()));
                let looks = scope.spawn(|| {
                    while !control.with(|progress| has_failed(progress)) {
                        std::hint::spin_loop();
                    }
                    Phase::of(control.word())
                });
                control.fail(FailureReport::default());
                assert_eq!(looks.join().unwrap(), Phase::Draining);
            });
        }
    }

    /// Regression: a run whose log blocked did not end, since it was logged first.
    #[test]
    fn a_failure_is_known_before_it_is_logged() {
        let control = Arc::new(control());
        let seen = Arc::clone(&control);
        let look = move |_| (seen.with(|it| it.failures.len()), Phase::of(seen.word()));
        assert_eq!(at_each_log(look, || control.fail(FailureReport::default())), [(1, Phase::Draining)]);
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
                // Like an lcore: reads the inbox only when the word has changed.
                if control.word() != seen {
                    seen = control.read_notices(1, &mut notices);
                    heard += notices.drain(..).count();
                }
                assert!(Instant::now() < deadline, "{heard} of {COUNT} were heard, and the word is {seen:?}");
            }
        });
    }
}
