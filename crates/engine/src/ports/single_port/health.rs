//! Takes a port out of service: after a completion with an error, after an event of its device, or
//! when its device refuses a post.

#[cfg(test)]
mod tests;

use verbline_verbs::{Status, Transport, event::AsyncEventKind};

use crate::control::notice::Notice;
use crate::ports::single_port::{Health, Port};
use crate::stats::down_reason::DownReason;
use crate::stats::drop_reason::DropReason;

impl Port {
    /// Handles a completion with an error. Every work request behind it in its queue is flushed.
    #[cold]
    pub(in crate::ports) fn failed(&mut self, status: Status, reason: DropReason, left: Health) {
        // A flushed receive is an empty buffer, and no message.
        if (status, reason) != (Status::WR_FLUSH_ERR, DropReason::RecvError) {
            self.stats.drops.add(reason, 1);
        }
        self.failed_with(status, left);
    }

    /// Like [`Port::failed`], where no packet is lost by it.
    #[cold]
    pub(in crate::ports) fn failed_with(&mut self, status: Status, left: Health) {
        self.stats.count_status(status);
        if self.health == Health::Up {
            tracing::error!(port = %self.name, %status, "the port is down");
        }
        self.go_down(left, DownReason::of_status(status));
    }

    /// Handles a device event that reports a failure of the queue pair.
    pub(crate) fn failed_by(&mut self, event: AsyncEventKind) {
        if self.health < Health::Down {
            tracing::error!(port = %self.name, %event, "the port is down");
            self.flush_device();
        }
        self.go_down(Health::Down, DownReason::of_event(event));
    }

    /// Returns which half still works after a failed send.
    pub(in crate::ports) fn left_by_failed_send(&self) -> Health {
        if self.qp.transport() == Transport::Rc { Health::Down } else { Health::SendsDown }
    }

    /// Makes the device flush the rest of its work requests; a device that is in no state to do so
    /// refuses.
    pub(in crate::ports) fn flush_device(&mut self) {
        if let Err(error) = self.qp.to_err() {
            tracing::warn!(port = %self.name, %error, "what is posted to it does not come back");
        }
    }

    /// Takes half or all of the port out of service. The stages of its lcore are told in the next
    /// turn.
    #[cold]
    pub(crate) fn go_down(&mut self, left: Health, reason: DownReason) {
        if DownReason::is_vague(self.stats.down_reason.value()) {
            self.stats.down_reason.set(reason.number());
        }
        let before = self.health;
        self.health = before.max(left);
        if self.health == Health::Down
            && let Some(receiving) = &mut self.receiving
        {
            receiving.retry_ns = None;
        }
        self.end_changing();
        let Some(inbox) = &self.inbox else { return self.stats.down.set(1) };
        if before == Health::SendsDown && self.health == Health::Down && self.reconnect.is_some() {
            // The stages know already. Only the release of the queue pair begins now.
            inbox.post(Notice::Connections { port: usize::from(self.qp.tag()) });
        }
        if before == Health::Up {
            self.stats.down.set(1);
            inbox.post(Notice::PortDown { port: usize::from(self.qp.tag()) });
            // The other end of a port without an address is a port of the same plan, or none: it
            // cannot come back.
            if self.reconnect.is_none() {
                inbox.control.update(|progress| progress.lost_ports.push(self.index.into()));
            }
        }
    }
}
