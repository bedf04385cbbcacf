//! The paths of ports with operations, and of ports whose packets carry options: kept apart, so
//! that a plain port has no instruction of them.

use verbline_mem::Packet;
use verbline_verbs::{Completion, PostStop};

use crate::operations::queue::OperationQueue;
use crate::operations::send_with::options_of;
use crate::ports::context::LcoreContext;
use crate::ports::posting;
use crate::ports::single_port::{Health, Port};
use crate::ports::sink::Sink;
use crate::stats::drop_reason::DropReason;

impl Port {
    /// Posts waiting packets and operations. Returns true if something was posted, dropped or given
    /// back.
    #[cold]
    pub(super) fn flush_unusual(&mut self, ctx: &mut LcoreContext) -> bool {
        let Some(sending) = &self.sending else { return false };
        let is_moved = match (sending.operates, &sending.datagrams) {
            (true, _) => self.flush_operations(ctx),
            (false, None) => self.flush_as_asked(ctx),
            (false, Some(_)) => self.flush_datagrams(ctx),
        };
        if let Some(sending) = &mut self.sending {
            sending.hand_back(&mut ctx.sinks);
        }
        is_moved
    }

    /// Returns the number of packets that wait here, most of them for an address handle.
    pub(crate) fn datagrams_waiting(&self) -> usize {
        let datagrams = self.sending.as_ref().and_then(|sending| sending.datagrams.as_ref());
        datagrams.map_or(0, |datagrams| datagrams.pending())
    }

    /// Counts, as the run ends, the packets that wait for an address handle, and the posted sends
    /// whose completion was to come and did not.
    pub(crate) fn count_stopped(&self, sinks: &[Sink]) {
        let is_released = self.is_released();
        let unanswered = match &self.sending {
            // Those that are listed and not posted count as out, and are dropped by the queue.
            Some(sending) if sending.operates => {
                let listed = sinks[sending.sink].queue().map_or(0, OperationQueue::sends_waiting);
                self.qp.lost_sends(true).saturating_sub(listed)
            }
            Some(_) if is_released || self.awaits_completion() => self.qp.lost_sends(false),
            _ => 0,
        };
        self.stats.drops.add(DropReason::Stopped, self.datagrams_waiting() as u64);
        let reason = if is_released { DropReason::SendError } else { DropReason::Stopped };
        self.stats.drops.add(reason, unanswered as u64);
    }

    /// Handles the completion of a send.
    #[cold]
    pub(super) fn sent_unusual(&mut self, completion: &Completion, ctx: &mut LcoreContext) {
        let Some(sending) = &mut self.sending else { return };
        if sending.operates {
            sending.marker_done(&mut self.qp, completion, &self.stats);
            return;
        }
        let done = sending.sent_as_asked(&mut self.qp, completion, &mut ctx.sinks);
        self.send_ended(done, completion);
    }

    /// Posts pending packets as one list where it fits, each with its options.
    fn flush_as_asked(&mut self, ctx: &mut LcoreContext) -> bool {
        let Some(sending) = &mut self.sending else { return false };
        let Some(returning) = &mut sending.returning else { return false };
        let pending = &mut ctx.sinks[sending.sink].batch;
        if pending.is_empty() {
            return false;
        }
        if self.health != Health::Up {
            self.stats.drops.add(DropReason::PortDown, pending.len() as u64);
            self.stats.tx_pending.set(0);
            pending.drain_front(pending.len()).for_each(|packet| returning.refuse(packet, DropReason::PortDown));
            return true;
        }
        if let Some(tap) = &mut ctx.tap {
            tap.offer(self.index, pending.as_slice(), &self.qp);
        }
        let sent = posting::send_with(&mut self.qp, pending, sending.signal_ends, &self.stats, options_of);
        if let Some(tap) = &mut ctx.tap {
            tap.posted(self.index, sent.posted);
        }
        if let Some(stop) = sent.stop.filter(|stop| !stop.is_backpressure()) {
            posting::refuse_each(pending, stop, &self.name, &self.stats, |packet, why| returning.refuse(packet, why));
        }
        self.stats.tx_pending.set(pending.len() as u64);
        self.stats.tx_outstanding.set(self.qp.sends_outstanding() as u64);
        sent.posted > 0 || sent.stop != Some(PostStop::Full)
    }

    /// Posts pending packets, each to the peer whose handle it carries. Returns true if any was
    /// posted or dropped: a dropped one may be on its way back to a stage of this lcore.
    fn flush_datagrams(&mut self, ctx: &mut LcoreContext) -> bool {
        let Some(sending) = &mut self.sending else { return false };
        let (Some(returning), Some(datagrams)) = (&mut sending.returning, &mut sending.datagrams) else { return false };
        let pending = &mut ctx.sinks[sending.sink].batch;
        let is_up = self.health == Health::Up;
        // A port that is down no longer waits for address handles.
        if pending.is_empty() && datagrams.is_settled() && (is_up || datagrams.pending() == 0) {
            return false;
        }
        let (stats, mut is_moved) = (&self.stats, false);
        let mut refuse = |packet: Packet, reason| {
            is_moved = true;
            stats.drops.add(reason, 1);
            returning.refuse(packet, reason);
        };
        if !is_up {
            pending.drain_front(pending.len()).for_each(|packet| refuse(packet, DropReason::PortDown));
            datagrams.give_up(|packet| refuse(packet, DropReason::PortDown));
            self.stats.tx_pending.set(0);
            return true;
        }
        datagrams.sort(pending, &mut refuse);
        if !datagrams.ready().is_empty() {
            if let Some(tap) = &mut ctx.tap {
                tap.offer(self.index, datagrams.ready().as_slice(), &self.qp);
            }
            let sent = datagrams.post(&mut self.qp, sending.signal_ends, stats);
            is_moved |= sent.posted > 0;
            if let Some(tap) = &mut ctx.tap {
                tap.posted(self.index, sent.posted);
            }
            if let Some(stop) = sent.stop.filter(|stop| !stop.is_backpressure()) {
                let end = |packet, reason| returning.refuse(packet, reason);
                posting::refuse_each(datagrams.ready(), stop, &self.name, stats, end);
                is_moved = true;
            }
        }
        self.stats.tx_pending.set((pending.len() + datagrams.pending()) as u64);
        self.stats.tx_outstanding.set(self.qp.sends_outstanding() as u64);
        is_moved
    }
}

#[cfg(test)]
mod tests {
    use verbline_verbs::{Completions, Status, Transport};

    use super::*;
    use crate::operations::send_with::{Returning, SendFailure, SendWith, send_result};
    use crate::ports::sink::SinkStats;
    use crate::ports::tx_half::Sending;
    use crate::rig::{Depths, Rig, port};
    use crate::stats::counter::{Shared, shared};

    /// One completion also returns the unsignaled sends before its own: those have succeeded.
    #[test]
    fn a_failure_is_of_the_last_packet_that_its_completion_returns() {
        let rig = Rig::new(8);
        let mut cq = rig.context.create_cq(16, None).unwrap();
        let depths = Depths { tx_wr: 8, rx_wr: 1, signal_every_wr: 8 };
        let mut qp = rig.pd.create_qp(&Rig::spec(&cq, Transport::Rc, depths, 0)).unwrap();
        rig.bring_up(&mut qp);
        let sending = Sending::new(0, 8, 8).with_options(Some(Returning::new(Some(1), 8)));
        let mut port = port(0, qp, None, Some(sending), None);
        let stats = SinkStats::Port(Shared::clone(&port.stats));
        let sinks = vec![
            Sink::new(8, DropReason::TxFull, stats),
            Sink::new(8, DropReason::StageFull, SinkStats::Stage(shared())),
        ];
        let mut ctx = rig.lcore_context(sinks, 0);
        for options in [SendWith::new(), SendWith::new().returned()] {
            let mut packet = ctx.caches[0].get().unwrap();
            assert!(packet.set_len(8));
            options.ask(&mut packet);
            ctx.sinks[0].push(packet);
        }
        assert!(port.work::<false>(&mut ctx));
        for status in [Status::SUCCESS, Status::REM_ACCESS_ERR] {
            assert!(rig.script.queues().end_send(port.qp.qpn(), status).is_some());
        }
        let mut completions = Completions::with_capacity(4);
        assert_eq!(cq.poll(&mut completions), 1);
        port.complete::<false>(&completions.as_slice()[0], &mut ctx);
        let back: Vec<_> = ctx.sinks[1].batch.iter().map(send_result).collect();
        assert_eq!(back, [Some(Err(SendFailure::Status(Status::REM_ACCESS_ERR)))]);
    }
}
