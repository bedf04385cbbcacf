//! Supervises one connection by address, on a thread of its own: watches it, and reconnects it when it is lost.
//!
//! Guarantees: a connection is lost when the connection manager says so or when the port's queue pair failed, whichever comes
//! first. The port then releases its queue pair ([`crate::connection::handover`]). Once that queue pair is drained, the supervisor
//! makes another, and connects it as the first one was, in as many attempts as that takes. The lcore, which has other ports to
//! serve, does none of this. It posts the receives once it has the queue pair, since they complete into its completion queue;
//! a peer that is quicker waits and sends again (RNR). [`StopFlags`] end a supervisor at any time.

use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use verbline_verbs::QueuePair;
use verbline_verbs::connection::{Connection, ConnectionError};

use crate::api::error::EngineError;
use crate::connection::connector::{Connector, Failure, PAUSE_MAX, PAUSE_MIN, rest};
use crate::connection::spec::{LocalPort, Reconnect, Role};
use crate::control::event_fd::{self, StopFlag};
use crate::stats::clock::{Clock, Tick};
use crate::stats::down_reason::DownReason;
use crate::stats::report::ConnectionState;

/// How long to wait for the connection manager or the device to give the reason, after a queue pair has failed.
pub(crate) const REASON_WAIT: Duration = Duration::from_millis(100);
/// Effectively forever; larger values overflow `Instant`.
const FOREVER: Duration = Duration::from_secs(1 << 32);

/// Flags that tell every supervisor of a run to stop.
#[derive(Clone, Debug)]
pub(crate) struct StopFlags {
    /// Make no connection any more.
    pub(crate) connecting: Arc<StopFlag>,
    /// Watch no connection any more.
    pub(crate) watching: Arc<StopFlag>,
}

/// What is known of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Status {
    pub(crate) state: ConnectionState,
    /// The other end, or the last other end.
    pub(crate) peer: String,
    pub(crate) attempts: u64,
    /// How often it was established.
    pub(crate) times: u64,
    /// How long the last connect took.
    pub(crate) took: Duration,
    /// Why and when it was lost last.
    pub(crate) ended: Option<(String, Tick)>,
    /// Why the last attempt to reconnect failed.
    pub(crate) last_error: Option<String>,
}

/// A status that the supervisor writes and any thread reads.
pub(crate) type SharedStatus = Arc<Mutex<Status>>;

pub(crate) fn lock(status: &SharedStatus) -> MutexGuard<'_, Status> {
    // Every change is a few assignments, so a panic leaves a valid status.
    status.lock().unwrap_or_else(PoisonError::into_inner)
}

/// See the top of this file.
pub(crate) struct Supervisor {
    pub(crate) port: LocalPort,
    pub(crate) role: Role,
    /// `None`: a connection that is lost stays lost.
    pub(crate) reconnect: Option<Reconnect>,
    pub(crate) status: SharedStatus,
    pub(crate) stop: StopFlags,
    pub(crate) clock: Clock,
}

impl Supervisor {
    /// Runs until a flag stops it. Returns the connection that there is then; of a port that does not reconnect, the lost one.
    pub(crate) fn run(mut self, mut connection: Connection) -> Option<Connection> {
        let mut pause = PAUSE_MIN;
        loop {
            let since = Instant::now();
            let reason = match self.watch(&mut connection) {
                Some(reason) => reason,
                None => return Some(connection),
            };
            self.lost(reason);
            let Some(reconnect) = &mut self.reconnect else { return Some(connection) };
            drop(reconnect.handover.lose());
            // Tells the peer, if the peer does not know.
            drop(connection);
            if !self.await_drained() {
                return None;
            }
            // Two ends that can connect but not talk would otherwise reconnect without a pause.
            if since.elapsed() < PAUSE_MAX {
                rest(&self.stop.connecting, Instant::now() + pause);
                pause = (pause * 2).min(PAUSE_MAX);
            } else {
                pause = PAUSE_MIN;
            }
            connection = self.connect()?;
        }
    }

    /// Waits until the connection is lost, and returns the reason; `None` if watching was stopped.
    fn watch(&self, connection: &mut Connection) -> Option<String> {
        let watching = self.stop.watching.as_fd();
        let handover = self.reconnect.as_ref().map(|reconnect| &reconnect.handover);
        loop {
            let lcore = handover.map_or(watching, |handover| handover.as_fd());
            let [has_event, lcore_spoke, stopped] = event_fd::wait([connection.as_fd(), lcore, watching], None);
            let failed = handover.filter(|_| lcore_spoke).and_then(|handover| handover.take_for_supervisor().down);
            if has_event || failed.is_some() {
                let patience = if failed.is_some() { REASON_WAIT } else { Duration::ZERO };
                match (connection.wait_disconnected(patience), failed) {
                    (Ok(true), _) => return Some(connection.end_reason().unwrap_or("it ended").to_owned()),
                    (_, Some(reason)) => {
                        let reason = DownReason::text(reason).unwrap_or_default();
                        return Some(format!("its queue pair failed: {reason}"));
                    }
                    (Err(error), None) => return Some(error.to_string()),
                    (Ok(false), None) => {}
                }
            }
            // Last: a connection that was lost before the stop is reported.
            if stopped {
                return None;
            }
        }
    }

    fn lost(&self, reason: String) {
        let mut status = lock(&self.status);
        tracing::warn!(port = %self.port.name, peer = %status.peer, %reason, reconnects = self.reconnect.is_some(), "a connection is lost");
        status.state = match self.reconnect {
            Some(_) => ConnectionState::Reconnecting,
            None => ConnectionState::Disconnected,
        };
        status.ended = Some((reason, self.clock.now_ns()));
    }

    /// Waits until nothing of the queue pair is outstanding. False if connecting was stopped first.
    fn await_drained(&self) -> bool {
        let Some(Reconnect { handover, .. }) = &self.reconnect else { return false };
        loop {
            if handover.take_for_supervisor().drained {
                return true;
            }
            let [_, stopped] = event_fd::wait([handover.as_fd(), self.stop.connecting.as_fd()], None);
            if stopped {
                return false;
            }
        }
    }

    /// Connects another queue pair and hands it over; `None` if connecting was stopped first.
    fn connect(&mut self) -> Option<Connection> {
        let start = Instant::now();
        loop {
            let (connection, qp) = match self.attempt() {
                Ok(made) => made,
                Err(Failure::Stopped) => return None,
                Err(Failure::GaveUp(error)) => {
                    tracing::debug!(port = %self.port.name, %error, "not connected yet");
                    lock(&self.status).last_error = Some(error.to_string());
                    rest(&self.stop.connecting, Instant::now() + PAUSE_MAX);
                    continue;
                }
            };
            self.reconnect.as_ref()?.handover.give(qp);
            let mut status = lock(&self.status);
            (status.state, status.last_error) = (ConnectionState::Connected, None);
            (status.peer, status.took) = (connection.peer_addr().to_string(), start.elapsed());
            status.times += 1;
            let Status { attempts, times, took, .. } = &*status;
            tracing::info!(port = %self.port.name, address = %self.role.address(), attempts, times, ?took, "connected again");
            return Some(connection);
        }
    }

    /// Makes a queue pair and connects it, in as many attempts as that takes.
    fn attempt(&mut self) -> Result<(Connection, QueuePair), Failure> {
        let Supervisor { port, role, reconnect, status, stop, .. } = self;
        let Some(Reconnect { maker, .. }) = reconnect else { return Err(Failure::Stopped) };
        if stop.connecting.is_raised() {
            return Err(Failure::Stopped);
        }
        let unmade = |source: verbline_verbs::QpError| {
            let (at, port) = (port.at.clone(), port.name.clone());
            Failure::GaveUp(EngineError::QueuePair { at, port, source: source.into() })
        };
        let mut qp = maker.make().map_err(unmade)?;
        qp.to_init(&port.init).map_err(unmade)?;
        let before = lock(status).attempts;
        let failed = |attempts, error: &ConnectionError| {
            let mut status = lock(status);
            (status.attempts, status.last_error) = (before + attempts, Some(error.to_string()));
        };
        let mut connector = Connector::new(port, &mut qp, &stop.connecting).forever(&failed);
        let connection = connector.run(role, Instant::now() + FOREVER)?;
        let attempts = connector.attempts;
        lock(status).attempts = before + attempts;
        Ok((connection, qp))
    }
}
