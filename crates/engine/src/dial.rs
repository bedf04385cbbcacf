//! Connections by address, brought up before the lcores run.
//!
//! What it guarantees: all ports connect at the same time, each on a thread of its own, within its `connect_timeout`. What may
//! come right by waiting (nobody listens yet, no route yet, an end that went away half-way) is tried again, with pauses that
//! double up to a limit; what will not (a wrong device, a listener that said no and why) ends the start at once. The first port
//! that gives up, or a wish to stop, ends the others within [`LOOK_EVERY`] or, while an address is looked up, [`RESOLVE`].

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use verbline_verbs::connection::{ConnectOptions, Connection, ConnectionError, Listener, Request, resolve};
use verbline_verbs::{InitSpec, Provider, QpState, QueuePair};

use crate::error::{EngineError, Place};
use crate::lcore::LcoreParts;
use crate::links::{Made, Role};

/// Between two looks at whether to go on.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The pause after a first attempt that failed, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// For one attempt to find the path to an address.
const RESOLVE: Duration = Duration::from_secs(1);
/// For the other end to finish what was begun.
const ANSWER: Duration = Duration::from_secs(5);

/// A port that is to be connected.
#[derive(Debug)]
pub(crate) struct Dial {
    pub(crate) who: Who,
    pub(crate) way: Way,
}

/// The port and its queue pair.
#[derive(Debug)]
pub(crate) struct Who {
    /// The port's place in the plan, its name, and where it is declared.
    pub(crate) index: usize,
    pub(crate) port: String,
    pub(crate) at: Place,
    pub(crate) timeout: Duration,
    /// The device that the queue pair is on, and what brings it to INIT.
    pub(crate) device: String,
    pub(crate) init: InitSpec,
}

/// How.
#[derive(Debug)]
pub(crate) enum Way {
    /// The listener listens already: peers that come early wait in its backlog.
    Listen(Listener, SocketAddr),
    Connect {
        provider: Provider,
        to: SocketAddr,
        from: Option<SocketAddr>,
    },
}

/// Why a port has no connection.
enum Failure {
    /// Told to.
    Stopped,
    GaveUp(EngineError),
}

/// Connects all ports; `stop` is asked now and then whether to give up.
pub(crate) fn connect(
    dials: Vec<Dial>,
    lcores: &mut [LcoreParts],
    mut stop: impl FnMut() -> bool,
) -> Result<Vec<Made>, EngineError> {
    if dials.is_empty() {
        return Ok(Vec::new());
    }
    let stopping = AtomicBool::new(false);
    let mut qps: Vec<(usize, &mut QueuePair)> = Vec::new();
    for port in lcores.iter_mut().flat_map(|lcore| &mut lcore.ports) {
        qps.push((usize::from(port.index), &mut port.qp));
    }
    let (mut made, mut failed, mut stopped) = (Vec::new(), None, false);
    std::thread::scope(|scope| {
        let (tell, told) = mpsc::channel();
        for Dial { who, way } in dials {
            let Some(place) = qps.iter().position(|(index, _)| *index == who.index) else { continue };
            let (qp, tell, stopping) = (qps.swap_remove(place).1, tell.clone(), &stopping);
            scope.spawn(move || {
                let ended = Dialling { who, qp, stopping, attempts: 0, last: None }.run(way);
                // Somebody listens until all have told.
                let _ = tell.send(ended);
            });
        }
        drop(tell);
        loop {
            match told.recv_timeout(LOOK_EVERY) {
                Ok(Ok(one)) => made.push(one),
                Ok(Err(Failure::GaveUp(error))) => _ = failed.get_or_insert(error),
                Ok(Err(Failure::Stopped)) | Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
            }
            stopped |= stop();
            // Relaxed: the flag carries no data; a look later is soon enough.
            stopping.store(stopped || failed.is_some(), Ordering::Relaxed);
        }
    });
    match failed {
        Some(error) => Err(error),
        None if stopped => Err(EngineError::Interrupted),
        None => Ok(made),
    }
}

/// One port on its thread.
struct Dialling<'a> {
    who: Who,
    qp: &'a mut QueuePair,
    stopping: &'a AtomicBool,
    attempts: u64,
    /// Why the last attempt failed.
    last: Option<ConnectionError>,
}

impl Dialling<'_> {
    fn run(mut self, way: Way) -> Result<Made, Failure> {
        let start = Instant::now();
        let deadline = start + self.who.timeout;
        let (role, address, connection) = match way {
            Way::Listen(listener, address) => (Role::Listens, address, self.listen(listener, address, deadline)?),
            Way::Connect { provider, to, from } => (Role::Connects, to, self.connect(provider, to, from, deadline)?),
        };
        let took = start.elapsed();
        tracing::info!(port = %self.who.port, %address, attempts = self.attempts, ?took, "connected");
        let Dialling { who: Who { index, port, .. }, attempts, .. } = self;
        Ok(Made { index, port, role, address, attempts, took, connection })
    }

    fn connect(
        &mut self,
        provider: Provider,
        to: SocketAddr,
        from: Option<SocketAddr>,
        deadline: Instant,
    ) -> Result<Connection, Failure> {
        let mut pause = PAUSE_MIN;
        loop {
            self.attempts += 1;
            match self.attempt(provider, to, from, deadline) {
                Ok(Some(connection)) => return Ok(connection),
                Ok(None) => {}
                Err(error) if passes(&error) => {
                    tracing::debug!(port = %self.who.port, attempt = self.attempts, %error, "not connected yet");
                    self.last = Some(error);
                }
                Err(error) => return Err(self.refused(format!("connect to {to}"), error)),
            }
            self.reset()?;
            let wake = (Instant::now() + pause).min(deadline);
            while Instant::now() < wake {
                self.check_stop()?;
                std::thread::sleep(LOOK_EVERY.min(wake.saturating_duration_since(Instant::now())));
            }
            self.check_stop()?;
            if Instant::now() >= deadline {
                return Err(self.late(format!("connects to {to}")));
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// `None`: no answer in time.
    fn attempt(
        &mut self,
        provider: Provider,
        to: SocketAddr,
        from: Option<SocketAddr>,
        deadline: Instant,
    ) -> Result<Option<Connection>, ConnectionError> {
        let left = deadline.saturating_duration_since(Instant::now());
        let route = resolve(provider, to, from, RESOLVE.min(left))?;
        let connecting = route.connect(self.qp, &ConnectOptions::default())?;
        if !self.wait(&connecting, deadline.min(Instant::now() + ANSWER)) {
            let after = ANSWER;
            self.last = Some(ConnectionError::TimedOut { what: "the listener's answer", after });
            return Ok(None);
        }
        connecting.finish(self.qp, ANSWER).map(Some)
    }

    fn listen(&mut self, mut listener: Listener, at: SocketAddr, deadline: Instant) -> Result<Connection, Failure> {
        let doing = || format!("listen at {at}");
        loop {
            if !self.wait(&listener, deadline) {
                self.check_stop()?;
                return Err(self.late(format!("listens at {at}")));
            }
            let request = match listener.next(Duration::ZERO) {
                Ok(Some(request)) => request,
                Ok(None) => continue,
                Err(error) => return Err(self.refused(doing(), error)),
            };
            self.attempts += 1;
            match self.accept(request, deadline) {
                Ok(Some(connection)) => return Ok(connection),
                Ok(None) => {}
                Err(error) if passes(&error) => self.last = Some(error),
                Err(error) => return Err(self.refused(doing(), error)),
            }
            self.reset()?;
            self.check_stop()?;
        }
    }

    /// `None` for a peer that must try elsewhere, or that did not finish.
    fn accept(&mut self, request: Request, deadline: Instant) -> Result<Option<Connection>, ConnectionError> {
        let (device, came_by) = (&self.who.device, request.device_name());
        if came_by != device {
            let reason = format!("port.{} is on {device}, this came by {came_by}", self.who.port);
            tracing::warn!(peer = %request.peer_addr(), %reason, "a connection is rejected");
            self.last = Some(ConnectionError::WrongDevice { qp: device.clone(), route: came_by.to_owned() });
            // What was rejected is no longer anybody's: that the peer may have gone meanwhile is nothing to us.
            request.reject(&reason.as_bytes()[..reason.len().min(REASON_BYTES)])?;
            return Ok(None);
        }
        let mut connection = request.accept(self.qp, &ConnectOptions::default())?;
        let until = deadline.min(Instant::now() + ANSWER);
        loop {
            match connection.wait_established(LOOK_EVERY) {
                Ok(()) => return Ok(Some(connection)),
                Err(ConnectionError::TimedOut { what, .. }) if Instant::now() >= until => {
                    self.last = Some(ConnectionError::TimedOut { what, after: ANSWER });
                    return Ok(None);
                }
                Err(ConnectionError::TimedOut { .. }) if self.is_stopping() => return Ok(None),
                Err(ConnectionError::TimedOut { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits until a descriptor is readable; false if there is reason not to.
    fn wait(&self, on: &impl AsFd, until: Instant) -> bool {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if self.is_stopping() || left.is_zero() {
                return false;
            }
            let look = LOOK_EVERY.min(left);
            let timeout = Timespec { tv_sec: 0, tv_nsec: look.subsec_nanos().into() };
            let fd = on.as_fd();
            // What fails is an interruption by a signal: the next turn looks at the reasons.
            if poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&timeout)) == Ok(1) {
                return true;
            }
        }
    }

    /// The queue pair of an attempt that failed, as before it. What was posted to it is gone, and posted anew by the caller.
    fn reset(&mut self) -> Result<(), Failure> {
        if self.qp.state() == QpState::Init {
            return Ok(());
        }
        let again = self.qp.to_reset().and_then(|()| self.qp.to_init(&self.who.init));
        again.map_err(|error| self.refused("connect again".to_owned(), error.into()))
    }

    fn is_stopping(&self) -> bool {
        // Relaxed: see the store.
        self.stopping.load(Ordering::Relaxed)
    }

    fn check_stop(&self) -> Result<(), Failure> {
        if self.is_stopping() { Err(Failure::Stopped) } else { Ok(()) }
    }

    fn refused(&self, doing: String, source: ConnectionError) -> Failure {
        let Who { at, port, .. } = &self.who;
        Failure::GaveUp(EngineError::Address { at: at.clone(), port: port.clone(), doing, source: source.into() })
    }

    fn late(&mut self, role: String) -> Failure {
        let last = match self.last.take() {
            Some(error) => error.to_string(),
            None => "nobody came".to_owned(),
        };
        let Who { at, port, timeout, .. } = &self.who;
        Failure::GaveUp(EngineError::NotConnected {
            at: at.clone(),
            port: port.clone(),
            role,
            attempts: self.attempts,
            timeout: *timeout,
            last,
        })
    }
}

/// Room for the reason of a rejection.
const REASON_BYTES: usize = verbline_verbs::connection::REJECT_PRIVATE_BYTES;

/// Whether what failed may succeed when it is tried again. A listener that gives a reason has decided; one that gives none may
/// have been on its way out.
fn passes(error: &ConnectionError) -> bool {
    match error {
        ConnectionError::Refused { .. }
        | ConnectionError::Unreachable { .. }
        | ConnectionError::TimedOut { .. }
        | ConnectionError::Ended { .. } => true,
        ConnectionError::Rejected { private_data, .. } => private_data.iter().all(|byte| *byte == 0),
        _ => false,
    }
}
