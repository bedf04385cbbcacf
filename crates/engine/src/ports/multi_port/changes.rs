//! Opens and ends connections of a port: the lcore's side of [`crate::connection::multi_port`].

use std::mem;

use verbline_mem::ConnectionId;
use verbline_verbs::Status;

use super::untold::Change;
use super::{MultiPort, Slot, State, slot_of};
use crate::connection::cm_mailbox::{ToCm, ToLcore};
use crate::connection::event::ConnectionChange;
use crate::ports::sink::Sink;
use crate::stats::down_reason::DownReason;
use crate::stats::drop_reason::DropReason;

/// The reason of a connection that a stage closed.
pub(crate) const CLOSED_HERE: &str = "closed here";

impl MultiPort {
    /// Whether queue pairs that have not drained are to be released.
    pub(crate) fn has_forced(&self) -> bool {
        !self.forced.is_empty()
    }

    /// Handles some of the cm thread's messages. Returns false if there was none. `is_emptied`: all
    /// completions since the last call were taken from the completion queue.
    pub(crate) fn take_messages(&mut self, is_emptied: bool, sinks: &mut [Sink]) -> bool {
        while is_emptied && let Some(connection) = self.forced.pop() {
            if let Some(at) = self.find(connection, State::Closing) {
                self.release(at, sinks);
            }
        }
        let mut taken = mem::take(&mut self.taken);
        self.mailbox.take_for_lcore(&mut taken);
        let any = !taken.is_empty();
        taken.drain(..).for_each(|message| self.take_message(message, sinks));
        self.taken = taken;
        if !self.changes.is_empty() || !self.forced.is_empty() {
            self.mailbox.call_again();
        }
        any
    }

    /// Returns the next change that the stages must be told.
    pub(crate) fn next_change(&mut self) -> Option<(ConnectionId, ConnectionChange)> {
        let Change { connection, change, peer, .. } = self.changes.next()?;
        if let Some(peer) = peer {
            self.mailbox.tell_cm(ToCm::Told { peer });
        }
        Some((connection, change))
    }

    /// Tells the mailbox that the lcore acts on the port's notice.
    pub(crate) fn heard(&self) {
        self.mailbox.heard();
    }

    /// Asks for another notice: the stages are told the rest in the next turn.
    pub(crate) fn tell_later(&self) {
        self.mailbox.call_again();
    }

    fn take_message(&mut self, message: ToLcore, sinks: &mut [Sink]) {
        match message {
            ToLcore::Expect { connection, qpn } => {
                let Some(slot) = self.slots.get_mut(connection.slot()) else { return };
                *slot = Slot { state: State::Expected, connection: Some(connection), qpn, ..Slot::default() };
                self.by_qpn.insert(qpn, connection.slot());
            }
            ToLcore::Open { connection, qp, peer } => {
                let Some(at) = self.find(connection, State::Expected) else { return };
                let slot = &mut self.slots[at];
                (slot.state, slot.qp, slot.open_at) = (State::Open, Some(qp), self.open.len());
                slot.peer = peer;
                self.open.push(at as u16);
                if let Some(queue) = self.operations(sinks) {
                    queue.open(connection);
                }
                self.feed(at);
                self.counts.opened.add(1);
                let open = self.counts.open.value() + 1;
                self.counts.open.set(open);
                self.counts.open_max.raise_to(open);
                self.changes.opened(connection);
                if let Some(reason) = self.slots[at].failed_early {
                    self.fail(at, reason, sinks);
                }
            }
            ToLcore::Forget { connection, qp } => {
                let Some(at) = self.find(connection, State::Expected) else { return };
                self.slots[at].qp = Some(qp);
                self.start_release(at, sinks);
            }
            ToLcore::Close { connection, reason } => {
                let Some(at) = self.find(connection, State::Open) else { return };
                self.begin_close(at, ConnectionChange::Closed { reason }, sinks);
            }
            ToLcore::Force { connection } => {
                // No more than there are places: a connection released meanwhile leaves the list.
                let slots = &self.slots;
                let closes = |one: ConnectionId| slot_of(slots, one).is_some_and(|slot| slot.state == State::Closing);
                self.forced.retain(|forced| closes(*forced));
                self.forced.extend(Some(connection).filter(|connection| closes(*connection)));
            }
        }
    }

    #[inline]
    pub(super) fn find(&self, connection: ConnectionId, state: State) -> Option<usize> {
        slot_of(&self.slots, connection).filter(|slot| slot.state == state).map(|_| connection.slot())
    }

    /// The device reports that a queue pair has failed, e.g. since its peer reached for memory that
    /// is not its own. Posted work need not complete for that.
    pub(crate) fn qp_failed(&mut self, qpn: u32, event: &'static str, sinks: &mut [Sink]) {
        if let Some(connection) = self.look_again(qpn, sinks) {
            self.fail(connection.slot(), event, sinks);
        }
    }

    /// Handles a failure of a connection, which may not be open yet.
    pub(super) fn fail(&mut self, at: usize, reason: &'static str, sinks: &mut [Sink]) {
        let slot = &mut self.slots[at];
        match (slot.state, slot.connection) {
            (State::Expected, _) => slot.failed_early = Some(reason),
            (State::Open, Some(connection)) => {
                tracing::debug!(port = %self.name, %connection, %reason, "a connection failed");
                self.mailbox.tell_cm(ToCm::Over { connection, down_reason: DownReason::LOST.number() });
                self.begin_close(at, ConnectionChange::Failed { reason }, sinks);
            }
            _ => {}
        }
    }

    /// Handles a completion with an error status. A closing connection is being flushed, and
    /// ignores it.
    pub(super) fn failed_with(&mut self, at: usize, status: Status, sinks: &mut [Sink]) {
        if self.slots[at].state != State::Closing {
            self.stats.count_status(status);
        }
        self.fail(at, status.name(), sinks);
    }

    /// Closes connections for stages.
    pub(crate) fn close_asked(&mut self, sinks: &mut [Sink]) {
        while let Some(connection) = self.closes.pop() {
            if let Some(at) = self.open_slot(connection) {
                self.mailbox.tell_cm(ToCm::Over { connection, down_reason: 0 });
                self.begin_close(at, ConnectionChange::Closed { reason: CLOSED_HERE }, sinks);
            }
        }
    }

    /// Begins to close an open connection.
    pub(super) fn begin_close(&mut self, at: usize, over: ConnectionChange, sinks: &mut [Sink]) {
        let slot = &mut self.slots[at];
        slot.over = Some(over);
        self.open.swap_remove(slot.open_at);
        if let Some(moved) = self.open.get(slot.open_at) {
            self.slots[usize::from(*moved)].open_at = self.slots[at].open_at;
        }
        self.starve(at);
        self.start_release(at, sinks);
    }

    /// Brings a queue pair to ERR: all posted work requests complete, after those that have
    /// completed already.
    fn start_release(&mut self, at: usize, sinks: &mut [Sink]) {
        let slot = &mut self.slots[at];
        slot.state = State::Closing;
        let Some(qp) = &mut slot.qp else { return };
        let before = qp.sends_outstanding();
        qp.start_drain(&self.name);
        let after = qp.sends_outstanding();
        if let Some(sending) = &mut self.sending {
            match sending.half.operations(sinks) {
                None => sending.changed(before, after),
                Some((queue, _)) => slot.connection.into_iter().for_each(|connection| queue.close(connection)),
            }
        }
        self.gauge_sends();
        self.release_if_drained(at, sinks);
    }

    pub(super) fn release_if_drained(&mut self, at: usize, sinks: &mut [Sink]) {
        let slot = &self.slots[at];
        if slot.state == State::Closing && slot.qp.as_ref().is_some_and(|qp| qp.is_drained()) {
            self.release(at, sinks);
        }
    }

    /// Returns a queue pair to the cm thread, and frees its slot. Work requests that never
    /// completed go with it.
    fn release(&mut self, at: usize, sinks: &mut [Sink]) {
        let slot = mem::take(&mut self.slots[at]);
        self.by_qpn.remove(slot.qpn);
        let (Some(connection), Some(qp)) = (slot.connection, slot.qp) else { return };
        if let Some(sending) = &mut self.sending {
            let unanswered = match sending.half.operations(sinks) {
                None => qp.sends_outstanding(),
                Some((queue, _)) => {
                    queue.lose_posted(at);
                    qp.sends
                }
            };
            sending.changed(unanswered, 0);
            let lost = qp.lost_sends(sending.half.operates);
            self.stats.drops.add(DropReason::SendError, lost as u64);
        }
        self.gauge_sends();
        self.forget_receives(qp.recvs_outstanding());
        self.mailbox.tell_cm(ToCm::Released { connection, qp });
        let Some(over) = slot.over else {
            // The stages have not heard of it, and never will.
            let lost = self.take_early(connection, usize::MAX, drop);
            return self.stats.drops.add(DropReason::NoConnection, lost as u64);
        };
        // Until here it counts as open: every opened connection is over or open, whenever the run
        // ends.
        self.counts.open.set(self.counts.open.value().saturating_sub(1));
        match over {
            ConnectionChange::Failed { .. } => self.counts.failed.add(1),
            _ => self.counts.closed.add(1),
        }
        self.changes.ended(connection, over, slot.peer);
        self.mailbox.call_again();
    }
}
