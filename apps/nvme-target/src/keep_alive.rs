//! Hosts that must be heard of: one that is silent for longer than its keep-alive time-out is
//! disconnected, and its controller is over.

use verbline::prelude::*;

use crate::stage::Target;

impl Target {
    /// Sets the time-out of a controller; 0: it need not be heard of.
    pub(crate) fn set_keep_alive(&mut self, at: u16, kato_ms: u32, out: &mut Outputs<'_>) {
        let now_ns = out.now_ns();
        let Some(admin) = self.queues.get_mut(at).and_then(|queue| queue.admin.as_mut()) else { return };
        (admin.kato_ms, admin.last_seen_ns) = (kato_ms, now_ns);
        admin.timer.take().map(|timer| out.cancel_timer(timer));
        if kato_ms > 0 {
            admin.timer = out.arm_timer(now_ns + u64::from(kato_ms) * 1_000_000, u64::from(at) + 1);
        }
    }

    /// The host was heard of. Its timer finds out when it is due.
    pub(crate) fn keep_alive(&mut self, at: u16, out: &mut Outputs<'_>) {
        if let Some(admin) = self.queues.get_mut(at).and_then(|queue| queue.admin.as_mut()) {
            admin.last_seen_ns = out.now_ns();
        }
    }

    /// The timer of a queue is due.
    pub(crate) fn keep_alive_due(&mut self, at: u16, out: &mut Outputs<'_>) {
        let Some(queue) = self.queues.get_mut(at).filter(|queue| queue.is_open) else { return };
        let Some(admin) = queue.admin.as_mut().filter(|admin| admin.kato_ms > 0) else { return };
        let until_ns = admin.last_seen_ns + u64::from(admin.kato_ms) * 1_000_000;
        if until_ns > out.now_ns() {
            admin.timer = out.arm_timer(until_ns, u64::from(at) + 1);
            return;
        }
        admin.timer = None;
        let connection = queue.connection;
        if let Some(controller) = &queue.controller {
            let cntlid = controller.cntlid;
            tracing::warn!(host = %controller.host, cntlid, "a host is silent, and is disconnected");
            controller.end();
        }
        self.counters.keep_alive_expired.add(1);
        out.close(connection);
        self.sweep(out);
    }
}
