//! The operations of a port with many connections: posted in order with the packets sent over the
//! same connection, and returned.
//!
//! Guarantees: every accepted operation comes back to its stage, once, and names its connection;
//! operations under way over a connection that ends come back as failed before the slot is free, so
//! that a later connection there is credited with nothing; a stretch of sends and operations over
//! one connection is one list, whose last work request is signaled.

#[cfg(test)]
mod tests;

use verbline_mem::ConnectionId;
use verbline_verbs::Completion;

use super::{MultiPort, State};
use crate::connection::cm_mailbox::ToCm;
use crate::connection::event::ConnectionChange;
use crate::operations::operation::OperationError;
use crate::operations::queue::OperationQueue;
use crate::ports::context::LcoreContext;
use crate::ports::multi_port::sending::ManySending;
use crate::ports::sink::Sink;
use crate::stats::down_reason::DownReason;
use crate::stats::drop_reason::DropReason;

/// The reason of a connection whose queue pair the device takes nothing for.
const REFUSED: &str = "the device takes nothing";

/// The reason of a connection whose queue pair stopped at a block with a bad signature and can't go
/// on.
const STOPPED: &str = "it stopped, and cannot go on";

impl MultiPort {
    /// Returns the operations, where the port carries out some.
    pub(super) fn operations<'c>(&self, sinks: &'c mut [Sink]) -> Option<&'c mut OperationQueue> {
        self.sending.as_ref()?.half.operations(sinks).map(|(queue, _)| queue)
    }

    /// Posts waiting packets and operations, in order. Returns true if there were any.
    pub(super) fn flush_with_operations(&mut self, ctx: &mut LcoreContext) -> bool {
        let mut any = false;
        while let Some((queue, batch)) =
            self.sending.as_ref().and_then(|sending| sending.half.operations(&mut ctx.sinks))
            && let Some(over) = queue.next_over(batch)
        {
            any = true;
            // Only a packet has none: it goes to any connection.
            let to = if over.is_none() && self.any { self.next_open() } else { over };
            let at = to.filter(|to| to.port() == self.index).and_then(|to| self.open_slot(to));
            self.post_stretch(over, at, ctx);
        }
        self.gauge_sends();
        if let Some(queue) = self.operations(&mut ctx.sinks) {
            queue.is_fresh = false;
        }
        any
    }

    /// Posts the next stretch over one connection, and leaves none of it; if the connection is
    /// gone, its operations come back, and its packets are dropped.
    fn post_stretch(&mut self, over: Option<ConnectionId>, at: Option<usize>, ctx: &mut LcoreContext) {
        let Some(ManySending { half, most_wr, outstanding, .. }) = &mut self.sending else { return };
        let Some((queue, batch)) = half.operations(&mut ctx.sinks) else { return };
        let slot = at.map(|at| (at, &mut self.slots[at]));
        let Some((at, qp)) = slot.and_then(|(at, slot)| Some((at, slot.qp.as_mut()?))) else {
            queue.gather(batch, over, [usize::MAX; 2]);
            let dropped = queue.refuse_listed(OperationError::ConnectionOver);
            return self.stats.drops.add(DropReason::NoConnection, dropped as u64);
        };
        let (before, room) = (qp.sends, half.depth_wr.saturating_sub(qp.sends));
        let room = room.min(most_wr.saturating_sub(*outstanding));
        if let Some(tap) = &mut ctx.tap {
            let stretch = batch.iter().take_while(|packet| packet.connection() == over).count();
            tap.offer(self.index, &batch.as_slice()[..stretch], qp);
        }
        let sends = queue.gather(batch, over, [usize::MAX, room]);
        if let Some(tap) = &mut ctx.tap {
            tap.posted(self.index, sends);
        }
        qp.sends += sends;
        let posted = queue.post(at, qp);
        qp.sends -= posted.dropped;
        *outstanding = *outstanding + qp.sends - before;
        if let Some(stop) = posted.lost {
            tracing::error!(port = %self.name, %stop, "operations cannot be posted");
            self.lose(at, &mut ctx.sinks);
        }
    }

    /// Ends a connection whose queue pair takes nothing.
    fn lose(&mut self, at: usize, sinks: &mut [Sink]) {
        if let Some(connection) = self.slots[at].connection {
            self.mailbox.tell_cm(ToCm::Over { connection, down_reason: DownReason::REFUSED.number() });
            self.begin_close(at, ConnectionChange::Failed { reason: REFUSED }, sinks);
        }
    }

    /// The device has stopped a queue pair at a block with a bad signature: operations that wait
    /// for bad blocks come back, and the rest goes on. A closing connection is being flushed.
    pub(crate) fn sq_stopped(&mut self, qpn: u32, ctx: &mut LcoreContext) {
        let Some(at) = self.by_qpn.slot(qpn).filter(|at| self.slots[*at].state == State::Open) else { return };
        let Some(queue) = self.operations(&mut ctx.sinks) else { return };
        let Some(qp) = &mut self.slots[at].qp else { return };
        if let Err(error) = queue.settle_stop(at, qp) {
            tracing::error!(port = %self.name, %error, "a queue pair that stopped cannot go on");
            self.fail(at, STOPPED, &mut ctx.sinks);
        }
    }

    /// Handles the completion of listed work requests.
    pub(super) fn operated(&mut self, completion: &Completion, sinks: &mut [Sink]) {
        let Some(at) = self.by_qpn.slot(completion.qp_num()) else { return self.stats.stale.add(1) };
        let (Some(qp), Some(sending)) = (&mut self.slots[at].qp, &mut self.sending) else {
            return self.stats.stale.add(1);
        };
        let Some(done) = sending.half.operated(at, qp, completion, sinks, &self.stats) else { return };
        sending.half.hand_back(sinks);
        sending.changed(done.sends, 0);
        self.gauge_sends();
        if !completion.is_ok() {
            self.failed_with(at, completion.status(), sinks);
        }
        self.release_if_drained(at, sinks);
    }

    /// Handles a send completion, which can only be of the marker behind all work of a released
    /// queue pair.
    pub(super) fn marker_done(&mut self, at: usize, completion: &Completion, sinks: &mut [Sink]) {
        let (Some(qp), Some(sending)) = (&mut self.slots[at].qp, &mut self.sending) else { return };
        if sending.half.marker_done(qp, completion, &self.stats) {
            self.release_if_drained(at, sinks);
        }
    }
}
