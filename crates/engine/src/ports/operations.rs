//! The operations of a port: posted in order with what is sent, and taken back.
//!
//! A port that carries out operations has these in place of a sending half: what is sent through it
//! goes the same way, as one list with the operations, so that a WRITE in front of a SEND arrives
//! before it. A port without operations never gets here.
//!
//! Guarantees: whatever was accepted comes back to its stage, once; at most `tx_depth_wr` sends and
//! `ops_depth_wr` operations are in the send queue; the last of every list is signaled, so that all
//! that is posted is known to be done without another post.

#[cfg(test)]
mod model;

use verbline_verbs::{Completion, Transport};

use crate::ports::context::LcoreContext;
use crate::ports::port::{Health, Port};
use crate::stats::down_reason::DownReason;
use crate::stats::drop_reason::DropReason;

/// The lane of a port that has one queue pair.
const ONLY: usize = 0;

impl Port {
    /// Posts what waits: packets from the sink and operations, in order. True if something was
    /// posted or given back.
    #[cold]
    pub(super) fn flush_operations(&mut self, ctx: &mut LcoreContext) -> bool {
        let Some(operating) = &mut self.operating else { return false };
        let Some((queue, batch)) = operating.queue(&mut ctx.sinks) else { return false };
        if std::mem::take(&mut operating.lost) {
            queue.lose_posted(ONLY);
        }
        queue.is_down = self.health != Health::Up;
        if !queue.is_waiting() && batch.is_empty() {
            return false;
        }
        if queue.is_down {
            // What was listed and not posted is not out any more: it is dropped here, not with the
            // queue pair.
            self.qp.sends -= queue.sends_waiting();
            let dropped = batch.len() + queue.fail_waiting();
            batch.clear();
            self.stats.drops.add(DropReason::PortDown, dropped as u64);
            self.stats.tx_pending.set(0);
            self.stats.tx_outstanding.set(self.qp.sends as u64);
            return true;
        }
        let (mut busy, mut failed) = (false, None);
        while failed.is_none() {
            let left = operating.sends_max.saturating_sub(self.qp.sends);
            if let Some(tap) = &mut ctx.tap {
                tap.offer(self.index, batch.as_slice(), &self.qp);
            }
            let waiting = batch.len();
            self.qp.sends += queue.gather(batch, self.qp.send_room(), left);
            if let Some(tap) = &mut ctx.tap {
                tap.posted(self.index, waiting - batch.len());
            }
            if queue.works.is_empty() {
                break;
            }
            let posted = queue.post(ONLY, &mut self.qp, true);
            self.qp.sends -= posted.dropped;
            busy |= posted.is_moved;
            failed = posted.lost;
            if !queue.works.is_empty() {
                break;
            }
        }
        self.stats.tx_pending.set((batch.len() + queue.sends_waiting()) as u64);
        self.stats.tx_outstanding.set(self.qp.sends as u64);
        if let Some(stop) = failed {
            tracing::error!(port = %self.name, %stop, "operations cannot be posted");
            if let Err(error) = self.qp.to_err() {
                tracing::warn!(port = %self.name, %error, "what is posted to it does not come back");
            }
            // What waits is given back in the next turn.
            self.go_down(Health::Down, DownReason::REFUSED);
        }
        busy || failed.is_some()
    }

    /// The device has stopped the queue pair behind a bad block, if it is this one: what waits for
    /// bad blocks comes back, and the rest goes on.
    #[cold]
    pub(crate) fn sq_stopped(&mut self, qpn: u32, ctx: &mut LcoreContext) {
        if self.qp.qpn() != qpn || self.health == Health::Down {
            return;
        }
        let Some(operating) = &mut self.operating else { return };
        let Some((queue, _)) = operating.queue(&mut ctx.sinks) else { return };
        if let Err(error) = queue.settle_stop(ONLY, &mut self.qp) {
            tracing::error!(port = %self.name, %error, "the queue pair stopped, and cannot go on");
            if let Err(error) = self.qp.to_err() {
                tracing::warn!(port = %self.name, %error, "what is posted to it does not come back");
            }
            self.go_down(Health::Down, DownReason::REFUSED);
        }
    }

    /// Takes the completion of listed work requests.
    #[cold]
    pub(super) fn operated(&mut self, completion: &Completion, ctx: &mut LcoreContext) {
        let Some(operating) = &mut self.operating else { return self.stats.stale.add(1) };
        let Some((queue, _)) = operating.queue(&mut ctx.sinks) else { return self.stats.stale.add(1) };
        let done = queue.completed(ONLY, &mut self.qp, completion, &mut operating.freed);
        operating.freed.clear();
        let Ok(done) = done else { return self.stats.stale.add(1) };
        self.qp.sends = self.qp.sends.saturating_sub(done.sends);
        self.stats.tx_outstanding.set(self.qp.sends as u64);
        let (status, failed) = (completion.status(), !completion.is_ok());
        queue.is_down |= failed;
        if failed {
            let left = if self.qp.transport() == Transport::Rc { Health::Down } else { Health::SendsDown };
            if !done.of_operation {
                self.stats.drops.add(DropReason::SendError, 1);
            }
            self.failed_with(status, left);
        }
    }

    /// A completion of a send on a port that has none but listed work requests: the marker behind
    /// everything of a queue pair that is being released.
    #[cold]
    pub(super) fn marker_done(&mut self, completion: &Completion) {
        let Some(operating) = &mut self.operating else { return self.stats.stale.add(1) };
        if self.qp.sent(completion, &mut operating.freed).is_err() || !self.qp.is_marked() {
            self.stats.stale.add(1);
        }
    }
}
