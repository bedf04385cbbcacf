//! A peer's silence at the end of a run, as a client judges it.

use std::time::{Duration, Instant};

use verbline_engine::Tick;

/// Reconnecting takes some time, however short a client's time-out is.
const SILENT_NS_MIN: u64 = 1_000_000_000;

/// When the peer of a client was last heard of, and what has happened since.
#[derive(Debug, Default)]
pub struct Silence {
    /// 0 before the peer was heard of.
    heard_ns: Tick,
    stopped_ns: Option<Tick>,
    /// The same, for the drain, in which no tick is known.
    stopped_at: Option<Instant>,
    /// When an operation lost its connection, after the peer was last heard of.
    lost_ns: Option<Tick>,
}

impl Silence {
    /// How long a drain waits for an answer: a peer that is silent gives none. Less than the drain
    /// of a plan that says nothing of it.
    pub const ANSWER_WITHIN: Duration = Duration::from_millis(500);

    /// Notes a sign of the peer, such as a reply.
    #[inline]
    pub fn heard(&mut self, now_ns: Tick) {
        (self.heard_ns, self.lost_ns) = (now_ns, None);
    }

    /// Notes that an operation lost its connection, which the client had not closed.
    #[cold]
    pub fn lost(&mut self, now_ns: Tick) {
        self.lost_ns = Some(now_ns);
    }

    /// Notes that the client begins no more operations.
    pub fn stopped(&mut self, now_ns: Tick) {
        (self.stopped_ns, self.stopped_at) = (Some(now_ns), Some(Instant::now()));
    }

    /// Whether the drain may still wait for a sign of the peer: one answer is enough, since others
    /// may be lost. Connections to a peer that is gone end meanwhile.
    pub fn may_wait(&self) -> bool {
        let is_early = |stopped_at: Instant| stopped_at.elapsed() < Silence::ANSWER_WITHIN;
        Some(self.heard_ns) <= self.stopped_ns && self.stopped_at.is_some_and(is_early)
    }

    /// How long the peer was silent at the end: if operations lost their connections in that time,
    /// or if it was longer than a reconnect and an operation (`timeout_ns`) may take. A sign of the
    /// peer in the drain ends it, also one that came in the same turn as the end of a connection.
    pub fn lasted_ns(&self, timeout_ns: u64) -> Option<u64> {
        // A peer that was never heard of is a failure of its own.
        let heard_ns = Some(self.heard_ns).filter(|heard_ns| *heard_ns > 0)?;
        let silent_ns = self.stopped_ns.max(self.lost_ns)?.saturating_sub(heard_ns);
        let is_cut_off = self.lost_ns.is_some() && silent_ns > 0;
        (is_cut_off || silent_ns > SILENT_NS_MIN.max(timeout_ns)).then_some(silent_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_answers_in_the_turn_in_which_a_connection_ends_is_not_silent() {
        let mut silence = Silence::default();
        silence.heard(100);
        silence.stopped(150);
        silence.heard(200);
        silence.lost(200);
        assert_eq!(silence.lasted_ns(0), None);
        silence.lost(260);
        assert_eq!(silence.lasted_ns(0), Some(60));
        silence.heard(270);
        assert_eq!(silence.lasted_ns(0), None);
    }

    #[test]
    fn a_peer_that_is_gone_as_the_run_stops_was_silent_since_its_last_sign() {
        let mut silence = Silence::default();
        silence.heard(100);
        silence.lost(100);
        silence.stopped(150);
        assert_eq!(silence.lasted_ns(0), Some(50));
    }
}
