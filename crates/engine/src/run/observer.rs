//! Snapshots of a run from another thread, for as long as the run lasts.
//!
//! Guarantees: an observer keeps a run, its memory or its devices alive only while it takes a
//! snapshot; it writes to no memory that an lcore writes.

use std::sync::{Arc, Weak};

use crate::capture::spec::{CaptureError, CaptureSpec};
use crate::control::run_control::Phase;
use crate::run::capture::Capture;
use crate::run::observed::Observed;
use crate::run::trace::Trace;
use crate::stats::report::Report;
use crate::trace::spec::{TraceError, TraceSpec};

/// Takes snapshots of a run from any thread, while its owner waits for it or stops it
/// ([`Running::observer`](crate::Running::observer)).
#[derive(Clone, Debug)]
pub struct Observer {
    observed: Weak<Observed>,
}

impl Observer {
    pub(super) fn new(observed: &Arc<Observed>) -> Observer {
        Observer { observed: Arc::downgrade(observed) }
    }

    /// Like [`Running::snapshot`](crate::Running::snapshot), also while the run is being stopped;
    /// `None` if the run is over. Reads the lcores' counters without stopping or slowing them.
    pub fn snapshot(&self) -> Option<Report> {
        Some(self.observed.upgrade()?.report(false, true))
    }

    /// Begins a capture of the packets that pass the run's ports: copies, which the caller takes. A
    /// slow caller does not slow the lcores: packets that wait for too long are lost to the
    /// capture, and counted. A run has one capture at a time.
    ///
    /// # Errors
    /// The capture can't be made as specified; nothing has begun.
    pub fn capture(&self, spec: &CaptureSpec) -> Result<Capture, CaptureError> {
        Capture::begin(&self.observed.upgrade().ok_or(CaptureError::Over)?, spec)
    }

    /// Begins a trace of the lcores' activity, and of each packet's way: events, which the caller
    /// takes. A slow caller does not slow the lcores: turns that find no room are lost to the
    /// trace, and counted. A run has one trace at a time.
    ///
    /// # Errors
    /// The trace can't be made as specified; nothing has begun.
    pub fn trace(&self, spec: &TraceSpec) -> Result<Trace, TraceError> {
        Trace::begin(&self.observed.upgrade().ok_or(TraceError::Over)?, spec)
    }

    /// Whether the run is over: no more snapshots are possible.
    pub fn is_over(&self) -> bool {
        self.observed.strong_count() == 0
    }

    /// Whether the run is being stopped, or is over.
    pub fn is_stopping(&self) -> bool {
        self.observed.upgrade().is_none_or(|observed| Phase::of(observed.control.word()) != Phase::Running)
    }
}
