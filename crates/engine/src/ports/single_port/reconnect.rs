//! Releases the queue pair of a port whose connection was lost, and takes another: the lcore's side
//! of [`crate::connection::cm_mailbox`].
//!
//! Guarantees: packets that arrived before the loss are handed on, since a queue pair counts as
//! released only when all its completions were taken; nothing is posted between the release and the
//! replacement.

#[cfg(test)]
mod tests;

use std::mem;

use verbline_mem::ConnectionId;

use crate::connection::cm_mailbox::{Release, ToCm, ToLcore};
use crate::connection::handshake::RELEASE;
use crate::connection::port_qp::PortQp;
use crate::ports::single_port::operations::ONLY;
use crate::ports::single_port::{Health, Port};
use crate::ports::sink::Sink;
use crate::stats::clock::Tick;
use crate::stats::down_reason::DownReason;
use crate::stats::drop_reason::DropReason;

/// The most time counted as waited between two turns: an lcore that does not run takes no
/// completions.
const TURN_MAX_NS: u64 = 10_000_000;

impl Port {
    /// Handles the supervisor's messages and the port's own failure. Returns true if the port has
    /// another queue pair. Called in every turn while it waits for completions.
    #[cold]
    pub(crate) fn service_reconnect(&mut self, now_ns: Tick, sinks: &mut [Sink]) -> bool {
        let Some(side) = &mut self.reconnect else { return false };
        side.mailbox.heard();
        let mut taken = mem::take(&mut side.taken);
        side.mailbox.take_for_lcore(&mut taken);
        let mut is_replaced = false;
        for message in taken.drain(..) {
            let current = self.reconnect.as_ref().map(|side| side.connection);
            match message {
                ToLcore::Open { connection, qp, .. } => {
                    self.replace_qp(connection, qp, sinks);
                    is_replaced = true;
                }
                ToLcore::Close { connection, .. } if Some(connection) == current => self.begin_release(true, now_ns),
                // About an earlier connection, or for a port with many.
                ToLcore::Close { .. } | ToLcore::Expect { .. } | ToLcore::Forget { .. } | ToLcore::Force { .. } => {}
            }
        }
        if self.health == Health::Down {
            self.begin_release(false, now_ns);
        }
        if let Some(side) = &mut self.reconnect {
            side.taken = taken;
        }
        self.go_on_releasing(now_ns);
        is_replaced
    }

    /// Brings the queue pair to ERR: all posted work requests complete, after those that have
    /// completed already. `lost`: the supervisor knows the reason; otherwise it hears of the
    /// failure, and tells the peer.
    fn begin_release(&mut self, lost: bool, now_ns: Tick) {
        let Some(side) = self.reconnect.as_mut().filter(|side| side.release == Release::No) else { return };
        side.release = Release::Begun { left_ns: RELEASE.as_nanos() as u64, seen_ns: now_ns };
        if lost {
            self.go_down(Health::Down, DownReason::LOST);
        }
        self.qp.start_drain(&self.name);
        if let Some(side) = self.reconnect.as_ref().filter(|_| !lost) {
            let (connection, down_reason) = (side.connection, self.stats.down_reason.value());
            side.mailbox.tell_cm(ToCm::Over { connection, down_reason });
        }
    }

    /// Ends a release once all completions have come, or the wait for them was long enough; else
    /// looks again in the next turn.
    fn go_on_releasing(&mut self, now_ns: Tick) {
        let Some(side) = &mut self.reconnect else { return };
        let Release::Begun { left_ns, seen_ns } = &mut side.release else { return };
        *left_ns = left_ns.saturating_sub(now_ns.saturating_sub(*seen_ns).min(TURN_MAX_NS));
        *seen_ns = now_ns;
        if *left_ns > 0 && !self.qp.is_drained() {
            return side.mailbox.call_again();
        }
        side.release = Release::Done;
        self.stats.tx_outstanding.set(self.qp.sends_outstanding() as u64);
        let refill = self.receiving.as_ref().map_or(0, |receiving| receiving.refill.len());
        self.stats.rx_outstanding.set((self.qp.recvs_outstanding() + refill) as u64);
        side.mailbox.tell_cm(ToCm::Drained { connection: side.connection });
    }

    /// Takes another, connected queue pair. Its receives are posted in this turn.
    fn replace_qp(&mut self, connection: ConnectionId, mut qp: Box<PortQp>, sinks: &mut [Sink]) {
        // The old one goes back in the same box: nothing is allocated here.
        mem::swap(&mut self.qp, &mut *qp);
        // Work requests that the device never completed go with the queue pair.
        let operations = self.sending.as_ref().and_then(|sending| sending.operations(sinks));
        let unanswered = qp.lost_sends(operations.is_some());
        if let Some((queue, _)) = operations {
            queue.lose_posted(ONLY);
            // Stages are about to be told that the port is up, and may post operations at once.
            queue.is_down = false;
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
        self.arm_again();
        self.pause_again();
        if let Some(side) = &mut self.reconnect {
            let old = mem::replace(&mut side.connection, connection);
            side.release = Release::No;
            side.mailbox.tell_cm(ToCm::Released { connection: old, qp });
        }
    }
}
