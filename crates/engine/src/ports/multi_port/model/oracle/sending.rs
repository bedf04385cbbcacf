//! The packets that are sent.

use std::collections::VecDeque;

use verbline_mem::ConnectionId;
use verbline_verbs::Status;

use super::{Oracle, Peer, Phase};
use crate::rig::figures::FULL;
use crate::stats::drop_reason::DropReason;

impl Oracle {
    fn outstanding(&self) -> usize {
        self.peers.iter().flatten().map(|peer| peer.sends.len()).sum()
    }

    pub(super) fn gauge_sends(&mut self) {
        self.figures.tx_outstanding = if self.shape.sends { self.outstanding() as u64 } else { 0 };
    }

    fn room(&self, at: usize) -> usize {
        let own = self.peers[at].as_ref().map_or(0, |peer| peer.sends.len());
        let all = self.shape.most_wr.saturating_sub(self.outstanding());
        (self.shape.depths.tx_wr as usize).saturating_sub(own).min(all)
    }

    /// Returns the number of packets that a connection takes now.
    pub(in super::super) fn room_to(&self, id: ConnectionId) -> usize {
        self.find(id, Phase::Open).filter(|_| self.shape.sends).map_or(0, |at| self.room(at))
    }

    /// Posts waiting packets: each stretch for one connection as one list. Returns whether there
    /// were any, and how many were dropped.
    pub(super) fn flush(&mut self) -> (bool, usize) {
        let (any, mut dropped) = (!self.pending.is_empty(), 0);
        while let Some((to, _)) = self.pending.front().copied() {
            let count = self.pending.iter().take_while(|(other, _)| *other == to).count();
            let stretch = self.pending.drain(..count).map(|(_, len)| len).collect();
            dropped += self.send(to, stretch);
        }
        self.gauge_sends();
        (any, dropped)
    }

    fn next_open(&mut self) -> Option<ConnectionId> {
        self.turn = if self.turn + 1 < self.open.len() { self.turn + 1 } else { 0 };
        let at = *self.open.get(self.turn)?;
        Some(self.peer(at).id)
    }

    fn send(&mut self, to: Option<ConnectionId>, mut stretch: VecDeque<u32>) -> usize {
        let to = if to.is_none() && self.shape.any { self.next_open() } else { to };
        let Some(at) = to.filter(|to| to.port() == super::super::PLACE).and_then(|to| self.find(to, Phase::Open))
        else {
            self.figures.drop_some(DropReason::NoConnection, stretch.len());
            return stretch.len();
        };
        let before = self.figures.drops;
        let over = stretch.len().saturating_sub(self.room(at));
        self.figures.drop_some(DropReason::TxFull, over);
        stretch.truncate(stretch.len() - over);
        while !stretch.is_empty() {
            let offered = stretch.len();
            let taken = self.device.take(offered);
            self.post(at, stretch.drain(..taken), offered);
            if stretch.is_empty() {
                break;
            }
            // A full queue takes none of the rest; otherwise the first packet is at fault.
            let (reason, count) = match self.device.errno {
                FULL => (DropReason::TxFull, stretch.len()),
                _ => (DropReason::SendError, 1),
            };
            self.figures.drop_some(reason, count);
            stretch.drain(..count);
        }
        (self.figures.drops.iter().sum::<u64>() - before.iter().sum::<u64>()) as usize
    }

    /// Begins to drain: a marker goes behind the sends of an open connection of which the last is
    /// not signaled.
    pub(in super::super) fn drain(&mut self) {
        self.draining = true;
        for at in self.open.clone() {
            let has_room = self.shape.sends && self.room(at) > 0;
            let ends = |peer: &&mut Peer| has_room && !peer.ended && !peer.sends.is_empty();
            let Some(peer) = self.peers[at].as_mut().filter(ends) else { continue };
            peer.ended = true;
            let is_taken = self.device.take(1) == 1;
            self.calls.push((peer.qpn, true, if is_taken { vec![(true, 0)] } else { Vec::new() }));
            if is_taken {
                peer.end_marker = Some(peer.sends.len());
                peer.sends.push_back(true);
                peer.until_signal = self.shape.depths.signal_every_wr;
            }
        }
        self.gauge_sends();
    }

    /// Posts the sends that the device takes of a list.
    fn post(&mut self, at: usize, taken: impl Iterator<Item = u32>, offered: usize) {
        let (draining, every) = (self.draining, self.shape.depths.signal_every_wr);
        let peer = self.peers[at].as_mut().expect("it is open");
        let mut posted = Vec::new();
        for len in taken {
            self.figures.tx_bytes += u64::from(len);
            peer.until_signal -= 1;
            let ends = draining && posted.len() + 1 == offered;
            let signaled = ends || peer.until_signal == 0;
            if signaled {
                peer.until_signal = every;
            }
            posted.push((signaled, len));
        }
        if !posted.is_empty() {
            peer.ended = draining && posted.len() == offered;
            self.figures.tx_packets += posted.len() as u64;
            self.figures.tx_posts += 1;
        }
        peer.sends.extend(posted.iter().map(|(signaled, _)| *signaled));
        let qpn = peer.qpn;
        self.calls.push((qpn, true, posted));
    }

    /// Handles a completion of a send, with the number of sends that it covers.
    pub(super) fn sent(&mut self, qpn: u32, status: Status, covered: usize) {
        let Some(at) = self.place_of(qpn) else {
            self.figures.stale += 1;
            return;
        };
        let peer = self.peer(at);
        peer.sends.drain(..covered);
        let is_end_marker = peer.end_marker == Some(covered - 1);
        peer.end_marker = peer.end_marker.and_then(|place| place.checked_sub(covered));
        let is_marker = is_end_marker || peer.marked && peer.sends.is_empty();
        self.gauge_sends();
        if !status.is_success() {
            self.figures.drop_some(DropReason::SendError, usize::from(!is_marker));
            self.figures.statuses[status.raw() as usize] += u64::from(!self.is_closing(at));
            self.fail(at, status.name());
        }
        self.release_if_drained(at);
    }

    /// Whether a send is out whose completion will surely come: the last of a list in a drain, or
    /// one of enough sends that one of them is signaled.
    pub(in super::super) fn awaits_completion(&self) -> bool {
        self.awaiting().next().is_some()
    }

    /// A connection that was open and is closing has its sends flushed, each with a completion.
    fn awaiting(&self) -> impl Iterator<Item = &Peer> {
        let every = self.shape.depths.signal_every_wr as usize;
        let surely = move |peer: &&Peer| match peer.phase {
            Phase::Open => peer.sends.len() >= if peer.ended { 1 } else { every },
            Phase::Closing => peer.over.is_some() && !peer.sends.is_empty(),
            _ => false,
        };
        self.peers.iter().flatten().filter(move |peer| self.shape.sends && surely(peer))
    }

    /// The sends whose completion a drain awaits.
    pub(super) fn unanswered(&self) -> usize {
        self.awaiting().map(|peer| peer.sends.len() - peer.markers()).sum()
    }

    /// Whether an open connection has a signaled send out, or a drain waits in vain: its marker was
    /// refused; or the sends of a closing one are flushed.
    pub(in super::super) fn asked_for_completion(&self) -> bool {
        let asked = |peer: &Peer| match peer.phase {
            Phase::Open => peer.sends.contains(&true) || peer.ended && !peer.sends.is_empty(),
            Phase::Closing => !peer.sends.is_empty(),
            _ => false,
        };
        self.peers.iter().flatten().any(asked)
    }
}

impl Peer {
    /// The markers among its sends.
    pub(super) fn markers(&self) -> usize {
        usize::from(self.marked && !self.sends.is_empty()) + usize::from(self.end_marker.is_some())
    }
}
