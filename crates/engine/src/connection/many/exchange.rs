//! Messages between a port with many connections and the thread that makes them.
//!
//! ```text
//!   host                                          lcore
//!   makes a queue pair ── Expect ───────────────▶ knows its number; keeps what it receives
//!   is connected       ── Open ─────────────────▶ sends and receives by it
//!   (or gives up       ── Forget ───────────────▶ brings it to ERR)
//!   hears of the end   ── Close ────────────────▶ brings it to ERR
//!                      ◀───────────────── Over ── a completion failed, or a stage closes it
//!                      ◀───────────── Released ── its completions have come
//!   destroys it, and uses the slot again
//!   waits in vain      ── Force ────────────────▶ releases it as it is
//! ```
//!
//! Guarantees: nothing is allocated on the lcore, since a slot has at most one of each message
//! under way; the lcore is told by one notice, however many messages there are, and takes a few of
//! them a turn. [`Mailbox`] says the rest.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, MutexGuard};

use verbline_mem::ConnectionId;

use crate::connection::acceptor::ConnectionPeer;
use crate::connection::mailbox::Mailbox;
use crate::connection::port_qp::PortQp;
use crate::control::run_control::{Control, LcoreInbox};

/// The most messages that an lcore takes a turn: the other ports' packets wait meanwhile.
pub(crate) const TAKEN_MAX: usize = 16;
/// Kinds of messages to the lcore, and to the host.
const KINDS: usize = 5;

/// From the host to the lcore.
#[derive(Debug)]
pub(crate) enum ToLcore {
    /// A queue pair of this number is about to be connected: it may receive before it is open.
    Expect { connection: ConnectionId, qpn: u32 },
    /// It is connected.
    Open { connection: ConnectionId, qp: Box<PortQp>, peer: Box<ConnectionPeer> },
    /// It will not be connected. Its peer may have sent something all the same, which would vanish
    /// with the queue pair. So it is released as an open one is.
    Forget { connection: ConnectionId, qp: Box<PortQp> },
    /// The connection is over.
    Close { connection: ConnectionId, reason: &'static str },
    /// Its completions do not come.
    Force { connection: ConnectionId },
}

/// From the lcore to the host.
#[derive(Debug)]
pub(crate) enum ToHost {
    /// The connection is over.
    Over { connection: ConnectionId },
    /// Nothing of the queue pair is outstanding, or was waited for in vain. What the host has
    /// allocated it frees.
    Released { connection: ConnectionId, qp: Box<PortQp>, peer: Option<Box<ConnectionPeer>> },
}

/// Shared by a port and its host.
#[derive(Debug)]
pub(crate) struct Exchange(Mailbox<Boxes>);

#[derive(Debug)]
struct Boxes {
    for_lcore: VecDeque<ToLcore>,
    for_host: Vec<ToHost>,
    /// The lcore has a notice that it has not acted on.
    announced: bool,
}

impl Exchange {
    pub(crate) fn new(inbox: LcoreInbox, place: usize, connections: usize) -> io::Result<Exchange> {
        let boxes = Boxes {
            for_lcore: VecDeque::with_capacity(connections * KINDS),
            for_host: Vec::with_capacity(connections * 2),
            announced: false,
        };
        Ok(Exchange(Mailbox::new(boxes, inbox, place)?))
    }

    /// The host: tells the lcore.
    pub(crate) fn tell_lcore(&self, message: ToLcore) {
        let mut boxes = self.0.lock();
        boxes.for_lcore.push_back(message);
        self.announce(boxes);
    }

    /// The lcore: acts on its notice. Another one comes if it is to act again.
    pub(crate) fn heard(&self) {
        self.0.lock().announced = false;
    }

    /// The lcore: wants another notice, for the next turn.
    pub(crate) fn call_again(&self) {
        self.announce(self.0.lock());
    }

    /// Posts a notice, unless there is one. So the lcore acts once a turn.
    fn announce(&self, mut boxes: MutexGuard<'_, Boxes>) {
        let is_first = !std::mem::replace(&mut boxes.announced, true);
        drop(boxes);
        if is_first {
            self.0.call_lcore();
        }
    }

    /// The lcore: takes some messages, in order; another notice comes if there are more.
    pub(crate) fn take_for_lcore(&self, taken: &mut Vec<ToLcore>) {
        let mut boxes = self.0.lock();
        let count = boxes.for_lcore.len().min(TAKEN_MAX);
        taken.extend(boxes.for_lcore.drain(..count));
        if !boxes.for_lcore.is_empty() {
            self.announce(boxes);
        }
    }

    /// The lcore: tells the host.
    pub(crate) fn tell_host(&self, message: ToHost) {
        self.0.lock().for_host.push(message);
        self.0.call_thread();
    }

    /// The host: takes all messages, into an empty vector of the same room.
    pub(crate) fn take_for_host(&self, taken: &mut Vec<ToHost>) {
        self.0.heard();
        std::mem::swap(&mut self.0.lock().for_host, taken);
    }

    /// How many connections opened that the lcore has not heard of.
    pub(crate) fn unheard(&self) -> usize {
        self.0.lock().for_lcore.iter().filter(|message| matches!(message, ToLcore::Open { .. })).count()
    }

    /// What ends the run.
    pub(crate) fn control(&self) -> Arc<Control> {
        Arc::clone(&self.0.inbox.control)
    }
}

impl AsFd for Exchange {
    /// Readable when the lcore has said something.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
