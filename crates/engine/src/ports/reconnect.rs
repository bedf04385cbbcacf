//! Releases the queue pair of a port whose connection was lost, and takes another: the lcore's side
//! of [`crate::connection::handover`].
//!
//! Guarantees: what arrived before the loss is handed on, since a queue pair counts as released
//! only when all its completions were taken; nothing is posted between the release and the
//! replacement.

#[cfg(test)]
mod tests;

use std::mem;

use verbline_verbs::QueuePair;

use crate::connection::handover::ForLcore;
use crate::connection::port_qp::PortQp;
use crate::ports::port::{Health, Port};
use crate::stats::down_reason::DownReason;
use crate::stats::drop_reason::DropReason;

/// What [`Port::service_handover`] began or finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandoverStep {
    Nothing,
    /// The queue pair is in the error state, and its completions are to come.
    Releasing,
    /// The port has another queue pair.
    Replaced,
}

impl Port {
    /// Does what the supervisor asked for, or what the port's own failure asks for.
    #[cold]
    pub(crate) fn service_handover(&mut self) -> HandoverStep {
        let Some(side) = &self.reconnect else { return HandoverStep::Nothing };
        let ForLcore { lost, replacement } = side.handover.take_for_lcore();
        if let Some(replacement) = replacement {
            self.replace_qp(replacement);
            return HandoverStep::Replaced;
        }
        if !side.is_releasing && (lost || self.health == Health::Down) {
            self.begin_release(lost);
            return HandoverStep::Releasing;
        }
        HandoverStep::Nothing
    }

    /// Whether nothing of the queue pair is outstanding.
    pub(crate) fn is_drained(&self) -> bool {
        self.qp.is_drained()
    }

    /// Brings the queue pair to ERR: whatever is posted completes, behind what has completed
    /// already. `lost`: the supervisor knows the reason.
    fn begin_release(&mut self, lost: bool) {
        self.go_down(Health::Down, DownReason::LOST);
        self.qp.start_drain(&self.name);
        if let Some(receiving) = &mut self.receiving {
            receiving.retry_ns = None;
        }
        let Some(side) = &mut self.reconnect else { return };
        side.is_releasing = true;
        if !lost {
            side.handover.report_down(self.stats.down_reason.value());
        }
    }

    /// Ends the release: nothing of the queue pair is outstanding, or what is never completes by
    /// itself.
    pub(crate) fn finish_release(&mut self) {
        self.stats.tx_outstanding.set(self.qp.sends_outstanding() as u64);
        let refill = self.receiving.as_ref().map_or(0, |receiving| receiving.refill.len());
        self.stats.rx_outstanding.set((self.qp.recvs_outstanding() + refill) as u64);
        if let Some(side) = &self.reconnect {
            side.handover.report_drained();
        }
    }

    /// Takes another queue pair, which is connected. Its receives are posted in this turn.
    fn replace_qp(&mut self, replacement: QueuePair) {
        let old = mem::replace(&mut self.qp, PortQp::new(replacement));
        // What the device never completed goes with the queue pair.
        let unanswered = old.lost_sends(self.operating.is_some());
        if let Some(operating) = &mut self.operating {
            operating.lost = true;
        }
        self.stats.drops.add(DropReason::SendError, unanswered as u64);
        self.stats.qpn.set(self.qp.qpn().into());
        if let Some(receiving) = &mut self.receiving {
            receiving.missing = receiving.depth_wr;
        }
        self.stats.tx_outstanding.set(0);
        self.stats.down.set(0);
        self.stats.down_reason.set(0);
        self.health = Health::Up;
        if let Some(side) = &mut self.reconnect {
            side.is_releasing = false;
            side.handover.retire(old.into_inner());
        }
    }
}
