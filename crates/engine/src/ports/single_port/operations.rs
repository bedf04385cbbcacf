//! The operations of a port: posted in order with its packets, and returned.
//!
//! Packets sent through a port with operations go the same way, as one list with the operations
//! ([`crate::ports::tx_half`]). A port without operations never gets here.
//!
//! Guarantees: every accepted operation comes back to its stage, once; at most `tx_depth_wr` sends
//! and `ops_depth_wr` operations are in the send queue; the last work request of every list is
//! signaled, so that all posted work is known to be done without another post.

#[cfg(test)]
mod model;

use verbline_verbs::Completion;

use crate::ports::context::LcoreContext;
use crate::ports::single_port::{Health, Port};
use crate::stats::down_reason::DownReason;
use crate::stats::drop_reason::DropReason;

/// The lane of a port with one queue pair.
pub(super) const ONLY: usize = 0;

impl Port {
    /// Posts waiting packets and operations, in order. Returns true if something was posted or
    /// given back.
    #[cold]
    pub(in crate::ports) fn flush_operations(&mut self, ctx: &mut LcoreContext) -> bool {
        let Some(sending) = &self.sending else { return false };
        let Some((queue, batch)) = sending.operations(&mut ctx.sinks) else { return false };
        queue.is_down = self.health != Health::Up;
        if !queue.is_waiting() && batch.is_empty() {
            return false;
        }
        if queue.is_down {
            // Listed sends that were never posted no longer count as out: they are dropped here,
            // not with the queue pair.
            self.qp.sends -= queue.sends_waiting();
            let dropped = queue.refuse_sends(batch, DropReason::PortDown) + queue.fail_waiting();
            self.stats.drops.add(DropReason::PortDown, dropped as u64);
            self.stats.tx_pending.set(0);
            self.stats.tx_outstanding.set(self.qp.sends as u64);
            return true;
        }
        let (mut busy, mut failed) = (false, None);
        while failed.is_none() {
            let left = sending.depth_wr.saturating_sub(self.qp.sends);
            if let Some(tap) = &mut ctx.tap {
                tap.offer(self.index, batch.as_slice(), &self.qp);
            }
            let sends = queue.gather(batch, None, [self.qp.send_room(), left]);
            if let Some(tap) = &mut ctx.tap {
                tap.posted(self.index, sends);
            }
            self.qp.sends += sends;
            if queue.works.is_empty() {
                break;
            }
            let posted = queue.post(ONLY, &mut self.qp);
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
            // Waiting packets and operations are given back in the next turn.
            self.break_off();
        }
        busy || failed.is_some()
    }

    /// The send queue of this queue pair has stopped: drained for a change, or at a block with a
    /// bad signature. Operations that wait for bad blocks come back, and the rest goes on. Ignores
    /// another queue pair's stop.
    #[cold]
    pub(crate) fn sq_stopped(&mut self, qpn: u32, ctx: &mut LcoreContext) {
        if self.qp.qpn() != qpn || self.health == Health::Down {
            return;
        }
        if self.changing.is_some() || self.is_paused {
            return self.go_on_changing(ctx.time.clock().now_ns());
        }
        let operations = self.sending.as_ref().and_then(|sending| sending.operations(&mut ctx.sinks));
        let Some((queue, _)) = operations else { return };
        if let Err(error) = queue.settle_stop(ONLY, &mut self.qp) {
            tracing::error!(port = %self.name, %error, "the queue pair stopped, and cannot go on");
            self.break_off();
        }
    }

    /// The device refuses a post that it has to take: the port goes down.
    pub(in crate::ports) fn break_off(&mut self) {
        self.flush_device();
        self.go_down(Health::Down, DownReason::REFUSED);
    }

    /// Handles the completion of listed work requests.
    #[cold]
    pub(in crate::ports) fn operated(&mut self, completion: &Completion, ctx: &mut LcoreContext) {
        let Some(sending) = &mut self.sending else { return self.stats.stale.add(1) };
        let done = sending.operated(ONLY, &mut self.qp, completion, &mut ctx.sinks, &self.stats);
        if done.is_none() {
            return;
        }
        sending.hand_back(&mut ctx.sinks);
        self.stats.tx_outstanding.set(self.qp.sends as u64);
        if !completion.is_ok() {
            // Stages' further operations are declined from now on, and not only from the next turn.
            sending.operations(&mut ctx.sinks).into_iter().for_each(|(queue, _)| queue.is_down = true);
            let left = self.left_by_failed_send();
            self.failed_with(completion.status(), left);
        }
    }
}
