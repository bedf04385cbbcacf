//! Keep-alives of a reliable connection: they find out whether the peer is still there while
//! nothing is under way.
//!
//! A peer that was heard from within [`IDLE_NS`] is not asked. Otherwise it is asked by a WRITE of
//! no bytes, with the number before the next one, which it has answered before or could have. As
//! for any duplicate request, the peer repeats its last acknowledgement and does nothing else
//! (C9-105 of the specification). So cards and kernels answer, and no number is used up. A peer
//! that answers none of [`ASKED_MAX`] keep-alives is gone. Keep-alives and their answers leave from
//! the port of RoCE.

use crate::wire::{Rc, Reth, WriteEnd};

/// A peer that was heard from within this time is there. The deadline moves once in this time, not
/// with each packet: to the end of this time after the last one.
const IDLE_NS: u64 = 10_000_000_000;

/// The wait for an answer.
const ANSWER_NS: u64 = 1_000_000_000;

/// Keep-alives in a row without an answer.
const ASKED_MAX: u8 = 10;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct KeepAlive {
    /// The time of the next check.
    due_ns: u64,
    /// The time of the peer's last packet.
    pub(crate) heard_ns: u64,
    /// Keep-alives since the last packet of the peer.
    asked: u8,
    /// A keep-alive is to be sent now.
    pub(crate) asks: bool,
}

/// Whether a request is a WRITE of no bytes, by which a peer learns that we are there.
pub(crate) fn is_keep_alive(rc: Rc) -> bool {
    matches!(rc, Rc::Write { first: Some(Reth { len: 0, .. }), last: Some(WriteEnd::Plain) })
}

/// No packet came within the time allowed to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gone;

impl KeepAlive {
    pub(crate) fn new(now_ns: u64) -> KeepAlive {
        KeepAlive { due_ns: now_ns.saturating_add(IDLE_NS), heard_ns: now_ns, asked: 0, asks: false }
    }

    pub(crate) fn deadline_ns(&self) -> u64 {
        self.due_ns
    }

    /// Whether an answer is awaited.
    pub(crate) fn is_asking(&self) -> bool {
        self.asked > 0
    }

    /// Lets time pass. While requests are under way (`waits`), their own time-outs apply.
    pub(crate) fn advance(&mut self, now_ns: u64, waits: bool) -> Result<(), Gone> {
        if now_ns < self.due_ns {
            return Ok(());
        }
        let heard_ns = if waits { now_ns } else { self.heard_ns };
        if now_ns < heard_ns.saturating_add(IDLE_NS) {
            *self = KeepAlive::new(heard_ns);
            return Ok(());
        }
        if self.asked == ASKED_MAX {
            return Err(Gone);
        }
        self.asked += 1;
        self.asks = true;
        self.due_ns = now_ns.saturating_add(ANSWER_NS);
        Ok(())
    }
}
