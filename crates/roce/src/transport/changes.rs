//! What a program changes of a queue pair that is open: rights, path and patience; that it holds
//! its sends, and begins again.

use crate::transport::configuration::{Retries, Rights, Serving};
use crate::transport::queue_pair::{Hold, Mode, QueuePair, State};
use crate::transport::send_queue::SendQueue;
use crate::wire::Route;

/// What verbs may change while a queue pair receives or sends, all of it as it is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changes {
    /// What peers may do.
    pub rights: Rights,
    /// From here to the peer; `None` if that stays.
    pub route: Option<Route>,
    /// How a reliable connection's responder serves.
    pub serving: Serving,
    /// How a reliable connection's requester tries. The window stays as it was.
    pub retries: Retries,
}

impl QueuePair {
    /// Changes it, for packets that come or go from now on.
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

    /// What is sent already, in part or whole, is finished; no other send begins (verbs: to SQD).
    /// Whether everything is finished.
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

    /// Whether all that was sent before the [hold](Self::hold) was finished since this was asked
    /// last.
    pub(crate) fn drained_just_now(&mut self) -> bool {
        let front = self.sends.front();
        let drained = self.held.as_mut().filter(|held| !held.is_told && front >= held.from);
        drained.map(|held| held.is_told = true).is_some()
    }

    /// Whether the send of that index is not to begin.
    pub(crate) fn is_held(&self, index: u64) -> bool {
        self.held.is_some_and(|held| index >= held.from)
    }

    /// Sends again what is held, and after a failure of a send what is posted from now on (verbs:
    /// to RTS).
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

/// Goes from `front` on past the sends that have begun, those with a packet below `packets`. Gives
/// the index behind them.
fn first_behind(sends: &SendQueue, front: u64, packets: u64) -> u64 {
    let begun = |index: &u64| sends.entry(*index).is_some_and(|entry| entry.first < packets);
    front + (front..).take_while(begun).count() as u64
}
