//! How connections open and end.

use std::collections::VecDeque;

use verbline_mem::ConnectionId;

use super::{Answer, Message, Oracle, Peer, Phase};
use crate::connection::cm_mailbox::TAKEN_MAX;
use crate::connection::event::ConnectionChange;
use crate::stats::drop_reason::DropReason;

impl Oracle {
    /// The port reads its cm thread's messages. Returns true if there were any. Connections that
    /// the cm thread no longer waits for are released once a poll has emptied the queue, the last
    /// first.
    pub(in super::super) fn take_messages(&mut self, is_emptied: bool) -> bool {
        while is_emptied && let Some(id) = self.forced.pop() {
            self.find(id, Phase::Closing).into_iter().for_each(|at| self.release(at));
        }
        let count = self.inbox.len().min(TAKEN_MAX);
        let messages: Vec<_> = self.inbox.drain(..count).collect();
        messages.into_iter().for_each(|message| self.take(message));
        count > 0
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Expect(id, qpn) => {
                self.peers[id.slot()] = Some(Peer {
                    id,
                    qpn,
                    phase: Phase::Expected,
                    was_open: false,
                    is_told: false,
                    failed_early: None,
                    over: None,
                    sends: VecDeque::new(),
                    until_signal: self.shape.depths.signal_every_wr,
                    ended: false,
                    marked: false,
                    end_marker: None,
                    recvs: 0,
                    missing: 0,
                });
            }
            Message::Open(id) => self.find(id, Phase::Expected).into_iter().for_each(|at| self.opens(at)),
            Message::Forget(id) => self.find(id, Phase::Expected).into_iter().for_each(|at| self.let_go(at)),
            Message::Close(id, reason) => {
                let at = self.find(id, Phase::Open);
                at.into_iter().for_each(|at| self.end(at, ConnectionChange::Closed { reason }));
            }
            Message::Force(id) => {
                let mut forced = std::mem::take(&mut self.forced);
                forced.push(id);
                forced.retain(|id| self.find(*id, Phase::Closing).is_some());
                self.forced = forced;
            }
        }
    }

    fn opens(&mut self, at: usize) {
        let own = if self.shape.shares { 0 } else { self.shape.depths.rx_wr as usize };
        let peer = self.peer(at);
        (peer.phase, peer.was_open, peer.missing) = (Phase::Open, true, own);
        let (id, failed_early) = (peer.id, peer.failed_early);
        self.open.push(at);
        if own > 0 {
            self.hungry.push(at);
        }
        self.counts.opened += 1;
        self.counts.open += 1;
        self.counts.open_max = self.counts.open_max.max(self.counts.open);
        self.changes.push_back((id, ConnectionChange::Opened));
        if let Some(reason) = failed_early {
            self.fail(at, reason);
        }
    }

    /// Looks up the connection of an unknown queue pair: the port reads its cm thread's messages.
    pub(super) fn look_again(&mut self, qpn: u32) -> Option<usize> {
        while self.place_of(qpn).is_none() && self.take_messages(false) {}
        self.place_of(qpn)
    }

    /// The device reports that a queue pair has failed.
    pub(in super::super) fn qp_failed(&mut self, qpn: u32, event: &'static str) {
        if let Some(at) = self.look_again(qpn) {
            self.fail(at, event);
        }
    }

    pub(super) fn fail(&mut self, at: usize, reason: &'static str) {
        let peer = self.peer(at);
        let id = peer.id;
        match peer.phase {
            Phase::Expected => peer.failed_early = Some(reason),
            Phase::Open => {
                self.answers.push(Answer::Over(id));
                self.end(at, ConnectionChange::Failed { reason });
            }
            Phase::Closing => {}
        }
    }

    /// Ends an open connection.
    pub(super) fn end(&mut self, at: usize, over: ConnectionChange) {
        self.peer(at).over = Some(over);
        let place = self.open.iter().position(|open| *open == at).expect("it is open");
        self.open.swap_remove(place);
        self.hungry.retain(|hungry| *hungry != at);
        self.let_go(at);
    }

    /// Brings its queue pair to ERR, with a marker behind its sends.
    fn let_go(&mut self, at: usize) {
        let shares = self.shape.shares;
        let peer = self.peers[at].as_mut().expect("somebody is there");
        peer.phase = Phase::Closing;
        if shares || !peer.sends.is_empty() {
            peer.marked = self.device.take(1) == 1;
            self.calls.push((peer.qpn, true, if peer.marked { vec![(true, 0)] } else { Vec::new() }));
            peer.sends.extend(peer.marked.then_some(true));
        }
        self.gauge_sends();
        self.release_if_drained(at);
    }

    pub(super) fn release_if_drained(&mut self, at: usize) {
        let drained = |peer: &Peer| peer.phase == Phase::Closing && peer.sends.is_empty() && peer.recvs == 0;
        if self.peers[at].as_ref().is_some_and(drained) {
            self.release(at);
        }
    }

    /// Releases a queue pair, along with work requests that never completed.
    fn release(&mut self, at: usize) {
        let peer = self.peers[at].take().expect("somebody is there");
        self.figures.drop_some(DropReason::SendError, peer.sends.len() - peer.markers());
        self.gauge_sends();
        if !self.shape.shares {
            self.gauge_recvs();
        }
        self.answers.push(Answer::Released(peer.id, peer.qpn));
        let Some(over) = peer.over else {
            // The stages never hear of it.
            let lost = self.take_early(peer.id, usize::MAX).len();
            self.figures.drop_some(DropReason::NoConnection, lost);
            return;
        };
        self.counts.open -= 1;
        match over {
            ConnectionChange::Failed { .. } => self.counts.failed += 1,
            _ => self.counts.closed += 1,
        }
        self.changes.push_back((peer.id, over));
    }

    /// The stages know of a connection: its earlier packets go on to them, and later ones at once.
    pub(in super::super) fn told_of(&mut self, id: ConnectionId) {
        match self.early.is_empty() {
            true => self.told_all_of(id),
            false => self.opening = Some(id),
        }
    }

    fn told_all_of(&mut self, id: ConnectionId) {
        if let Some(peer) = self.peers[id.slot()].as_mut().filter(|peer| peer.id == id) {
            peer.is_told = true;
        }
    }

    /// Hands on a burst of early packets. Returns true if there were any.
    pub(in super::super) fn hand_on_early(&mut self) -> bool {
        let Some(id) = self.opening else { return false };
        let handed = self.take_early(id, self.shape.burst);
        let any = !handed.is_empty();
        handed.into_iter().for_each(|handed| self.hand_to_stage(handed));
        if self.early.iter().all(|(of, ..)| *of != Some(id)) {
            self.opening = None;
            self.told_all_of(id);
        }
        any
    }
}
