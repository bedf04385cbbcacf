//! A connection by address, as plain data: before it is made, and once it is established; its
//! status at any time.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use verbline_verbs::connection::{ConnectOptions, Connection, ConnectionLink, Listener, QpIncidents};
use verbline_verbs::{InitSpec, Provider, QpError, QpMaker, QueuePair};

use crate::connection::cm_mailbox::CmMailbox;
use crate::errors::error::Place;
use crate::errors::guarded::lock;
use crate::stats::clock::Tick;
use crate::stats::report::ConnectionState;

/// A connection that is still to be made.
#[derive(Debug)]
pub(crate) struct ConnectionSpec {
    pub(crate) port: LocalPort,
    pub(crate) role: Role,
    /// `None`: a lost connection stays lost.
    pub(crate) maker: Option<QpMaker>,
    pub(crate) mailbox: Arc<CmMailbox>,
}

/// The local end: a port of the plan.
#[derive(Debug)]
pub(crate) struct LocalPort {
    /// The port's index in the plan, its name, and its declaration in the plan.
    pub(crate) index: usize,
    pub(crate) name: String,
    pub(crate) at: Place,
    /// The name of its lcore.
    pub(crate) lcore: String,
    /// The lcore's index in the plan.
    pub(crate) lcore_index: usize,
    pub(crate) timeout: Duration,
    /// The device of the queue pair, and the attributes that bring the queue pair to INIT.
    pub(crate) device: String,
    /// Whether other processes reach that device.
    pub(crate) reaches_others: bool,
    pub(crate) init: InitSpec,
    pub(crate) options: SharedOptions,
}

/// The options of every connection that an end makes, until the plan changes them.
#[derive(Clone, Debug)]
pub(crate) struct SharedOptions(Arc<Mutex<ConnectOptions>>);

impl SharedOptions {
    pub(crate) fn new(options: ConnectOptions) -> SharedOptions {
        SharedOptions(Arc::new(Mutex::new(options)))
    }

    pub(crate) fn now(&self) -> ConnectOptions {
        lock(&self.0).clone()
    }

    /// Sets the options from the next connection on.
    pub(crate) fn set(&self, options: ConnectOptions) {
        *lock(&self.0) = options;
    }
}

impl LocalPort {
    /// Makes another queue pair of the port, in INIT.
    pub(crate) fn make(&self, maker: &QpMaker) -> Result<QueuePair, QpError> {
        let mut qp = maker.make()?;
        qp.to_init(&self.init)?;
        Ok(qp)
    }
}

/// The port's side of the connection, in rdma_cm's terms.
#[derive(Debug)]
pub(crate) enum Role {
    /// The passive side. An existing listener is listening: early peers wait in its backlog.
    Listen { listener: Option<Listener>, provider: Provider, at: SocketAddr },
    /// The active side.
    Connect { provider: Provider, to: SocketAddr, from: Option<SocketAddr> },
}

impl Role {
    /// The port's action at its address, as a verb.
    pub(crate) fn verb(&self) -> &'static str {
        match self {
            Role::Listen { .. } => "listens",
            Role::Connect { .. } => "connects",
        }
    }

    /// The verb with the address.
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

/// A connection that has been established.
#[derive(Debug)]
pub(crate) struct Established {
    pub(crate) spec: ConnectionSpec,
    pub(crate) status: SharedStatus,
    pub(crate) connection: Connection,
}

/// The status of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Status {
    pub(crate) state: ConnectionState,
    /// The other end, or the last one.
    pub(crate) peer: String,
    /// The link that carries its packets, or carried the last.
    pub(crate) link: ConnectionLink,
    /// Counters of the link's incidents; UDP only.
    pub(crate) incidents: Option<QpIncidents>,
    pub(crate) attempts: u64,
    /// The number of times it was established.
    pub(crate) times: u64,
    /// The duration of the last connect.
    pub(crate) took: Duration,
    /// The reason and time of its last loss.
    pub(crate) ended: Option<(String, Tick)>,
    /// The error of the last attempt; `None` once it is connected.
    pub(crate) last_error: Option<String>,
}

/// A status that the connection's thread writes and any thread reads.
pub(crate) type SharedStatus = Arc<Mutex<Status>>;

impl Status {
    /// The status of a port that has had no connection yet.
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

    /// Notes that it is connected: the peer, the link, and the duration.
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
