//! [`Failing`]: lets a stage of an lcore fail the run.
//!
//! Guarantee: each lcore keeps its first failure, however often its stages report one; later
//! failures allocate nothing and take no lock.

use std::sync::Arc;

use crate::control::run_control::Control;
use crate::stats::report::FailureReport;

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
        tracing::error!(lcore = %failure.lcore, stage = ?failure.stage, "{}", failure.message);
        self.control.fail(failure);
    }
}
