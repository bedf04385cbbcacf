//! Standing commands of the admin queue, beside the handshake: keep-alives, and the request for the
//! controller's next event.

use verbline::prelude::*;
use verbline_nvme::{Command, Response, Sgl, opcode};

use crate::stage::{Initiator, KEEP_ALIVE};

const KEEP_ALIVE_CID: u16 = 0xE000;
const EVENT_CID: u16 = 0xE001;

/// A timer that is later than this was kept from its time by the lcore, as in a process that is
/// paused.
const LATE_NS: u64 = 100_000_000;

impl Initiator {
    /// Begins once the handshake is done.
    pub(crate) fn begin_standing(&mut self, out: &mut Outputs<'_>) {
        self.request_event(out);
        self.arm_keep_alive(out);
    }

    /// Takes a response that is not the handshake's.
    pub(crate) fn standing_answered(&mut self, response: &Response, out: &mut Outputs<'_>) {
        match response.cid {
            KEEP_ALIVE_CID if self.handshake.keep_alive_ns.is_some() => {
                let is_good = response.status.is_success();
                if !is_good {
                    tracing::warn!(status = %response.status, "a keep-alive failed");
                }
                self.count(|counts| *if is_good { &mut counts.kept_alive } else { &mut counts.not_kept_alive } += 1);
                self.keep_alive_answered(out);
            }
            EVENT_CID if response.status.is_success() => {
                self.count(|counts| counts.events += 1);
                self.request_event(out);
            }
            // A repeated request would be refused, too: like the Linux host, the initiator goes on
            // without events.
            EVENT_CID => tracing::warn!(status = %response.status, "the target takes no request for events"),
            _ => self.count(|counts| counts.unasked += 1),
        }
    }

    fn request_event(&mut self, out: &mut Outputs<'_>) {
        self.send_admin(&Command::new(opcode::admin::ASYNC_EVENT_REQUEST, EVENT_CID, Sgl::NONE), out);
    }

    /// The keep-alive time-out (KATO).
    fn kato_ns(&self) -> u64 {
        u64::from(self.settings.keep_alive_ms) * 1_000_000
    }

    fn arm_keep_alive(&mut self, out: &mut Outputs<'_>) {
        if self.settings.keep_alive_ms > 0 {
            self.handshake.timer = out.arm_timer(out.now_ns() + self.kato_ns() / 2, KEEP_ALIVE);
        }
    }

    /// The next keep-alive is sent half a time-out after the last, or at once if that has passed.
    fn keep_alive_answered(&mut self, out: &mut Outputs<'_>) {
        let sent_ns = self.handshake.keep_alive_ns.take();
        if sent_ns.is_some_and(|sent_ns| out.now_ns() >= sent_ns + self.kato_ns() / 2) {
            self.handshake.timer.take().map(|timer| out.cancel_timer(timer));
            self.keep_alive_due(out);
        }
    }

    /// Sends a keep-alive, unless the last one is not answered: one at a time has this identifier.
    /// If its answer does not come within the time-out, the host ends the association (NVMe base
    /// specification, "Keep Alive").
    pub(crate) fn keep_alive_due(&mut self, out: &mut Outputs<'_>) {
        if !self.handshake.is_done() || self.is_over() {
            return;
        }
        match self.handshake.keep_alive_ns.map(|sent_ns| sent_ns + self.kato_ns()) {
            // This host did not run itself: the answer gets its time anew.
            Some(until_ns) if until_ns + LATE_NS <= out.now_ns() => {
                self.handshake.keep_alive_ns = Some(out.now_ns());
                self.arm_keep_alive(out);
            }
            Some(until_ns) if until_ns <= out.now_ns() => {
                let keep_alive_ms = self.settings.keep_alive_ms;
                tracing::warn!(keep_alive_ms, "no answer to a keep-alive: the connections are closed, and made anew");
                self.count(|counts| counts.keep_alive_expired += 1);
                self.reset(out);
            }
            Some(until_ns) => self.handshake.timer = out.arm_timer(until_ns, KEEP_ALIVE),
            None => {
                self.send_admin(&Command::new(opcode::admin::KEEP_ALIVE, KEEP_ALIVE_CID, Sgl::NONE), out);
                self.handshake.keep_alive_ns = Some(out.now_ns());
                self.arm_keep_alive(out);
            }
        }
    }
}
