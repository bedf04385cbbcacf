//! Watching and stopping a run.

use std::sync::Arc;
use std::time::Duration;

use crate::control::Control;
use crate::error::EngineError;
use crate::report::Report;
use crate::runtime::Ended;

#[derive(Debug)]
pub(crate) struct RunningInner {
    pub(crate) control: Arc<Control>,
}

impl RunningInner {
    pub(crate) fn snapshot(&self) -> Report {
        unimplemented!("the lcores follow")
    }

    pub(crate) fn wait(&self, _timeout: Option<Duration>) -> Ended {
        unimplemented!("the lcores follow")
    }

    pub(crate) fn stop(&mut self) -> Result<Report, EngineError> {
        unimplemented!("the lcores follow")
    }
}
