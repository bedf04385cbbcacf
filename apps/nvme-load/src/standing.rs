//! Standing commands of the admin queue, beside the handshake: keep-alives, and the request for the
//! controller's next event.

use verbline::prelude::*;
use verbline_nvme::{Command, Response, Sgl, opcode};

use crate::stage::{Initiator, KEEP_ALIVE};

const KEEP_ALIVE_CID: u16 = 0xE000;
const EVENT_CID: u16 = 0xE001;

impl Initiator {
    /// Begins once the handshake is done.
    pub(crate) fn begin_standing(&mut self, out: &mut Outputs<'_>) {
        self.request_event(out);
        self.arm_keep_alive(out);
    }

    /// Takes a response that is not the handshake's.
    pub(crate) fn standing_answered(&mut self, response: &Response, out: &mut Outputs<'_>) {
        match response.cid {
            KEEP_ALIVE_CID if self.handshake.keep_alives > 0 => {
                self.handshake.keep_alives -= 1;
                let is_good = response.status.is_success();
                if !is_good {
                    tracing::warn!(status = %response.status, "a keep-alive failed");
                }
                self.count(|counts| *if is_good { &mut counts.kept_alive } else { &mut counts.not_kept_alive } += 1);
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

    fn arm_keep_alive(&mut self, out: &mut Outputs<'_>) {
        if self.settings.keep_alive_ms > 0 {
            let at_ns = out.now_ns() + u64::from(self.settings.keep_alive_ms) * 500_000;
            self.handshake.timer = out.arm_timer(at_ns, KEEP_ALIVE);
        }
    }

    pub(crate) fn keep_alive_due(&mut self, out: &mut Outputs<'_>) {
        if self.handshake.is_done() && !self.is_over() {
            self.send_admin(&Command::new(opcode::admin::KEEP_ALIVE, KEEP_ALIVE_CID, Sgl::NONE), out);
            self.handshake.keep_alives += 1;
            self.arm_keep_alive(out);
        }
    }
}
