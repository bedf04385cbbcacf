//! Messages between a port and its connection-management thread (cm thread): a supervisor
//! ([`crate::connection::supervisor`]) if the port has one queue pair, a
//! [`crate::connection::multi_port::cm_thread`] if it has many.
//!
//! ```text
//!   cm thread                                     lcore
//!   makes a queue pair ── Expect ───────────────▶ knows its number; keeps what it receives
//!   is connected       ── Open ─────────────────▶ sends and receives by it
//!   (or gives up       ── Forget ───────────────▶ brings it to ERR)
//!   hears of the end   ── Close ────────────────▶ brings it to ERR
//!                      ◀───────────────── Over ── a completion failed, or a stage closes it
//!                      ◀────────────── Drained ── its completions have come (of one queue pair)
//!                      ◀───────────── Released ── it is the port's no more
//!   destroys it, and uses the slot again
//!                      ◀──────────────── Told ── the stages know that it is over (of many)
//!   waits in vain      ── Force ────────────────▶ takes what has come, releases it as it is
//! ```
//!
//! A port with one queue pair keeps it until it gets the next one, which is made when the old one
//! is drained: both never have work requests in the completion queue at once. The new queue pair is
//! connected, and has no receives yet, so that `Open` alone announces it. Its lcore counts by its
//! own turns how long it waits for completions: no thread forces it.
//!
//! Guarantees: nothing is allocated on the lcore, since a slot has at most one of each message
//! under way. A message names its connection, so that it is never taken for one of a later queue
//! pair. One notice tells the lcore of any number of messages, and the lcore takes a few of them
//! per turn. The hot path never looks here: the lcore takes the lock only after a notice
//! ([`crate::control::run_control`]), and every holder keeps the lock only while it moves messages.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard};

use verbline_mem::ConnectionId;

use crate::connection::acceptor::ConnectionPeer;
use crate::connection::port_qp::PortQp;
use crate::control::event_fd::EventFd;
use crate::control::notice::Notice;
use crate::control::run_control::{Control, LcoreInbox};
use crate::errors::guarded::lock;
use crate::stats::clock::Tick;

/// The most messages that an lcore takes per turn: the other ports' packets wait meanwhile.
pub(crate) const TAKEN_MAX: usize = 16;
/// Kinds of messages to the lcore, and to the cm thread.
const TO_LCORE_KINDS: usize = 5;
pub(crate) const TO_CM_KINDS: usize = 4;

/// From the cm thread to the lcore.
#[derive(Debug)]
pub(crate) enum ToLcore {
    /// A queue pair of this number is about to be connected: it may receive before it is open.
    Expect { connection: ConnectionId, qpn: u32 },
    /// It is connected. `peer` is for the stages of a port with many connections.
    Open { connection: ConnectionId, qp: Box<PortQp>, peer: Option<Box<ConnectionPeer>> },
    /// It will not be connected. Its peer may have sent packets all the same, which would vanish
    /// with the queue pair. So it is released like an open one.
    Forget { connection: ConnectionId, qp: Box<PortQp> },
    /// The connection is over.
    Close { connection: ConnectionId, reason: &'static str },
    /// Its completions do not come. The lcore first takes those that have come: it may be far
    /// behind, if it was kept from running.
    Force { connection: ConnectionId },
}

/// From the lcore to the cm thread.
#[derive(Debug)]
pub(crate) enum ToCm {
    /// The connection is over. `down_reason` is the number of the
    /// [`crate::stats::down_reason::DownReason`], 0 if a stage closed it.
    Over { connection: ConnectionId, down_reason: u64 },
    /// The port's only queue pair has nothing outstanding, or its completions were waited for in
    /// vain. The port keeps the queue pair until it has the next one.
    Drained { connection: ConnectionId },
    /// The queue pair has nothing outstanding, or its completions were waited for in vain. The cm
    /// thread frees it, which allocated it.
    Released { connection: ConnectionId, qp: Box<PortQp> },
    /// The stages of a port with many connections know that a connection is over, and no longer ask
    /// for its peer. The peer's description comes back to be freed, too.
    Told { peer: Box<ConnectionPeer> },
}

/// Shared by a port and its cm thread.
#[derive(Debug)]
pub(crate) struct CmMailbox {
    said: Mutex<Said>,
    /// Signaled for the cm thread.
    event: EventFd,
    inbox: LcoreInbox,
    /// The port's index on the lcore.
    place: usize,
}

/// One for each port of the plan, in order; `None` for ports without connections.
pub(crate) type CmMailboxes = [Option<Arc<CmMailbox>>];

#[derive(Debug)]
struct Said {
    to_lcore: VecDeque<ToLcore>,
    to_cm: Vec<ToCm>,
    /// The lcore has a notice that it has not acted on yet.
    announced: bool,
}

impl CmMailbox {
    pub(crate) fn new(inbox: LcoreInbox, place: usize, connections: usize) -> io::Result<CmMailbox> {
        let said = Said {
            to_lcore: VecDeque::with_capacity(connections * TO_LCORE_KINDS),
            to_cm: Vec::with_capacity(connections * TO_CM_KINDS),
            announced: false,
        };
        Ok(CmMailbox { said: Mutex::new(said), event: EventFd::new()?, inbox, place })
    }

    /// For the cm thread: sends the lcore a message.
    pub(crate) fn tell_lcore(&self, message: ToLcore) {
        let mut said = lock(&self.said);
        said.to_lcore.push_back(message);
        self.announce(said);
    }

    /// For the lcore: acknowledges its notice. Later messages post another one.
    pub(crate) fn heard(&self) {
        lock(&self.said).announced = false;
    }

    /// For the lcore: requests another notice, for the next turn.
    pub(crate) fn call_again(&self) {
        self.announce(lock(&self.said));
    }

    /// Posts a notice, unless one is outstanding. So the lcore acts once per turn.
    fn announce(&self, mut said: MutexGuard<'_, Said>) {
        let is_first = !std::mem::replace(&mut said.announced, true);
        drop(said);
        if is_first {
            self.inbox.post(Notice::Connections { port: self.place });
        }
    }

    /// For the lcore: takes some messages, in order; another notice comes if there are more.
    pub(crate) fn take_for_lcore(&self, taken: &mut Vec<ToLcore>) {
        let mut said = lock(&self.said);
        let count = said.to_lcore.len().min(TAKEN_MAX);
        taken.extend(said.to_lcore.drain(..count));
        if !said.to_lcore.is_empty() {
            self.announce(said);
        }
    }

    /// For the lcore: sends the cm thread a message.
    pub(crate) fn tell_cm(&self, message: ToCm) {
        lock(&self.said).to_cm.push(message);
        self.event.signal();
    }

    /// For the cm thread: takes all messages, into an empty vector of the same room.
    pub(crate) fn take_for_cm(&self, taken: &mut Vec<ToCm>) {
        // Cleared first: a message posted after the clear ends the next wait.
        self.event.clear();
        std::mem::swap(&mut lock(&self.said).to_cm, taken);
    }

    /// The number of opened connections that the lcore has not heard of.
    pub(crate) fn unheard(&self) -> usize {
        lock(&self.said).to_lcore.iter().filter(|message| matches!(message, ToLcore::Open { .. })).count()
    }

    /// The run's control, by which a cm thread ends the run.
    pub(crate) fn control(&self) -> Arc<Control> {
        Arc::clone(&self.inbox.control)
    }
}

impl AsFd for CmMailbox {
    /// Readable when the lcore has sent a message.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// The connection that a port with one queue pair starts with.
pub(crate) fn first_connection(port: u16) -> ConnectionId {
    ConnectionId::new(port, 0, 1).expect("only generation 0 is nobody's")
}

/// The progress of the release of a port's queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Release {
    /// Not requested.
    No,
    /// The queue pair is in the error state, and its completions are to come. `left_ns` is the rest
    /// of the wait, as of `seen_ns`.
    Begun { left_ns: u64, seen_ns: Tick },
    /// The completions have come, or were waited for in vain.
    Done,
}

/// A port's side of its connection by address.
#[derive(Debug)]
pub(crate) struct Reconnecting {
    pub(crate) mailbox: Arc<CmMailbox>,
    /// The connection of the current queue pair.
    pub(crate) connection: ConnectionId,
    /// The progress of that queue pair's release.
    pub(crate) release: Release,
    /// Messages taken from the mailbox; empty between turns.
    pub(crate) taken: Vec<ToLcore>,
}

impl Reconnecting {
    /// The state of the port with this number, on its first connection.
    pub(crate) fn new(mailbox: Arc<CmMailbox>, port: u16) -> Reconnecting {
        let taken = Vec::with_capacity(TAKEN_MAX);
        Reconnecting { mailbox, connection: first_connection(port), release: Release::No, taken }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_lcore_takes_a_few_messages_a_turn_in_order_and_is_called_for_the_rest() {
        let control = Arc::new(Control::new(vec![verbline_ring::doorbell().unwrap().0]));
        let mailbox = CmMailbox::new(LcoreInbox { control: Arc::clone(&control), lcore: 0 }, 3, 8).unwrap();
        let connections: Vec<_> = (1..=40).filter_map(|generation| ConnectionId::new(0, 0, generation)).collect();
        connections.iter().for_each(|connection| mailbox.tell_lcore(ToLcore::Force { connection: *connection }));
        let (mut turns, mut forced, mut taken, mut notices) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        loop {
            control.read_notices(0, &mut notices);
            if notices.is_empty() {
                break;
            }
            assert_eq!(std::mem::take(&mut notices), [Notice::Connections { port: 3 }]);
            mailbox.heard();
            mailbox.take_for_lcore(&mut taken);
            turns.push(taken.len());
            forced.extend(taken.drain(..).map(|message| match message {
                ToLcore::Force { connection } => connection,
                other => panic!("{other:?}"),
            }));
        }
        assert_eq!((turns, forced), (vec![16, 16, 8], connections));
    }
}
