//! The exchange between the two sides of a connection: a hall where requests wait for a listener,
//! and a mailbox that lives as long as either side.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use verbline_softnic::wire::Asked;

use super::home::Home;
use super::ports::{Port, Ports};
use crate::connection::waiting::{Bell, lock};
use crate::connection::{CmTransport, ConnParam, ConnectOptions, ConnectionError, Deadline};
use crate::device::gid::Endpoint;
use crate::qp::QueuePair;

/// The ports of this process, with the halls of the listeners.
pub(crate) static PORTS: Ports<Hall> = Ports::new();

/// Rejection without a listener (InfiniBand Architecture Specification, table 117: "invalid service
/// ID").
const INVALID_SERVICE: u16 = 8;

/// The queue where requests wait for a listener.
#[derive(Debug)]
pub(crate) struct Hall {
    /// Requests for another transport find no listener.
    pub(crate) transport: CmTransport,
    pub(crate) waiting: Mutex<VecDeque<Waiting>>,
    pub(crate) backlog: usize,
    pub(crate) bell: Bell,
}

/// A request that waits for a listener.
#[derive(Debug)]
pub(crate) enum Waiting {
    /// From this process.
    Here(Arc<Mailbox>),
    /// From another process.
    Elsewhere(Asked),
}

impl Hall {
    /// Queues a request of another process, or returns it if the queue is full.
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
    /// Rejects the waiting requests, even one that came in as the listener left and kept the hall
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

/// The state shared by the two sides of a connection.
#[derive(Debug)]
pub(crate) struct Mailbox {
    pub(crate) state: Mutex<State>,
    /// The connecting side's bell; next, the accepting side's.
    pub(crate) caller: Bell,
    pub(crate) callee: Bell,
    pub(crate) request: Offer,
    pub(crate) from: Port<Hall>,
    pub(crate) to: Home,
    /// The address that was called: one of `to`, even if the listener is on every address.
    pub(crate) called: SocketAddr,
}

/// One side's endpoint and options.
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

    /// The parameters as the other side sees them.
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

/// One side's handle to a mailbox. Dropping it ends the connection.
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

    /// Waits until `look` returns a value; `None` if the deadline passed first.
    pub(crate) fn wait<T>(
        &self,
        deadline: Deadline,
        look: impl FnMut(&State) -> Option<T>,
    ) -> Result<Option<T>, ConnectionError> {
        self.bell().wait(&self.mailbox.state, deadline, look)
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
