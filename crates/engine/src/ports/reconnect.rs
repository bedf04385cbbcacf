//! Releases the queue pair of a port whose connection was lost, and takes another: the lcore's side
//! of [`crate::connection::cm_mailbox`].
//!
//! Guarantees: what arrived before the loss is handed on, since a queue pair counts as released
//! only when all its completions were taken; nothing is posted between the release and the
//! replacement.

#[cfg(test)]
mod tests;

use std::mem;

use verbline_mem::ConnectionId;

use crate::connection::cm_mailbox::{ToCm, ToLcore};
use crate::connection::port_qp::PortQp;
use crate::ports::operations::ONLY;
use crate::ports::port::{Health, Port};
use crate::ports::sink::Sink;
use crate::stats::down_reason::DownReason;
use crate::stats::drop_reason::DropReason;

/// What [`Port::service_reconnect`] has begun and done, in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Serviced {
    /// The port has another queue pair.
    pub(crate) is_replaced: bool,
    /// The queue pair is in the error state, and its completions are to come.
    pub(crate) is_releasing: bool,
}

impl Port {
    /// Does what the supervisor asked for, and what the port's own failure asks for.
    #[cold]
    pub(crate) fn service_reconnect(&mut self, sinks: &mut [Sink]) -> Serviced {
        let mut serviced = Serviced::default();
        let Some(side) = &mut self.reconnect else { return serviced };
        side.mailbox.heard();
        let mut taken = mem::take(&mut side.taken);
        side.mailbox.take_for_lcore(&mut taken);
        for message in taken.drain(..) {
            let current = self.reconnect.as_ref().map(|side| side.connection);
            match message {
                ToLcore::Open { connection, qp, .. } => {
                    self.replace_qp(connection, qp, sinks);
                    serviced.is_replaced = true;
                }
                ToLcore::Close { connection, .. } if Some(connection) == current => {
                    serviced.is_releasing |= self.begin_release(true);
                }
                // Of a connection before this one, or for a port with many.
                ToLcore::Close { .. } | ToLcore::Expect { .. } | ToLcore::Forget { .. } | ToLcore::Force { .. } => {}
            }
        }
        serviced.is_releasing |= self.health == Health::Down && self.begin_release(false);
        if let Some(side) = &mut self.reconnect {
            side.taken = taken;
        }
        serviced
    }

    /// Brings the queue pair to ERR: whatever is posted completes, behind what has completed
    /// already. `lost`: the supervisor knows the reason. False if it was so before.
    fn begin_release(&mut self, lost: bool) -> bool {
        let Some(side) = self.reconnect.as_mut().filter(|side| !side.is_releasing) else { return false };
        side.is_releasing = true;
        self.go_down(Health::Down, DownReason::LOST);
        self.qp.start_drain(&self.name);
        if let Some(receiving) = &mut self.receiving {
            receiving.retry_ns = None;
        }
        if let Some(side) = self.reconnect.as_ref().filter(|_| !lost) {
            let (connection, down_reason) = (side.connection, self.stats.down_reason.value());
            side.mailbox.tell_cm(ToCm::Over { connection, down_reason });
        }
        true
    }

    /// Ends the release: nothing of the queue pair is outstanding, or what is never completes by
    /// itself.
    pub(crate) fn finish_release(&mut self) {
        self.stats.tx_outstanding.set(self.qp.sends_outstanding() as u64);
        let refill = self.receiving.as_ref().map_or(0, |receiving| receiving.refill.len());
        self.stats.rx_outstanding.set((self.qp.recvs_outstanding() + refill) as u64);
        if let Some(side) = &self.reconnect {
            side.mailbox.tell_cm(ToCm::Drained { connection: side.connection });
        }
    }

    /// Takes another queue pair, which is connected. Its receives are posted in this turn.
    fn replace_qp(&mut self, connection: ConnectionId, mut qp: Box<PortQp>, sinks: &mut [Sink]) {
        // The old one goes back in the same box: nothing is allocated here.
        mem::swap(&mut self.qp, &mut *qp);
        // What the device never completed goes with the queue pair.
        let operations = self.sending.as_ref().and_then(|sending| sending.operations(sinks));
        let unanswered = qp.lost_sends(operations.is_some());
        if let Some((queue, _)) = operations {
            queue.lose_posted(ONLY);
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
            let old = mem::replace(&mut side.connection, connection);
            side.is_releasing = false;
            side.mailbox.tell_cm(ToCm::Released { connection: old, qp, peer: None });
        }
    }
}
