//! Supervises one connection by address, on a thread of its own: watches it, and reconnects it when
//! it is lost.
//!
//! Guarantees: a connection is lost when the connection manager says so or when the port's queue
//! pair failed, whichever comes first. The port then releases its queue pair
//! ([`crate::connection::cm_mailbox`]). Once that queue pair is drained, the supervisor makes
//! another, and connects it like the first one, in as many attempts as needed. The lcore, which has
//! other ports to serve, does none of this. It posts the receives once it has the queue pair, since
//! they complete into its completion queue; a quicker peer waits and sends again (RNR).
//! If the connection is not to be made again, the supervisor tells the peer, and ends.
//! [`StopFlags`] end a supervisor at any time. If the port's lcore has ended, in a run that failed,
//! the supervisor disconnects: the peer must not wait until the owner stops the run.
//!
//! A supervisor waits, connects and reads the clock through its [`ConnectionManager`] alone. The
//! real one is [`Reconnector`]; tests of the poll loop have a model, which drives a supervisor and
//! an lcore step by step.

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use verbline_mem::ConnectionId;
use verbline_verbs::connection::{Connection, ConnectionError, ConnectionLink, QpIncidents};
use verbline_verbs::{QpMaker, QueuePair};

use crate::connection::cm_mailbox::{CmMailbox, TO_CM_KINDS, ToCm, ToLcore, first_connection};
use crate::connection::connector::{Connector, Failure};
use crate::connection::handshake::{PAUSE_MAX, Pauses};
use crate::connection::port_qp::PortQp;
use crate::connection::spec::{LocalPort, Role, SharedStatus, Status};
use crate::control::event_fd::{self, StopFlag, StopFlags};
use crate::errors::error::EngineError;
use crate::errors::guarded::lock;
use crate::stats::clock::Clock;
use crate::stats::down_reason::DownReason;
use crate::stats::report::ConnectionState;

/// The wait for the reason, from the connection manager or the device, after a queue pair has
/// failed.
pub(crate) const REASON_WAIT: Duration = Duration::from_millis(100);

/// A supervisor's environment: the connection manager, and the clock.
pub(crate) trait ConnectionManager {
    type Connection: Supervised;

    fn now(&self) -> Instant;
    /// Waits until one of the descriptors is readable, or until `until` (`None`: forever). Returns
    /// which descriptors are readable.
    fn wait<const N: usize>(&self, on: [BorrowedFd<'_>; N], until: Option<Instant>) -> [bool; N];
    /// Makes a queue pair and connects it, in as many attempts as needed; `status` shows them.
    fn connect(&mut self, status: &SharedStatus, stop: &StopFlag) -> Result<(Self::Connection, QueuePair), Failure>;
}

/// A connection as its supervisor sees it: readable when it has an event.
pub(crate) trait Supervised: AsFd {
    fn peer(&self) -> String;
    fn link(&self) -> ConnectionLink;
    fn incidents(&self) -> Option<QpIncidents>;
    /// The reason why it is over, if it is or ends within `patience`.
    fn end_reason(&mut self, patience: Duration) -> Result<Option<String>, ConnectionError>;
}

impl Supervised for Connection {
    fn peer(&self) -> String {
        self.peer_addr().to_string()
    }

    fn link(&self) -> ConnectionLink {
        Connection::link(self)
    }

    fn incidents(&self) -> Option<QpIncidents> {
        Connection::incidents(self)
    }

    fn end_reason(&mut self, patience: Duration) -> Result<Option<String>, ConnectionError> {
        let ended = self.wait_disconnected(patience)?;
        Ok(ended.then(|| Connection::end_reason(self).unwrap_or("it ended").to_owned()))
    }
}

/// The reason why a connection is no longer watched.
enum Watched {
    /// It is over, for this reason. Without a reconnect it stays in this state.
    Lost(String, ConnectionState),
    /// The run's owner ends it.
    Stopped,
    /// Its lcore has ended, and nobody stops the run.
    LcoreEnded,
}

/// See the top of this file.
pub(crate) struct Supervisor<M> {
    /// The port's name, and its address in the plan.
    pub(crate) port: String,
    pub(crate) address: SocketAddr,
    pub(crate) manager: M,
    /// Otherwise a lost connection stays lost.
    pub(crate) reconnects: bool,
    pub(crate) lcore: LcoreSide,
    pub(crate) status: SharedStatus,
    pub(crate) stop: StopFlags,
    pub(crate) clock: Clock,
}

impl<M: ConnectionManager> Supervisor<M> {
    /// Runs until a flag stops it. Returns the connection, which its owner ends; `None` if it is
    /// ended here, and its peer told.
    pub(crate) fn run(mut self, mut connection: M::Connection) -> Option<M::Connection> {
        let mut pauses = Pauses::START;
        loop {
            let since = self.manager.now();
            match self.watch(&mut connection) {
                Watched::Lost(reason, state) => self.lost(reason, state),
                Watched::Stopped => return Some(connection),
                Watched::LcoreEnded => return None,
            }
            // The end of `connection` tells the peer, if the peer does not know.
            if !self.reconnects {
                return None;
            }
            self.lcore.lose();
            drop(connection);
            while !self.lcore.hear().is_drained {
                let [_, stopped] = self.manager.wait([self.lcore.as_fd(), self.stop.connecting.as_fd()], None);
                if stopped {
                    return None;
                }
            }
            // Two ends that can connect but not talk would otherwise reconnect without a pause.
            if self.manager.now() < since + PAUSE_MAX {
                self.rest(pauses.take());
            } else {
                pauses = Pauses::START;
            }
            connection = self.connect()?;
        }
    }

    /// Waits until the connection is lost, or a flag stops watching it.
    fn watch(&mut self, connection: &mut M::Connection) -> Watched {
        let (watching, ended) = (self.stop.watching.as_fd(), self.stop.lcore_ended.as_fd());
        loop {
            let [has_event, lcore_spoke, stopped, lcore_ended] =
                self.manager.wait([connection.as_fd(), self.lcore.as_fd(), watching, ended], None);
            let failed = if lcore_spoke { self.lcore.hear().over.take() } else { None };
            if has_event || failed.is_some() {
                let patience = if failed.is_some() { REASON_WAIT } else { Duration::ZERO };
                match (connection.end_reason(patience), failed) {
                    (Ok(Some(reason)), _) => return Watched::Lost(reason, ConnectionState::Disconnected),
                    (_, Some(reason)) => {
                        let reason = DownReason::text(reason);
                        let reason = reason.as_deref().unwrap_or("no reason is known");
                        return Watched::Lost(format!("its queue pair failed: {reason}"), ConnectionState::Failed);
                    }
                    (Err(error), None) => return Watched::Lost(error.to_string(), ConnectionState::Disconnected),
                    (Ok(None), None) => {}
                }
            }
            // Last: a connection that was lost before the stop is reported.
            if stopped {
                return Watched::Stopped;
            }
            if lcore_ended {
                return Watched::LcoreEnded;
            }
        }
    }

    fn lost(&self, reason: String, state: ConnectionState) {
        let reconnects = self.reconnects;
        let mut status = lock(&self.status);
        status.state = if reconnects { ConnectionState::Reconnecting } else { state };
        status.ended = Some((reason.clone(), self.clock.now_ns()));
        let peer = status.peer.clone();
        // A snapshot waits for the status, and a log may block, or take a snapshot.
        drop(status);
        tracing::warn!(port = %self.port, %peer, %reason, reconnects, "a connection is lost");
    }

    /// Connects another queue pair and hands it over; `None` if connecting was stopped first.
    fn connect(&mut self) -> Option<M::Connection> {
        let start = self.manager.now();
        loop {
            let (connection, qp) = match self.manager.connect(&self.status, &self.stop.connecting) {
                Ok(made) => made,
                Err(Failure::Stopped) => return None,
                Err(Failure::GaveUp(error)) => {
                    tracing::debug!(port = %self.port, %error, "not connected yet");
                    lock(&self.status).last_error = Some(error.to_string());
                    self.rest(PAUSE_MAX);
                    continue;
                }
            };
            self.lcore.give(qp);
            let took = self.manager.now().saturating_duration_since(start);
            let mut status = lock(&self.status);
            status.connected(connection.peer(), connection.link(), connection.incidents(), took);
            let Status { attempts, times, .. } = *status;
            // As above.
            drop(status);
            tracing::info!(port = %self.port, address = %self.address, attempts, times, ?took, "connected again");
            return Some(connection);
        }
    }

    /// Waits for `pause`, or until connecting is stopped.
    fn rest(&self, pause: Duration) {
        let (stop, until) = (&self.stop.connecting, self.manager.now() + pause);
        while !stop.is_raised() && self.manager.now() < until {
            self.manager.wait([stop.as_fd()], Some(until));
        }
    }
}

/// The supervisor's end of the mailbox, and the lcore's messages about the current connection.
pub(crate) struct LcoreSide {
    mailbox: Arc<CmMailbox>,
    connection: ConnectionId,
    heard: Vec<ToCm>,
    /// Set once it is over: the number of the [`crate::stats::down_reason::DownReason`].
    pub(crate) over: Option<u64>,
    pub(crate) is_drained: bool,
}

impl LcoreSide {
    /// For the port with this number, on its first connection.
    pub(crate) fn new(mailbox: Arc<CmMailbox>, port: u16) -> LcoreSide {
        let heard = Vec::with_capacity(TO_CM_KINDS);
        LcoreSide { mailbox, connection: first_connection(port), heard, over: None, is_drained: false }
    }

    /// Takes the lcore's messages.
    pub(crate) fn hear(&mut self) -> &mut LcoreSide {
        self.mailbox.take_for_cm(&mut self.heard);
        for message in self.heard.drain(..) {
            match message {
                ToCm::Over { connection, down_reason } if connection == self.connection => {
                    self.over = Some(down_reason);
                }
                ToCm::Drained { connection } if connection == self.connection => self.is_drained = true,
                // A released queue pair is destroyed here.
                ToCm::Over { .. } | ToCm::Drained { .. } | ToCm::Told { .. } | ToCm::Released { .. } => {}
            }
        }
        self
    }

    /// Tells the lcore that the connection is over and its queue pair is to be released.
    pub(crate) fn lose(&self) {
        self.mailbox.tell_lcore(ToLcore::Close { connection: self.connection, reason: "it is lost" });
    }

    /// Gives the lcore a connected queue pair.
    pub(crate) fn give(&mut self, qp: QueuePair) {
        let last = self.connection;
        // More generations than a run can use; 0 is invalid.
        let next = last.generation().wrapping_add(1).max(1);
        self.connection = ConnectionId::new(last.port(), 0, next).unwrap_or(last);
        (self.over, self.is_drained) = (None, false);
        let (connection, qp) = (self.connection, Box::new(PortQp::new(qp)));
        self.mailbox.tell_lcore(ToLcore::Open { connection, qp, peer: None });
    }
}

impl AsFd for LcoreSide {
    /// Readable when the lcore has sent a message.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.mailbox.as_fd()
    }
}

/// Connects one port again, through rdma_cm or the software RNIC's connection manager.
pub(crate) struct Reconnector {
    pub(crate) port: LocalPort,
    pub(crate) role: Role,
    /// `None` for a port that does not reconnect.
    pub(crate) maker: Option<QpMaker>,
}

impl ConnectionManager for Reconnector {
    type Connection = Connection;

    fn now(&self) -> Instant {
        Instant::now()
    }

    fn wait<const N: usize>(&self, on: [BorrowedFd<'_>; N], until: Option<Instant>) -> [bool; N] {
        event_fd::wait(on, until)
    }

    fn connect(&mut self, status: &SharedStatus, stop: &StopFlag) -> Result<(Connection, QueuePair), Failure> {
        let Reconnector { port, role, maker } = self;
        let Some(maker) = maker else { return Err(Failure::Stopped) };
        if stop.is_raised() {
            return Err(Failure::Stopped);
        }
        let unmade = |source: verbline_verbs::QpError| {
            let (at, port) = (port.at.clone(), port.name.clone());
            Failure::GaveUp(EngineError::QueuePair { at, port, source: source.into() })
        };
        let mut qp = port.make(maker).map_err(unmade)?;
        let before = lock(status).attempts;
        let connection =
            Connector { port, qp: &mut qp, stop, status, deadline: None, before, attempts: 0 }.run(role)?;
        Ok((connection, qp))
    }
}
