//! Keep-alive: a host that is silent for longer than its time-out is disconnected, and its
//! controller ends.
//!
//! Silence is measured in the stage's own time ([`Attended`](crate::keep_alive_clock::Attended)),
//! which stands still while the lcore does not run: commands that arrived meanwhile are read before
//! their host counts as silent. It begins anew with each write of CC, and does not count while a
//! shutdown or a reset is in progress, as no Keep Alive is carried out then (NVMe base
//! specification, "Keep Alive").

use verbline::prelude::*;
use verbline_nvme::identify::ControllerType;

use crate::stage::Target;

/// How long the host of a discovery controller without a time-out may send no command: two minutes
/// (NVMe base specification, "Discovery Controller"). It may have vanished without a word.
const DISCOVERY_MS: u32 = 120_000;

impl Target {
    /// Sets the keep-alive time-out of a controller; 0 for none.
    pub(crate) fn set_keep_alive(&mut self, at: u16, kato_ms: u32) {
        let now_ns = self.attended.ns();
        if let Some(admin) = self.queues.get_mut(at).and_then(|queue| queue.admin.as_mut()) {
            (admin.kato_ms, admin.last_seen_ns) = (kato_ms, now_ns);
        }
    }

    /// Called when the host was heard of.
    pub(crate) fn keep_alive(&mut self, at: u16) {
        let now_ns = self.attended.ns();
        if let Some(admin) = self.queues.get_mut(at).and_then(|queue| queue.admin.as_mut()) {
            admin.last_seen_ns = now_ns;
        }
    }

    /// Called with each command of an admin queue: any keeps a discovery controller that has no
    /// time-out.
    pub(crate) fn heard(&mut self, at: u16) {
        let admin = self.queues.get(at).and_then(|queue| queue.admin.as_ref());
        if admin.is_some_and(|admin| admin.kato_ms == 0) {
            self.keep_alive(at);
        }
    }

    /// Ends the controllers whose hosts were silent for too long at the last look: commands that
    /// came since are read first.
    pub(crate) fn end_silent(&mut self, out: &mut Outputs<'_>) {
        let now_ns = self.attended.ns();
        for at in self.queues.places() {
            let Some(queue) = self.queues.get_mut(at).filter(|queue| queue.is_open) else { continue };
            let Some(admin) = queue.admin.as_mut() else { continue };
            let Some(controller) = queue.controller.as_ref().filter(|controller| !controller.is_over()) else {
                continue;
            };
            let within_ms = match (admin.kato_ms, controller.kind) {
                (0, ControllerType::Io) => continue,
                (0, ControllerType::Discovery) => DISCOVERY_MS,
                (kato_ms, _) => kato_ms,
            };
            let is_resetting = || controller.is_disabled() && self.shared.has_queues(controller);
            if controller.is_shutting_down() || is_resetting() {
                admin.last_seen_ns = now_ns;
                continue;
            }
            if now_ns - admin.last_seen_ns > u64::from(within_ms) * 1_000_000 {
                let cntlid = controller.cntlid;
                tracing::warn!(host = %controller.host, cntlid, within_ms, "a host is silent, and is disconnected");
                controller.end();
                self.counters.keep_alive_expired.add(1);
                out.close(queue.connection);
            }
        }
    }
}
