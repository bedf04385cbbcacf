//! The two ends of the [`CmMailbox`] of a port with one queue pair that reconnects: its lcore's
//! ([`Reconnecting`]) and its supervisor's ([`LcoreSide`]). Both count the port's connections, in
//! its one slot.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use verbline_mem::ConnectionId;
use verbline_verbs::QueuePair;

use crate::connection::cm_mailbox::{CmMailbox, TAKEN_MAX, TO_CM_KINDS, ToCm, ToLcore};
use crate::connection::port_qp::PortQp;
use crate::stats::clock::Tick;

/// The connection that a port with one queue pair starts with.
pub(crate) fn first_connection(port: u16) -> ConnectionId {
    ConnectionId::new(port, 0, 1).expect("only generation 0 is nobody's")
}

/// How far a port is with the release of its queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Release {
    /// It is not asked for.
    No,
    /// The queue pair is in the error state, and its completions are to come: how long they are
    /// still waited for, and when that was seen.
    Begun { left_ns: u64, seen_ns: Tick },
    /// They have come, or were waited for in vain.
    Done,
}

/// What a port has that reconnects.
#[derive(Debug)]
pub(crate) struct Reconnecting {
    pub(crate) mailbox: Arc<CmMailbox>,
    /// The connection of the queue pair that it has.
    pub(crate) connection: ConnectionId,
    /// How far the release of that queue pair is.
    pub(crate) release: Release,
    /// What was taken from the mailbox; empty between turns.
    pub(crate) taken: Vec<ToLcore>,
}

impl Reconnecting {
    /// Of the port with this number, which has its first connection.
    pub(crate) fn new(mailbox: Arc<CmMailbox>, port: u16) -> Reconnecting {
        let taken = Vec::with_capacity(TAKEN_MAX);
        Reconnecting { mailbox, connection: first_connection(port), release: Release::No, taken }
    }
}

/// The supervisor's end of the mailbox, and what the lcore has said of the connection that there
/// is.
pub(crate) struct LcoreSide {
    mailbox: Arc<CmMailbox>,
    connection: ConnectionId,
    heard: Vec<ToCm>,
    /// It is over: the number of the [`crate::stats::down_reason::DownReason`].
    pub(crate) over: Option<u64>,
    pub(crate) is_drained: bool,
}

impl LcoreSide {
    /// Of the port with this number, which has its first connection.
    pub(crate) fn new(mailbox: Arc<CmMailbox>, port: u16) -> LcoreSide {
        let heard = Vec::with_capacity(TO_CM_KINDS);
        LcoreSide { mailbox, connection: first_connection(port), heard, over: None, is_drained: false }
    }

    /// Takes what the lcore has said.
    pub(crate) fn hear(&mut self) -> &mut LcoreSide {
        self.mailbox.take_for_cm(&mut self.heard);
        for message in self.heard.drain(..) {
            match message {
                ToCm::Over { connection, down_reason } if connection == self.connection => {
                    self.over = Some(down_reason);
                }
                ToCm::Drained { connection } if connection == self.connection => self.is_drained = true,
                // What is released is destroyed here.
                ToCm::Over { .. } | ToCm::Drained { .. } | ToCm::Released { .. } | ToCm::Told { .. } => {}
            }
        }
        self
    }

    /// The connection is over: the lcore is to release its queue pair.
    pub(crate) fn lose(&self) {
        self.mailbox.tell_lcore(ToLcore::Close { connection: self.connection, reason: "it is lost" });
    }

    /// Gives the lcore a queue pair that is connected.
    pub(crate) fn give(&mut self, qp: QueuePair) {
        let last = self.connection;
        // More generations than a run lives for; 0 is nobody's.
        let next = last.generation().wrapping_add(1).max(1);
        self.connection = ConnectionId::new(last.port(), 0, next).unwrap_or(last);
        (self.over, self.is_drained) = (None, false);
        let (connection, qp) = (self.connection, Box::new(PortQp::new(qp)));
        self.mailbox.tell_lcore(ToLcore::Open { connection, qp, peer: None });
    }
}

impl AsFd for LcoreSide {
    /// Readable when the lcore has said something.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.mailbox.as_fd()
    }
}
