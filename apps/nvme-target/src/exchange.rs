//! One queue's exchange of DH-HMAC-CHAP, from the controller's side: the next message, and the
//! effect of each message of the host.

use verbline::prelude::*;
use verbline_nvme::Nqn;
use verbline_nvme::auth::{Body, Message, Reason};
use verbline_nvme::secret::{Claim, DIGEST_BYTES_MAX, Digest, Hash, Key};

/// The time limit of an exchange: two minutes, which the specification sets for controllers without
/// a keep-alive time-out. A shorter keep-alive time-out ends the controller before.
const WITHIN_NS: u64 = 120_000_000_000;

/// The time that a failure message has to reach the host.
const TOLD_NS: u64 = 100_000_000;

/// A host that must authenticate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub(crate) host: Nqn,
    pub(crate) key: Key,
}

/// The drawn parts of a challenge: its number, and random bytes.
pub(crate) type Drawn = (u32, [u8; DIGEST_BYTES_MAX]);

/// The exchange of a queue.
#[derive(Debug)]
pub(crate) struct Exchange {
    /// The host's place in the list of known hosts.
    pub(crate) known: usize,
    /// The host has authenticated on this queue.
    is_authenticated: bool,
    state: State,
    transaction: u16,
    deadline_ns: Tick,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// The host may begin to negotiate.
    Idle,
    /// The host gets a Challenge next.
    Challenge(Asked),
    /// The host sends its Reply next.
    Reply(Asked),
    /// The Reply was good: the host gets Success1 next.
    Success(Hash),
    /// The host gets Failure1 next.
    Failure(Reason),
    /// The exchange has failed, and the host knows.
    Over,
}

/// A challenge.
#[derive(Clone, Copy, Debug)]
struct Asked {
    hash: Hash,
    sequence: u32,
    value: Digest,
}

impl Exchange {
    /// The exchange of a newly connected queue.
    pub(crate) fn new(known: usize, now_ns: Tick) -> Exchange {
        let deadline_ns = now_ns + WITHIN_NS;
        Exchange { known, is_authenticated: false, state: State::Idle, transaction: 0, deadline_ns }
    }

    #[inline]
    pub(crate) fn is_authenticated(&self) -> bool {
        self.is_authenticated
    }

    /// Whether the association must end: the exchange has failed, or took too long.
    pub(crate) fn is_to_end(&self, now_ns: Tick) -> bool {
        let is_under_way = !self.is_authenticated || !matches!(self.state, State::Idle);
        is_under_way && now_ns >= self.deadline_ns
    }

    /// Takes a message of the host. Returns the reason if the exchange fails by it.
    pub(crate) fn take(
        &mut self,
        bytes: &[u8],
        known: &Known,
        subsystem: &Nqn,
        now_ns: Tick,
        draw: impl FnOnce() -> Option<Drawn>,
    ) -> Result<(), Reason> {
        if matches!(self.state, State::Failure(_) | State::Over) {
            return Ok(());
        }
        if matches!(self.state, State::Idle) {
            (self.transaction, self.deadline_ns) = (Message::transaction_of(bytes), now_ns + WITHIN_NS);
        }
        let next = Message::read(bytes).and_then(|message| self.next(&message, known, subsystem, draw));
        self.state = next.unwrap_or_else(State::Failure);
        if matches!(self.state, State::Over) {
            self.deadline_ns = now_ns;
        }
        next.map(|_| ())
    }

    /// Whether the host's Reply was good, and it has not been told yet.
    pub(crate) fn has_proof(&self) -> bool {
        matches!(self.state, State::Success(_))
    }

    /// Makes the exchange fail, in any state: the host gets the reason next.
    pub(crate) fn fail(&mut self, reason: Reason) -> Reason {
        self.state = State::Failure(reason);
        reason
    }

    fn next(
        &self,
        message: &Message,
        known: &Known,
        subsystem: &Nqn,
        draw: impl FnOnce() -> Option<Drawn>,
    ) -> Result<State, Reason> {
        if message.transaction != self.transaction {
            return Err(Reason::Payload);
        }
        match (self.state, message.body) {
            (State::Idle, Body::Negotiate(offer)) => {
                let hash = offer.hash?;
                if offer.wants_channel {
                    return Err(Reason::ChannelMismatch);
                }
                let (sequence, random) = draw().ok_or(Reason::Failed)?;
                let value = Digest::new(&random[..hash.len_bytes()]).ok_or(Reason::Failed)?;
                Ok(State::Challenge(Asked { hash, sequence, value }))
            }
            (State::Reply(asked), Body::Reply { response, challenge }) => {
                if response.as_bytes().len() != asked.hash.len_bytes() {
                    return Err(Reason::Payload);
                }
                let claim = Claim {
                    hash: asked.hash,
                    challenge: asked.value,
                    sequence: asked.sequence,
                    transaction: self.transaction,
                    host: known.host,
                    subsystem: *subsystem,
                };
                // The controller has no secret to answer a challenge of the host with.
                match known.key.verifies(&claim, &response) && challenge.is_none() {
                    true => Ok(State::Success(asked.hash)),
                    false => Err(Reason::Failed),
                }
            }
            (_, Body::Failure2(_)) => Ok(State::Over),
            _ => Err(Reason::Message),
        }
    }

    /// The message that the host gets next; `None` if it is the host's turn.
    pub(crate) fn message(&self) -> Option<Message> {
        let body = match self.state {
            State::Challenge(Asked { hash, sequence, value }) => Body::Challenge { hash, sequence, value },
            State::Success(hash) => Body::Success1 { hash, response: None },
            State::Failure(reason) => Body::Failure1(reason),
            State::Idle | State::Reply(_) | State::Over => return None,
        };
        Some(Message { transaction: self.transaction, body })
    }

    /// Called when that message is on its way.
    pub(crate) fn told(&mut self, now_ns: Tick) {
        self.state = match self.state {
            State::Challenge(asked) => State::Reply(asked),
            State::Success(_) => {
                self.is_authenticated = true;
                State::Idle
            }
            State::Failure(_) => {
                self.deadline_ns = now_ns + TOLD_NS;
                State::Over
            }
            state @ (State::Idle | State::Reply(_) | State::Over) => state,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exchange_that_takes_too_long_ends() {
        let mut exchange = Exchange::new(0, 5);
        assert!(!exchange.is_to_end(WITHIN_NS + 4) && exchange.is_to_end(WITHIN_NS + 5));
        exchange.state = State::Success(Hash::Sha256);
        exchange.told(5);
        assert!(exchange.is_authenticated() && !exchange.is_to_end(Tick::MAX), "it is done: nothing is under way");
        exchange.state = State::Failure(Reason::Failed);
        assert!(exchange.is_to_end(WITHIN_NS + 5), "the host does not ask how it went");
        exchange.told(7);
        assert!(!exchange.is_to_end(TOLD_NS + 6) && exchange.is_to_end(TOLD_NS + 7), "the host was told");
    }
}
