//! The send half of a port with many connections.

use std::mem;

use verbline_mem::{Batch, ConnectionId};
use verbline_verbs::Completion;

use super::{MultiPort, State};
use crate::capture::tap::Tap;
use crate::connection::port_qp::{PortQp, SendDone};
use crate::operations::queue::OperationQueue;
use crate::operations::send_with::options_of;
use crate::ports::context::LcoreContext;
use crate::ports::posting;
use crate::ports::sink::Sink;
use crate::ports::tx_half::Sending;
use crate::stats::drop_reason::DropReason;

/// The send half of a port with many connections.
#[derive(Debug)]
pub(crate) struct ManySending {
    /// The queue pairs' common settings.
    pub(super) half: Sending,
    /// The sends of all connections that may be outstanding, and those that are.
    pub(super) most_wr: usize,
    pub(super) outstanding: usize,
    /// The pending packets, while they are sent; and a stretch of them for one connection.
    work: Batch,
    run: Batch,
    /// Counts the turns of packets that go to any connection.
    turn: usize,
}

impl ManySending {
    /// `most_wr`: of all connections. `pending`: room of the sink.
    pub(crate) fn new(half: Sending, most_wr: usize, pending: usize) -> ManySending {
        let [work, run] = [(); 2].map(|()| Batch::with_capacity(pending));
        ManySending { half, most_wr, outstanding: 0, work, run, turn: 0 }
    }

    /// Returns the number of sends that fit the bound on all connections together.
    pub(super) fn room(&self) -> usize {
        self.most_wr.saturating_sub(self.outstanding)
    }

    /// Returns the number of sends that a connection takes now.
    pub(super) fn room_of(&self, qp: &PortQp) -> usize {
        let own = match self.half.operates {
            false => qp.send_room(),
            true => self.half.depth_wr.saturating_sub(qp.sends),
        };
        own.min(self.room())
    }

    /// The number of outstanding sends of one connection has changed.
    pub(super) fn changed(&mut self, before: usize, after: usize) {
        self.outstanding = self.outstanding + after - before;
    }
}

/// Returns the distance between two signaled sends of a connection; the plan asks for
/// `signal_every_wr`. Sends that no completion has covered yet must not use up the outstanding
/// sends that all connections together may have.
pub(crate) fn signal_every(signal_every_wr: u32, most_wr: u32, connections: u32) -> u32 {
    (most_wr / connections.max(1) / 2).clamp(1, signal_every_wr.max(1))
}

impl MultiPort {
    /// Posts pending packets: each stretch for one connection as one list. Returns true if there
    /// were any.
    pub(super) fn flush(&mut self, ctx: &mut LcoreContext) -> bool {
        let Some(sending) = &mut self.sending else { return false };
        match &sending.half {
            half if half.is_plain => self.flush_sends::<false>(ctx),
            half => {
                let any = if half.operates { self.flush_with_operations(ctx) } else { self.flush_sends::<true>(ctx) };
                self.hand_back(&mut ctx.sinks);
                any
            }
        }
    }

    /// Hands back packets that asked to come back.
    #[cold]
    fn hand_back(&mut self, sinks: &mut [Sink]) {
        if let Some(sending) = &mut self.sending {
            sending.half.hand_back(sinks);
        }
    }

    /// `ASKED`: packets may carry options.
    fn flush_sends<const ASKED: bool>(&mut self, ctx: &mut LcoreContext) -> bool {
        let Some(sending) = &mut self.sending else { return false };
        let pending = &mut ctx.sinks[sending.half.sink].batch;
        if pending.is_empty() {
            return false;
        }
        mem::swap(&mut sending.work, pending);
        let mut work = mem::replace(&mut sending.work, Batch::with_capacity(0));
        let mut run = mem::replace(&mut sending.run, Batch::with_capacity(0));
        let mut to = None;
        for packet in work.drain_front(work.len()) {
            let connection = packet.connection();
            if connection != to && !run.is_empty() {
                self.send_run::<ASKED>(to, &mut run, &mut ctx.tap);
            }
            to = connection;
            // `run` has as much room as `work`.
            run.push_iter([packet]);
        }
        self.send_run::<ASKED>(to, &mut run, &mut ctx.tap);
        if let Some(sending) = &mut self.sending {
            (sending.work, sending.run) = (work, run);
        }
        self.gauge_sends();
        true
    }

    /// Sends packets to one connection, and leaves none.
    fn send_run<const ASKED: bool>(&mut self, to: Option<ConnectionId>, run: &mut Batch, tap: &mut Option<Box<Tap>>) {
        let to = if to.is_none() && self.any { self.next_open() } else { to };
        let at = to.filter(|to| to.port() == self.index).and_then(|to| self.open_slot(to));
        let (Some(at), Some(sending)) = (at, &mut self.sending) else {
            return self.refuse(run, DropReason::NoConnection);
        };
        let slot = &mut self.slots[at];
        let Some(qp) = &mut slot.qp else { return self.refuse(run, DropReason::NoConnection) };
        let before = qp.sends_outstanding();
        let room = qp.send_room().min(sending.room());
        let mut returning = sending.half.returning.as_mut().filter(|_| ASKED);
        let mut end = |packet, reason| match &mut returning {
            Some(returning) => returning.refuse(packet, reason),
            None => drop(packet),
        };
        if run.len() > room {
            self.stats.drops.add(DropReason::TxFull, (run.len() - room) as u64);
            while ASKED && run.len() > room {
                run.pop().into_iter().for_each(|packet| end(packet, DropReason::TxFull));
            }
            run.truncate(room);
        }
        while !run.is_empty() {
            if let Some(tap) = tap {
                tap.offer(self.index, run.as_slice(), qp);
            }
            let sent = match ASKED {
                false => posting::send(qp, run, sending.half.signal_ends, &self.stats),
                true => posting::send_with(qp, run, sending.half.signal_ends, &self.stats, options_of),
            };
            if let Some(tap) = tap {
                tap.posted(self.index, sent.posted);
            }
            if let Some(stop) = sent.stop {
                posting::refuse_each(run, stop, &self.name, &self.stats, &mut end);
            }
        }
        sending.changed(before, qp.sends_outstanding());
    }

    pub(super) fn gauge_sends(&self) {
        self.stats.tx_outstanding.set(self.sending.as_ref().map_or(0, |sending| sending.outstanding) as u64);
    }

    fn refuse(&mut self, run: &mut Batch, reason: DropReason) {
        self.stats.drops.add(reason, run.len() as u64);
        if let Some(returning) = self.sending.as_mut().and_then(|sending| sending.half.returning.as_mut()) {
            run.drain_front(run.len()).for_each(|packet| returning.refuse(packet, reason));
        }
        run.clear();
    }

    /// Returns the connection whose turn it is.
    pub(super) fn next_open(&mut self) -> Option<ConnectionId> {
        let sending = self.sending.as_mut()?;
        sending.turn = if sending.turn + 1 < self.open.len() { sending.turn + 1 } else { 0 };
        let at = *self.open.get(sending.turn)?;
        self.slots[usize::from(at)].connection
    }

    /// Handles the completion of a send.
    pub(super) fn sent(&mut self, completion: &Completion, sinks: &mut [Sink]) {
        let Some(at) = self.by_qpn.slot(completion.qp_num()) else { return self.stats.stale.add(1) };
        let slot = &mut self.slots[at];
        let Some(qp) = &mut slot.qp else { return self.stats.stale.add(1) };
        let Some(sending) = &mut self.sending else { return self.only_marker_done(at, completion, sinks) };
        let before = qp.sends_outstanding();
        let done = match &mut sending.half {
            half if half.is_plain => qp.sent(completion, &mut half.freed),
            half if half.operates => return self.marker_done(at, completion, sinks),
            half => half.sent_as_asked(qp, completion, sinks),
        };
        sending.changed(before, qp.sends_outstanding());
        self.stats.tx_outstanding.set(sending.outstanding as u64);
        match done {
            Ok(SendDone::Sent | SendDone::Marker) => {}
            Ok(SendDone::Failed) => {
                self.stats.drops.add(DropReason::SendError, 1);
                self.failed_with(at, completion.status(), sinks);
            }
            Ok(SendDone::EndMarkerFailed) => self.failed_with(at, completion.status(), sinks),
            Err(_) => return self.stats.stale.add(1),
        }
        if self.slots[at].state == State::Closing {
            self.release_if_drained(at, sinks);
        }
    }

    /// Like [`MultiPort::sent`], for a port that sends nothing: the completion is of the marker
    /// behind all receives of a released queue pair.
    #[cold]
    fn only_marker_done(&mut self, at: usize, completion: &Completion, sinks: &mut [Sink]) {
        let Some(qp) = &mut self.slots[at].qp else { return };
        if qp.sent(completion, &mut Batch::with_capacity(0)).is_err() {
            return self.stats.stale.add(1);
        }
        if self.slots[at].state == State::Closing {
            self.release_if_drained(at, sinks);
        }
    }

    /// Signals the last send of every list from now on, and puts a marker behind each connection's
    /// sends that no signaled one covers. Called in every turn of a drain.
    pub(crate) fn drain(&mut self) {
        let Some(sending) = &mut self.sending else { return };
        sending.half.signal_ends = true;
        if sending.half.operates {
            return;
        }
        for at in &self.open {
            if sending.room() == 0 {
                break;
            }
            let Some(qp) = &mut self.slots[usize::from(*at)].qp else { continue };
            let before = qp.sends_outstanding();
            qp.cover_sends(&self.name);
            sending.changed(before, qp.sends_outstanding());
        }
        self.gauge_sends();
    }

    /// Whether a send is out whose completion will come.
    pub(crate) fn awaits_completion(&self) -> bool {
        let out = |sending: &&ManySending| sending.outstanding > 0 || sending.half.operates;
        self.sending.as_ref().filter(out).is_some_and(|sending| self.awaiting(sending).next().is_some())
    }

    /// The posted sends of packets that await a completion.
    pub(super) fn unanswered(&self, sinks: &[Sink]) -> usize {
        let Some(sending) = &self.sending else { return 0 };
        if sending.half.operates {
            // Those that are listed and not posted count as out, and are dropped by the queue.
            let listed = sinks[sending.half.sink].queue().map_or(0, OperationQueue::sends_waiting);
            let out: usize = self.slots.iter().filter_map(|slot| slot.qp.as_ref()).map(|qp| qp.sends).sum();
            return out.saturating_sub(listed);
        }
        self.awaiting(sending).map(|qp| qp.lost_sends(false)).sum()
    }

    /// The queue pairs with a send whose completion will come: of open connections, and of those
    /// that are closing, which flush all their sends.
    fn awaiting(&self, sending: &ManySending) -> impl Iterator<Item = &PortQp> {
        let Sending { signal_every_wr, operates, .. } = sending.half;
        let open = self.open.iter().filter_map(|at| self.slots[usize::from(*at)].qp.as_deref());
        let open = open.filter(move |qp| qp.awaits_completion(signal_every_wr as usize, operates));
        // Until it is released, a closing connection counts as open. Mostly there is none.
        let closing = if self.counts.open.value() as usize > self.open.len() { &self.slots[..] } else { &[] };
        let closing = closing.iter().filter(|slot| slot.state == State::Closing && slot.over.is_some());
        open.chain(closing.filter_map(|slot| slot.qp.as_deref()).filter(|qp| qp.sends_outstanding() > 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_completion_covers_leaves_each_connection_half_of_its_share() {
        // The distance as asked for; half of 64 / 8; at least one; and without connections.
        for (asked, most, connections, expected) in
            [(3, 64, 8, 3), (16, 64, 8, 4), (16, 64, 64, 1), (16, 8, 0, 4), (0, 8, 1, 1)]
        {
            assert_eq!(signal_every(asked, most, connections), expected, "{asked} {most} {connections}");
        }
    }
}
