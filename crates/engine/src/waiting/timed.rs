//! A stage with timers, as its node sees it: a stage that wants to be polled when the first of them
//! is due, or when the stage itself wants to be.
//!
//! A stage without timers is not wrapped in this, so that its node knows nothing of timers.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use verbline_mem::Batch;

use crate::api::connection::ConnectionEvent;
use crate::api::guarded::Guarded;
use crate::api::operations::Completed;
use crate::api::outputs::Outputs;
use crate::api::stage::{Next, PortEvent, Stage};
use crate::lcore::node::{Polling, Until};
use crate::waiting::fds::{FdNext, FdReady};
use crate::waiting::wheel::{DueTimer, Wheel};

pub(crate) struct Timed {
    stage: Guarded<dyn Stage>,
    source: bool,
    wheel: Wheel,
    /// The batch that is handed to the stage.
    due: Vec<DueTimer>,
    /// When the stage itself wants to be polled.
    polling: Polling,
    until: Arc<Until>,
}

impl Timed {
    /// Gives `stage` as many timers, handed to it `batch` at a time. The other result is what the
    /// node asks how long the lcore may sleep.
    pub(crate) fn new(stage: Guarded<dyn Stage>, source: bool, timers: u32, batch: usize) -> (Timed, Arc<Until>) {
        let until = Arc::new(Until::default());
        let timed = Timed {
            stage,
            source,
            wheel: Wheel::new(timers),
            due: Vec::with_capacity(batch),
            polling: Polling::EACH_LOOP,
            until: Arc::clone(&until),
        };
        (timed, until)
    }

    /// Calls the stage with its timers in reach. What the stage does may change when it wants to be
    /// polled.
    fn call<T>(&mut self, out: &mut Outputs<'_>, call: impl FnOnce(&mut dyn Stage, &mut Outputs<'_>) -> T) -> T {
        if self.polling != Polling::DONE {
            self.polling = Polling::EACH_LOOP;
        }
        let mut own = out.with_timers(&mut self.wheel);
        let result = call(&mut *self.stage, &mut own);
        out.sent = own.sent;
        result
    }

    /// Hands the stage a batch of what is due. True if there was any.
    fn expire(&mut self, out: &mut Outputs<'_>) -> bool {
        let mut due = std::mem::take(&mut self.due);
        due.clear();
        self.wheel.expire(out.now_ns(), &mut due);
        if !due.is_empty() {
            out.stats.timers_due.add(due.len() as u64);
            self.call(out, |stage, out| stage.timers(&due, out));
        }
        self.due = due;
        !self.due.is_empty()
    }

    /// What to tell the node.
    fn next(&mut self) -> Next {
        if self.source && self.polling == Polling::DONE && self.wheel.armed() == 0 {
            self.wheel.close();
            return Next::Done;
        }
        let due_ns = [self.polling.at(), self.wheel.next_ns()].into_iter().flatten().min();
        self.until.set(due_ns);
        match self.polling {
            Polling::EACH_LOOP => Next::Idle,
            _ => Next::At(due_ns.unwrap_or(u64::MAX)),
        }
    }
}

impl Stage for Timed {
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        self.call(out, |stage, out| stage.process(input, out));
    }

    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        let mut busy = self.expire(out);
        if self.polling.is_due(&out.lcore.ctx.time) {
            let next = self.call(out, |stage, out| stage.poll(out));
            self.polling = Polling::after(next);
            busy |= next == Next::Busy;
        }
        // One batch a turn: what else is due waits until the others had theirs.
        if busy { Next::Busy } else { self.next() }
    }

    fn fd_ready(&mut self, ready: FdReady, out: &mut Outputs<'_>) -> FdNext {
        self.call(out, |stage, out| stage.fd_ready(ready, out))
    }

    fn stop(&mut self, out: &mut Outputs<'_>) {
        if self.source {
            self.wheel.close();
        }
        self.call(out, |stage, out| stage.stop(out));
    }

    fn port_event(&mut self, event: PortEvent, out: &mut Outputs<'_>) {
        self.call(out, |stage, out| stage.port_event(event, out));
    }

    fn connection_event(&mut self, event: ConnectionEvent, out: &mut Outputs<'_>) {
        self.call(out, |stage, out| stage.connection_event(event, out));
    }

    fn operations(&mut self, done: &mut Completed<'_>, out: &mut Outputs<'_>) {
        self.call(out, |stage, out| stage.operations(done, out));
    }
}
