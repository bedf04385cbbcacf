//! The connections by address of a run: starts a supervisor for each
//! ([`crate::connection::supervisor`]), reports them, and stops them with the run.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use verbline_verbs::connection::Connection;

use crate::connection::multi_port::acceptor_guard::AcceptorGuard;
use crate::connection::multi_port::cm_thread::{CmThread, CmThreadSpec, EndedCmThread};
use crate::connection::spec::{ConnectionSpec, Established, SharedStatus, Status};
use crate::connection::supervisor::{LcoreSide, Reconnector, Supervisor};
use crate::control::event_fd::{ConnectionStops, StopFlags};
use crate::control::run_control::Control;
use crate::errors::error::{EngineError, Place};
use crate::errors::guarded;
use crate::errors::guarded::{Joined, is_this, join_until, lock};
use crate::errors::stuck::Stuck;
use crate::stats::clock::{Clock, Tick};
use crate::stats::report::{ConnectionReport, ConnectionState, FailureReport};
use crate::stats::wire::IncidentsReport;

/// The time that the threads have to end where their run never started, which an acceptor may not
/// use up: as much as a stop gives them.
const DROP_LIMIT: Duration = Duration::from_secs(5);

const FREE_FDS: &str = "free file descriptors (ulimit -n)";

/// One connection.
#[derive(Clone, Debug)]
struct SupervisedConnection {
    /// The port's index in the plan, and its name.
    index: usize,
    port: String,
    /// The port's lcore.
    lcore: String,
    role: &'static str,
    /// The address in the plan.
    address: SocketAddr,
    reconnects: bool,
    status: SharedStatus,
}

/// The states of a run's connections, for any thread to read: their supervisors keep them up to
/// date.
#[derive(Clone, Debug, Default)]
pub(crate) struct Statuses(Vec<SupervisedConnection>);

/// The cm thread of a port with many connections.
#[derive(Debug)]
struct StartedCmThread {
    port: String,
    lcore: String,
    acceptor: Option<Arc<AcceptorGuard>>,
    thread: JoinHandle<Option<EndedCmThread>>,
}

/// The connections of a run; none before they are established.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    entries: Vec<SupervisedConnection>,
    stop: Option<ConnectionStops>,
    supervisors: Vec<JoinHandle<Option<Connection>>>,
    /// Ports with many connections.
    cm_threads: Vec<StartedCmThread>,
    left: Vec<EndedCmThread>,
    /// Kept until the queue pairs are gone.
    kept: Vec<Connection>,
    /// The indices of the ports whose supervisor panicked.
    panicked: Vec<usize>,
}

impl Connections {
    /// Starts the supervisors, in the plan's order.
    pub(crate) fn supervise(
        mut established: Vec<Established>,
        cm_threads: Vec<CmThreadSpec>,
        stop: ConnectionStops,
        clock: &Clock,
    ) -> Result<Connections, EngineError> {
        if established.is_empty() && cm_threads.is_empty() {
            return Ok(Connections::default());
        }
        established.sort_by_key(|one| one.spec.port.index);
        let mut connections = Connections::default();
        connections.stop = Some(stop.clone());
        for one in established {
            let flags = stop.of_lcore(one.spec.port.lcore_index);
            connections.supervise_one(one, flags, clock)?;
        }
        for spec in cm_threads {
            let named = std::thread::Builder::new().name(format!("vl-cm-{}", spec.port.name));
            let (control, lcore, port) = (spec.mailbox.control(), spec.port.lcore.clone(), spec.port.name.clone());
            let (of, to, acceptor) = (lcore.clone(), port.clone(), spec.acceptor.clone());
            let flags = stop.of_lcore(spec.port.lcore_index);
            let at = spec.port.at.clone();
            let cm_thread = CmThread::new(spec, flags).map_err(|source| EngineError::System {
                at: at.clone(),
                lcore: lcore.clone(),
                call: "watching the connections of a port (epoll)",
                source,
                remedy: FREE_FDS,
            })?;
            let thread = named.spawn(move || watched(&control, of, &to, || cm_thread.run()));
            let thread = thread.map_err(unmade(at, port.clone(), "makes the connections of"))?;
            connections.cm_threads.push(StartedCmThread { port, lcore, acceptor, thread });
        }
        Ok(connections)
    }

    fn supervise_one(&mut self, established: Established, stop: StopFlags, clock: &Clock) -> Result<(), EngineError> {
        let Established { spec: ConnectionSpec { port, role, maker, mailbox }, status, connection } = established;
        self.entries.push(SupervisedConnection {
            index: port.index,
            port: port.name.clone(),
            lcore: port.lcore.clone(),
            role: role.verb(),
            address: role.address(),
            reconnects: maker.is_some(),
            status: Arc::clone(&status),
        });
        // Linux cuts a thread's name at 15 bytes.
        let named = std::thread::Builder::new().name(format!("vl-link-{}", port.name));
        let (name, address) = (port.name.clone(), role.address());
        let refused = unmade(port.at.clone(), name.clone(), "supervises the connection of");
        let (lcore, clock) = (LcoreSide::new(mailbox, port.index as u16), clock.clone());
        let reconnects = maker.is_some();
        let manager = Reconnector { port, role, maker };
        let supervisor = Supervisor { port: name, address, manager, reconnects, lcore, status, stop, clock };
        self.supervisors.push(named.spawn(move || supervisor.run(connection)).map_err(refused)?);
        Ok(())
    }

    /// Lost connections are not reconnected from now on.
    pub(crate) fn stop_reconnecting(&self) {
        if let Some(stop) = &self.stop {
            stop.stop_connecting();
        }
    }

    /// Freezes the states: a connection that ends from now on ends because the run does. Returns
    /// the threads that have not ended by `until` (`None`: there is no limit).
    pub(crate) fn stop_watching(&mut self, until: Option<Instant>) -> Vec<Stuck> {
        let Some(stop) = self.stop.take() else { return Vec::new() };
        let asked = Instant::now();
        stop.stop_watching();
        let mut stuck = Vec::new();
        for (supervisor, entry) in self.supervisors.drain(..).zip(&self.entries) {
            match join_until(supervisor, until) {
                Joined::Gave(connection) => self.kept.extend(connection),
                Joined::Panicked(_) => self.panicked.push(entry.index),
                Joined::Late => stuck.push(entry.stuck(asked)),
            }
        }
        for StartedCmThread { port, lcore, acceptor, thread } in self.cm_threads.drain(..) {
            match join_until(thread, until) {
                Joined::Gave(left) => self.left.extend(left),
                // Its message is among the run's failures.
                Joined::Panicked(_) => tracing::error!("a thread that makes connections panicked as it ended"),
                Joined::Late => stuck.push(of_cm_thread(&port, lcore, acceptor.as_deref(), asked)),
            }
        }
        stuck
    }

    /// Names the cm thread that this code runs on, if it does.
    pub(crate) fn inside(&self) -> Option<String> {
        let cm_thread = self.cm_threads.iter().find(|cm_thread| is_this(&cm_thread.thread));
        cm_thread.map(|thread| format!("the thread that makes the connections of port.{}", thread.port))
    }

    /// Lets the threads end without waiting for them.
    pub(crate) fn abandon(&mut self) {
        let Some(stop) = self.stop.take() else { return };
        stop.stop_watching();
        self.supervisors.clear();
        self.cm_threads.clear();
    }

    /// The indices of the ports whose supervisor panicked, so that their connections went
    /// unsupervised. Known after [`Connections::stop_watching`].
    pub(crate) fn panicked(&self) -> &[usize] {
        &self.panicked
    }

    /// Disconnects. The queue pairs are gone by now.
    pub(crate) fn close(&mut self) {
        let stuck = self.stop_watching(None);
        debug_assert!(stuck.is_empty(), "without a limit nobody is late");
        self.kept.clear();
        self.left.drain(..).for_each(EndedCmThread::close);
    }

    /// The states of the connections, now and later. All connections of a run are made before its
    /// lcores start.
    pub(crate) fn statuses(&self) -> Statuses {
        Statuses(self.entries.clone())
    }
}

impl Statuses {
    /// `is_down`: whether the queue pair of the port at this index in the plan is in the error
    /// state.
    pub(crate) fn report(&self, started_ns: Tick, is_down: impl Fn(usize) -> bool) -> Vec<ConnectionReport> {
        self.0.iter().map(|entry| entry.report(started_ns, is_down(entry.index))).collect()
    }
}

/// The error of a thread that can't be made; `does` is followed by "it", the port.
fn unmade(at: Place, port: String, does: &'static str) -> impl FnOnce(io::Error) -> EngineError {
    move |source| EngineError::Thread { at, port, does, source }
}

/// Runs the cm thread of a port. Its panic ends the run, in order, since the port's connections
/// have no cm thread any more.
fn watched<T: Default>(control: &Control, lcore: String, port: &str, run: impl FnOnce() -> T) -> T {
    // The cm thread's own state is gone; its shared state is in mailboxes, whose every change is a
    // few moves.
    guarded::call(run).unwrap_or_else(|what| {
        let message = format!("the thread that makes the connections of port.{port} panicked: {what}");
        control.fail(FailureReport { lcore, stage: None, panicked: false, message });
        T::default()
    })
}

/// A cm thread that does not end: mostly because its acceptor does not return.
fn of_cm_thread(port: &str, lcore: String, acceptor: Option<&AcceptorGuard>, asked: Instant) -> Stuck {
    let (who, place, from) = match acceptor.and_then(|acceptor| Some((acceptor.words(), acceptor.asked()?))) {
        Some((who, (place, from))) => (who, place, from),
        None => (format!("the thread that makes the connections of port.{port}"), "about to end", asked),
    };
    Stuck { lcore, stage: None, who, place, since: from.elapsed() }
}

impl SupervisedConnection {
    /// The report of a supervisor that does not end.
    fn stuck(&self, asked: Instant) -> Stuck {
        let who = format!("the thread that supervises the connection of port.{}", self.port);
        Stuck { lcore: self.lcore.clone(), stage: None, who, place: "about to end", since: asked.elapsed() }
    }

    fn report(&self, started_ns: Tick, is_down: bool) -> ConnectionReport {
        let Status { state, peer, link, incidents, attempts, times, took, ended, last_error } =
            lock(&self.status).clone();
        let (reason, ended_ns) = ended.map(|(reason, at)| (reason, at.saturating_sub(started_ns))).unzip();
        let in_error = || "its queue pair is in the error state".to_owned();
        let (state, reason) = match state {
            // The supervisor is about to learn of the failure, or the lcore of the queue pair that
            // replaces it.
            ConnectionState::Connected if is_down && self.reconnects => (ConnectionState::Reconnecting, reason),
            ConnectionState::Connected if is_down => (ConnectionState::Failed, Some(in_error())),
            state => (state, reason),
        };
        ConnectionReport {
            port: self.port.clone(),
            role: self.role,
            address: self.address.to_string(),
            peer_address: peer,
            link: link.name(),
            wire: incidents.map(|incidents| IncidentsReport::from(&incidents.values())),
            state,
            reason,
            attempts,
            times_connected: times,
            connect_ns: u64::try_from(took.as_nanos()).unwrap_or(u64::MAX),
            ended_ns,
            last_error,
        }
    }
}

impl Drop for Connections {
    /// Of a run that never started: a stop has ended the threads before.
    fn drop(&mut self) {
        if self.inside().is_some() {
            return self.abandon();
        }
        for stuck in self.stop_watching(Instant::now().checked_add(DROP_LIMIT)) {
            tracing::error!(lcore = %stuck.lcore, "{}", stuck.sentence());
        }
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::control::event_fd::StopFlag;
    use crate::control::run_control::Phase;

    #[test]
    fn a_host_that_panics_ends_the_run_and_is_told_with_its_port() {
        let control = Control::new(Vec::new());
        let kept = watched(&control, "a".to_owned(), "door", || -> Vec<Connection> { panic!("on {}", "purpose") });
        assert!(kept.is_empty());
        let failures = control.with(|progress| progress.failures.clone());
        let message = "the thread that makes the connections of port.door panicked: on purpose";
        assert_eq!((failures[0].lcore.as_str(), failures[0].message.as_str()), ("a", message));
        assert_eq!(Phase::of(control.word()), Phase::Draining);
    }

    #[test]
    fn a_supervisor_that_panics_is_told_with_its_port() {
        let connecting = Arc::new(StopFlag::new().unwrap());
        let entry = |index| SupervisedConnection {
            index,
            port: format!("port{index}"),
            lcore: "a".into(),
            role: "connects",
            address: "10.9.9.1:1".parse().unwrap(),
            reconnects: true,
            status: Arc::new(Mutex::new(Status::new())),
        };
        let mut connections = Connections::default();
        connections.entries = vec![entry(3), entry(5)];
        connections.stop = Some(ConnectionStops::new(connecting, 1).unwrap());
        connections.supervisors = vec![std::thread::spawn(|| None), std::thread::spawn(|| panic!("on purpose"))];
        assert_eq!(connections.stop_watching(None), []);
        assert_eq!(connections.panicked(), [5]);
    }
}
