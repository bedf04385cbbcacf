//! Queue pairs that failed on a data path: what is done at once, and what only the control path can
//! do.
//!
//! What it guarantees: when the verb in which a queue pair failed returns, the queue pair is in its
//! error state and everything posted to it was flushed. At once (inside a guard) it stops accepting
//! and sending; the receive queue, which a sender may be consuming without a lock, is flushed after
//! everybody has left (`flush`).

use crate::events::async_event::Kind;
use crate::objects::fabric;
use crate::objects::guards::Pinned;
use crate::objects::qp::Qp;
use crate::objects::qp_table::{State, Transport};
use std::sync::atomic::Ordering;

/// The queue pairs that failed during one verb. Allocates only when one does.
#[derive(Debug)]
#[must_use]
pub(crate) struct Errors {
    /// Number and tag: the queue pair may be reset or gone before we come back to it.
    failed: Vec<(u32, u32)>,
}

impl Errors {
    #[inline(always)]
    pub(crate) fn new() -> Errors {
        Errors { failed: Vec::new() }
    }

    /// The queue pair goes to ERR.
    #[cold]
    pub(crate) fn fail(&mut self, qp: &Qp) {
        self.move_to_err(qp);
    }

    /// The queue pair goes to ERR, of which the event tells. In this order: who gets the event and
    /// asks for the state sees ERR.
    #[cold]
    pub(crate) fn fail_with_event(&mut self, qp: &Qp, kind: Kind) {
        self.move_to_err(qp);
        qp.context().events.raise(qp, kind);
    }

    /// Whether it was not in ERR before: of two that take it there at once, one's answer is yes.
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

    /// A send failed: RC goes to ERR, the others to SQE, where receiving goes on.
    #[cold]
    pub(crate) fn fail_sends(&mut self, qp: &Qp) {
        if qp.transport == Transport::Rc {
            return self.fail(qp);
        }
        // Neither: it is in ERR, or on its way to RESET by another thread.
        let _ = qp.leave_for(State::Rts, State::Sqe) || qp.leave_for(State::Sqd, State::Sqe);
        qp.sq.close();
    }

    /// A completion was lost: the queue pair can't go on. One event, however many are lost.
    #[cold]
    pub(crate) fn fail_fatally(&mut self, qp: &Qp) {
        if self.move_to_err(qp) {
            qp.context().events.raise(qp, Kind::QpFatal);
        }
    }

    /// Whether any did.
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
