//! Connections by address: brought up before the lcores run, and made again when they are lost ([`crate::connection::supervisor`]).
//!
//! What it guarantees: at the start all ports connect at the same time, each on a thread of its own, within its `connect_timeout`.
//! What may come right by waiting (nobody listens yet, no route yet, an end that went away half-way) is tried again, with pauses
//! that double up to a limit; what will not (a wrong device, a listener that said no and why) ends the start at once. The first
//! port that gives up, or a wish to stop, ends the others at once or, while an address is looked up, within [`RESOLVE`].
//!
//! Later everything is tried again, for as long as the run goes on: what was right once may be right again.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use verbline_verbs::connection::{ConnectOptions, Connection, ConnectionError, Listener, Request, resolve};
use verbline_verbs::{InitSpec, Provider, QpState, QueuePair};

use crate::api::error::{EngineError, Place};
use crate::connection::connections::Made;
use crate::connection::supervisor::Renew;
use crate::control::event_fd::{self, Sign};
use crate::lcore::poll_loop::LcoreParts;

/// Between two looks at whether the owner wants to go on.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The pause after a first attempt that failed, and the longest.
pub(crate) const PAUSE_MIN: Duration = Duration::from_millis(10);
pub(crate) const PAUSE_MAX: Duration = Duration::from_secs(1);
/// For one attempt to find the path to an address.
const RESOLVE: Duration = Duration::from_secs(1);
/// For the other end to finish what was begun.
const ANSWER: Duration = Duration::from_secs(5);

/// A port that is to be connected.
#[derive(Debug)]
pub(crate) struct Dial {
    pub(crate) who: Who,
    pub(crate) way: Way,
    /// What makes the connection again.
    pub(crate) renew: Option<Renew>,
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
    /// A listener that is there listens already: peers that come early wait in its backlog.
    Listen {
        listener: Option<Listener>,
        provider: Provider,
        at: SocketAddr,
    },
    Connect {
        provider: Provider,
        to: SocketAddr,
        from: Option<SocketAddr>,
    },
}

impl Way {
    /// As the plan has it.
    pub(crate) fn address(&self) -> SocketAddr {
        match self {
            Way::Listen { at, .. } => *at,
            Way::Connect { to, .. } => *to,
        }
    }
}

/// One more than the one that is taken, so that who comes second is refused and not left waiting.
pub(crate) const BACKLOG: u32 = 2;

/// Why a port has no connection.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Told to.
    Stopped,
    GaveUp(EngineError),
}

/// Connects all ports; `stop` is asked now and then whether to give up.
pub(crate) fn connect(
    dials: Vec<Dial>,
    lcores: &mut [LcoreParts],
    sign: &Arc<Sign>,
    mut stop: impl FnMut() -> bool,
) -> Result<Vec<Made>, EngineError> {
    if dials.is_empty() {
        return Ok(Vec::new());
    }
    let mut qps: Vec<(usize, &mut QueuePair)> = Vec::new();
    for port in lcores.iter_mut().flat_map(|lcore| &mut lcore.ports) {
        qps.push((usize::from(port.index), &mut port.qp));
    }
    let (mut made, mut failed, mut stopped) = (Vec::new(), None, false);
    std::thread::scope(|scope| {
        let (tell, told) = mpsc::channel();
        for dial in dials {
            let Some(place) = qps.iter().position(|(index, _)| *index == dial.who.index) else { continue };
            let (qp, tell) = (qps.swap_remove(place).1, tell.clone());
            scope.spawn(move || {
                // Somebody listens until all have told.
                let _ = tell.send(first(dial, qp, sign));
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
            if stopped || failed.is_some() {
                sign.raise();
            }
        }
    });
    match failed {
        Some(error) => Err(error),
        None if stopped => Err(EngineError::Interrupted),
        None => Ok(made),
    }
}

/// The first connection of a port, within its time.
fn first(dial: Dial, qp: &mut QueuePair, stop: &Sign) -> Result<Made, Failure> {
    let Dial { who, mut way, renew } = dial;
    let start = Instant::now();
    let mut dialling = Dialling::new(&who, qp, stop);
    let connection = dialling.run(&mut way, start + who.timeout)?;
    let (attempts, took, address) = (dialling.attempts, start.elapsed(), way.address());
    tracing::info!(port = %who.port, %address, attempts, ?took, "connected");
    Ok(Made { who, way, renew, attempts, took, connection })
}

/// Told how many attempts there were, and why the last one failed.
type Failed<'a> = &'a dyn Fn(u64, &ConnectionError);

/// One port on its thread.
pub(crate) struct Dialling<'a> {
    who: &'a Who,
    qp: &'a mut QueuePair,
    stop: &'a Sign,
    /// Of a connection that is made again: nothing but being stopped ends the attempts, and this is told of each that failed.
    again: Option<Failed<'a>>,
    pub(crate) attempts: u64,
    /// Why the last attempt failed.
    last: Option<ConnectionError>,
}

impl<'a> Dialling<'a> {
    pub(crate) fn new(who: &'a Who, qp: &'a mut QueuePair, stop: &'a Sign) -> Dialling<'a> {
        Dialling { who, qp, stop, again: None, attempts: 0, last: None }
    }

    /// To go on until it is connected or stopped.
    pub(crate) fn again(mut self, again: Failed<'a>) -> Dialling<'a> {
        self.again = Some(again);
        self
    }

    pub(crate) fn run(&mut self, way: &mut Way, deadline: Instant) -> Result<Connection, Failure> {
        match way {
            Way::Listen { listener, provider, at } => {
                let listener = match listener.take() {
                    Some(listener) => listener,
                    None => self.bind(*provider, *at, deadline)?,
                };
                self.listen(listener, *provider, *at, deadline)
            }
            Way::Connect { provider, to, from } => self.connect(*provider, *to, *from, deadline),
        }
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
                Ok(connection) => return Ok(connection),
                Err(error) => self.failed(error, || format!("connect to {to}"))?,
            }
            self.pause(&mut pause, deadline)?;
            if Instant::now() >= deadline {
                return Err(self.late(provider, format!("connects to {to}")));
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
        let route = resolve(provider, to, from, RESOLVE.min(left))?;
        let connecting = route.connect(self.qp, &ConnectOptions::default())?;
        if !self.wait(&connecting, deadline.min(Instant::now() + ANSWER)) {
            return Err(ConnectionError::TimedOut { what: "the listener's answer", after: ANSWER });
        }
        connecting.finish(self.qp, ANSWER)
    }

    /// Listens again; whoever has the address meanwhile may leave it.
    fn bind(&mut self, provider: Provider, at: SocketAddr, deadline: Instant) -> Result<Listener, Failure> {
        let mut pause = PAUSE_MIN;
        loop {
            match Listener::bind(provider, at, BACKLOG) {
                Ok(listener) => return Ok(listener),
                Err(error) => self.failed(error, || format!("listen at {at}"))?,
            }
            self.pause(&mut pause, deadline)?;
        }
    }

    fn listen(
        &mut self,
        mut listener: Listener,
        provider: Provider,
        at: SocketAddr,
        deadline: Instant,
    ) -> Result<Connection, Failure> {
        loop {
            if !self.wait(&listener, deadline) {
                self.check_stop()?;
                return Err(self.late(provider, format!("listens at {at}")));
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
                // Its peer must try elsewhere.
                Err(error @ ConnectionError::WrongDevice { .. }) => self.note(error),
                Err(error) => self.failed(error, || format!("listen at {at}"))?,
            }
            self.check_stop()?;
        }
    }

    fn accept(&mut self, request: Request, deadline: Instant) -> Result<Connection, ConnectionError> {
        let (device, came_by) = (&self.who.device, request.device_name());
        if came_by != device {
            let reason = format!("port.{} is on {device}, this came by {came_by}", self.who.port);
            tracing::warn!(peer = %request.peer_addr(), %reason, "a connection is rejected");
            let error = ConnectionError::WrongDevice { qp: device.clone(), route: came_by.to_owned() };
            // What was rejected is no longer anybody's: that the peer may have gone meanwhile is nothing to us.
            request.reject(&reason.as_bytes()[..reason.len().min(REASON_BYTES)])?;
            return Err(error);
        }
        let mut connection = request.accept(self.qp, &ConnectOptions::default())?;
        let until = deadline.min(Instant::now() + ANSWER);
        loop {
            match connection.wait_established(LOOK_EVERY) {
                Ok(()) => return Ok(connection),
                Err(ConnectionError::TimedOut { what, .. }) if Instant::now() >= until || self.stop.is_raised() => {
                    return Err(ConnectionError::TimedOut { what, after: ANSWER });
                }
                Err(ConnectionError::TimedOut { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits until a descriptor is readable; false if there is reason not to.
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

    /// Waits for as long as it says, and longer the next time.
    fn pause(&self, pause: &mut Duration, deadline: Instant) -> Result<(), Failure> {
        rest(self.stop, (Instant::now() + *pause).min(deadline));
        *pause = (*pause * 2).min(PAUSE_MAX);
        self.check_stop()
    }

    /// After an attempt: an error, unless another one makes sense, for which the queue pair is as before.
    fn failed(&mut self, error: ConnectionError, doing: impl FnOnce() -> String) -> Result<(), Failure> {
        if self.again.is_none() && !passes(&error) {
            return Err(self.refused(doing(), error));
        }
        self.note(error);
        self.reset()
    }

    fn note(&mut self, error: ConnectionError) {
        if self.stop.is_raised() {
            // It failed for that.
            return;
        }
        tracing::debug!(port = %self.who.port, attempt = self.attempts, %error, "not connected yet");
        if let Some(again) = self.again {
            again(self.attempts, &error);
        }
        self.last = Some(error);
    }

    /// The queue pair of an attempt that failed, as before it. What was posted to it is gone.
    fn reset(&mut self) -> Result<(), Failure> {
        if self.qp.state() == QpState::Init {
            return Ok(());
        }
        let again = self.qp.to_reset().and_then(|()| self.qp.to_init(&self.who.init));
        again.map_err(|error| self.refused("connect again".to_owned(), error.into()))
    }

    fn check_stop(&self) -> Result<(), Failure> {
        if self.stop.is_raised() { Err(Failure::Stopped) } else { Ok(()) }
    }

    fn refused(&self, doing: String, source: ConnectionError) -> Failure {
        let Who { at, port, .. } = self.who;
        Failure::GaveUp(EngineError::Address { at: at.clone(), port: port.clone(), doing, source: source.into() })
    }

    fn late(&mut self, provider: Provider, role: String) -> Failure {
        let last = match self.last.take() {
            Some(error) => error.to_string(),
            None => "nobody came".to_owned(),
        };
        let Who { at, port, timeout, .. } = self.who;
        Failure::GaveUp(EngineError::NotConnected {
            at: at.clone(),
            port: port.clone(),
            role,
            attempts: self.attempts,
            timeout: *timeout,
            last,
            provider,
        })
    }
}

/// Waits until then, or until the sign is raised.
pub(crate) fn rest(stop: &Sign, until: Instant) {
    while !stop.is_raised() && Instant::now() < until {
        event_fd::wait([stop.as_fd()], Some(until));
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
