//! The expected behaviour and counters of a port with many connections: an oracle that knows the cm
//! thread's messages, the stages' packets, the device's script and the polled completions.

mod changes;
mod receiving;
mod sending;

use std::collections::VecDeque;

use verbline_mem::ConnectionId;
use verbline_verbs::Status;

use super::PORT;
use crate::connection::event::ConnectionChange;
use crate::rig::Depths;
use crate::rig::figures::{Device, Figures};
use crate::stats::clock::Tick;
use crate::stats::drop_reason::DropReason;

/// The settings of the port.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    /// The most connections at once.
    pub(super) connections: usize,
    /// They receive from one shared queue.
    pub(super) shares: bool,
    /// Whether it sends.
    pub(super) sends: bool,
    /// The depths of one connection's queues, or of the shared one.
    pub(super) depths: Depths,
    /// The sends of all connections that may be outstanding.
    pub(super) most_wr: usize,
    pub(super) burst: usize,
    /// The packets of the pool, and of the lcore's cache of it.
    pub(super) packets: u32,
    pub(super) cache: usize,
    /// Whether a stage is behind it.
    pub(super) feeds: bool,
    /// The room in the stage's input, and in the port's.
    pub(super) room: [usize; 2],
    /// Packets that name no connection go to each in turn.
    pub(super) any: bool,
    pub(super) timestamps: bool,
    pub(super) immediates: bool,
}

/// A completion that is not polled yet.
#[derive(Clone, Copy, Debug)]
pub(super) enum Word {
    Received(u32),
    RecvFailed(Status),
    /// The oldest sends are done: this many.
    Sent(usize),
    SendFailed(Status, usize),
    Stale,
}

/// A message of the cm thread that the port has not read yet.
#[derive(Clone, Copy, Debug)]
pub(super) enum Message {
    Expect(ConnectionId, u32),
    Open(ConnectionId),
    Forget(ConnectionId),
    Close(ConnectionId, &'static str),
    Force(ConnectionId),
}

/// A message of the port to its cm thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Over(ConnectionId),
    Released(ConnectionId, u32),
    /// The peer, by its tag, of a connection that the stages know to be over.
    Told(u64),
}

/// A call of the device: the queue pair (0: the shared queue), whether it is a send, and the work
/// requests taken: whether each is signaled, and its length.
pub(super) type Call = (u32, bool, Vec<(bool, u32)>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Expected,
    Open,
    Closing,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) id: ConnectionId,
    pub(super) qpn: u32,
    pub(super) phase: Phase,
    was_open: bool,
    is_told: bool,
    failed_early: Option<&'static str>,
    over: Option<ConnectionChange>,
    /// The sends posted and not known to be done: whether each is signaled. The marker is one of
    /// them.
    pub(super) sends: VecDeque<bool>,
    until_signal: u32,
    ended: bool,
    marked: bool,
    /// The place among its sends of the marker behind sends that were not signaled as the drain
    /// began.
    end_marker: Option<usize>,
    /// The receives of its own queue: posted, and short of the depth.
    pub(super) recvs: usize,
    missing: usize,
}

/// A packet that a stage gets: its connection, its length, and its time.
pub(super) type Handed = (Option<ConnectionId>, usize, u64);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) opened: u64,
    pub(super) closed: u64,
    pub(super) failed: u64,
    pub(super) open: u64,
    pub(super) open_max: u64,
}

/// The expected state of the port.
#[derive(Debug)]
pub(super) struct Oracle {
    pub(super) shape: Shape,
    pub(super) device: Device,
    pub(super) now_ns: Tick,
    pub(super) draining: bool,
    pub(super) peers: Vec<Option<Peer>>,
    /// The places of open connections: a packet that names none goes to each in turn. The last
    /// connection takes the turn of one that ends.
    pub(super) open: Vec<usize>,
    turn: usize,
    pub(super) inbox: VecDeque<Message>,
    pub(super) changes: VecDeque<(ConnectionId, ConnectionChange)>,
    pub(super) closes: Vec<ConnectionId>,
    pub(super) forced: Vec<ConnectionId>,
    pub(super) answers: Vec<Answer>,
    /// The packets in the port's sink.
    pending: VecDeque<(Option<ConnectionId>, u32)>,
    pub(super) calls: Vec<Call>,
    /// The receives of the shared queue: posted and not polled yet, and short of the depth.
    recvs: usize,
    missing: usize,
    /// Packets on their way into a receive queue.
    refill: usize,
    /// Packets of connections that the stages do not know.
    early: Vec<Handed>,
    pub(super) opening: Option<ConnectionId>,
    /// The places whose own queues are to be filled, first come, first served.
    hungry: Vec<usize>,
    retry_ns: Option<Tick>,
    pub(super) stage: Vec<Handed>,
    pub(super) stage_full: u64,
    pub(super) figures: Figures,
    pub(super) counts: Counts,
    pub(super) taken: u64,
}

impl Oracle {
    pub(super) fn new(shape: &Shape, device: Device) -> Oracle {
        Oracle {
            shape: shape.clone(),
            device,
            now_ns: Tick::default(),
            draining: false,
            peers: (0..shape.connections).map(|_| None).collect(),
            open: Vec::new(),
            turn: 0,
            inbox: VecDeque::new(),
            changes: VecDeque::new(),
            closes: Vec::new(),
            forced: Vec::new(),
            answers: Vec::new(),
            pending: VecDeque::new(),
            calls: Vec::new(),
            recvs: 0,
            missing: if shape.shares { shape.depths.rx_wr as usize } else { 0 },
            refill: 0,
            early: Vec::new(),
            opening: None,
            hungry: Vec::new(),
            retry_ns: None,
            stage: Vec::new(),
            stage_full: 0,
            figures: Figures::default(),
            counts: Counts::default(),
            taken: 0,
        }
    }

    /// Returns the place of the connection with this queue pair, as far as the port knows.
    pub(super) fn place_of(&self, qpn: u32) -> Option<usize> {
        self.peers.iter().position(|peer| peer.as_ref().is_some_and(|peer| peer.qpn == qpn))
    }

    fn peer(&mut self, at: usize) -> &mut Peer {
        self.peers[at].as_mut().expect("somebody is there")
    }

    fn is_closing(&self, at: usize) -> bool {
        self.peers[at].as_ref().is_some_and(|peer| peer.phase == Phase::Closing)
    }

    /// Returns the place of a connection, if it is in this phase.
    fn find(&self, id: ConnectionId, phase: Phase) -> Option<usize> {
        let peer = self.peers.get(id.slot())?.as_ref()?;
        (peer.id == id && peer.phase == phase).then_some(id.slot())
    }

    /// Whether the port can name a connection's peer: until the stages know that it is over.
    pub(super) fn knows(&self, id: ConnectionId) -> bool {
        let untold = self.changes.iter().any(|(over, change)| *over == id && *change != ConnectionChange::Opened);
        untold || self.peers[id.slot()].as_ref().is_some_and(|peer| peer.id == id && peer.was_open)
    }

    pub(super) fn offer(&mut self, to: Option<ConnectionId>, len: u32) {
        match self.pending.len() < self.shape.room[PORT] {
            true => self.pending.push_back((to, len)),
            false => self.figures.drop_some(DropReason::TxFull, 1),
        }
    }

    /// A stage closes a connection. Returns true if it is open.
    pub(super) fn close(&mut self, id: ConnectionId) -> bool {
        let is_open = self.find(id, Phase::Open).is_some();
        if is_open && !self.closes.contains(&id) {
            self.closes.push(id);
        }
        is_open
    }

    /// Handles a polled completion.
    pub(super) fn hear(&mut self, qpn: u32, word: Word) {
        match word {
            Word::Received(len) => self.received(qpn, len),
            Word::RecvFailed(status) => self.recv_failed(qpn, status),
            Word::Sent(covered) => self.sent(qpn, Status::SUCCESS, covered),
            Word::SendFailed(status, covered) => self.sent(qpn, status, covered),
            Word::Stale => self.figures.stale += 1,
        }
    }

    /// Does the port's work at the end of a turn, with `free` packets in the pool. Returns true if
    /// it has work in the next turn as well.
    pub(super) fn work(&mut self, free: usize) -> bool {
        let (flushed, freed) = self.flush();
        let closed = !self.closes.is_empty();
        while let Some(id) = self.closes.pop() {
            if let Some(at) = self.find(id, Phase::Open) {
                self.answers.push(Answer::Over(id));
                self.end(at, ConnectionChange::Closed { reason: super::CLOSED_HERE });
            }
        }
        flushed | closed | self.refill_if_due(free + freed)
    }

    /// Whether the lcore has to read the port's messages.
    pub(super) fn has_news(&self) -> bool {
        !self.inbox.is_empty() || !self.forced.is_empty() || !self.changes.is_empty() || self.opening.is_some()
    }

    pub(super) fn is_settled(&self) -> bool {
        let is_fed = self.missing < self.worth() && self.hungry.is_empty();
        self.pending.is_empty() && self.retry_ns.is_none() && is_fed
    }

    /// Ends the run: counts packets that nobody got.
    pub(super) fn stop(&mut self) {
        self.figures.drop_some(DropReason::Stopped, self.early.len() + self.unanswered());
    }
}
