//! The connections by address of a run: watched by a thread of their own until the run stops, and reported.
//!
//! A connection that is lost during the run stays lost: its port's sends fail and are counted as on any queue pair, and the
//! report says when it ended and why. A port that only receives notices nothing itself; its connection's state tells.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use verbline_verbs::connection::Connection;

use crate::clock::{Clock, Tick};
use crate::report::{ConnectionReport, ConnectionState};

/// Which end of a connection a port is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Listens,
    Connects,
}

/// A connection as it came about.
#[derive(Debug)]
pub(crate) struct Made {
    /// The port's place in the plan, and its name.
    pub(crate) index: usize,
    pub(crate) port: String,
    pub(crate) role: Role,
    /// As the plan has it.
    pub(crate) address: SocketAddr,
    pub(crate) attempts: u64,
    pub(crate) took: Duration,
    pub(crate) connection: Connection,
}

/// What is told of a connection.
#[derive(Debug)]
struct Entry {
    index: usize,
    port: String,
    role: Role,
    address: SocketAddr,
    peer: SocketAddr,
    attempts: u64,
    took: Duration,
}

/// Why connections ended, by their place among the entries, and when.
type Ends = Arc<Mutex<Vec<Option<(String, Tick)>>>>;

/// The connections of a run; none before they were made.
#[derive(Debug, Default)]
pub(crate) struct Links {
    entries: Vec<Entry>,
    ends: Ends,
    watcher: Option<Watcher>,
    /// Kept until the queue pairs are gone.
    kept: Vec<Connection>,
}

#[derive(Debug)]
struct Watcher {
    stop: OwnedFd,
    thread: JoinHandle<Vec<Connection>>,
}

impl Links {
    /// Starts watching; in the plan's order.
    pub(crate) fn watch(mut made: Vec<Made>, clock: &Clock) -> std::io::Result<Links> {
        if made.is_empty() {
            return Ok(Links::default());
        }
        made.sort_by_key(|one| one.index);
        let ends: Ends = Arc::new(Mutex::new(vec![None; made.len()]));
        let (mut entries, mut connections) = (Vec::new(), Vec::new());
        for one in made {
            let Made { index, port, role, address, attempts, took, connection } = one;
            entries.push(Entry { index, port, role, address, peer: connection.peer_addr(), attempts, took });
            connections.push(connection);
        }
        let stop = eventfd(0, EventfdFlags::CLOEXEC)?;
        let (bell, seen, clock) = (stop.try_clone()?, Arc::clone(&ends), clock.clone());
        let thread = std::thread::Builder::new()
            .name("vl-links".into())
            .spawn(move || watch(connections, &bell, &seen, &clock))?;
        Ok(Links { entries, ends, watcher: Some(Watcher { stop, thread }), kept: Vec::new() })
    }

    /// From here on states stay as they are: what ends now, ends because the run does.
    pub(crate) fn freeze(&mut self) {
        let Some(Watcher { stop, thread }) = self.watcher.take() else { return };
        // It fails only when the count is full, and then the bell is ringing already.
        let _ = rustix::io::write(&stop, &1u64.to_ne_bytes());
        match thread.join() {
            Ok(connections) => self.kept = connections,
            Err(_) => tracing::error!("the thread that watches the connections panicked"),
        }
    }

    /// Disconnects. The queue pairs are gone by now.
    pub(crate) fn close(&mut self) {
        self.freeze();
        self.kept.clear();
    }

    /// `is_down`: whether the queue pair of the port at this place in the plan is in the error state.
    pub(crate) fn report(&self, started_ns: Tick, is_down: impl Fn(usize) -> bool) -> Vec<ConnectionReport> {
        let ends = lock(&self.ends);
        let report = |(entry, end): (&Entry, &Option<(String, Tick)>)| {
            let (state, reason) = match end {
                Some((reason, _)) => (ConnectionState::Disconnected, Some(reason.clone())),
                None if is_down(entry.index) => {
                    (ConnectionState::Failed, Some("its queue pair is in the error state".to_owned()))
                }
                None => (ConnectionState::Connected, None),
            };
            ConnectionReport {
                port: entry.port.clone(),
                role: match entry.role {
                    Role::Listens => "listens",
                    Role::Connects => "connects",
                },
                address: entry.address.to_string(),
                peer_address: entry.peer.to_string(),
                state,
                reason,
                attempts: entry.attempts,
                connect_ns: u64::try_from(entry.took.as_nanos()).unwrap_or(u64::MAX),
                ended_ns: end.as_ref().map(|(_, at)| at.saturating_sub(started_ns)),
            }
        };
        self.entries.iter().zip(ends.iter()).map(report).collect()
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        self.close();
    }
}

/// The connections are looked at when they have something to say, until the bell rings; given back to be dropped later.
fn watch(mut connections: Vec<Connection>, bell: &OwnedFd, ends: &Ends, clock: &Clock) -> Vec<Connection> {
    let mut live: Vec<usize> = (0..connections.len()).collect();
    loop {
        let watched = live.iter().map(|index| connections[*index].as_fd()).chain([bell.as_fd()]);
        let mut fds: Vec<_> = watched.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => {
                tracing::error!(%errno, "the connections cannot be watched any more");
                return connections;
            }
        }
        let speaking: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        let mut index = 0;
        live.retain(|place| {
            let speaks = speaking[index];
            index += 1;
            !speaks || look(&mut connections[*place], *place, ends, clock)
        });
        // Last: what ended before the bell rang is told.
        if speaking.last() == Some(&true) {
            return connections;
        }
    }
}

/// Whether it is still to be watched.
fn look(connection: &mut Connection, place: usize, ends: &Ends, clock: &Clock) -> bool {
    let reason = match connection.wait_disconnected(Duration::ZERO) {
        Ok(false) => return true,
        Ok(true) => connection.end_reason().unwrap_or("it ended").to_owned(),
        Err(error) => error.to_string(),
    };
    tracing::warn!(peer = %connection.peer_addr(), %reason, "a connection is lost");
    lock(ends)[place] = Some((reason, clock.now_ns()));
    false
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change is one assignment: a panic leaves nothing half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
