//! A queue pair: its work requests, its state, and its two halves.

use crate::memory::{Owner, Sge};
use crate::schedule::sooner;
use crate::transport::configuration::{Capacity, Mtu, Peer, Receives, Receiving, Rights, Sending};
use crate::transport::counters::{Counters, Incidents};
use crate::transport::inbox::Inbox;
use crate::transport::keep_alive::KeepAlive;
use crate::transport::refusal::Refusal;
use crate::transport::requester::Requester;
use crate::transport::responder::Responder;
use crate::transport::retransmit::Stop;
use crate::transport::send_queue::SendQueue;
use crate::transport::unreliable::{UnreliableReceiver, UnreliableSender, without_invalidation};
use crate::wire::{Psn, Qpn};
use crate::work::{Completion, Operation, PostError, SendRequest, Status};

/// A queue pair. [The crate](crate) describes how to drive it.
#[derive(Debug)]
pub struct QueuePair {
    pub(crate) owner: Owner,
    pub(crate) rights: Rights,
    pub(crate) mode: Mode,
    pub(crate) state: State,
    pub(crate) sends: SendQueue,
    pub(crate) inbox: Inbox,
    pub(crate) counters: Counters,
    /// The send work request that can't be carried out, and its status: it fails once all before it
    /// are done.
    pub(crate) failing: Option<(u64, Status)>,
    /// Which half sends next.
    pub(crate) is_responders_turn: bool,
    pub(crate) held: Option<Hold>,
    /// Keep-alives of a reliable connection, if enabled.
    pub(crate) keep_alive: Option<KeepAlive>,
    fault: Option<PeerFault>,
    /// Its failure was reported.
    is_told: bool,
}

/// The transport of the queue pair, with the open halves.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "of many queue pairs most are reliable; one more miss a packet in a box")]
pub(crate) enum Mode {
    Closed,
    Rc(Peer, Responder, Option<Requester>),
    Uc(Peer, UnreliableReceiver, Option<UnreliableSender>),
    Ud { qkey: u32, mtu: Mtu, sender: Option<UnreliableSender> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Open,
    /// A send failed, and only sends do: UC and UD go on receiving.
    SendError,
    Error,
}

/// Sends that are held (verbs: SQD).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hold {
    /// The index of the first send that does not begin.
    pub(crate) from: u64,
    /// The end of all sends before it was reported.
    pub(crate) is_told: bool,
}

/// A peer's fault that ended the queue pair: verbs raise an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PeerFault {
    /// The peer used a key without the right to.
    Access,
    /// The peer's request was invalid, or not allowed.
    Request,
    /// The peer was silent for too long. This event may be the only report: there may be no work
    /// request to fail.
    Silence,
}

/// Why a queue pair can't begin to receive or to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// It receives or sends already.
    #[error("the queue pair receives or sends already; make a new one to connect anew")]
    Open,
    /// It sends by the transport by which it receives, and has to receive first.
    #[error("a queue pair sends by the transport by which it receives, and begins to receive first")]
    Transport,
    /// It has failed.
    #[error("the queue pair is in an error state; make a new one")]
    Failed,
}

impl QueuePair {
    /// Makes a queue pair that accepts receives.
    pub fn new(owner: Owner, rights: Rights, capacity: Capacity, receives: Receives) -> QueuePair {
        QueuePair {
            owner,
            rights,
            mode: Mode::Closed,
            state: State::Open,
            sends: SendQueue::new(capacity),
            inbox: Inbox::new(receives, capacity.receive_sges),
            counters: Counters::default(),
            failing: None,
            // A program that answers a message waits for its answer to leave. Nobody waits for the
            // acknowledgement.
            is_responders_turn: false,
            held: None,
            keep_alive: None,
            fault: None,
            is_told: false,
        }
    }

    /// Its number.
    pub fn qpn(&self) -> Qpn {
        self.owner.qpn
    }

    /// Its counters so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Whether the peer has answered a packet of this reliable queue pair, so that packets arrive.
    pub fn was_answered(&self) -> bool {
        let Mode::Rc(_, _, Some(requester)) = &self.mode else { return false };
        let all = self.counters.incidents();
        requester.was_acknowledged() || all.rnr_naks_received > 0 || all.sequence_naks_received > 0
    }

    /// Whether it may be that no packet of this reliable queue pair arrives at the peer: none was
    /// answered, and an answer was overdue, or the peer has repeated its first request, which was
    /// answered.
    pub fn may_be_unheard(&self) -> bool {
        let Mode::Rc(_, responder, _) = &self.mode else { return false };
        let is_in_doubt = self.counters.incidents().timeouts > 0 || responder.is_first_repeated;
        is_in_doubt && !self.was_answered()
    }

    /// Takes the incidents since the last call.
    pub(crate) fn take_incidents(&mut self) -> Option<Incidents> {
        self.counters.take_fresh()
    }

    /// Whether it has failed: all posted work requests are flushed.
    pub fn is_failed(&self) -> bool {
        self.state != State::Open
    }

    /// Whether it has failed since the last call.
    pub(crate) fn failed_just_now(&mut self) -> bool {
        self.is_failed() && !std::mem::replace(&mut self.is_told, true)
    }

    /// Allows sends again after one has failed.
    pub(crate) fn reopen(&mut self) {
        (self.state, self.is_told, self.failing) = (State::Open, false, None);
    }

    /// Takes the peer's fault that ended it, once.
    pub fn take_fault(&mut self) -> Option<PeerFault> {
        self.fault.take()
    }

    /// Begins to receive (verbs: to RTR).
    pub fn receive_from(&mut self, receiving: Receiving) -> Result<(), OpenError> {
        self.check_open(matches!(self.mode, Mode::Closed).then_some(()).ok_or(OpenError::Open))?;
        self.mode = match receiving {
            Receiving::Rc(peer, serving) => Mode::Rc(peer, Responder::new(peer.psn, peer.mtu.bytes(), serving), None),
            Receiving::Uc(peer) => Mode::Uc(peer, UnreliableReceiver::new(peer.psn, peer.mtu.bytes()), None),
            Receiving::Ud { qkey, mtu } => Mode::Ud { qkey, mtu, sender: None },
        };
        Ok(())
    }

    /// Begins to send (verbs: to RTS).
    pub fn start_sending(&mut self, sending: Sending) -> Result<(), OpenError> {
        self.check_open(Ok(()))?;
        let first_index = self.sends.front();
        match (&mut self.mode, sending) {
            (Mode::Rc(peer, _, requester @ None), Sending::Rc(psn, retries)) => {
                *requester = Some(Requester::new(psn, peer.mtu.bytes(), peer.qpn, first_index, retries));
            }
            (Mode::Uc(peer, _, sender @ None), Sending::Uc(psn)) => {
                *sender = Some(UnreliableSender::new(psn, peer.mtu.bytes()));
            }
            (Mode::Ud { mtu, sender: sender @ None, .. }, Sending::Ud(psn)) => {
                *sender = Some(UnreliableSender::new(psn, mtu.bytes()));
            }
            (Mode::Rc(_, _, Some(_)), Sending::Rc(..))
            | (Mode::Uc(_, _, Some(_)), Sending::Uc(_))
            | (Mode::Ud { sender: Some(_), .. }, Sending::Ud(_)) => return Err(OpenError::Open),
            _ => return Err(OpenError::Transport),
        }
        Ok(())
    }

    fn check_open(&self, otherwise: Result<(), OpenError>) -> Result<(), OpenError> {
        if self.is_failed() { Err(OpenError::Failed) } else { otherwise }
    }

    /// Posts a receive. On a failed queue pair it is flushed at once.
    pub fn post_receive(&mut self, id: u64, sges: &[Sge]) -> Result<(), PostError> {
        self.inbox.post(id, sges)?;
        if self.state == State::Error {
            self.inbox.flush();
        }
        Ok(())
    }

    /// Posts a send. On a failed queue pair it is flushed at once.
    pub fn post_send(&mut self, request: &SendRequest<'_>) -> Result<(), PostError> {
        let (next, mtu, len_max) = match (&mut self.mode, request.operation) {
            (Mode::Rc(_, _, Some(requester)), operation) => {
                if matches!(operation, Operation::Datagram(..)) {
                    return Err(PostError::Unsupported);
                }
                let mtu = requester.mtu();
                (&mut requester.next, mtu, u32::MAX)
            }
            (Mode::Uc(_, _, Some(sender)), operation) => {
                let is_there = match operation {
                    Operation::Send(end) => without_invalidation(end).is_some(),
                    Operation::Write(..) | Operation::Local => true,
                    Operation::Read(_) | Operation::Atomic(_) | Operation::Datagram(..) => false,
                };
                if !is_there {
                    return Err(PostError::Unsupported);
                }
                let mtu = sender.mtu();
                (&mut sender.next, mtu, u32::MAX)
            }
            (Mode::Ud { sender: Some(sender), .. }, operation) => {
                if !matches!(operation, Operation::Datagram(..)) {
                    return Err(PostError::Unsupported);
                }
                let mtu = sender.mtu();
                (&mut sender.next, mtu, mtu)
            }
            _ => return Err(PostError::NotReady),
        };
        *next = self.sends.post(request, *next, mtu, len_max)?;
        if self.is_failed() {
            self.sends.flush();
        }
        Ok(())
    }

    /// The next completion. Sends complete in the order of posting, and receives in the order of
    /// arrival; the order between sends and receives is undefined.
    pub fn poll(&mut self) -> Option<Completion> {
        self.sends.poll().or_else(|| self.inbox.poll())
    }

    /// Whether [`poll`](Self::poll) may return a completion.
    pub fn has_completions(&self) -> bool {
        self.sends.has_completions() || self.inbox.has_completions()
    }

    /// Whether all that it has to send is an acknowledgement, which may wait to leave with a
    /// message.
    pub fn owes_acknowledgement(&self) -> bool {
        matches!(&self.mode, Mode::Rc(_, responder, _) if responder.owes_acknowledgement())
    }

    /// Whether [`transmit`](Self::transmit) may return a datagram; false means that it returns
    /// nothing until something happens.
    pub(crate) fn may_transmit(&self) -> bool {
        let Mode::Rc(_, responder, requester) = &self.mode else { return true };
        responder.may_answer() || self.may_request(requester.as_ref())
    }

    /// Whether nothing but an acknowledgement may be left to send.
    pub(crate) fn only_acknowledges(&self) -> bool {
        let Mode::Rc(_, responder, requester) = &self.mode else { return false };
        responder.owes_acknowledgement() && !self.may_request(requester.as_ref())
    }

    /// Whether a reliable queue pair may have something to send that is no answer.
    fn may_request(&self, requester: Option<&Requester>) -> bool {
        requester.is_some_and(|requester| requester.may_send(&self.sends))
            || self.held.is_some()
            || self.failing.is_some()
            || self.keep_alive.as_ref().is_some_and(|keep_alive| keep_alive.asks)
    }

    /// Marks the end of a run of datagrams: the next one begins with a message.
    pub(crate) fn rest(&mut self) {
        self.is_responders_turn = false;
    }

    /// The time to call [`advance`](Self::advance), if nothing happens before.
    pub fn deadline_ns(&self) -> Option<u64> {
        match &self.mode {
            Mode::Rc(_, _, Some(requester)) if !self.is_failed() => {
                let look_ns = self.keep_alive.as_ref().map(KeepAlive::deadline_ns);
                sooner(requester.deadline_ns(&self.sends), look_ns)
            }
            _ => None,
        }
    }

    /// Enables keep-alives: from now on a silent peer of a reliable connection is asked whether it
    /// is there. If it doesn't answer, the queue pair fails.
    pub fn keep_alive(&mut self, now_ns: u64) {
        self.keep_alive = Some(KeepAlive::new(now_ns));
    }

    /// Lets time pass: retransmits requests without an answer, or gives up.
    pub fn advance(&mut self, now_ns: u64) {
        if self.is_failed() {
            return;
        }
        if let Mode::Rc(_, _, Some(requester)) = &mut self.mode {
            match requester.advance(now_ns, &self.sends) {
                Ok(true) => self.counters.note(|all| all.timeouts += 1),
                Ok(false) => {}
                Err(Stop::Fail(status)) => {
                    self.counters.note(|all| all.timeouts += 1);
                    self.fail_front(status);
                }
                Err(Stop::Discard(_)) => {}
            }
        }
        self.advance_keep_alive(now_ns);
    }

    fn advance_keep_alive(&mut self, now_ns: u64) {
        let (Mode::Rc(_, _, Some(requester)), Some(keep_alive)) = (&self.mode, &mut self.keep_alive) else { return };
        if !matches!(self.state, State::Open) {
            return;
        }
        if keep_alive.advance(now_ns, requester.is_waiting()).is_err() {
            self.counters.note(|all| all.timeouts += 1);
            self.fault = Some(PeerFault::Silence);
            self.fail();
        }
    }

    /// Fails the queue pair (verbs: to ERR): everything posted is flushed, and nothing more is
    /// sent.
    pub fn fail(&mut self) {
        self.state = State::Error;
        if let Mode::Rc(_, responder, _) = &mut self.mode {
            responder.fall_silent();
        }
        self.sends.flush();
        self.inbox.flush();
    }

    /// Fails the send at the front, and with it all sends; on a reliable connection the receives
    /// too.
    pub(crate) fn fail_front(&mut self, status: Status) {
        if self.sends.entry(self.sends.front()).is_some() {
            self.sends.complete(status);
        }
        if matches!(self.mode, Mode::Rc(..)) {
            self.fail();
        } else {
            self.state = State::SendError;
            self.sends.flush();
        }
    }

    /// Fails the send at the front if it is the one that can't be carried out.
    pub(crate) fn fail_failing(&mut self) {
        if let Some((index, status)) = self.failing
            && index == self.sends.front()
        {
            self.failing = None;
            self.fail_front(status);
        }
    }

    /// Ends the connection because of the peer's request; the responder's last packet tells the
    /// peer. `psn`: the number of the refused request, if it is not the expected one.
    pub(crate) fn refuse(&mut self, refusal: Refusal, psn: Option<Psn>) {
        match &mut self.mode {
            Mode::Rc(_, responder, _) => responder.refuse(refusal, psn),
            Mode::Uc(..) | Mode::Ud { .. } | Mode::Closed => {}
        }
        // The failure is reported again: that of the sends was less than this.
        self.is_told &= self.state != State::SendError;
        self.state = State::Error;
        self.inbox.fail(refusal.local);
        self.inbox.flush();
        self.sends.flush();
        self.fault = Some(if refusal.is_access() { PeerFault::Access } else { PeerFault::Request });
    }
}
