//! The [`Acceptor`] of a server, which an app implements to decide who may connect to a port of
//! many connections; the descriptions of a peer for the app and its stages.
//!
//! Guarantees: an acceptor runs on the connection-management threads of its port and of the ports
//! that share its listener, one call at a time, beside the lcores. Every connection that it
//! accepted ends once for it ([`Acceptor::ended`]), whether or not it was ever opened, unless the
//! run ends before. Private data that does not fit its message is refused in the call that sets it,
//! and reaches no peer.

use std::net::SocketAddr;

use serde::de::DeserializeOwned;
use verbline_plan::{Diagnostic, Params, Plan};
use verbline_verbs::connection::{ACCEPT_PRIVATE_BYTES, ConnParam, REJECT_PRIVATE_BYTES};

use crate::errors::guarded::Vacancy;
use crate::stats::clock::Clock;

/// Decides on the peers that request a connection to a port (`acceptor = "…"` in the plan).
///
/// It may take its time, since no lcore waits for it. But while it decides, its port and those that
/// share its listener open and end no connection, and a peer gives up after some seconds. A port
/// without a free slot rejects without asking its acceptor.
pub trait Acceptor: Send {
    /// Decides on a request. A panic fails the run, which then ends in order.
    fn decide(&mut self, request: &ConnectionRequest<'_>) -> Answer;

    /// A connection that was accepted under this tag is over: it closed or failed, or its peer did
    /// not finish the handshake.
    fn ended(&mut self, tag: u64) {
        let _ = tag;
    }
}

/// Takes the place of a dropped acceptor.
struct Gone;

impl Acceptor for Gone {
    fn decide(&mut self, _: &ConnectionRequest<'_>) -> Answer {
        Answer::reject()
    }
}

impl Vacancy for dyn Acceptor {
    fn vacant() -> Box<dyn Acceptor> {
        Box::new(Gone)
    }
}

/// A peer's request, and the state of the ports that could take it.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionRequest<'a> {
    /// The peer's address.
    pub peer: SocketAddr,
    /// The peer's private data: the bytes as they came, of any content, at most
    /// [`CONNECT_PRIVATE_BYTES`](verbline_verbs::connection::CONNECT_PRIVATE_BYTES). The CM of a
    /// kernel device always delivers that many, padded with zeros.
    pub private_data: &'a [u8],
    /// The depths of its queues, and the other parameters of its request.
    pub param: ConnParam,
    /// The device that the request came by.
    pub device: &'a str,
    /// The port that listens, followed by the ports that share its listener (`listen_with`), in the
    /// plan's order.
    pub places: &'a [AcceptorPlace<'a>],
}

impl ConnectionRequest<'_> {
    /// The number of connections now, including those being made or released.
    pub fn connections(&self) -> usize {
        self.places.iter().map(|place| place.connections).sum()
    }

    /// The most connections.
    pub fn connections_max(&self) -> usize {
        self.places.iter().map(|place| place.connections_max).sum()
    }
}

/// A port that could take a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcceptorPlace<'a> {
    /// Its name in the plan.
    pub port: &'a str,
    /// Its device: only requests that came by it can be placed here.
    pub device: &'a str,
    /// The number of its connections, including those being made or released.
    pub connections: usize,
    /// The most connections that it may have (`connections_max`).
    pub connections_max: usize,
}

/// An acceptor's answer.
///
/// ```
/// use verbline_engine::{Answer, AnswerError};
///
/// let welcome = Answer::accept().tag(7).private_data(b"welcome")?;
/// let go_away = Answer::reject().private_data(b"no such account")?;
/// assert!(Answer::reject().private_data(&[0; 149]).is_err());
/// # Ok::<(), AnswerError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Answer(pub(crate) Decision);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    Accept { private_data: Vec<u8>, tag: u64, place: Option<usize> },
    Reject { private_data: Vec<u8> },
}

impl Answer {
    /// Accepts the peer.
    pub fn accept() -> Answer {
        Answer(Decision::Accept { private_data: Vec::new(), tag: 0, place: None })
    }

    /// Rejects the peer.
    pub fn reject() -> Answer {
        Answer(Decision::Reject { private_data: Vec::new() })
    }

    /// Adds bytes for the peer, which gets them with the acceptance or as the reason of the
    /// rejection.
    ///
    /// # Errors
    /// [`AnswerError`]: the bytes exceed the message's room.
    pub fn private_data(mut self, bytes: &[u8]) -> Result<Answer, AnswerError> {
        let (what, max_bytes, private_data) = match &mut self.0 {
            Decision::Accept { private_data, .. } => ("an acceptance", ACCEPT_PRIVATE_BYTES, private_data),
            Decision::Reject { private_data } => ("a rejection", REJECT_PRIVATE_BYTES, private_data),
        };
        if bytes.len() > max_bytes {
            return Err(AnswerError { what, len_bytes: bytes.len(), max_bytes });
        }
        *private_data = bytes.to_vec();
        Ok(self)
    }

    /// Sets a number of the acceptor's own, such as that of an account: the stages get it with the
    /// connection ([`ConnectionPeer::tag`]), and the acceptor when the connection is over
    /// ([`Acceptor::ended`]). 0 by default; a rejection has none.
    pub fn tag(mut self, number: u64) -> Answer {
        if let Decision::Accept { tag, .. } = &mut self.0 {
            *tag = number;
        }
        self
    }

    /// Places the connection at this index of [`ConnectionRequest::places`], instead of by the
    /// plan's `placement`. A peer whose place is full, or on another device than its request, is
    /// rejected, and counted.
    pub fn place(mut self, index: usize) -> Answer {
        if let Decision::Accept { place, .. } = &mut self.0 {
            *place = Some(index);
        }
        self
    }
}

/// Private data of an answer is longer than its message has room for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{len_bytes} bytes of private data; {what} has room for {max_bytes}: send the rest as a message")]
pub struct AnswerError {
    /// The kind of message.
    pub what: &'static str,
    /// The length of the private data.
    pub len_bytes: usize,
    /// The room of the message.
    pub max_bytes: usize,
}

/// The peer of a connection ([`Outputs::peer`](crate::Outputs::peer)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionPeer {
    /// Its address.
    pub address: SocketAddr,
    /// This side's address; on a port that listens on every address, the one that the peer called.
    pub local: SocketAddr,
    /// The private data of its request, or, on a port that connects, of its acceptance. On kernel
    /// devices zeros follow.
    pub private_data: Box<[u8]>,
    /// The acceptor's tag of the connection ([`Answer::tag`]); 0 without an acceptor.
    pub tag: u64,
}

/// The argument of an acceptor's factory: the port's place in the plan.
#[derive(Debug)]
pub struct AcceptorContext<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) port: &'a verbline_plan::Port,
    pub(crate) acceptor: &'a verbline_plan::Acceptor,
    pub(crate) clock: &'a Clock,
}

impl<'a> AcceptorContext<'a> {
    /// The name of the port.
    pub fn port(&self) -> &'a str {
        &self.port.name
    }

    /// The most connections that the port may have.
    pub fn connections_max(&self) -> usize {
        self.port.connections.as_ref().map_or(0, |connections| connections.max as usize)
    }

    /// The port's `acceptor_params`, as the app's own type. An error says which key is wrong, and
    /// where.
    pub fn params<T: DeserializeOwned>(&self) -> Result<T, Diagnostic> {
        self.acceptor.params.parse()
    }

    /// The `acceptor_params` themselves, e.g. to refuse a value that only the app can judge.
    pub fn raw_params(&self) -> &'a Params {
        self.acceptor.params.note_asked();
        &self.acceptor.params
    }

    /// The whole plan, the app's own sections included.
    pub fn plan(&self) -> &'a Plan {
        self.plan
    }

    /// The runtime's clock, e.g. for a limit by time.
    pub fn clock(&self) -> Clock {
        self.clock.clone()
    }
}
