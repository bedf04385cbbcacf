//! A stage with descriptors, as its node sees it: a stage that wants to be polled after a sleep
//! that one of them has ended, and while the lcore is awake as often as it asked for.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use verbline_mem::Batch;

use crate::api::connection::ConnectionEvent;
use crate::api::guarded::Guarded;
use crate::api::outputs::Outputs;
use crate::api::stage::{Next, PortEvent, Stage};
use crate::lcore::node::{Polling, Until};
use crate::stats::clock::Tick;
use crate::waiting::fds::{FdNext, FdReady, Fds};

pub(crate) struct Watching {
    name: String,
    stage: Guarded<dyn Stage>,
    source: bool,
    fds: Fds,
    next_look_ns: Tick,
    /// When the stage itself wants to be polled.
    polling: Polling,
    /// How long the lcore may sleep for the stage itself, where that is not when it wants to be
    /// polled.
    of_stage: Option<Arc<Until>>,
    until: Arc<Until>,
}

impl Watching {
    /// The other result is what the node asks how long the lcore may sleep, and tells of a sleep
    /// that a descriptor has ended.
    pub(crate) fn new(
        name: &str,
        stage: Guarded<dyn Stage>,
        source: bool,
        fds: Fds,
        of_stage: Option<Arc<Until>>,
    ) -> (Watching, Arc<Until>) {
        let until = Arc::new(Until::default());
        let watching = Watching {
            name: name.to_owned(),
            stage,
            source,
            fds,
            next_look_ns: 0,
            polling: Polling::EACH_LOOP,
            of_stage,
            until: Arc::clone(&until),
        };
        (watching, until)
    }

    /// What the stage does may change when it wants to be polled.
    fn revive(&mut self) {
        if self.polling != Polling::DONE {
            self.polling = Polling::EACH_LOOP;
        }
    }

    /// True if a descriptor was ready.
    fn look(&mut self, now_ns: Tick, out: &mut Outputs<'_>) -> bool {
        let Watching { name, stage, fds, .. } = self;
        let mut any = false;
        fds.look(|ready| {
            any = true;
            out.stats.fd_events.add(1);
            if ready.closed {
                out.stats.fds_closed.add(1);
                tracing::warn!(stage = %name, fd = ?ready.fd, "a descriptor was closed or failed: watched no longer");
            }
            stage.fd_ready(ready, out)
        });
        self.next_look_ns = now_ns.saturating_add(self.fds.look_every_ns());
        if any {
            self.revive();
        }
        any
    }

    /// What to tell the node.
    fn next(&mut self) -> Next {
        if self.source && self.polling == Polling::DONE {
            self.fds.unwatch_all();
            return Next::Done;
        }
        let due_ns = match &self.of_stage {
            Some(until) => until.due_ns(),
            None => self.polling.at(),
        };
        // No look is worth to wake up for: what is ready ends the sleep.
        self.until.set(due_ns);
        match self.polling {
            Polling::EACH_LOOP => Next::Idle,
            _ => Next::At(due_ns.unwrap_or(Tick::MAX).min(self.next_look_ns)),
        }
    }
}

impl Stage for Watching {
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        self.revive();
        self.stage.process(input, out);
    }

    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        let now_ns = out.now_ns();
        let woken = self.until.take_woken();
        let mut busy = (woken || self.next_look_ns <= now_ns) && self.look(now_ns, out);
        if self.polling.is_due(&out.lcore.ctx.time) {
            let next = self.stage.poll(out);
            self.polling = Polling::after(next);
            busy |= next == Next::Busy;
        }
        if busy { Next::Busy } else { self.next() }
    }

    fn fd_ready(&mut self, ready: FdReady, out: &mut Outputs<'_>) -> FdNext {
        self.stage.fd_ready(ready, out)
    }

    fn stop(&mut self, out: &mut Outputs<'_>) {
        self.revive();
        self.stage.stop(out);
        if self.source {
            self.fds.unwatch_all();
        }
    }

    fn port_event(&mut self, event: PortEvent, out: &mut Outputs<'_>) {
        self.revive();
        self.stage.port_event(event, out);
    }

    fn connection_event(&mut self, event: ConnectionEvent, out: &mut Outputs<'_>) {
        self.revive();
        self.stage.connection_event(event, out);
    }
}
