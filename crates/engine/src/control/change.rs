//! A change of a queue pair: asked for by a thread that has read a plan again, made by the lcore
//! that has the queue pair, which alone uses it.
//!
//! Guarantees: a change ends once, with one outcome, and it is the asking thread that waits. The
//! lcore takes the lock once, to leave the outcome.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use verbline_verbs::datagram::{AddressHandle, AhSpec};
use verbline_verbs::expert::{AttrMask, QpAttr};

use crate::stats::clock::Tick;

/// What became of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChangeOutcome {
    /// The queue pair has it. Its sends waited for so long; zero: they did not.
    Taken {
        /// From SQD to RTS.
        held: Duration,
    },
    /// Connections have it from the port's next one on.
    NextConnection,
    /// The queue pair is as it was, and why.
    Refused(String),
    /// Its send queue was not drained in time: the queue pair has it as soon as that is done.
    Draining,
}

/// What is asked.
#[derive(Debug)]
pub(crate) enum Asked {
    Attributes {
        /// The send queue is drained first (SQD), and goes on behind it.
        drains: bool,
        attr: Box<QpAttr>,
        mask: AttrMask,
        /// Of a connection.
        path: PathChange,
    },
    /// Where datagrams go.
    Destination { ah: AddressHandle, qpn: u32, qkey: u32 },
    /// The send queue is drained, and holds what is posted to it.
    Pause,
    /// It sends again.
    Resume,
}

/// What changes of the path to a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PathChange {
    pub(crate) traffic_class: Option<u8>,
    pub(crate) hop_limit: Option<u8>,
    pub(crate) service_level: Option<u8>,
}

impl PathChange {
    /// The path with the change; `None`: nothing of it changes.
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
    /// The asking thread waits no more, and wants no pause any more.
    is_abandoned: bool,
}

impl Change {
    pub(crate) fn new(asked: Asked) -> Arc<Change> {
        Arc::new(Change { asked, state: Mutex::default(), ended: Condvar::new() })
    }

    /// The lcore: it is over.
    pub(crate) fn end(&self, outcome: ChangeOutcome) {
        self.lock().outcome = Some(outcome);
        self.ended.notify_all();
    }

    pub(crate) fn refuse(&self, why: impl fmt::Display) {
        self.end(ChangeOutcome::Refused(why.to_string()));
    }

    /// The lcore: the pause has begun. False if nobody wants it any more.
    pub(crate) fn begin_pause(&self, drained_in: Duration) -> bool {
        let mut state = self.lock();
        if !state.is_abandoned {
            state.outcome = Some(ChangeOutcome::Taken { held: drained_in });
            self.ended.notify_all();
        }
        !state.is_abandoned
    }

    /// The asking thread waits no more: nobody reads the outcome.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.lock().is_abandoned
    }

    pub(crate) fn is_over(&self) -> bool {
        self.lock().outcome.is_some()
    }

    /// The asking thread: the outcome, if there is one within `timeout`.
    pub(crate) fn wait(&self, timeout: Duration) -> Option<ChangeOutcome> {
        let waited = self.ended.wait_timeout_while(self.lock(), timeout, |state| state.outcome.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.outcome.clone()
    }

    /// The asking thread waits no more. Gives the outcome, if it came at the last moment.
    pub(crate) fn abandon(&self) -> Option<ChangeOutcome> {
        let mut state = self.lock();
        state.is_abandoned = true;
        state.outcome.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change of it is one assignment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A change whose send queue is not drained yet.
#[derive(Debug)]
pub(crate) struct Changing {
    pub(crate) change: Arc<Change>,
    pub(crate) since_ns: Tick,
}

/// The same change, and not an equal one.
impl PartialEq for Change {
    fn eq(&self, other: &Change) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Change {}
