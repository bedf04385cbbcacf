//! Changes of an open queue pair: rights, path and retries; holding and resuming its sends.

use crate::transport::configuration::{Retries, Rights, Serving};
use crate::transport::queue_pair::{Hold, Mode, QueuePair, State};
use crate::transport::send_queue::SendQueue;
use crate::wire::Route;

/// The attributes that verbs can change while a queue pair receives or sends, with all their new
/// values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changes {
    /// The rights of peers.
    pub rights: Rights,
    /// The route to the peer; `None` keeps the present one.
    pub route: Option<Route>,
    /// The behaviour of a reliable connection's responder.
    pub serving: Serving,
    /// The retries of a reliable connection's requester. The window stays as it was.
    pub retries: Retries,
}

impl QueuePair {
    /// Changes the attributes, for all further packets.
    pub fn change(&mut self, changes: &Changes) {
        self.rights = changes.rights;
        match &mut self.mode {
            Mode::Rc(peer, responder, requester) => {
                peer.route = changes.route.unwrap_or(peer.route);
                responder.serve_by(changes.serving);
                if let Some(requester) = requester {
                    requester.retry_by(changes.retries);
                }
            }
            Mode::Uc(peer, ..) => peer.route = changes.route.unwrap_or(peer.route),
            Mode::Ud { .. } | Mode::Closed => {}
        }
    }

    /// Holds all sends that have not begun; begun ones are finished (verbs: to SQD). Returns
    /// whether all begun sends are finished.
    pub fn hold(&mut self) -> bool {
        let front = self.sends.front();
        let from = match &self.mode {
            Mode::Rc(_, _, Some(requester)) => first_behind(&self.sends, front, requester.top),
            Mode::Uc(_, _, Some(sender)) | Mode::Ud { sender: Some(sender), .. } => {
                first_behind(&self.sends, front, sender.sent_packets())
            }
            _ => front,
        };
        self.held = Some(Hold { from, is_told: front >= from });
        front >= from
    }

    /// Whether the last send begun before the [hold](Self::hold) was finished since the last call.
    pub(crate) fn drained_just_now(&mut self) -> bool {
        let front = self.sends.front();
        let drained = self.held.as_mut().filter(|held| !held.is_told && front >= held.from);
        drained.map(|held| held.is_told = true).is_some()
    }

    /// Whether the send of that index must not begin.
    pub(crate) fn is_held(&self, index: u64) -> bool {
        self.held.is_some_and(|held| index >= held.from)
    }

    /// Resumes held sends. After a failed send, resumes with sends posted from now on (verbs: to
    /// RTS).
    pub fn send_again(&mut self) {
        self.held = None;
        if self.state != State::SendError {
            return;
        }
        self.reopen();
        if let Mode::Uc(_, _, Some(sender)) | Mode::Ud { sender: Some(sender), .. } = &mut self.mode {
            sender.skip_flushed();
        }
    }
}

/// Skips the sends from `front` on that have begun, with a packet below `packets`. Returns the
/// index behind them.
fn first_behind(sends: &SendQueue, front: u64, packets: u64) -> u64 {
    let begun = |index: &u64| sends.entry(*index).is_some_and(|entry| entry.first < packets);
    front + (front..).take_while(begun).count() as u64
}
