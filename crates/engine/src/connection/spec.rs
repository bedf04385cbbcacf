//! A connection by address, as plain data: before it is made, and once it is established.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use verbline_verbs::connection::{ConnectOptions, Connection, Listener};
use verbline_verbs::{InitSpec, Provider, QpError, QpMaker, QueuePair};

use crate::connection::cm_mailbox::CmMailbox;
use crate::errors::error::Place;

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
    pub(crate) port: LocalPort,
    pub(crate) role: Role,
    pub(crate) reconnect: Option<Reconnect>,
    pub(crate) attempts: u64,
    pub(crate) took: Duration,
    pub(crate) connection: Connection,
}
