//! A change of a queue pair: requested by a thread that has read a plan again, made by the lcore of
//! the queue pair, which alone uses it.
//!
//! Guarantees: a change ends once, with one outcome, and only the asking thread waits. The lcore
//! takes the lock once, to set the outcome.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use verbline_verbs::datagram::{AddressHandle, AhSpec};
use verbline_verbs::expert::{AttrMask, QpAttr};

use crate::errors::guarded::lock;
use crate::stats::clock::Tick;

/// The outcome of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChangeOutcome {
    /// The queue pair has the new attributes. `held` is the time that its sends waited; zero: they
    /// did not.
    Taken {
        /// From SQD to RTS.
        held: Duration,
    },
    /// The port's connections have the new attributes from the next one on.
    NextConnection,
    /// The queue pair is unchanged, for this reason.
    Refused(String),
    /// Its send queue was not drained in time: the queue pair takes the attributes as soon as it
    /// is.
    Draining,
}

/// The requested change.
#[derive(Debug)]
pub(crate) enum Asked {
    Attributes {
        /// The send queue is drained first (SQD), and goes on afterwards.
        drains: bool,
        attr: Box<QpAttr>,
        mask: AttrMask,
        /// For a connected queue pair.
        path: PathChange,
    },
    /// A new destination of datagrams.
    Destination { ah: AddressHandle, qpn: u32, qkey: u32 },
    /// Drains the send queue, which then holds the work requests posted to it.
    Pause,
    /// Lets it send again.
    Resume,
}

/// The changed attributes of the path to a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PathChange {
    pub(crate) traffic_class: Option<u8>,
    pub(crate) hop_limit: Option<u8>,
    pub(crate) service_level: Option<u8>,
}

impl PathChange {
    /// The path with the change; `None` if nothing of it changes.
    pub(crate) fn of(self, path: AhSpec) -> Option<AhSpec> {
        (self != PathChange::default()).then(|| AhSpec {
            traffic_class: self.traffic_class.unwrap_or(path.traffic_class),
            hop_limit: self.hop_limit.unwrap_or(path.hop_limit),
            service_level: self.service_level.unwrap_or(path.service_level),
            ..path
        })
    }
}

/// See the top of this file.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) asked: Asked,
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    outcome: Option<ChangeOutcome>,
    /// The asking thread waits no more, and a requested pause is void.
    is_abandoned: bool,
}

impl Change {
    pub(crate) fn new(asked: Asked) -> Arc<Change> {
        Arc::new(Change { asked, state: Mutex::default(), ended: Condvar::new() })
    }

    /// For the lcore: ends the change.
    pub(crate) fn end(&self, outcome: ChangeOutcome) {
        lock(&self.state).outcome = Some(outcome);
        self.ended.notify_all();
    }

    pub(crate) fn refuse(&self, why: impl fmt::Display) {
        self.end(ChangeOutcome::Refused(why.to_string()));
    }

    /// For the lcore: notes that the pause has begun. False if the asking thread has abandoned it.
    pub(crate) fn begin_pause(&self, drained_in: Duration) -> bool {
        let mut state = lock(&self.state);
        if !state.is_abandoned {
            state.outcome = Some(ChangeOutcome::Taken { held: drained_in });
            self.ended.notify_all();
        }
        !state.is_abandoned
    }

    /// Whether the asking thread has given up: the outcome has no reader.
    pub(crate) fn is_abandoned(&self) -> bool {
        lock(&self.state).is_abandoned
    }

    pub(crate) fn is_over(&self) -> bool {
        lock(&self.state).outcome.is_some()
    }

    /// For the asking thread: the outcome, if it comes within `timeout`.
    pub(crate) fn wait(&self, timeout: Duration) -> Option<ChangeOutcome> {
        let waited = self.ended.wait_timeout_while(lock(&self.state), timeout, |state| state.outcome.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.outcome.clone()
    }

    /// For the asking thread: gives up. Returns the outcome, if it came at the last moment.
    pub(crate) fn abandon(&self) -> Option<ChangeOutcome> {
        let mut state = lock(&self.state);
        state.is_abandoned = true;
        state.outcome.clone()
    }
}

/// A change whose send queue is not drained yet.
#[derive(Debug)]
pub(crate) struct Changing {
    pub(crate) change: Arc<Change>,
    pub(crate) since_ns: Tick,
}

/// Compares by identity, not by value.
impl PartialEq for Change {
    fn eq(&self, other: &Change) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Change {}
