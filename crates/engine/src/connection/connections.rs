//! The connections by address of a run: each kept by a thread of its own until the run stops ([`crate::connection::supervisor`]), and reported.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use verbline_verbs::connection::Connection;

use crate::connection::connector::{Way, Who};
use crate::connection::supervisor::{Keeper, Renew, Signs, Status, Told, lock};
use crate::control::event_fd::Sign;
use crate::stats::clock::{Clock, Tick};
use crate::stats::report::{ConnectionReport, ConnectionState};

/// A connection as it came about.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) who: Who,
    pub(crate) way: Way,
    /// What makes it again, if it may be.
    pub(crate) renew: Option<Renew>,
    pub(crate) attempts: u64,
    pub(crate) took: Duration,
    pub(crate) connection: Connection,
}

/// One connection.
#[derive(Debug)]
struct Entry {
    /// The port's place in the plan, and its name.
    index: usize,
    port: String,
    role: &'static str,
    /// As the plan has it.
    address: SocketAddr,
    /// Whether it is made again.
    renews: bool,
    told: Told,
}

/// The connections of a run; none before they were made.
#[derive(Debug, Default)]
pub(crate) struct Links {
    entries: Vec<Entry>,
    signs: Option<Signs>,
    keepers: Vec<JoinHandle<Option<Connection>>>,
    /// Kept until the queue pairs are gone.
    kept: Vec<Connection>,
}

impl Links {
    /// Starts to keep them; in the plan's order. `dialling` has been their sign until now.
    pub(crate) fn keep(mut made: Vec<Made>, dialling: Arc<Sign>, clock: &Clock) -> io::Result<Links> {
        if made.is_empty() {
            return Ok(Links::default());
        }
        made.sort_by_key(|one| one.who.index);
        let signs = Signs { dialling, watching: Arc::new(Sign::new()?) };
        let mut links = Links::default();
        links.signs = Some(signs.clone());
        for one in made {
            links.keep_one(one, &signs, clock)?;
        }
        Ok(links)
    }

    fn keep_one(&mut self, made: Made, signs: &Signs, clock: &Clock) -> io::Result<()> {
        let Made { who, way, renew, attempts, took, connection } = made;
        let told = Arc::new(Mutex::new(Status {
            state: ConnectionState::Connected,
            peer: connection.peer_addr().to_string(),
            attempts,
            times: 1,
            took,
            ended: None,
            last_error: None,
        }));
        let role = match way {
            Way::Listen { .. } => "listens",
            Way::Connect { .. } => "connects",
        };
        let (index, port, address) = (who.index, who.port.clone(), way.address());
        let renews = renew.is_some();
        self.entries.push(Entry { index, port, role, address, renews, told: Arc::clone(&told) });
        // Linux cuts a thread's name at 15 bytes.
        let named = std::thread::Builder::new().name(format!("vl-link-{}", who.port));
        let keeper = Keeper { who, way, renew, told, signs: signs.clone(), clock: clock.clone() };
        self.keepers.push(named.spawn(move || keeper.keep(connection))?);
        Ok(())
    }

    /// From here on no connection is made again.
    pub(crate) fn settle(&self) {
        if let Some(signs) = &self.signs {
            signs.dialling.raise();
        }
    }

    /// From here on states stay as they are: what ends now, ends because the run does.
    pub(crate) fn freeze(&mut self) {
        let Some(signs) = self.signs.take() else { return };
        signs.dialling.raise();
        signs.watching.raise();
        for keeper in self.keepers.drain(..) {
            match keeper.join() {
                Ok(connection) => self.kept.extend(connection),
                Err(_) => tracing::error!("a thread that keeps a connection panicked"),
            }
        }
    }

    /// Disconnects. The queue pairs are gone by now.
    pub(crate) fn close(&mut self) {
        self.freeze();
        self.kept.clear();
    }

    /// `is_down`: whether the queue pair of the port at this place in the plan is in the error state.
    pub(crate) fn report(&self, started_ns: Tick, is_down: impl Fn(usize) -> bool) -> Vec<ConnectionReport> {
        self.entries.iter().map(|entry| entry.report(started_ns, is_down(entry.index))).collect()
    }
}

impl Entry {
    fn report(&self, started_ns: Tick, is_down: bool) -> ConnectionReport {
        let Status { state, peer, attempts, times, took, ended, last_error } = lock(&self.told).clone();
        let (reason, ended_ns) = ended.map(|(reason, at)| (reason, at.saturating_sub(started_ns))).unzip();
        let in_error = || "its queue pair is in the error state".to_owned();
        let (state, reason) = match state {
            // Its keeper is about to hear of it, or the lcore of what its keeper made.
            ConnectionState::Connected if is_down && self.renews => (ConnectionState::Reconnecting, reason),
            ConnectionState::Connected if is_down => (ConnectionState::Failed, Some(in_error())),
            state => (state, reason),
        };
        ConnectionReport {
            port: self.port.clone(),
            role: self.role,
            address: self.address.to_string(),
            peer_address: peer,
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

impl Drop for Links {
    fn drop(&mut self) {
        self.close();
    }
}
