//! Detects a feed that falls silent: MoldUDP64 sends a heartbeat every second without messages.
//!
//! Nothing else shows that an exchange is gone: datagrams have no connection, the books stay as
//! they are, and an idle order connection notices nothing.

use verbline::prelude::*;

/// When the last packet of a feed came, on either channel.
#[derive(Debug, Default)]
pub(super) struct Silence {
    /// The longest silence allowed; 0: unlimited.
    limit_ns: u64,
    /// The last packet's time; `None` before the first packet, and after the end of the session.
    heard_ns: Option<Tick>,
    /// When to check; `None` while nothing is expected, or after the silence was reported.
    due_ns: Option<Tick>,
    /// The next check is the second: by then an lcore that lost its CPU has found the packets that
    /// came meanwhile.
    is_second: bool,
    /// The silence exceeds the limit.
    is_silent: bool,
}

impl Silence {
    pub(super) fn new(limit_ns: u64) -> Silence {
        Silence { limit_ns, ..Silence::default() }
    }

    /// Notes a packet. Returns the length of the silence that it ends, if one was reported.
    #[inline]
    pub(super) fn heard(&mut self, now_ns: Tick) -> Option<u64> {
        let lasted_ns = self.lasted_ns(now_ns);
        self.heard_ns = Some(now_ns);
        self.due_ns = (self.limit_ns > 0).then(|| now_ns + self.limit_ns);
        (self.is_second, self.is_silent) = (false, false);
        lasted_ns
    }

    /// Notes the end of the session: nothing more is expected.
    pub(super) fn end(&mut self) {
        *self = Silence::new(self.limit_ns);
    }

    /// Returns true once when the silence exceeds the limit.
    #[inline]
    pub(super) fn begins(&mut self, now_ns: Tick) -> bool {
        self.due_ns.is_some_and(|due_ns| due_ns <= now_ns) && self.look(now_ns)
    }

    #[cold]
    fn look(&mut self, now_ns: Tick) -> bool {
        self.is_silent = self.is_second;
        self.is_second = true;
        self.due_ns = (!self.is_silent).then(|| now_ns + self.limit_ns / 8);
        self.is_silent
    }

    /// When to call [`Silence::begins`] if no packet comes.
    #[inline]
    pub(super) fn due_ns(&self) -> Option<Tick> {
        self.due_ns
    }

    /// How long the silence has lasted, if it exceeds the limit.
    #[inline]
    pub(super) fn lasted_ns(&self, now_ns: Tick) -> Option<u64> {
        self.heard_ns.filter(|_| self.is_silent).map(|heard_ns| now_ns.saturating_sub(heard_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silence_is_told_of_once_and_ends_with_what_comes() {
        let mut silence = Silence::new(32);
        assert!(silence.due_ns().is_none() && !silence.begins(1_000), "it has not begun to speak");
        assert_eq!((silence.heard(100), silence.heard(110), silence.due_ns()), (None, None, Some(142)));
        assert!(!silence.begins(141) && !silence.begins(142));
        assert_eq!(silence.due_ns(), Some(146), "a second look");
        assert!(!silence.begins(145) && silence.begins(146) && !silence.begins(150));
        assert_eq!((silence.due_ns(), silence.lasted_ns(160)), (None, Some(50)));
        assert_eq!((silence.heard(170), silence.lasted_ns(180)), (Some(60), None));
        // A packet that came before a pause of the process.
        assert!(!silence.begins(900) && silence.heard(901).is_none() && !silence.begins(904));
        silence.end();
        assert!(silence.due_ns().is_none() && !silence.begins(1_000) && silence.lasted_ns(1_000).is_none());
        let mut patient = Silence::new(0);
        assert!(patient.heard(5).is_none() && patient.due_ns().is_none() && !patient.begins(u64::MAX));
    }
}
