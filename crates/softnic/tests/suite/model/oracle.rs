//! The expected behaviour of the software RNIC: queues of numbers, and each one's completion.
//! `carry_out` carries out the work requests.
//!
//! The oracle has no rings, credits, slots, mailboxes, tags or paths. A work request is carried out
//! at once if possible; otherwise it stays the first of its queue. Nothing depends on time:
//! `rnr_retry` is 7 and there is no time-out.

mod carry_out;

use crate::harness::{FLUSHED, SUCCESS};
use crate::model::steps::*;
use std::collections::VecDeque;

/// Slots of each queue.
pub(crate) const DEPTH: usize = 6;
/// The bytes of the n-th message or receive lie at its place, modulo this number.
pub(crate) const BUFFERS: u64 = 64;
/// Bytes before a datagram.
pub(crate) const GRH_BYTES: usize = 40;
/// Places for the results of READs and atomics, modulo.
pub(crate) const FETCHES: u64 = 16;

/// A queue pair: its end, and its number among those of the end.
pub(crate) type Name = (usize, u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Gone,
    Reset,
    Init,
    Rtr,
    Rts,
    Sqd,
    Sqe,
    Err,
}

/// The key of an end's window: the window's number at the end, and its number of binds.
pub(crate) type Key = (u32, u32);

/// A window on an end's memory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Window {
    pub(crate) key: Key,
    bound: Option<Name>,
}

impl Window {
    /// Whether this key opens it to the peer of that queue pair.
    fn is_open(&self, key: Key, name: Name) -> bool {
        self.key == key && self.bound == Some(name)
    }

    /// Closes it, if this key opens it.
    fn invalidate(&mut self, key: Key, name: Name) -> bool {
        let open = self.is_open(key, name);
        if open {
            self.bound = None;
        }
        open
    }
}

/// A posted send.
#[derive(Clone, Copy, Debug)]
struct Sent {
    /// The number of its bytes and its `wr_id`.
    number: u64,
    /// Its position in the queue, which its completion frees.
    position: u64,
    work: Work,
    flaw: Flaw,
    signaled: bool,
    to: Name,
    /// Its window: the end, and the key at the post.
    window: (usize, Key),
}

/// A message that arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    pub(crate) from: Name,
    pub(crate) number: u64,
    pub(crate) len: usize,
    pub(crate) imm: bool,
    /// The key that it invalidated.
    pub(crate) voided: Option<(usize, Key)>,
    /// Whether its bytes were written elsewhere than into the receive.
    pub(crate) written: bool,
}

/// The completion of a send: `wr_id`, status, kind of work, and the position up to which it frees
/// the queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendDue {
    pub(crate) number: u64,
    pub(crate) status: u32,
    pub(crate) work: Work,
    frees: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct RecvDue {
    pub(crate) number: u64,
    pub(crate) status: u32,
    pub(crate) message: Option<Message>,
    /// The number of the queue pair that had taken this shared receive when it was reset or
    /// destroyed.
    pub(crate) left_by: Option<u32>,
}

impl RecvDue {
    fn new(number: u64, status: u32, message: Option<Message>) -> RecvDue {
        RecvDue { number, status, message, left_by: None }
    }
}

#[derive(Debug)]
pub(crate) struct End {
    pub(crate) name: Name,
    pub(crate) state: State,
    /// The connected peer.
    peer: Option<Name>,
    pending: VecDeque<Sent>,
    /// In SQD: the first pending one was begun before.
    draining: bool,
    /// RC counts messages: whether this end has sent, and got, the first one.
    sent_any: bool,
    got_any: bool,
    posted: u64,
    freed: u64,
    pub(crate) send_due: VecDeque<SendDue>,
    pub(crate) recv_due: VecDeque<RecvDue>,
    /// Counts across resets: numbers the buffers.
    pub(crate) sends_ever: u64,
}

impl End {
    fn new(end: usize) -> End {
        End {
            name: (end, 0),
            state: State::Reset,
            peer: None,
            pending: VecDeque::new(),
            draining: false,
            sent_any: false,
            got_any: false,
            posted: 0,
            freed: 0,
            send_due: VecDeque::new(),
            recv_due: VecDeque::new(),
            sends_ever: 0,
        }
    }

    fn receives_messages(&self) -> bool {
        matches!(self.state, State::Rtr | State::Rts | State::Sqd | State::Sqe)
    }

    /// Flushes its pending sends.
    fn flush_sends(&mut self) {
        self.draining = false;
        for sent in std::mem::take(&mut self.pending) {
            self.complete(sent, FLUSHED);
        }
    }

    fn complete(&mut self, sent: Sent, status: u32) {
        if status != SUCCESS || sent.signaled {
            let Sent { number, position, work, .. } = sent;
            self.send_due.push_back(SendDue { number, status, work, frees: position + 1 });
        }
    }
}

/// A queue of receives: an end's own, or shared by two ends.
#[derive(Debug, Default)]
pub(crate) struct Receives {
    posted: VecDeque<(u64, usize)>,
    /// Posted receives, and those with unpolled completions.
    outstanding: usize,
    pub(crate) ever: u64,
    /// If shared: senders that found no receive, in the order of service.
    waiting: Vec<Name>,
}

pub(crate) struct Oracle {
    pub(crate) transport: Transport,
    shared: bool,
    pub(crate) ends: [End; ENDS],
    pub(crate) receives: [Receives; ENDS],
    pub(crate) windows: [Window; ENDS],
    /// For each end, the memory that peers reach, and the results of its READs and atomics.
    pub(crate) exposed: [Vec<u8>; ENDS],
    pub(crate) fetched: [Vec<u8>; ENDS],
    /// Queue pairs broken by the work request just carried out.
    broken: Vec<usize>,
}

impl Oracle {
    pub(crate) fn new(transport: Transport, shared: bool) -> Oracle {
        Oracle {
            transport,
            shared,
            ends: std::array::from_fn(End::new),
            receives: Default::default(),
            windows: Default::default(),
            exposed: std::array::from_fn(|_| vec![0; EXPOSED_BYTES]),
            fetched: std::array::from_fn(|_| vec![0; READ_BYTES * FETCHES as usize]),
            broken: Vec::new(),
        }
    }

    /// The queue of receives that an end consumes.
    pub(crate) fn queue_of(&self, end: usize) -> usize {
        if self.shared { end % 2 } else { end }
    }

    /// The expected answer to a list: an `errno` and the number of accepted work requests.
    pub(crate) fn post_send(&mut self, post: &Post) -> Result<(), (i32, usize)> {
        let end = post.end;
        if matches!(self.ends[end].state, State::Reset | State::Init | State::Rtr) {
            return Err((libc::EINVAL, 0));
        }
        // A post tries the waiting one again, also when there is no room for more.
        self.carry_out(end);
        let to = self.ends[post.to].name;
        let keys = self.windows.map(|window| window.key);
        for (index, (work, flaw)) in post.works.iter().enumerate() {
            let this = &mut self.ends[end];
            if this.posted - this.freed == DEPTH as u64 {
                return Err((libc::ENOMEM, index));
            }
            let number = this.sends_ever;
            let signaled = number.is_multiple_of(post.signal_every);
            let window = work.window_of(end).map_or((end, Key::default()), |of| (of, keys[of]));
            let sent = Sent { number, position: this.posted, work: *work, flaw: *flaw, signaled, to, window };
            this.posted += 1;
            this.sends_ever += 1;
            if matches!(this.state, State::Err | State::Sqe) {
                this.complete(sent, FLUSHED);
            } else {
                this.pending.push_back(sent);
                self.carry_out(end);
            }
        }
        Ok(())
    }

    pub(crate) fn post_recv(&mut self, end: usize, len: usize) -> i32 {
        let queue = self.queue_of(end);
        if !self.shared && self.ends[end].state == State::Reset {
            return libc::EINVAL;
        }
        let receives = &mut self.receives[queue];
        if receives.outstanding == DEPTH {
            return libc::ENOMEM;
        }
        let number = receives.ever;
        receives.ever += 1;
        receives.outstanding += 1;
        if !self.shared && self.ends[end].state == State::Err {
            self.ends[end].recv_due.push_back(RecvDue::new(number, FLUSHED, None));
            return 0;
        }
        receives.posted.push_back((number, len));
        let served =
            if self.shared { std::mem::take(&mut receives.waiting) } else { self.ends[end].peer.into_iter().collect() };
        let first = served.first().copied();
        served.into_iter().for_each(|name| self.start(name));
        // The sender that was served first waits behind the others.
        let waiting = &mut self.receives[queue].waiting;
        if self.shared && first.is_some() && waiting.first().copied() == first {
            waiting.rotate_left(1);
        }
        0
    }

    pub(crate) fn poll_send(&mut self, end: usize) -> Option<SendDue> {
        // A poll tries the waiting one again. A window may be void by now, with no receive posted.
        self.carry_out(end);
        let due = self.ends[end].send_due.pop_front()?;
        self.ends[end].freed = due.frees;
        Some(due)
    }

    /// The next completion. Receives left behind at the same time come in no order: of these, the
    /// one of that number.
    pub(crate) fn poll_recv(&mut self, end: usize, number: u64) -> Option<RecvDue> {
        let due = &mut self.ends[end].recv_due;
        if due.front()?.left_by.is_some() {
            let at = due.iter().take_while(|due| due.left_by.is_some()).position(|due| due.number == number)?;
            return due.remove(at);
        }
        let due = due.pop_front()?;
        let queue = self.queue_of(end);
        self.receives[queue].outstanding -= 1;
        Some(due)
    }

    /// The next state towards RTS, if there is one.
    pub(crate) fn up(&mut self, end: usize) -> Option<State> {
        let peer = self.ends[end ^ 1].name;
        let this = &mut self.ends[end];
        this.state = match this.state {
            State::Reset => State::Init,
            State::Init => {
                this.peer = (self.transport != Transport::Ud).then_some(peer);
                State::Rtr
            }
            State::Rtr | State::Sqd | State::Sqe => State::Rts,
            State::Rts | State::Err | State::Gone => return None,
        };
        this.draining = false;
        let (name, peer, state) = (this.name, this.peer, this.state);
        match state {
            State::Rtr => peer.into_iter().for_each(|peer| self.start(peer)),
            State::Rts => self.start(name),
            _ => {}
        }
        Some(state)
    }

    /// RTS to SQD; false if it isn't in RTS.
    pub(crate) fn drain(&mut self, end: usize) -> bool {
        let this = &mut self.ends[end];
        if this.state != State::Rts {
            return false;
        }
        this.state = State::Sqd;
        this.draining = !this.pending.is_empty();
        true
    }

    /// Flushes everything posted.
    pub(crate) fn fail(&mut self, end: usize) {
        let this = &mut self.ends[end];
        this.state = State::Err;
        this.flush_sends();
        if !self.shared {
            for (number, _) in std::mem::take(&mut self.receives[end].posted) {
                this.recv_due.push_back(RecvDue::new(number, FLUSHED, None));
            }
        }
    }

    /// Resets the end. Shared receives that it took and that nobody polled return to the queue, and
    /// the next poll reports them as flushed.
    pub(crate) fn reset(&mut self, end: usize, state: State, qp_num: u32) {
        let queue = self.queue_of(end);
        let this = &mut self.ends[end];
        let receives = &mut self.receives[queue];
        let mut recv_due = VecDeque::new();
        if self.shared {
            for due in std::mem::take(&mut this.recv_due) {
                let is_new = due.left_by.is_none();
                receives.outstanding -= usize::from(is_new);
                let left = RecvDue { left_by: Some(qp_num), ..RecvDue::new(due.number, FLUSHED, None) };
                recv_due.push_back(if is_new { left } else { due });
            }
        } else {
            *receives = Receives { ever: receives.ever, ..Receives::default() };
        }
        let (name, sends_ever) = (this.name, this.sends_ever);
        *this = End { name, state, sends_ever, recv_due, ..End::new(end) };
    }

    /// Another queue pair, with another window.
    pub(crate) fn create(&mut self, end: usize) {
        let this = &mut self.ends[end];
        this.name.1 += 1;
        this.state = State::Reset;
        self.windows[end] = Window { key: (this.name.1, 0), bound: None };
    }
}
