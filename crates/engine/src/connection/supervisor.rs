//! The thread that keeps one connection by address: watches it, and makes it again when it is lost.
//!
//! What it guarantees: a connection is over when the connection manager says so or when the port's queue pair failed, whichever
//! comes first. Then the port lets go of its queue pair ([`crate::connection::handover`]), and once that is empty another one is made and
//! connected as the first one was, in as many attempts as it takes. All this is done here and nothing of it on the lcore, which has
//! other ports to serve; the lcore posts the receives when it has the queue pair, since what they bring comes by its completion
//! queue. Until then a peer that is quick waits and sends again (RNR). [`Signs`] end it at any time.

use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use verbline_verbs::connection::{Connection, ConnectionError};
use verbline_verbs::{QpMaker, QueuePair};

use crate::api::error::EngineError;
use crate::connection::connector::{Dialling, Failure, PAUSE_MAX, PAUSE_MIN, Way, Who, rest};
use crate::connection::handover::Seat;
use crate::control::event_fd::{self, Sign};
use crate::stats::clock::{Clock, Tick};
use crate::stats::down_reason::DownReason;
use crate::stats::report::ConnectionState;

/// How long the connection manager, or the device, is waited for to say why, after a queue pair has failed.
pub(crate) const SAY_WHY: Duration = Duration::from_millis(100);
/// As good as for ever, and no overflow.
const FOR_EVER: Duration = Duration::from_secs(1 << 32);

/// What makes a port's connection again.
#[derive(Debug)]
pub(crate) struct Renew {
    pub(crate) maker: QpMaker,
    pub(crate) seat: Arc<Seat>,
}

/// What ends the keepers of a run.
#[derive(Clone, Debug)]
pub(crate) struct Signs {
    /// No connection is made any more.
    pub(crate) dialling: Arc<Sign>,
    /// None is watched any more.
    pub(crate) watching: Arc<Sign>,
}

/// What is told of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Status {
    pub(crate) state: ConnectionState,
    /// The other end, or the last one.
    pub(crate) peer: String,
    pub(crate) attempts: u64,
    /// How often it was made.
    pub(crate) times: u64,
    /// How long that took, the last time.
    pub(crate) took: Duration,
    /// Why it was lost, the last time, and when.
    pub(crate) ended: Option<(String, Tick)>,
    /// Why the last attempt to make it again failed.
    pub(crate) last_error: Option<String>,
}

/// A status that its keeper writes and anybody reads.
pub(crate) type Told = Arc<Mutex<Status>>;

pub(crate) fn lock(status: &Told) -> MutexGuard<'_, Status> {
    // Every change is a few assignments: what a panic leaves is a status.
    status.lock().unwrap_or_else(PoisonError::into_inner)
}

/// See the top of this file.
pub(crate) struct Keeper {
    pub(crate) who: Who,
    pub(crate) way: Way,
    /// `None`: a connection that is lost stays lost.
    pub(crate) renew: Option<Renew>,
    pub(crate) told: Told,
    pub(crate) signs: Signs,
    pub(crate) clock: Clock,
}

impl Keeper {
    /// Until a sign ends it; gives what connection there is then, or was when it may not be made again.
    pub(crate) fn keep(mut self, mut connection: Connection) -> Option<Connection> {
        let mut pause = PAUSE_MIN;
        loop {
            let since = Instant::now();
            let reason = match self.watch(&mut connection) {
                Some(reason) => reason,
                None => return Some(connection),
            };
            self.lost(reason);
            let Some(renew) = &mut self.renew else { return Some(connection) };
            drop(renew.seat.lose());
            // Tells the peer, if it does not know.
            drop(connection);
            if !self.await_empty() {
                return None;
            }
            // Between two ends that can connect and then not talk, one connection would follow the other at once.
            if since.elapsed() < PAUSE_MAX {
                rest(&self.signs.dialling, Instant::now() + pause);
                pause = (pause * 2).min(PAUSE_MAX);
            } else {
                pause = PAUSE_MIN;
            }
            connection = self.connect()?;
        }
    }

    /// Until it is over, and why; `None` if it is not to be watched any more.
    fn watch(&self, connection: &mut Connection) -> Option<String> {
        let watching = self.signs.watching.as_fd();
        let seat = self.renew.as_ref().map(|renew| &renew.seat);
        loop {
            let [speaks, news, ends] =
                event_fd::wait([connection.as_fd(), seat.map_or(watching, |seat| seat.as_fd()), watching], None);
            let failed = seat.filter(|_| news).and_then(|seat| seat.news().down);
            if speaks || failed.is_some() {
                let patience = if failed.is_some() { SAY_WHY } else { Duration::ZERO };
                match (connection.wait_disconnected(patience), failed) {
                    (Ok(true), _) => return Some(connection.end_reason().unwrap_or("it ended").to_owned()),
                    (_, Some(why)) => {
                        let why = DownReason::text(why).unwrap_or_default();
                        return Some(format!("its queue pair failed: {why}"));
                    }
                    (Err(error), None) => return Some(error.to_string()),
                    (Ok(false), None) => {}
                }
            }
            // Last: what ended before is told.
            if ends {
                return None;
            }
        }
    }

    fn lost(&self, reason: String) {
        let mut status = lock(&self.told);
        tracing::warn!(port = %self.who.port, peer = %status.peer, %reason, again = self.renew.is_some(), "a connection is lost");
        status.state = match self.renew {
            Some(_) => ConnectionState::Reconnecting,
            None => ConnectionState::Disconnected,
        };
        status.ended = Some((reason, self.clock.now_ns()));
    }

    /// Until nothing of the queue pair is outstanding. False if that is of no use any more.
    fn await_empty(&self) -> bool {
        let Some(renew) = &self.renew else { return false };
        loop {
            if renew.seat.news().empty {
                return true;
            }
            let [_, ends] = event_fd::wait([renew.seat.as_fd(), self.signs.dialling.as_fd()], None);
            if ends {
                return false;
            }
        }
    }

    /// Connects another queue pair and hands it over; `None` if it is told to stop first.
    fn connect(&mut self) -> Option<Connection> {
        let start = Instant::now();
        loop {
            let (connection, qp) = match self.attempt() {
                Ok(made) => made,
                Err(Failure::Stopped) => return None,
                Err(Failure::GaveUp(error)) => {
                    tracing::debug!(port = %self.who.port, %error, "not connected yet");
                    lock(&self.told).last_error = Some(error.to_string());
                    rest(&self.signs.dialling, Instant::now() + PAUSE_MAX);
                    continue;
                }
            };
            self.renew.as_ref()?.seat.give(qp);
            let mut status = lock(&self.told);
            (status.state, status.last_error) = (ConnectionState::Connected, None);
            (status.peer, status.took) = (connection.peer_addr().to_string(), start.elapsed());
            status.times += 1;
            let Status { attempts, times, took, .. } = &*status;
            tracing::info!(port = %self.who.port, address = %self.way.address(), attempts, times, ?took, "connected again");
            return Some(connection);
        }
    }

    /// With a queue pair of its own, for as long as that is of any use.
    fn attempt(&mut self) -> Result<(Connection, QueuePair), Failure> {
        let Keeper { who, way, renew, told, signs, .. } = self;
        let Some(Renew { maker, .. }) = renew else { return Err(Failure::Stopped) };
        if signs.dialling.is_raised() {
            return Err(Failure::Stopped);
        }
        let unmade = |source: verbline_verbs::QpError| {
            let (at, port) = (who.at.clone(), who.port.clone());
            Failure::GaveUp(EngineError::QueuePair { at, port, source: source.into() })
        };
        let mut qp = maker.make().map_err(unmade)?;
        qp.to_init(&who.init).map_err(unmade)?;
        let before = lock(told).attempts;
        let failed = |attempts, error: &ConnectionError| {
            let mut status = lock(told);
            (status.attempts, status.last_error) = (before + attempts, Some(error.to_string()));
        };
        let mut dialling = Dialling::new(who, &mut qp, &signs.dialling).again(&failed);
        let connection = dialling.run(way, Instant::now() + FOR_EVER)?;
        let attempts = dialling.attempts;
        lock(told).attempts = before + attempts;
        Ok((connection, qp))
    }
}
