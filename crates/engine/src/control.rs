//! How the thread that owns a run and its lcores speak: a phase that only moves forward, and what the lcores tell back.
//!
//! Nothing here is touched by a loop that has work, except for one relaxed load of the phase, a line that is written
//! three times in a run.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use verbline_ring::{Pulse, Waker};

use crate::error::EngineError;
use crate::report::FailureReport;

/// Where a run is. Only ever moves to a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub(crate) enum Phase {
    Running = 0,
    /// Sources have stopped; everything else runs on until nothing is in flight.
    Draining = 1,
    /// Let go of everything and end.
    Ending = 2,
}

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
    /// Lcores that have let go of everything.
    pub(crate) ended: usize,
    /// Somebody wants the owner to stop waiting.
    pub(crate) interrupted: bool,
    pub(crate) failures: Vec<FailureReport>,
}

/// Shared by the thread that owns a run and all its lcores.
#[derive(Debug)]
pub(crate) struct Control {
    phase: CachePadded<AtomicU32>,
    /// One an lcore, beaten while the run drains.
    pub(crate) pulses: Vec<CachePadded<Pulse>>,
    /// One a lcore, to end its sleep.
    wakers: Vec<Waker>,
    progress: Mutex<Progress>,
    changed: Condvar,
}

impl Control {
    pub(crate) fn new(wakers: Vec<Waker>) -> Control {
        let pulses = wakers.iter().map(|_| CachePadded::default()).collect();
        Control {
            phase: CachePadded::new(AtomicU32::new(Phase::Running as u32)),
            pulses,
            wakers,
            progress: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    #[inline]
    pub(crate) fn phase(&self) -> Phase {
        // Relaxed: the phase carries no data; a sleeping lcore is brought to look by its doorbell.
        match self.phase.load(Ordering::Relaxed) {
            0 => Phase::Running,
            1 => Phase::Draining,
            _ => Phase::Ending,
        }
    }

    /// Moves on to `phase` if the run is not there yet, and wakes every lcore.
    pub(crate) fn advance(&self, phase: Phase) {
        // Relaxed: see `phase`. The doorbell's fence comes after it, as after any publishing.
        self.phase.fetch_max(phase as u32, Ordering::Relaxed);
        for waker in &self.wakers {
            waker.ring();
        }
    }

    /// Tells the owner something. Takes a lock: only for what happens once (a start, an end, a failure).
    pub(crate) fn tell(&self, change: impl FnOnce(&mut Progress)) {
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

    /// A thread that panicked while it held the lock leaves plain figures behind, which are as good as before.
    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
