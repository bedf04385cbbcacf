//! Connections of software RNICs to other processes and hosts: rdma_cm's messages over the device's
//! wire.
//!
//! The thread that receives a message records the connection's progress, and an eventfd tells the
//! owner.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex};

use verbline_softnic::wire::{self, Asked, Exchange, News, QpIncidents, Terms, Wire, reason};

use super::options::Ends;
use super::soft::{Hall, Home, PORTS, Port, ReadDepths, bring_to_init, bring_up, space_of};
use super::waiting::{Bell, lock};
use super::{CmTransport, ConnParam, ConnectOptions, ConnectionError, Deadline};
use crate::device::attr::Mtu;
use crate::device::gid::{Endpoint, Gid};
use crate::errno::{Errno, VerbError};
use crate::qp::QueuePair;

/// The progress of a connection, as one side knows it.
#[derive(Debug)]
struct Progress {
    state: Mutex<State>,
    bell: Bell,
}

#[derive(Debug)]
enum State {
    Asked,
    Accepted(Terms),
    Rejected(u16, Vec<u8>),
    Unanswered,
    Established,
    Ended,
}

impl Progress {
    fn new() -> Result<Arc<Progress>, VerbError> {
        Ok(Arc::new(Progress { state: Mutex::new(State::Asked), bell: Bell::new()? }))
    }

    /// The wire's callback for news of the connection.
    fn note(self: &Arc<Self>) -> impl FnMut(News) + Send + use<> {
        let progress = self.clone();
        move |news| {
            *lock(&progress.state) = match news {
                News::Accepted(terms) => State::Accepted(terms),
                News::Rejected { reason, private_data } => State::Rejected(reason, private_data),
                News::Unanswered => State::Unanswered,
                News::Established => State::Established,
                News::Disconnected => State::Ended,
            };
            progress.bell.ring();
        }
    }
}

/// The home of a wire's device.
fn home_of(wire: &Wire) -> Home {
    Home {
        device: wire.device_name().to_owned(),
        gid_index: u8::try_from(wire.gid_index()).unwrap_or(u8::MAX),
        address: wire.address().ip(),
    }
}

/// One side's terms.
fn terms(qp: &QueuePair, psn: u32, mtu: Mtu, options: &ConnectOptions) -> Terms {
    Terms {
        qpn: qp.qpn(),
        psn,
        mtu: mtu.to_raw() as u8,
        responder_resources: options.responder_resources,
        initiator_depth: options.initiator_depth,
        retry_count: options.retry_count,
        rnr_retry: options.rnr_retry_count,
        traffic_class: options.traffic_class.unwrap_or(0),
        srq: qp.uses_srq(),
        private_data: options.private_data.clone(),
    }
}

/// Brings a QP to RTS, with this peer. rdma_cm's messages carry the PSN that the receiver is to
/// send with, so the peer sends with the `psn` that this side gave it.
fn bring_up_wired(
    qp: &mut QueuePair,
    peer: SocketAddr,
    theirs: &Terms,
    (own, psn, mtu): (&ConnectOptions, u32, Mtu),
    traffic_class: u8,
) -> Result<(), ConnectionError> {
    let gid = match peer.ip() {
        IpAddr::V4(ip) => Gid::from(ip),
        IpAddr::V6(ip) => Gid::from(ip),
    };
    let Terms { qpn, responder_resources, initiator_depth, .. } = *theirs;
    qp.send_from_psn(theirs.psn);
    let peer = Endpoint { qpn, psn, gid, lid: 0, qkey: 0 };
    bring_up(qp, peer, ReadDepths { responder_resources, initiator_depth }, mtu, own, traffic_class)
}

/// The MTU that a wire found towards an address.
fn mtu_of(wire: &Wire, to: SocketAddr, found: std::io::Result<u8>) -> Result<Mtu, ConnectionError> {
    let found = found.map_err(|error| {
        let errno = Errno::new(error.raw_os_error().unwrap_or(libc::EIO));
        // Whatever port its listener has: that of RoCE.
        let (own, peers) = (wire.address(), SocketAddr::new(to.ip(), wire.address().port()));
        VerbError::new("connect", format!("a UDP socket of {own}, to {peers}"), errno)
    })?;
    Ok(Mtu::from_raw(found.into()))
}

#[derive(Debug)]
pub(super) struct Route {
    wire: &'static Wire,
    mtu: Mtu,
    port: Port<Hall>,
    to: SocketAddr,
}

impl Route {
    /// Returns `None` if no wire leads there.
    pub(super) fn resolve(to: SocketAddr, from: Option<SocketAddr>) -> Result<Option<Route>, ConnectionError> {
        let leads = |wire: &&Wire| {
            let own = wire.address().ip();
            own.is_ipv4() == to.ip().is_ipv4() && from.is_none_or(|from| from.ip().is_unspecified() || from.ip() == own)
        };
        let Some(wire) = wire::all().find(leads) else { return Ok(None) };
        let mtu = mtu_of(wire, to, wire.path_mtu(to.ip()))?;
        let port = SocketAddr::new(wire.address().ip(), from.map_or(0, |from| from.port()));
        let port = PORTS.claim(port, std::sync::Weak::new())?;
        Ok(Some(Route { wire, mtu, port, to }))
    }

    pub(super) fn device_name(&self) -> &str {
        self.wire.device_name()
    }

    pub(super) fn connect(
        self,
        qp: &mut QueuePair,
        transport: CmTransport,
        options: &ConnectOptions,
    ) -> Result<Connecting, ConnectionError> {
        bring_to_init(qp, &home_of(self.wire), options)?;
        let (progress, psn) = (Progress::new()?, wire::random_psn());
        let terms = terms(qp, psn, self.mtu, options);
        let to = (space_of(transport), self.to);
        let exchange = self.wire.ask(self.port.address().port(), to, &terms, progress.note());
        let exchange = exchange.map_err(|refused| ConnectionError::Ended {
            what: "a request for a connection",
            event: refused.to_string(),
        })?;
        let Route { wire, mtu, port, to } = self;
        Ok(Connecting { exchange, progress, psn, wire, mtu, port, to, options: options.clone() })
    }
}

#[derive(Debug)]
pub(super) struct Connecting {
    exchange: Exchange,
    progress: Arc<Progress>,
    psn: u32,
    wire: &'static Wire,
    mtu: Mtu,
    port: Port<Hall>,
    to: SocketAddr,
    options: ConnectOptions,
}

impl Connecting {
    pub(super) fn finish(self, qp: &mut QueuePair, deadline: Deadline) -> Result<Connection, ConnectionError> {
        let what = "the listener's answer";
        let (address, own_mtu) = (self.to, self.mtu);
        let answer = self.progress.bell.wait(&self.progress.state, deadline, |state| match state {
            State::Asked => None,
            State::Accepted(terms) => Some(Ok(terms.clone())),
            State::Rejected(reason::INVALID_SERVICE, _) => Some(Err(ConnectionError::Refused { address })),
            State::Rejected(reason::INVALID_MTU, _) => Some(Err(ConnectionError::Mtu { address, own: own_mtu })),
            State::Rejected(code, private_data) => Some(Err(ConnectionError::Rejected {
                address,
                code: i32::from(*code),
                private_data: private_data.clone(),
            })),
            State::Unanswered => {
                Some(Err(ConnectionError::Unanswered { address, udp_port: self.wire.address().port() }))
            }
            State::Established | State::Ended => {
                Some(Err(ConnectionError::Ended { what, event: "the listener gone".to_owned() }))
            }
        })?;
        let theirs = answer.ok_or_else(|| deadline.error(what))??;
        let traffic_class = self.options.traffic_class.unwrap_or(0);
        bring_up_wired(qp, self.to, &theirs, (&self.options, self.psn, self.mtu), traffic_class)?;
        if !self.exchange.establish() {
            return Err(ConnectionError::Ended { what, event: "the listener gone".to_owned() });
        }
        let local = SocketAddr::new(self.wire.address().ip(), self.port.address().port());
        // From here on only the end of the connection matters.
        let mut state = lock(&self.progress.state);
        if matches!(*state, State::Accepted(_)) {
            *state = State::Established;
        }
        drop(state);
        let incidents = self.wire.qp_incidents(qp.qpn());
        let Connecting { exchange, progress, port, .. } = self;
        let ends = Ends { peer: address, local, private_data: theirs.private_data };
        Ok(Connection { _exchange: exchange, progress, incidents, _port: Some(port), ends })
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.progress.bell.as_fd()
    }
}

/// A request to this process. Dropping it rejects it without a reason.
#[derive(Debug)]
pub(super) struct Request {
    peer: SocketAddr,
    local: SocketAddr,
    wire: &'static Wire,
    terms: Terms,
    /// `None` once it is answered.
    asked: Option<Asked>,
}

impl Request {
    /// A request that came to this port of a listener.
    pub(super) fn new(asked: Asked, port: u16) -> Request {
        let local = SocketAddr::new(asked.called, port);
        Request { peer: asked.peer, local, wire: asked.wire(), terms: asked.terms.clone(), asked: Some(asked) }
    }

    pub(super) fn private_data(&self) -> &[u8] {
        &self.terms.private_data
    }

    pub(super) fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    pub(super) fn device_name(&self) -> &str {
        self.wire.device_name()
    }

    pub(super) fn param(&self) -> ConnParam {
        let Terms { initiator_depth, responder_resources, retry_count, rnr_retry, qpn, srq, .. } = self.terms;
        ConnParam {
            responder_resources: initiator_depth,
            initiator_depth: responder_resources,
            retry_count,
            rnr_retry_count: rnr_retry,
            qp_num: qpn,
            srq,
        }
    }

    pub(super) fn accept(
        mut self,
        qp: &mut QueuePair,
        options: &ConnectOptions,
    ) -> Result<Connection, ConnectionError> {
        let mtu = Mtu::from_raw(self.terms.mtu.into());
        // The peer has chosen the MTU. The kernel's newer path information may be outdated, or
        // forged.
        let own = mtu_of(self.wire, self.peer, self.wire.interface_mtu(self.peer.ip()))?;
        if own < mtu {
            self.answer(|asked| asked.reject(reason::INVALID_MTU, &[own.to_raw() as u8]));
            return Err(ConnectionError::Mtu { address: self.peer, own });
        }
        bring_to_init(qp, &home_of(self.wire), options)?;
        let (progress, psn) = (Progress::new()?, wire::random_psn());
        let traffic_class = options.traffic_class.unwrap_or(self.terms.traffic_class);
        bring_up_wired(qp, self.peer, &self.terms, (options, psn, mtu), traffic_class)?;
        // At most the requested numbers: a peer may take its own from here (rdma_accept(3)).
        let (mut terms, asked) = (terms(qp, psn, mtu, options), &self.terms);
        terms.responder_resources = terms.responder_resources.min(asked.initiator_depth);
        terms.initiator_depth = terms.initiator_depth.min(asked.responder_resources);
        let exchange = self.asked.take().and_then(|asked| asked.accept(&terms, progress.note()));
        let exchange = exchange.ok_or_else(|| ConnectionError::Ended {
            what: "accepting a connection",
            event: "the peer gone".to_owned(),
        })?;
        let incidents = self.wire.qp_incidents(qp.qpn());
        let private_data = std::mem::take(&mut self.terms.private_data);
        let ends = Ends { peer: self.peer, local: self.local, private_data };
        Ok(Connection { _exchange: exchange, progress, incidents, _port: None, ends })
    }

    pub(super) fn reject(mut self, reason: &[u8]) {
        self.answer(|asked| asked.reject(reason::CONSUMER, reason));
    }

    fn answer(&mut self, answer: impl FnOnce(Asked)) {
        if let Some(asked) = self.asked.take() {
            answer(asked);
        }
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        self.answer(|asked| asked.reject(reason::CONSUMER, &[]));
    }
}

/// A connection over the wire. Dropping it ends the connection.
#[derive(Debug)]
pub(super) struct Connection {
    _exchange: Exchange,
    progress: Arc<Progress>,
    pub(super) incidents: Option<QpIncidents>,
    pub(super) ends: Ends,
    /// The connecting side's port, held as long as the connection.
    _port: Option<Port<Hall>>,
}

impl Connection {
    pub(super) fn wait_established(&mut self, deadline: Deadline) -> Result<(), ConnectionError> {
        let what = "establishing";
        let ended = |event: &str| Some(Err(ConnectionError::Ended { what, event: event.to_owned() }));
        let answer = self.progress.bell.wait(&self.progress.state, deadline, |state| match state {
            State::Established => Some(Ok(())),
            State::Asked | State::Accepted(_) => None,
            State::Unanswered => ended("no answer from the peer"),
            State::Rejected(..) | State::Ended => ended("the peer gone"),
        })?;
        answer.ok_or_else(|| deadline.error(what))?
    }

    pub(super) fn wait_disconnected(&mut self, deadline: Deadline) -> Result<bool, ConnectionError> {
        let ended = |state: &State| (!matches!(state, State::Established | State::Asked)).then_some(());
        Ok(self.progress.bell.wait(&self.progress.state, deadline, ended)?.is_some())
    }

    pub(super) fn end_reason(&self) -> Option<&'static str> {
        match *lock(&self.progress.state) {
            State::Ended => Some("the peer disconnected"),
            State::Rejected(..) => Some("the peer rejected the connection"),
            State::Unanswered => Some("the peer does not answer"),
            State::Asked | State::Accepted(_) | State::Established => None,
        }
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.progress.bell.as_fd()
    }
}
