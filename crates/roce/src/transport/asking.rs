//! Decides which packets ask for an acknowledgement: only those on which a completion or the window
//! waits, not the last of every message.
//!
//! A responder acknowledges a packet that asks (AckReq), and with it all packets before. A packet
//! asks if
//! - it is the last of a signaled work request, or is followed by a local operation, which
//!   completes once the packet is acknowledged;
//! - half of the window has not asked, or the window has no room behind it;
//! - it is the last of a repetition: the peer's answer tells at once whether all has arrived;
//! - it is the last packet posted, and the *tail* (the packets since the last that asked) is due.
//!
//! No completion waits for an unsignaled work request, but its packets may be lost. The next packet
//! shows that to the responder. If none follows, the tail's last packet is sent once more and asks
//! (like TCP's tail loss probe, RFC 8985). A responder that has the packet acknowledges it as a
//! duplicate request (C9-105). One that lacks it takes it in. One that misses an earlier packet
//! reports which. This *question* leaves
//! - when the tail is due, [`TAIL_NS`] after its first packet;
//! - at once, when the next step waits for an acknowledgement: sends are held (SQD), the next work
//!   request can't be carried out, or it is a READ whose answer has no room.
//!
//! A tail whose first packet comes after a pause of [`TAIL_NS`] is due at once: its last packet
//! asks, so slow senders send no questions. After a question the ACK time-out and the retries
//! apply.

use crate::transport::configuration::ack_timeout_ns;

/// Longer than the gaps between related packets, such as those of a program that sends for each
/// message that it receives, on a network of data centers. It is a small part of the usual
/// time-outs (67 ms), and questions cost a connection less than a hundredth of a core.
const TAIL_NS: u64 = 1_000_000;

/// See the [module](self).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asking {
    /// The number behind the last packet that asked. That packet may be acknowledged already.
    through: u64,
    due: Due,
    /// The time of the last packet.
    sent_ns: Option<u64>,
    wait_ns: u64,
}

/// The time at which the tail is due, if there is a tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    Never,
    At(u64),
    Now,
}

impl Asking {
    /// `timeout`: verbs' code.
    pub(crate) fn new(timeout: u8) -> Asking {
        let wait_ns = ack_timeout_ns(timeout).map_or(TAIL_NS, |timeout_ns| TAIL_NS.min(timeout_ns / 4));
        Asking { through: 0, due: Due::Never, sent_ns: None, wait_ns }
    }

    /// Sets a new time-out.
    pub(crate) fn wait_by(&mut self, timeout: u8) {
        self.wait_ns = Asking::new(timeout).wait_ns;
    }

    /// How long a tail waits.
    pub(crate) fn wait_ns(&self) -> u64 {
        self.wait_ns
    }

    /// The first packet from `una` on that has not asked.
    pub(crate) fn first_unasked(&self, una: u64) -> u64 {
        self.through.max(una)
    }

    /// The time at which the tail is due.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        match self.due {
            Due::At(due_ns) => Some(due_ns),
            Due::Never | Due::Now => None,
        }
    }

    /// Whether a tail is due to which the next packet will belong.
    pub(crate) fn is_due_with_next(&self, now_ns: u64) -> bool {
        match self.due {
            Due::Never => self.is_after_pause(now_ns),
            _ => self.is_due(now_ns),
        }
    }

    /// Whether the tail is due.
    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        match self.due {
            Due::Never => false,
            Due::At(due_ns) => due_ns <= now_ns,
            Due::Now => true,
        }
    }

    /// Whether the tail is due, as of the last time given to [`advance`](Self::advance).
    pub(crate) fn is_due_now(&self) -> bool {
        self.due == Due::Now
    }

    fn is_after_pause(&self, now_ns: u64) -> bool {
        self.sent_ns.is_none_or(|sent_ns| now_ns.saturating_sub(sent_ns) >= self.wait_ns)
    }

    /// Makes the tail due at once, if there is one.
    pub(crate) fn ask_now(&mut self) {
        if self.due != Due::Never {
            self.due = Due::Now;
        }
    }

    /// Lets time pass.
    pub(crate) fn advance(&mut self, now_ns: u64) {
        if self.is_due(now_ns) {
            self.due = Due::Now;
        }
    }

    /// Records that the packet before `cursor` was sent.
    pub(crate) fn sent(&mut self, now_ns: u64, cursor: u64, asked: bool) {
        if asked {
            (self.through, self.due) = (cursor, Due::Never);
        } else if self.due == Due::Never {
            let wait_ns = if self.is_after_pause(now_ns) { 0 } else { self.wait_ns };
            self.due = Due::At(now_ns.saturating_add(wait_ns));
        }
        self.sent_ns = Some(now_ns);
    }

    /// Forgets the tail: all packets from `una` on, if any, are sent again.
    pub(crate) fn go_back(&mut self, una: u64) {
        (self.through, self.due) = (una, Due::Never);
    }
}
