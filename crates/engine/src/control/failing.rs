//! [`Failing`]: how a stage of an lcore ends the run as failed.
//!
//! Guarantee: of each lcore the first failure is kept, however often its stages say so; nothing is
//! allocated and no lock is taken for those behind it.

use std::sync::Arc;

use crate::control::run_control::Control;
use crate::stats::report::FailureReport;

/// What an lcore needs to say that one of its stages has failed.
pub(crate) struct Failing {
    control: Arc<Control>,
    lcore: String,
    /// In the order in which the lcore calls them.
    stages: Box<[String]>,
    has_failed: bool,
}

impl Failing {
    pub(crate) fn new(control: Arc<Control>, lcore: String, stages: Box<[String]>) -> Failing {
        Failing { control, lcore, stages, has_failed: false }
    }

    /// The stage in this place has failed, and with it the run, which drains.
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
