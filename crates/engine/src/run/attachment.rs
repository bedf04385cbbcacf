//! The parts of a capture or a trace on a run's lcores: claims, begins and ends them.

use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use crate::capture::desk::Desks;
use crate::control::notice::Notice;
use crate::control::run_control::Control;
use crate::run::observed::Observed;

/// The longest wait for the lcores to hear of the end.
const END_WAIT: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// See the top of this file. Dropping it ends it. It does not keep a run alive.
#[derive(Debug)]
pub(super) struct Attachment<T> {
    control: Arc<Control>,
    desks: fn(&Control) -> &Desks<T>,
    observed: Weak<Observed>,
    /// The lcores that have a part.
    lcores: Vec<usize>,
    has_ended: bool,
}

impl<T> Attachment<T> {
    /// Claims the run; no lcore has a part yet. `None` if there is another one.
    pub(super) fn claim(observed: &Arc<Observed>, desks: fn(&Control) -> &Desks<T>) -> Option<Attachment<T>> {
        let control = Arc::clone(&observed.control);
        let observed = Arc::downgrade(observed);
        desks(&control).claim().then(|| Attachment { control, desks, observed, lcores: Vec::new(), has_ended: false })
    }

    /// Whether the lcore has taken the part left for it last. The lcore's former part is freed.
    pub(super) fn is_taken(&self, lcore: usize) -> bool {
        self.desks().is_taken(lcore)
    }

    /// Begins on these lcores.
    pub(super) fn begin(&mut self, parts: Vec<(usize, T)>) {
        for (lcore, part) in parts {
            self.lcores.push(lcore);
            self.leave(lcore, Some(Box::new(part)));
        }
    }

    /// Whether the run is over.
    pub(super) fn is_over(&self) -> bool {
        self.observed.strong_count() == 0
    }

    /// Ends it: waits until each lcore has heard of it, for a second at most.
    pub(super) fn end(&mut self) {
        if !std::mem::replace(&mut self.has_ended, true) {
            self.lcores.iter().for_each(|lcore| self.leave(*lcore, None));
        }
        let deadline = Instant::now() + END_WAIT;
        let has_heard = |lcore: &usize| self.is_taken(*lcore);
        while !self.is_over() && !self.lcores.iter().all(has_heard) && Instant::now() < deadline {
            thread::sleep(LOOK_EVERY);
        }
    }

    fn leave(&self, lcore: usize, part: Option<Box<T>>) {
        self.desks().leave(lcore, part);
        self.control.notify(lcore, Notice::Watch);
    }

    fn desks(&self) -> &Desks<T> {
        (self.desks)(&self.control)
    }
}

impl<T> Drop for Attachment<T> {
    fn drop(&mut self) {
        self.end();
        self.desks().release();
    }
}
