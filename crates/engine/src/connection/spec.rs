//! A connection by address, as plain data: before it is made, and once it is established; its
//! status at any time.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use verbline_verbs::connection::{ConnectOptions, Connection, ConnectionLink, Listener, QpIncidents};
use verbline_verbs::{InitSpec, Provider, QpError, QpMaker, QueuePair};

use crate::connection::cm_mailbox::CmMailbox;
use crate::errors::error::Place;
use crate::stats::clock::Tick;
use crate::stats::report::ConnectionState;

/// A connection that is still to be made.
#[derive(Debug)]
pub(crate) struct ConnectionSpec {
    pub(crate) port: LocalPort,
    pub(crate) role: Role,
    /// `None`: a connection that is lost stays lost.
    pub(crate) reconnect: Option<Reconnect>,
}

/// The local end: a port of the plan.
#[derive(Debug)]
pub(crate) struct LocalPort {
    /// The port's place in the plan, its name, and where the plan declares it.
    pub(crate) index: usize,
    pub(crate) name: String,
    pub(crate) at: Place,
    /// The name of its lcore.
    pub(crate) lcore: String,
    pub(crate) timeout: Duration,
    /// The device that the queue pair is on, and what brings the queue pair to INIT.
    pub(crate) device: String,
    /// Whether other processes reach that device.
    pub(crate) reaches_others: bool,
    pub(crate) init: InitSpec,
    pub(crate) options: SharedOptions,
}

/// What an end brings to every connection that it makes, until the plan says otherwise.
#[derive(Clone, Debug)]
pub(crate) struct SharedOptions(Arc<Mutex<ConnectOptions>>);

impl SharedOptions {
    pub(crate) fn new(options: ConnectOptions) -> SharedOptions {
        SharedOptions(Arc::new(Mutex::new(options)))
    }

    pub(crate) fn now(&self) -> ConnectOptions {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Connections have these from the next one on.
    pub(crate) fn set(&self, options: ConnectOptions) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = options;
    }
}

impl LocalPort {
    /// Another queue pair of the port, in INIT.
    pub(crate) fn make(&self, maker: &QpMaker) -> Result<QueuePair, QpError> {
        let mut qp = maker.make()?;
        qp.to_init(&self.init)?;
        Ok(qp)
    }
}

/// Which side of the connection the port is, as rdma_cm distinguishes them.
#[derive(Debug)]
pub(crate) enum Role {
    /// The passive side. A listener that exists is listening: peers that come early wait in its
    /// backlog.
    Listen { listener: Option<Listener>, provider: Provider, at: SocketAddr },
    /// The active side.
    Connect { provider: Provider, to: SocketAddr, from: Option<SocketAddr> },
}

impl Role {
    /// What the port does at its address.
    pub(crate) fn verb(&self) -> &'static str {
        match self {
            Role::Listen { .. } => "listens",
            Role::Connect { .. } => "connects",
        }
    }

    /// The same, with the address.
    pub(crate) fn does(&self) -> String {
        let to = if let Role::Listen { .. } = self { "at" } else { "to" };
        format!("{} {to} {}", self.verb(), self.address())
    }

    /// The address in the plan.
    pub(crate) fn address(&self) -> SocketAddr {
        match self {
            Role::Listen { at, .. } => *at,
            Role::Connect { to, .. } => *to,
        }
    }
}

/// What a reconnect needs.
#[derive(Debug)]
pub(crate) struct Reconnect {
    pub(crate) maker: QpMaker,
    pub(crate) mailbox: Arc<CmMailbox>,
}

/// A connection that has been established.
#[derive(Debug)]
pub(crate) struct Established {
    pub(crate) spec: ConnectionSpec,
    pub(crate) status: SharedStatus,
    pub(crate) connection: Connection,
}

/// What is known of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Status {
    pub(crate) state: ConnectionState,
    /// The other end, or the last other end.
    pub(crate) peer: String,
    /// By what its packets go, or went last.
    pub(crate) link: ConnectionLink,
    /// What goes wrong on that way; of one over UDP.
    pub(crate) incidents: Option<QpIncidents>,
    pub(crate) attempts: u64,
    /// How often it was established.
    pub(crate) times: u64,
    /// How long the last connect took.
    pub(crate) took: Duration,
    /// Why and when it was lost last.
    pub(crate) ended: Option<(String, Tick)>,
    /// Why the last attempt failed; `None` once it is connected.
    pub(crate) last_error: Option<String>,
}

/// A status that the connection's thread writes and any thread reads.
pub(crate) type SharedStatus = Arc<Mutex<Status>>;

impl Status {
    /// Of a port that has had no connection yet.
    pub(crate) fn new() -> Status {
        Status {
            state: ConnectionState::Reconnecting,
            peer: String::new(),
            link: ConnectionLink::Process,
            incidents: None,
            attempts: 0,
            times: 0,
            took: Duration::ZERO,
            ended: None,
            last_error: None,
        }
    }

    /// It is connected: to whom, by what, and how long that took.
    pub(crate) fn connected(
        &mut self,
        peer: String,
        link: ConnectionLink,
        incidents: Option<QpIncidents>,
        took: Duration,
    ) {
        (self.state, self.last_error) = (ConnectionState::Connected, None);
        (self.peer, self.link, self.incidents, self.took) = (peer, link, incidents, took);
        self.times += 1;
    }
}

pub(crate) fn lock(status: &SharedStatus) -> MutexGuard<'_, Status> {
    // Every change is a few assignments, so a panic leaves a valid status.
    status.lock().unwrap_or_else(PoisonError::into_inner)
}
