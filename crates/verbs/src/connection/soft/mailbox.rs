//! The meeting point of the two sides of a connection: a hall in which requests wait for a
//! listener, and a mailbox that lives as long as either side.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use verbline_softnic::wire::Asked;

use super::bell::Bell;
use super::home::Home;
use super::ports::{Port, Ports};
use crate::connection::{CmTransport, ConnParam, ConnectOptions, ConnectionError, Deadline};
use crate::device::gid::Endpoint;
use crate::qp::QueuePair;

/// The ports of this process, with the halls of those who listen.
pub(crate) static PORTS: Ports<Hall> = Ports::new();

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic while one is held leaves nothing half done: every change is one assignment or one
    // push.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Nobody listens (InfiniBand Architecture Specification, table 117: "invalid service ID").
const INVALID_SERVICE: u16 = 8;

/// Where requests wait for a listener.
#[derive(Debug)]
pub(crate) struct Hall {
    /// Who asks for another finds nobody.
    pub(crate) transport: CmTransport,
    pub(crate) waiting: Mutex<VecDeque<Waiting>>,
    pub(crate) backlog: usize,
    pub(crate) bell: Bell,
}

/// A request that waits for a listener.
#[derive(Debug)]
pub(crate) enum Waiting {
    /// Of this process.
    Here(Arc<Mailbox>),
    /// Of another.
    Elsewhere(Asked),
}

impl Hall {
    /// Takes in a request of another process, or gives it back: there is no room.
    pub(crate) fn take_in(&self, asked: Asked) -> Result<(), Asked> {
        let mut waiting = lock(&self.waiting);
        if waiting.len() >= self.backlog {
            return Err(asked);
        }
        waiting.push_back(Waiting::Elsewhere(asked));
        drop(waiting);
        self.bell.ring();
        Ok(())
    }
}

impl Drop for Hall {
    /// Those who still wait are told: also one who came in as the listener left, and held the hall
    /// open behind it.
    fn drop(&mut self) {
        for one in lock(&self.waiting).drain(..) {
            match one {
                Waiting::Here(mailbox) => drop(End { mailbox, side: Side::Callee }),
                Waiting::Elsewhere(asked) => asked.reject(INVALID_SERVICE, &[]),
            }
        }
    }
}

/// What the two sides of a connection tell each other.
#[derive(Debug)]
pub(crate) struct Mailbox {
    pub(crate) state: Mutex<State>,
    /// Rung for the connecting side, and for the accepting side.
    pub(crate) caller: Bell,
    pub(crate) callee: Bell,
    pub(crate) request: Offer,
    pub(crate) from: Port<Hall>,
    pub(crate) to: Home,
    /// Where the listener was called: an address of `to`, also of a listener on every address.
    pub(crate) called: SocketAddr,
}

/// One side's endpoint and wishes.
#[derive(Clone, Debug)]
pub(crate) struct Offer {
    pub(crate) endpoint: Endpoint,
    pub(crate) options: ConnectOptions,
    pub(crate) srq: bool,
}

impl Offer {
    pub(crate) fn new(qp: &QueuePair, options: &ConnectOptions) -> Offer {
        Offer { endpoint: qp.endpoint(), options: options.clone(), srq: qp.uses_srq() }
    }

    /// As the other side is told of it.
    pub(crate) fn param(&self) -> ConnParam {
        let Offer { endpoint, options, srq } = self;
        ConnParam {
            responder_resources: options.initiator_depth,
            initiator_depth: options.responder_resources,
            retry_count: options.retry_count,
            rnr_retry_count: options.rnr_retry_count,
            qp_num: endpoint.qpn,
            srq: *srq,
        }
    }
}

#[derive(Debug)]
pub(crate) enum State {
    Asked,
    Accepted(Offer),
    Rejected(Vec<u8>),
    Established,
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Caller,
    Callee,
}

/// One side's hold on a mailbox. Dropping it ends the connection.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) side: Side,
}

impl End {
    pub(crate) fn bell(&self) -> &Bell {
        match self.side {
            Side::Caller => &self.mailbox.caller,
            Side::Callee => &self.mailbox.callee,
        }
    }

    fn ring_other(&self) {
        match self.side {
            Side::Caller => self.mailbox.callee.ring(),
            Side::Callee => self.mailbox.caller.ring(),
        }
    }

    /// Sets the state, unless the other side has ended it, and rings.
    pub(crate) fn set(&self, state: State) {
        let mut now = lock(&self.mailbox.state);
        if !matches!(*now, State::Ended) {
            *now = state;
        }
        drop(now);
        self.ring_other();
    }

    /// Waits until `look` finds what it waits for; `None` when the time is over first.
    pub(crate) fn wait<T>(
        &self,
        deadline: Deadline,
        mut look: impl FnMut(&State) -> Option<T>,
    ) -> Result<Option<T>, ConnectionError> {
        loop {
            // Quiet first, then look: a ring in between is heard by the next wait.
            self.bell().quiet();
            if let Some(found) = look(&lock(&self.mailbox.state)) {
                return Ok(Some(found));
            }
            if !deadline.wait(self.bell().as_fd())? {
                return Ok(None);
            }
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let mut state = lock(&self.mailbox.state);
        if !matches!(*state, State::Rejected(_)) {
            *state = State::Ended;
        }
        drop(state);
        self.ring_other();
    }
}
