//! Authentication Send and Receive: hosts that have a secret prove themselves on each queue.

use verbline::mem::Packet;
use verbline::prelude::*;
use verbline_nvme::auth::{self, MESSAGE_BYTES_MAX, Reason, WRITTEN_BYTES_MAX};
use verbline_nvme::secret::DIGEST_BYTES_MAX;
use verbline_nvme::{Command, Nqn, Sgl, Status};

use crate::answering::remote;
use crate::commands::Purpose;
use crate::exchange::{Drawn, Exchange};
use crate::fabrics::in_capsule;
use crate::stage::Target;

/// Draws the number and the random bytes of a challenge.
fn draw(shared: &crate::shared::Shared) -> Option<Drawn> {
    let random = crate::shared::random_bytes::<{ DIGEST_BYTES_MAX + 4 }>()?;
    let (value, seed) = random.split_first_chunk::<DIGEST_BYTES_MAX>()?;
    Some((shared.next_sequence(u32::from_le_bytes(seed.try_into().ok()?)), *value))
}

/// The remedy for a failure.
fn hint(reason: Reason) -> &'static str {
    match reason {
        Reason::Failed => {
            "compare its secret with the file that nvme.secrets names; the target proves nothing to hosts, so \
             give them no controller secret (--dhchap-ctrl-secret)"
        }
        Reason::GroupUnusable => "it has to offer the null DH group: the target has no other",
        Reason::HashUnusable => "it has to offer SHA-256, SHA-384 or SHA-512",
        Reason::ProtocolUnusable => "it has to offer DH-HMAC-CHAP",
        Reason::ChannelMismatch => "it wants a secure channel (TLS), which the target does not have",
        Reason::Payload | Reason::Message => "its messages are not those of the specification",
    }
}

impl Target {
    /// The exchange that a queue of this host begins with; `None` if the host need not
    /// authenticate.
    pub(crate) fn exchange_with(&self, host: &Nqn, now_ns: Tick) -> Option<Exchange> {
        let known = self.rules.known.iter().position(|known| known.host == *host)?;
        Some(Exchange::new(known, now_ns))
    }

    /// Authentication Send: takes the message from the capsule, or fetches it.
    pub(crate) fn auth_send(&mut self, at: u16, command: Command, capsule: Packet, out: &mut Outputs<'_>) {
        let sent = self.may_authenticate(at).and_then(|()| auth::transfer_of(&command).map_err(|no| no.status));
        if let Err(status) = sent {
            return self.refuse(at, capsule, &command, status, out);
        }
        if let Sgl::Keyed { .. } = command.sgl {
            return self.fetch_for(at, command, capsule, Purpose::Authentication, out);
        }
        match in_capsule(&command, &capsule) {
            Ok(message) => {
                self.take_message(at, message, out.now_ns());
                self.reply(at, &command, capsule, (0, Status::SUCCESS), None, out);
            }
            Err(status) => self.refuse(at, capsule, &command, status, out),
        }
    }

    /// Authentication Receive: sends the host its next message, with zeros behind it.
    pub(crate) fn auth_receive(&mut self, at: u16, command: Command, capsule: Packet, out: &mut Outputs<'_>) {
        match self.next_message(at, &command, out) {
            Ok(page) => {
                if let Some(exchange) = self.queues.get_mut(at).and_then(|queue| queue.exchange.as_mut()) {
                    exchange.told(out.now_ns());
                }
                let data = remote(command.sgl).map(|to| (page, to));
                self.reply(at, &command, capsule, (0, Status::SUCCESS), data, out);
            }
            Err(status) => self.refuse(at, capsule, &command, status, out),
        }
    }

    fn next_message(&self, at: u16, command: &Command, out: &mut Outputs<'_>) -> Result<Packet, Status> {
        self.may_authenticate(at)?;
        let len = auth::transfer_of(command).map_err(|error| error.status)?;
        let exchange = self.queues.get(at).and_then(|queue| queue.exchange.as_ref());
        let message = exchange.and_then(Exchange::message).ok_or(Status::SEQUENCE_ERROR.do_not_retry())?;
        let mut bytes = [0; WRITTEN_BYTES_MAX];
        let written = message.write(&mut bytes);
        if len < written {
            return Err(Status::SGL_DATA_LENGTH_INVALID.do_not_retry());
        }
        let mut page = self.page(at, command, len.min(MESSAGE_BYTES_MAX), out)?;
        page.data_mut()[..written].copy_from_slice(&bytes[..written]);
        Ok(page)
    }

    /// Refuses hosts without a secret, which have nothing to prove.
    fn may_authenticate(&self, at: u16) -> Result<(), Status> {
        let exchange = self.queues.get(at).and_then(|queue| queue.exchange.as_ref());
        exchange.map(|_| ()).ok_or(Status::INVALID_OPCODE.do_not_retry())
    }

    pub(crate) fn take_message(&mut self, at: u16, message: &[u8], now_ns: Tick) {
        let Some(queue) = self.queues.get_mut(at) else { return };
        let Some(exchange) = queue.exchange.as_mut() else { return };
        let Some(known) = self.rules.known.get(exchange.known) else { return };
        let drawn = || draw(&self.shared);
        let mut taken = exchange.take(message, known, &self.rules.subsystem, now_ns, drawn);
        if exchange.has_proof()
            && queue.seat.is_none()
            && let Some(controller) = &queue.controller
        {
            // The first proof: from here on the queue has a place at its controller.
            match self.shared.take_seat(controller, queue.qid) {
                Ok(seat) => queue.seat = Some(seat),
                Err(_) => taken = Err(exchange.fail(Reason::Failed)),
            }
        }
        if let Err(reason) = taken {
            let (host, queue) = (known.host, queue.qid);
            tracing::warn!(%host, queue, %reason, "a host is not authenticated: {}", hint(reason));
            self.counters.unauthenticated.add(1);
        }
    }

    /// Ends associations whose authentication failed, a while after their hosts were told, and
    /// those whose hosts do not continue it. A queue that never proved anything ends alone: anybody
    /// can connect one to a controller whose names were overheard.
    pub(crate) fn end_unauthenticated(&mut self, out: &mut Outputs<'_>) {
        let now_ns = out.now_ns();
        for at in self.queues.places() {
            let Some(queue) = self.queues.get(at).filter(|queue| queue.is_open) else { continue };
            if queue.exchange.as_ref().is_some_and(|exchange| exchange.is_to_end(now_ns)) {
                match (&queue.seat, &queue.controller) {
                    (Some(_), Some(controller)) => controller.end(),
                    _ => _ = out.close(queue.connection),
                }
            }
        }
    }
}
