//! The connections of a stage: the beginning and end of its queues, and its regular look after
//! them.

use verbline::engine::ConnectionId;
use verbline::prelude::*;
use verbline_nvme::cm::Request;

use crate::keep_alive_clock::LOOK_EVERY_NS;
use crate::port::HOST;
use crate::stage::{LOOK, Target};

/// The time between looks of a stage without queues: only namespaces may come and go then.
const IDLE_LOOK_EVERY_NS: u64 = 1_000_000_000;

impl Target {
    pub(crate) fn opened(&mut self, connection: ConnectionId, out: &mut Outputs<'_>) {
        let peer = out.peer(connection);
        let asked = peer.and_then(|peer| Request::read(&peer.private_data).ok());
        let admission = peer.map_or(0, |peer| peer.tag);
        let keys = if self.device_checks { out.signature_keys(HOST) } else { 0 };
        let connect_by_ns = out.now_ns() + u64::from(self.rules.settings.connect_timeout_ms) * 1_000_000;
        let connection_of = (connection, admission);
        let opened = asked.and_then(|asked| self.queues.open(connection_of, &asked, keys, connect_by_ns));
        self.renew_spaces(out);
        match opened {
            Some(_) => self.shared.admissions.begin(admission),
            // Without the acceptor, the peer may be anybody.
            None => _ = out.close(connection),
        }
        self.look_again(out);
    }

    pub(crate) fn closed(&mut self, connection: ConnectionId, out: &mut Outputs<'_>) {
        let Some(at) = self.queues.find(connection) else { return };
        self.queues.close(at);
        self.for_room.clear(at);
        self.for_packets.clear(at);
        self.spaces.clear_queue(at);
        let idle: Vec<u32> = self.commands.idle_of(at).collect();
        if let Some(queue) = self.queues.get_mut(at)
            && let Some(admin) = &mut queue.admin
        {
            // A shutdown may still be in progress and keep the queue. Held event requests get no
            // answer.
            admin.held.clear();
            // The host is gone: its other queues close, too.
            queue.controller.as_ref().inspect(|controller| controller.end());
            self.sweep(out);
        }
        for place in idle {
            if let Some(pending) = self.commands.take(place) {
                self.forget(place, pending);
            }
        }
        self.end_queue(at);
    }

    /// Removes a queue whose last operation is done.
    pub(crate) fn end_queue(&mut self, at: u16) {
        let Some(queue) = self.queues.take_done(at) else { return };
        if let Some(seat) = queue.seat {
            self.shared.leave(seat);
        }
        self.shared.admissions.done(queue.admission);
    }

    /// Closes the queues whose controllers have ended or were reset.
    pub(crate) fn sweep(&mut self, out: &mut Outputs<'_>) {
        for at in self.queues.places() {
            let Some(queue) = self.queues.get(at).filter(|queue| queue.is_open) else { continue };
            if queue.is_over() {
                out.close(queue.connection);
            }
        }
    }

    /// Disconnects hosts that have left their responses or data untaken for too long: the
    /// operations and packets that they hold are shared by all queues.
    fn end_stuck(&mut self, out: &mut Outputs<'_>) {
        let within_ns = u64::from(self.rules.settings.response_timeout_ms) * 1_000_000;
        let now_ns = self.attended.ns();
        for at in self.queues.places() {
            let Some(queue) = self.queues.get_mut(at).filter(|queue| queue.is_open) else { continue };
            if queue.is_stuck(now_ns, within_ns) && out.close(queue.connection) {
                let (connection, operations) = (queue.connection, queue.operations);
                tracing::warn!(%connection, operations, "a host is disconnected: it does not take its responses");
                self.counters.stuck.add(1);
            }
        }
    }

    /// Handles all that no command reports: silent and stuck hosts, controllers ended on other
    /// lcores, and namespaces.
    pub(crate) fn look(&mut self, out: &mut Outputs<'_>) {
        self.end_silent(out);
        self.end_stuck(out);
        self.attended.look(out.now_ns());
        self.end_unconnected(out);
        self.end_unauthenticated(out);
        self.sweep(out);
        self.renew_spaces(out);
        self.look_after_shutdowns(out);
        self.refresh_spaces();
        // Other users of the pool may have given packets back.
        self.packets_freed += 1;
        self.look_timer = None;
        self.look_again(out);
    }

    /// Arms the timer for the next look.
    pub(crate) fn look_again(&mut self, out: &mut Outputs<'_>) {
        let now_ns = out.now_ns();
        let every_ns = if self.queues.is_empty() { IDLE_LOOK_EVERY_NS } else { LOOK_EVERY_NS };
        let at_ns = now_ns + every_ns;
        if let Some((timer, known_ns)) = self.look_timer {
            if known_ns <= at_ns {
                return;
            }
            // No time counts as silence while there are no queues.
            self.attended.begin(now_ns);
            if out.rearm_timer(timer, at_ns) {
                self.look_timer = Some((timer, at_ns));
                return;
            }
        }
        self.look_timer = out.arm_timer(at_ns, LOOK).map(|timer| (timer, at_ns));
    }
}
