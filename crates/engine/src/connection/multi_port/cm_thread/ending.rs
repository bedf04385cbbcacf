//! Ends the cm thread of a port: it accepts no more connections, and drops the app's values.

use std::os::fd::AsFd;

use rustix::event::epoll;

use super::{CmThread, CmThreadRole};
use crate::errors::guarded::Guarded;
use crate::stats::report::FailureReport;

impl CmThread {
    /// Drops the app's values, while this thread is still waited for.
    pub(super) fn let_go(&mut self) {
        if let Some(Err(sentence)) = self.spec.acceptor.take().map(|acceptor| acceptor.leave()) {
            self.fail(sentence);
        }
        if let CmThreadRole::Connect { data, .. } = &mut self.spec.role
            && let Some(said) = data.take().and_then(Guarded::let_go)
        {
            let name = &self.spec.port.name;
            self.fail(format!("the request data of port.{name} panicked as it was dropped: {said}"));
        }
    }

    /// Accepts no more connections; later requests are refused, since no listener is left.
    pub(super) fn stop_taking(&mut self) {
        if std::mem::take(&mut self.is_taking) {
            // It was added, and is open: this cannot fail.
            let _ = epoll::delete(&self.epoll, self.stop.connecting.as_fd());
            if let CmThreadRole::Listen { listener, .. } = &mut self.spec.role {
                *listener = None;
            }
            if let Some(accept_queue) = &self.spec.accept_queue {
                // Their requests are rejected as they are dropped.
                let waiting = accept_queue.close().len() as u64;
                self.spec.counts.requests.add(waiting);
                self.spec.counts.unanswered.add(waiting);
            }
        }
    }

    /// Ends the run. Open connections stay while the run drains; no more are accepted.
    pub(super) fn fail(&mut self, message: String) {
        tracing::error!(port = %self.spec.port.name, "{message}");
        let lcore = self.spec.port.lcore.clone();
        self.spec.mailbox.control().fail(FailureReport { lcore, stage: None, panicked: false, message });
        self.stop_taking();
    }
}
