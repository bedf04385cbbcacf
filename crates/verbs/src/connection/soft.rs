//! Connections between software RNICs of this process: a directory of listeners, and a mailbox per
//! connection.
//!
//! The mailbox is a mutex and, for each side, an eventfd that the other side rings.

mod home;
mod mailbox;
mod ports;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, Weak};

use verbline_softnic::wire::{self as softnic, Asked, Listening, PortSpace, Wire, reason};

pub(super) use self::home::Home;
pub(super) use self::home::PORT;
use self::home::homes;
use self::mailbox::{End, Mailbox, Offer, Side, State, Waiting};
pub(super) use self::mailbox::{Hall, PORTS};
pub(super) use self::ports::Port;
use super::options::Ends;
use super::waiting::{Bell, lock};
use super::{CmTransport, ConnParam, ConnectOptions, ConnectionError, Deadline};
use crate::device::attr::Mtu;
use crate::device::gid::Endpoint;
use crate::device::provider::Provider;
use crate::errno::{Errno, VerbError};
use crate::qp::QueuePair;
use crate::qp::attr::{InitSpec, RtrSpec, RtsSpec};

/// Ports to try for a listener, one after another, while other processes hold them.
const PICKS_MAX: usize = 256;

#[derive(Debug)]
pub(super) struct Route {
    from: Home,
    port: Port<Hall>,
    to: SocketAddr,
}

impl Route {
    pub(super) fn resolve(to: SocketAddr, from: Option<SocketAddr>) -> Result<Route, ConnectionError> {
        let homes = homes()?;
        let home = |address: IpAddr| homes.iter().find(|home| home.address == address).cloned();
        let unreachable = |address| ConnectionError::Unreachable { provider: Provider::Soft, address };
        let target = home(to.ip()).ok_or_else(|| unreachable(to))?;
        let port = from.map_or(0, |from| from.port());
        let from = match from.filter(|from| !from.ip().is_unspecified()) {
            Some(from) => home(from.ip()).ok_or_else(|| unreachable(from))?,
            // Like a host, which connects to an address of its own from that very address.
            None => target,
        };
        let port = PORTS.claim(SocketAddr::new(from.address, port), Weak::new())?;
        Ok(Route { from, port, to })
    }

    pub(super) fn device_name(&self) -> &str {
        &self.from.device
    }

    pub(super) fn connect(
        self,
        qp: &mut QueuePair,
        transport: CmTransport,
        options: &ConnectOptions,
    ) -> Result<Connecting, ConnectionError> {
        let address = self.to;
        let hall = PORTS.listener_at(address).filter(|hall| hall.transport == transport);
        let hall = hall.ok_or(ConnectionError::Refused { address })?;
        bring_to_init(qp, &self.from, options)?;
        let to = homes()?.into_iter().find(|home| home.address == address.ip());
        let to = to.ok_or(ConnectionError::Unreachable { provider: Provider::Soft, address })?;
        let mailbox = Arc::new(Mailbox {
            state: Mutex::new(State::Asked),
            caller: Bell::new()?,
            callee: Bell::new()?,
            request: Offer::new(qp, options),
            from: self.port,
            to,
            called: address,
        });
        let mut waiting = lock(&hall.waiting);
        if waiting.len() >= hall.backlog {
            return Err(ConnectionError::Refused { address });
        }
        waiting.push_back(Waiting::Here(mailbox.clone()));
        drop(waiting);
        hall.bell.ring();
        Ok(Connecting { end: End { mailbox, side: Side::Caller }, address, options: options.clone() })
    }
}

/// The port space of a transport, for connections to other processes.
pub(super) fn space_of(transport: CmTransport) -> PortSpace {
    match transport {
        CmTransport::Rc => PortSpace::Reliable,
        CmTransport::Uc => PortSpace::Unreliable,
    }
}

/// Whether the path to an address stays in this process: a soft device has the address, and, if
/// other processes may share it, a listener here has it too.
pub(super) fn is_here(to: SocketAddr) -> Result<bool, ConnectionError> {
    let is_own = homes()?.iter().any(|home| home.address == to.ip());
    let is_shared = || softnic::all().any(|wire| wire.address().ip() == to.ip());
    Ok(is_own && (!is_shared() || PORTS.listener_at(to).is_some()))
}

/// Brings a QP to INIT, again if the caller brought it there to post receives.
pub(super) fn bring_to_init(qp: &mut QueuePair, home: &Home, options: &ConnectOptions) -> Result<(), ConnectionError> {
    let gid_index = home.gid_index;
    qp.to_init(&InitSpec { port: PORT, gid_index, access: options.access, ..InitSpec::default() })?;
    Ok(())
}

/// READs and atomics that a side serves at once, and has in progress at once.
#[derive(Clone, Copy)]
pub(super) struct ReadDepths {
    pub(super) responder_resources: u8,
    pub(super) initiator_depth: u8,
}

/// Brings a QP to RTS, with this peer. Neither side starts more READs than the other serves.
pub(super) fn bring_up(
    qp: &mut QueuePair,
    peer: Endpoint,
    theirs: ReadDepths,
    mtu: Mtu,
    own: &ConnectOptions,
    traffic_class: u8,
) -> Result<(), ConnectionError> {
    qp.to_rtr(&RtrSpec {
        mtu,
        max_dest_rd_atomic: own.responder_resources.min(theirs.initiator_depth),
        min_rnr_timer: own.min_rnr_timer,
        traffic_class,
        ..RtrSpec::connected(peer)
    })?;
    let usual = RtsSpec::default();
    qp.to_rts(&RtsSpec {
        timeout: own.timeout.unwrap_or(usual.timeout),
        retry_cnt: own.retry_count,
        rnr_retry: own.rnr_retry_count,
        max_rd_atomic: own.initiator_depth.min(theirs.responder_resources),
        rate_limit_kbit_per_s: own.rate_limit_kbit_per_s,
    })?;
    Ok(())
}

/// Like [`bring_up`], with a peer of this process.
fn bring_up_here(
    qp: &mut QueuePair,
    peer: &Offer,
    own: &ConnectOptions,
    traffic_class: Option<u8>,
) -> Result<(), ConnectionError> {
    let ConnectOptions { responder_resources, initiator_depth, .. } = peer.options;
    let mtu = qp.context().query_port(PORT)?.active_mtu;
    let theirs = ReadDepths { responder_resources, initiator_depth };
    bring_up(qp, peer.endpoint, theirs, mtu, own, traffic_class.unwrap_or(0))
}

#[derive(Debug)]
pub(super) struct Connecting {
    end: End,
    address: SocketAddr,
    options: ConnectOptions,
}

impl Connecting {
    pub(super) fn finish(self, qp: &mut QueuePair, deadline: Deadline) -> Result<Connection, ConnectionError> {
        let what = "the listener's answer";
        let answer = self.end.wait(deadline, |state| match state {
            State::Asked => None,
            State::Accepted(offer) => Some(Ok(offer.clone())),
            State::Rejected(private_data) => Some(Err(ConnectionError::Rejected {
                address: self.address,
                code: reason::CONSUMER.into(),
                private_data: private_data.clone(),
            })),
            State::Established | State::Ended => {
                Some(Err(ConnectionError::Ended { what, event: "the listener gone".to_owned() }))
            }
        })?;
        let offer = answer.ok_or_else(|| deadline.error(what))??;
        bring_up_here(qp, &offer, &self.options, self.options.traffic_class)?;
        self.end.set(State::Established);
        let (local, private_data) = (self.end.mailbox.from.address(), offer.options.private_data);
        Ok(Connection { end: self.end, ends: Ends { peer: self.address, local, private_data } })
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.end.bell().as_fd()
    }
}

#[derive(Debug)]
pub(super) struct Listener {
    /// Dropped before the hall, like the next field: once the hall closes, no request finds it any
    /// more.
    port: Port<Hall>,
    /// The same port on the devices' addresses, for the network.
    _listening: Vec<Listening>,
    hall: Arc<Hall>,
}

/// The source of a listener's next request.
#[derive(Debug)]
pub(super) enum Caller {
    Here(Request),
    /// Another process; with the listener's port.
    Elsewhere(Asked, u16),
}

impl Listener {
    pub(super) fn bind(address: SocketAddr, transport: CmTransport, backlog: u32) -> Result<Listener, ConnectionError> {
        let known = address.ip().is_unspecified() || homes()?.iter().any(|home| home.address == address.ip());
        if !known {
            return Err(ConnectionError::Unreachable { provider: Provider::Soft, address });
        }
        for _ in 0..PICKS_MAX {
            match Listener::claim(address, transport, backlog) {
                // The port was picked here, but another process that shares the address has it: try
                // the next.
                Err(ConnectionError::AddressInUse { .. }) if address.port() == 0 => {}
                done => return done,
            }
        }
        Err(ConnectionError::AddressInUse { address })
    }

    fn claim(address: SocketAddr, transport: CmTransport, backlog: u32) -> Result<Listener, ConnectionError> {
        let (waiting, backlog) = (Mutex::default(), backlog.max(1) as usize);
        let hall = Arc::new(Hall { transport, waiting, backlog, bell: Bell::new()? });
        let port = PORTS.claim(address, Arc::downgrade(&hall))?;
        let hears = |wire: &&Wire| address.ip().is_unspecified() || wire.address().ip() == address.ip();
        let refused = |wire: &Wire, error: io::Error| match error.kind() {
            io::ErrorKind::AddrInUse => ConnectionError::AddressInUse { address },
            _ => {
                let errno = Errno::new(error.raw_os_error().unwrap_or(libc::EIO));
                VerbError::new("listen", format!("a local socket for {}", wire.address().ip()), errno).into()
            }
        };
        let listen = |wire: &'static Wire| {
            let hall = hall.clone();
            let at = (space_of(transport), port.address().port());
            wire.listen(at, move |asked| hall.take_in(asked)).map_err(|error| refused(wire, error))
        };
        let listening = softnic::all().filter(hears).map(listen).collect::<Result<_, _>>()?;
        Ok(Listener { port, _listening: listening, hall })
    }

    pub(super) fn local_addr(&self) -> SocketAddr {
        self.port.address()
    }

    pub(super) fn next(&mut self, deadline: Deadline) -> Result<Option<Caller>, ConnectionError> {
        loop {
            self.hall.bell.quiet();
            let mut waiting = lock(&self.hall.waiting);
            let first = waiting.pop_front();
            let more = !waiting.is_empty();
            drop(waiting);
            if more {
                // The descriptor stays readable for waiters.
                self.hall.bell.ring();
            }
            match first {
                // A request withdrawn meanwhile is skipped.
                Some(Waiting::Here(mailbox)) if matches!(*lock(&mailbox.state), State::Ended) => continue,
                Some(Waiting::Here(mailbox)) => {
                    return Ok(Some(Caller::Here(Request { end: End { mailbox, side: Side::Callee } })));
                }
                Some(Waiting::Elsewhere(asked)) => {
                    return Ok(Some(Caller::Elsewhere(asked, self.port.address().port())));
                }
                None => {}
            }
            if !deadline.wait(self.hall.bell.as_fd())? {
                return Ok(None);
            }
        }
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.hall.bell.as_fd()
    }
}

#[derive(Debug)]
pub(super) struct Request {
    end: End,
}

impl Request {
    pub(super) fn private_data(&self) -> &[u8] {
        &self.end.mailbox.request.options.private_data
    }

    pub(super) fn peer_addr(&self) -> SocketAddr {
        self.end.mailbox.from.address()
    }

    pub(super) fn device_name(&self) -> &str {
        &self.end.mailbox.to.device
    }

    pub(super) fn param(&self) -> ConnParam {
        self.end.mailbox.request.param()
    }

    pub(super) fn accept(self, qp: &mut QueuePair, options: &ConnectOptions) -> Result<Connection, ConnectionError> {
        let mailbox = &self.end.mailbox;
        bring_to_init(qp, &mailbox.to, options)?;
        let asked_with = mailbox.request.options.traffic_class;
        bring_up_here(qp, &mailbox.request, options, options.traffic_class.or(asked_with))?;
        let (peer, local) = (mailbox.from.address(), mailbox.called);
        let private_data = mailbox.request.options.private_data.clone();
        self.end.set(State::Accepted(Offer::new(qp, options)));
        Ok(Connection { end: self.end, ends: Ends { peer, local, private_data } })
    }

    pub(super) fn reject(self, reason: &[u8]) {
        self.end.set(State::Rejected(reason.to_vec()));
    }
}

#[derive(Debug)]
pub(super) struct Connection {
    end: End,
    pub(super) ends: Ends,
}

impl Connection {
    pub(super) fn wait_established(&mut self, deadline: Deadline) -> Result<(), ConnectionError> {
        let what = "establishing";
        let answer = self.end.wait(deadline, |state| match state {
            State::Established => Some(Ok(())),
            State::Ended => Some(Err(ConnectionError::Ended { what, event: "the peer gone".to_owned() })),
            _ => None,
        })?;
        answer.ok_or_else(|| deadline.error(what))?
    }

    pub(super) fn wait_disconnected(&mut self, deadline: Deadline) -> Result<bool, ConnectionError> {
        let ended = |state: &State| matches!(state, State::Ended).then_some(());
        Ok(self.end.wait(deadline, ended)?.is_some())
    }

    pub(super) fn end_reason(&self) -> Option<&'static str> {
        matches!(*lock(&self.end.mailbox.state), State::Ended).then_some("the peer disconnected")
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.end.bell().as_fd()
    }
}
