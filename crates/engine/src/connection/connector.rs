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
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use verbline_verbs::connection::{Connection, ConnectionError, Listener, Request, resolve_for};
use verbline_verbs::{Provider, QpState, QueuePair};

use crate::connection::handshake::{ANSWER, Pauses, RESOLVE, reject, wrong_device};
use crate::connection::spec::{ConnectionSpec, Established, LocalPort, Role};
use crate::connection::waiting::Waiting;
use crate::control::event_fd::{self, StopFlag};
use crate::errors::error::EngineError;

/// How often the owner is asked whether to stop.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// One more than a port accepts, so that a second peer is refused and not left waiting.
pub(crate) const BACKLOG: u32 = 2;

/// Why an attempt to connect ended without a connection.
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
fn first(spec: ConnectionSpec, qp: &mut QueuePair, stop: &StopFlag) -> Result<Established, Failure> {
    let ConnectionSpec { port, mut role, reconnect } = spec;
    let start = Instant::now();
    let mut connector = Connector::new(&port, qp, stop);
    let connection = connector.run(&mut role, start + port.timeout)?;
    let (attempts, took, address) = (connector.attempts, start.elapsed(), role.address());
    tracing::info!(port = %port.name, %address, attempts, ?took, "connected");
    Ok(Established { port, role, reconnect, attempts, took, connection })
}

/// Called after each failed attempt, with the number of attempts so far and the error.
type OnFailure<'a> = &'a dyn Fn(u64, &ConnectionError);

/// The attempts to connect one port.
pub(crate) struct Connector<'a> {
    port: &'a LocalPort,
    qp: &'a mut QueuePair,
    stop: &'a StopFlag,
    /// Set for a reconnect: only a stop ends the attempts, and every failure is reported here.
    on_failure: Option<OnFailure<'a>>,
    pub(crate) attempts: u64,
    /// Why the last attempt failed.
    last: Option<ConnectionError>,
}

impl<'a> Connector<'a> {
    pub(crate) fn new(port: &'a LocalPort, qp: &'a mut QueuePair, stop: &'a StopFlag) -> Connector<'a> {
        Connector { port, qp, stop, on_failure: None, attempts: 0, last: None }
    }

    /// Repeats every failed attempt until the port is connected or the run stops.
    pub(crate) fn forever(mut self, on_failure: OnFailure<'a>) -> Connector<'a> {
        self.on_failure = Some(on_failure);
        self
    }

    pub(crate) fn run(&mut self, role: &mut Role, deadline: Instant) -> Result<Connection, Failure> {
        match role {
            Role::Listen { listener, provider, at } => {
                let listener = match listener.take() {
                    Some(listener) => listener,
                    None => self.bind(*provider, *at, deadline)?,
                };
                self.listen(listener, *at, deadline)
            }
            Role::Connect { provider, to, from } => self.connect(*provider, *to, *from, deadline),
        }
    }

    fn connect(
        &mut self,
        provider: Provider,
        to: SocketAddr,
        from: Option<SocketAddr>,
        deadline: Instant,
    ) -> Result<Connection, Failure> {
        let mut pauses = Pauses::START;
        loop {
            self.attempts += 1;
            match self.attempt(provider, to, from, deadline) {
                Ok(connection) => return Ok(connection),
                Err(error) => self.failed(error, || format!("connect to {to}"))?,
            }
            self.pause(&mut pauses, deadline)?;
            if Instant::now() >= deadline {
                return Err(self.late(format!("connects to {to}")));
            }
        }
    }

    fn attempt(
        &mut self,
        provider: Provider,
        to: SocketAddr,
        from: Option<SocketAddr>,
        deadline: Instant,
    ) -> Result<Connection, ConnectionError> {
        let left = deadline.saturating_duration_since(Instant::now());
        let options = self.port.options.now();
        let route = resolve_for(provider, to, from, &options, RESOLVE.min(left))?;
        let connecting = route.connect(self.qp, &options)?;
        let limit = answer_within(deadline);
        if !self.wait(&connecting, Instant::now() + limit) {
            return Err(ConnectionError::TimedOut { what: "the listener's answer", after: limit });
        }
        connecting.finish(self.qp, ANSWER)
    }

    /// Listens again, once the address is free.
    fn bind(&mut self, provider: Provider, at: SocketAddr, deadline: Instant) -> Result<Listener, Failure> {
        let mut pauses = Pauses::START;
        loop {
            let transport = self.port.options.now().transport;
            match Listener::bind_for(provider, at, transport, BACKLOG) {
                Ok(listener) => return Ok(listener),
                Err(error) => self.failed(error, || format!("listen at {at}"))?,
            }
            self.pause(&mut pauses, deadline)?;
        }
    }

    fn listen(&mut self, mut listener: Listener, at: SocketAddr, deadline: Instant) -> Result<Connection, Failure> {
        loop {
            if !self.wait(&listener, deadline) {
                self.check_stop()?;
                return Err(self.late(format!("listens at {at}")));
            }
            let answer = match listener.next(Duration::ZERO) {
                Ok(None) => continue,
                Ok(Some(request)) => {
                    self.attempts += 1;
                    self.accept(request, deadline)
                }
                Err(error) => return Err(self.refused(format!("listen at {at}"), error)),
            };
            match answer {
                Ok(connection) => return Ok(connection),
                // Only the peer can change that.
                Err(error @ ConnectionError::WrongDevice { .. }) => self.note(error),
                Err(error) => self.failed(error, || format!("listen at {at}"))?,
            }
            self.check_stop()?;
        }
    }

    fn accept(&mut self, request: Request, deadline: Instant) -> Result<Connection, ConnectionError> {
        let (device, came_by) = (&self.port.device, request.device_name());
        if came_by != device {
            let reason = wrong_device(&self.port.name, device, came_by);
            tracing::warn!(peer = %request.peer_addr(), %reason, "a connection is rejected");
            let error = ConnectionError::WrongDevice { qp: device.clone(), route: came_by.to_owned() };
            reject(request, reason.as_bytes())?;
            return Err(error);
        }
        let mut connection = request.accept(self.qp, &self.port.options.now())?;
        let limit = answer_within(deadline);
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
    fn wait(&self, on: &impl AsFd, until: Instant) -> bool {
        loop {
            if self.stop.is_raised() || Instant::now() >= until {
                return false;
            }
            let [ready, _] = event_fd::wait([on.as_fd(), self.stop.as_fd()], Some(until));
            if ready {
                return true;
            }
        }
    }

    /// Waits before the next attempt.
    fn pause(&self, pauses: &mut Pauses, deadline: Instant) -> Result<(), Failure> {
        rest(self.stop, (Instant::now() + pauses.take()).min(deadline));
        self.check_stop()
    }

    /// After a failed attempt: resets the queue pair for the next one, or gives up if waiting
    /// cannot help.
    fn failed(&mut self, error: ConnectionError, doing: impl FnOnce() -> String) -> Result<(), Failure> {
        if self.on_failure.is_none() && !is_transient(&error) {
            return Err(self.refused(doing(), error));
        }
        self.note(error);
        self.reset()
    }

    fn note(&mut self, error: ConnectionError) {
        if self.stop.is_raised() {
            // The stop made the attempt fail.
            return;
        }
        tracing::debug!(port = %self.port.name, attempt = self.attempts, %error, "not connected yet");
        if let Some(on_failure) = self.on_failure {
            on_failure(self.attempts, &error);
        }
        self.last = Some(error);
    }

    /// Brings the queue pair back to INIT. Whatever was posted to it is lost.
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

    fn late(&mut self, role: String) -> Failure {
        let last = match self.last.take() {
            Some(error) => error.to_string(),
            None => "nobody came".to_owned(),
        };
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

/// Waits until `until`, or until `stop` is raised.
fn rest(stop: &StopFlag, until: Instant) {
    while !stop.is_raised() && Instant::now() < until {
        event_fd::wait([stop.as_fd()], Some(until));
    }
}

/// How long the other end has to answer until this deadline, in whole milliseconds, as is told.
fn answer_within(deadline: Instant) -> Duration {
    let left = deadline.saturating_duration_since(Instant::now()).min(ANSWER);
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

    /// Regression: a port that had a second said that the answer took longer than five.
    #[test]
    fn an_answer_has_no_longer_than_there_is() {
        let now = Instant::now();
        assert_eq!(answer_within(now + 2 * ANSWER), ANSWER);
        assert!(answer_within(now + Duration::from_secs(1)) <= Duration::from_secs(1));
        assert_eq!(answer_within(now), Duration::ZERO);
    }
}
