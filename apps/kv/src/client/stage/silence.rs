//! The server's silence at the end of a run.

use verbline::prelude::*;

/// Reconnecting takes some time, however short `kv.timeout_ms` is.
const SILENT_NS_MIN: u64 = 1_000_000_000;

/// When the server was last heard of, and what has happened since.
#[derive(Debug, Default)]
pub(super) struct Silence {
    /// 0 before the server was heard of.
    heard_ns: Tick,
    stopped_ns: Option<Tick>,
    /// When the last operation ended without an answer, of those that began after the server was
    /// last heard of.
    lost_ns: Option<Tick>,
}

impl Silence {
    /// A reply or a READ came.
    #[inline]
    pub(super) fn heard(&mut self, now_ns: Tick) {
        (self.heard_ns, self.lost_ns) = (now_ns, None);
    }

    /// An operation timed out, or lost its connection, which the client had not closed.
    #[cold]
    pub(super) fn lost(&mut self, began_ns: Tick, now_ns: Tick) {
        if self.is_within(began_ns) {
            self.lost_ns = Some(now_ns);
        }
    }

    /// Whether the server was not heard of since this operation began. A server that has answered
    /// another one since is there, and lost one answer.
    pub(super) fn is_within(&self, began_ns: Tick) -> bool {
        began_ns >= self.heard_ns
    }

    /// The client begins no more operations.
    pub(super) fn stopped(&mut self, now_ns: Tick) {
        self.stopped_ns = Some(now_ns);
    }

    /// The drain has waited in vain for answers, for so long.
    pub(super) fn waited(&mut self, drain_ns: u64) {
        self.stopped_ns = self.stopped_ns.map(|stopped_ns| stopped_ns.saturating_add(drain_ns));
    }

    /// How long the server was silent at the end: if an operation got no answer in that time, or if
    /// it was longer than an operation may take. A reply or a READ in the drain ends the silence.
    pub(super) fn lasted_ns(&self, timeout_ns: u64) -> Option<u64> {
        // A server that was never heard of is a failure of its own.
        let heard_ns = Some(self.heard_ns).filter(|heard_ns| *heard_ns > 0)?;
        let silent_ns = self.stopped_ns.max(self.lost_ns)?.saturating_sub(heard_ns);
        (self.lost_ns.is_some() || silent_ns > SILENT_NS_MIN.max(timeout_ns)).then_some(silent_ns)
    }
}
