//! Keep-alives of a reliable connection: whether the peer is still there though nothing is under
//! way.
//!
//! A peer that was heard of within [`IDLE_NS`] is asked nothing. After that it is asked by a WRITE
//! of no bytes with the number before the next one, which it has answered before, or could have:
//! as of any request that comes again, it repeats its last acknowledgement, and does nothing
//! (C9-105 of the specification). So cards and kernels answer, and no number is used up. A peer
//! that answers none of [`ASKED_MAX`] is gone.

/// A peer that was heard of within this is there. A deadline is moved on once in as long, and not
/// with each packet.
const IDLE_NS: u64 = 10_000_000_000;

/// What an answer is waited for.
const ANSWER_NS: u64 = 1_000_000_000;

/// How often in a row it is asked.
const ASKED_MAX: u8 = 10;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct KeepAlive {
    /// When to look.
    due_ns: u64,
    /// A packet of the peer's came since.
    pub(crate) is_heard: bool,
    /// How often it was asked since the last one.
    asked: u8,
    /// It is to be asked now.
    pub(crate) asks: bool,
}

/// Nothing came for as long as a peer may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gone;

impl KeepAlive {
    pub(crate) fn new(now_ns: u64) -> KeepAlive {
        KeepAlive { due_ns: now_ns.saturating_add(IDLE_NS), is_heard: false, asked: 0, asks: false }
    }

    pub(crate) fn deadline_ns(&self) -> u64 {
        self.due_ns
    }

    /// Whether an answer is waited for.
    pub(crate) fn is_asking(&self) -> bool {
        self.asked > 0
    }

    /// Time has passed. While something is under way (`waits`), its own time-outs tell.
    pub(crate) fn advance(&mut self, now_ns: u64, waits: bool) -> Result<(), Gone> {
        if now_ns < self.due_ns {
            return Ok(());
        }
        if std::mem::take(&mut self.is_heard) || waits {
            *self = KeepAlive::new(now_ns);
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
