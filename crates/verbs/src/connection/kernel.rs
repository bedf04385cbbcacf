//! Connections of kernel devices, through rdma_cm(7).
//!
//! Each id has an event channel of its own, non-blocking, so that a connection is independent of
//! its listener. No QP is attached to an id: rdma_cm supplies the attributes
//! (rdma_init_qp_attr(3)), and this module modifies the QP, on the caller's own context. Every
//! event is copied and acknowledged before anything else happens: destroying an id never waits for
//! one.

mod address;
mod id;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{self, NonNull};

use rdma_sys::{rdma_cm_event_type as event_type, rdma_cm_id, rdma_conn_param};

use self::address::RawAddress;
use self::id::{Channel, CmId, Event, check};
use super::options::{Ends, OwnAttr};
use super::{CmTransport, ConnParam, ConnectOptions, ConnectionError, Deadline};
use crate::device::provider::Provider;
use crate::errno::{Errno, VerbError};
use crate::qp::QueuePair;
use crate::qp::attr::QpState;

#[derive(Debug)]
pub(super) struct Route {
    id: CmId,
    device_name: String,
}

impl Route {
    pub(super) fn resolve(
        to: SocketAddr,
        from: Option<SocketAddr>,
        options: &ConnectOptions,
        deadline: Deadline,
    ) -> Result<Route, ConnectionError> {
        let unreachable = |error| match error {
            ConnectionError::Unreachable { provider, .. } => ConnectionError::Unreachable { provider, address: to },
            other => other,
        };
        let mut id = loop {
            match resolve_address(to, from, options.transport, deadline) {
                Err(ConnectionError::TimedOut { .. }) if !deadline.left().is_zero() => {}
                resolved => break resolved.map_err(unreachable)?,
            }
        };
        id.resolve_route(options.traffic_class, deadline.left_ms())?;
        id.expect(event_type::RDMA_CM_EVENT_ROUTE_RESOLVED, "resolving the route", deadline).map_err(unreachable)?;
        let device_name = id.device_name()?;
        Ok(Route { id, device_name })
    }

    pub(super) fn device_name(&self) -> &str {
        &self.device_name
    }

    pub(super) fn port(&self) -> u8 {
        self.id.port()
    }

    pub(super) fn connect(self, qp: &mut QueuePair, options: &ConnectOptions) -> Result<Connecting, ConnectionError> {
        self.id.bring_to_init(qp, options.access)?;
        let mut param = conn_param(qp, options, options.responder_resources, options.initiator_depth);
        // SAFETY: the id's route is resolved; the parameters and the private data are read during
        // the call.
        let ret = unsafe { rdma_sys::rdma_connect(self.id.as_ptr(), &raw mut param) };
        check("rdma_connect", ret, || self.id.peer_addr().to_string())?;
        Ok(Connecting { id: self.id, own: options.own_attr() })
    }
}

/// Resolves in tries of a second at most. The kernel may miss the answer to its ARP request when it
/// comes at once, and then looks again only when the time is over: short tries find it.
fn resolve_address(
    to: SocketAddr,
    from: Option<SocketAddr>,
    transport: CmTransport,
    deadline: Deadline,
) -> Result<CmId, ConnectionError> {
    const TRY_MS: i32 = 1_000;
    let refused = |error: VerbError| {
        if let Some(address) = from.filter(|from| is_taken(*from, &error)) {
            return ConnectionError::AddressInUse { address };
        }
        // The kernel's errors if no route or no RDMA device leads there.
        let nowhere = [libc::ENETUNREACH, libc::EHOSTUNREACH, libc::ENODEV, libc::EADDRNOTAVAIL];
        let unreachable = ConnectionError::Unreachable { provider: Provider::Kernel, address: to };
        if nowhere.contains(&error.errno.raw()) { unreachable } else { error.into() }
    };
    let (mut to_raw, mut from_raw) = (RawAddress::new(to), from.map(RawAddress::new));
    let try_ms = deadline.left_ms().min(TRY_MS);
    let channel = Channel::create()?;
    let (mut id, from_ptr) = match transport {
        CmTransport::Rc => (CmId::create(channel)?, from_raw.as_mut().map_or(ptr::null_mut(), RawAddress::as_ptr)),
        // Bound already.
        CmTransport::Uc => {
            let from = from.unwrap_or_else(|| any_address_like(to));
            (CmId::create_bound(channel, from, transport).map_err(refused)?, ptr::null_mut())
        }
    };
    // SAFETY: the id is alive; the addresses are read during the call.
    let ret = unsafe { rdma_sys::rdma_resolve_addr(id.as_ptr(), from_ptr, to_raw.as_ptr(), try_ms) };
    check("rdma_resolve_addr", ret, || to.to_string()).map_err(refused)?;
    id.expect(event_type::RDMA_CM_EVENT_ADDR_RESOLVED, "resolving the address", deadline)?;
    Ok(id)
}

/// The unspecified address of the same family, and a port that the kernel picks.
fn any_address_like(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

/// Whether an address could not be bound because its port is taken. EADDRINUSE means that it is
/// taken on the same address. EADDRNOTAVAIL means that either bind is for every address; but also
/// that no device has the address, and then another port of it fails as well.
fn is_taken(address: SocketAddr, error: &VerbError) -> bool {
    match error.errno.raw() {
        libc::EADDRINUSE => true,
        libc::EADDRNOTAVAIL => address.ip().is_unspecified() || can_bind(SocketAddr::new(address.ip(), 0)),
        _ => false,
    }
}

fn can_bind(address: SocketAddr) -> bool {
    Channel::create().and_then(|channel| CmId::create_bound(channel, address, CmTransport::Rc)).is_ok()
}

#[derive(Debug)]
pub(super) struct Connecting {
    id: CmId,
    own: OwnAttr,
}

impl Connecting {
    pub(super) fn finish(mut self, qp: &mut QueuePair, deadline: Deadline) -> Result<Connection, ConnectionError> {
        // The event of an id without a QP; an id with a QP would get ESTABLISHED
        // (rdma_get_cm_event(3)).
        let answer = event_type::RDMA_CM_EVENT_CONNECT_RESPONSE;
        let event = self.id.expect(answer, "the listener's answer", deadline)?;
        self.id.bring(qp, QpState::Rtr, self.own)?;
        self.id.bring(qp, QpState::Rts, self.own)?;
        // SAFETY: the id has its answer and no QP.
        let ret = unsafe { rdma_sys::rdma_establish(self.id.as_ptr()) };
        check("rdma_establish", ret, || self.id.peer_addr().to_string())?;
        Ok(Connection::of(self.id, event.private_data, true))
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.id.as_fd()
    }
}

#[derive(Debug)]
pub(super) struct Listener {
    id: CmId,
}

impl Listener {
    pub(super) fn bind(address: SocketAddr, transport: CmTransport, backlog: u32) -> Result<Listener, ConnectionError> {
        let channel = Channel::create()?;
        let id = CmId::create_bound(channel, address, transport).map_err(|error| match error.errno.raw() {
            _ if is_taken(address, &error) => ConnectionError::AddressInUse { address },
            libc::ENODEV | libc::EADDRNOTAVAIL => ConnectionError::Unreachable { provider: Provider::Kernel, address },
            _ => error.into(),
        })?;
        // SAFETY: the id is bound.
        let ret = unsafe { rdma_sys::rdma_listen(id.as_ptr(), i32::try_from(backlog).unwrap_or(i32::MAX)) };
        check("rdma_listen", ret, || address.to_string()).map_err(|error| match error.errno.raw() {
            libc::EADDRINUSE => ConnectionError::AddressInUse { address },
            _ => ConnectionError::from(error),
        })?;
        Ok(Listener { id })
    }

    pub(super) fn local_addr(&self) -> SocketAddr {
        self.id.local_addr()
    }

    pub(super) fn next(&mut self, deadline: Deadline) -> Result<Option<Request>, ConnectionError> {
        loop {
            let Some(event) = self.id.next_event(deadline)? else { return Ok(None) };
            let (event_type::RDMA_CM_EVENT_CONNECT_REQUEST, Some(id)) = (event.kind, NonNull::new(event.id)) else {
                return Err(ConnectionError::Ended { what: "listening", event: event.describe() });
            };
            match Request::take(id, event) {
                // The peer was gone before its request was read.
                Err(error) if error.errno.raw() == libc::ENODEV => {}
                request => return Ok(Some(request?)),
            }
        }
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.id.as_fd()
    }
}

#[derive(Debug)]
pub(super) struct Request {
    id: CmId,
    device_name: String,
    private_data: Vec<u8>,
    param: ConnParam,
}

impl Request {
    fn take(id: NonNull<rdma_cm_id>, event: Event) -> Result<Request, VerbError> {
        // Its only event, the request, is acknowledged.
        let id = CmId::take(id)?;
        let device_name = id
            .device_name()
            .map_err(|_| VerbError::new("rdma_get_cm_event", "a connection request", Errno::new(libc::ENODEV)))?;
        Ok(Request { id, device_name, private_data: event.private_data, param: event.param })
    }

    pub(super) fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    pub(super) fn peer_addr(&self) -> SocketAddr {
        self.id.peer_addr()
    }

    pub(super) fn device_name(&self) -> &str {
        &self.device_name
    }

    pub(super) fn port(&self) -> u8 {
        self.id.port()
    }

    pub(super) fn param(&self) -> ConnParam {
        self.param
    }

    pub(super) fn accept(self, qp: &mut QueuePair, options: &ConnectOptions) -> Result<Connection, ConnectionError> {
        // Neither side starts more READs than the other serves (rdma_accept(3)). The event's values
        // are from this side's view.
        let served = options.responder_resources.min(self.param.responder_resources);
        let started = options.initiator_depth.min(self.param.initiator_depth);
        self.id.bring_to_init(qp, options.access)?;
        self.id.bring(qp, QpState::Rtr, options.own_attr())?;
        self.id.bring(qp, QpState::Rts, options.own_attr())?;
        let mut param = conn_param(qp, options, served, started);
        // SAFETY: the id is a request that was not answered; the parameters and the private data
        // are read during the call.
        let ret = unsafe { rdma_sys::rdma_accept(self.id.as_ptr(), &raw mut param) };
        check("rdma_accept", ret, || self.id.peer_addr().to_string())?;
        Ok(Connection::of(self.id, self.private_data, false))
    }

    pub(super) fn reject(self, reason: &[u8]) -> Result<(), ConnectionError> {
        // The length was checked against REJECT_PRIVATE_BYTES.
        let len = reason.len() as u8;
        // SAFETY: the id is a request that was not answered; the private data is read during the
        // call.
        let ret = unsafe { rdma_sys::rdma_reject(self.id.as_ptr(), reason.as_ptr().cast(), len) };
        check("rdma_reject", ret, || self.id.peer_addr().to_string())?;
        Ok(())
    }
}

#[derive(Debug)]
pub(super) struct Connection {
    id: CmId,
    established: bool,
    /// Why the connection is over.
    ended: Option<&'static str>,
    pub(super) ends: Ends,
}

impl Connection {
    fn of(id: CmId, private_data: Vec<u8>, established: bool) -> Connection {
        let ends = Ends { peer: id.peer_addr(), local: id.local_addr(), private_data };
        Connection { id, established, ended: None, ends }
    }

    pub(super) fn wait_established(&mut self, deadline: Deadline) -> Result<(), ConnectionError> {
        if self.established {
            return Ok(());
        }
        let answer = self.id.expect(event_type::RDMA_CM_EVENT_ESTABLISHED, "establishing", deadline);
        match &answer {
            Ok(_) => self.established = true,
            Err(ConnectionError::TimedOut { .. } | ConnectionError::Verb(_)) => {}
            Err(_) => self.ended = Some("it was never established"),
        }
        answer.map(drop)
    }

    pub(super) fn wait_disconnected(&mut self, deadline: Deadline) -> Result<bool, ConnectionError> {
        while self.ended.is_none() {
            let Some(event) = self.id.next_event(deadline)? else { return Ok(false) };
            match event.kind {
                event_type::RDMA_CM_EVENT_ESTABLISHED => self.established = true,
                event_type::RDMA_CM_EVENT_DISCONNECTED => self.ended = Some("the peer disconnected"),
                event_type::RDMA_CM_EVENT_DEVICE_REMOVAL => self.ended = Some("the device was removed"),
                // The peer's address now belongs to another host, or to another interface.
                event_type::RDMA_CM_EVENT_UNREACHABLE if self.established => {
                    self.ended = Some("the peer's address has moved to another interface");
                }
                event_type::RDMA_CM_EVENT_TIMEWAIT_EXIT => self.ended = Some("the connection timed out"),
                event_type::RDMA_CM_EVENT_REJECTED
                | event_type::RDMA_CM_EVENT_CONNECT_ERROR
                | event_type::RDMA_CM_EVENT_UNREACHABLE => self.ended = Some("it was never established"),
                _ => {}
            }
        }
        Ok(true)
    }

    pub(super) fn end_reason(&self) -> Option<&'static str> {
        self.ended
    }

    pub(super) fn disconnect(self) -> Result<(), ConnectionError> {
        // SAFETY: the id is connected, or was.
        let ret = unsafe { rdma_sys::rdma_disconnect(self.id.as_ptr()) };
        match check("rdma_disconnect", ret, || self.id.peer_addr().to_string()) {
            // The peer disconnected first.
            Err(error) if error.errno.raw() == libc::EINVAL => Ok(()),
            done => Ok(done?),
        }
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.id.as_fd()
    }
}

fn conn_param(
    qp: &QueuePair,
    options: &ConnectOptions,
    responder_resources: u8,
    initiator_depth: u8,
) -> rdma_conn_param {
    rdma_conn_param {
        private_data: options.private_data.as_ptr().cast(),
        // The length was checked against CONNECT_PRIVATE_BYTES or ACCEPT_PRIVATE_BYTES.
        private_data_len: options.private_data.len() as u8,
        responder_resources,
        initiator_depth,
        flow_control: 0,
        retry_count: options.retry_count.min(7),
        rnr_retry_count: options.rnr_retry_count.min(7),
        srq: qp.uses_srq().into(),
        qp_num: qp.qpn(),
    }
}
