//! Requests connections, in the cm thread of a port that connects; begins the handshakes of every
//! cm thread.

use std::os::fd::AsFd;

use rustix::event::epoll;
use verbline_mem::ConnectionId;
use verbline_verbs::QueuePair;
use verbline_verbs::connection::{ConnectionError, resolve_for};

use super::{CmThread, CmThreadRole};
use crate::connection::cm_mailbox::ToLcore;
use crate::connection::handshake::RESOLVE;
use crate::connection::multi_port::connection_slots::SlotState;
use crate::connection::multi_port::targets::{Among, Picked};
use crate::connection::port_qp::PortQp;
use crate::errors::error::Cause;
use crate::errors::guarded::lock;

impl CmThread {
    /// Logs the reason of a listener that rejects the port, unless it is the last one logged.
    pub(super) fn tell_rejection(&self, error: &ConnectionError) {
        let last = lock(&self.spec.last_error).clone();
        if last.is_none_or(|last| last != error.to_string()) {
            tracing::warn!(port = %self.spec.port.name, %error, "a connection is rejected");
        }
    }

    /// Requests missing connections, on a port that connects. Resolving an address may block, and
    /// nothing else is done meanwhile. So the loop ends after two failed attempts, the second at an
    /// address that had not failed before; then events are handled.
    pub(super) fn connect_more(&mut self) {
        let mut among = Among::All;
        while self.may_ask()
            && let Some(picked) = self.targets.pick(self.time.now(), among)
            && let Some(connection) = self.slots.take()
        {
            self.spec.counts.requests.add(1);
            self.spec.counts.failed_over.add(picked.is_other.into());
            self.targets.asked(picked.index, connection.slot(), self.time.now());
            if self.ask(connection, picked) {
                continue;
            }
            if among == Among::Good {
                break;
            }
            among = Among::Good;
        }
    }

    /// Whether the port lacks connections and may request them.
    pub(super) fn may_ask(&self) -> bool {
        let connects = matches!(self.spec.role, CmThreadRole::Connect { .. });
        connects && self.is_taking && !self.stop.connecting.is_raised() && self.slots.has_free()
    }

    /// Requests one connection from a listener. True if the request was sent.
    fn ask(&mut self, connection: ConnectionId, Picked { to, from, .. }: Picked) -> bool {
        let CmThreadRole::Connect { provider, data, .. } = &mut self.spec.role else { return false };
        let mut options = self.spec.port.options.now();
        if let Some(data) = data {
            options.private_data = data(connection.slot());
        }
        let provider = *provider;
        let made = self.make().map_err(Cause::from);
        let resolved = |qp| Ok((qp, resolve_for(provider, to, from, &options, RESOLVE)?));
        let (qp, route) = match made.and_then(resolved) {
            Ok(made) => made,
            Err(error) => {
                self.not_made(connection, &error);
                self.give_back(connection);
                return false;
            }
        };
        let asked = |connecting, qp| SlotState::Asked { connecting, qp };
        self.begin(connection, qp, |qp| route.connect(qp, &options), asked)
    }

    /// Begins a handshake, and records its state. True if the other end is to answer.
    pub(super) fn begin<H: AsFd>(
        &mut self,
        connection: ConnectionId,
        mut qp: Box<PortQp>,
        begin: impl FnOnce(&mut QueuePair) -> Result<H, ConnectionError>,
        state: impl FnOnce(H, Box<PortQp>) -> SlotState,
    ) -> bool {
        // The peer may send as soon as it has answered, or has the answer.
        self.spec.mailbox.tell_lcore(ToLcore::Expect { connection, qpn: qp.qpn() });
        let data = epoll::EventData::new_u64(connection.slot() as u64);
        let begun = begin(&mut qp).map_err(Cause::from).and_then(|handshake| {
            epoll::add(&self.epoll, handshake.as_fd(), data, epoll::EventFlags::IN)?;
            Ok(handshake)
        });
        let is_begun = begun.is_ok();
        match begun {
            Ok(handshake) => {
                self.slots.put(connection, state(handshake, qp));
                self.begun.push_back((self.time.now(), connection));
            }
            Err(error) => self.forget(connection, qp, &error),
        }
        is_begun
    }
}
