//! A stage whose outputs lead to ports that carry out operations: what completes is handed to it
//! before it is polled.
//!
//! It stands between the node and the app's stage, so that a node without operations does nothing
//! for them. While operations of the stage are under way it is polled in every turn of its lcore,
//! which may sleep meanwhile: their completions wake it.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;

use verbline_mem::Batch;

use crate::api::connection::ConnectionEvent;
use crate::api::guarded::Guarded;
use crate::api::operations::{Completed, Done};
use crate::api::outputs::Outputs;
use crate::api::stage::{Next, PortEvent, Stage};
use crate::lcore::node::{Polling, Until};
use crate::stats::clock::Tick;
use crate::stats::drop_reason::DropReason;
use crate::waiting::fds::{FdNext, FdReady};

/// A port that the stage may ask for operations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Use {
    /// The sink that gathers for it.
    pub(crate) sink: usize,
    /// The stage's number among the port's users.
    pub(crate) user: u16,
}

pub(crate) struct OperatingStage {
    inner: Guarded<dyn Stage>,
    uses: Box<[Use]>,
    /// What is handed over; empty between calls.
    done: VecDeque<Done>,
    /// When the stage itself wants to be polled.
    polling: Polling,
    /// What tells the node how long the lcore may sleep, unless the stage has one of its own: the
    /// node is polled more often than the stage wants to be.
    until: Option<Arc<Until>>,
    source: bool,
    stopped: bool,
}

impl OperatingStage {
    /// `depth`: the most operations that one of the ports carries out at once.
    pub(crate) fn new(
        inner: Guarded<dyn Stage>,
        uses: Vec<Use>,
        depth: usize,
        source: bool,
        until: Option<Arc<Until>>,
    ) -> OperatingStage {
        OperatingStage {
            inner,
            uses: uses.into(),
            done: VecDeque::with_capacity(depth),
            polling: Polling::EACH_LOOP,
            until,
            source,
            stopped: false,
        }
    }

    /// Hands over what is done, a batch a port. Says whether anything was.
    fn deliver(&mut self, out: &mut Outputs<'_>) -> bool {
        let mut any = false;
        for index in 0..self.uses.len() {
            let Use { sink, user } = self.uses[index];
            let Some((queue, _)) = out.lcore.operations_at(sink).filter(|(queue, _)| queue.has_done(user)) else {
                continue;
            };
            queue.take_done(user, &mut self.done);
            any = true;
            self.inner.operations(&mut Completed { done: &mut self.done }, out);
            let unclaimed = self.done.drain(..).filter_map(|done| done.packet).count();
            if unclaimed > 0 {
                out.stats.drops.add(DropReason::Unclaimed, unclaimed as u64);
            }
        }
        any
    }

    fn wake(&mut self) {
        if self.polling != Polling::DONE {
            self.polling = Polling::EACH_LOOP;
        }
    }

    fn is_under_way(&self, out: &mut Outputs<'_>) -> bool {
        let has_some =
            |used: &Use| out.lcore.operations_at(used.sink).is_some_and(|(queue, _)| queue.under_way(used.user) > 0);
        self.uses.iter().any(has_some)
    }

    /// Whether something was accepted that no port has looked at. Packets that wait keep a lcore
    /// from its short turns; operations have to say so.
    fn has_fresh(&self, out: &mut Outputs<'_>) -> bool {
        self.uses.iter().any(|used| out.lcore.operations_at(used.sink).is_some_and(|(queue, _)| queue.is_fresh))
    }
}

impl Stage for OperatingStage {
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        self.inner.process(input, out);
        // The packets may have changed when the stage wants to be polled.
        self.wake();
    }

    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        if self.deliver(out) {
            self.wake();
        }
        let mut busy = false;
        if !self.stopped && self.polling.is_due(&out.lcore.ctx.time) {
            let next = self.inner.poll(out);
            busy = next == Next::Busy;
            self.polling = Polling::after(next);
        }
        if let Some(until) = &self.until {
            until.set(self.polling.at());
        }
        match self.polling.at() {
            _ if busy || self.has_fresh(out) => Next::Busy,
            _ if self.is_under_way(out) => Next::Idle,
            Some(tick) => Next::At(tick),
            // A source has finished when its operations have.
            None if self.polling == Polling::DONE && self.source => Next::Done,
            None if self.polling == Polling::EACH_LOOP && !self.stopped => Next::Idle,
            None => Next::At(Tick::MAX),
        }
    }

    fn stop(&mut self, out: &mut Outputs<'_>) {
        self.inner.stop(out);
        // As a node does it: a source is not polled from now on. What is done still comes.
        self.stopped = self.source;
    }

    fn port_event(&mut self, event: PortEvent, out: &mut Outputs<'_>) {
        self.inner.port_event(event, out);
        self.wake();
    }

    fn connection_event(&mut self, event: ConnectionEvent, out: &mut Outputs<'_>) {
        self.inner.connection_event(event, out);
        self.wake();
    }

    fn fd_ready(&mut self, ready: FdReady, out: &mut Outputs<'_>) -> FdNext {
        self.wake();
        self.inner.fd_ready(ready, out)
    }
}
