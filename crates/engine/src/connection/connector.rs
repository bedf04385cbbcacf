//! Connects ports by address: all of them before the lcores run, and single ones again after their
//! connections were lost ([`crate::connection::supervisor`]).
//!
//! Guarantees: at the start every port connects at the same time, on a thread of its own, within
//! its `connect_timeout`. An attempt is repeated if waiting may help (nobody listens yet, there is
//! no route yet, the other end went away during the attempt), with pauses that double up to
//! a second. The start fails at once if waiting cannot help (a wrong device, a listener that
//! rejects with a reason). The first port that gives up, or a request to stop, ends the other
//! attempts at once or, during an address lookup, within [`RESOLVE`].
//!
//! A reconnect repeats every attempt, whatever the error, as long as the run goes on: the same
//! connection worked before.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use std::time::{Duration, Instant};

use verbline_verbs::connection::{Connection, ConnectionError, Listener, Request, resolve_for};
use verbline_verbs::{Provider, QpState, QueuePair};

use crate::connection::handshake::{ANSWER, Pauses, RESOLVE, reject, wrong_device};
use crate::connection::spec::{ConnectionSpec, Established, LocalPort, Role, SharedStatus, Status};
use crate::connection::waiting::Waiting;
use crate::control::event_fd::{self, StopFlag};
use crate::errors::error::EngineError;
use crate::errors::guarded::lock;

/// The interval at which the owner is asked whether to stop.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// One more than a port accepts, so that a second peer is refused instead of left waiting.
pub(crate) const BACKLOG: u32 = 2;

/// The reason why an attempt to connect ended without a connection.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The run asked to stop.
    Stopped,
    GaveUp(EngineError),
}

/// Connects all ports. `qps` has the queue pair of each port of the plan, with the port's index.
/// `is_stopped` is asked fifty times a second.
pub(crate) fn connect(
    specs: Vec<ConnectionSpec>,
    mut qps: Vec<(usize, &mut QueuePair)>,
    stop: &Arc<StopFlag>,
    mut is_stopped: impl FnMut() -> bool,
) -> Result<Vec<Established>, EngineError> {
    if specs.is_empty() {
        return Ok(Vec::new());
    }
    let (mut established, mut failed, mut stopped) = (Vec::new(), None, false);
    let mut waiting = Waiting::of(&specs);
    std::thread::scope(|scope| {
        let (sender, results) = mpsc::channel();
        for spec in specs {
            let Some(place) = qps.iter().position(|(index, _)| *index == spec.port.index) else { continue };
            let (qp, sender) = (qps.swap_remove(place).1, sender.clone());
            let (at, port) = (spec.port.at.clone(), spec.port.name.clone());
            // The receiver outlives every sender.
            let connects = move || _ = sender.send(first(spec, qp, stop));
            if let Err(source) = std::thread::Builder::new().name("vl-connect".into()).spawn_scoped(scope, connects) {
                failed = Some(EngineError::Thread { at, port, does: "connects", source });
                stop.raise();
                break;
            }
        }
        drop(sender);
        loop {
            match results.recv_timeout(LOOK_EVERY) {
                Ok(Ok(one)) => {
                    waiting.has_met(&one);
                    established.push(one);
                }
                Ok(Err(Failure::GaveUp(error))) => _ = failed.get_or_insert(error),
                Ok(Err(Failure::Stopped)) | Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
            }
            stopped |= is_stopped();
            if stopped || failed.is_some() {
                stop.raise();
            } else {
                waiting.tell();
            }
        }
    });
    match failed {
        Some(error) => Err(error),
        None if stopped => Err(EngineError::Interrupted),
        None => Ok(established),
    }
}

/// Connects a port for the first time, within its `connect_timeout`.
fn first(mut spec: ConnectionSpec, qp: &mut QueuePair, stop: &StopFlag) -> Result<Established, Failure> {
    let ConnectionSpec { port, role, .. } = &mut spec;
    let (start, status) = (Instant::now(), Arc::new(Mutex::new(Status::new())));
    let deadline = Some(start + port.timeout);
    let mut connector = Connector { port, qp, stop, status: &status, deadline, before: 0, attempts: 0 };
    let connection = connector.run(role)?;
    let (attempts, took, address) = (connector.attempts, start.elapsed(), role.address());
    tracing::info!(port = %port.name, %address, attempts, ?took, "connected");
    let peer = connection.peer_addr().to_string();
    lock(&status).connected(peer, connection.link(), connection.incidents(), took);
    Ok(Established { spec, status, connection })
}

/// The attempts to connect one port.
pub(crate) struct Connector<'a> {
    pub(crate) port: &'a LocalPort,
    pub(crate) qp: &'a mut QueuePair,
    pub(crate) stop: &'a StopFlag,
    /// The published status: it counts the attempts that have ended, earlier connects included.
    pub(crate) status: &'a SharedStatus,
    /// `None` for a reconnect: every failed attempt is repeated until the run stops.
    pub(crate) deadline: Option<Instant>,
    /// The attempts of earlier connects, and those of this one.
    pub(crate) before: u64,
    pub(crate) attempts: u64,
}

impl<'a> Connector<'a> {
    pub(crate) fn run(&mut self, role: &mut Role) -> Result<Connection, Failure> {
        let connection = match role {
            Role::Listen { listener, provider, at } => {
                let listener = match listener.take() {
                    Some(listener) => listener,
                    None => self.bind(*provider, *at)?,
                };
                self.listen(listener, *at)?
            }
            Role::Connect { provider, to, from } => self.connect(*provider, *to, *from)?,
        };
        drop(self.counted());
        Ok(connection)
    }

    fn connect(&mut self, provider: Provider, to: SocketAddr, from: Option<SocketAddr>) -> Result<Connection, Failure> {
        let mut pauses = Pauses::START;
        loop {
            self.attempts += 1;
            match self.attempt(provider, to, from) {
                Ok(connection) => return Ok(connection),
                Err(error) => self.failed(error, || format!("connect to {to}"))?,
            }
            self.pause(&mut pauses)?;
            if is_over(self.deadline) {
                return Err(self.late(format!("connects to {to}")));
            }
        }
    }

    fn attempt(
        &mut self,
        provider: Provider,
        to: SocketAddr,
        from: Option<SocketAddr>,
    ) -> Result<Connection, ConnectionError> {
        let options = self.port.options.now();
        let route = resolve_for(provider, to, from, &options, within(RESOLVE, self.deadline))?;
        let connecting = route.connect(self.qp, &options)?;
        let limit = answer_within(self.deadline);
        if !self.wait(&connecting, Some(Instant::now() + limit)) {
            return Err(ConnectionError::TimedOut { what: "the listener's answer", after: limit });
        }
        connecting.finish(self.qp, ANSWER)
    }

    /// Listens again, once the address is free.
    fn bind(&mut self, provider: Provider, at: SocketAddr) -> Result<Listener, Failure> {
        let mut pauses = Pauses::START;
        loop {
            let transport = self.port.options.now().transport;
            match Listener::bind_for(provider, at, transport, BACKLOG) {
                Ok(listener) => return Ok(listener),
                Err(error) => self.failed(error, || format!("listen at {at}"))?,
            }
            self.pause(&mut pauses)?;
        }
    }

    fn listen(&mut self, mut listener: Listener, at: SocketAddr) -> Result<Connection, Failure> {
        loop {
            if !self.wait(&listener, self.deadline) {
                self.check_stop()?;
                return Err(self.late(format!("listens at {at}")));
            }
            let answer = match listener.next(Duration::ZERO) {
                Ok(None) => continue,
                Ok(Some(request)) => {
                    self.attempts += 1;
                    self.accept(request)
                }
                Err(error) => return Err(self.refused(format!("listen at {at}"), error)),
            };
            match answer {
                Ok(connection) => return Ok(connection),
                // Only the peer can change its device.
                Err(error @ ConnectionError::WrongDevice { .. }) => self.note(error),
                Err(error) => self.failed(error, || format!("listen at {at}"))?,
            }
            self.check_stop()?;
        }
    }

    fn accept(&mut self, request: Request) -> Result<Connection, ConnectionError> {
        let (device, came_by) = (&self.port.device, request.device_name());
        if came_by != device {
            let reason = wrong_device(&self.port.name, device, came_by);
            tracing::warn!(peer = %request.peer_addr(), %reason, "a connection is rejected");
            let error = ConnectionError::WrongDevice { qp: device.clone(), route: came_by.to_owned() };
            reject(request, reason.as_bytes())?;
            return Err(error);
        }
        let mut connection = request.accept(self.qp, &self.port.options.now())?;
        let limit = answer_within(self.deadline);
        let until = Instant::now() + limit;
        loop {
            match connection.wait_established(LOOK_EVERY) {
                Ok(()) => return Ok(connection),
                Err(ConnectionError::TimedOut { what, .. }) if Instant::now() >= until || self.stop.is_raised() => {
                    return Err(ConnectionError::TimedOut { what, after: limit });
                }
                Err(ConnectionError::TimedOut { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits until a descriptor is readable. False if the time is up or the run stops.
    fn wait(&self, on: &impl AsFd, until: Option<Instant>) -> bool {
        loop {
            if self.stop.is_raised() || is_over(until) {
                return false;
            }
            let [ready, _] = event_fd::wait([on.as_fd(), self.stop.as_fd()], until);
            if ready {
                return true;
            }
        }
    }

    /// Waits before the next attempt.
    fn pause(&self, pauses: &mut Pauses) -> Result<(), Failure> {
        let until = Instant::now() + within(pauses.take(), self.deadline);
        while !self.stop.is_raised() && Instant::now() < until {
            event_fd::wait([self.stop.as_fd()], Some(until));
        }
        self.check_stop()
    }

    /// After a failed attempt: resets the queue pair for the next one, or gives up if waiting
    /// cannot help.
    fn failed(&mut self, error: ConnectionError, doing: impl FnOnce() -> String) -> Result<(), Failure> {
        if self.deadline.is_some() && !is_transient(&error) {
            return Err(self.refused(doing(), error));
        }
        self.note(error);
        self.reset()
    }

    fn note(&self, error: ConnectionError) {
        if self.stop.is_raised() {
            // The stop made the attempt fail.
            return;
        }
        tracing::debug!(port = %self.port.name, attempt = self.attempts, %error, "not connected yet");
        self.counted().last_error = Some(error.to_string());
    }

    /// The status, updated with the attempts that have ended.
    fn counted(&self) -> MutexGuard<'_, Status> {
        let mut status = lock(self.status);
        status.attempts = self.before + self.attempts;
        status
    }

    /// Brings the queue pair back to INIT. Work requests posted to it are lost.
    fn reset(&mut self) -> Result<(), Failure> {
        if self.qp.state() == QpState::Init {
            return Ok(());
        }
        let again = self.qp.to_reset().and_then(|()| self.qp.to_init(&self.port.init));
        again.map_err(|error| self.refused("connect again".to_owned(), error.into()))
    }

    fn check_stop(&self) -> Result<(), Failure> {
        if self.stop.is_raised() { Err(Failure::Stopped) } else { Ok(()) }
    }

    fn refused(&self, doing: String, source: ConnectionError) -> Failure {
        let LocalPort { at, name, .. } = self.port;
        Failure::GaveUp(EngineError::Address { at: at.clone(), port: name.clone(), doing, source: source.into() })
    }

    fn late(&self, role: String) -> Failure {
        let last = lock(self.status).last_error.clone().unwrap_or_else(|| "nobody came".to_owned());
        let LocalPort { at, name, timeout, reaches_others, .. } = self.port;
        Failure::GaveUp(EngineError::NotConnected {
            at: at.clone(),
            port: name.clone(),
            role,
            attempts: self.attempts,
            timeout: *timeout,
            last,
            reaches_others: *reaches_others,
        })
    }
}

fn is_over(until: Option<Instant>) -> bool {
    until.is_some_and(|until| Instant::now() >= until)
}

/// A time, cut at the deadline.
fn within(time: Duration, deadline: Option<Instant>) -> Duration {
    deadline.map_or(time, |deadline| time.min(deadline.saturating_duration_since(Instant::now())))
}

/// The time that the other end has to answer before this deadline, in whole milliseconds, as
/// reported.
fn answer_within(deadline: Option<Instant>) -> Duration {
    let left = within(ANSWER, deadline);
    Duration::from_millis(u64::try_from(left.as_millis()).unwrap_or(u64::MAX))
}

/// Whether the same attempt may succeed later. A listener that rejects with a reason has decided; a
/// listener that rejects without one may have been shutting down.
fn is_transient(error: &ConnectionError) -> bool {
    match error {
        ConnectionError::Refused { .. }
        | ConnectionError::Unreachable { .. }
        | ConnectionError::Unanswered { .. }
        | ConnectionError::TimedOut { .. }
        | ConnectionError::Ended { .. } => true,
        ConnectionError::Rejected { private_data, .. } => private_data.iter().all(|byte| *byte == 0),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a port with a limit of one second reported that the answer took longer than
    /// five.
    #[test]
    fn an_answer_has_no_longer_than_there_is() {
        let now = Instant::now();
        assert_eq!(answer_within(Some(now + 2 * ANSWER)), ANSWER);
        assert!(answer_within(Some(now + Duration::from_secs(1))) <= Duration::from_secs(1));
        assert_eq!((answer_within(Some(now)), answer_within(None)), (Duration::ZERO, ANSWER));
    }
}
