//! Failures of queue pairs on a data path: the part done at once, and the part for the control
//! path.
//!
//! Guarantees: when the verb in which a queue pair failed returns, the queue pair is in its error
//! state and everything posted to it was flushed. At once (inside a guard) it stops accepting and
//! sending. The receive queue, which a sender may be consuming without a lock, is flushed after all
//! guards were left (`flush`).

use crate::events::async_event::Kind;
use crate::objects::fabric;
use crate::objects::guards::Pinned;
use crate::objects::qp::Qp;
use crate::objects::qp_table::{State, Transport};
use std::sync::atomic::Ordering;

/// The queue pairs that failed during one verb. Allocates only if one fails.
#[derive(Debug)]
#[must_use]
pub(crate) struct Errors {
    /// Number and tag: the queue pair may be reset or gone before its flush.
    failed: Vec<(u32, u32)>,
}

impl Errors {
    #[inline(always)]
    pub(crate) fn new() -> Errors {
        Errors { failed: Vec::new() }
    }

    /// Moves the queue pair to ERR.
    #[cold]
    pub(crate) fn fail(&mut self, qp: &Qp) {
        self.move_to_err(qp);
    }

    /// Moves the queue pair to ERR, then raises the event: a handler that queries the state sees
    /// ERR.
    #[cold]
    pub(crate) fn fail_with_event(&mut self, qp: &Qp, kind: Kind) {
        self.move_to_err(qp);
        qp.context().events.raise(qp, kind);
    }

    /// Returns whether it was not in ERR before; true for only one of two concurrent callers.
    fn move_to_err(&mut self, qp: &Qp) -> bool {
        let is_first = loop {
            let state = qp.state();
            if matches!(state, State::Reset | State::Init | State::Err) {
                break state != State::Err;
            }
            if qp.leave_for(state, State::Err) {
                break true;
            }
        };
        // Release pairs with the Acquire of senders: from here on it accepts nothing.
        qp.inbound.accept.store(0, Ordering::Release);
        qp.sq.close();
        self.failed.push((qp.qpn, qp.tag()));
        is_first
    }

    /// Handles a failed send: RC goes to ERR, the others to SQE, where receiving goes on.
    #[cold]
    pub(crate) fn fail_sends(&mut self, qp: &Qp) {
        if qp.transport == Transport::Rc {
            return self.fail(qp);
        }
        // If neither succeeds, it is in ERR, or another thread is moving it to RESET.
        let _ = qp.leave_for(State::Rts, State::Sqe) || qp.leave_for(State::Sqd, State::Sqe);
        qp.sq.close();
    }

    /// Handles a lost completion: the queue pair can't go on. Raises one event, however many are
    /// lost.
    #[cold]
    pub(crate) fn fail_fatally(&mut self, qp: &Qp) {
        if self.move_to_err(qp) {
            qp.context().events.raise(qp, Kind::QpFatal);
        }
    }

    /// Whether no queue pair failed.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.failed.is_empty()
    }

    /// The queue pairs that failed and are still in ERR.
    pub(crate) fn in_error<'p>(self, pinned: Pinned<'p>) -> impl Iterator<Item = &'p Qp> {
        let found = self.failed.into_iter().filter_map(move |(qpn, tag)| Some((fabric::lookup(pinned, qpn)?, tag)));
        found.filter(|(qp, tag)| qp.tag() == *tag && qp.state() == State::Err).map(|(qp, _)| qp)
    }
}
