//! How a port releases a queue pair whose connection was lost, and takes another: the lcore's side
//! of [`crate::connection::handover`].
//!
//! Guarantees: what arrived before the loss is handed on, since a queue pair counts as released
//! only when all its completions were taken; nothing is posted between the release and the
//! replacement.

#[cfg(test)]
mod tests;

use std::mem;

use verbline_verbs::QueuePair;

use crate::connection::handover::{ForLcore, PortSide, Release};
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
        if side.release == Release::InUse && (lost || self.health == Health::Down) {
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
        let before = self.qp.sends_outstanding();
        if let Err(error) = self.qp.start_drain() {
            tracing::error!(port = %self.name, %error, "the queue pair cannot be released");
        }
        let marked = self.qp.sends_outstanding() > before;
        if let Some(receiving) = &mut self.receiving {
            receiving.retry_ns = None;
        }
        let Some(side) = &mut self.reconnect else { return };
        side.release = Release::Releasing { marked };
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
        if let Some(side) = &mut self.reconnect {
            side.release = Release::Released { marked: side.is_marked() };
            side.handover.report_drained();
        }
    }

    /// Takes another queue pair, which is connected. Its receives are posted in this turn.
    fn replace_qp(&mut self, replacement: QueuePair) {
        let old = mem::replace(&mut self.qp, replacement);
        // What the device never completed goes with the queue pair. A marker among it is no packet.
        let marker = usize::from(self.reconnect.as_ref().is_some_and(PortSide::is_marked));
        let unanswered = match &mut self.operating {
            Some(operating) => operating.replaced(),
            None => old.sends_outstanding().saturating_sub(marker),
        };
        self.stats.drops.add(DropReason::SendError, unanswered as u64);
        self.stats.qpn.set(self.qp.qpn().into());
        if let Some(receiving) = &mut self.receiving {
            receiving.missing = receiving.depth_wr;
        }
        if let Some(sending) = &mut self.sending {
            sending.end_signaled = false;
        }
        self.stats.tx_outstanding.set(0);
        self.stats.down.set(0);
        self.stats.down_reason.set(0);
        self.health = Health::Up;
        if let Some(side) = &mut self.reconnect {
            side.release = Release::InUse;
            side.handover.retire(old);
        }
    }
}
