//! Connections of kernel devices, through rdma_cm(7).
//!
//! Each id has an event channel of its own, non-blocking, so that a connection is independent of its listener. No QP is attached
//! to an id: rdma_cm tells the attributes (rdma_init_qp_attr(3)) and the QP, on the caller's own context, is modified here. Every
//! event is copied and acknowledged before anything else happens: destroying an id never waits for one.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{self, NonNull};

use rdma_sys::{ibv_qp_attr, rdma_port_space};
use rdma_sys::{rdma_cm_event, rdma_cm_event_type as event_type, rdma_cm_id, rdma_conn_param, rdma_event_channel};

use super::{ConnectOptions, ConnectionError, Deadline};
use crate::context::set_nonblocking;
use crate::errno::{Errno, VerbError};
use crate::provider::Provider;
use crate::qp::QueuePair;
use crate::qp_attr::{AttrMask, QpState};

/// The CM's reason when nobody listens (InfiniBand Architecture Specification, table 117: "invalid service ID").
const INVALID_SERVICE: i32 = 8;

/// An id and the channel that its events come by.
#[derive(Debug)]
struct CmId {
    id: NonNull<rdma_cm_id>,
    channel: Channel,
}

// SAFETY: the verbs of rdma_cm may be called from any thread; a CmId is used through `&mut self` where they change it.
unsafe impl Send for CmId {}
// SAFETY: what `&self` reads is written only by the events that `&mut self` takes.
unsafe impl Sync for CmId {}

impl CmId {
    fn create() -> Result<CmId, VerbError> {
        let channel = Channel::create()?;
        let mut id = ptr::null_mut();
        // SAFETY: the channel is open; `id` may be written by the call.
        let ret = unsafe {
            rdma_sys::rdma_create_id(channel.0.as_ptr(), &raw mut id, ptr::null_mut(), rdma_port_space::RDMA_PS_TCP)
        };
        check("rdma_create_id", ret, || "a connection".to_owned())?;
        let id = NonNull::new(id)
            .ok_or_else(|| VerbError::new("rdma_create_id", "a connection", Errno::new(libc::EINVAL)))?;
        Ok(CmId { id, channel })
    }

    fn as_ptr(&self) -> *mut rdma_cm_id {
        self.id.as_ptr()
    }

    /// The next event, copied and acknowledged; `None` when the time is over.
    fn next_event(&mut self, deadline: Deadline) -> Result<Option<Event>, VerbError> {
        self.channel.next_event(deadline)
    }

    /// Waits for an event of this type.
    fn expect(&mut self, kind: u32, what: &'static str, deadline: Deadline) -> Result<Event, ConnectionError> {
        let event = self.next_event(deadline)?.ok_or_else(|| deadline.error(what))?;
        if event.kind == kind {
            return Ok(event);
        }
        let address = self.peer_addr();
        Err(match event.kind {
            event_type::RDMA_CM_EVENT_ADDR_ERROR
            | event_type::RDMA_CM_EVENT_ROUTE_ERROR
            | event_type::RDMA_CM_EVENT_UNREACHABLE => {
                ConnectionError::Unreachable { provider: Provider::Kernel, address }
            }
            event_type::RDMA_CM_EVENT_REJECTED if event.status == INVALID_SERVICE => {
                ConnectionError::Refused { address }
            }
            event_type::RDMA_CM_EVENT_REJECTED => {
                ConnectionError::Rejected { address, code: event.status, private_data: event.private_data }
            }
            _ => ConnectionError::Ended { what, event: event.describe() },
        })
    }

    fn local_addr(&self) -> SocketAddr {
        // SAFETY: the id is alive; both address fields are as long as a sockaddr_storage and were zeroed by rdma_create_id.
        unsafe { read_address(&raw const (*self.as_ptr()).route.addr.src_addr_union.src_storage) }
    }

    fn peer_addr(&self) -> SocketAddr {
        // SAFETY: as above.
        unsafe { read_address(&raw const (*self.as_ptr()).route.addr.dst_addr_union.dst_storage) }
    }

    fn port(&self) -> u8 {
        // SAFETY: the id is alive.
        unsafe { (*self.as_ptr()).port_num }
    }

    /// The device that the id is bound to.
    fn device_name(&self) -> Result<String, ConnectionError> {
        // SAFETY: the id is alive; a bound id has a context, which librdmacm keeps open, and a device a name.
        let name = unsafe {
            let context = (*self.as_ptr()).verbs;
            if context.is_null() {
                let address = self.peer_addr();
                return Err(ConnectionError::Unreachable { provider: Provider::Kernel, address });
            }
            CStr::from_ptr(rdma_sys::ibv_get_device_name((*context).device))
        };
        Ok(name.to_string_lossy().into_owned())
    }

    /// Brings a QP to a state with the attributes that the connection manager knows.
    fn bring(&self, qp: &mut QueuePair, state: QpState, rtr: Option<u8>) -> Result<(), ConnectionError> {
        // SAFETY: ibv_qp_attr is integers and unions of them: all zeros is a value.
        let mut attr: ibv_qp_attr = unsafe { std::mem::zeroed() };
        attr.qp_state = state.raw();
        let mut mask = 0;
        // SAFETY: the id is alive; both may be written by the call, which reads the state.
        let ret = unsafe { rdma_sys::rdma_init_qp_attr(self.as_ptr(), &raw mut attr, &raw mut mask) };
        check("rdma_init_qp_attr", ret, || format!("{} to {state}", qp.describe()))?;
        if let Some(served) = rtr {
            attr.max_dest_rd_atomic = served;
        }
        qp.modify_prepared(attr, AttrMask(mask.cast_unsigned()), state)?;
        Ok(())
    }

    /// INIT, unless the caller brought it there to post receives.
    fn bring_to_init(&self, qp: &mut QueuePair) -> Result<(), ConnectionError> {
        match qp.state() {
            QpState::Reset => self.bring(qp, QpState::Init, None),
            _ => Ok(()),
        }
    }
}

impl Drop for CmId {
    fn drop(&mut self) {
        // SAFETY: created once, destroyed once, before the channel; its events are acknowledged, so that this does not wait.
        let ret = unsafe { rdma_sys::rdma_destroy_id(self.as_ptr()) };
        if ret != 0 {
            tracing::warn!(errno = %Errno::last(), "an rdma_cm id would not go");
        }
    }
}

impl AsFd for CmId {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.fd()
    }
}

#[derive(Debug)]
struct Channel(NonNull<rdma_event_channel>);

impl Channel {
    fn create() -> Result<Channel, VerbError> {
        // SAFETY: no arguments.
        let raw = unsafe { rdma_sys::rdma_create_event_channel() };
        let raw = NonNull::new(raw).ok_or_else(|| {
            let error = VerbError::last("rdma_create_event_channel", || "a connection");
            match error.errno.raw() {
                libc::ENODEV | libc::ENOENT => error.advise(
                    "this kernel has no RDMA connection manager: load the module rdma_ucm and a device's driver",
                ),
                _ => error,
            }
        })?;
        let channel = Channel(raw);
        set_nonblocking(channel.fd()).map_err(|errno| VerbError::new("fcntl(O_NONBLOCK)", "a connection", errno))?;
        Ok(channel)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel is open, and the descriptor belongs to it until it is destroyed, which `self` outlives.
        unsafe { BorrowedFd::borrow_raw((*self.0.as_ptr()).fd) }
    }

    fn next_event(&self, deadline: Deadline) -> Result<Option<Event>, VerbError> {
        loop {
            let mut event = ptr::null_mut();
            // SAFETY: the channel is open; `event` may be written by the call. The descriptor is non-blocking.
            let ret = unsafe { rdma_sys::rdma_get_cm_event(self.0.as_ptr(), &raw mut event) };
            if ret == 0 {
                // SAFETY: the call succeeded, so `event` is one that is not acknowledged yet; acknowledged once, here.
                return unsafe {
                    let copy = Event::read(event);
                    rdma_sys::rdma_ack_cm_event(event);
                    Ok(Some(copy))
                };
            }
            let errno = Errno::last();
            if errno.raw() != libc::EAGAIN && errno.raw() != libc::EINTR {
                return Err(VerbError::new("rdma_get_cm_event", "a connection", errno));
            }
            if !deadline.wait(self.fd())? {
                return Ok(None);
            }
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: created once, destroyed once; its id is gone.
        unsafe { rdma_sys::rdma_destroy_event_channel(self.0.as_ptr()) };
    }
}

/// A copy of what an event said.
struct Event {
    /// `enum rdma_cm_event_type`, as the integer that it is.
    kind: u32,
    status: i32,
    /// Of a request: the new id.
    id: *mut rdma_cm_id,
    private_data: Vec<u8>,
    /// READs and atomics that the peer serves, and starts.
    responder_resources: u8,
    initiator_depth: u8,
}

impl Event {
    /// # Safety
    /// `event` came from rdma_get_cm_event and is not acknowledged yet.
    unsafe fn read(event: *const rdma_cm_event) -> Event {
        // SAFETY: the caller's word. Ids here are of RDMA_PS_TCP, whose events fill the `conn` part; the union is zeroed before, so
        // that every field of it can be read.
        unsafe {
            let conn = &(*event).param.conn;
            let (data, len) = (conn.private_data.cast::<u8>(), usize::from(conn.private_data_len));
            let has_data = !data.is_null() && len > 0;
            let private_data = if has_data { std::slice::from_raw_parts(data, len).to_vec() } else { Vec::new() };
            Event {
                kind: (*event).event,
                status: (*event).status,
                id: (*event).id,
                private_data,
                responder_resources: conn.responder_resources,
                initiator_depth: conn.initiator_depth,
            }
        }
    }

    fn describe(&self) -> String {
        // SAFETY: gives a static string for any value.
        let name = unsafe { CStr::from_ptr(rdma_sys::rdma_event_str(self.kind)) };
        format!("{} (status {})", name.to_string_lossy(), self.status)
    }
}

#[derive(Debug)]
pub(super) struct Route {
    id: CmId,
    device_name: String,
}

impl Route {
    pub(super) fn resolve(
        to: SocketAddr,
        from: Option<SocketAddr>,
        deadline: Deadline,
    ) -> Result<Route, ConnectionError> {
        let mut id = CmId::create()?;
        let (mut to_raw, mut from_raw) = (RawAddress::new(to), from.map(RawAddress::new));
        let from_ptr = from_raw.as_mut().map_or(ptr::null_mut(), RawAddress::as_ptr);
        // SAFETY: the id is alive; both addresses are read during the call.
        let ret = unsafe { rdma_sys::rdma_resolve_addr(id.as_ptr(), from_ptr, to_raw.as_ptr(), deadline.left_ms()) };
        if let Err(error) = check("rdma_resolve_addr", ret, || to.to_string()) {
            // What the kernel says when no route or no RDMA device leads there.
            let nowhere = [libc::ENETUNREACH, libc::EHOSTUNREACH, libc::ENODEV, libc::EADDRNOTAVAIL];
            let unreachable = ConnectionError::Unreachable { provider: Provider::Kernel, address: to };
            return Err(if nowhere.contains(&error.errno.raw()) { unreachable } else { error.into() });
        }
        let unreachable = |error| match error {
            ConnectionError::Unreachable { provider, .. } => ConnectionError::Unreachable { provider, address: to },
            other => other,
        };
        id.expect(event_type::RDMA_CM_EVENT_ADDR_RESOLVED, "resolving the address", deadline).map_err(unreachable)?;
        // SAFETY: the id is alive and bound.
        let ret = unsafe { rdma_sys::rdma_resolve_route(id.as_ptr(), deadline.left_ms()) };
        check("rdma_resolve_route", ret, || to.to_string())?;
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
        self.id.bring_to_init(qp)?;
        let mut param = conn_param(qp, options, options.responder_resources, options.initiator_depth);
        // SAFETY: the id's route is resolved; the parameters and the private data are read during the call.
        let ret = unsafe { rdma_sys::rdma_connect(self.id.as_ptr(), &raw mut param) };
        check("rdma_connect", ret, || self.id.peer_addr().to_string())?;
        Ok(Connecting { id: self.id })
    }
}

#[derive(Debug)]
pub(super) struct Connecting {
    id: CmId,
}

impl Connecting {
    pub(super) fn finish(mut self, qp: &mut QueuePair, deadline: Deadline) -> Result<Connection, ConnectionError> {
        // The event of an id without a QP; one with a QP would get ESTABLISHED (rdma_get_cm_event(3)).
        let answer = event_type::RDMA_CM_EVENT_CONNECT_RESPONSE;
        let event = self.id.expect(answer, "the listener's answer", deadline)?;
        self.id.bring(qp, QpState::Rtr, None)?;
        self.id.bring(qp, QpState::Rts, None)?;
        // SAFETY: the id has its answer and no QP.
        let ret = unsafe { rdma_sys::rdma_establish(self.id.as_ptr()) };
        check("rdma_establish", ret, || self.id.peer_addr().to_string())?;
        Ok(Connection { id: self.id, private_data: event.private_data, established: true, disconnected: false })
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
    pub(super) fn bind(address: SocketAddr, backlog: u32) -> Result<Listener, ConnectionError> {
        let id = CmId::create()?;
        let mut raw = RawAddress::new(address);
        // SAFETY: the id is alive; the address is read during the call.
        let ret = unsafe { rdma_sys::rdma_bind_addr(id.as_ptr(), raw.as_ptr()) };
        check("rdma_bind_addr", ret, || address.to_string()).map_err(|error| match error.errno.raw() {
            libc::EADDRINUSE => ConnectionError::AddressInUse { address },
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
                // The peer is gone before it was looked at.
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
    responder_resources: u8,
    initiator_depth: u8,
}

impl Request {
    /// Gives the new id a channel of its own.
    fn take(id: NonNull<rdma_cm_id>, event: Event) -> Result<Request, VerbError> {
        let channel = Channel::create()?;
        // SAFETY: the id is new and ours; its only event, the request, is acknowledged, so that this does not wait.
        let ret = unsafe { rdma_sys::rdma_migrate_id(id.as_ptr(), channel.0.as_ptr()) };
        let id = CmId { id, channel };
        check("rdma_migrate_id", ret, || "a connection request".to_owned())?;
        let device_name = id
            .device_name()
            .map_err(|_| VerbError::new("rdma_get_cm_event", "a connection request", Errno::new(libc::ENODEV)))?;
        Ok(Request {
            id,
            device_name,
            private_data: event.private_data,
            responder_resources: event.responder_resources,
            initiator_depth: event.initiator_depth,
        })
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

    pub(super) fn accept(self, qp: &mut QueuePair, options: &ConnectOptions) -> Result<Connection, ConnectionError> {
        // Neither side starts more READs than the other serves (rdma_accept(3)). The event speaks from this side's view.
        let served = options.responder_resources.min(self.responder_resources);
        let started = options.initiator_depth.min(self.initiator_depth);
        self.id.bring_to_init(qp)?;
        self.id.bring(qp, QpState::Rtr, Some(served))?;
        self.id.bring(qp, QpState::Rts, None)?;
        let mut param = conn_param(qp, options, served, started);
        // SAFETY: the id is a request that was not answered; the parameters and the private data are read during the call.
        let ret = unsafe { rdma_sys::rdma_accept(self.id.as_ptr(), &raw mut param) };
        check("rdma_accept", ret, || self.id.peer_addr().to_string())?;
        let Request { id, private_data, .. } = self;
        Ok(Connection { id, private_data, established: false, disconnected: false })
    }

    pub(super) fn reject(self, reason: &[u8]) -> Result<(), ConnectionError> {
        // The length was checked against REJECT_PRIVATE_BYTES.
        let len = reason.len() as u8;
        // SAFETY: the id is a request that was not answered; the private data is read during the call.
        let ret = unsafe { rdma_sys::rdma_reject(self.id.as_ptr(), reason.as_ptr().cast(), len) };
        check("rdma_reject", ret, || self.id.peer_addr().to_string())?;
        Ok(())
    }
}

#[derive(Debug)]
pub(super) struct Connection {
    id: CmId,
    private_data: Vec<u8>,
    established: bool,
    disconnected: bool,
}

impl Connection {
    pub(super) fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    pub(super) fn peer_addr(&self) -> SocketAddr {
        self.id.peer_addr()
    }

    pub(super) fn wait_established(&mut self, deadline: Deadline) -> Result<(), ConnectionError> {
        if self.established {
            return Ok(());
        }
        let answer = self.id.expect(event_type::RDMA_CM_EVENT_ESTABLISHED, "establishing", deadline);
        match &answer {
            Ok(_) => self.established = true,
            Err(ConnectionError::TimedOut { .. } | ConnectionError::Verb(_)) => {}
            Err(_) => self.disconnected = true,
        }
        answer.map(drop)
    }

    pub(super) fn wait_disconnected(&mut self, deadline: Deadline) -> Result<bool, ConnectionError> {
        while !self.disconnected {
            let Some(event) = self.id.next_event(deadline)? else { return Ok(false) };
            match event.kind {
                event_type::RDMA_CM_EVENT_ESTABLISHED => self.established = true,
                event_type::RDMA_CM_EVENT_DISCONNECTED
                | event_type::RDMA_CM_EVENT_REJECTED
                | event_type::RDMA_CM_EVENT_DEVICE_REMOVAL
                | event_type::RDMA_CM_EVENT_TIMEWAIT_EXIT
                | event_type::RDMA_CM_EVENT_CONNECT_ERROR
                | event_type::RDMA_CM_EVENT_UNREACHABLE => self.disconnected = true,
                _ => {}
            }
        }
        Ok(true)
    }

    pub(super) fn disconnect(self) -> Result<(), ConnectionError> {
        // SAFETY: the id is connected, or was.
        let ret = unsafe { rdma_sys::rdma_disconnect(self.id.as_ptr()) };
        match check("rdma_disconnect", ret, || self.id.peer_addr().to_string()) {
            // The peer was first.
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

fn check(verb: &'static str, ret: i32, object: impl FnOnce() -> String) -> Result<(), VerbError> {
    VerbError::check(verb, ret, object)
}

/// A socket address as C has it.
struct RawAddress(libc::sockaddr_storage);

impl RawAddress {
    fn new(address: SocketAddr) -> RawAddress {
        // SAFETY: integers only: all zeros is a value.
        let mut storage: libc::sockaddr_storage = unsafe { MaybeUninit::zeroed().assume_init() };
        let raw = &raw mut storage;
        match address {
            SocketAddr::V4(address) => {
                let v4 = libc::sockaddr_in {
                    sin_family: libc::AF_INET as u16,
                    sin_port: address.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
                    sin_zero: [0; 8],
                };
                // SAFETY: a sockaddr_storage has room and alignment for every socket address (sockaddr(3type)).
                unsafe { raw.cast::<libc::sockaddr_in>().write(v4) };
            }
            SocketAddr::V6(address) => {
                let v6 = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as u16,
                    sin6_port: address.port().to_be(),
                    sin6_flowinfo: address.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                    sin6_scope_id: address.scope_id(),
                };
                // SAFETY: as above.
                unsafe { raw.cast::<libc::sockaddr_in6>().write(v6) };
            }
        }
        RawAddress(storage)
    }

    fn as_ptr(&mut self) -> *mut libc::sockaddr {
        (&raw mut self.0).cast()
    }
}

/// An address that C wrote; the unspecified one when it is of another family.
///
/// # Safety
/// `raw` is a live, initialised sockaddr_storage.
unsafe fn read_address(raw: *const libc::sockaddr_storage) -> SocketAddr {
    // SAFETY: the caller's word; the family says which address it holds.
    unsafe {
        match i32::from((*raw).ss_family) {
            libc::AF_INET => {
                let v4 = raw.cast::<libc::sockaddr_in>().read();
                let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
                SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into()
            }
            libc::AF_INET6 => {
                let v6 = raw.cast::<libc::sockaddr_in6>().read();
                let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
                SocketAddrV6::new(ip, u16::from_be(v6.sin6_port), v6.sin6_flowinfo, v6.sin6_scope_id).into()
            }
            _ => SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_go_to_c_and_come_back() {
        for text in ["10.9.9.1:4420", "[fe80::1%7]:18515", "0.0.0.0:0"] {
            let address: SocketAddr = text.parse().unwrap();
            let raw = RawAddress::new(address);
            // SAFETY: `raw` is alive and initialised.
            assert_eq!(unsafe { read_address(&raw const raw.0) }, address);
        }
    }
}
